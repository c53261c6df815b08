"""Prediction-powered estimates: the true rate from few human labels and many judgments.

Here: the estimate and its interval (Angelopoulos et al. 2023; ARES, Saad-Falcon et al. 2024). Not here: agreement of judge and
people (`agreement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rag_eval_pipeline.measures.intervals import (
    MIN_CLUSTERS,
    MIN_DIFFERENT,
    Interval,
    confidence_interval,
)
from rag_eval_pipeline.measures.metric import Unmeasured


@dataclass(frozen=True)
class Powered:
    """The true rate, as labels and judgments together say.

    Attributes:
        estimate: mean judgment, corrected by how it errs on labelled items.
        low: lower limit.
        high: upper limit.
        method: `normal`; `bounded`: conservative, where few labels or few errors say little of the spread.
        weight: how far judgments are used: 0 is labels alone, 1 plain prediction-powered inference.
        n_labelled: items with a label.
        n_unlabelled: items with a judgment alone.
        n_failed: items whose judgment failed; they count as undecided on both sides, which leaves the estimate unbiased.
        labels_alone: the interval of the labels, for comparison.
    """

    estimate: float
    low: float
    high: float
    method: str
    weight: float
    n_labelled: int
    n_unlabelled: int
    n_failed: int
    labels_alone: Interval


def prediction_powered(
    labels: Sequence[float],
    judged: Sequence[float | None],
    unlabelled: Sequence[float | None],
    *,
    low: float = 0.0,
    high: float = 1.0,
    level: float = 0.95,
) -> Powered:
    """The mean that people would find, had they labelled everything.

    Holds if labelled items are a random sample of all: of the slice that is spoken of, not of another.

    Args:
        labels: people's, of the labelled items.
        judged: the judge's, of the same items; None: it failed.
        unlabelled: the judge's, of the others.
        low: least value of both.
        high: greatest value.
        level: confidence.

    Raises:
        Unmeasured: `no_gold`: nothing is labelled; `no_judgments`: nothing else is judged.
        ValueError: lengths differ, or a value is outside its bounds.
    """
    if len(labels) != len(judged):
        raise ValueError(f"{len(labels)} labels for {len(judged)} judgments of them; give one each")
    if not len(labels):
        raise Unmeasured("no_gold")
    if not len(unlabelled):
        raise Unmeasured("no_judgments")
    y, f, g = (_filled(values, low, high) for values in (labels, judged, unlabelled))
    weight = _weight(y, f, g)
    estimate = float(weight * g.mean() + (y - weight * f).mean())
    limits, method = _limits(y, f, g, weight, (low, high), level)
    failed = sum(value is None for value in (*judged, *unlabelled))
    alone = confidence_interval(y, low=low, high=high, level=level)
    bounded = min(max(estimate, low), high)
    return Powered(bounded, max(limits[0], low), min(limits[1], high), method, weight, len(y), len(g), failed, alone)


def _filled(values: Sequence[float | None], low: float, high: float) -> np.ndarray:
    array = np.array([(low + high) / 2 if value is None else value for value in values], dtype=np.float64)
    if not ((array >= low) & (array <= high)).all():
        raise ValueError(f"values must lie in [{low}, {high}]; set low and high, give None where a judgment failed")
    return array


def _weight(y: np.ndarray, f: np.ndarray, g: np.ndarray) -> float:
    """The weight of least variance (PPI++, Angelopoulos et al. 2023b), in [0, 1]."""
    spread = float(np.concatenate([f, g]).var())
    if len(y) < MIN_CLUSTERS or not spread:
        return 1.0 if spread else 0.0
    together = float(np.cov(y, f)[0, 1])
    return float(np.clip(together / ((1 + len(y) / len(g)) * spread), 0.0, 1.0))


def _limits(
    y: np.ndarray, f: np.ndarray, g: np.ndarray, weight: float, bounds: tuple[float, float], level: float
) -> tuple[tuple[float, float], str]:
    errors = y - weight * f
    centre = weight * float(g.mean()) + float(errors.mean())
    if len(y) >= MIN_CLUSTERS and _differing(errors) >= MIN_DIFFERENT and len(g) > 1:
        spread = math.sqrt(weight**2 * g.var(ddof=1) / len(g) + errors.var(ddof=1) / len(y))
        reach = float(stdtrit(len(y) - 1, (1 + level) / 2)) * spread
        return (centre - reach, centre + reach), "normal"
    # Both parts hold together at least as often as asked: each may fail half as often.
    part = 1 - (1 - level) / 2
    low, high = bounds
    error = confidence_interval(errors, low=low - weight * high, high=high - weight * low, binary=False, level=part)
    judged = confidence_interval(g, low=low, high=high, level=part)
    limits = [error.low, error.high, judged.low, judged.high]
    below, above, least, greatest = (float(limit) for limit in limits if limit is not None)  # both have bounds
    return (weight * least + below, weight * greatest + above), "bounded"


def _differing(values: np.ndarray) -> int:
    _, counts = np.unique(np.round(values, 12), return_counts=True)
    return int(len(values) - counts.max())
