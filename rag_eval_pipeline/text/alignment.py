"""Find a quote in a text: exact after normalisation, else the best local alignment.

Here: where a quote is and which of its characters are there. Not here: whether that is enough (attribution decides).

Similarity = 1 − edits / length of the normalised quote, where edits is the least Levenshtein distance between the quote
and any substring of the normalised text (Sellers 1980). Among substrings of least distance the leftmost start wins, then
the shortest. The search is exact: a seed filter only skips what provably cannot be best.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.text.normalise import normalise, normalise_with_map

_SEED_RATES = (0.04, 0.1, 0.2)
_SHORTEST_SEED = 4


@dataclass(frozen=True, eq=False)
class Location:
    """Where a quote stands in a text.

    Attributes:
        start: first code point in the original text.
        end: one past the last one.
        similarity: 1 − edits / length of the normalised quote.
        positions: int64, one entry per non-space code point of the normalised quote: its offset in the original text,
            −1 where the text has not that character. A composed accent has its base character's offset, so
            neighbours in a decomposed text may lie more than one apart: compare with `contiguous`.
    """

    start: int
    end: int
    similarity: float
    positions: np.ndarray


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A normalised text with the source range of each of its code points."""

    text: str
    starts: np.ndarray
    ends: np.ndarray


def locate(quote: str, text: str, form: str = "nfc+ws", min_similarity: float = 0.6) -> Location | None:
    """Best place of `quote` in `text`; None if the quote is empty or no place reaches `min_similarity`."""
    needle, haystack = normalise(quote, form), _prepare(text, form)
    if not needle:
        return None
    if (start := haystack.text.find(needle)) >= 0:
        return _exact(needle, haystack, start)
    most_edits = int((1 - min_similarity) * len(needle) + 1e-9)
    found = _best_substring(needle, haystack.text, most_edits)
    return _location(needle, haystack, *found) if found else None


def nearest(quote: str, text: str, form: str = "nfc+ws") -> Location:
    """Best place of `quote` in `text`, whatever its similarity (an empty quote: an empty place of similarity 0)."""
    found = locate(quote, text, form, min_similarity=0.0)
    return found or Location(0, 0, 0.0, np.empty(0, dtype=np.int64))


def occurrences(quote: str, text: str, form: str = "nfc+ws") -> list[Location]:
    """All exact places of `quote` after normalisation, left to right; they may overlap."""
    needle, haystack = normalise(quote, form), _prepare(text, form)
    found: list[Location] = []
    start = haystack.text.find(needle) if needle else -1
    while start >= 0:
        found.append(_exact(needle, haystack, start))
        start = haystack.text.find(needle, start + 1)
    return found


@lru_cache(maxsize=16)
def _prepare(text: str, form: str) -> _Prepared:
    normalised, offsets = normalise_with_map(text, form)
    starts = np.zeros(len(normalised), dtype=np.int64)
    ends = np.zeros(len(normalised), dtype=np.int64)
    for out_start, out_end, src_start, src_end, exact in offsets.segments:
        if exact:
            starts[out_start:out_end] = np.arange(src_start, src_end)
            ends[out_start:out_end] = np.arange(src_start + 1, src_end + 1)
            continue
        # "ǭ" from "o" + two marks: the first character is the base, a mark that stayed is where it stands.
        place = src_start
        for index in range(out_start, out_end):
            same = text.find(normalised[index], place, src_end)
            place = same if same >= 0 else place
            starts[index] = place
            ends[index] = src_end
    return _Prepared(normalised, starts, ends)


def _exact(needle: str, haystack: _Prepared, start: int) -> Location:
    end = start + len(needle)
    solid = np.array([not character.isspace() for character in needle])
    return Location(int(haystack.starts[start]), int(haystack.ends[end - 1]), 1.0, haystack.starts[start:end][solid])


