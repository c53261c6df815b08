"""Append-only memo: what a stage computed for a key, kept as bytes, so that it is not computed again.

One entry a key. Files are written to a temporary name and renamed, batch by batch, so a killed stage resumes. What a key
is made of belongs to the caller; a fingerprint names the code and config that computed the value.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

MERGE_ABOVE = 8
_SCHEMA = {"key": pl.String, "payload": pl.Binary}


def digest(value: Any) -> str:
    """A short stable hash of anything JSON can say; 32 hex digits of sha256."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Memo:
    """Key → bytes by stage and fingerprint, below one local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get_many(self, stage: str, fingerprint: str, keys: Sequence[str]) -> dict[str, bytes]:
        """The entries that are there."""
        for _ in range(5):
            files = self._files(stage, fingerprint)
            if not files or not keys:
                return {}
            try:
                found = pl.scan_parquet(files).filter(pl.col("key").is_in(list(set(keys)))).unique("key").collect()
            except FileNotFoundError:  # another process merged the files meanwhile: look again
                continue
            return dict(found.iter_rows())
        raise RuntimeError(f"memo of {stage} at {self.root} keeps changing; is another process merging it in a loop?")

    def put_many(self, stage: str, fingerprint: str, entries: Mapping[str, bytes]) -> None:
        """Add entries; visible to others at once, or not at all."""
        if entries:
            frame = pl.DataFrame({"key": list(entries), "payload": list(entries.values())}, schema=_SCHEMA)
            self._write(stage, fingerprint, frame.sort("key"))

    def merge(self, stage: str, fingerprint: str) -> None:
        """Join small files into one, once there are many."""
        files = self._files(stage, fingerprint)
        if len(files) <= MERGE_ABOVE:
            return
        try:
            frame = pl.read_parquet(files).unique("key").sort("key")
        except FileNotFoundError:  # another process merges it: nothing left to do here
            return
        merged = self._write(stage, fingerprint, frame)
        for file in files:
            if file != merged:
                file.unlink(missing_ok=True)

    def _folder(self, stage: str, fingerprint: str) -> Path:
        return self.root / stage / fingerprint

    def _files(self, stage: str, fingerprint: str) -> list[Path]:
        return sorted(self._folder(stage, fingerprint).glob("[!.]*.parquet"))

    def _write(self, stage: str, fingerprint: str, frame: pl.DataFrame) -> Path:
        folder = self._folder(stage, fingerprint)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{digest(frame['key'].to_list())}.parquet"
        temporary = folder / f".{uuid.uuid4().hex}.tmp"
        frame.write_parquet(temporary, compression="zstd")
        temporary.replace(target)
        return target
