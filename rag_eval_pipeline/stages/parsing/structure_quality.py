"""How well structure was read: the blocks of each document against those of its `structure` label.

Here: which marks of a format are no text, and the rows. The measures stand in `measures.structure`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.measures.fidelity import Measured
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.structure import (
    Block,
    heading_scores,
    list_integrity,
    reading_order,
    title_exact,
    title_similarity,
)
from rag_eval_pipeline.warehouse.measurement import measurement

METRICS: tuple[Metric, ...] = (
    Metric("reading_order", "Kendall's τ-b of the places of blocks that were read", "higher", -1),
    Metric("block_edit_distance", "Blocks lost, put in or out of place / blocks of the longer sequence", "lower"),
    Metric("heading_f1", "Harmonic mean of precision and recall of headings, matched in order", "higher"),
    Metric("heading_level_acc", "Headings matched in order with the right level / headings matched", "higher"),
    Metric("title_exact", "1 where the title was read as it is", "higher"),
    Metric("title_similarity", "1 - edits / characters of the longer title", "higher"),
    Metric("list_integrity", "Lists whose items all stand in order in one list / lists", "higher"),
)
UNITS = {
    "reading_order": "pair", "block_edit_distance": "block", "heading_f1": "heading", "heading_level_acc": "heading",
    "title_exact": "document", "title_similarity": "char", "list_integrity": "list",
}  # fmt: skip
FORM = "nfc+ws"
_MARKS = {
    "heading": re.compile(r"^\s{0,3}#{1,6}(?:\s+|$)|\s+#+\s*$|\n\s*(?:=+|-+)\s*$"),
    "list_item": re.compile(r"^\s*(?:[-*+•◦▪‣–]|\(?(?:\d{1,3}|[A-Za-z])[.)])\s+"),
    "table": re.compile(r"^[\s|:-]*-[\s|:-]*$|\|", re.MULTILINE),
}
"""What stands in a block's text to say what it is: by Markdown, or as a bullet or number that was drawn before an item."""


def structure_rows(statuses: Mapping[str, str], frames: Mapping[str, pl.DataFrame], gold: Gold) -> list[dict[str, Any]]:
    """Every metric for every document; `no_gold` where there is no `structure` label.

    Args:
        statuses: status of each document as the parser gave it, in the order of the rows.
        frames: `parsed` and `blocks`.
        gold: its `structure` is used.
    """
    labelled = {
        doc_id: [_block(block["kind"], block["text"], block["level"]) for block in blocks or ()]
        for doc_id, blocks in gold.structure.iter_rows()
    }
    read = _blocks_read(frames, list(labelled))
    rows = []
    for doc_id, status in statuses.items():
        reference = labelled.get(doc_id)
        measured = dict(_measured(reference, read.get(doc_id, []))) if reference is not None else {}
        rows += [_row(doc_id, metric.name, measured.get(metric.name), status) for metric in METRICS]
    return rows


def _blocks_read(frames: Mapping[str, pl.DataFrame], wanted: list[str]) -> dict[str, list[Block]]:
    """Blocks of labelled documents, in reading order."""
    texts = dict(frames["parsed"].filter(pl.col("doc_id").is_in(wanted)).select("doc_id", "text").iter_rows())
    blocks = frames["blocks"].filter(pl.col("doc_id").is_in(wanted)).sort("doc_id", "block")
    found: dict[str, list[Block]] = {}
    for doc_id, kind, level, start, end in blocks.select("doc_id", "kind", "level", "start", "end").iter_rows():
        found.setdefault(doc_id, []).append(_block(kind, texts[doc_id][start:end], level))
    return found


def _block(kind: str, text: str, level: int | None) -> Block:
    marks = _MARKS.get(kind)
    return Block(kind, marks.sub(" ", text) if marks else text, level)


def _measured(reference: list[Block], read: list[Block]) -> Iterator[tuple[str, Measured]]:
    order = reading_order(reference, read, FORM)
    yield "reading_order", order.tau
    yield "block_edit_distance", order.edit_distance
    headings = heading_scores(reference, read, FORM)
    yield "heading_f1", headings.f1
    yield "heading_level_acc", headings.level_accuracy
    yield "title_exact", title_exact(reference, read, FORM)
    yield "title_similarity", title_similarity(reference, read, FORM)
    yield "list_integrity", list_integrity(reference, read, FORM)


NOTHING_LABELLED = frozenset({"no_blocks", "no_heading", "no_title", "no_list"})
"""Reasons that lie with the reference; all others are the parser's doing, and a document's own status says more."""


def _row(doc_id: str, name: str, measured: Measured | None, status: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"unit": UNITS[name], "params": {"form": FORM}}
    if measured is None:
        return measurement(name, "document", doc_id, None, status="no_gold", **fields)
    unread = status != "ok" and measured.status not in NOTHING_LABELLED
    if measured.value is not None:
        fields |= {"numerator": float(measured.numerator), "denominator": float(measured.denominator)}
        fields["weight"] = float(measured.denominator)
    return measurement(
        name, "document", doc_id, measured.value, status=status if unread else measured.status, **fields
    )  # fmt: skip
