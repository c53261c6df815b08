"""Where documents should have been cut: beside their evidence, never through it. How texts are cut is `splitters`'s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.evidence import UNIT, unit_needs
from rag_eval_pipeline.stages.chunking.evidence import trace
from rag_eval_pipeline.stages.chunking.languages import of_sections
from rag_eval_pipeline.stages.chunking.splitters import Outline, Source, Span
from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.stages.chunking.transform import ChunkingConfig, documents_of, read, row_of, trimmed
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.table import conform

Frames = Mapping[str, pl.DataFrame]
Row = dict[str, Any]


def repair(before: Frames, after: Frames, truth: Truth, config: ChunkingConfig) -> dict[str, pl.DataFrame]:
    """Chunks that cut no unit in two, where it fits into one.

    Units that overlap in the masked text are one block. A block longer than the size stays as it is. A block that no chunk
    has whole, with a unit that no chunk holds alone, moves the cut to its nearer edge that keeps the chunk which grows
    within the size; where neither does, it becomes a chunk of its own. Chunks that lie inside it go; where lists from
    outside may name them, they stay. Chunks that overlap at the cut need not both move: one of them grows.

    No other chunk changes, and ids stay: a chunk of its own is called after its neighbour. Chunks without a place are left
    alone, and so are units that the masked text does not hold, that no chunk has any part of, or that are longer than the
    size by themselves.

    Args:
        before: `masked`, `cleaned`, `blocks`, `languages`, `section_languages`.
        after: `chunks`.
        truth: units and their anchors in the masked text; `settings.pipeline` says whether lists come from outside.
        config: size and what it counts.
    """
    chunks = after["chunks"]
    ranges = _ranges(truth, chunks)
    torn = ranges.filter(~pl.col("alone"))["doc_id"].unique()
    if torn.is_empty():
        return dict(after)
    keep, taken = _named_outside(truth, config), set(chunks["chunk_id"])
    items = documents_of(before).filter(pl.col("doc_id").is_in(torn.implode()))
    made: dict[str, list[Row]] = {}
    for item in items.iter_rows(named=True):
        doc_id = item["doc_id"]
        own = chunks.filter(pl.col("doc_id") == doc_id).sort("ordinal", "chunk_id").to_dicts()
        document = _Document(item, own, config, keep)
        units = ranges.filter(pl.col("doc_id") == doc_id)
        if document.cut_anew(list(units.select("low", "high", "alone").iter_rows())):
            made[doc_id] = document.rows(taken)
    if not made:
        return dict(after)
    others = chunks.filter(~pl.col("doc_id").is_in(list(made)))
    changed = of_sections(conform(Chunks, [row for rows in made.values() for row in rows]), before)
    return {**after, "chunks": conform(Chunks, pl.concat([others, changed]))}


def _ranges(truth: Truth, chunks: pl.DataFrame) -> pl.DataFrame:
    """doc_id, low, high: where the masked text holds an eligible unit; `alone` if some chunk alone holds it somewhere."""
    units = truth.units.filter("eligible", pl.col("kind") == "quote")
    needs = unit_needs(units, truth.settings.ledger.hold)
    tokens = units.select(*UNIT, pl.col("critical_from").alias("token_from"), pl.col("critical_to").alias("token_to"))
    carriers = (
        truth.anchors.filter(pl.col("layer") == "masked", "present", "kept", "held")
        .select(*UNIT, "carrier", "doc_id", "present", "kept", "positions")
        .join(needs, on=UNIT)
        .join(tokens, on=UNIT)
        .with_columns(token_ok=pl.lit(True).repeat_by(pl.col("token_from").list.len()))
        .sort(*UNIT, "carrier")
    )
    pieces = trace(carriers, {}, {"chunks": chunks}, truth.settings.ledger)
    alone = pieces.filter("whole").select(UNIT).unique().with_columns(alone=pl.lit(True))
    there = pl.col("positions").list.eval(pl.element().filter(pl.element() >= 0))
    return carriers.join(alone, on=UNIT, how="left", maintain_order="left").select(
        "doc_id", low=there.list.min(), high=there.list.max() + 1, alone=pl.col("alone").fill_null(False)
    )


def _named_outside(truth: Truth, config: ChunkingConfig) -> bool:
    """Whether lists from outside may name these chunks: then none may go, or they could not be read any more."""
    pipeline = truth.settings.pipeline
    lanes = (pipeline.get("retrieval") or {}).values()
    imported = any(isinstance(lane, Mapping) and lane.get("kind") == "import" for lane in lanes)
    return bool(config.imported) or imported or (pipeline.get("reranking") or {}).get("reranker") == "import"


@dataclass(eq=False)
class _Chunk:
    """A chunk's range while it is cut anew; `row` is None for one that was not there before."""

    start: int
    end: int
    order: float
    row: Row | None

    @property
    def moved(self) -> bool:
        return self.row is None or (self.start, self.end) != (self.row["start"], self.row["end"])


