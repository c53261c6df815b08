"""Which documents there are and what kind of file each is. What stands in them belongs to the parsing room."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from stat import S_ISREG

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

MEDIA = {
    "pdf": ("pdf",),
    "html": ("html", "htm", "xhtml"),
    "docx": ("docx", "docm"),
    "md": ("md", "markdown"),
    "txt": ("txt", "text", "log"),
    "csv": ("csv", "tsv"),
    "image": ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp"),
}
"""Medium -> extensions."""
BY_EXTENSION = {extension: media for media, extensions in MEDIA.items() for extension in extensions}
MAGIC = (
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"II*\0", "image"),
    (b"MM\0*", "image"),
    (b"GIF8", "image"),
    (b"PK\x03\x04", "zip"),
    (b"\xd0\xcf\x11\xe0", "ole"),
    (b"\x1f\x8b\x08", "other"),  # gzip
    (b"BZh", "other"),
    (b"\xfd7zXZ\0", "other"),
    (b"7z\xbc\xaf'\x1c", "other"),
    (b"\x28\xb5\x2f\xfd", "other"),  # zstandard
    (b"Rar!\x1a\x07", "other"),
    (b"\x7fELF", "other"),
)
HEAD = 4096
"""Bytes that are looked at."""
CLASSES = {"image": "scan"}
"""doc_class of documents without a declared one, where it is not the medium."""


class SourceConfig(BaseModel):
    """Section `source` of corpus.yaml.

    Attributes:
        max_bytes: larger files are listed as too_large and not read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    max_bytes: int = Field(200 * 2**20, gt=0)


CONFIG = SourceConfig


def run(frames: Mapping[str, pl.DataFrame], config: SourceConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """One row a file of the version, whatever its state."""
    files = frames["files"]
    looks = [
        _look(runtime.files / path, path, size, config) for path, size in files.select("path", "bytes").iter_rows()
    ]
    found = pl.DataFrame(looks, schema={"media": pl.String, "status": pl.String, "error": pl.String}, orient="row")
    documents = files.hstack(found).with_columns(
        pl.col("doc_class").fill_null(pl.col("media").replace(CLASSES)),
        pl.col("acl").fill_null(pl.lit([], dtype=pl.List(pl.String))),
        pl.col("metadata").fill_null("{}"),
    )
    return {"documents": conform(Documents, documents)}


def _look(file: Path, path: str, size: int, config: SourceConfig) -> tuple[str, str, str | None]:
    """Medium, status and error of one file; reads no more than its head."""
    try:
        if not S_ISREG(file.stat().st_mode):  # it was one when the version was read: opening a pipe would wait forever
            raise OSError(None, "no file any more")
        with file.open("rb") as stream:
            head = stream.read(HEAD)
    except OSError as error:
        extension = PurePosixPath(path).suffix.lower().lstrip(".")
        return BY_EXTENSION.get(extension, "other"), "unreadable", f"{type(error).__name__}: {error.strerror}"
    media = media_of(path, head)
    if not head:
        return media, "empty", "the file has 0 bytes"
    if size > config.max_bytes:
        return media, "too_large", f"{size} bytes; pipeline.source.max_bytes is {config.max_bytes}"
    if media == "other":
        return media, "unsupported", f"not one of the formats {', '.join(MEDIA)}; import it by outputs/parsed.jsonl"
    return media, "ok", None


def media_of(path: str, head: bytes) -> str:
    """Medium by content where that is unmistakable, else by extension, else text where it looks like text."""
    extension = BY_EXTENSION.get(PurePosixPath(path).suffix.lower().lstrip("."))
    magic = next((media for start, media in MAGIC if head.startswith(start)), None)
    if magic is None and b"%PDF-" in head[:1024] and extension in {"pdf", None}:
        magic = "pdf"  # readers accept some bytes before the mark
    if magic in {"pdf", "image", "other"}:
        return magic
    if magic in {"zip", "ole"}:  # an encrypted docx is an OLE file
        return "docx" if extension == "docx" else "other"
    if extension is not None or PurePosixPath(path).suffix:
        return extension or "other"
    if b"\0" in head:
        return "other"
    return "html" if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")) else "txt"
