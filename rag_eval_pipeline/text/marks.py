"""Citation marks in an answer, such as [p2] or 【1†source】: where they stand, and the answer without them.

Here: the marks alone. Not here: which claim a mark belongs to (`claims`), what an answer does (`refusals`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import regex

_MARK = regex.compile(r"(?:\[\^?(?P<ids>[^\[\]\s,;]+(?:\s*[,;]\s*[^\[\]\s,;]+)*)\]|【(?P<ids>[^】†]+)(?:†[^】]*)?】)")


@dataclass(frozen=True)
class Mark:
    """A citation mark.

    Attributes:
        start: first code point.
        end: behind the last one.
        ids: what it cites, in order.
    """

    start: int
    end: int
    ids: tuple[str, ...]


def marks_of(answer: str, known: Collection[str] = ()) -> Iterator[Mark]:
    """The marks of an answer, in order.

    Args:
        answer: the text.
        known: ids that may be cited; a bracket is a mark if all its ids are known or hold a digit.
    """
    for match in _MARK.finditer(answer):
        ids = tuple(part.strip() for part in regex.split(r"[,;]", match["ids"]) if part.strip())
        if ids and all(each in known or any(c.isdigit() for c in each) for each in ids):
            yield Mark(match.start(), match.end(), ids)


def blanked(answer: str, known: Collection[str] = ()) -> str:
    """An answer with spaces in place of its marks: every other code point stays where it is."""
    bare = list(answer)
    for mark in marks_of(answer, known):
        bare[mark.start : mark.end] = " " * (mark.end - mark.start)
    return "".join(bare)


def without_marks(answer: str, known: Collection[str] = ()) -> str:
    """An answer without its marks and the spaces before them: what it says, as wording is compared."""
    parts, at = [], 0
    for mark in marks_of(answer, known):
        parts.append(answer[at : mark.start].rstrip(" \u00a0"))
        at = mark.end
    return "".join((*parts, answer[at:])).strip() if parts else answer
