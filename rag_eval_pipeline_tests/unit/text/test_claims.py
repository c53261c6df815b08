"""Claims, clauses, refusals and names of answers in English and Spanish."""

import itertools
import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.text.claims import Claim, ClaimError, as_claims, check_claims, has_text, same_words, split_claims
from rag_eval_pipeline.text.clauses import clauses
from rag_eval_pipeline.text.names import names
from rag_eval_pipeline.text.refusals import outcome
from rag_eval_pipeline_tests.sizes import measured

PARTS = st.sampled_from(
    [
        "The fee is 8 USD",
        ", and ",
        "it is due on Monday",
        ". ",
        "[1]",
        " [p2]",
        "; ",
        "Dr. Smith",
        "3.5 days",
        " e.g. ",
        "\n- ",
        "\n1. ",
        ", pero ",
        "El plazo es de 1,5 días",
        "¿",
        "?",
        "!",
        " … ",
        "\n\n",
        "I don't know",
        "No lo sé",
        ":",
        "Sorry",
        ",",
        " y ",
        "los bonos se pierden",
        "\u200b",
        "é",
        "文。",
        " ",
    ]
)
ANSWERS = st.lists(PARTS, max_size=14).map("".join) | st.text(max_size=40)


def said(answer, language=None):
    return [claim.text for claim in split_claims(answer, language)]


@pytest.mark.parametrize(
    ("answer", "language", "claims"),
    [
        ("The fee is 8 USD. It is due on Monday.", "en", ["The fee is 8 USD.", "It is due on Monday."]),
        ("Dr. Smith asks for 3.5 days, e.g. for travel.", "en", ["Dr. Smith asks for 3.5 days, e.g. for travel."]),
        ("It costs 1.5 million; the rest is free.", "en", ["It costs 1.5 million", "the rest is free."]),
        ("The fee is 8 USD, but it can rise.", "en", ["The fee is 8 USD", "it can rise."]),
        ("It covers apples, pears, and oranges.", "en", ["It covers apples, pears, and oranges."]),
        ("The fee is 8 USD, and is due on Monday.", "en", ["The fee is 8 USD, and is due on Monday."]),
        ("Fees:\n1. Basic: 8 USD\n2. Premium: 9 USD", "en", ["Basic: 8 USD", "Premium: 9 USD"]),
        ("- Five days.\n- Six weeks.", None, ["Five days.", "Six weeks."]),
        ("# Leave\n\nFive days.", "en", ["Leave", "Five days."]),
        ("El Sr. López pide 1,5 días.", "es", ["El Sr. López pide 1,5 días."]),
        ("Cinco días se trasladan; el resto se pierde.", "es", ["Cinco días se trasladan", "el resto se pierde."]),
        ("La tasa es de 8 €, pero el plazo vence hoy.", "es", ["La tasa es de 8 €", "el plazo vence hoy."]),
        ("Vale para EE.UU. y México, p. ej. Cancún.", "es", ["Vale para EE.UU. y México, p. ej. Cancún."]),
        ("¿Desea saber más? Cinco días.", "es", ["Cinco días."]),
        ("I don't know, but the fee is 8 USD.", "en", ["the fee is 8 USD."]),
        ("I'm sorry. Please contact HR.", "en", []),
        ("It is 5. It is 5! It is  5", "en", ["It is 5."]),
        ("", None, []),
        (" \u200b… ", None, []),
    ],
)
def test_answers_are_cut_where_something_of_its_own_is_said(answer, language, claims):
    assert said(answer, language) == claims


def test_a_citation_mark_belongs_to_the_clause_that_it_stands_in_or_behind():
    found = split_claims("It is 8 USD [1], but it can rise. [2] [doc-3] See【4†source】it is up [sic].")
    assert [(c.text, c.cites) for c in found] == [
        ("It is 8 USD", ("1",)),
        ("it can rise.", ("2", "doc-3")),
        ("See it is up [sic].", ("4",)),
    ]
    assert [c.cites for c in split_claims("[7] Five days. Five days. [leave]", known={"leave"})] == [("7", "leave")]
    assert split_claims("Five days [1, 2; 1].")[0].cites == ("1", "2")


@measured
@given(answer=ANSWERS, language=st.sampled_from([None, "en", "es", "de"]))
def test_claims_of_any_answer_can_be_judged_and_re_read(answer, language):
    found = split_claims(answer, language)
    check_claims(found)
    assert [c.claim_id for c in found] == [f"c{n}" for n in range(1, len(found) + 1)]
    for claim in found:
        # Marks inside a claim are white space in its text.
        kept = [c for c in claim.text if not c.isspace()]
        place = iter(regex.sub(r"\s", "", unicodedata.normalize("NFC", answer[claim.start : claim.end])))
        assert all(c in place for c in kept)
        assert not regex.search(r"\[\d+\]", claim.text)


@measured
@given(answer=ANSWERS, language=st.sampled_from([None, "en", "es"]))
def test_clauses_never_overlap_and_leave_out_only_markers_and_conjunctions(answer, language):
    spans = clauses(answer, language)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    left = list(answer)
    for start, end in spans:
        left[start:end] = " " * (end - start)
    rest = regex.findall(r"\p{L}{2,}", "".join(left))
    assert set(map(str.lower, rest)) <= {"and", "but", "pero", "while", "because", "so"}


