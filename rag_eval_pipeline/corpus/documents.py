"""The documents of a version: files below documents/, and documents.jsonl laid over them.

What a document says belongs in `references` (gold side) and in the parsing room.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.jsonl import objects, parse
from rag_eval_pipeline.corpus.layout import Layout, unsafe_id, walk
from rag_eval_pipeline.corpus.lines import DocumentLine

FILES: dict[str, pl.DataType | type[pl.DataType]] = {
    "doc_id": pl.String, "path": pl.String, "doc_class": pl.String, "language": pl.String, "locale": pl.String,
    "title": pl.String, "tenant": pl.String, "acl": pl.List(pl.String), "published_at": pl.String,
    "committed_at": pl.String, "supersedes": pl.String, "metadata": pl.String, "bytes": pl.Int64,
    "content_hash": pl.String,
}  # fmt: skip
"""Columns of `CorpusVersion.files`: those of the `documents` table that are known before a file is read."""

Hasher = Callable[[Path], str]


def same(name: str) -> str:
    """What two ids must not share: NFC, then casefold (file systems differ in both)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def load_documents(layout: Layout, hasher: Hasher, faults: Faults) -> pl.DataFrame:
    """The version's documents, sorted by doc_id, with all that documents.jsonl says of them."""
    found = _scan(layout, faults)
    listed = _documents_jsonl(layout, found, faults)
    rows: list[dict[str, Any]] = []
    places: dict[str, tuple[str, int | None]] = {}
    folder = layout.documents
    # Not validated: a file's name is no line of documents.jsonl, and `unsafe_id` says what is wrong with it. One for all files:
    # pydantic works out the defaults anew each time, which is most of the time that 100,000 files take.
    unlisted = DocumentLine.model_construct(doc_id="")
    for name, raw in found.items():
        line, number = listed.get(name, (unlisted, None))
        doc_id = unicodedata.normalize("NFC", name if line is unlisted else line.doc_id)
        if problem := unsafe_id(doc_id):
            file, at = _place(layout, raw, number)
            faults.add(file, at, "doc_id", problem, "segments joined by '/', no '..'", "give it another doc_id")
            continue
        first = places.setdefault(same(doc_id), (raw, number))
        if first != (raw, number):
            file, at = _place(layout, raw, number)
            other = ":".join(str(part) for part in _place(layout, *first) if part is not None)
            found_id = f"the doc_id of {other} (after NFC and casefold)"
            faults.add(file, at, "doc_id", found_id, "a doc_id of its own", "rename one of them")
            continue
        path = folder / raw
        try:
            size, content = path.stat().st_size, hasher(path)
        except OSError as error:
            faults.unreadable(layout.name(path), error)
            continue
        rows.append(
            {
                **line.model_dump(exclude={"doc_id", "path", "metadata"}),
                "doc_id": doc_id,
                "path": raw,
                "metadata": json.dumps(line.metadata, sort_keys=True, ensure_ascii=False),
                "bytes": size,
                "content_hash": content,
            }
        )
    return pl.DataFrame(rows, schema=FILES, orient="row").sort("doc_id")


def _place(layout: Layout, raw: str, number: int | None) -> tuple[str, int | None]:
    """Where a document's id was given: its line in documents.jsonl, else the file itself."""
    path = layout.version / "documents.jsonl" if number is not None else layout.documents / raw
    return layout.name(path), number


def _scan(layout: Layout, faults: Faults) -> dict[str, str]:
    """Paths below documents/ as they are on disk, by their NFC form."""
    folder = layout.documents
    if not folder.is_dir():
        faults.add(layout.name(folder), None, "", "no such folder", "the version's documents", "put the files there")
        return {}
    found: dict[str, str] = {}
    before = len(faults.errors)
    for name, path in walk(layout, folder, faults):
        nfc = unicodedata.normalize("NFC", name)
        if nfc in found:
            faults.add(
                layout.name(path), None, "", "a path equal to another after NFC", "a path of its own", "rename one"
            )
        found.setdefault(nfc, name)
    if not found and len(faults.errors) == before:
        faults.add(layout.name(folder), None, "", "no files", "at least one document", "put the files there")
    return found


def _documents_jsonl(layout: Layout, found: dict[str, str], faults: Faults) -> dict[str, tuple[DocumentLine, int]]:
    """Lines of documents.jsonl by NFC path."""
    path = layout.version / "documents.jsonl"
    if not path.exists() and not path.is_symlink():
        return {}
    file = layout.name(path)
    if not layout.stays(path):
        faults.add(file, None, "", "a link that leaves the corpus", "a file of the corpus", "copy it into the corpus")
        return {}
    if not path.is_file():
        faults.add(file, None, "", "no file", "a file", "remove it")
        return {}
    listed: dict[str, tuple[DocumentLine, int]] = {}
    for number, value in objects(path, file, faults):
        line = parse(DocumentLine, value, file, number, faults)
        if not isinstance(line, DocumentLine):
            continue
        field = "path" if line.path is not None else "doc_id"
        name = unicodedata.normalize("NFC", line.path if line.path is not None else line.doc_id)
        if problem := unsafe_id(name):
            faults.add(file, number, field, problem.replace("an id", "a path"), "a path below documents/, no '..'")
        elif name not in found:
            # Links that leave the corpus are reported at the link; here the line only names nothing readable.
            hint = faults.suggest(file, name, found) or "paths are relative to documents/"
            faults.add(file, number, field, "a path that is no file below documents/", "a file that is there", hint)
        elif name in listed:
            faults.add(file, number, field, f"the path of line {listed[name][1]}", "one line a document", "remove one")
        else:
            if line.supersedes == line.doc_id:
                faults.add(file, number, "supersedes", "the document itself", "another doc_id")
            listed[name] = line, number
    return listed
