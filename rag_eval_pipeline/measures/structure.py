"""How well the structure of a document was read: order of its blocks, headings and their levels, title, lists.

Here: the blocks of a reference against those that were read. Not here: where blocks come from, and what marks of a format
(`#`, bullets) count as text: the parsing room decides both. Tables have a module of their own.

Blocks without a text are passed over. Texts are compared in a normalised form, `nfc+ws` unless told otherwise.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import LCSseq, Levenshtein
from rapidfuzz.process import cdist

from rag_eval_pipeline.measures.fidelity import Measured
from rag_eval_pipeline.text.normalise import normalise

LEAST = 0.5
"""Similarity (1 − edits / longer length) from which on two texts can be one block read well or badly."""
FURNITURE = "boilerplate"
"""Kind of blocks that belong to the page, not to the text; read without a counterpart they are no fault."""
MAX_PAIRS = 4_000_000
"""Pairs of blocks that are compared at a time."""


class Block(NamedTuple):
    """A block in reading order; `level` of a heading is from 1."""

    kind: str
    text: str
    level: int | None = None


@dataclass(frozen=True)
class ReadingOrder:
    """Order of blocks.

    Attributes:
        tau: Kendall's τ-b of the places of matched blocks, −1 to 1; None (`too_few_matched`) below two of them.
        edit_distance: blocks inserted, lost or replaced on the way from one sequence to the other / the longer one; None
            (`no_blocks`) where the reference has none.
        matched: blocks of the reference with a counterpart.
    """

    tau: Measured
    edit_distance: Measured
    matched: int


@dataclass(frozen=True)
class HeadingScores:
    """Headings matched in order.

    Attributes:
        precision: matched / headings read; None (`no_prediction`) where none were.
        recall: matched / headings of the reference; None (`no_heading`) where it has none.
        f1: 2 · matched / (read + reference); None (`no_heading`) where the reference has none.
        level_accuracy: matched ones with the right level / matched ones whose level the reference tells; None
            (`no_heading`, `none_matched`) where there are none.
    """

    precision: Measured
    recall: Measured
    f1: Measured
    level_accuracy: Measured


def match_blocks(
    reference: Sequence[Block], read: Sequence[Block], form: str = "nfc+ws", least: float = LEAST
) -> list[int | None]:
    """The counterpart of each block of a reference among the blocks read: its number, or None. One to one.

    Equal texts first: those of a longest common subsequence, then the first with the first that is left. What remains is
    paired by similarity, the most alike first, as far as it is `least` alike. Kinds play no part.
    """
    wanted, found = ([normalise(block.text, form) for block in blocks] for blocks in (reference, read))
    result: list[int | None] = [None] * len(wanted)
    # As numbers: a sequence of texts is compared by hashes, in which an empty text and a NUL are the same.
    code = {text: number for number, text in enumerate(dict.fromkeys((*wanted, *found)))}
    for step in LCSseq.opcodes([code[text] for text in wanted], [code[text] for text in found]):
        if step.tag == "equal":
            result[step.src_start : step.src_end] = range(step.dest_start, step.dest_end)
    result = [number if text else None for number, text in zip(result, wanted, strict=True)]
    _match_equal(wanted, found, result)
    taken = set(result)
    left = [i for i, number in enumerate(result) if number is None and wanted[i]]
    right = [j for j, text in enumerate(found) if text and j not in taken]
    for _, i, j in sorted(_alike(wanted, found, left, right, least), key=lambda pair: (-pair[0], *pair[1:])):
        if result[i] is None and j not in taken:
            result[i] = j
            taken.add(j)
    return result


def _match_equal(wanted: Sequence[str], found: Sequence[str], result: list[int | None]) -> None:
    """Pair equal texts that have moved."""
    taken, places = set(result), defaultdict[str, deque[int]](deque)
    for j, text in enumerate(found):
        if j not in taken:
            places[text].append(j)
    for i, text in enumerate(wanted):
        if text and result[i] is None and places.get(text):
            result[i] = places[text].popleft()


def _alike(
    wanted: Sequence[str], found: Sequence[str], left: Sequence[int], right: Sequence[int], least: float
) -> Iterator[tuple[float, int, int]]:
    """(similarity, number in the reference, number read) of all pairs that are alike enough."""
    if not left or not right:
        return
    texts = [found[j] for j in right]
    step = max(1, MAX_PAIRS // len(right))
    for first in range(0, len(left), step):
        rows = left[first : first + step]
        scores = cdist(
            [wanted[i] for i in rows],
            texts,
            scorer=Levenshtein.normalized_similarity,
            score_cutoff=least,
            dtype=np.float64,
        )
        for row, column in zip(*np.nonzero(scores >= least), strict=True):
            yield float(scores[row, column]), rows[row], right[column]


# Order


def reading_order(reference: Sequence[Block], read: Sequence[Block], form: str = "nfc+ws") -> ReadingOrder:
    """Whether blocks were read in the order in which they are to be read.

    Page furniture that was read without a counterpart is passed over: it has no place in the order of a text.
    """
    reference, read = _with_text(reference), _with_text(read)
    matched = match_blocks(reference, read, form)
    places = [number for number in matched if number is not None]
    pairs = len(places) * (len(places) - 1) // 2
    if pairs:
        # No ties: the matching is one to one, so that τ-b is τ-a.
        agreeing = pairs - 2 * _inversions(places)
        tau = Measured(agreeing / pairs, "scored", agreeing, pairs)
    else:
        tau = Measured(None, "too_few_matched", 0, 0)
    return ReadingOrder(tau, _sequence_distance(matched, read), len(places))


def _with_text(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if block.text.strip()]


def _inversions(places: Sequence[int]) -> int:
    """Pairs that stand the wrong way round."""
    before: list[int] = []
    count = 0
    for place in places:
        count += len(before) - bisect_left(before, place)
        insort(before, place)
    return count


def _sequence_distance(matched: Sequence[int | None], read: Sequence[Block]) -> Measured:
    if not matched:
        return Measured(None, "no_blocks", 0, 0, inserted=len(read))
    names = {number: i for i, number in enumerate(matched) if number is not None}
    # A block without a counterpart has a name that no other has.
    found = [names.get(j, -1 - j) for j, block in enumerate(read) if j in names or block.kind != FURNITURE]
    longer = max(len(matched), len(found))
    edits = Levenshtein.distance(range(len(matched)), found)
    return Measured(edits / longer, "scored", edits, longer)


# Headings and title


def heading_scores(reference: Sequence[Block], read: Sequence[Block], form: str = "nfc+ws") -> HeadingScores:
    """Headings of equal text, matched in order: a longest common subsequence, of those the one with most right levels."""
    wanted, found = _headings(reference, form), _headings(read, form)
    matched, right, known = _common(wanted, found)
    none = Measured(None, "no_heading", 0, 0, inserted=len(found))
    return HeadingScores(
        precision=_ratio(matched, len(found), "no_prediction"),
        recall=_ratio(matched, len(wanted), "no_heading"),
        f1=_ratio(2 * matched, len(wanted) + len(found), "no_heading") if wanted else none,
        level_accuracy=_ratio(right, known, "none_matched") if wanted else none,
    )


def title_exact(reference: Sequence[Block], read: Sequence[Block], form: str = "nfc+ws") -> Measured:
    """1 where the title read is the reference's; see `title_similarity`."""
    found = title_similarity(reference, read, form)
    if found.value is None:
        return found
    exact = int(found.value == 1.0)
    return Measured(float(exact), found.status, exact, 1)


