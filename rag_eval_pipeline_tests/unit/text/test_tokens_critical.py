"""Tokenizers, sentences, analysers and critical tokens."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.text.analysers import Analyser
from rag_eval_pipeline.text.critical import NEGATIONS, critical_tokens, find_listed
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.text.tokens import NAMES, get_tokenizer

TEXT = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            "No. ",
            "8 USD",
            " ",
            "\n\n",
            "Sr. ",
            "3.5",
            "é",
            "e\u0301",
            "文書。",
            "- a\n",
            "Fin. ",
            "“¿Qué?” ",
            "POL-2026-17",
            "día ",
            "!",
            "n't ",
        ]
    )
).map("".join)


def pieces(spans, text):
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXT)
def test_token_spans_are_ordered_ranges_of_the_text(name, text):
    tokenizer = get_tokenizer(name)
    spans = tokenizer.spans(text)
    assert tokenizer.count(text) == len(spans)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    if name == "chars":
        assert "".join(pieces(spans, text)) == text
    if name == "words":
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_bundled_tokens_are_not_truncated_and_carry_code_points():
    tokenizer = get_tokenizer("bundled")
    assert tokenizer.count("palabra " * 2000) > 2000
    text = "🙂 Año 2026"
    assert pieces(tokenizer.spans(text), text)[-1] == "2026"[-len(pieces(tokenizer.spans(text), text)[-1]) :]
    assert get_tokenizer("bundled") is tokenizer
    with pytest.raises(ValueError, match="unknown tokenizer"):
        get_tokenizer("tiktoken")


def test_words_know_scripts_without_spaces_marks_and_numbers():
    text = "Don't pay 3.5 हिन्दी 健身 naïve"
    assert pieces(get_tokenizer("words").spans(text), text) == ["Don't", "pay", "3.5", "हिन्दी", "健", "身", "naïve"]


@given(text=TEXT, language=st.sampled_from([None, "en", "es", "zh"]))
def test_sentences_hold_every_non_space_character_once(text, language):
    spans = sentences(text, language)
    assert all(start < end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert "".join("".join(p.split()) for p in pieces(spans, text)) == "".join(text.split())
    assert all(p == p.strip() for p in pieces(spans, text))


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["Dr. Smith paid 3.5 USD.", "He left.", "See No. 5 here."]),
        ("en", ["It costs e.g. 8 USD.", "J. R. Tolkien wrote it!", "Really?"]),
        ("es", ["El Sr. Pérez vive en EE.UU. desde 1990.", "¿Sí?", "Claro."]),
        ("es", ["Véase el art. 5 de la ley.", "Rige desde el 1.1.2026."]),
        ("zh", ["我喜欢健身。", "你呢？"]),
    ],
)
def test_sentence_ends(language, expected):
    text = ("" if language == "zh" else " ").join(expected)
    assert pieces(sentences(text, language), text) == expected


def test_lists_and_blank_lines_end_sentences():
    text = "Incluye:\n- uno\n- dos\n\nFin del texto\nque sigue.\n1. Primero\n2. Segundo"
    assert pieces(sentences(text, "es"), text) == [
        "Incluye:", "- uno", "- dos", "Fin del texto\nque sigue.", "1. Primero", "2. Segundo",
    ]  # fmt: skip


def test_analysers_stem_and_stop_by_language():
    assert Analyser("en").tokens("The policies are running") == ["polici", "run"]
    assert Analyser("es").tokens("Las vacaciones pagadas") == Analyser("es").tokens("la vacación pagada")
    assert Analyser("es-MX", stemming="none", stop_words="none").tokens("Los Días") == ["los", "días"]
    assert Analyser("xx").tokens("Los Días running") == ["los", "días", "running"]
    assert Analyser(None).tokens("我喜欢健身 abc 我") == ["我喜", "喜欢", "欢健", "健身", "abc", "我"]
    assert Analyser("ar").tokens("مرحبا")


@given(text=TEXT.filter(lambda t: any(c.isalnum() for c in t)))
def test_no_script_is_silently_dropped(text):
    if any(c.isalpha() for c in text):
        assert Analyser(None).tokens(text)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("The fee is 8 USD, 15 días, 3,5 %, 1.200 € and v2.4", "number", ["8 USD", "15 días", "3,5 %", "1.200 €", "v2.4"]),
        ("$1,200.50 in 15 working days; -5 °C; 2.5 millones de euros", "number",
         ["$1,200.50", "15 working days", "-5 °C", "2.5 millones de euros"]),
        ("2026-04-01, 1 de abril de 2026, April 1, 2026; 01/04/2026", "date",
         ["2026-04-01", "1 de abril de 2026", "April 1, 2026", "01/04/2026"]),
        ("POL-2026-17, SKU-88 and ES91 2100 0418 4502 0005 1332, A4, H2O", "code",
         ["POL-2026-17", "SKU-88", "ES91 2100 0418 4502 0005 1332", "A4", "H2O"]),
        ("It is not, never, without; can't, cannot, nor, neither, unless", "negation",
         ["not", "never", "without", "can't", "cannot", "nor", "neither", "unless"]),
        ("No, nunca, jamás, sin, ni, tampoco, ningún, ninguna, salvo, excepto", "negation",
         ["No", "nunca", "jamás", "sin", "ni", "tampoco", "ningún", "ninguna", "salvo", "excepto"]),
    ],
)  # fmt: skip
def test_critical_tokens_by_kind(text, kind, expected):
    assert [t.text for t in critical_tokens(text) if t.kind == kind] == expected


@given(text=TEXT | st.text("0123456789.,-/ $%€ aADnosi\u0660年"), language=st.sampled_from([None, "en", "es", "fr"]))
def test_critical_tokens_never_overlap_and_hold_every_digit(text, language):
    found = critical_tokens(text, language)
    assert all(t.text == text[t.start : t.end] and t.text for t in found)
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    held = {i for t in found for i in range(t.start, t.end)}
    assert {i for i, c in enumerate(text) if c.isdecimal()} <= held
    assert found == critical_tokens(text, language)


def test_a_common_word_after_a_number_is_no_unit():
    for text in ("8 in total", "en 2025 ha subido", "de 3 a 5", "5 mi coche"):
        assert all(t.text.isdigit() for t in critical_tokens(text))


def test_negations_follow_the_language_and_words_that_contain_one_do_not_count():
    assert [t.text for t in critical_tokens("sin no not", "en")] == ["no", "not"]
    assert [t.text for t in critical_tokens("sin no not", "es-ES")] == ["sin", "no"]
    assert critical_tokens("sin no not", "fr") == []
    assert critical_tokens("notable sinuous novel knot", None) == []
    for language, words in NEGATIONS.items():
        for word in words:
            assert [t.text for t in critical_tokens(f"x {word} y", language)] == [word]


def test_listed_tokens_prefer_whole_places_and_refuse_what_is_not_there():
    quote = "18 días u 8 días, no 8,5"
    assert [(t.start, t.text) for t in find_listed(quote, ["8 días", "no"])] == [(10, "8 días"), (18, "no")]
    assert [t.text for t in find_listed("a 8 USD", ["8", "8 USD"])] == ["8 USD"]
    with pytest.raises(ValueError, match=r"critical\[1\] does not occur"):
        find_listed(quote, ["no", "nunca"])
