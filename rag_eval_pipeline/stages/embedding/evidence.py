"""Which evidence the encoder saw: a chunk longer than the encoder's limit is searched by its beginning only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, unit_needs


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """The pieces as far as they were encoded. A chunk without a vector was not.

    Args:
        units: evidence_units.
        before: `evidence_pieces` (the admitted ones), `chunks`.
        after: `embeddings`.
        config: hold.
    """
    pieces = before["evidence_pieces"]
    encoded = after["embeddings"].select("chunk_id", "encoded_end")
    starts = before["chunks"].select("chunk_id", pl.col("start").alias("chunk_start"))
    found = pieces.join(encoded, on="chunk_id", maintain_order="left").join(
        starts, on="chunk_id", how="left", maintain_order="left"
    )
    needs = unit_needs(units, config.hold).join(units.select(*UNIT, "critical_from", "critical_to"), on=UNIT)
    rows = [_seen(row) for row in found.join(needs, on=UNIT, maintain_order="left").iter_rows(named=True)]
    kept = [{name: row[name] for name in pieces.columns} for row in rows if row["chars"] or row["kind"] == "document"]
    return pl.DataFrame(kept, schema=pieces.schema, orient="row")


def _seen(row: dict[str, Any]) -> dict[str, Any]:
    if row["kind"] == "document":
        return row
    end = row["chunk_start"] + row["encoded_end"]
    pairs = [(c, p) for c, p in zip(row["chars"], row["positions"], strict=True) if p < end]
    chars = {c for c, _ in pairs}
    tokens = [t for t in row["tokens"] if chars.issuperset(range(row["critical_from"][t], row["critical_to"][t]))]
    whole = len(chars) >= row["needed"] and len(tokens) == row["n_tokens"]
    return row | {"chars": [c for c, _ in pairs], "positions": [p for _, p in pairs], "tokens": tokens, "whole": whole}