def title_similarity(reference: Sequence[Block], read: Sequence[Block], form: str = "nfc+ws") -> Measured:
    """1 − edits / longer length of the two titles.

    The title is the first block of kind `title`, else the first heading of level 1. Where the parser saw no heading of
    level 1, its first heading stands for it. None (`no_title`) where the reference has none; 0 (`missing_title`) where
    only the output has none.
    """
    wanted, found = _title(reference, form), _title(read, form)
    if wanted is None:
        return Measured(None, "no_title", 0, 0)
    if found is None:
        found = next((text for text, _ in _headings(read, form)), None)
    if found is None:
        return Measured(0.0, "missing_title", 0, len(wanted))
    longer = max(len(wanted), len(found))
    same = longer - Levenshtein.distance(wanted, found)
    return Measured(same / longer, "scored", same, longer)


def _headings(blocks: Sequence[Block], form: str) -> list[tuple[str, int | None]]:
    """Text and level of each heading; a title is one of level 1."""
    texts = ((normalise(b.text, form), b) for b in blocks if b.kind in {"heading", "title"})
    return [(text, b.level or (1 if b.kind == "title" else None)) for text, b in texts if text]


def _title(blocks: Sequence[Block], form: str) -> str | None:
    named = (normalise(block.text, form) for block in blocks if block.kind == "title")
    first = (text for text, level in _headings(blocks, form) if level == 1)
    return next(filter(None, named), None) or next(first, None)


