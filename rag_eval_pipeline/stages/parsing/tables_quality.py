"""How well tables were read: the tables of each document against its reference tables.

Here: who is compared with whom, and the rows. The measures stand in `measures.tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.measures.tables import TableScore, match_tables, table_score
from rag_eval_pipeline.warehouse.measurement import measurement, table_item

METRICS: tuple[Metric, ...] = (
    Metric("teds", "1 - tree edit distance / nodes of the larger table", "higher", -1),
    Metric("teds_clipped", "TEDS, 0 where it is below: no table is read worse than a missing one", "higher"),
    Metric("teds_struct", "The same with the content of cells left out", "higher", -1),
    Metric("teds_lenient", "The same after th is read as td and row groups, inner tags and white space are levelled", "higher", -1),
    Metric("spurious_tables", "Tables read without a counterpart in the reference", "lower", 0, float("inf")),
)  # fmt: skip
VARIANTS: dict[str, dict[str, bool]] = {
    "teds": {},
    "teds_struct": {"structure_only": True},
    "teds_lenient": {"lenient": True},
}
UNMEASURED = frozenset({"too_large", "too_deep"})
"""Statuses of a comparison that has no value."""


def table_rows(statuses: Mapping[str, str], frames: Mapping[str, pl.DataFrame], gold: Gold) -> list[dict[str, Any]]:
    """One row a metric and reference table; one with `no_gold` for each document without reference tables.

    Args:
        statuses: status of each document as the parser gave it, in the order of the rows.
        frames: `parsed_tables`.
        gold: its `tables` are used.
    """
    wanted, read = _by_document(gold.tables), _by_document(frames["parsed_tables"])
    rows: list[dict[str, Any]] = []
    for doc_id, status in statuses.items():
        if doc_id in wanted:
            rows += _of_document(doc_id, status, wanted[doc_id], list(read.get(doc_id, {}).values()))
        else:
            rows += _unlabelled(doc_id)
    return rows


def _by_document(frame: pl.DataFrame) -> dict[str, dict[int, str]]:
    """doc_id -> number of a table -> its HTML, in order."""
    tables: dict[str, dict[int, str]] = {}
    for doc_id, number, html in frame.sort("doc_id", "table_no").select("doc_id", "table_no", "html").iter_rows():
        tables.setdefault(doc_id, {})[number] = html
    return tables


def _of_document(doc_id: str, status: str, wanted: Mapping[int, str], read: list[str]) -> list[dict[str, Any]]:
    """All three scores speak of one assignment, the best one by TEDS: so they can be compared table by table."""
    matched, spurious = match_tables(list(wanted.values()), read)
    rows = []
    for (number, html), (place, score) in zip(wanted.items(), matched, strict=True):
        for name, options in VARIANTS.items():
            found = score if place is None or not options else _score(html, read[place], options)
            rows.append(_row(name, table_item(doc_id, number), found, status))
        rows.append(
            _row("teds_clipped", table_item(doc_id, number), replace(score, value=max(score.value, 0.0)), status)
        )
    extra, shown = float(len(spurious)), "scored" if status == "ok" else status
    counts = {"numerator": extra, "denominator": float(len(read))}
    rows.append(measurement("spurious_tables", "document", doc_id, extra, unit="table", status=shown, **counts))
    return rows


def _score(wanted: str, read: str, options: Mapping[str, bool]) -> TableScore:
    try:
        return table_score(wanted, read, **options)
    except Unmeasured as reason:
        return TableScore(0.0, reason.reason)


def _row(name: str, item_id: str, score: TableScore, status: str) -> dict[str, Any]:
    shown = score.status
    if shown == "scored" and score.invalid_spans:
        shown = "invalid_span"  # read as 1
    elif shown == "missing_table" and status != "ok":
        shown = status
    value = None if score.status in UNMEASURED else score.value
    return measurement(name, "table", item_id, value, unit="table", status=shown)


def _unlabelled(doc_id: str) -> list[dict[str, Any]]:
    tables = [
        measurement(name, "table", table_item(doc_id, None), None, unit="table", status="no_gold")
        for name in (*VARIANTS, "teds_clipped")
    ]
    return [*tables, measurement("spurious_tables", "document", doc_id, None, unit="table", status="no_gold")]
