"""What the approximate index lost: units that exact search has in its first m and the real list has not."""

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger

PAIR = ["query_id", "evidence_id", "retriever"]


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Rows of `units` with `passed`, for m = k and, where a reranker follows, m = n.

    Args:
        units: query_id, evidence_id, retriever, k, n (the reranker's input size; NULL without one).
        before: `ranks`: hold ranks in the same retriever's list over exact lanes, up to but without the reranker.
        after: `ranks`: hold ranks in its real list.
        config: nothing is read.
    """
    columns = [*PAIR, "hold_rank", "item_rank"]
    ranked = units.join(before["ranks"].select(columns), on=PAIR, how="left", maintain_order="left").join(
        after["ranks"].select(columns), on=PAIR, how="left", maintain_order="left", suffix="_real"
    )
    at_k = _within("hold_rank", "k") & ~_within("hold_rank_real", "k")
    at_n = pl.col("n").is_not_null() & _within("item_rank", "n") & ~_within("item_rank_real", "n")
    return ranked.with_columns((~(at_k | at_n)).alias("passed")).select([*units.columns, "passed"])


def _within(rank: str, limit: str) -> pl.Expr:
    return (pl.col(rank) <= pl.col(limit)).fill_null(False)
