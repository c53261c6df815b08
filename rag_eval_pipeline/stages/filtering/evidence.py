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
    asked = filters.join(pieces.select("query_id").unique(), on="query_id", how="semi").select("scope_id").unique()
    scopes = after["scopes"].join(asked, on="scope_id", how="semi")
    documents = pieces.select("doc_id").unique()
    return (
        pieces.join(filters, on="query_id", how="left", maintain_order="left")
        .join(scopes.select("scope_id", "everything"), on="scope_id", how="left", maintain_order="left")
        .join(_admitted(scopes, documents), on=["scope_id", "doc_id"], how="left", maintain_order="left")
        .filter(
            pl.col("scope_id").is_null() | pl.col("everything").fill_null(False) | pl.col("admitted").fill_null(False)
        )
        .select(pieces.columns)
    )


BATCH = 2_000_000
"""Documents of scopes that are spread out at once: it bounds memory where every query has a scope of its own."""


def _admitted(scopes: pl.DataFrame, documents: pl.DataFrame) -> pl.DataFrame:
    """scope_id, doc_id, admitted (true): what each scope admits of the documents that have a piece."""
    named = scopes.filter(~pl.col("everything")).with_columns(
        batch=pl.col("doc_ids").list.len().cast(pl.Int64).cum_sum() // BATCH
    )
    parts = [
        part.select("scope_id", pl.col("doc_ids").alias("doc_id"))
        .explode("doc_id")
        .drop_nulls("doc_id")
        .join(documents, on="doc_id", how="semi")
        .unique()
        for part in named.partition_by("batch")
    ]
    none = pl.DataFrame(schema={"scope_id": pl.String, "doc_id": pl.String})
    return pl.concat([none, *parts]).with_columns(admitted=pl.lit(True))
