"""What an asset's page shows: numbers that plot over versions, a small table, the SQL, counts, path, column schema."""

from typing import Any

import dagster as dg
import polars as pl

from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.store import Stored
from rag_eval_pipeline.warehouse.table import Table, name_of, privacy_of

ROWS = 20


def column_schema(schema: type[Table]) -> dg.TableSchema:
    """Columns with types and meanings, from the table's declaration."""
    keys = set(schema.primary_key())
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=name,
                type=str(column.dtype),
                description=_meaning(column),
                constraints=dg.TableColumnConstraints(nullable=column.nullable, unique=keys == {name}),
            )
            for name, column in schema.columns().items()
        ]
    )


def _meaning(column: Any) -> str:
    """A column's meaning; how it is published where that is not as it is."""
    shown = {"masked": " (published masked)", "source": " (published as length and hash)"}
    return f"{column.description or ''}{shown.get(privacy_of(column), '')}"


def stored_metadata(schema: type[Table], stored: Stored, subject: Subject, reused: bool) -> dict[str, Any]:
    """Metadata of any stored table."""
    name = name_of(schema)
    return {
        "rows": stored.rows,
        "sql": dg.MetadataValue.md(f"```sql\n{query_of(name, subject)}\n```"),
        "reused": reused,
        "path": stored.path.removeprefix(str(subject.home.root)).lstrip("/"),
    }


def query_of(name: str, subject: Subject) -> str:
    """The SQL by which an analyst reads the table in the published database."""
    key = subject.key
    return f"SELECT * FROM current_{name} WHERE corpus_version = '{key.subject}' AND pipeline = '{key.pipeline}'"


def quality_metadata(frame: pl.DataFrame) -> dict[str, Any]:
    """Means by metric: one number a metric (they plot over versions), and a table of them."""
    groups = ["retriever", "metric", "unit", "k", "params"]
    means = (
        frame.group_by(groups)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.len().alias("n"),
            pl.col("value").is_not_null().sum().alias("valued"),
        )
        .sort(groups)
    )
    numbers: dict[str, Any] = {}
    for row in means.iter_rows(named=True):
        at = f"@{row['k']}" if row["k"] else ""
        parts = [row["retriever"], f"{row['metric']}{at}", row["unit"], "" if row["params"] == "{}" else row["params"]]
        if row["mean"] is not None:
            numbers[" ".join(part for part in parts if part)] = float(row["mean"])
    return {**dict(list(numbers.items())[:40]), "measures": markdown(means.head(ROWS))}


def markdown(frame: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """A small frame as a table; numbers rounded for people."""
    header = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * frame.width
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in frame.head(ROWS).iter_rows()]
    return dg.MetadataValue.md("\n".join([header, *lines]))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")
