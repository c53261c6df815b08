"""Which chunks each query may be given, as masks, and the boost of a soft filter. Making predicates belongs in `filtering`."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import polars as pl

from rag_eval_pipeline.measures.lists import LIST, order


class Scopes:
    """Masks over chunks, in the chunks' order, by scope."""

    def __init__(self, chunks: pl.DataFrame, applied_filters: pl.DataFrame, scopes: pl.DataFrame) -> None:
        names = chunks["doc_id"].unique(maintain_order=True)
        self._code = {name: code for code, name in enumerate(names)}
        self.documents = np.fromiter(
            (self._code[name] for name in chunks["doc_id"]), dtype=np.int64, count=chunks.height
        )
        self._rows = {row["scope_id"]: row for row in scopes.iter_rows(named=True)}
        self._of_query = dict(applied_filters.select("query_id", "scope_id").iter_rows())
        # Hundreds of callers may have a scope each: keep only the masks of the latest.
        self.mask = lru_cache(maxsize=32)(self._mask)

    def of(self, query_id: str) -> str:
        """The query's scope.

        Raises:
            ValueError: the query has no row in applied_filters, or its scope none in scopes.
        """
        scope = self._of_query.get(query_id)
        if scope is None or scope not in self._rows:
            raise ValueError(
                f"query {query_id} has no scope: materialize applied_filters and scopes for these queries first"
            )
        return scope

    def _mask(self, scope_id: str) -> np.ndarray:
        row = self._rows[scope_id]
        if row["everything"]:
            return np.ones(len(self.documents), dtype=bool)
        admitted = np.zeros(len(self._code) + 1, dtype=bool)
        admitted[[self._code[doc_id] for doc_id in row["doc_ids"] if doc_id in self._code]] = True
        return admitted[self.documents]


def top(scores: np.ndarray, allowed: np.ndarray, depth: int, documents: np.ndarray | None = None) -> np.ndarray:
    """Positions of the best allowed items with a score above 0: score descending, then position ascending.

    Args:
        scores: float32, one an item; items stand in order of their id.
        allowed: mask of the items.
        depth: items, or documents where `documents` is given.
        documents: document of each item; the list then ends where it has shown `depth` documents.
    """
    candidates = np.flatnonzero(allowed & (scores > 0))
    if documents is None and len(candidates) > depth:
        # Keep all that tie with the last one in: the id decides among them, not the partition.
        bar = np.partition(scores[candidates], len(candidates) - depth)[len(candidates) - depth]
        candidates = candidates[scores[candidates] >= bar]
    ranked = candidates[np.lexsort((candidates, -scores[candidates]))]
    if documents is None:
        return ranked[:depth]
    _, first = np.unique(documents[ranked], return_index=True)
    return ranked if len(first) < depth else ranked[: np.sort(first)[depth - 1] + 1]


def boosted(runs: pl.DataFrame, applied_filters: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Lists re-ordered by soft filters: preferred documents gain boost × (best − worst score of the list)."""
    soft = applied_filters.filter((pl.col("mode") == "soft") & pl.col("preferred_scope_id").is_not_null())
    soft = soft.select("query_id", scope_id="preferred_scope_id", boost="boost")
    if soft.is_empty() or runs.is_empty():
        return runs
    preferred = (
        scopes.join(soft.select("scope_id").unique(), on="scope_id", how="semi")
        .filter(~pl.col("everything"))
        .explode("doc_ids")
        .filter(pl.col("doc_ids").is_not_null())
        .select("scope_id", doc_id="doc_ids", preferred=pl.lit(True))
    )
    spread = (pl.col("score").max() - pl.col("score").min()).over(LIST)
    gain = pl.when(pl.col("preferred").fill_null(False)).then(pl.col("boost") * spread).otherwise(0.0)
    joined = runs.join(soft, on="query_id", how="left").join(preferred, on=["scope_id", "doc_id"], how="left")
    return order(joined.with_columns(score=pl.col("score") + gain)).select(runs.columns)
