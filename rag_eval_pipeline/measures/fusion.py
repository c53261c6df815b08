"""Merging ranked lists: reciprocal rank fusion and convex combination of normalised scores.

Here: the formulas on lists of one query. Not here: which lanes are fused (the fusion room).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal


def rrf(lists: Mapping[str, Sequence[str]] | Iterable[Sequence[str]], k: float = 60) -> list[tuple[str, float]]:
    """Reciprocal rank fusion (Cormack et al. 2009): Σ 1 / (k + rank), ranks from 1.

    Returns:
        (id, score), best first; equal scores by id.

    Raises:
        ValueError: an id stands twice in a list, or k < 0.
    """
    if k < 0:
        raise ValueError(f"rrf: k must be at least 0, found {k}")
    named = lists if isinstance(lists, Mapping) else {str(index): ids for index, ids in enumerate(lists)}
    parts: dict[str, list[float]] = {}
    for name, ids in named.items():
        if len(set(ids)) != len(ids):
            twice = next(item for index, item in enumerate(ids) if item in ids[:index])
            raise ValueError(f"rrf: list {name!r} holds {twice!r} twice; an id has one rank in a list")
        for rank, item in enumerate(ids, 1):
            parts.setdefault(item, []).append(1 / (k + rank))
    # fsum: the order in which lanes are named must not decide a tie
    return _sorted({item: math.fsum(values) for item, values in parts.items()})


def convex_fusion(
    dense: Mapping[str, float],
    sparse: Mapping[str, float],
    alpha: float,
    norm: Literal["minmax", "none"] = "minmax",
) -> list[tuple[str, float]]:
    """α·norm(dense) + (1 − α)·norm(sparse); an id that a list has not counts 0 there.

    `minmax` maps a list's scores to [0, 1]; a list whose scores are all equal gets 1.

    Returns:
        (id, score), best first; equal scores by id.

    Raises:
        ValueError: α outside [0, 1], an unknown norm, or a score that is not finite.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"convex fusion: alpha must lie in [0, 1], found {alpha}")
    first, second = _normalised("dense", dense, norm), _normalised("sparse", sparse, norm)
    items = first.keys() | second.keys()
    return _sorted({item: alpha * first.get(item, 0.0) + (1 - alpha) * second.get(item, 0.0) for item in items})


def _normalised(name: str, scores: Mapping[str, float], norm: str) -> Mapping[str, float]:
    if odd := sorted(item for item, score in scores.items() if not math.isfinite(score)):
        raise ValueError(f"convex fusion: the {name} score of {odd[0]!r} is not finite")
    if norm == "none" or not scores:
        return scores
    if norm != "minmax":
        raise ValueError(f"convex fusion: unknown norm {norm!r}; use minmax or none")
    low, high = min(scores.values()), max(scores.values())
    width = high - low
    return {item: (score - low) / width if width else 1.0 for item, score in scores.items()}


def _sorted(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
