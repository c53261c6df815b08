"""Which chunk has which part of each carrier: the pieces that every list is later read with.

Not here: whether chunks end where sentences do (the room's quality), and which list has them (measures.evidence).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger

PIECES: dict[str, Any] = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    "carrier": pl.Int64,
    "chunk_id": pl.String,
    "doc_id": pl.String,
    "chars": pl.List(pl.Int64),
    "positions": pl.List(pl.Int64),
    "tokens": pl.List(pl.Int64),
    "whole": pl.Boolean,
}


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Pieces of each carrier whose document was kept.

    A document unit has one whole piece a non-empty chunk of its document. A chunk without a place holds nothing of a
    quote. Only a chunk's own range counts: a prefix that the pipeline wrote holds nothing.

    Args:
        units: carriers anchored in the masked text, with `kept` and `present`.
        before: nothing is read.
        after: `chunks`.
        config: nothing is read.

    Returns:
        query_id, evidence_id, carrier, chunk_id, doc_id, chars, positions, tokens, whole; no row for a chunk without
        any character of the quote.
    """
    wanted = set(units["doc_id"].unique().to_list())
    columns = ["chunk_id", "doc_id", "start", "end", "text"]
    chunks = after["chunks"].select(columns).filter(pl.col("doc_id").is_in(sorted(wanted))).sort("doc_id", "start")
    by_document: dict[str, list[dict[str, Any]]] = {}
    for chunk in chunks.iter_rows(named=True):
        by_document.setdefault(chunk["doc_id"], []).append(chunk)
    placed = {doc_id: _Placed(mine) for doc_id, mine in by_document.items()}
    rows = []
    for row in units.filter("kept", "present").iter_rows(named=True):
        mine = by_document.get(row["doc_id"], [])
        if row["kind"] == "document":
            rows += _of_document(row, mine)
        elif mine:
            rows += _of_quote(row, placed[row["doc_id"]])
    return pl.DataFrame(rows, schema=PIECES, orient="row")


class _Placed:
    """A document's chunks that have a place, in the order of their beginnings."""

    def __init__(self, chunks: list[dict[str, Any]]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk["start"] is not None and chunk["end"] is not None]
        self._starts = np.array([chunk["start"] for chunk in self._chunks], dtype=np.int64)
        self._ends = np.array([chunk["end"] for chunk in self._chunks], dtype=np.int64)

    def between(self, low: int, high: int) -> list[dict[str, Any]]:
        """Chunks that have some of the offsets low to high."""
        last = int(np.searchsorted(self._starts, high, "right"))
        return [self._chunks[index] for index in np.flatnonzero(self._ends[:last] > low).tolist()]


def _of_document(row: dict[str, Any], chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    key = {name: row[name] for name in ("query_id", "evidence_id", "carrier", "doc_id")}
    empty: dict[str, Any] = {"chars": [], "positions": [], "tokens": [], "whole": True}
    return [key | empty | {"chunk_id": chunk["chunk_id"]} for chunk in chunks if chunk["text"].strip()]


def _of_quote(row: dict[str, Any], chunks: _Placed) -> list[dict[str, Any]]:
    key = {name: row[name] for name in ("query_id", "evidence_id", "carrier", "doc_id")}
    positions = np.asarray(row["positions"], dtype=np.int64)
    found = positions[positions >= 0]
    if not len(found):
        return []
    low, high = int(found.min()), int(found.max())
    tokens = list(zip(row["token_ok"], row["token_from"], row["token_to"], strict=True))
    pieces = []
    for chunk in chunks.between(low, high):
        inside = (positions >= chunk["start"]) & (positions < chunk["end"])
        if not inside.any():
            continue
        chars = np.flatnonzero(inside)
        intact = [number for number, (ok, first, last) in enumerate(tokens) if ok and inside[first:last].all()]
        whole = len(chars) >= row["needed"] and len(intact) == len(tokens)
        part = {"chars": chars.tolist(), "positions": positions[chars].tolist(), "tokens": intact, "whole": whole}
        pieces.append(key | part | {"chunk_id": chunk["chunk_id"]})
    return pieces
