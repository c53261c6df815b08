"""Where a text that someone else made came from: align it with its source and return an `OffsetMap`.

Here: alignment of two whole texts, monotone, in near-linear time. Not here: the place of one quote (`alignment`).

Words are matched first: word triples that occur once in both texts are anchors (patience diff), longest common
subsequences fill the gaps between them, and short gaps that resemble each other are matched by character. Text that moved
has no source: a map says where characters came from, never where they might have.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import regex
from rapidfuzz.distance import Indel, LCSseq

from rag_eval_pipeline.text.offsets import OffsetMap, Segment

_TOKEN = regex.compile(r"[\p{L}\p{M}\p{N}_]+|[^\p{L}\p{M}\p{N}_\s]")
_GRAM = 3
# The LCS keeps one bit a pair of tokens: 2^28 of them are 32 MB.
_MOST_PAIRS = 1 << 28
_LONGEST_CHAR_GAP = 400
_LEAST_RESEMBLANCE = 0.5

Span = tuple[int, int]


def tokens_of(text: str) -> list[Span]:
    """Spans of words and of single marks, in order."""
    return [match.span() for match in _TOKEN.finditer(text)]


def fold(token: str) -> str:
    """How tokens are compared where composed accents and case don't matter."""
    return unicodedata.normalize("NFC", token).casefold()


def matched_tokens(
    out: str, source: str, key: Callable[[str], str] = str
) -> tuple[list[Span], list[Span], list[tuple[int, int]]]:
    """Token spans of both texts, and the pairs (index in out, index in source) that correspond, increasing in both."""
    spans_out, spans_source = tokens_of(out), tokens_of(source)
    ids: dict[str, int] = {}
    a = [ids.setdefault(key(out[s:e]), len(ids)) for s, e in spans_out]
    b = [ids.setdefault(key(source[s:e]), len(ids)) for s, e in spans_source]
    return spans_out, spans_source, list(_match(a, b))


def common_subsequence(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of indexes of a longest common subsequence; of an anchored one where the sequences are very long."""
    if len(a) * len(b) <= _MOST_PAIRS:
        return list(_match_gap(a, b, 0, len(a), 0, len(b)))
    return list(_match(a, b))


def derive(out: str, source: str) -> OffsetMap:
    """The map from `out` to the characters of `source` that it was made from; characters without one are left out."""
    if out == source:
        return OffsetMap.identity(len(out))
    spans_out, spans_source, pairs = matched_tokens(out, source)
    built: list[Segment] = []
    at_out = at_source = 0
    for i, j in pairs:
        (start, end), (src_start, src_end) = spans_out[i], spans_source[j]
        _fill(out, source, (at_out, start), (at_source, src_start), built)
        _append(built, Segment(start, end, src_start, src_end))
        at_out, at_source = end, src_end
    _fill(out, source, (at_out, len(out)), (at_source, len(source)), built)
    return OffsetMap(built)


def _append(built: list[Segment], new: Segment) -> None:
    last = built[-1] if built else None
    if last and last.out_end == new.out_start and last.src_end == new.src_start:
        built[-1] = Segment(last.out_start, new.out_end, last.src_start, new.src_end)
    else:
        built.append(new)


def _fill(out: str, source: str, a: Span, b: Span, built: list[Segment]) -> None:
    """Match what stands between two matched tokens: equal text whole, similar short text by character."""
    left, right = out[slice(*a)], source[slice(*b)]
    if not left or not right:
        return
    if left == right:
        _append(built, Segment(*a, *b))
        return
    if max(len(left), len(right)) > _LONGEST_CHAR_GAP:
        return
    if Indel.normalized_similarity(left, right) < _LEAST_RESEMBLANCE and not (left.isspace() and right.isspace()):
        return
    for block in LCSseq.opcodes(left, right):
        if block.tag == "equal":
            _append(
                built,
                Segment(a[0] + block.src_start, a[0] + block.src_end, b[0] + block.dest_start, b[0] + block.dest_end),
            )


def _match(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    at_a = at_b = 0
    for i, j in [*_anchors(a, b), (len(a), len(b))]:
        yield from _match_gap(a, b, at_a, i, at_b, j)
        if i < len(a):
            yield i, j
        at_a, at_b = i + 1, j + 1


def _match_gap(a: Sequence[int], b: Sequence[int], a0: int, a1: int, b0: int, b1: int) -> Iterator[tuple[int, int]]:
    while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
        yield a0, b0
        a0, b0 = a0 + 1, b0 + 1
    tail = 0
    while a0 < a1 - tail and b0 < b1 - tail and a[a1 - 1 - tail] == b[b1 - 1 - tail]:
        tail += 1
    a_end, b_end = a1 - tail, b1 - tail
    if a0 < a_end and b0 < b_end and (a_end - a0) * (b_end - b0) <= _MOST_PAIRS:
        for block in LCSseq.opcodes(a[a0:a_end], b[b0:b_end]):
            if block.tag == "equal":
                for step in range(block.src_end - block.src_start):
                    yield a0 + block.src_start + step, b0 + block.dest_start + step
    for step in range(tail):
        yield a_end + step, b_end + step


def _anchors(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """First tokens of triples that occur exactly once in both, the longest chain that increases in both."""
    in_a, in_b = _unique_grams(a), _unique_grams(b)
    candidates = sorted((i, in_b[gram]) for gram, i in in_a.items() if gram in in_b)
    ends: list[int] = []
    tops: list[int] = []
    before = [-1] * len(candidates)
    for index, (_, j) in enumerate(candidates):
        place = bisect_left(ends, j)
        before[index] = tops[place - 1] if place else -1
        if place == len(ends):
            ends.append(j)
            tops.append(index)
        else:
            ends[place], tops[place] = j, index
    chain: list[tuple[int, int]] = []
    index = tops[-1] if tops else -1
    while index >= 0:
        chain.append(candidates[index])
        index = before[index]
    return chain[::-1]


def _unique_grams(ids: Sequence[int]) -> dict[tuple[int, ...], int]:
    places: dict[tuple[int, ...], int] = {}
    for index in range(len(ids) - _GRAM + 1):
        gram = tuple(ids[index : index + _GRAM])
        places[gram] = -1 if gram in places else index
    return {gram: index for gram, index in places.items() if index >= 0}
