"""Precision, recall and F1 by class, with intervals.

Here: one label an item against one prediction. Not here: agreement beyond chance (`agreement`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rag_eval_pipeline.measures.intervals import DRAWS, Interval, confidence_interval


@dataclass(frozen=True)
class ClassScores:
    """One class. A mean is None where its denominator is 0."""

    label: Hashable
    n: int
    precision: Interval
    recall: Interval
    f1: Interval


def class_scores(
    expected: Sequence[Hashable],
    predicted: Sequence[Hashable | None],
    clusters: Sequence[Hashable] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[ClassScores]:
    """Scores of each class that is expected, in order of its name.

    F1 = 2tp / (2tp + fp + fn) is a mean too: a hit counts twice as 1, an error of either kind once as 0, all three with their
    item. So it has an interval over items like any other.

    Args:
        expected: the labels.
        predicted: what was said; None: nothing, which is wrong.
        clusters: which items belong together; by default each stands alone.
        draws: resamples.
        seed: of them.

    Raises:
        ValueError: lengths differ.
    """
    groups = list(range(len(expected))) if clusters is None else list(clusters)
    rows = list(zip(expected, predicted, groups, strict=True))

    def rate(values: list[tuple[float, Hashable]], alone: bool) -> Interval:
        names = None if alone else [group for _, group in values]
        return confidence_interval([v for v, _ in values], clusters=names, low=0, high=1, binary=True if alone else None, draws=draws, seed=seed)  # fmt: skip

    single, found = clusters is None, []
    for label in sorted(set(expected), key=str):
        right = [(float(e == p), g) for e, p, g in rows if p == label]
        there = [(float(e == p), g) for e, p, g in rows if e == label]
        both = [(float(e == p), g) for e, p, g in rows for _ in range(1 + (e == p)) if label in (e, p)]
        found.append(ClassScores(label, len(there), rate(right, single), rate(there, single), rate(both, False)))
    return found
