"""Which evidence the assembled context holds: the ranges that were given to the answerer, cut ones included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, holds_together, unit_needs


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
    needs = unit_needs(units, config.hold).join(units.select(*UNIT, "critical_from", "critical_to"), on=UNIT)
    given = after["contexts"].select("query_id", "doc_id").unique()
    covered = _covered(after["contexts"])
    found = before["evidence_pieces"].join(given, on=["query_id", "doc_id"]).join(needs, on=UNIT)
    rows = [_given(row, covered.get((row["query_id"], row["doc_id"]), [])) for row in found.iter_rows(named=True)]
    schema = before["evidence_pieces"].schema
    pieces = pl.DataFrame(rows, schema=schema, orient="row") if rows else before["evidence_pieces"].clear()
    return holds_together(pieces, units, config.hold).select(*UNIT, "held")


def _covered(contexts: pl.DataFrame) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Ranges of each document that a query's context has, joined where they touch.

    What an earlier piece gave is left out of a later one, so a chunk's characters may stand in another piece's range.
    """
    ranges: dict[tuple[str, str], list[tuple[int, int]]] = {}
    columns = ["query_id", "doc_id", "start", "end"]
    for query, doc, start, end in contexts.select(columns).drop_nulls(["start", "end"]).sort(columns).iter_rows():
        mine = ranges.setdefault((query, doc), [])
        if mine and start <= mine[-1][1]:
            mine[-1] = (mine[-1][0], max(end, mine[-1][1]))
        else:
            mine.append((start, end))
    return ranges


def _given(row: dict[str, Any], ranges: list[tuple[int, int]]) -> dict[str, Any]:
    key = {name: row[name] for name in ("query_id", "evidence_id", "carrier", "chunk_id", "doc_id")}
    if row["kind"] == "document":
        return key | {"chars": [], "positions": [], "tokens": [], "whole": True}
    inside = {
        char: (position, place)
        for char, position in zip(row["chars"], row["positions"], strict=True)
        for place, (start, end) in enumerate(ranges)
        if start <= position < end
    }
    tokens = [
        token
        for token in row["tokens"]
        if len({inside.get(c, (0, -c - 1))[1] for c in range(row["critical_from"][token], row["critical_to"][token])})
        == 1
        and row["critical_from"][token] in inside
    ]
    whole = len(inside) >= row["needed"] and len(tokens) == row["n_tokens"]
    return key | {
        "chars": list(inside),
        "positions": [position for position, _ in inside.values()],
        "tokens": tokens,
        "whole": whole,
    }
