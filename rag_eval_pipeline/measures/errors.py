"""Where a text was read worst: the spans in which an output differs from its reference, by offsets.

Here: one reference against one output. Not here: rates (`fidelity`), and anything that shows text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.text.normalise import normalise

MAX_PAIRS = 1_000_000_000
"""Pairs of words of two texts that are aligned at most: about 31,000 words in both take 250 MB."""
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class ErrorSpan:
    """A run of words that differ.

    Attributes:
        start: first code point in the reference; where nothing of it was lost, the place at which words were put in.
        end: one past the last.
        out_start: likewise in the output.
        out_end: one past the last.
        errors: characters substituted, lost and inserted on the way from one to the other, white space runs as one space.
    """

    start: int
    end: int
    out_start: int
    out_end: int
    errors: int

    @property
    def kind(self) -> str:
        """Lost | invented | replaced."""
        if self.out_start == self.out_end:
            return "lost"
        return "invented" if self.start == self.end else "replaced"


@dataclass(frozen=True)
class _Words:
    """Words after NFC, with their places in the text."""

    texts: Sequence[str]
    places: Sequence[tuple[int, int]]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Offsets of words from `first` up to `last`; of none, the place behind the word before."""
        if first < last:
            return self.places[first][0], self.places[last - 1][1]
        place = self.places[first - 1][1] if first else 0
        return place, place


def error_spans(reference: str, output: str) -> list[ErrorSpan]:
    """Runs of words that a least-edit alignment of the words does not find equal, in order; words compared after NFC.

    Raises:
        Unmeasured: `too_large`, more than `MAX_PAIRS` pairs of words.
    """
    wanted, found = _words(reference), _words(output)
    if len(wanted.texts) * len(found.texts) > MAX_PAIRS:
        raise Unmeasured(
            "too_large", f"texts of {len(wanted.texts)} and {len(found.texts)} words are too long to align"
        )
    spans = []
    for first, last, at, to in _differing(wanted.texts, found.texts):
        errors = Levenshtein.distance(" ".join(wanted.texts[first:last]), " ".join(found.texts[at:to]))
        spans.append(ErrorSpan(*wanted.span(first, last), *found.span(at, to), errors))
    return spans


def _words(text: str) -> _Words:
    words = list(_WORD.finditer(text))
    return _Words([normalise(word[0], "nfc") for word in words], [word.span() for word in words])


def _differing(wanted: Sequence[str], found: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges in both of neighbouring operations that are no match."""
    for equal, group in groupby(Levenshtein.opcodes(wanted, found), key=lambda step: step.tag == "equal"):
        if not equal:
            steps = list(group)
            yield steps[0].src_start, steps[-1].src_end, steps[0].dest_start, steps[-1].dest_end