def _common(wanted: Sequence[tuple[str, int | None]], found: Sequence[tuple[str, int | None]]) -> tuple[int, int, int]:
    """Length of the longest common subsequence; of it the right levels, as many as can be, and the levels that are known.

    One number holds all three, the first weighs most: lengths add up along a subsequence, so the largest sum wins.
    """
    if not wanted or not found:
        return 0, 0, 0
    base = min(len(wanted), len(found)) + 1
    codes: dict[str, int] = {}
    texts = np.array([codes.setdefault(text, len(codes)) for text, _ in found])
    levels = np.array([level or 0 for _, level in found])
    best = np.zeros(len(found) + 1, dtype=np.int64)
    for text, level in wanted:
        gain = (
            base * base + np.where(levels == level, base, 0) + (level is not None) if level else np.array(base * base)
        )
        matched = np.where(texts == codes.get(text, -1), best[:-1] + gain, 0)
        best[1:] = np.maximum.accumulate(np.maximum(best[1:], matched))
    total = int(best[-1])
    return total // base**2, total // base % base, total % base


def _ratio(numerator: int, denominator: int, empty: str) -> Measured:
    if denominator == 0:
        return Measured(None, empty, 0, 0)
    return Measured(numerator / denominator, "scored", numerator, denominator)


# Lists


def list_integrity(reference: Sequence[Block], read: Sequence[Block], form: str = "nfc+ws") -> Measured:
    """Lists of the reference whose items all stand in order in one list that was read / lists of the reference.

    A list is a run of blocks of kind `list_item`, of whatever level; page furniture does not end it. Items are matched as
    blocks are (`match_blocks`): a misread item keeps its place. None (`no_list`) where the reference has no list.
    """
    reference, read = (_with_text([b for b in blocks if b.kind != FURNITURE]) for blocks in (reference, read))
    lists = _lists(reference)
    if not lists:
        return Measured(None, "no_list", 0, 0)
    matched = match_blocks(reference, read, form)
    list_of = {item: number for number, items in enumerate(_lists(read)) for item in items}
    whole = sum(_is_whole([matched[item] for item in items], list_of) for items in lists)
    return _ratio(whole, len(lists), "no_list")


def _lists(blocks: Sequence[Block]) -> list[list[int]]:
    """Numbers of the items of each list."""
    runs = groupby(range(len(blocks)), key=lambda number: blocks[number].kind == "list_item")
    return [list(items) for listed, items in runs if listed]


def _is_whole(places: Sequence[int | None], list_of: dict[int, int]) -> bool:
    known = [place for place in places if place is not None]
    in_order = all(a < b for a, b in pairwise(known))
    lists = {list_of.get(place) for place in known}
    return len(known) == len(places) and in_order and len(lists) == 1 and None not in lists
