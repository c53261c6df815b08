"""Recall of an approximate index against exact search.

Here: one query's ids and scores. Not here: sweeps, latency and index building (the indexing room).
"""

from __future__ import annotations

from collections.abc import Sequence

from rag_eval_pipeline.measures.metric import Unmeasured

TOLERANCE = 1e-6


def ann_recall(
    exact_ids: Sequence[str],
    exact_scores: Sequence[float],
    ann_ids: Sequence[str],
    k: int,
    n_admitted: int,
    ann_scores: Sequence[float] | None = None,
) -> float:
    """Distinct index ids whose exact score ≥ the k-th exact one − 1e-6, over min(k, vectors that the filter admits).

    Args:
        exact_ids: ids of the exact search, best first; at least min(k, n_admitted).
        exact_scores: their scores.
        ann_ids: ids that the index returned, best first; the first k are looked at.
        k: depth.
        n_admitted: number of vectors that the applied filter admits.
        ann_scores: exact scores of `ann_ids`. Without it an id's score is looked up in the exact list, and an id that is
            not there counts as missed: then give the exact list deep enough to hold the ties at k.

    Raises:
        ValueError: k ≤ 0, lengths that differ, or too short an exact list.
        Unmeasured: `nothing_admitted`.
    """
    if k <= 0:
        raise ValueError(f"ann_recall: k must be positive, found {k}")
    if n_admitted <= 0:
        raise Unmeasured("nothing_admitted")
    depth = min(k, n_admitted)
    if len(exact_ids) != len(exact_scores) or (ann_scores is not None and len(ann_scores) != len(ann_ids)):
        raise ValueError("ann_recall: ids and scores differ in length")
    if len(exact_ids) < depth:
        raise ValueError(f"ann_recall: the exact list has {len(exact_ids)} ids, {depth} are needed")
    bar = sorted(exact_scores, reverse=True)[depth - 1] - TOLERANCE
    known = dict(zip(exact_ids, exact_scores, strict=True))
    if ann_scores is not None:
        known |= dict(zip(ann_ids, ann_scores, strict=True))
    found = {item for item in ann_ids[:k] if known.get(item, -float("inf")) >= bar}
    return min(len(found), depth) / depth
