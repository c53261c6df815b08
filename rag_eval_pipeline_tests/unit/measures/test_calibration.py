"""Calibration against a direct definition and sklearn."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from rag_eval_pipeline.measures import Unmeasured, brier, ece, reliability_curve
from rag_eval_pipeline_tests.sizes import examples, measured

few = examples(60, 2_000)

CONFIDENCE = st.floats(0, 1) | st.integers(0, 20).map(lambda n: n / 20)
ITEMS = st.lists(st.tuples(CONFIDENCE, st.booleans()), min_size=1, max_size=40)


def direct(confidence, correct, bins):
    c, r, edges, total = np.array(confidence), np.array(correct, float), np.linspace(0, 1, bins + 1), 0.0
    for low, high in itertools.pairwise(edges):
        inside = (c > low) & (c <= high) | ((low == 0) & (c == 0))
        if inside.any():
            total += inside.mean() * abs(c[inside].mean() - r[inside].mean())
    return total


def test_zero_confidence_has_a_bin(known_wrong):
    case = known_wrong["confidence-zero-has-a-bin"]
    assert ece(**case["input"]) == case["right"]["ece"]


@measured
@given(
    n=st.integers(1, 20), wrong=st.integers(0, 20), bins=st.integers(1, 15), binning=st.sampled_from(["width", "mass"])
)
def test_confidence_at_either_edge_always_counts(n, wrong, bins, binning):
    wrong = min(n, wrong)
    correct = [False] * wrong + [True] * (n - wrong)
    assert ece([0.0] * n, correct, bins, binning) == pytest.approx((n - wrong) / n)
    assert ece([1.0] * n, correct, bins, binning) == pytest.approx(wrong / n)
    assert sum(b.n for b in reliability_curve([0.0] * n, correct, bins, binning)) == n


@measured
@given(items=ITEMS, bins=st.integers(1, 20))
def test_ece_equals_the_direct_definition(items, bins):
    confidence, correct = zip(*items, strict=True)
    assert ece(confidence, correct, bins) == pytest.approx(direct(confidence, correct, bins), abs=1e-12)


@few
@given(items=ITEMS, bins=st.integers(1, 12), binning=st.sampled_from(["width", "mass"]), order=st.randoms())
def test_the_curve_adds_up_to_ece_whatever_the_order(items, bins, binning, order):
    confidence, correct = zip(*items, strict=True)
    curve = reliability_curve(confidence, correct, bins, binning)
    summed = sum(b.n * abs(b.confidence - b.accuracy.mean) for b in curve if b.n) / len(items)
    assert ece(confidence, correct, bins, binning) == pytest.approx(summed, abs=1e-12)
    assert sum(b.n for b in curve) == len(items)
    assert all(b.low - 1e-12 <= b.confidence <= b.high + 1e-12 for b in curve if b.n)
    assert all(b.accuracy.low < b.accuracy.high for b in curve if b.n), "never of zero width"
    shuffled = list(items)
    order.shuffle(shuffled)
    assert ece(*zip(*shuffled, strict=True), bins, binning) == pytest.approx(
        ece(confidence, correct, bins, binning), abs=1e-12
    )


@measured
@given(
    items=st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40, unique_by=lambda i: i[0]),
    bins=st.integers(1, 8),
)
def test_adaptive_bins_hold_as_many_items_each(items, bins):
    sizes = [b.n for b in reliability_curve(*zip(*items, strict=True), bins, "mass") if b.n]
    assert len(sizes) == min(bins, len(items))
    assert max(sizes) - min(sizes) <= 1


def test_adaptive_bins_never_cut_equal_confidences():
    curve = reliability_curve([0.3] * 5 + [0.9], [1, 0, 1, 0, 1, 1], 3, "mass")
    assert [b.n for b in curve if b.n] == [5, 1]


def test_ece_equals_torchmetrics_where_no_confidence_lies_on_an_edge():
    import torch
    from torchmetrics.classification import BinaryCalibrationError

    rng = np.random.default_rng(0)
    for bins in (5, 10, 15):
        confidence = rng.random(300)
        correct = rng.random(300) < confidence**2
        theirs = BinaryCalibrationError(n_bins=bins, norm="l1")(torch.tensor(confidence), torch.tensor(correct).int())
        assert ece(confidence.tolist(), correct.tolist(), bins) == pytest.approx(float(theirs), abs=1e-6)


@few
@given(items=ITEMS)
def test_brier_equals_sklearn(items):
    confidence, correct = zip(*items, strict=True)
    assert brier(confidence, correct) == pytest.approx(
        brier_score_loss(correct, confidence, labels=[False, True]), abs=1e-12
    )


@pytest.mark.parametrize("measure", [ece, brier, reliability_curve])
def test_what_has_no_confidence_is_left_out_and_nonsense_is_refused(measure):
    assert measure([0.2, None], [1, 0]) == measure([0.2], [1])
    for nothing in ([], [None]):
        with pytest.raises(Unmeasured, match="no_confidence"):
            measure(nothing, [1] * len(nothing))
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            measure([wrong], [1])
    with pytest.raises(ValueError, match="give one each"):
        measure([0.5], [1, 0])
    with pytest.raises(ValueError, match="outcomes"):
        measure([0.5], [2])
    if measure is not brier:
        with pytest.raises(ValueError, match="bins"):
            measure([0.5], [1], 0)
        with pytest.raises(ValueError, match="unknown binning"):
            measure([0.5], [1], 3, "height")


@pytest.mark.parametrize("measure", [ece, brier, reliability_curve])
def test_an_outcome_that_nobody_knows_is_refused_in_a_sentence(measure):
    with pytest.raises(ValueError, match="outcomes: some are missing"):
        measure([0.5, 0.7], [1, None])
    measure([0.5, None], [1, None])  # left out for its confidence, and its outcome is not asked for
