"""How faithfully a text was extracted: character and word error rates, coverage, bag-of-words precision and recall.

Here: one reference against one output. Not here: aggregates by document class (the parsing room).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rapidfuzz.distance import LCSseq, Levenshtein

from rag_eval_pipeline.measures.metric import Valued
from rag_eval_pipeline.text.normalise import normalise


@dataclass(frozen=True)
class Measured(Valued):
    """A ratio of counts, or why there is none.

    Attributes:
        value: numerator / denominator; None where `status` says why.
        status: `scored`, or the reason.
        numerator: count above.
        denominator: count below.
        inserted: units of the output without a counterpart, where the reference is empty.
    """

    value: float | None
    status: str
    numerator: int
    denominator: int
    inserted: int = 0


@dataclass(frozen=True)
class Coverage:
    """Word agreement of an output with its reference.

    Attributes:
        coverage: reference words matched in order / reference words.
        invented: output words unmatched in order / output words.
        word_precision: output words found in the reference in any order / output words.
        word_recall: reference words found in the output in any order / reference words.
    """

    coverage: Measured
    invented: Measured
    word_precision: Measured
    word_recall: Measured


def cer(reference: str, output: str, form: str = "nfc+ws") -> Measured:
    """Character error rate: (S + D + I) / code points of the reference, after normalisation; may exceed 1.

    Both empty: 0. Only the reference empty: no value, `empty_reference`, and the number of inserted characters.
    """
    return _error_rate(_characters(reference, form), _characters(output, form))


def wer(reference: str, output: str, form: str = "nfc+ws") -> Measured:
    """Word error rate: as `cer` over words split at white space."""
    return _error_rate(_words(reference, form), _words(output, form))


def coverage(reference: str, output: str, form: str = "nfc+ws") -> Coverage:
    """Share of reference words that the output has, and of output words that the reference has not.

    "In order" counts the longest common subsequence: unlike the hits of a least-edit alignment it is one number.
    """
    expected, found = _words(reference, form), _words(output, form)
    matched = LCSseq.similarity(expected, found)
    shared = (Counter(expected) & Counter(found)).total()
    return Coverage(
        coverage=_share(matched, len(expected), "empty_reference", inserted=len(found)),
        invented=_share(len(found) - matched, len(found), "empty_output"),
        word_precision=_share(shared, len(found), "empty_output"),
        word_recall=_share(shared, len(expected), "empty_reference", inserted=len(found)),
    )


def _words(text: str, form: str) -> list[str]:
    """Words of the normalised text. White space parts them whatever its length, so it need not be levelled first."""
    return normalise(text, "nfc" if form == "nfc+ws" else form).split()


def _characters(text: str, form: str) -> str:
    """The normalised text; under `nfc+ws` its words joined, which is the same and takes a third of the time."""
    return " ".join(_words(text, form)) if form == "nfc+ws" else normalise(text, form)


def _error_rate(reference: str | list[str], output: str | list[str]) -> Measured:
    if not reference:
        if not output:
            return Measured(0.0, "scored", 0, 0)
        return Measured(None, "empty_reference", len(output), 0, inserted=len(output))
    errors = Levenshtein.distance(reference, output)
    return Measured(errors / len(reference), "scored", errors, len(reference))


def _share(numerator: int, denominator: int, empty: str, inserted: int = 0) -> Measured:
    if denominator == 0:
        return Measured(None, empty, numerator, 0, inserted=inserted)
    return Measured(numerator / denominator, "scored", numerator, denominator)
