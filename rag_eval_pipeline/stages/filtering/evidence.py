"""Which evidence the applied predicate admits. Not here: whether the predicate was the right one (the room's quality)."""

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """The pieces in documents that their query's scope admits. A query without a row is not filtered.

    Args:
        units: evidence_units; nothing else of them is read here.
        before: `evidence_pieces`.
        after: `applied_filters`, `scopes`.
        config: nothing is read.
    """
    pieces = before["evidence_pieces"]
    filters = after["applied_filters"].select("query_id", "scope_id")
    scopes = after["scopes"]
    admitted = (
        scopes.filter(~pl.col("everything"))
        .select("scope_id", pl.col("doc_ids").alias("doc_id"))
        .explode("doc_id")
        .drop_nulls("doc_id")
        .unique()
        .with_columns(admitted=pl.lit(True))
    )
    return (
        pieces.join(filters, on="query_id", how="left", maintain_order="left")
        .join(scopes.select("scope_id", "everything"), on="scope_id", how="left", maintain_order="left")
        .join(admitted, on=["scope_id", "doc_id"], how="left", maintain_order="left")
        .filter(
            pl.col("scope_id").is_null() | pl.col("everything").fill_null(False) | pl.col("admitted").fill_null(False)
        )
        .select(pieces.columns)
    )
