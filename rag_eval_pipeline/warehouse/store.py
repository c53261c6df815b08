"""Immutable Parquet store: a table of a subject under the id of what it was computed from.

`<root>/<table>/corpus_version=<subject>/<kind>=<id>/part-<content hash>.parquet`, written to a temporary name and renamed:
no locks, and parallel runs, processes and machines don't collide. Which id a table has belongs to the planner.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fsspec
import polars as pl

from rag_eval_pipeline.engine.kills import reached
from rag_eval_pipeline.warehouse.table import Table, conform, name_of, volatile_columns

IdKind = Literal["pipeline_id", "evaluation_id", "comparison_id"]


class NotReproducibleError(RuntimeError):
    """One id has two contents."""


@dataclass(frozen=True)
class Stored:
    """A table as it lies in the store."""

    table: str
    path: str
    content_hash: str
    rows: int


class Store:
    """Tables below a local folder or any fsspec URL."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self.fs, self._base = fsspec.core.url_to_fs(self.root)
        self._local = isinstance(self.fs, fsspec.implementations.local.LocalFileSystem)

    def write(
        self, schema: type[Table], frame: pl.DataFrame, subject: str, id_: str, kind: IdKind = "pipeline_id"
    ) -> Stored:
        """Validate and write; the same content again is a no-op.

        Raises:
            NotReproducibleError: another content is already stored under this id; both files are named.
            TableError: the frame does not match its declaration.
        """
        frame = conform(schema, frame)
        data = _parquet(frame)
        volatile = volatile_columns(schema)
        content = hashlib.sha256(_parquet(frame.drop(volatile)) if volatile else data).hexdigest()[:16]
        folder = self._folder(name_of(schema), subject, id_, kind)
        path = f"{folder}/part-{content}.parquet"
        present = self._parts(folder)
        if others := [part for part in present if part != path]:
            raise NotReproducibleError(
                f"{name_of(schema)} of {subject} was computed twice under {kind} {id_} with different content: "
                f"{others[0]} and now part-{content}.parquet. This stage isn't reproducible on this machine: fix its seed, "
                "threads or order; or, if a library changed without its version, remove the folder and run again."
            )
        if not present:
            self._put(path, data, name_of(schema))
        return Stored(name_of(schema), path, content, frame.height)

    def find(self, table: str, subject: str, id_: str, kind: IdKind = "pipeline_id") -> Stored | None:
        """The stored table, or None.

        Raises:
            NotReproducibleError: two contents lie under the id.
        """
        parts = self._parts(self._folder(table, subject, id_, kind))
        if not parts:
            return None
        if len(parts) > 1:
            raise NotReproducibleError(
                f"{table} of {subject} has two contents under {kind} {id_}: {parts[0]} and {parts[1]}"
            )
        content = parts[0].rsplit("part-", 1)[1].removesuffix(".parquet")
        return Stored(table, parts[0], content, self._rows(parts[0]))

    def read(self, stored: Stored) -> pl.DataFrame:
        """The table's rows."""
        if self._local:
            return pl.read_parquet(stored.path, hive_partitioning=False)
        return pl.read_parquet(io.BytesIO(self.fs.cat_file(stored.path)))

    def url(self, stored: Stored) -> str:
        """Path relative to the store's root, for metadata."""
        return stored.path.removeprefix(self._base).lstrip("/")

    def path_of(self, url: str) -> str:
        """The opposite of `url`."""
        return f"{self._base}/{url}"

    def _folder(self, table: str, subject: str, id_: str, kind: IdKind) -> str:
        return f"{self._base}/{table}/corpus_version={subject}/{kind}={id_}"

    def _parts(self, folder: str) -> list[str]:
        if self._local:
            path = Path(folder)
            return sorted(str(p) for p in path.glob("part-*.parquet")) if path.is_dir() else []
        self.fs.invalidate_cache(folder)
        return sorted(self.fs.glob(f"{folder}/part-*.parquet"))

    def _rows(self, path: str) -> int:
        source = path if self._local else io.BytesIO(self.fs.cat_file(path))
        return int(pl.scan_parquet(source, hive_partitioning=False).select(pl.len()).collect().item())

    def _put(self, path: str, data: bytes, table: str) -> None:
        if not self._local:  # object stores put a whole object or nothing
            self.fs.pipe_file(path, data)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{uuid.uuid4().hex}.tmp"
        temporary.write_bytes(data)
        reached(f"{table}:temporary")
        temporary.replace(target)


def _parquet(frame: pl.DataFrame) -> bytes:
    """Bytes with pinned options, so that equal frames are equal files."""
    buffer = io.BytesIO()
    frame.rechunk().write_parquet(
        buffer,
        compression="zstd",
        compression_level=3,
        statistics=False,
        row_group_size=262_144,
        data_page_size=1 << 20,
    )
    return buffer.getvalue()
