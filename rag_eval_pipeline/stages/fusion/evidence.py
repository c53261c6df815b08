"""What fusion lost: units that some lane has in its first n and the fused list has not."""

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger

PAIR = ["query_id", "evidence_id", "retriever"]


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Rows of `units` with `passed`. n is the reranker's input size, counted in items; without a reranker it is k.

    Args:
        units: query_id, evidence_id, retriever, k, n (NULL without a reranker).
        before: `ranks`: the best hold rank among the retriever's lanes.
        after: `ranks`: hold ranks in the fused list.
        config: nothing is read.
    """
    columns = [*PAIR, "hold_rank", "item_rank"]
    ranked = units.join(before["ranks"].select(columns), on=PAIR, how="left", maintain_order="left").join(
        after["ranks"].select(columns), on=PAIR, how="left", maintain_order="left", suffix="_fused"
    )
    some_lane, fused = _within(""), _within("_fused")
    return ranked.with_columns((~(some_lane & ~fused)).alias("passed")).select([*units.columns, "passed"])


def _within(suffix: str) -> pl.Expr:
    return (
        pl.when(pl.col("n").is_null())
        .then(pl.col(f"hold_rank{suffix}") <= pl.col("k"))
        .otherwise(pl.col(f"item_rank{suffix}") <= pl.col("n"))
        .fill_null(False)
    )
