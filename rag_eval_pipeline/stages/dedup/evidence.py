"""Which carriers stand in a document that dedup kept. Not here: whether a merge was right (the room's quality)."""

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger

UNIT = ["query_id", "evidence_id"]


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Carriers with `kept`, `survivor`, and `counts`: whether the tests of parsing and cleaning look at this carrier.

    It counts if its document was kept, or was removed for a survivor that is no carrier of the same unit; else damage in
    the rightly kept copy would be blamed on dedup.

    Args:
        units: one row a unit and carrier.
        before: nothing is read.
        after: `dedup`; without it, or without a document's row, the document counts as kept.
        config: nothing is read.
    """
    if "dedup" not in after:
        return units.with_columns(kept=pl.lit(True), survivor=pl.col("doc_id"), counts=pl.lit(True))
    fate = after["dedup"].select("doc_id", "kept", "survivor")
    carriers = units.select(*UNIT, pl.col("doc_id").alias("survivor"), pl.lit(True).alias("carries")).unique()
    return (
        units.join(fate, on="doc_id", how="left", maintain_order="left")
        .with_columns(pl.col("kept").fill_null(True), pl.col("survivor").fill_null(pl.col("doc_id")))
        .join(carriers, on=[*UNIT, "survivor"], how="left", maintain_order="left")
        .with_columns((pl.col("kept") | pl.col("carries").is_null()).alias("counts"))
        .drop("carries")
    )
