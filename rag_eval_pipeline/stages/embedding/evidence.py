"""Which evidence the encoder saw: a chunk longer than the encoder's limit is searched by its beginning only."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, inside


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """The pieces as far as they were encoded, in whichever window. A chunk without a vector was not.

    Args:
        units: evidence_units.
        before: `evidence_pieces` (the admitted ones), `chunks`.
        after: `embeddings`.
        config: hold.
    """
    pieces = before["evidence_pieces"].join(
        after["embeddings"].select("chunk_id").unique(), on="chunk_id", how="semi", maintain_order="left"
    )
    start = pl.col("encoded_start") if "encoded_start" in after["embeddings"].columns else pl.lit(0, pl.Int64)
    windows = (
        after["embeddings"]
        .select("chunk_id", start.alias("low"), pl.col("encoded_end").alias("high"))
        .join(before["chunks"].select("chunk_id", at="start"), on="chunk_id")
        .select("chunk_id", pl.col("low", "high") + pl.col("at"))
        .drop_nulls()
    )
    whole = units.filter(pl.col("kind") == "document").select(UNIT)
    quotes = inside(pieces.join(whole, on=UNIT, how="anti"), windows, ["chunk_id"], units, config.hold)
    return pl.concat([pieces.join(whole, on=UNIT, how="semi"), quotes])