def _location(needle: str, haystack: _Prepared, start: int, end: int, edits: int) -> Location:
    places = np.full(len(needle), -1, dtype=np.int64)
    for block in Levenshtein.opcodes(needle, haystack.text[start:end]):
        if block.tag == "equal":
            first = start + block.dest_start
            places[block.src_start : block.src_end] = haystack.starts[first : start + block.dest_end]
    solid = np.array([not character.isspace() for character in needle])
    if start == end:
        place = int(haystack.starts[start]) if start < len(haystack.text) else 0
        return Location(place, place, 1 - edits / len(needle), places[solid])
    low, high = int(haystack.starts[start]), int(haystack.ends[end - 1])
    return Location(low, high, 1 - edits / len(needle), places[solid])


def _best_substring(needle: str, text: str, most_edits: int) -> tuple[int, int, int] | None:
    """(start, end, edits) of the best substring with at most `most_edits`: least edits, leftmost, shortest."""
    best: tuple[int, int] | None = None
    for rate in _SEED_RATES:
        edits = min(int(rate * len(needle)), most_edits)
        if edits < 1 or len(needle) // (edits + 1) < _SHORTEST_SEED:
            continue
        windows = _windows(needle, text, edits)
        if sum(high - low for low, high in windows) > len(text) // 2:
            break
        best = _best_start(needle, text, windows)
        if best and best[0] <= edits:
            break
        best = None
        if edits == most_edits:
            return None
    if best is None:
        best = _best_start(needle, text, [(0, len(text))])
    if best is None or best[0] > most_edits:
        return None
    distance, start = best
    return start, start + _shortest_end(needle, text[start : start + len(needle) + distance], distance), distance


def _windows(needle: str, text: str, edits: int) -> list[tuple[int, int]]:
    """Merged ranges that hold every substring within `edits` of the needle.

    Cut the needle into edits + 1 pieces: one edit spoils at most one of them, so one stands in the text unchanged.
    """
    length, found = len(needle), []
    cuts = [length * part // (edits + 1) for part in range(edits + 2)]
    for low, high in itertools.pairwise(cuts):
        piece = needle[low:high]
        at = text.find(piece)
        while at >= 0:
            found.append((max(0, at - low - edits), min(len(text), at - low + length + edits)))
            at = text.find(piece, at + 1)
    merged: list[tuple[int, int]] = []
    for low, high in sorted(found):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _best_start(needle: str, text: str, windows: list[tuple[int, int]]) -> tuple[int, int] | None:
    """(edits, start): the least distance of any substring in the windows, and its leftmost start.

    Myers' bit-parallel scan (1999) of the reversed needle over the reversed window: the score after reading text[start:]
    backwards is the least distance of a substring that begins at `start`.
    """
    masks = _masks(needle[::-1])
    results = []
    for low, high in windows:
        distance, steps = _scan(masks, len(needle), text[low:high][::-1])
        results.append((distance, high - steps))
    return min(results) if results else None


def _masks(pattern: str) -> dict[str, int]:
    masks: dict[str, int] = {}
    for index, character in enumerate(pattern):
        masks[character] = masks.get(character, 0) | 1 << index
    return masks


def _scan(masks: dict[str, int], length: int, text: str) -> tuple[int, int]:
    """Least distance between the pattern and a substring of `text`, and the last end at which it is reached."""
    full = (1 << length) - 1
    top = 1 << (length - 1)
    plus, minus, score = full, 0, length
    best, best_end = length, 0
    get = masks.get
    for end, character in enumerate(text, 1):
        equal = get(character, 0)
        vertical = equal | minus
        horizontal = (((equal & plus) + plus) ^ plus) | equal
        up = minus | (full & ~(horizontal | plus))
        down = plus & horizontal
        if up & top:
            score += 1
        elif down & top:
            score -= 1
        up = (up << 1) & full
        down = (down << 1) & full
        plus = down | (full & ~(vertical | up))
        minus = up & vertical
        if score <= best:
            best, best_end = score, end
    return best, best_end


def _shortest_end(needle: str, text: str, distance: int) -> int:
    """Shortest prefix of `text` at exactly `distance` from the needle; it has at least len − distance characters."""
    for end in range(max(0, len(needle) - distance), len(text) + 1):
        if Levenshtein.distance(needle, text[:end], score_cutoff=distance) == distance:
            return end
    raise AssertionError("no prefix has the distance that the scan found")
