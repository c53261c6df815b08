"""Declare a table once: columns with type, meaning, unit, key, nullability, privacy and volatility.

One declaration gives validation before each write, DuckDB column comments, Dagster's column schema and the data
dictionary. What is stored where belongs in `store`; what a table means belongs in its room's `tables.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import dataframely as dy
import polars as pl

Privacy = Literal["none", "masked", "source"]

OFFSETS_INNER = {
    "out_start": dy.Int64(nullable=False),
    "out_end": dy.Int64(nullable=False),
    "src_start": dy.Int64(nullable=False),
    "src_end": dy.Int64(nullable=False),
    "exact": dy.Bool(nullable=False),
}


class TableError(ValueError):
    """A frame does not match its table's declaration; the message names table, column and what was found."""


class Table(dy.Schema):
    """Base of every table. Subclasses set `table_name` and `description` through `@table`."""


def table(name: str, description: str) -> Any:
    """Name a table and say what one row of it is."""

    def declare(schema: type[Table]) -> type[Table]:
        schema.table_name = name  # type: ignore[attr-defined]
        schema.description = description  # type: ignore[attr-defined]
        return schema

    return declare


def _options(description: str, privacy: Privacy, unit: str | None, key: bool, null: bool, volatile: bool) -> dict:
    return {
        "primary_key": key,
        "nullable": null and not key,
        "description": description,
        "metadata": {"privacy": privacy, "unit": unit, "volatile": volatile},
    }


def string(
    description: str, *, privacy: Privacy = "none", key: bool = False, null: bool = False, volatile: bool = False
) -> dy.String:
    """A text column; `privacy` says whether it may be published as it is."""
    return dy.String(**_options(description, privacy, None, key, null, volatile))


def integer(
    description: str, *, unit: str | None = None, key: bool = False, null: bool = False, volatile: bool = False
) -> dy.Int64:
    """An Int64 column."""
    return dy.Int64(**_options(description, "none", unit, key, null, volatile))


def number(description: str, *, unit: str | None = None, null: bool = False, volatile: bool = False) -> dy.Float64:
    """A Float64 column; NaN is refused, infinity too: what cannot be measured is NULL."""
    return dy.Float64(**_options(description, "none", unit, False, null, volatile))


def boolean(description: str, *, null: bool = False) -> dy.Bool:
    """A Boolean column."""
    return dy.Bool(**_options(description, "none", None, False, null, False))


def strings(description: str, *, privacy: Privacy = "none", null: bool = False) -> dy.List:
    """A list of strings."""
    return dy.List(dy.String(nullable=False), **_options(description, privacy, None, False, null, False))


def integers(description: str, *, null: bool = False) -> dy.List:
    """A list of Int64."""
    return dy.List(dy.Int64(nullable=False), **_options(description, "none", None, False, null, False))


def vector(description: str) -> dy.List:
    """A list of Float32: an embedding. Never published."""
    return dy.List(dy.Float32(nullable=False), **_options(description, "source", None, False, False, False))


def binary(description: str) -> dy.Binary:
    """Raw bytes. Never published."""
    return dy.Binary(**_options(description, "source", None, False, False, False))


def offsets(description: str) -> dy.List:
    """Segments of an `OffsetMap`: List[Struct{out_start, out_end, src_start, src_end, exact}]."""
    return dy.List(dy.Struct(OFFSETS_INNER, nullable=False), **_options(description, "none", None, False, False, False))


def name_of(schema: type[Table]) -> str:
    """The table's name: asset key, folder in the store, and what an analyst types."""
    return schema.table_name  # type: ignore[attr-defined]


def privacy_of(column: dy.Column) -> Privacy:
    """How a column may be published: as it is, through the redactor, or as length and hash only."""
    return (column.metadata or {}).get("privacy", "none")


def volatile_columns(schema: type[Table]) -> list[str]:
    """Columns left out of the content hash: durations, time stamps, run ids."""
    return [name for name, column in _columns(schema).items() if (column.metadata or {}).get("volatile")]


def polars_schema(schema: type[Table]) -> dict[str, pl.DataType]:
    """Column name -> polars type, in declared order."""
    return {name: column.dtype for name, column in _columns(schema).items()}


@cache
def _columns(schema: type[Table]) -> dict[str, dy.Column]:
    return schema.columns()


def conform(schema: type[Table], frame: pl.DataFrame | list[dict[str, Any]]) -> pl.DataFrame:
    """Cast and validate `frame`: all declared columns, in order, missing nullable ones as NULL, sorted by key.

    Raises:
        TableError: a column is missing, unknown, of a wrong type, or a rule (null, key) is broken.
    """
    types = polars_schema(schema)
    if isinstance(frame, list):
        frame = (
            pl.DataFrame(frame, schema_overrides=types, infer_schema_length=None)
            if frame
            else pl.DataFrame(schema=types)
        )
    if unknown := sorted(set(frame.columns) - set(types)):
        raise TableError(f"{name_of(schema)}: unknown columns {unknown}; declared are {list(types)}")
    missing = [name for name in types if name not in frame.columns]
    if required := [name for name in missing if not _columns(schema)[name].nullable]:
        raise TableError(f"{name_of(schema)}: missing columns {required}; found {frame.columns}")
    frame = frame.with_columns(pl.lit(None, dtype=types[name]).alias(name) for name in missing).select(list(types))
    keys = schema.primary_key()
    if not _obeys(schema, frame):
        try:
            frame = schema.validate(frame, cast=True)
        except Exception as error:
            raise TableError(f"{name_of(schema)} (key {keys}): {error}") from error
    return frame.sort(keys) if keys else frame


def _obeys(schema: type[Table], frame: pl.DataFrame) -> bool:
    """Whether no cast is needed and no rule is broken, by whole columns.

    dataframely's validation marks every row by every rule: 10 ms even for an empty table, and a run writes many. It is asked
    only where this says no, for it casts and names what is wrong.
    """
    columns, keys = _columns(schema), schema.primary_key()
    return (
        all(frame.schema[name] == column.dtype for name, column in columns.items())
        and all(_allows(column, frame[name]) for name, column in columns.items())
        and not (keys and frame.select(keys).is_duplicated().any())
    )


def _allows(column: dy.Column, values: pl.Series) -> bool:
    """Whether all values are allowed, in lists and structs too; no for a type that this module does not make."""
    if values.null_count() and not column.nullable:
        return False
    if isinstance(column, dy.Float64 | dy.Float32):
        return bool(values.is_finite().all())
    if isinstance(column, dy.List):
        return _allows(column.inner, values.filter(values.list.len() > 0).explode())
    if isinstance(column, dy.Struct):
        return all(_allows(inner, values.struct.field(name)) for name, inner in column.inner.items())
    return isinstance(column, dy.String | dy.Int64 | dy.Bool | dy.Binary)
