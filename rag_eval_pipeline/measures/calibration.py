"""Whether confidence means what it says: expected calibration error, Brier score, reliability curve.

Here: confidences against outcomes. Not here: agreement of labels (`agreement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rag_eval_pipeline.measures.intervals import Interval, confidence_interval
from rag_eval_pipeline.measures.metric import Unmeasured

Binning = Literal["width", "mass"]


@dataclass(frozen=True)
class Bin:
    """A bin of the reliability curve: confidences in (low, high]; the first one holds its lower edge too.

    Attributes:
        low: lower edge.
        high: upper edge.
        n: items in it.
        confidence: their mean confidence; None where there are none.
        accuracy: share of them that is right, with its interval; its mean is None where there are none.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: Interval


def ece(
    confidence: Sequence[float | None], correct: Sequence[float | bool], bins: int = 10, binning: Binning = "width"
) -> float:
    """Expected calibration error: Σ n_b / n · |accuracy_b − confidence_b| (Naeini et al. 2015).

    Args:
        confidence: in [0, 1]; items without one (None) are left out: count them beside the figure.
        correct: whether each is right.
        bins: how many.
        binning: `width`: of equal width, (a, b], the first closed at 0; `mass`: as many items each as ties allow.

    Raises:
        Unmeasured: `no_confidence`.
        ValueError: a confidence outside [0, 1], a length that differs, no bins.
    """
    stated, right = _given(confidence, correct)
    codes, _ = _binned(stated, bins, binning)
    total = 0.0
    for code in np.unique(codes):
        inside = codes == code
        total += inside.sum() * abs(right[inside].mean() - stated[inside].mean())
    return float(total / len(stated))


def brier(confidence: Sequence[float | None], correct: Sequence[float | bool]) -> float:
    """Mean squared difference of confidence and outcome (Brier 1950).

    Raises:
        Unmeasured: `no_confidence`.
        ValueError: as `ece`.
    """
    stated, right = _given(confidence, correct)
    return float(np.mean((stated - right) ** 2))


def reliability_curve(
    confidence: Sequence[float | None], correct: Sequence[float | bool], bins: int = 10, binning: Binning = "width"
) -> list[Bin]:
    """The bins of `ece`, empty ones too; arguments and errors likewise."""
    stated, right = _given(confidence, correct)
    codes, edges = _binned(stated, bins, binning)
    curve = []
    for index in range(len(edges) - 1):
        inside = codes == index
        mean = float(stated[inside].mean()) if inside.any() else None
        curve.append(
            Bin(
                float(edges[index]),
                float(edges[index + 1]),
                int(inside.sum()),
                mean,
                confidence_interval(right[inside], low=0.0, high=1.0, binary=set(np.unique(right)) <= {0.0, 1.0}),
            )
        )
    return curve


def _given(confidence: Sequence[float | None], correct: Sequence[float | bool]) -> tuple[np.ndarray, np.ndarray]:
    if len(confidence) != len(correct):
        raise ValueError(f"{len(confidence)} confidences for {len(correct)} outcomes; give one each")
    if any(c is not None and r is None for c, r in zip(confidence, correct, strict=True)):
        raise ValueError("outcomes: some are missing; leave out items that nobody knows the outcome of")
    pairs = [(c, float(r)) for c, r in zip(confidence, correct, strict=True) if c is not None]
    if not pairs:
        raise Unmeasured("no_confidence")
    stated, right = np.array(pairs, dtype=np.float64).T
    if not ((stated >= 0) & (stated <= 1)).all():
        raise ValueError("confidence must lie in [0, 1]; divide percentages by 100, give None where there is none")
    if not ((right >= 0) & (right <= 1)).all():
        raise ValueError("outcomes are true or false, or a share in [0, 1]")
    return stated, right


def _binned(stated: np.ndarray, bins: int, binning: Binning) -> tuple[np.ndarray, np.ndarray]:
    """Bin of each item, and the edges."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, found {bins}")
    if binning not in ("width", "mass"):
        raise ValueError(f"unknown binning {binning!r}; use width or mass")
    upper = np.linspace(0.0, 1.0, bins + 1)[1:]
    if binning == "mass":
        ordered = np.sort(stated)
        # The last item of each bin is an upper edge: equal confidences are never cut apart, whatever their order.
        last = [ordered[-(-(i * len(ordered)) // bins) - 1] for i in range(1, bins)]
        upper = np.unique([*last, 1.0])
    return np.searchsorted(upper, stated, side="left"), np.concatenate([[0.0], upper])
