"""Where to cut a text: ranges that cover it, for the built-in splitters. Tables, ids and imports belong in `transform`.

All sizes count token starts, so that the sizes of neighbouring ranges add up exactly. Every range is at most `size` long,
and together the ranges hold every character that is not white space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import regex

from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.text.tokens import Tokenizer

Span = tuple[int, int]

_PARAGRAPH = regex.compile(r"\n[^\S\n]*\n\s*")
_LINE = regex.compile(r"\n\s*")
_CLAUSE = regex.compile(r"[;:,،؛、，；：]\s*|\s[–—]\s")
_SPACE = regex.compile(r"\s+")
_HEADING = regex.compile(r"(#{1,6})\s+\S")
_HASHES = regex.compile(r"^#{1,6}\s+|\s+#+$")


class Block(NamedTuple):
    """A block of the document, as a range of the text that is cut."""

    kind: str
    level: int
    page: int | None
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """A text with its tokens and its places to cut, each found once and only if asked for."""

    text: str
    tokenizer: Tokenizer
    language: str | None = None

    @cached_property
    def starts(self) -> np.ndarray:
        """First code point of each token."""
        if self.tokenizer.name == "chars":
            return np.arange(len(self.text))
        return np.unique(np.array([start for start, _ in self.tokenizer.spans(self.text)], dtype=np.int64))

    def index(self, position: int) -> int:
        """Number of tokens that start before a position."""
        return int(np.searchsorted(self.starts, position, "left"))

    def count(self, start: int, end: int) -> int:
        """Tokens that start in a range."""
        return self.index(end) - self.index(start)

    @cached_property
    def sentence_starts(self) -> np.ndarray:
        """First code point of each sentence."""
        return np.array([start for start, _ in sentences(self.text, self.language)], dtype=np.int64)

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """Places where a piece may begin, coarse to fine: paragraphs, lines, sentences, clauses, words."""
        after = [self._after(pattern) for pattern in (_PARAGRAPH, _LINE, _CLAUSE, _SPACE)]
        return (after[0], after[1], self.sentence_starts, after[2], after[3])

    def _after(self, pattern: regex.Pattern) -> np.ndarray:
        return np.array([match.end() for match in pattern.finditer(self.text)], dtype=np.int64)

    def pieces(self, start: int, end: int, size: int, level: int = 0) -> Iterator[Span]:
        """Cut a range into pieces of at most `size`, at the coarsest places that do."""
        if self.count(start, end) <= size:
            yield start, end
        elif level == len(self.levels):
            yield from self.windows(start, end, size, size)
        else:
            for low, high in pairwise([start, *_inside(self.levels[level], start, end), end]):
                yield from self.pieces(low, high, size, level + 1)

    def windows(self, start: int, end: int, size: int, stride: int) -> Iterator[Span]:
        """Windows of `size` tokens, `stride` tokens apart, over a range; the last one ends with it."""
        first, last = self.index(start), self.index(end)
        low = start
        for place in range(first, max(last, first + 1), stride):
            if place > first:
                low = int(self.starts[place])
            if place + size >= last:
                yield low, end
                return
            yield low, int(self.starts[place + size])


def _inside(places: np.ndarray, start: int, end: int) -> list[int]:
    low, high = np.searchsorted(places, start, "right"), np.searchsorted(places, end, "left")
    return [int(place) for place in places[low:high]]


# Splitters -------------------------------------------------------------------------------------------------------------


def whole(source: Source, size: int, overlap: int, blocks: Sequence[Block]) -> list[Span]:
    """The whole document."""
    return [(0, len(source.text))]


def fixed(source: Source, size: int, overlap: int, blocks: Sequence[Block]) -> list[Span]:
    """Windows of `size` tokens that share `overlap` tokens."""
    return list(source.windows(0, len(source.text), size, size - overlap))


def recursive(source: Source, size: int, overlap: int, blocks: Sequence[Block]) -> list[Span]:
    """Pieces by a hierarchy of separators, joined up to the size."""
    units = list(source.pieces(0, len(source.text), size))
    resume = np.union1d(np.array([start for start, _ in units], dtype=np.int64), source.sentence_starts)
    return _pack(source, units, resume, size, overlap)


def structural(source: Source, size: int, overlap: int, blocks: Sequence[Block]) -> list[Span]:
    """Blocks joined up to the size; never over a heading, and inside a block only between sentences or table rows."""
    ranges: list[Span] = []
    for section in _sections(blocks):
        units: list[Span] = []
        resume: list[int] = []
        headings = 0
        for block in section:
            headings += block.kind == "heading" and len(units) == headings
            # Text that would not fit beside the headings above it is opened up, so that they don't stand alone.
            taken = source.count(section[0].start, block.start) if headings and len(units) == headings else 0
            units += _units(source, block, size, open_up=source.count(block.start, block.end) + taken > size)
            resume += _resume(source, block)
        ranges += _pack(
            source, units, np.array(sorted({*resume, *(u[0] for u in units)}), dtype=np.int64), size, overlap
        )
    return ranges


def _sections(blocks: Sequence[Block]) -> list[list[Block]]:
    """A heading begins a section, unless it directly follows another."""
    sections: list[list[Block]] = []
    previous = ""
    for block in blocks:
        if not sections or (block.kind == "heading" and previous != "heading"):
            sections.append([])
        sections[-1].append(block)
        previous = block.kind
    return sections


def _units(source: Source, block: Block, size: int, *, open_up: bool) -> list[Span]:
    if not open_up:
        return [(block.start, block.end)]
    inner = [source.levels[1] if block.kind in {"table", "code"} else source.sentence_starts]
    edges = [block.start, *_inside(inner[0], block.start, block.end), block.end]
    return [piece for low, high in pairwise(edges) for piece in source.pieces(low, high, size, level=3)]


def _resume(source: Source, block: Block) -> list[int]:
    places = source.levels[1] if block.kind in {"table", "code"} else source.sentence_starts
    return _inside(places, block.start, block.end)


def _pack(source: Source, units: Sequence[Span], resume: np.ndarray, size: int, overlap: int) -> list[Span]:
    """Join neighbouring units up to the size; a new range begins up to `overlap` tokens before its first new unit."""
    ranges: list[Span] = []
    resume_tokens = np.searchsorted(source.starts, resume, "left")
    i, begin = 0, units[0][0] if units else 0
    while i < len(units):
        limit = source.index(begin) + size
        j = i
        while j + 1 < len(units) and source.index(units[j + 1][1]) <= limit:
            j += 1
        end = units[j][1]
        ranges.append((begin, end))
        i = j + 1
        if i < len(units):
            budget = min(overlap, size - source.count(end, units[i][1]))
            begin = _overlap_start(resume, resume_tokens, begin, end, source.index(end) - budget) if budget > 0 else end
    return ranges


def _overlap_start(resume: np.ndarray, tokens: np.ndarray, begin: int, end: int, least: int) -> int:
    """First place after `begin` from which no more than the allowed tokens lead to `end`."""
    place = max(int(np.searchsorted(tokens, least, "left")), int(np.searchsorted(resume, begin, "right")))
    return int(resume[place]) if place < len(resume) and resume[place] < end else end


# Blocks ----------------------------------------------------------------------------------------------------------------


def map_blocks(blocks: Sequence[dict], masked: OffsetMap, clean: OffsetMap) -> list[Block]:
    """Blocks of the parsed text as ranges of the masked text; those of which nothing is left are dropped."""
    spans = np.array([(block["start"], block["end"]) for block in blocks], dtype=np.int64).reshape(-1, 2)
    mapped = forward_ranges(masked.then(clean), spans)
    return [
        Block(block["kind"], block["level"] or 1, block["page"], int(start), int(end))
        for block, (start, end) in zip(blocks, mapped, strict=True)
        if start >= 0
    ]


def forward_ranges(offsets: OffsetMap, spans: np.ndarray) -> np.ndarray:
    """`OffsetMap.forward_range` of many ranges at once; −1 where nothing is left.

    In near-linear time where the source order is kept; one by one for the maps of texts that someone else re-ordered.
    """
    result = np.full(spans.shape, -1, dtype=np.int64)
    rows = np.array([tuple(segment) for segment in offsets.segments], dtype=np.int64).reshape(-1, 5)
    if not len(rows) or not len(spans):
        return result
    out_start, out_end, src_start, src_end, exact = rows.T
    if (np.diff(src_start) < 0).any() or (np.diff(src_end) < 0).any():
        for index, (start, end) in enumerate(spans):
            result[index] = offsets.forward_range(int(start), int(end)) or (-1, -1)
        return result
    starts, ends = spans.T
    first = np.searchsorted(src_end, starts, "right")
    last = np.searchsorted(src_start, ends, "left") - 1
    left = (first <= last) & (starts < ends)
    first, last = first[left], last[left]
    shift = np.where(exact[first] == 1, np.maximum(starts[left] - src_start[first], 0), 0)
    cut = np.where(exact[last] == 1, np.maximum(src_end[last] - ends[left], 0), 0)
    result[left] = np.stack([out_start[first] + shift, out_end[last] - cut], axis=1)
    return result


def cover(text: str, blocks: Sequence[Block]) -> list[Block]:
    """Disjoint blocks in order that hold the whole text: gaps become paragraphs, white space goes to the block before."""
    found: list[Block] = []
    position, page = 0, None
    for block in sorted(blocks, key=lambda b: (b.start, b.end)):
        start = max(block.start, position)
        if start >= block.end or not text[start : block.end].strip():
            continue
        found += _paragraphs(text, position, start, page)
        found.append(block._replace(start=start))
        position, page = block.end, block.page
    found += _paragraphs(text, position, len(text), page)
    if not found:
        return []
    edges = [0, *(block.start for block in found[1:]), len(text)]
    return [block._replace(start=low, end=high) for block, (low, high) in zip(found, pairwise(edges), strict=True)]


def _paragraphs(text: str, start: int, end: int, page: int | None) -> Iterator[Block]:
    edges = [start, *(match.end() for match in _PARAGRAPH.finditer(text, start, end)), end]
    for low, high in pairwise(edges):
        piece = text[low:high].strip()
        if piece:
            heading = _HEADING.match(piece) if "\n" not in piece else None
            yield Block("heading" if heading else "paragraph", len(heading.group(1)) if heading else 1, page, low, high)


@dataclass(frozen=True)
class Outline:
    """Which headings stand above a place, and on which page it is."""

    text: str
    blocks: Sequence[Block]

    @cached_property
    def _starts(self) -> list[int]:
        return [block.start for block in self.blocks]

    @cached_property
    def _paths(self) -> list[list[str]]:
        """Heading path at each block, its own heading included."""
        paths: list[list[str]] = []
        stack: list[tuple[int, str]] = []
        for block in self.blocks:
            if block.kind == "heading":
                stack = [entry for entry in stack if entry[0] < block.level]
                stack.append((block.level, _title(self.text[block.start : block.end])))
            paths.append([title for _, title in stack])
        return paths

    def at(self, start: int, end: int) -> tuple[list[str], int | None]:
        """Path and page of a chunk: headings with which it begins count as above it."""
        if not self.blocks:
            return [], None
        first = max(0, int(np.searchsorted(self._starts, start, "right")) - 1)
        last = first
        while self.blocks[last].kind == "heading" and last + 1 < len(self.blocks) and self._starts[last + 1] < end:
            last += 1
        return self._paths[last], self.blocks[first].page


def _title(text: str) -> str:
    return " ".join(_HASHES.sub("", text.strip()).split())
