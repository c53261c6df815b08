"""Rows of an export, whatever file it is: JSON Lines, a JSON array or envelope, CSV, or Parquet.

What the rows mean belongs in each tool's module.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.corpus.importers.reading import json_lines
from rag_eval_pipeline.corpus.importers.writer import ImportFailedError
from rag_eval_pipeline.corpus.questions import UNCLOSED

LIMIT = 512 * 2**20
ENVELOPES = ("data", "runs", "spans", "samples", "rows", "examples", "test")


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of a file; a folder's files one after the other, sorted.

    Raises:
        ImportFailedError: it can't be read or has another form.
    """
    if path.is_dir():
        files = [
            file for file in sorted(path.iterdir()) if file.suffix in {".jsonl", ".json", ".csv", ".parquet", ".gz"}
        ]
        if not files:
            raise ImportFailedError(f"{path.name}/ holds no .jsonl, .json, .csv or .parquet file")
        for file in files:
            yield from read_rows(file)
        return
    if path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix == ".csv":
        yield from _csv(path)
    elif path.suffix in {".jsonl", ".ndjson", ".gz"}:
        yield from json_lines(path)
    elif path.suffix == ".json":
        yield from _json(path)
    else:
        raise ImportFailedError(f"{path.name}: expected .jsonl, .json, .csv or .parquet")


def _json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """An array of objects, an object with one of `ENVELOPES`, columns (`{"question": […], …}`), or JSON Lines after all."""
    if path.stat().st_size > LIMIT:
        raise ImportFailedError(
            f"{path.name}: {path.stat().st_size:,} bytes of one JSON value: write JSON Lines instead"
        )
    try:
        value = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        yield from json_lines(path)
        return
    for name in ENVELOPES:
        if isinstance(value, dict) and isinstance(value.get(name), list):
            value = value[name]
    if isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        if len({len(column) for column in value.values()}) > 1:
            raise ImportFailedError(f"{path.name}: columns of different lengths; expected one value a row in each")
        value = [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
    if isinstance(value, dict):
        value = [value]
    for number, row in enumerate(value if isinstance(value, list) else [], 1):
        if not isinstance(row, dict):
            raise ImportFailedError(f"{path.name}: item {number} is {type(row).__name__}, expected an object")
        yield f"{path.name}: item {number}", row


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    text, _ = decode(path.read_bytes())
    csv.field_size_limit(LIMIT)
    head = text.split("\n", 1)[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=head.count), strict=True)
    line = 1
    try:
        names = list(reader.fieldnames or ())
        if twice := sorted({name for name in names if name and names.count(name) > 1}):
            raise ImportFailedError(
                f"{path.name}:1: column {twice[0][:80]!r} stands twice: remove or rename one of them"
            )
        line = reader.line_num + 1
        for row in reader:
            if None in row:
                raise ImportFailedError(
                    f"{path.name}:{line}: more cells than the header has: quote cells that hold the separator"
                )
            yield f"{path.name}:{line}", {name: value or None for name, value in row.items()}
            line = reader.line_num + 1
    except csv.Error as error:
        raise ImportFailedError(f"{path.name}:{line}: a row that can't be read ({error}): {UNCLOSED}") from None


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import polars as pl

    try:
        frame = pl.scan_parquet(path).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ImportFailedError(f"{path.name}: no readable Parquet ({type(error).__name__})") from None
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        yield f"{path.name}: row {number}", row
