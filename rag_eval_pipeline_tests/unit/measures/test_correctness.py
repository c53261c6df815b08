"""Correctness against SQuAD's own rules, written out; numbers, negation, refusals."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures import (
    Unmeasured,
    exact_match,
    negation_agreement,
    normalise_answer,
    numeric_agreement,
    refusal_scores,
    token_f1,
    why_refuse,
)
from rag_eval_pipeline_tests.sizes import measured

ASCII = st.text(st.sampled_from("the an a THE fee is 8.5$%-'\",!? \n\tanother"), max_size=25) | st.text(
    st.characters(min_codepoint=9, max_codepoint=126), max_size=20
)


def squad(text):
    """lower, remove punctuation, remove articles, fix white space."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_f1(found, wanted):
    a, b = squad(found).split(), squad(wanted).split()
    common = Counter(a) & Counter(b)
    same = sum(common.values())
    if not a or not b:
        return int(a == b)
    if same == 0:
        return 0
    precision, recall = same / len(a), same / len(b)
    return 2 * precision * recall / (precision + recall)


@measured
@given(answer=ASCII, gold=st.lists(ASCII, min_size=1, max_size=3))
def test_exact_match_and_f1_follow_squads_rules(answer, gold):
    printable = all(c.isprintable() or c in "\t\n\r\x0b\x0c" for text in (answer, *gold) for c in text)
    if printable:
        assert exact_match(answer, gold) == max(float(squad(answer) == squad(g)) for g in gold)
        assert token_f1(answer, gold) == pytest.approx(max(squad_f1(answer, g) for g in gold), abs=1e-12)


@measured
@given(answer=st.text(max_size=20), gold=st.text(max_size=20), articles=st.sampled_from(["en", "es", "none"]))
def test_f1_is_symmetric_bounded_and_one_for_equal_texts(answer, gold, articles):
    found = token_f1(answer, [gold], articles)
    assert 0 <= found <= 1
    assert found == token_f1(gold, [answer], articles)
    assert token_f1(gold, [gold], articles) == exact_match(gold, [gold], articles) == 1
    if exact_match(answer, [gold], articles):
        assert found == 1


def test_beyond_ascii():
    assert exact_match("«La Habana»", ["habana"], "es") == 1
    assert exact_match("La Habana", ["habana"]) == 0, "Spanish articles are left out where Spanish is declared"
    assert exact_match("cafe\u0301", ["café"]) == 1
    assert exact_match("“five” days…", ["five days"]) == 1
    assert token_f1("东京塔", ["东京"]) == pytest.approx(0.8)
    assert exact_match("5\u200b days", ["5 days"]) == 1
    assert normalise_answer("The theatre") == "theatre"
    with pytest.raises(ValueError, match="no articles are known for 'fr'"):
        normalise_answer("le", "fr")


@pytest.mark.parametrize("measure", [exact_match, token_f1, numeric_agreement, negation_agreement])
def test_without_gold_there_is_no_value_and_an_empty_answer_is_wrong(measure):
    with pytest.raises(Unmeasured, match="no_gold"):
        measure("five", [])
    found = measure("", ["5 days, not more"])
    assert getattr(found, "value", found) == 0


@pytest.mark.parametrize(
    ("answer", "gold", "value", "exact"),
    [
        ("The fee is 8 USD.", ["8 dollars"], 1.0, True),
        ("The fee is 9 USD.", ["8 USD"], 0.0, False),
        ("8 or 9 USD", ["8 USD"], 1.0, False),
        ("8 EUR", ["8 USD"], 0.0, False),
        ("Five days", ["5 days", "6 days"], 1.0, True),
        ("1,000 USD by March 3, 2026", ["1000 USD on 2026-03-03"], 1.0, True),
        ("1,000 USD", ["1000 USD on 2026-03-03"], 0.5, False),
        ("none", ["8"], 0.0, False),
    ],
)
def test_numbers_agree_by_value_and_unit(answer, gold, value, exact):
    found = numeric_agreement(answer, gold, "en")
    assert (found.value, found.exact) == (value, exact)


def test_gold_without_numbers_gives_no_value():
    with pytest.raises(Unmeasured, match="no_numbers"):
        numeric_agreement("8", ["a few"], "de")


@pytest.mark.parametrize(
    ("answer", "gold", "language", "agrees"),
    [
        ("The days are carried over.", ["The days are not carried over."], "en", 0.0),
        ("They aren't carried over.", ["not carried over"], "en", 1.0),
        ("The fee is 8 USD. It does not rise.", ["The fee is 8 USD"], "en", 1.0),
        ("No se trasladan nunca.", ["No se trasladan"], "es", 1.0),
        ("Se trasladan.", ["No se trasladan"], "es", 0.0),
        ("Room No. 17", ["Room 17"], "en", 1.0),
        ("It is allowed.", ["It is not allowed", "It is allowed"], "en", 1.0),
    ],
)
def test_negation_agrees_where_both_deny_or_neither(answer, gold, language, agrees):
    assert negation_agreement(answer, gold, language) == agrees


# Refusals --------------------------------------------------------------------------------------------------------------

QUERIES = st.lists(
    st.fixed_dictionaries(
        {
            "answerable": st.booleans(),
            "evidence_available": st.sampled_from([True, False, None]),
            "outcome": st.sampled_from(["refused", "hedged", "answered", "empty"]),
        }
    ),
    max_size=12,
)


@measured
@given(queries=QUERIES)
def test_refusals_against_the_definition(queries):
    found = refusal_scores(queries)
    known = [q for q in queries if not (q["answerable"] and q["evidence_available"] is None)]
    refused = [q for q in known if q["outcome"] == "refused"]
    should = [q for q in known if not q["answerable"] or not q["evidence_available"]]
    right = [q for q in refused if q in should]
    n_right = sum(q in should for q in refused)
    assert found.precision.value == (pytest.approx(n_right / len(refused)) if refused else None)
    n_found = sum(q["outcome"] == "refused" for q in should)
    assert found.recall.value == (pytest.approx(n_found / len(should)) if should else None)
    out = [q["outcome"] == "refused" for q in known if not q["answerable"]]
    missed = [q["outcome"] == "refused" for q in known if q["answerable"] and not q["evidence_available"]]
    assert found.out_of_scope.value == (pytest.approx(sum(out) / len(out)) if out else None)
    assert found.retrieval_miss.value == (pytest.approx(sum(missed) / len(missed)) if missed else None)
    assert sum(found.quadrants.values()) + found.unknown == len(queries)
    assert right == refused or n_right < len(refused)


def test_an_empty_answer_is_no_refusal():
    def of(outcome):
        return refusal_scores([{"answerable": False, "outcome": outcome}])

    assert of("refused").recall.value == 1.0
    assert of("empty").recall.value == of("hedged").recall.value == 0.0
    assert of("empty").precision.status == "no_refusals"
    assert of("empty").quadrants["empty", "should_refuse"] == 1
    with pytest.raises(ValueError, match="unknown outcome 'silent'"):
        of("silent")


def test_why_a_query_calls_for_a_refusal():
    assert [why_refuse(*q) for q in ((False, True), (True, False), (True, True), (True, None))] == [
        "out_of_scope",
        "retrieval_miss",
        "answer",
        None,
    ]


@pytest.mark.parametrize("measure", [exact_match, token_f1, numeric_agreement, negation_agreement])
def test_one_string_is_no_list_of_gold_answers(measure):
    with pytest.raises(ValueError, match="found one string"):
        measure("15 EUR", "15 EUR")
    with pytest.raises(Unmeasured, match="no_gold"):
        measure("15 EUR", [])