@dataclass
class _Document:
    """One document's chunks, and the moves that keep its blocks whole."""

    item: Row
    given: Sequence[Row]
    config: ChunkingConfig
    keep: bool
    chunks: list[_Chunk] = field(init=False)
    source: Source = field(init=False)
    outline: Outline = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.outline = read(self.item, self.config)
        self.chunks = [
            _Chunk(row["start"], row["end"], float(place), row)
            for place, row in enumerate(self.given)
            if row["start"] is not None and row["end"] is not None
        ]

    def cut_anew(self, units: Sequence[tuple[int, int, bool]]) -> bool:
        """Move cuts out of all blocks, in the text's order; says whether anything changed."""
        changed = False
        for low, high in self._blocks(units):
            touching = [chunk for chunk in self.chunks if chunk.start < high and low < chunk.end]
            # What no chunk has any part of was dropped, not cut: there is no cut to move.
            if touching and not any(chunk.start <= low and high <= chunk.end for chunk in touching):
                self._make_whole(low, high)
                changed = True
        return changed

    def _fits(self, low: int, high: int) -> bool:
        return self.source.count(low, high) <= self.config.size

    def _blocks(self, units: Sequence[tuple[int, int, bool]]) -> Iterator[Span]:
        """Overlapping units as one, those with a unit that no chunk holds alone and short enough for a chunk."""
        blocks: list[tuple[int, int, bool]] = []
        for low, high, alone in sorted(units):
            if not self._fits(low, high):
                continue
            if blocks and low < blocks[-1][1]:
                first, last, whole = blocks[-1]
                blocks[-1] = (first, max(last, high), whole and alone)
            else:
                blocks.append((low, high, alone))
        return ((low, high) for low, high, alone in blocks if not alone and self._fits(low, high))

    def _make_whole(self, low: int, high: int) -> None:
        left = max(
            (c for c in self.chunks if c.start <= low < c.end), key=lambda c: (c.end, c.start, -c.order), default=None
        )
        right = min(
            (c for c in self.chunks if c.start < high <= c.end), key=lambda c: (c.start, c.end, c.order), default=None
        )
        # Where the two overlap no text is lost if only one moves, and fewer chunks change.
        apart = left is None or right is None or left.end <= right.start
        ways = []
        if right is not None and self._fits(low, right.end):
            ways.append((right.start - low, 0))
        if left is not None and self._fits(left.start, high):
            ways.append((high - left.end, 1))
        way = min(ways)[1] if ways else 2
        if way == 0 and right is not None:
            right.start, holder = low, right
        elif way == 1 and left is not None:
            left.end, holder = high, left
        else:
            holder = _Chunk(low, high, self._order(low, left, right), None)
            self.chunks.append(holder)
        if apart and way != 1 and left is not None:
            self._shrink(left, left.start, low)
        if apart and way != 0 and right is not None:
            self._shrink(right, high, right.end)
        if not self.keep:
            self.chunks = [c for c in self.chunks if c is holder or c.start < low or c.end > high]

    def _shrink(self, chunk: _Chunk, start: int, end: int) -> None:
        low, high = trimmed(self.item["text"], start, end)
        if low < high:
            chunk.start, chunk.end = low, high
        elif not self.keep:
            self.chunks.remove(chunk)

    def _order(self, low: int, left: _Chunk | None, right: _Chunk | None) -> float:
        """Behind the chunk before it, in front of the one after it."""
        if left is not None:
            return left.order + 0.5
        if right is not None:
            return right.order - 0.5
        return max((chunk.order for chunk in self.chunks if chunk.start < low), default=-1.0) + 0.5

    def rows(self, taken: set[str]) -> list[Row]:
        """The document's rows of `chunks`. Ids of new chunks are added to `taken`."""
        rows = [
            (float(place), row) for place, row in enumerate(self.given) if row["start"] is None or row["end"] is None
        ]
        rows += [(chunk.order, self._row(chunk, taken)) for chunk in sorted(self.chunks, key=lambda c: c.order)]
        return [row | {"ordinal": ordinal} for ordinal, (_, row) in enumerate(sorted(rows, key=lambda pair: pair[0]))]

    def _row(self, chunk: _Chunk, taken: set[str]) -> Row:
        if chunk.row is not None and not chunk.moved:
            return chunk.row
        text = self.item["text"][chunk.start : chunk.end]
        fresh = row_of(text, chunk.start, chunk.end, self.source, self.outline)
        if chunk.row is not None:
            return chunk.row | fresh
        return fresh | {
            "chunk_id": self._new_id(chunk, taken),
            "doc_id": self.item["doc_id"],
            "prefix": "",
            "language": self.item["language"],
        }

    def _new_id(self, chunk: _Chunk, taken: set[str]) -> str:
        """That of the chunk before it, marked; no id that there is already."""
        earlier = [row["chunk_id"] for place, row in enumerate(self.given) if place < chunk.order]
        name = earlier[-1] if earlier else f"{self.item['doc_id']}::"
        while (name := f"{name}+") in taken:
            pass
        taken.add(name)
        return name
