"""The tidy base of every quality table: one row an item and metric, with a status instead of a silent gap."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from rag_eval_pipeline.warehouse.table import Table, boolean, integer, number, polars_schema, string, strings, table


@table("measurements", "One row a measured item and metric; value is NULL where status says why.")
class Measurements(Table):
    """Every quality table has these columns."""

    corpus_version = string("corpus@version", key=True)
    pipeline = string("Pipeline", key=True)
    evaluation_id = string("Evaluation", key=True)
    stage = string("Room that measured it", key=True)
    retriever = string("Lane, or empty where the measure has none", key=True)
    metric = string("Name of the metric", key=True)
    unit = string("chunk | document | evidence | char | word | span | pair | query …", key=True)
    k = integer("Cut-off; 0 where the metric has none; tokens for @B metrics", key=True)
    params = string("Further parameters, JSON", key=True)
    item_type = string("query | document | table | pair | type | language | corpus", key=True)
    item_id = string("Item", key=True)
    intent = string("Slice", null=True)
    language = string("Slice", null=True)
    doc_class = string("Slice", null=True)
    answerable = boolean("Slice", null=True)
    tags = strings("Slice", null=True)
    split = string("Split of the query", null=True)
    value = number("Value; NULL where it cannot be measured", null=True)
    status = string("scored, a failure that scores 0 (missing_run, timeout…), or why there is no value (no_gold…)")
    weight = number("Weight in micro aggregates")
    numerator = number("Numerator, where the value is a ratio of counts", null=True)
    denominator = number("Denominator, where the value is a ratio of counts", null=True)
    low = number("Lower band over orders that ties allow", null=True)
    high = number("Upper band over orders that ties allow", null=True)


ROW = {
    name: dtype
    for name, dtype in polars_schema(Measurements).items()
    if name
    not in {
        "corpus_version",
        "pipeline",
        "evaluation_id",
        "stage",
        "intent",
        "language",
        "doc_class",
        "answerable",
        "tags",
        "split",
    }
}
"""What a room's `measure` returns; identity and slices are joined on by the graph's runner."""

DEFAULTS: dict[str, Any] = {"retriever": "", "unit": "", "k": 0, "params": "{}", "status": "scored", "weight": 1.0}


def measurement(metric: str, item_type: str, item_id: str, value: float | None, **fields: Any) -> dict[str, Any]:
    """One row. `params` may be a dict. A NULL value needs a `status` that says why.

    Raises:
        ValueError: the value is NULL and no status was given, or a field is unknown.
    """
    row = {**DEFAULTS, "metric": metric, "item_type": item_type, "item_id": item_id, "value": value, **fields}
    if unknown := set(row) - set(ROW):
        raise ValueError(f"measurement {metric}: unknown fields {sorted(unknown)}")
    if value is None and row["status"] == "scored":
        raise ValueError(f"measurement {metric} of {item_id}: a NULL value needs a status that says why")
    if not isinstance(row["params"], str):
        row["params"] = json.dumps(row["params"], sort_keys=True)
    return row


def table_item(doc_id: str, number: int | None) -> str:
    """Item id of a reference table: its document and its number from 0; `-` where a document has none."""
    return f"{doc_id}#{'-' if number is None else number}"


def document_of_table(item_id: pl.Expr) -> pl.Expr:
    """The document of a table's item id."""
    return item_id.str.replace(r"#[^#]*\z", "")


def measurements(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows of `measurement` as a frame with the columns of `ROW`."""
    complete = [{name: row.get(name) for name in ROW} for row in rows]
    return pl.DataFrame(complete, schema=ROW, orient="row")
