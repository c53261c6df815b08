"""Error rates and coverage against rapidfuzz, jiwer and the published cases."""

from collections import Counter

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.measures import Unmeasured, cer, coverage, fidelity, wer
from rag_eval_pipeline.text.normalise import FORMS, normalise
from rag_eval_pipeline_tests.sizes import measured

TEXT = st.text(st.sampled_from("ab é\u00a0\n文e\u0301X.1"), max_size=40) | st.text(max_size=30)


def sellers(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(previous + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


@measured
@given(reference=TEXT, output=TEXT)
def test_cer_is_edit_distance_over_reference_length(reference, output):
    found, r, o = cer(reference, output), normalise(reference), normalise(output)
    if r:
        assert found.value == Levenshtein.distance(r, o) / len(r) == sellers(r, o) / len(r)
        assert (found.numerator, found.denominator, found.status) == (sellers(r, o), len(r), "scored")


@measured
@given(reference=TEXT, output=TEXT)
def test_wer_equals_jiwer_on_space_joined_words(reference, output):
    words, found = normalise(reference).split(), wer(reference, output)
    if words:
        assert found.value == pytest.approx(jiwer.wer(" ".join(words), " ".join(normalise(output).split())), abs=1e-12)


@pytest.mark.parametrize("rate", [cer, wer])
def test_edge_cases_of_empty_texts(rate):
    assert (rate("", " \n").value, rate("", "").status) == (0.0, "scored")
    inserted = rate(" ", "ab cd")
    assert (inserted.value, inserted.status, inserted.inserted) == (None, "empty_reference", 5 if rate is cer else 2)
    with pytest.raises(Unmeasured, match="empty_reference"):
        inserted.require()
    assert rate("ab cd", "").value == 1.0
    assert rate("a", "b c d e").value > 1


@measured
@given(reference=TEXT.filter(lambda t: t.strip()))
def test_an_empty_output_is_a_total_loss_never_skipped(reference):
    for rate in (cer, wer):
        assert (rate(reference, "").value, rate(reference, "").status) == (1.0, "scored")


def test_empty_page_case(known_wrong):
    case = known_wrong["empty-page-is-a-total-loss"]
    found = cer(case["input"]["reference"], case["input"]["output"])
    assert (found.value, found.status) == (case["right"]["cer"], case["right"]["status"])


def test_worked_rates(worked):
    case = worked["cer_wer"]
    assert cer(case["reference"], case["output"]).value == pytest.approx(case["cer"], abs=1e-15)
    assert wer(case["reference"], case["output"]).value == pytest.approx(case["wer"], abs=1e-15)


def test_composed_and_decomposed_accents_and_no_break_spaces_are_equal():
    assert cer("Peñón más", "Pen\u0303o\u0301n\u00a0ma\u0301s").value == 0
    assert wer("a b", "a\u00a0\nb").value == 0
    assert cer("é", "e\u0301", form="none").value == 2


WORDS = st.lists(st.sampled_from(["uno", "dos", "tres", "8"]), max_size=12)


@measured
@given(reference=WORDS, output=WORDS)
def test_coverage_counts_the_longest_common_subsequence_and_the_bag(reference, output):
    found = coverage(" ".join(reference), " ".join(output))
    lcs = (len(reference) + len(output) - indel(reference, output)) // 2
    bag = sum((Counter(reference) & Counter(output)).values())
    if reference:
        assert found.coverage.value == lcs / len(reference)
        assert found.word_recall.value == bag / len(reference) >= found.coverage.value
    else:
        assert found.coverage.status == "empty_reference"
    if output:
        assert found.invented.value == (len(output) - lcs) / len(output)
        assert found.word_precision.value == bag / len(output)
    else:
        assert (found.invented.value, found.invented.status) == (None, "empty_output")


def indel(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if not i or not j:
                table[i][j] = i + j
            elif a[i - 1] == b[j - 1]:
                table[i][j] = table[i - 1][j - 1]
            else:
                table[i][j] = 1 + min(table[i - 1][j], table[i][j - 1])
    return table[-1][-1]


@measured
@given(text=st.text() | TEXT | st.text(st.sampled_from("a\x1c\x1f\x85\u00a0\u1680\u200b\u2028\u3000\ufeff e\u0301")))
def test_characters_and_words_are_those_of_the_normalised_text(text):
    for form in FORMS:
        assert fidelity._characters(text, form) == normalise(text, form)
        assert fidelity._words(text, form) == normalise(text, form).split()
