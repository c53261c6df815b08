"""Judges against people: κ, shares, orders, length, probabilities, few labels."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score, precision_recall_fscore_support

from rag_eval_pipeline.measures import (
    Unmeasured,
    agreement,
    class_scores,
    g_eval_score,
    length_controlled,
    order_flips,
    prediction_powered,
    self_consistency,
)
from rag_eval_pipeline_tests.sizes import examples, measured

few = examples(40, 1_000)
LABELS = st.sampled_from(["supported", "contradicted", "unsupported"])


@few
@given(pairs=st.lists(st.tuples(LABELS | st.none(), LABELS | st.none()), min_size=1, max_size=30))
def test_kappa_equals_sklearn_on_pairs_both_judged_and_failures_count_as_wrong(pairs):
    judge, people = zip(*pairs, strict=True)
    labelled = [(j, p) for j, p in pairs if p is not None]
    if not labelled:
        with pytest.raises(Unmeasured, match="no_gold"):
            agreement(judge, people)
        return
    found = agreement(judge, people)
    both = [(j, p) for j, p in labelled if j is not None]
    assert (found.n, found.n_both, found.unlabelled) == (len(labelled), len(both), len(pairs) - len(labelled))
    if len({label for pair in both for label in pair}) > 1:
        assert found.kappa == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)), abs=1e-12)
    else:
        assert (found.kappa, found.kappa_status) == (None, "one_class" if both else "no_pairs")
    n = len(labelled)
    assert found.accuracy.mean == pytest.approx(sum(j == p for j, p in labelled) / n)
    assert found.failed.mean == pytest.approx(sum(j is None for j, _ in labelled) / n)
    assert found.false_pass.mean == pytest.approx(sum(j == "supported" != p for j, p in labelled) / n)
    assert found.false_fail.mean == pytest.approx(sum(p == "supported" and j not in (None, p) for j, p in labelled) / n)
    assert found.confusion == Counter((p, j) for j, p in labelled)
    assert all(i.low < i.high for i in (found.accuracy, found.failed, found.false_pass, found.false_fail))


def test_a_judge_that_fails_more_does_not_look_better():
    people = [True, False] * 20
    good = agreement(people, people)
    assert (good.kappa, good.accuracy.mean, good.kappa_low) == (1.0, 1.0, None), "no interval without width"
    failing = agreement([None] * 20 + people[20:], people)
    assert (failing.kappa, failing.accuracy.mean, failing.failed.mean) == (1.0, 0.5, 0.5)
    with pytest.raises(ValueError, match="give one each"):
        agreement([True], people)


def test_kappas_interval_covers():
    rng, inside, made = np.random.default_rng(0), 0, 0
    for seed in range(30):
        people = rng.random(120) < 0.5
        judge = np.where(rng.random(120) < 0.2, ~people, people)
        found = agreement(judge.tolist(), people.tolist(), seed=seed)
        made += found.kappa_low is not None
        inside += found.kappa_low is not None and found.kappa_low <= 0.6 <= found.kappa_high
    assert made == 30
    assert inside >= 26


@measured
@given(pairs=st.lists(st.tuples(*[st.sampled_from(["first", "second", "tie", None])] * 2), max_size=20))
def test_order_flips_against_the_definition(pairs):
    forward, backward = [a for a, _ in pairs], [b for _, b in pairs]
    both = [(a, b) for a, b in pairs if a and b]
    steady = {("first", "second"), ("second", "first"), ("tie", "tie")}
    found = order_flips(forward, backward)
    assert found.flips.value == (pytest.approx(sum(p not in steady for p in both) / len(both)) if both else None)
    assert found.flips.n_expected == len(pairs)
    decided = [p for p in forward + backward if p in ("first", "second")]
    assert found.first.value == (pytest.approx(decided.count("first") / len(decided)) if decided else None)


def test_a_judge_that_always_prefers_the_first_flips_always():
    found = order_flips(["first"] * 5, ["first"] * 5)
    assert (found.flips.value, found.first.value) == (1.0, 1.0)
    with pytest.raises(ValueError, match="unknown preference"):
        order_flips(["A"], ["B"])
    with pytest.raises(ValueError, match="both orders"):
        order_flips(["tie"], [])


@measured
@given(answers=st.lists(st.sampled_from("abc") | st.none(), max_size=8))
def test_self_consistency_is_the_share_of_the_most_frequent_answer(answers):
    given_answers = [a for a in answers if a]
    if len(given_answers) < 2:
        with pytest.raises(Unmeasured, match="too_few_repeats"):
            self_consistency(answers)
    else:
        assert self_consistency(answers) == max(map(given_answers.count, given_answers)) / len(given_answers)


@measured
@given(weights=st.dictionaries(st.sampled_from(["0", " 1", "2 ", "3", "4", "5", "9", "ok", "²"]), st.floats(0, 1)))
def test_g_eval_is_the_mean_rating_of_renormalised_probabilities(weights):
    ratings = {int(t): w for t, w in weights.items() if t.strip() in "012345" and t.strip()}
    total = sum(ratings.values())
    if not total:
        with pytest.raises(Unmeasured, match="no_probabilities"):
            g_eval_score(weights)
        return
    assert g_eval_score(weights) == pytest.approx(sum(r * w for r, w in ratings.items()) / total)
    if total > 1e-6:
        logs = {t: math.log(w) for t, w in weights.items() if w > 0}
        assert g_eval_score(logs, logs=True) == pytest.approx(g_eval_score(weights))


def test_g_eval_adds_tokens_of_one_rating_and_refuses_nonsense():
    assert g_eval_score({"4": 0.2, " 4": 0.2, "5": 0.4, "the": 0.2}) == pytest.approx(4.5)
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="probability"):
            g_eval_score({"4": wrong})


# Length ----------------------------------------------------------------------------------------------------------------


@few
@given(n=st.integers(1, 60), k=st.integers(0, 60))
def test_without_a_difference_in_length_the_controlled_rate_is_the_shrunk_raw_one(n, k):
    k = min(n, k)
    found = length_controlled([1.0] * k + [0.0] * (n - k), [7.0] * n)
    assert found.controlled == pytest.approx((k + 0.5) / (n + 1), abs=1e-8)
    assert 0 < found.low < found.controlled < found.high < 1


def test_length_alone_wins_nothing():
    rng = np.random.default_rng(1)
    lengths = rng.normal(60, 100, 4000)
    scale = np.sqrt(np.mean(lengths**2))
    wins = rng.random(4000) < 1 / (1 + np.exp(-2 * np.tanh(lengths / scale)))
    found = length_controlled(wins.astype(float), lengths)
    assert found.raw > 0.6
    assert found.low <= 0.5 <= found.high
    model = LogisticRegression(C=1e9).fit(np.tanh(lengths / scale)[:, None], wins)
    assert found.length_effect == pytest.approx(model.coef_[0, 0], abs=0.02)
    assert found.controlled == pytest.approx(1 / (1 + np.exp(-model.intercept_[0])), abs=0.005)


def test_a_system_that_always_wins_has_a_finite_rate():
    found = length_controlled([1.0] * 12, list(range(12)))
    assert 0.5 < found.controlled < 1
    assert found.low < found.controlled < found.high
    with pytest.raises(Unmeasured, match="no_pairs"):
        length_controlled([], [])
    with pytest.raises(ValueError, match="tie"):
        length_controlled([2.0], [1])


# Few labels ------------------------------------------------------------------------------------------------------------


def _sample(rng, n, big, rate=0.7, error=(0.15, 0.05)):
    def judged(truth):
        wrong = np.where(truth, rng.random(len(truth)) < error[0], rng.random(len(truth)) < error[1])
        return np.where(wrong, 1 - truth, truth)

    labelled, other = (rng.random(n) < rate).astype(float), (rng.random(big) < rate).astype(float)
    return labelled, judged(labelled), judged(other)


@pytest.mark.parametrize(("n", "method"), [(15, "bounded"), (200, "normal")])
def test_a_biased_judge_is_corrected_and_the_interval_covers(n, method):
    rng, inside, errors, naive, widths = np.random.default_rng(n), 0, [], [], []
    for _ in range(150):
        labels, judged, others = _sample(rng, n, 1500)
        found = prediction_powered(labels, judged, others)
        inside += found.low <= 0.7 <= found.high
        errors.append(found.estimate - 0.7)
        naive.append(others.mean() - 0.7)
        widths.append((found.high - found.low) / found.labels_alone.width)
        assert found.method == method
        assert found.low < found.high
    assert inside >= 138
    assert abs(np.mean(errors)) < 0.015 < abs(np.mean(naive))
    if method == "normal":
        assert np.mean(widths) < 0.8, "judgments narrow the interval"


def test_a_judge_that_knows_nothing_changes_nothing_but_the_weight():
    rng = np.random.default_rng(3)
    labels = (rng.random(300) < 0.4).astype(float)
    found = prediction_powered(labels, rng.integers(0, 2, 300), rng.integers(0, 2, 3000))
    assert found.weight < 0.15
    assert found.estimate == pytest.approx(labels.mean(), abs=0.02)
    constant = prediction_powered(labels, [1.0] * 300, [1.0] * 50)
    assert (constant.weight, constant.estimate) == (0.0, pytest.approx(labels.mean()))


def test_failed_judgments_leave_the_estimate_unbiased():
    rng, errors = np.random.default_rng(4), []
    for _ in range(150):
        labels, judged, others = _sample(rng, 200, 1500)
        hidden = [
            [None if rng.random() < 0.4 * v else v for v in values] for values in (judged.tolist(), others.tolist())
        ]
        found = prediction_powered(labels, *hidden)
        assert found.n_failed > 0
        errors.append(found.estimate - 0.7)
    assert abs(np.mean(errors)) < 0.01


@few
@given(
    labels=st.lists(st.booleans(), min_size=1, max_size=40),
    others=st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=40),
    shift=st.booleans(),
)
def test_any_labels_have_an_interval_with_width_inside_the_bounds(labels, others, shift):
    found = prediction_powered([float(v) for v in labels], [float(v != shift) for v in labels], others)
    assert 0 <= found.low < found.high <= 1
    assert found.low - 1e-9 <= found.estimate <= found.high + 1e-9


def test_prediction_powered_refuses_what_says_nothing():
    with pytest.raises(Unmeasured, match="no_gold"):
        prediction_powered([], [], [1.0])
    with pytest.raises(Unmeasured, match="no_judgments"):
        prediction_powered([1.0], [1.0], [])
    with pytest.raises(ValueError, match="give one each"):
        prediction_powered([1.0], [], [1.0])
    with pytest.raises(ValueError, match="must lie in"):
        prediction_powered([5.0], [1.0], [1.0])


# Classes ---------------------------------------------------------------------------------------------------------------


@few
@given(pairs=st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=25))
def test_scores_by_class_equal_sklearn(pairs):
    expected, predicted = zip(*pairs, strict=True)
    names = sorted(set(expected))
    p, r, f, n = precision_recall_fscore_support(expected, predicted, labels=names, zero_division=0)
    for index, found in enumerate(class_scores(expected, predicted, draws=200)):
        assert (found.label, found.n) == (names[index], n[index])
        assert found.precision.mean == (pytest.approx(p[index]) if names[index] in predicted else None)
        assert found.recall.mean == pytest.approx(r[index])
        assert found.f1.mean == pytest.approx(f[index])
        assert found.f1.low < found.f1.high


def test_odd_figures_are_refused_in_a_sentence_and_never_become_nan():
    with pytest.raises(ValueError, match="0 clusters for 1 labels"):
        agreement(["pass"], ["pass"], clusters=[])
    with pytest.raises(ValueError, match="probability 1000"):
        g_eval_score({"1": 1000}, logs=True)
    for length in (math.nan, math.inf):
        with pytest.raises(ValueError, match="lengths: missing or infinite"):
            length_controlled([1, 0], [length, 1])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        length_controlled([1, 0], [5, -5], level=2)
