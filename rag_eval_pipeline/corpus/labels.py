"""Load gold files: shared labels, then the version's own over them, item by item; qrels in TREC and BEIR form.

Whether labels fit documents and each other is decided in `checks`; a line's own fields in `lines`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.faults import Faults, suggestion
from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.corpus.jsonl import describe, objects, parse, raw_lines
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.lines import GOLD_LINES, Line

QRELS = {"qrels": ("query_id", "doc_id"), "chunk_qrels": ("query_id", "chunk_id", "chunking")}
"""Tab-separated files and the columns that name an item."""
KNOWN = frozenset(
    {*(f"{name}.jsonl" for name in GOLD_LINES), *(f"{name}.tsv" for name in QRELS), "transcripts", "tables"}
)
HEADS = {
    "query-id": "query_id", "query_id": "query_id", "qid": "query_id", "corpus-id": "doc_id", "doc_id": "doc_id",
    "docid": "doc_id", "chunk_id": "chunk_id", "score": "grade", "grade": "grade", "rel": "grade", "relevance": "grade",
    "chunking": "chunking", "iteration": "iteration", "iter": "iteration",
}  # fmt: skip
"""Names that a header may give its columns."""

WHOLE = re.compile(r"[+-]?[0-9]{1,20}")

Place = tuple[str, int]
"""File and line of a row."""


@dataclass
class Labels:
    """Rows of one gold file after override and deletion, each with its place."""

    name: str
    rows: dict[tuple, dict[str, Any]] = field(default_factory=dict)
    places: dict[tuple, Place] = field(default_factory=dict)
    deleted: set[tuple] = field(default_factory=set)
    present: bool = False

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Place]]:
        for key, row in self.rows.items():
            yield row, self.places[key]

    def drop(self, keys: Iterable[tuple]) -> None:
        """Take items out."""
        for key in keys:
            del self.rows[key], self.places[key]

    def frame(self) -> pl.DataFrame:
        """The rows with the columns of `SCHEMAS`, in the order of their keys."""
        schema = SCHEMAS[self.name]
        ordered = [self.rows[key] for key in sorted(self.rows, key=_order)]
        columns = {name: [row.get(name) for row in ordered] for name in schema}
        return pl.DataFrame(columns, schema=schema)


def _order(key: tuple) -> tuple:
    return tuple((part is not None, part if part is not None else "") for part in key)


def load_labels(layout: Layout, faults: Faults) -> dict[str, Labels]:
    """All gold tables but transcripts and reference tables, by name."""
    loaded = {name: Labels(name) for name in [*GOLD_LINES, *QRELS]}
    for own, folder in enumerate(layout.golds):
        if not folder.is_dir():
            if folder.exists() or folder.is_symlink():
                faults.add(layout.name(folder), None, "", "no folder", "a folder", "remove it, or make it a folder")
            continue
        if not layout.stays(folder):
            faults.add(layout.name(folder), None, "", "a link that leaves the corpus", "a folder of the corpus")
            continue
        for path in sorted(folder.iterdir()):
            _load_file(layout, path, bool(own), loaded, faults)
    _cascade(loaded, layout.name(layout.golds[0]) + "/")
    return loaded


def _load_file(layout: Layout, path: Path, own: bool, loaded: Mapping[str, Labels], faults: Faults) -> None:
    file = layout.name(path)
    if path.name not in KNOWN:
        if not path.name.startswith("."):
            faults.warn(
                file, None, "", "an unknown gold file", "a known one", f"it is ignored; {suggestion(path.name, KNOWN)}"
            )
        return
    if path.name in {"transcripts", "tables"}:
        return  # `references` reads them.
    if not layout.stays(path):
        faults.add(file, None, "", "a link that leaves the corpus", "a file of the corpus", "copy it into the corpus")
    elif not path.is_file():
        faults.add(file, None, "", "no file", "a file", "remove it")
    elif path.suffix == ".tsv":
        _overlay(loaded[path.stem], _qrels(path, file, path.stem, faults), file, faults)
    else:
        _overlay(loaded[path.stem], _lines(path, file, loaded[path.stem], own, faults), file, faults)


def _overlay(labels: Labels, rows: Iterable[tuple[tuple, dict[str, Any], int]], file: str, faults: Faults) -> None:
    """Lay one file's rows over those before; a key twice in one file is a fault."""
    labels.present = True
    for key, row, number in rows:
        before = labels.places.get(key)
        if before is not None and before[0] == file:
            faults.add(
                file, number, ", ".join(part for part in _key_fields(labels.name)), f"the item of line {before[1]}",
                "each item once", "remove one of the two lines",
            )  # fmt: skip
            continue
        labels.rows[key] = row
        labels.places[key] = file, number


def _key_fields(name: str) -> tuple[str, ...]:
    return QRELS[name] if name in QRELS else GOLD_LINES[name].KEY


def _lines(
    path: Path, file: str, labels: Labels, own: bool, faults: Faults
) -> Iterator[tuple[tuple, dict[str, Any], int]]:
    model = GOLD_LINES[labels.name]
    for number, value in objects(path, file, faults):
        if value.get("delete") is True:
            _delete(labels, value, file, number, own, faults)
        elif (line := parse(model, value, file, number, faults)) is not None:
            row = line.model_dump()
            if row.get("filter") is not None:
                row["filter"] = json.dumps(row["filter"], sort_keys=True, ensure_ascii=False)
            yield key_of(model, row), row, number


