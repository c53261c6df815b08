"""Blocking checks of stage tables: is every expected item there, and does the stored file match its declaration?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.table import Table, TableError, conform, name_of

SHOWN = 5


@dataclass(frozen=True)
class Outcome:
    """What a check found, and what to do where it failed."""

    passed: bool
    description: str
    found: dict[str, Any] = field(default_factory=dict)


def schema(declared: type[Table], frame: pl.DataFrame) -> Outcome:
    """The stored table has the declared columns, types, keys and no NULL where none may be."""
    try:
        conform(declared, frame)
    except TableError as error:
        return Outcome(False, f"{error}. The file was changed outside the pipeline: remove it and run again.")
    return Outcome(True, f"{frame.height} rows match the declaration of {name_of(declared)}", {"rows": frame.height})


def complete(stage: Stage, subject: Subject) -> Outcome:
    """Total accounting: the main table has exactly one row for each expected item; of several samples the first counts."""
    assert stage.expects is not None
    source, column = stage.expects
    table, _, only = source.partition(":")
    expected = subject.outside()[table] if table in subject.outside() else subject.frame(table)
    if only:
        expected = expected.filter(pl.col(only))
    found = subject.frame(stage.tables[0])
    if "sample" in found.columns:
        found = found.filter(pl.col("sample") == 1)
    if found.is_empty() and not getattr(subject.configs[stage.name], "enabled", True):
        return Outcome(True, f"stage {stage.name} is off in this pipeline, so no rows are expected", {"expected": 0})
    missing = expected.select(column).join(found.select(column), on=column, how="anti")[column].sort()
    extra = found.select(column).join(expected.select(column), on=column, how="anti")[column].sort()
    statuses = dict(found["status"].value_counts().sort("status").iter_rows()) if "status" in found.columns else {}
    numbers = {"expected": expected.height, "rows": found.height, "missing": missing.len(), "extra": extra.len()}
    numbers |= {f"status_{name}": count for name, count in statuses.items()}
    if missing.is_empty() and extra.is_empty() and found.height == expected.height:
        return Outcome(True, f"each of {expected.height} {column}s has one row", numbers)
    return Outcome(
        False,
        f"{stage.tables[0]}: {missing.len()} missing, {extra.len()} unexpected {column}s, e.g. "
        f"{[*missing[:SHOWN], *extra[:SHOWN]]}. Something was dropped in silence: the stage must give a row with a status.",
        numbers,
    )


def accounting(frame: pl.DataFrame, subject: Subject) -> Outcome:
    """Expected items = Σ over status, for every metric of a quality table that is measured by query."""
    split = subject.version.settings.evaluate.split
    expected = subject.version.gold.queries.filter(pl.col("split") == split).height
    groups = ["retriever", "metric", "unit", "k", "params"]
    counts = frame.filter(pl.col("item_type") == "query").group_by(groups).agg(
        pl.len().alias("rows"), pl.col("item_id").n_unique().alias("items")
    )  # fmt: skip
    wrong = counts.filter((pl.col("rows") != expected) | (pl.col("items") != expected)).sort(groups)
    silent = frame.filter(pl.col("value").is_null() & (pl.col("status") == "scored"))
    numbers = {
        "metrics": counts.height,
        "expected_queries": expected,
        "wrong": wrong.height,
        "silent_nulls": silent.height,
    }
    if wrong.is_empty() and silent.is_empty():
        return Outcome(True, f"every metric by query has {expected} rows, and every NULL has a reason", numbers)
    first = wrong.row(0, named=True) if wrong.height else silent.row(0, named=True)
    return Outcome(
        False,
        f"{wrong.height} metrics don't have {expected} rows, {silent.height} NULLs have no reason: {first}",
        numbers,
    )
