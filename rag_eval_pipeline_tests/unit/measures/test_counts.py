"""Pairs, clusters, spans, fusion, index recall, filters and availability against brute force and published cases."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures import (
    Unmeasured,
    ann_recall,
    b_cubed,
    convex_fusion,
    evidence_availability,
    false_exclusion,
    mask_prf,
    pair_scores,
    rrf,
    span_scores,
)
from rag_eval_pipeline_tests.sizes import measured

# --- pairs and clusters ----------------------------------------------------------------------------------------------------

ITEMS = "abcdef"
PAIRS = list(itertools.combinations(ITEMS, 2))
labels = st.dictionaries(st.sampled_from(PAIRS), st.booleans())
predictions = st.sets(st.sampled_from(PAIRS))


@measured
@given(labels=labels, predicted=predictions, flip=st.booleans())
def test_pair_scores_equal_brute_force_and_have_no_direction(labels, predicted, flip):
    found = pair_scores([(a, b, d) for (a, b), d in labels.items()], [(b, a) if flip else (a, b) for a, b in predicted])
    assert found.tp == sum(labels.get(p) is True for p in predicted)
    assert found.fp == sum(labels.get(p) is False for p in predicted)
    assert found.unjudged == sum(p not in labels for p in predicted)
    assert found.tp + found.fn == sum(labels.values())
    assert found.fp + found.tn == len(labels) - sum(labels.values())
    together = {p for p in PAIRS if reach(p[0], predicted) & {p[1]}}
    assert found.false_merges == sum(not d and p in together for p, d in labels.items())
    assert found.missed_merges == sum(d and p not in together for p, d in labels.items())
    if not any(labels.values()):
        assert found.recall is None
        assert found.missed_merge_rate is None
    if found.tp + found.fp == 0:
        assert found.precision is None


def reach(start, pairs):
    seen = {start}
    for _ in ITEMS:
        seen |= {b for a, b in pairs if a in seen} | {a for a, b in pairs if b in seen}
    return seen


def test_pairs_refuse_contradictions_and_self_pairs():
    with pytest.raises(ValueError, match="both duplicate and not"):
        pair_scores([("a", "b", True), ("b", "a", False)], [])
    with pytest.raises(ValueError, match="with itself"):
        pair_scores([], [("a", "a")])


clusterings = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@measured
@given(gold=clusterings, data=st.data())
def test_b_cubed_equals_its_definition_item_by_item(gold, data):
    predicted = data.draw(st.lists(st.integers(0, 3), min_size=len(gold), max_size=len(gold)))
    n = range(len(gold))
    same_gold = [{j for j in n if gold[j] == gold[i]} for i in n]
    same_found = [{j for j in n if predicted[j] == predicted[i]} for i in n]
    found = b_cubed(dict(enumerate(gold)), dict(enumerate(predicted)))
    assert found.precision == pytest.approx(
        np.mean([len(same_gold[i] & same_found[i]) / len(same_found[i]) for i in n])
    )
    assert found.recall == pytest.approx(np.mean([len(same_gold[i] & same_found[i]) / len(same_gold[i]) for i in n]))
    assert found.largest == max(map(len, same_found))
    if gold == predicted:
        assert (found.precision, found.recall, found.f1) == (1.0, 1.0, 1.0)


def test_b_cubed_of_nothing_is_null_and_of_other_items_an_error():
    assert b_cubed({}, {}).f1 is None
    with pytest.raises(ValueError, match="'b' first"):
        b_cubed({"a": 1}, {"a": 1, "b": 1})


# --- spans -----------------------------------------------------------------------------------------------------------------

spans = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.sampled_from(["PERSON", "EMAIL"])).map(
        lambda s: (s[0], s[0] + s[1], s[2])
    ),
    max_size=6,
)


@measured
@given(gold=spans, predicted=spans)
def test_span_counts_keep_their_invariants_and_equal_brute_force(gold, predicted):
    found = span_scores(gold, predicted)
    kinds = {s[2] for s in gold + predicted}
    for mode in ("strict", "overlap"):
        for kind in [*kinds, "all"]:
            expected = [s for s in gold if kind in ("all", s[2])]
            output = [s for s in predicted if kind in ("all", s[2])]
            counts = found[mode, kind]
            assert counts.tp + counts.fn == counts.gold == len(expected)
            assert counts.tp + counts.fp == counts.predicted == len(output)
            assert counts.tp == most_matches(expected, output, strict=mode == "strict")
            assert (counts.recall is None) == (not expected)
            assert (counts.precision is None) == (not output)
    for kind in kinds:
        g, p = (chars(s for s in side if s[2] == kind) for side in (gold, predicted))
        counts = found["char", kind]
        assert (counts.tp, counts.fp, counts.fn) == (len(g & p), len(p - g), len(g - p))
    g, p = chars(gold), chars(predicted)
    mask = mask_prf(gold, predicted)
    assert (mask.tp, mask.fp, mask.fn) == (len(g & p), len(p - g), len(g - p))


def chars(spans):
    return {i for start, end, _ in spans for i in range(start, end)}


def most_matches(gold, predicted, strict):
    """Try every assignment."""
    if not gold:
        return 0
    head, rest = gold[0], gold[1:]
    best = most_matches(rest, predicted, strict)
    for index, other in enumerate(predicted):
        fits = head == other if strict else head[2] == other[2] and head[0] < other[1] and other[0] < head[1]
        if fits:
            best = max(best, 1 + most_matches(rest, predicted[:index] + predicted[index + 1 :], strict))
    return best


def test_one_span_over_two_is_counted_once(known_wrong):
    case = known_wrong["one-span-over-two"]
    found = span_scores(case["input"]["gold"], case["input"]["predicted"])
    strict = found["strict", "all"]
    assert {"tp": strict.tp, "fp": strict.fp, "fn": strict.fn} == case["right"]["strict"]
    overlap = found["overlap", "all"]
    assert (overlap.tp, overlap.fp, overlap.fn) == (1, 0, 1)


def test_spans_refuse_empty_and_backward_ranges():
    with pytest.raises(ValueError, match="needs 0 <= start < end"):
        span_scores([(3, 3, "A")], [])


# --- fusion ----------------------------------------------------------------------------------------------------------------


def test_rrf_worked_example(worked):
    case = worked["rrf_60"]
    fused = rrf({"dense": case["dense"], "sparse": case["sparse"]}, k=60)
    assert [[item, round(score, 5)] for item, score in fused[:3]] == case["fused_top3"]


rankings = st.lists(st.lists(st.sampled_from(ITEMS), unique=True, max_size=6), min_size=1, max_size=4)


@measured
@given(lists=rankings, k=st.integers(0, 100))
def test_rrf_sums_reciprocal_ranks_whatever_the_order_of_lanes(lists, k):
    fused = rrf(lists, k)
    assert fused == rrf(lists[::-1], k)
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))
    for item, score in fused:
        assert score == pytest.approx(sum(1 / (k + ids.index(item) + 1) for ids in lists if item in ids))
    assert {item for item, _ in fused} == {item for ids in lists for item in ids}


def test_rrf_refuses_an_id_that_stands_twice():
    with pytest.raises(ValueError, match="list 'dense' holds 'a' twice"):
        rrf({"dense": ["a", "b", "a"]})


scored = st.dictionaries(st.sampled_from(ITEMS), st.floats(-100, 100), max_size=6)


@measured
@given(dense=scored, sparse=scored, alpha=st.floats(0, 1))
def test_convex_fusion_lies_between_its_lists(dense, sparse, alpha):
    fused = dict(convex_fusion(dense, sparse, alpha))
    assert fused.keys() == dense.keys() | sparse.keys()
    assert all(-1e-12 <= score <= 1 + 1e-12 for score in fused.values())
    for item, score in fused.items():
        expected = alpha * minmax(dense, item) + (1 - alpha) * minmax(sparse, item)
        assert score == pytest.approx(expected, abs=1e-12)


def minmax(scores, item):
    if item not in scores:
        return 0.0
    low, high = min(scores.values()), max(scores.values())
    return (scores[item] - low) / (high - low) if high > low else 1.0


def test_convex_fusion_refuses_scores_that_are_not_finite():
    with pytest.raises(ValueError, match="dense score of 'a' is not finite"):
        convex_fusion({"a": math.nan}, {}, 0.5)


# --- index -----------------------------------------------------------------------------------------------------------------


def test_copies_of_one_neighbour_count_once(known_wrong):
    case = known_wrong["copies-of-one-neighbour"]
    exact = case["input"]["exact"]
    found = ann_recall(exact, [5.0, 4.0, 3.0, 2.0, 1.0], case["input"]["ann"], 5, 5)
    assert found == case["right"]["ann_recall@5"]


@measured
@given(
    scores=st.lists(st.sampled_from([0.1, 0.2, 0.2 + 5e-7, 0.5, 0.9]), min_size=1, max_size=10),
    ann=st.lists(st.integers(0, 9), max_size=10),
    k=st.integers(1, 12),
)
def test_ann_recall_equals_numpy(scores, ann, k):
    n, ann = len(scores), [i for i in ann if i < len(scores)]
    order = np.argsort(-np.array(scores), kind="stable")
    depth = min(k, n)
    bar = np.sort(scores)[::-1][depth - 1] - 1e-6
    expected = min(len({i for i in ann[:k] if scores[i] >= bar}), depth) / depth
    found = ann_recall([str(i) for i in order], [scores[i] for i in order], [str(i) for i in ann], k, n)
    assert found == expected
    rescored = ann_recall(
        [str(i) for i in order[:depth]], [scores[i] for i in order[:depth]], [str(i) for i in ann], k, n,
        ann_scores=[scores[i] for i in ann],
    )  # fmt: skip
    assert rescored == expected


def test_ann_recall_of_a_filter_that_admits_little_or_nothing():
    assert ann_recall(["a"], [1.0], ["a"], 10, 1) == 1.0
    with pytest.raises(Unmeasured, match="nothing_admitted"):
        ann_recall([], [], [], 10, 0)


# --- filters and availability ------------------------------------------------------------------------------------------------


def admits(document, predicate):
    return all(document[field] == value for field, value in predicate.items())


def test_filter_worked_example(worked):
    case = worked["filter"]
    visible = {d["id"] for d in case["docs"] if d["tenant"] == case["principal_tenant"]}
    eligible = {q["query_id"]: set(q["gold"]) & visible for q in case["queries"]}
    admitted = {
        q["query_id"]: {d["id"] for d in case["docs"] if d["id"] in visible and admits(d, q["applied_filter"])}
        for q in case["queries"]
    }
    found = false_exclusion(eligible, admitted)
    assert (found.rate, found.eligible) == (case["filter_false_exclusion_rate"], case["eligible_queries"])
    with pytest.raises(Unmeasured, match="no_eligible_gold"):
        false_exclusion({"q": set(case["unauthorised_only"]["gold"]) & visible}, {"q": set()})
    alone = {"q": set(case["unauthorised_only"]["gold"]) & visible}
    assert false_exclusion(eligible | alone, admitted).eligible == case["eligible_queries"]


sets = st.dictionaries(st.sampled_from("pqrs"), st.sets(st.sampled_from(ITEMS)), min_size=1)


@measured
@given(eligible=sets, data=st.data())
def test_false_exclusion_keeps_the_denominator_of_before_the_filter(eligible, data):
    admitted = {q: data.draw(st.sets(st.sampled_from(ITEMS))) for q in eligible}
    asked = {q for q, gold in eligible.items() if gold}
    if not asked:
        with pytest.raises(Unmeasured):
            false_exclusion(eligible, admitted)
        return
    found = false_exclusion(eligible, admitted)
    assert found.rate == sum(not eligible[q] & admitted[q] for q in asked) / len(asked)
    everything = false_exclusion(eligible, {q: set(ITEMS) for q in eligible})
    assert (everything.rate, everything.document_rate) == (0.0, 0.0)


def test_leave_policy_availability(worked):
    case = worked["leave_policy"]
    assert evidence_availability(case["claims"], case["retrieved"]) == case["evidence_availability"]


@measured
@given(
    claims=st.lists(st.sets(st.sampled_from(ITEMS)), min_size=1, max_size=5),
    retrieved=st.lists(st.sampled_from(ITEMS)),
    k=st.integers(1, 6),
)
def test_availability_equals_its_definition_and_grows_with_k(claims, retrieved, k):
    found = evidence_availability(claims, retrieved, k)
    assert found == sum(bool(c & set(retrieved[:k])) for c in claims) / len(claims)
    assert found <= evidence_availability(claims, retrieved)


def test_availability_without_claims_follows_the_contract():
    assert evidence_availability([], ["a"], contract="lenient") == 1.0
    assert evidence_availability([{"a"}], ["a"], k=0, contract="lenient") == 0.0
    for contract in ("zero", "strict"):
        with pytest.raises(Unmeasured, match="no_claims"):
            evidence_availability([], ["a"], contract=contract)
        with pytest.raises(ValueError, match="k must be positive"):
            evidence_availability([{"a"}], ["a"], k=0, contract=contract)
