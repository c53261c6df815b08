"""Which evidence the assembled context holds: the ranges that were given to the answerer, cut ones included."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, holds_together, inside


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Per unit whether its query's context holds it.

    Args:
        units: evidence_units.
        before: `evidence_pieces`.
        after: `contexts`.
        config: hold.

    Returns:
        query_id, evidence_id, held.
    """
    given = after["contexts"].select("query_id", "doc_id").unique()
    pieces = before["evidence_pieces"].join(given, on=["query_id", "doc_id"], how="semi", maintain_order="left")
    whole = units.filter(pl.col("kind") == "document").select(UNIT)
    quotes = pieces.join(whole, on=UNIT, how="anti")
    left = inside(quotes, _covered(after["contexts"]), ["query_id", "doc_id"], units, config.hold)
    return holds_together(pl.concat([pieces.join(whole, on=UNIT, how="semi"), left]), units, config.hold).select(
        *UNIT, "held"
    )


def _covered(contexts: pl.DataFrame) -> pl.DataFrame:
    """Ranges of each document that a query's context has, joined where they touch: query_id, doc_id, low, high.

    What an earlier piece gave is left out of a later one, so a chunk's characters may stand in another piece's range.
    """
    key = ["query_id", "doc_id"]
    ranges = contexts.select(*key, low="start", high="end").drop_nulls().sort([*key, "low", "high"])
    before = pl.col("high").cum_max().shift(1).over(key)
    begins = (before.is_null() | (pl.col("low") > before)).alias("begins")
    return (
        ranges.with_columns(begins)
        .with_columns(pl.col("begins").cum_sum().over(key).alias("run"))
        .group_by([*key, "run"], maintain_order=True)
        .agg(pl.col("low").min(), pl.col("high").max())
        .select(*key, "low", "high")
    )
