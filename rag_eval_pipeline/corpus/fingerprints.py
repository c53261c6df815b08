"""Fingerprints of what the user handed us: documents, gold, outputs. Independent of line order and JSON formatting.

Fingerprints of code and config, and ids made of them, belong in the warehouse.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl

QUIET_NS = 2_000_000_000
"""A file changed more recently is hashed anew next time: a later write may leave size and time as they were."""


def sha256_file(path: Path) -> str:
    """sha256 of a file, streaming."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class FileHasher:
    """sha256 of files, remembered by (path, size, mtime_ns) in a cache file that the caller names. A context manager.

    Without a cache file every call reads the file.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache
        self._known: dict[str, list[Any]] = self._load()
        self._changed = False

    def _load(self) -> dict[str, list[Any]]:
        if self.cache is None or not self.cache.is_file():
            return {}
        try:
            known = json.loads(self.cache.read_text("utf-8"))
        except ValueError:
            return {}  # A torn or foreign cache is no cache: files are hashed anew, and it is written again.
        return known if isinstance(known, dict) else {}

    def __call__(self, path: Path) -> str:
        """The file's sha256."""
        stat, name = path.stat(), str(path.absolute())
        match self._known.get(name):
            case [size, mtime, str(digest)] if size == stat.st_size and mtime == stat.st_mtime_ns:
                return digest
        digest = sha256_file(path)
        if time.time_ns() - stat.st_mtime_ns > QUIET_NS:
            self._known[name] = [stat.st_size, stat.st_mtime_ns, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Write the cache beside its place and rename it there, with what other processes found meanwhile."""
        if self.cache is None or not self._changed:
            return
        self._known = {**self._load(), **self._known}
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        beside = self.cache.with_name(f"{self.cache.name}.{time.time_ns()}.tmp")
        beside.write_text(json.dumps(self._known), "utf-8")
        beside.replace(self.cache)
        self._changed = False

    def __enter__(self) -> FileHasher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.save()


def rows_hash(rows: Iterable[Any]) -> str:
    """Hash of a set of JSON-like rows, independent of their order."""
    texts = sorted(json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")) for row in rows)
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def documents_hash(files: pl.DataFrame) -> str:
    """Hash of a version's documents: ids, paths, content and all that documents.jsonl says."""
    return rows_hash(files.iter_rows(named=True))


def gold_hash(tables: Mapping[str, pl.DataFrame]) -> str:
    """Hash of gold rows by table. Empty tables don't count: an empty file says what no file says."""
    return rows_hash([name, rows_hash(frame.iter_rows())] for name, frame in tables.items() if frame.height)
