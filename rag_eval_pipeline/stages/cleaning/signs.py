"""Signs that make trouble in a text: invisible and turning ones, look-alike scripts, wrong decodings, compatibility forms.

Here: where they stand. Not here: removing them (`transform`), counting by document (`quality`), listing (`findings`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import regex

Span = tuple[int, int]

INVISIBLE = {
    "zero_width": re.compile("[\u200b-\u200d\u2060]"),
    "soft_hyphen": re.compile("\u00ad"),
    "byte_order_mark": re.compile("\ufeff"),
    "direction": re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"),
    "control": re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"),
}
"""Kind of sign that nobody sees -> one of them; `direction` turns what stands beside it around."""
_WORD = regex.compile(r"[\p{L}\p{M}]+")
_LOOK_ALIKE = regex.compile(r"(?=.*\p{Latin})(?=.*[\p{Greek}\p{Cyrillic}])", regex.DOTALL)
_REPLACED = re.compile("\ufffd+")
_RUN = re.compile("[^\x00-\x7f]+")


def mixed_scripts(text: str) -> Iterator[Span]:
    """Words that mix Latin letters with Greek or Cyrillic ones, which look alike."""
    if text.isascii():
        return
    for word in _WORD.finditer(text):
        if _LOOK_ALIKE.match(word[0]):
            yield word.span()


def broken_encodings(text: str) -> list[Span]:
    """Sequences that come of a wrong decoding, by ftfy's heuristic, and replacement marks; disjoint, in order."""
    if text.isascii():
        return []
    found = sorted([*(m.span() for m in _badness().finditer(text)), *(m.span() for m in _REPLACED.finditer(text))])
    merged: list[Span] = []
    for start, end in found:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@lru_cache(maxsize=1)
def _badness() -> re.Pattern[str]:
    from ftfy.badness import BADNESS_RE

    return BADNESS_RE


def compatibility(text: str) -> Iterator[Span]:
    """Runs of signs whose NFKC is another than their NFC: ligatures, full-width and styled letters, superscripts."""
    for run in _RUN.finditer(text):
        if unicodedata.normalize("NFC", run[0]) == unicodedata.normalize("NFKC", run[0]):
            continue
        start = None
        for place in range(run.start(), run.end() + 1):
            drifts = place < run.end() and _drifts(text[place])
            if drifts and start is None:
                start = place
            elif not drifts and start is not None:
                yield start, place
                start = None


@lru_cache(maxsize=4096)
def _drifts(sign: str) -> bool:
    return unicodedata.normalize("NFC", sign) != unicodedata.normalize("NFKC", sign)