def key_of(model: type[Line], row: Mapping[str, Any]) -> tuple:
    """What names an item; a pair of duplicates has no order."""
    key = tuple(row[name] for name in model.KEY)
    return tuple(sorted(key)) if model.KEY == ("doc_a", "doc_b") else key


def _delete(labels: Labels, value: dict[str, Any], file: str, number: int, own: bool, faults: Faults) -> None:
    """`{"id": …, "delete": true}`: the id as text, a list where a key has several fields, or those fields by name."""
    model = GOLD_LINES[labels.name]
    fields = model.KEY
    if not own:
        faults.add(
            file, number, "delete", "a deletion in shared gold", "deletions in <version>/gold", "remove the line itself"
        )
        return
    if unknown := sorted(set(value) - {"id", "delete", *fields}):
        faults.add(
            file, number, unknown[0], "an unknown field", "id and delete", suggestion(unknown[0], ["id", *fields])
        )
        return
    given = value.get("id", [value.get(name) for name in fields])
    parts = given if isinstance(given, list) else [given]
    optional = {"annotator"}
    wrong = len(parts) != len(fields) or any(
        not isinstance(part, str | int) and (part is not None or name not in optional)
        for part, name in zip(parts, fields, strict=False)
    )
    if wrong:
        form = fields[0] if len(fields) == 1 else f"[{', '.join(fields)}]"
        faults.add(file, number, "id", describe(given), f"the id as {form}")
        return
    named = [unicodedata.normalize("NFC", part) if isinstance(part, str) else part for part in parts]
    key = key_of(model, dict(zip(fields, named, strict=True)))
    if key not in labels.rows or labels.places[key][0] == file:
        faults.add(
            file, number, "id", "an item that shared gold has not", "an item of the shared file", "remove the line"
        )
        return
    labels.drop([key])
    labels.deleted.add(key)


def _cascade(loaded: Mapping[str, Labels], shared: str) -> None:
    """Shared labels of a deleted query go with it; the version's own then name no query, which is a fault."""
    gone = {key[0] for key in loaded["queries"].deleted} - {key[0] for key in loaded["queries"].rows}
    if gone:
        for name in ("evidence", "qrels", "chunk_qrels", "claims", "answers_gold"):
            labels = loaded[name]
            labels.drop([key for key, (file, _) in labels.places.items() if key[0] in gone and file.startswith(shared)])


def _qrels(path: Path, file: str, name: str, faults: Faults) -> Iterator[tuple[tuple, dict[str, Any], int]]:
    """Rows of a judgment file: TREC's four columns, or three (chunk_qrels: four) under a header."""
    yield from _judgments(raw_lines(path, file, faults), file, name, faults)


def _judgments(
    lines: Iterable[tuple[int, str]], file: str, name: str, faults: Faults
) -> Iterator[tuple[tuple, dict[str, Any], int]]:
    columns: tuple[str, ...] | None = None
    for place, (number, text) in enumerate(lines):
        cells = split_columns(text)
        if place == 0 and (columns := _header(cells)) is not None:
            if missing := [field for field in (*QRELS[name][:2], "grade") if field not in columns]:
                found = f"a header of {', '.join(columns)}"
                faults.add(file, number, missing[0], found, "it is required", "name the column")
                return
        elif (row := _judgment(cells, columns, file, number, name, faults)) is not None:
            yield tuple(row[field] for field in QRELS[name]), row, number


def _judgment(
    cells: list[str], columns: tuple[str, ...] | None, file: str, number: int, name: str, faults: Faults
) -> dict[str, Any] | None:
    """One line under its header's columns, or by their number where it has none; None, with a fault, where it is none."""
    layout = columns or _columns(name, len(cells))
    if layout is None or len(cells) != len(layout):
        wanted = f"{len(columns) if columns else '3 (query, document, grade) or 4 (TREC)'} columns"
        faults.add(file, number, "", f"{len(cells)} columns", wanted, "separate them by tabs where an id holds a space")
        return None
    row: dict[str, Any] = dict(zip(layout, (unicodedata.normalize("NFC", cell) for cell in cells), strict=True))
    row.pop("iteration", None)
    for column in QRELS[name][:2]:
        if not row[column]:
            faults.add(file, number, column, "an empty cell", "an id")
            return None
        if any(ord(c) < 32 or ord(c) == 127 for c in row[column]):
            faults.add(file, number, column, "an id with control characters", "an id without")
            return None
    if not WHOLE.fullmatch(row["grade"]):
        faults.add(file, number, "grade", describe(row["grade"]), "a whole number", "such as 0, 1 or 2")
        return None
    row["grade"] = int(row["grade"])
    if abs(row["grade"]) > 2**31:
        faults.add(file, number, "grade", "a number out of range", "a small whole number")
        return None
    if name == "chunk_qrels":
        row["chunking"] = row.get("chunking") or None
    return row


def split_columns(text: str) -> list[str]:
    """Cells of a line: by tabs where that gives at least three, else by white space."""
    if text.count("\t") >= 2:
        return [cell.strip() for cell in text.split("\t")]
    return text.split()


def _header(cells: list[str]) -> tuple[str, ...] | None:
    names = [cell.strip().lower() for cell in cells]
    if "grade" not in (known := [HEADS.get(name, name) for name in names]) and "query_id" not in known:
        return None
    return tuple(known)


def _columns(name: str, count: int) -> tuple[str, ...] | None:
    if name == "chunk_qrels":
        return {3: ("query_id", "chunk_id", "grade"), 4: ("query_id", "chunk_id", "grade", "chunking")}.get(count)
    return {3: ("query_id", "doc_id", "grade"), 4: ("query_id", "iteration", "doc_id", "grade")}.get(count)
