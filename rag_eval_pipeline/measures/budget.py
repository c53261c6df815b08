"""Fill a token budget with passages in their order: what is already there is free, and the last one is cut to fit.

One rule for recall@B and for the context that an answerer is given. Which passages come, and in which order, belongs in the
rooms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Range = tuple[int, int]


@dataclass(frozen=True)
class Passage:
    """A chunk as it is served. Without a place (`start` None) its text is always new."""

    chunk_id: str
    doc_id: str
    start: int | None
    end: int | None
    text: str
    prefix: str = ""


@dataclass(frozen=True)
class Taken:
    """What of a passage went in.

    Attributes:
        passage: where it comes from.
        start: first code point that is new; None without a place.
        end: one past the last code point that went in.
        tokens: what it cost, its prefix included; 0 where all of it was there already.
        is_cut: the budget ended inside it.
    """

    passage: Passage
    start: int | None
    end: int | None
    tokens: int
    is_cut: bool = False


@dataclass
class Covered:
    """Ranges of documents that are in already; sorted, disjoint, merged where they touch."""

    ranges: dict[str, list[Range]] = field(default_factory=dict)

    def holds(self, doc_id: str, start: int, end: int) -> bool:
        """Whether [start, end) lies in one of the ranges."""
        ranges = self.ranges.get(doc_id, ())
        # Sorted and disjoint: only the last one that begins at or before `start` can hold it.
        index = bisect_right(ranges, start, key=lambda entry: entry[0]) - 1
        return index >= 0 and end <= ranges[index][1]

    def gaps(self, doc_id: str, start: int, end: int) -> list[Range]:
        """What of [start, end) is not in yet."""
        found, position = [], start
        for low, high in self.ranges.get(doc_id, ()):
            if high <= position or low >= end:
                continue
            if low > position:
                found.append((position, low))
            position = max(position, high)
        if position < end:
            found.append((position, end))
        return found

    def add(self, doc_id: str, start: int, end: int) -> None:
        """Put [start, end) in."""
        merged: list[Range] = []
        for low, high in sorted([*self.ranges.get(doc_id, ()), (start, end)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        self.ranges[doc_id] = merged


def fill(
    passages: Iterable[Passage],
    budget: int,
    spans: Callable[[str], list[Range]],
    *,
    merge: bool = True,
    can_cut_unplaced: bool = True,
) -> tuple[list[Taken], Covered]:
    """Take passages until `budget` tokens are spent.

    A token is free where all its characters are in already (with `merge`). A prefix is paid with its passage, unless
    nothing of the passage is new. The passage that doesn't fit is cut after the last token that does, and ends the walk.

    Args:
        passages: best first.
        budget: tokens.
        spans: token ranges of a text, in code points (`Tokenizer.spans`).
        merge: leave out what is in already.
        can_cut_unplaced: a passage without a place may be cut too; else the walk ends before it.

    Returns:
        One `Taken` a passage looked at and let in, repeated ones (0 tokens) included; and the ranges that are in.
    """
    taken: list[Taken] = []
    covered = Covered()
    spent = 0
    for passage in passages:
        new = _new_spans(passage, spans, covered, merge)
        if not new and passage.start is not None and _is_in(passage, covered):
            taken.append(Taken(passage, None, None, 0))
            continue
        prefix = len(spans(passage.prefix)) if passage.prefix else 0
        room = budget - spent - prefix
        fits = len(new) <= room
        if not fits and (room <= 0 or (passage.start is None and not can_cut_unplaced)):
            break
        entry = _take(passage, new if fits else new[:room], prefix, covered, merge, cut=not fits)
        taken.append(entry)
        spent += entry.tokens
        if not fits:
            break
    return taken, covered


def _new_spans(passage: Passage, spans: Callable[[str], list[Range]], covered: Covered, merge: bool) -> list[Range]:
    """Token ranges in the document (in the text, without a place) that have to be paid for."""
    if passage.start is None:
        return spans(passage.text)
    placed = [(low + passage.start, high + passage.start) for low, high in spans(passage.text)]
    if not merge:
        return placed
    return [(low, high) for low, high in placed if not covered.holds(passage.doc_id, low, high)]


def _is_in(passage: Passage, covered: Covered) -> bool:
    return (
        passage.start is not None
        and passage.end is not None
        and covered.holds(passage.doc_id, passage.start, passage.end)
    )


def _take(passage: Passage, new: list[Range], prefix: int, covered: Covered, merge: bool, *, cut: bool) -> Taken:
    tokens = prefix + len(new)
    if passage.start is None or passage.end is None:
        return Taken(passage, None, new[-1][1] if cut else None, tokens, cut)
    end = new[-1][1] if cut else passage.end
    gaps = covered.gaps(passage.doc_id, passage.start, end) if merge else [(passage.start, end)]
    covered.add(passage.doc_id, passage.start, end)
    return Taken(passage, gaps[0][0] if gaps else passage.start, gaps[-1][1] if gaps else end, tokens, cut)
