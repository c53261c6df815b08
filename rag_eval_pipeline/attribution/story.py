"""The ledger in words: one query's story, and the waterfall as rows of a terminal table.

Masked text only: a quote is printed as `evidence_units` has it. Printing and colours belong in the cli.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.order import AFTER, STAGES

QUOTE = 160
"""Characters of a quote that are shown."""

WORDS = {
    "missing_document": "no carrier's document is in this version",
    "unanchored": "the quote was not found in the parsed text, and the document has no reference text; label it anew",
    "missing": "no place in the parsed text is similar enough",
    "token": "a critical token (number, date, code, negation) did not survive",
    "characters": "too few of its characters are left",
    "reading_order": "its words stand out of order or far apart in the parsed text",
    "merged": "its document was removed as a duplicate",
    "policy": "it is labelled personal data, and was rightly masked",
    "cut": "a chunk edge goes through it, and its parts were not found together",
    "dropped": "no chunks, taken together, hold it",
    "truncated": "the encoder did not see it: its chunk is too long",
    "possible": "the encoder did not see it; a sparse lane had the chunk, so this is a possible cause only",
    "not_found": "no lane found it within its depth, even by exact search",
    "approximate": "exact search had it in time, the approximate index had not",
    "fused_out": "a lane had it in time, the fused list had not",
    "demoted": "it was served before the reranker and not after",
    "below_k": "it stands below the cut-off",
}


def story(
    query_id: str,
    units: pl.DataFrame,
    ledger: pl.DataFrame,
    fate: pl.DataFrame,
    retriever: str | None = None,
    k: int | None = None,
) -> list[str]:
    """What happened to each piece of a query's evidence, stage by stage.

    Args:
        query_id: the query.
        units: evidence_units.
        ledger: evidence_ledger.
        fate: evidence_fate.
        retriever: tell of this one only.
        k: tell of this cut-off only.

    Raises:
        LookupError: the query has no evidence in the measured split.
    """
    mine = units.filter(pl.col("query_id") == query_id).sort("evidence_id")
    if mine.is_empty():
        raise LookupError(
            f"query {query_id!r} has no evidence in this evaluation; see gold/evidence.jsonl and evaluate.split"
        )
    lines = []
    for unit in mine.iter_rows(named=True):
        lines += _introduction(unit)
        lines += _stages(_of(ledger, unit), retriever)
        lines += _ends(_of(fate, unit), retriever, k)
    return lines


def _of(frame: pl.DataFrame, unit: Mapping[str, Any]) -> pl.DataFrame:
    return frame.filter((pl.col("query_id") == unit["query_id"]) & (pl.col("evidence_id") == unit["evidence_id"]))


def _introduction(unit: Mapping[str, Any]) -> list[str]:
    what = "the whole document" if unit["kind"] == "document" else f"“{_short(unit['quote'])}”"
    lines = [f"Evidence {unit['evidence_id']} in {unit['doc_id']}: {what}"]
    if unit["critical"]:
        lines.append(f"  must keep: {', '.join(unit['critical'])}")
    if not unit["eligible"]:
        lines.append("  outside the books: the caller may not see its document")
    return lines


def _short(text: str) -> str:
    return text if len(text) <= QUOTE else text[: QUOTE - 1] + "…"


def _stages(rows: pl.DataFrame, retriever: str | None) -> list[str]:
    order = {stage: place for place, stage in enumerate((*STAGES, AFTER))}
    chosen = [
        row
        for row in rows.iter_rows(named=True)
        if row["stage"] != "unanchored" and (retriever is None or row["retriever"] in {"", retriever})
    ]
    lines, gone = [], False
    for row in sorted(chosen, key=lambda r: (order[r["stage"]], r["retriever"])):
        lost = not row["held"]
        if lost and gone:  # it was lost before: what this stage did to it explains nothing
            continue
        gone = gone or (lost and not row["retriever"])
        where = f" [{row['retriever']}]" if row["retriever"] else ""
        rank = f", rank {row['hold_rank']}" if row["hold_rank"] is not None else ""
        lines.append(f"  {row['stage']:<10}{where} {row['state']}{rank}{_remark(row)}")
    return lines


def _remark(row: Mapping[str, Any]) -> str:
    """The details that a reader wants first."""
    detail = json.loads(row["detail"])
    match row["stage"]:
        case "source" if detail.get("missing_documents"):
            return f" (not in this version: {', '.join(detail['missing_documents'])})"
        case "parsing" if row["similarity"] is not None and row["similarity"] < 1:
            return f" (similarity {row['similarity']:.3f}, {detail.get('status', '')})"
        case "dedup" if detail.get("removed"):
            return (
                " (" + "; ".join(f"{item['doc_id']} removed for {item['survivor']}" for item in detail["removed"]) + ")"
            )
        case "pii" if detail.get("types"):
            return f" (masked: {', '.join(detail['types'])})"
        case "chunking" if detail.get("chunk_ids"):
            return f" (in {', '.join(detail['chunk_ids'])})"
        case "filtering" if row["state"] == "lost":
            return f" (excluded by {detail.get('producer')})"
        case "fusion" if detail.get("lanes"):
            return " (" + ", ".join(f"{lane['lane']} {lane['hold_rank']}" for lane in detail["lanes"]) + ")"
        case "indexing" | "reranking":
            return " (" + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sorted(detail.items())) + ")"
        case _:
            return ""


def _ends(rows: pl.DataFrame, retriever: str | None, k: int | None) -> list[str]:
    lines = []
    for row in rows.sort("retriever", "k").iter_rows(named=True):
        if (retriever is not None and row["retriever"] != retriever) or (k is not None and row["k"] != k):
            continue
        head = f"  {row['retriever']}, k={row['k']}: "
        if row["served"]:
            lost_after = " but the context does not hold it" if row["context_held"] is False else ""
            lines.append(f"{head}served at rank {row['rank']}{lost_after}")
        elif row["first_loss_stage"] == "ineligible":
            lines.append(f"{head}not counted")
        else:
            why = WORDS.get(row["cause"] or "", row["cause"] or "")
            lines.append(f"{head}lost at {row['first_loss_stage']} ({row['cause']}): {why}")
    return lines


def waterfall_table(
    waterfall: pl.DataFrame, retriever: str, k: int, slice_name: str = "all", slice_value: str = "all"
) -> list[dict[str, Any]]:
    """Rows of a terminal table: stage, ceiling before and after, lost recall and units; the last row is the recall.

    Returns:
        Dicts of stage, ceiling_before, ceiling_after, lost_recall, lost_units; empty where the slice has no units.
    """
    rows = waterfall.filter(
        (pl.col("retriever") == retriever)
        & (pl.col("k") == k)
        & (pl.col("slice_name") == slice_name)
        & (pl.col("slice_value") == slice_value)
    ).sort("position")
    if rows.is_empty():
        return []
    columns = ("stage", "ceiling_before", "ceiling_after", "lost_recall", "lost_units")
    shown = rows.filter((pl.col("stage") != "unanchored") | (pl.col("lost_units") > 0))
    in_books = list(shown.filter(pl.col("stage") != AFTER).select(columns).iter_rows(named=True))
    after = list(shown.filter(pl.col("stage") == AFTER).select(columns).iter_rows(named=True))
    recall = rows["recall"][0]
    total = {"stage": f"recall@{k}", "ceiling_before": recall, "ceiling_after": recall, "lost_recall": None}
    return [*in_books, total | {"lost_units": None}, *after]
