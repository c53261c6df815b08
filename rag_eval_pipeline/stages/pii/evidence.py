"""What masking left of each carrier, and whether what it took was labelled personal. Not here: PII precision and recall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import holds
from rag_eval_pipeline.text.offsets import OffsetMap


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Carriers anchored in the masked text. A critical token's flag is inherited; it breaks only where it was masked.

    Args:
        units: carriers anchored in the clean text, with `ref_positions` in the reference text.
        before: `pii_labels` (doc_id, spans[] in the reference text), optional.
        after: `masked`.
        config: nothing is read.

    Returns:
        `units` with the anchor's columns as they are in the masked text. Status: ok | masked | policy (the broken token
        is itself labelled personal: rightly lost) | absent | the room's own status where it failed.
    """
    masked = {
        row["doc_id"]: row
        for row in after["masked"].select("doc_id", "text", "offsets", "status").iter_rows(named=True)
    }
    labels = dict(before["pii_labels"].select("doc_id", "spans").iter_rows()) if "pii_labels" in before else {}
    maps = {doc_id: OffsetMap(masked[doc_id]["offsets"]) for doc_id in units["doc_id"].unique() if doc_id in masked}
    rows = [
        _carried(row, masked.get(row["doc_id"]), maps.get(row["doc_id"]), labels.get(row["doc_id"]) or [])
        for row in units.iter_rows(named=True)
    ]
    return pl.DataFrame(rows, schema=units.schema, orient="row")


def _carried(
    row: dict[str, Any], output: dict[str, Any] | None, offsets: OffsetMap | None, spans: list[dict[str, Any]]
) -> dict[str, Any]:
    clean = np.asarray(row["positions"], dtype=np.int64)
    if output is None or offsets is None:
        gone = {"positions": [-1] * len(clean), "token_ok": [False] * len(row["token_ok"])}
        return row | gone | {"held": False, "status": "absent"}
    if row["kind"] == "document":
        text = output["text"].strip()
        status = "ok" if text else "empty" if output["status"] == "ok" else output["status"]
        return row | {"held": bool(text), "status": status}
    positions = offsets.forward(clean)
    ranges = list(zip(row["token_from"], row["token_to"], strict=True))
    tokens = [
        ok and bool((positions[low:high] >= 0).all()) for ok, (low, high) in zip(row["token_ok"], ranges, strict=True)
    ]
    held = holds(positions, tokens, row["needed"])
    status = "ok" if held or not row["held"] else _reason(row, positions, tokens, ranges, spans)
    if status == "masked" and output["status"] not in {"ok", "empty"}:
        status = output["status"]
    return row | {"positions": positions.tolist(), "token_ok": tokens, "held": held, "status": status}


def _reason(
    row: dict[str, Any],
    positions: np.ndarray,
    tokens: list[bool],
    ranges: list[tuple[int, int]],
    spans: list[dict[str, Any]],
) -> str:
    """`policy` where a broken token, or what is missing of the characters, is labelled personal; else `masked`."""
    reference = np.asarray(row["ref_positions"], dtype=np.int64)
    if not spans or len(reference) != len(positions):
        return "masked"
    labelled = np.zeros(len(reference), dtype=bool)
    for span in spans:
        labelled |= (reference >= span["start"]) & (reference < span["end"])
    broken = [
        (low, high) for was, ok, (low, high) in zip(row["token_ok"], tokens, ranges, strict=True) if was and not ok
    ]
    if broken:
        return "policy" if any(labelled[low:high].any() for low, high in broken) else "masked"
    return "policy" if int((~labelled).sum()) < row["needed"] else "masked"
