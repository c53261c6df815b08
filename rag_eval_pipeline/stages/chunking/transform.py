"""Cut masked documents into chunks, or place the chunks that the user's own system made. Where to cut: `splitters`.

A built-in chunk is an exact range: `chunk.text == masked.text[start:end]`. It holds no text of the pipeline's own (`prefix`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.stages.chunking import splitters
from rag_eval_pipeline.stages.chunking.languages import of_sections
from rag_eval_pipeline.stages.chunking.splitters import Block, Outline, Source, Span
from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.text.alignment import locate
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import Table, conform, integer, string, strings, table

Rows = dict[str, list[dict[str, Any]]]
MIN_SIMILARITY = 0.6
BUILT_IN: dict[str, Callable[[Source, int, int, Sequence[Block]], list[Span]]] = {
    "structural": splitters.structural,
    "recursive": splitters.recursive,
    "fixed": splitters.fixed,
    "none": splitters.whole,
}
BLOCK = pl.Struct({"kind": pl.String, "level": pl.Int64, "page": pl.Int64, "start": pl.Int64, "end": pl.Int64})
GIVEN = pl.Struct({"chunk_id": pl.String, "text": pl.String, "start": pl.Int64, "end": pl.Int64})


class Splitter(Protocol):
    """A user's own splitter, made without arguments, once a worker."""

    def split(self, text: str, blocks: list[dict[str, Any]], language: str | None) -> Sequence[Span] | Sequence[str]:
        """Chunks of a masked text: ranges (start, end) of code points, or texts, which are then found in it."""
        ...


@table("chunk_pieces", "One row a piece of a document: a chunk before it has its id. Kept in the memo.")
class Pieces(Table):
    """Payload of `one`."""

    doc_id = string("Document", key=True)
    ordinal = integer("Position in the document, from 0", key=True)
    chunk_id = string("Imported id", null=True)
    start = integer("First code point in the masked text", null=True)
    end = integer("One past the last code point", null=True)
    text = string("Text", privacy="masked")
    section = strings("Headings above it", privacy="masked")
    page = integer("Page", null=True)
    tokens = integer("Length", unit="tokens")
    status = string("ok | unplaced | error | timeout | out_of_memory | crashed")


class ChunkingConfig(BaseModel):
    """Section `chunking` of corpus.yaml.

    Attributes:
        splitter: structural, recursive, fixed, none (the whole document), or an import path of a `Splitter`.
        size: most units a chunk.
        overlap: units that neighbouring chunks may share.
        unit: what size and overlap count.
        tokenizer: of unit `tokens`.
        imported: take outputs/chunks.jsonl instead (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    splitter: str = "structural"
    size: int = Field(256, ge=1)
    overlap: int = Field(32, ge=0)
    unit: Literal["tokens", "chars", "words"] = "tokens"
    tokenizer: Literal["bundled", "words", "chars"] = "bundled"
    imported: Switch = Field(False, alias="import")

    @field_validator("splitter", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        name = "none" if value is None else value
        if name not in BUILT_IN and not is_import_path(str(name)):
            raise ValueError(
                f"unknown splitter {name!r}; use one of {', '.join(BUILT_IN)} or an import path package.module:Class"
            )
        return name

    @model_validator(mode="after")
    def _moves_on(self) -> ChunkingConfig:
        if self.overlap >= self.size:
            raise ValueError(
                f"overlap {self.overlap} must be smaller than size {self.size}, or chunks would not move on"
            )
        return self

    @property
    def counted_by(self) -> str:
        """Name of the tokenizer that sizes count with."""
        return self.tokenizer if self.unit == "tokens" else self.unit


CONFIG = ChunkingConfig


def run(frames: Mapping[str, pl.DataFrame], config: ChunkingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Chunks of every masked document.

    Raises:
        ValueError: an import that is absent, repeats an id, names unknown documents or has offsets outside of its text.
    """
    items = documents_of(frames)
    if config.imported:
        items = _with_import(items, frames)
    else:
        items = items.with_columns(pl.lit(None, pl.List(GIVEN)).alias("given"))
    reads = ["text", "masked", "clean", "blocks", "language", "given"]
    pieces = runtime.map("chunking", one, items, config, reads=reads, writes=[Pieces], failed=failed)["chunk_pieces"]
    own_id = pl.col("doc_id") + "::" + pl.col("ordinal").cast(pl.String).str.zfill(4)
    chunks = pieces.join(items.select("doc_id", "language"), on="doc_id", how="left").with_columns(
        pl.coalesce("chunk_id", own_id).alias("chunk_id"), pl.lit("").alias("prefix")
    )
    return {"chunks": conform(Chunks, of_sections(chunks, frames))}


