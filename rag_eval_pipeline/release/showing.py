"""Rows for people: the waterfall as bars, a document as blocks beside their source. Printing belongs to the command line."""

from __future__ import annotations

import polars as pl

from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.text.offsets import OffsetMap

BAR = 24
LAYERS = {"parsed": 0, "cleaned": 1, "masked": 2}


def waterfall_rows(evaluation: Evaluation, retriever: str, k: int) -> dict[str, str]:
    """Stage → bar, recall still possible after it, and what it lost; `served` last."""
    frame = evaluation.frame("loss_waterfall").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & (pl.col("slice_name") == "all")
    )
    rows: dict[str, str] = {}
    recall, units, queries = 0.0, 0, 0
    for row in frame.sort("position").iter_rows(named=True):
        lost = f"−{row['lost_recall']:.3f} ({row['lost_units']})" if row["lost_units"] else ""
        rows[row["stage"]] = f"{_bar(row['ceiling_after'])} {row['ceiling_after']:.3f} {lost}".rstrip()
        recall, units, queries = row["recall"], row["n_units"], row["n_queries"]
    rows["served"] = f"{_bar(recall)} {recall:.3f} evidence recall, {units} units of {queries} queries"
    return rows


def document_rows(evaluation: Evaluation, doc_id: str, stage: str) -> pl.DataFrame:
    """One row a block: page, kind, its range in the parsed text, and the stage's text of it, redacted.

    Raises:
        LookupError: the version has no such document, or the stage no text of it.
    """
    if stage not in LAYERS:
        raise LookupError(f"stage {stage!r} has no text; choose one of {list(LAYERS)}")
    parsed = _row(evaluation, "parsed", doc_id)
    blocks = evaluation.frame("blocks").filter(pl.col("doc_id") == doc_id).sort("block")
    text, chain = parsed["text"], OffsetMap.identity(len(parsed["text"]))
    for layer in ("cleaned", "masked")[: LAYERS[stage]]:
        row = _row(evaluation, layer, doc_id)
        text, chain = row["text"], OffsetMap(row["offsets"]).then(chain)
    redactor = evaluation.redactor
    rows = []
    for block in blocks.iter_rows(named=True):
        place = chain.forward_range(block["start"], block["end"])
        shown = redactor.text(text[place[0] : place[1]]) if place else "(removed)"
        where = f"p. {block['page']}" if block["page"] is not None else ""
        kind = block["kind"] + (f" {block['level']}" if block["level"] is not None else "")
        rows.append({"where": where, "kind": kind, "parsed": f"{block['start']}–{block['end']}", "text": shown})
    if not rows:
        rows = [
            {"where": "", "kind": parsed["status"], "parsed": f"0–{len(parsed['text'])}", "text": redactor.text(text)}
        ]
    return pl.DataFrame(rows)


def _row(evaluation: Evaluation, table: str, doc_id: str) -> dict:
    found = evaluation.frame(table).filter(pl.col("doc_id") == doc_id)
    if found.is_empty():
        near = evaluation.frame("documents")["doc_id"].sort().to_list()
        where = "was dropped before this stage" if doc_id in near else f"is not in this version; it has e.g. {near[:5]}"
        raise LookupError(f"document {doc_id!r} {where} (no row in {table})")
    return found.row(0, named=True)


def _bar(share: float) -> str:
    full = round(max(0.0, min(1.0, share)) * BAR)
    return "█" * full + "░" * (BAR - full)
