"""The order of the waterfall, and what the ledger needs to know of a retriever. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

STAGES: tuple[str, ...] = (
    "source",
    "unanchored",
    "parsing",
    "cleaning",
    "dedup",
    "pii",
    "chunking",
    "filtering",
    "embedding",
    "search",
    "indexing",
    "fusion",
    "reranking",
    "rank",
)
"""Tests in order. `unanchored` is no stage of a pipeline: the label has no place in a document without a reference text."""

AFTER: tuple[str, ...] = ("context", "answering")
"""What comes after k, in order: not in the sum of the books, shown at serve_k."""

UP_TO_FILTERING = STAGES[: STAGES.index("filtering") + 1]
"""A served unit can have failed none of these."""

NEEDS: dict[str, tuple[str, ...]] = {
    "source": ("documents",),
    "unanchored": ("parsed",),
    "parsing": ("parsed",),
    "cleaning": ("cleaned",),
    "dedup": ("dedup",),
    "pii": ("masked",),
    "chunking": ("chunks",),
    "filtering": ("applied_filters", "scopes"),
    "embedding": ("embeddings", "chunks"),
    "search": ("runs",),
    "indexing": ("runs",),
    "fusion": ("runs", "fused_runs"),
    "reranking": ("runs", "ranked_runs"),
}
"""Tables without which a stage can't be seen."""


@dataclass(frozen=True)
class RetrieverInfo:
    """One lane or fused list.

    Attributes:
        lanes: the lanes that a fused list is made of; empty (or itself alone) for a lane that searches.
        dense: some of its lanes, at any depth, is dense.
        depth: length at which its list is cut; NULL where it is taken as it is.
        depth_unit: what `depth` counts.
        reranked: a reranker follows.
    """

    lanes: tuple[str, ...] = ()
    dense: bool = False
    depth: int | None = 100
    depth_unit: Literal["chunks", "documents"] = "chunks"
    reranked: bool = False

    def is_fused(self, name: str) -> bool:
        """Whether it is made of other lists."""
        return bool(self.lanes) and self.lanes != (name,)


def leaves(name: str, retrievers: Mapping[str, RetrieverInfo]) -> tuple[str, ...]:
    """The lanes that search for a retriever, at any depth, each once: itself where it is no fused list."""
    info = retrievers.get(name)
    if info is None or not info.is_fused(name):
        return (name,)
    return tuple(dict.fromkeys(leaf for lane in info.lanes for leaf in leaves(lane, retrievers)))


def unseen(frames: Mapping[str, pl.DataFrame]) -> tuple[str, ...]:
    """Stages that these tables can't show, in order."""
    return tuple(stage for stage in STAGES if any(name not in frames for name in NEEDS.get(stage, ())))


def shown(name: str, info: RetrieverInfo, hidden: tuple[str, ...]) -> tuple[str, ...]:
    """Stages with a row for a retriever: those that can be seen and that it has."""
    lacking = set(hidden)
    if not info.dense:
        lacking |= {"embedding", "indexing"}
    if not info.is_fused(name):
        lacking.add("fusion")
    if not info.reranked:
        lacking.add("reranking")
    return tuple(stage for stage in STAGES if stage not in lacking)