def documents_of(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """What is known of each masked document: doc_id, text, masked and clean (offsets), blocks (parsed), language."""
    languages = frames["languages"].select("doc_id", pl.col("language").replace("und", None))
    with_text = frames["masked"].filter(pl.col("text").str.len_bytes() > 0).select("doc_id")
    return (
        frames["masked"]
        .select("doc_id", "text", pl.col("offsets").alias("masked"))
        .join(frames["cleaned"].select("doc_id", pl.col("offsets").alias("clean")), on="doc_id", how="left")
        .join(_blocks(frames["blocks"].join(with_text, on="doc_id", how="semi")), on="doc_id", how="left")
        .join(languages, on="doc_id", how="left")
        .sort("doc_id")
    )


def read(item: Mapping[str, Any], config: ChunkingConfig) -> tuple[Source, Outline]:
    """A row of `documents_of` as a text with its places to cut, and its blocks and headings."""
    mapped = splitters.map_blocks(item["blocks"] or [], OffsetMap(item["masked"] or []), OffsetMap(item["clean"] or []))
    source = Source(item["text"], get_tokenizer(config.counted_by), item["language"])
    return source, Outline(item["text"], splitters.cover(item["text"], mapped))


def _blocks(blocks: pl.DataFrame) -> pl.DataFrame:
    """All blocks of a document as one list."""
    return (
        blocks.sort("doc_id", "block")
        .group_by("doc_id", maintain_order=True)
        .agg(pl.struct("kind", "level", "page", "start", "end").alias("blocks"))
        .cast({"blocks": pl.List(BLOCK)})
    )


def _with_import(items: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    output = frames.get("output:chunks")
    if output is None:
        raise ValueError(
            "pipeline.chunking.import is set but outputs/chunks.jsonl is absent; add it or remove `import`"
        )
    if len(twice := output.filter(pl.col("chunk_id").is_duplicated())):
        raise ValueError(
            f"outputs/chunks.jsonl: chunk_id {twice['chunk_id'][0]!r} occurs more than once; ids must be unique"
        )
    if unknown := sorted(set(output["doc_id"]) - set(frames["cleaned"]["doc_id"])):
        raise ValueError(f"outputs/chunks.jsonl: {len(unknown)} documents are not in this version, first {unknown[:3]}")
    _check_offsets(output, items)
    given = output.group_by("doc_id", maintain_order=True).agg(
        pl.struct("chunk_id", "text", "start", "end").cast(GIVEN).alias("given")
    )
    # Chunks of a document that dedup removed stay in the user's index: they keep their rank and hold nothing.
    stale = given.join(items, on="doc_id", how="anti").select("doc_id", pl.lit("").alias("text"))
    return (
        pl.concat([items, stale], how="diagonal")
        .join(given, on="doc_id", how="left")
        .with_columns(pl.col("given").fill_null([]))
    )


def _check_offsets(output: pl.DataFrame, items: pl.DataFrame) -> None:
    lengths = items.select("doc_id", pl.col("text").str.len_chars().cast(pl.Int64).alias("length"))
    placed = output.join(lengths, on="doc_id").filter(pl.col("start").is_not_null() | pl.col("end").is_not_null())
    fits = (pl.col("start") >= 0) & (pl.col("end") >= pl.col("start")) & (pl.col("end") <= pl.col("length"))
    wrong = placed.filter(~fits.fill_null(value=False))
    if len(wrong):
        first = wrong.row(0, named=True)
        raise ValueError(
            f"outputs/chunks.jsonl: {len(wrong)} chunks have offsets outside of their document, first {first['chunk_id']!r} "
            f"[{first['start']}, {first['end']}) of {first['length']} code points; offsets count code points of the masked "
            "text, or leave both out and the chunk is found by alignment"
        )


def prepare(config: ChunkingConfig) -> None:
    """Load tokenizer and splitter once a worker, so that a wrong name is an error of the config and not of each document."""
    get_tokenizer(config.counted_by)
    if is_import_path(config.splitter) and not config.imported:
        _user_splitter(config.splitter)


def one(item: dict[str, Any], config: ChunkingConfig) -> Rows:
    """Chunks of one document."""
    text = item["text"]
    if item["given"] is None and not text.strip():
        return {"chunk_pieces": []}
    source, outline = read(item, config)
    if item["given"] is not None:
        return _place_all(item["given"], text, source, outline)
    if is_import_path(config.splitter):
        return _place_all(_own(config.splitter, item, outline.blocks), text, source, outline)
    ranges = BUILT_IN[config.splitter](source, config.size, config.overlap, outline.blocks)
    distinct = _distinct(trimmed(text, start, end) for start, end in ranges)
    rows = [row_of(text[start:end], start, end, source, outline) for start, end in distinct]
    return {"chunk_pieces": [{**row, "ordinal": ordinal} for ordinal, row in enumerate(rows)]}


def failed(item: dict[str, Any], status: str, error: str) -> Rows:
    """One empty chunk without a place, so that the failure has a row; it can hold no evidence."""
    row = {"ordinal": 0, "text": "", "section": [], "tokens": 0, "status": status}
    return {"chunk_pieces": [row]}


def trimmed(text: str, start: int, end: int) -> Span:
    """A range without white space at its ends; empty where it has nothing else."""
    piece = text[start:end]
    low = start + len(piece) - len(piece.lstrip())
    return low, max(low, start + len(piece.rstrip()))


def _distinct(ranges: Iterable[Span]) -> list[Span]:
    """Without empty ranges and those that, once trimmed, lie inside a neighbour."""
    found: list[Span] = []
    for start, end in ranges:
        while found and start <= found[-1][0] and end >= found[-1][1]:
            found.pop()
        if start < end and not (found and end <= found[-1][1]):
            found.append((start, end))
    return found


def row_of(text: str, start: int | None, end: int | None, source: Source, outline: Outline) -> dict[str, Any]:
    """A chunk's columns of its own, from its text and place; without a place it is `unplaced`."""
    if start is None or end is None:
        place: tuple[list[str], int | None] = ([], None)
        tokens, status = source.tokenizer.count(text), "unplaced"
    else:
        place = outline.at(start, end)
        tokens, status = source.count(start, end), "ok"
    return {
        "start": start,
        "end": end,
        "text": text,
        "section": place[0],
        "page": place[1],
        "tokens": tokens,
        "status": status,
    }


# The user's own chunks -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _user_splitter(path: str) -> Splitter:
    return load(path)()


def _own(path: str, item: dict[str, Any], blocks: Sequence[Block]) -> list[dict[str, Any]]:
    text = item["text"]
    given: list[dict[str, Any]] = []
    for piece in _user_splitter(path).split(text, [block._asdict() for block in blocks], item["language"]):
        if isinstance(piece, str):
            given.append({"chunk_id": None, "text": piece, "start": None, "end": None})
            continue
        start, end = piece
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"{path} returned range [{start}, {end}) of a text of {len(text)} code points")
        given.append({"chunk_id": None, "text": text[start:end], "start": start, "end": end})
    return given


def _place_all(given: Sequence[dict[str, Any]], text: str, source: Source, outline: Outline) -> Rows:
    """Chunks without offsets are found in the text, each after the one before it where it occurs more than once."""
    rows = []
    cursor = 0
    for ordinal, piece in enumerate(given):
        start, end = piece["start"], piece["end"]
        if start is None and text:
            start, end = _place(piece["text"], text, cursor)
        if start is not None:
            cursor = start + 1
        row = (
            row_of(piece["text"], start, end, source, outline)
            if text
            else row_of(piece["text"], None, None, source, outline)
        )
        rows.append({**row, "ordinal": ordinal, "chunk_id": piece["chunk_id"]})
    return {"chunk_pieces": rows}


def _place(piece: str, text: str, cursor: int) -> tuple[int | None, int | None]:
    if not piece.strip():
        return None, None
    for start in (text.find(piece, cursor), text.find(piece)):
        if start >= 0:
            return start, start + len(piece)
    # Reformatted text most often follows the chunk before it; only then is the whole document searched.
    for low in (cursor, 0) if cursor else (0,):
        found = locate(piece, text[low:], min_similarity=0.9 if low else MIN_SIMILARITY)
        if found:
            return found.start + low, found.end + low
    return None, None
