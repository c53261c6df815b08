"""A wrapper around a pipeline's reranker that spoils the order of chosen queries: what `harmful_reranker` plants.

Named in the twin's settings by import path; everything that decides its output stands in its options, so the identity of
the tables is sound. Which queries are chosen belongs in `twin`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

Passages = list[tuple[str, str | None]]
Score = Callable[[str, str | None, Passages], Sequence[float]]


class Harmful:
    """Another reranker's scores, turned around for some queries.

    Args:
        inner: the section `reranking` that is wrapped; without a reranker the order before.
        harmed: texts of queries whose order is turned around.
        decoys: texts of queries whose order is turned around behind the first `keep` items only.
        keep: items that a decoy leaves alone.
    """

    def __init__(
        self,
        inner: dict[str, Any] | None = None,
        harmed: Sequence[str] = (),
        decoys: Sequence[str] = (),
        keep: int = 10,
    ) -> None:
        self._inner, self._harmed, self._decoys, self._keep = inner or {}, set(harmed), set(decoys), keep

    def bind(self, chunks: pl.DataFrame) -> Score:
        """The scores as a function; the reranker inside is made of the chunks here."""
        inner = self._inside(chunks)

        def scores(query: str, language: str | None, passages: Passages) -> Sequence[float]:
            return self._spoiled(query, inner(query, language, passages))

        return scores

    def rerank(self, query: str, passages: list[str]) -> Sequence[float]:
        """Scores over the order before; a wrapped reranker is only reached by `bind`."""
        return self._spoiled(query, [0.0] * len(passages))

    def _inside(self, chunks: pl.DataFrame) -> Score:
        from rag_eval_pipeline.stages.reranking.transform import RerankingConfig, scorer

        if not self._inner.get("reranker"):
            return lambda query, language, passages: [0.0] * len(passages)
        return scorer(chunks, RerankingConfig(**self._inner))

    def _spoiled(self, query: str, values: Sequence[float]) -> Sequence[float]:
        if query not in self._harmed and query not in self._decoys:
            return values
        best_first = sorted(range(len(values)), key=lambda index: (-values[index], index))
        kept = self._keep if query in self._decoys else 0
        order = best_first[:kept] + best_first[kept:][::-1]
        result = [0.0] * len(values)
        for rank, index in enumerate(order):
            result[index] = float(len(order) - rank)
        return result
