"""What cleaning left of each carrier: positions carried on from the parsed to the clean text.

Here also the critical tokens' flags are fixed: later rooms can only remove, mask or cut a token. Blame stands elsewhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import holds, scattered, tokens_intact
from rag_eval_pipeline.text.alignment import locate
from rag_eval_pipeline.text.offsets import OffsetMap


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Carriers anchored in the clean text.

    Where the parsed text does not hold a carrier and the clean text, at the range that derives from it, does (a joined
    hyphenation, repaired characters), the status is `restored`.

    Args:
        units: carriers anchored in the parsed text.
        before: `parsed`.
        after: `cleaned`.
        config: normalise and min_similarity.

    Returns:
        `units` with the anchor's columns as they are in the clean text. Status: ok | restored | changed | absent | the
        cleaner's own status where it failed.
    """
    parsed = dict(before["parsed"].select("doc_id", "text").iter_rows())
    columns = ["doc_id", "text", "offsets", "status"]
    cleaned = {row["doc_id"]: row for row in after["cleaned"].select(columns).iter_rows(named=True)}
    maps: dict[str, OffsetMap] = {}
    rows = []
    for row in units.iter_rows(named=True):
        doc_id = row["doc_id"]
        output = cleaned.get(doc_id)
        if output is None:
            rows.append(_gone(row, "absent"))
            continue
        if doc_id not in maps:
            maps[doc_id] = OffsetMap(output["offsets"])
        rows.append(_carried(row, parsed.get(doc_id, ""), output, maps[doc_id], config))
    return pl.DataFrame(rows, schema=units.schema, orient="row")


def _gone(row: dict[str, Any], status: str) -> dict[str, Any]:
    positions = [-1] * len(row["positions"])
    lost = {"token_ok": [False] * len(row["token_ok"]), "held": False, "spread": False, "low": None, "high": None}
    return row | lost | {"positions": positions, "status": status}


def _carried(
    row: dict[str, Any], parsed: str, output: dict[str, Any], offsets: OffsetMap, config: Ledger
) -> dict[str, Any]:
    text: str = output["text"]
    if row["kind"] == "document" or not text.strip():
        status = (
            output["status"] if not text.strip() and output["status"] != "ok" else "ok" if text.strip() else "empty"
        )
        return _gone(row, status) | {"held": row["kind"] == "document" and bool(text.strip())}
    positions = _forward(offsets, np.asarray(row["positions"], dtype=np.int64), parsed, text)
    ranges = list(zip(row["token_from"], row["token_to"], strict=True))
    tokens = tokens_intact(text, positions, row["quote"], ranges, row["before"], row["after"])
    held = holds(positions, tokens, row["needed"])
    status = "ok" if held else "changed"
    if not row["held"]:
        if not held:
            again = _locate_again(row, text, offsets, config)
            again_tokens = (
                [] if again is None else tokens_intact(text, again, row["quote"], ranges, row["before"], row["after"])
            )
            if again is not None and holds(again, again_tokens, row["needed"]):
                positions, tokens, held = again, again_tokens, True
        status = "restored" if held else status
    return row | {
        "positions": positions.tolist(),
        "token_ok": tokens,
        "held": held,
        "status": status,
        "spread": scattered(text, positions),
    }


def _forward(offsets: OffsetMap, positions: np.ndarray, source: str, text: str) -> np.ndarray:
    """Positions in the clean text; an accent that was only composed or decomposed is still the same character."""
    carried = offsets.forward(positions)
    if not ((carried < 0) & (positions >= 0)).any():
        return carried
    for segment in offsets.segments:
        if segment.exact:
            continue
        old, new = source[segment.src_start : segment.src_end], text[segment.out_start : segment.out_end]
        composed = unicodedata.normalize("NFC", old)
        if len(composed) == 1 and composed == unicodedata.normalize("NFC", new):
            carried[positions == segment.src_start] = segment.out_start
    return carried


def _locate_again(row: dict[str, Any], text: str, offsets: OffsetMap, config: Ledger) -> np.ndarray | None:
    if row["low"] is None or row["high"] is None:
        return None
    window = offsets.forward_range(row["low"], row["high"])
    if window is None:
        return None
    start, end = window
    place = locate(row["quote"], text[start:end], config.normalise, config.min_similarity)
    return None if place is None else np.where(place.positions >= 0, place.positions + start, -1)