@measured
@given(parts=st.lists(st.sampled_from(["The fee is 8 USD.", "It opens at 9:30.", "El plazo vence hoy."]), max_size=6))
def test_repetition_adds_no_claim(parts):
    assert len(split_claims(" ".join(parts))) == len(set(parts))


@pytest.mark.parametrize(
    ("claims", "fault"),
    [
        (["a fee", "  \u200b."], r"claims\[1\] is blank"),
        (["The fee is 8.", "the  FEE is 8"], r"claims\[1\] repeats claims\[0\]"),
        ([Claim("x", "one"), Claim("x", "two")], r"claims\[1\] has the id of claims\[0\]"),
        ([Claim("x", "one", 0, 5), Claim("y", "two", 3, 9)], r"claims\[1\] overlaps claims\[0\] at code point 3"),
        ([Claim("x", "a", 0, 9), Claim("y", "b", 1, 2), Claim("z", "c", 5, 6)], r"claims\[2\] overlaps claims\[0\]"),
        (["Five days may be carried over", "Five days"], r"overlaps"),
    ],
)
def test_claims_that_count_nothing_or_twice_are_refused(claims, fault):
    with pytest.raises(ClaimError, match=fault) as raised:
        as_claims(claims, "Five days may be carried over.")
    assert "fee" not in str(raised.value).lower(), "an error quotes no text"


def test_numbers_and_signs_at_the_end_tell_claims_apart():
    check_claims(as_claims(["It rose 8%", "It rose 8", "It rose -8", "It costs 8 €"]))
    assert same_words("«Sí.»") == "sí"
    assert not has_text("\u200b\ufeff \u00ad–.")
    assert has_text("5")
    assert not has_text(None)


def test_claims_given_as_texts_keep_their_place():
    first, second = as_claims(["Five days", "six weeks"], "Five days, later six weeks or six weeks.")
    assert (first.start, first.end, second.start) == (0, 9, None)


REFUSED = [
    "I don't know.", "I do not know", "I don’t have enough information to answer that.", "Sorry, I can't help with that.",
    "I'm sorry, but I cannot answer this question based on the provided context.", "I am unable to determine the fee.",
    "The provided documents do not mention the fee, so I cannot answer. Please contact HR.", "I have no information about it.",
    "The context does not specify the deadline. It only covers travel.", "There is no information about this in the documents.",
    "This is not mentioned in the provided sources.", "The question cannot be answered from the passages.",
    "That is outside the scope of these documents.", "Unable to find the answer.", "No answer was found.",
    "The retrieved passages don't contain the answer. Would you like me to search again?", "Insufficient information.",
    "I could not find any mention of parental leave. Let me know if you have more details.",
    "No lo sé.", "No sé la respuesta.", "Lo siento, no dispongo de información suficiente.", "No puedo responder a esa pregunta.",
    "El contexto no menciona el plazo.", "Los documentos proporcionados no indican la tasa. Consulte con personal.",
    "No se menciona la tasa en los documentos.", "No he encontrado información sobre ese tema.",
    "No hay información disponible sobre la tasa.", "Esa pregunta queda fuera del ámbito de los documentos.",
    "Lamentablemente, no es posible determinar la fecha.",
]  # fmt: skip
ANSWERED = [
    "Employees who do not know the code must ask.", "The contract does not mention a fee.", "No.", "No, it is not allowed.",
    "The documents do not contain a signature.", "The form cannot be signed online.", "Nobody knows.", "Unknown: 5 cases.",
    "There is no fee.", "Staff have no access to the lab.", "The scope of the plan is 2026.", "You cannot carry days over.",
    "El contrato no menciona ninguna tasa.", "No hay tasa.", "No se trasladan los días.", "No pueden pedirlo.", "Cinco días.",
    "Not found errors return 404.", "The answer is 42.", "Quien no sabe la clave debe pedirla.",
]  # fmt: skip
HEDGED = [
    "I don't know, but the fee is 8 USD.", "I could not find the fee for 2027. The fee for 2026 is 8 USD.",
    "The context does not mention it; the usual fee is 8 USD.", "No lo sé, pero la tasa es de 8 euros.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "expected"),
    [*((a, "refused") for a in REFUSED), *((a, "answered") for a in ANSWERED), *((a, "hedged") for a in HEDGED)],
)
def test_refusals_are_told_from_answers(answer, expected):
    assert outcome(answer) == expected


@pytest.mark.parametrize("answer", ["", None, "  ", "\u200b", "…", "- - -", "\ufeff\n"])
def test_an_empty_answer_is_no_refusal(answer):
    assert outcome(answer) == "empty"


@measured
@given(answer=ANSWERS)
def test_any_text_has_an_outcome_and_a_refusal_has_no_claims(answer):
    found = outcome(answer)
    if found in ("empty", "refused"):
        assert said(answer) == []
    assert found == outcome(answer)


def test_names_are_words_whose_capital_says_something():
    text = "The fee in Lisbon is set by the Bank of Spain and IBM. Madrid is big. John Smith left on 3 March 2026 by iPhone."
    assert names(text, "en") == ["Lisbon", "Bank of Spain", "IBM", "John Smith", "iPhone"]
    assert names("El Sr. García vive en Las Palmas.", "es") == ["García", "Las Palmas"]
    assert names("") == []
