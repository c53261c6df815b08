"""Normalisation forms, with or without the map back to the original text.

Here: the four forms in which texts are compared. Not here: repair of text (mojibake, boilerplate), which a stage does.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, get_args

from rag_eval_pipeline.text.offsets import OffsetMap, Segment

Form = Literal["none", "nfc", "nfc+ws", "nfc+ws+casefold"]
FORMS: tuple[str, ...] = get_args(Form)

_SPACES = re.compile(r"\s+")
_UNEVEN_SPACE = re.compile(r"\s\s+|[^\S ]")
# Below U+0300 every character is its own NFC form and composes with nothing before it.
_PLAIN_RUN = re.compile("[\\x00-\u02ff]+(?=[\\x00-\u02ff]|\\Z)")


def normalise(text: str, form: str = "nfc+ws") -> str:
    """`text` in `form`: white space runs become one space and the ends are stripped under `+ws`.

    Raises:
        ValueError: the form is unknown.
    """
    _check(form)
    if form == "none":
        return text
    text = unicodedata.normalize("NFC", text)
    if form == "nfc":
        return text
    text = _SPACES.sub(" ", text).strip()
    if form == "nfc+ws":
        return text
    return unicodedata.normalize("NFC", text.casefold())


def normalise_with_map(text: str, form: str = "nfc+ws") -> tuple[str, OffsetMap]:
    """`normalise(text, form)` and the map from its code points to those of `text`.

    A composed character or a white-space run that changed is an inexact segment; all else is exact.
    """
    _check(form)
    if form == "none":
        return text, OffsetMap.identity(len(text))
    result, offsets = _compose(text)
    if form == "nfc":
        return result, offsets
    result, spaces = _join_spaces(result)
    offsets = spaces.then(offsets)
    if form == "nfc+ws":
        return result, offsets
    folded, folds = _fold(result)
    composed, compositions = _compose(folded)
    return composed, compositions.then(folds.then(offsets))


def _check(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"unknown normalisation {form!r}; use one of {', '.join(FORMS)}")


class _Builder:
    """Collects output pieces and their segments; neighbouring exact pieces become one segment."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.segments: list[Segment] = []
        self.length = 0

    def add(self, piece: str, start: int, end: int, exact: bool) -> None:
        out = self.length + len(piece)
        last = self.segments[-1] if self.segments else None
        if exact and last and last.exact and last.src_end == start and last.out_end == self.length:
            self.segments[-1] = Segment(last.out_start, out, last.src_start, end)
        elif piece:
            self.segments.append(Segment(self.length, out, start, end, exact))
        self.parts.append(piece)
        self.length = out

    def result(self) -> tuple[str, OffsetMap]:
        return "".join(self.parts), OffsetMap(self.segments)


def _compose(text: str) -> tuple[str, OffsetMap]:
    if unicodedata.is_normalized("NFC", text):
        return text, OffsetMap.identity(len(text))
    built = _Builder()
    for start, end in _clusters(text):
        cluster = text[start:end]
        composed = unicodedata.normalize("NFC", cluster)
        built.add(composed, start, end, composed == cluster)
    return built.result()


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Cut where no composition can reach across, so that NFC of the pieces joined is NFC of the whole."""
    position = 0
    while position < len(text):
        if run := _PLAIN_RUN.match(text, position):
            yield position, run.end()
            position = run.end()
            continue
        end = position + 1
        while end < len(text) and not _is_boundary(text[end]):
            end += 1
        yield position, end
        position = end


@lru_cache(maxsize=4096)
def _is_boundary(character: str) -> bool:
    return (
        unicodedata.combining(character) == 0
        and unicodedata.category(character)[0] != "M"
        and not "\u1160" <= character <= "\u11ff"  # Hangul vowels and finals compose by rule, not by table
        and character not in _second_characters()
    )


@lru_cache(maxsize=1)
def _second_characters() -> frozenset[str]:
    """Characters that end some canonical decomposition; taken from the running Python's Unicode data."""
    found = set()
    for point in range(0xC0, sys.maxunicode + 1):
        decomposition = unicodedata.decomposition(chr(point))
        if decomposition and decomposition[0] != "<" and " " in decomposition:
            found.add(chr(int(decomposition.rsplit(" ", 1)[1], 16)))
    return frozenset(found)


def _join_spaces(text: str) -> tuple[str, OffsetMap]:
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    built = _Builder()
    for run in _UNEVEN_SPACE.finditer(text, start, max(start, end)):
        built.add(text[start : run.start()], start, run.start(), True)
        built.add(" ", run.start(), run.end(), False)
        start = run.end()
    if start < end:
        built.add(text[start:end], start, end, True)
    return built.result()


def _fold(text: str) -> tuple[str, OffsetMap]:
    """Case folding; a letter that only changes case keeps its place and is exact in the map's sense of one to one."""
    built = _Builder()
    for index, character in enumerate(text):
        folded = character.casefold()
        built.add(folded, index, index + 1, len(folded) == 1)
    return built.result()
