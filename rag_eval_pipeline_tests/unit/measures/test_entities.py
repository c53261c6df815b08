"""Entities: nervaluate and seqeval give the same on generated spans; each entity is counted once; triples are a set."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.measures.entities import SCHEMES, entity_scores, macro_f1, relation_scores
from rag_eval_pipeline.measures.spans import span_scores

KINDS = ("PER", "LOC", "ORG")
ANY = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12), st.sampled_from(KINDS)).map(lambda s: (s[0], s[0] + s[1], s[2])),
    max_size=8,
    unique=True,
)
THEIRS = {"strict": "strict", "exact": "exact", "partial": "partial", "type": "ent_type"}


def apart(spans):
    """Spans that don't overlap, as a tagger gives them."""
    kept, reach = [], 0
    for start, end, kind in sorted(spans):
        if start >= reach:
            kept.append((start, end, kind))
            reach = end
    return kept


@given(ANY, ANY)
@settings(max_examples=80)
def test_counts_and_scores_are_nervaluates(gold, found):
    from nervaluate import Evaluator

    gold, found = sorted(gold), sorted(found)
    dicts = [[{"label": k, "start": a, "end": b - 1} for a, b, k in spans] for spans in (gold, found)]
    theirs = Evaluator([dicts[0]], [dicts[1]], tags=list(KINDS), loader="dict").evaluate()
    mine = entity_scores(gold, found)
    for scheme in SCHEMES:
        groups = {"all": theirs["overall"][THEIRS[scheme]]}
        groups |= {kind: theirs["entities"][kind][THEIRS[scheme]] for kind in KINDS if kind in theirs["entities"]}
        for kind, result in groups.items():
            counts = mine.get((scheme, kind))
            if counts is None:
                assert (result.actual, result.possible) == (0, 0)
                continue
            names = ("correct", "incorrect", "partial", "missed", "spurious")
            assert [getattr(counts, n) for n in names] == [getattr(result, n) for n in names], (scheme, kind)
            for name in ("precision", "recall", "f1"):
                value = getattr(counts, name)
                assert getattr(result, name) == pytest.approx(0.0 if value is None else value)


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=4))
@settings(max_examples=40)
def test_strict_scores_of_entities_apart_are_seqevals(texts):
    from seqeval.metrics import f1_score, precision_score, recall_score
    from seqeval.scheme import IOB2

    def tags(spans):
        row = ["O"] * 60
        for start, end, kind in spans:
            row[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
        return row

    pairs = [(apart(gold), apart(found)) for gold, found in texts]
    totals = {}
    for gold, found in pairs:
        for (scheme, kind), counts in entity_scores(gold, found).items():
            if scheme == "strict":
                totals[kind] = totals[kind] + counts if kind in totals else counts
    true, predicted = [tags(gold) for gold, _ in pairs], [tags(found) for _, found in pairs]
    options = {"mode": "strict", "scheme": IOB2, "zero_division": 0}
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert score(true, predicted, **options) == pytest.approx(getattr(totals["all"], name) or 0.0)
    if any(kind != "all" for kind in totals):
        mean = macro_f1(counts for kind, counts in totals.items() if kind != "all")
        assert f1_score(true, predicted, average="macro", **options) == pytest.approx(mean)


@given(ANY, ANY)
@settings(max_examples=80)
def test_each_entity_is_counted_once_and_scores_stay_in_bounds(gold, found):
    scores = entity_scores(gold, found)
    for (scheme, kind), counts in scores.items():
        assert counts.labelled == sum(kind in ("all", k) for *_, k in gold)
        assert counts.predicted == sum(kind in ("all", k) for *_, k in found)
        for value in (counts.precision, counts.recall, counts.f1):
            assert value is None or 0 <= value <= 1, scheme
    strict, plain = scores["strict", "all"], span_scores(gold, found)["strict", "all"]
    assert (
        strict.correct <= plain.tp
    )  # a prediction before it may have taken its entity: nervaluate goes from left to right
    alone = entity_scores(apart(gold), apart(found))["strict", "all"]
    assert alone.correct == span_scores(apart(gold), apart(found))["strict", "all"].tp
    assert scores["exact", "all"].correct >= strict.correct


@given(ANY)
def test_what_is_labelled_scores_one_and_nothing_scores_nothing(gold):
    for counts in entity_scores(gold, gold).values():
        assert counts.f1 == (1.0 if gold else None)
    for (_, kind), counts in entity_scores(gold, []).items():
        assert counts.precision is None
        assert counts.recall == (0.0 if gold else None), kind


def test_known_wrong_one_span_over_two(known_wrong):
    case = known_wrong["one-span-over-two"]
    counts = entity_scores(case["input"]["gold"], case["input"]["predicted"])["strict", "all"]
    right = case["right"]["strict"]
    assert (counts.correct, counts.incorrect + counts.spurious) == (right["tp"], right["fp"])
    assert counts.incorrect + counts.missed == right["fn"]


def test_a_span_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="0 <= start < end"):
        entity_scores([(3, 3, "PER")], [])
    with pytest.raises(ValueError, match="taken by the total"):
        entity_scores([], [(0, 3, "all")])


def test_relations_are_a_set_compared_without_case_and_spaces():
    gold = [("Acme", "has office in", "Leeds"), ("Acme", "makes", "valves")]
    found = [("ACME", "has  office in", "Leeds"), ("acme", "HAS office in", "leeds"), ("Acme", "sells", "valves")]
    assert relation_scores(gold, found) == (1, 2, 2)
    assert relation_scores([], []) == (0, 0, 0)
    with pytest.raises(ValueError, match="2 parts"):
        relation_scores([("a", "b")], [])
