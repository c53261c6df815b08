"""The data dictionary: every table and column, from the declarations that also check each write. `rag-eval tables` prints it.

docs/tables.md is this page; a test holds them equal. What an analyst asks of the tables stands in docs/sql.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from rag_eval_pipeline.release.compared import COMPARED
from rag_eval_pipeline.release.evaluated import EVALUATED, kinds
from rag_eval_pipeline.release.redaction import TERMS
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.warehouse.table import Table, name_of, privacy_of

HEAD = """\
# Tables

Every table that a run writes, in pipeline order, from the declarations in code: `rag-eval tables --markdown > docs/tables.md` writes
this page. The same comments stand in the DuckDB file (`SELECT * FROM duckdb_columns()`). Questions to them: [sql.md](sql.md). What
the metrics mean: [measures.md](measures.md). Where tables lie: [architecture.md](architecture.md#store).

- Published tables carry identity before the columns below: `corpus_version` and `pipeline_id` where stages write them,
  `corpus_version`, `pipeline` and `evaluation_id` where they are an evaluation's; comparisons also `comparison_id`.
- Key columns are **bold**. `?` behind a type: may be NULL.
- Privacy: *masked* text is published through the redactor; of *source* text only length and sha256 are published (vectors and bytes
  not at all), unless `publish.source_text` says otherwise.
"""
KIND = {
    "pipeline_id": "Shared by evaluations that agree up to here.",
    "evaluation_id": "Of one evaluation.",
    "comparison_id": "Of one comparison.",
}
MEASURED = "quality tables"


def steps() -> Iterator[tuple[str, str, str, tuple[type[Table], ...]]]:
    """(group, step, what it does, tables) in pipeline order."""
    for stage in STAGES:
        yield f"{stage.phase}", stage.name, stage.description, stage.writes
    for step in EVALUATED:
        if step.room is None:
            yield "evaluation", step.name, step.description, step.writes
    for compared in COMPARED:
        yield "comparison", compared.name, compared.description, compared.writes


def rows() -> pl.DataFrame:
    """One row a column: table, column, type, nullable, key, unit, privacy, description."""
    found = [
        {"table": name_of(table), **_facts(name, column, table)}
        for table in every_table()
        for name, column in table.columns().items()
    ]
    return pl.DataFrame(found)


def every_table() -> list[type[Table]]:
    """Each table once; the quality tables, which are all alike, one after the other."""
    measured = [table for step in EVALUATED if step.room is not None for table in step.writes]
    return [table for _, _, _, tables in steps() for table in tables] + measured


def markdown() -> str:
    """The page."""
    lines, group = [HEAD], ""
    for phase, name, description, tables in steps():
        if phase != group:
            group = phase
            lines.append(f"## {phase.capitalize()}\n")
        lines.append(f"{description.splitlines()[0]} (`{name}`)\n")
        lines += [text for table in tables for text in _table(table)]
    quality = [table for step in EVALUATED if step.room is not None for table in step.writes]
    lines.append(f"## {MEASURED.capitalize()}\n")
    lines.append(
        f"{', '.join(f'`{name_of(table)}`' for table in quality)}: one row an item and metric. All have these columns.\n"
    )
    lines += _columns(quality[0])
    return "\n".join(lines).rstrip() + "\n"


def _table(table: type[Table]) -> list[str]:
    name = name_of(table)
    hidden = " Never published." if name == TERMS else ""
    return [f"### {name}\n", f"{table.description}{hidden} {KIND[kinds()[name]]}\n", *_columns(table)]  # type: ignore[attr-defined]


def _columns(table: type[Table]) -> list[str]:
    lines = ["| column | type | meaning |", "| --- | --- | --- |"]
    for name, column in table.columns().items():
        facts = _facts(name, column, table)
        shown = f"**`{name}`**" if facts["key"] else f"`{name}`"
        notes = [
            facts["unit"] or "",
            facts["privacy"] if facts["privacy"] != "none" else "",
            "not part of the content hash" if facts["volatile"] else "",
        ]
        told = "; ".join(note for note in notes if note)
        meaning = str(facts["description"]).replace("|", "\\|") + (f" ({told})" if told else "")
        lines.append(f"| {shown} | {facts['type']}{'?' if facts['nullable'] else ''} | {meaning} |")
    return [*lines, ""]


def _facts(name: str, column: Any, table: type[Table]) -> dict[str, Any]:
    metadata = column.metadata or {}
    key = name in table.primary_key()
    return {
        "column": name, "type": _type(column.dtype), "nullable": bool(column.nullable) and not key, "key": key,
        "unit": metadata.get("unit"), "privacy": privacy_of(column), "volatile": bool(metadata.get("volatile")),
        "description": column.description,
    }  # fmt: skip


def _type(dtype: Any) -> str:
    """A type as SQL people read it."""
    if isinstance(dtype, pl.List):
        return f"{_type(dtype.inner)}[]"
    if isinstance(dtype, pl.Struct):
        return "struct(" + ", ".join(field.name for field in dtype.fields) + ")"
    plain = {
        pl.String: "text",
        pl.Int64: "integer",
        pl.Float64: "number",
        pl.Float32: "float",
        pl.Boolean: "boolean",
        pl.Binary: "bytes",
    }
    return next((name for kind, name in plain.items() if dtype == kind), str(dtype).lower())
