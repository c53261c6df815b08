"""What the reranker should have left alone: the order before it. Scoring and re-ordering belong in `transform`."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.measures.lists import LIST, RUN
from rag_eval_pipeline.stages.reranking.tables import RankedRuns
from rag_eval_pipeline.stages.reranking.transform import RerankingConfig, imported_before, lists_before, reranked
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.table import conform, polars_schema

ORDER = ["query_id", "rank", "chunk_id"]


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: RerankingConfig
) -> dict[str, pl.DataFrame]:
    """The lists before reranking, with their scores; `input_size` still says how many items the reranker saw.

    A retriever whose order its reranker left as it was keeps its lists. So does, with an imported reranker, a query whose
    list before is not known. Gold is not asked.

    Args:
        before: what the transform was given.
        after: `ranked_runs`.
        truth: nothing is read.
        config: the stage's own.
    """
    ranked, lists = after["ranked_runs"], lists_before(before)
    changed = [_restored(name, lists, ranked, before, config) for name in reranked(lists, config)]
    parts = [part for part in changed if part is not None]
    if not parts:
        return dict(after)
    names = [part["retriever"][0] for part in parts if part.height]
    kept = ranked.filter(~pl.col("retriever").is_in(names))
    return {**after, "ranked_runs": conform(RankedRuns, pl.concat([kept, *parts]))}


def _restored(
    name: str, lists: pl.DataFrame, ranked: pl.DataFrame, before: Mapping[str, pl.DataFrame], config: RerankingConfig
) -> pl.DataFrame | None:
    """One retriever's lists as they were before; None where nothing was changed."""
    mine, source = ranked.filter(pl.col("retriever") == name), lists.filter(pl.col("retriever") == name)
    if config.reranker == "import":
        source = imported_before(name, source, before)
    columns = list(polars_schema(RankedRuns))
    sizes = mine.group_by(LIST).agg(pl.col("input_size").max())
    known = source.select(list(RUN)).join(sizes, on=LIST, how="left").with_columns(rank_before="rank").select(columns)
    unknown = mine.join(known.select(LIST), on=LIST, how="anti")
    whole = pl.concat([known, unknown])
    if whole.is_empty() or whole.select(ORDER).sort(ORDER).equals(mine.select(ORDER).sort(ORDER)):
        return None
    return whole
