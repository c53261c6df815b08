"""Languages inside a document: which parts of a parsed text are in which language.

Here: cutting a text into parts by its blocks, and which parts speak for themselves. Not here: detectors (`transform`), and
what follows for chunks (the chunking room).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LETTERS = 60
"""A part with fewer letters says too little; it goes with its neighbour."""
SURE = 0.95
"""Confidence from which on a part may be in another language than its document."""
MOST = 2_000
"""Parts of one document; those of a longer one are made longer."""
MOVED = frozenset({"code"})
"""Kinds of blocks that are in no language."""
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")
_ENDS = (".", "!", "?", "…", "。", "！", "？", "؟", "।", ";", '."', ".”", ".»", ".)")
Detect = Callable[[str], tuple[str, float | None]]


class Section(NamedTuple):
    """A part of a text in one language. `score` is the least confidence of its parts; None where it has none."""

    start: int
    end: int
    language: str
    score: float | None
    letters: int
    status: str


class _Part(NamedTuple):
    start: int
    end: int
    letters: int


def sections(text: str, blocks: Sequence[Mapping[str, Any]] | None, document: str, detect: Detect) -> list[Section]:
    """Sections of a text in order; together they cover it.

    Args:
        text: the parsed text.
        blocks: start, end and kind of its blocks; None or empty: paragraphs are parted by blank lines.
        document: language of the whole document, which parts have that say too little.
        detect: language and confidence of a text.

    Returns:
        One section for a text in one language. `status` is ok, or document where no part spoke for itself.
    """
    found: list[Section] = []
    for part in _parts(text, blocks):
        language, score, status = document, None, "document"
        if part.letters >= LETTERS:
            told, how_sure = detect(text[part.start : part.end])
            if told == document or how_sure is None or how_sure >= SURE:
                language, score, status = told, how_sure, "ok"
        section = Section(part.start, part.end, language, score, part.letters, status)
        if found and found[-1].language == language:
            found[-1] = _joined(found[-1], section)
        else:
            found.append(section)
    return _covering(found, len(text)) or [Section(0, len(text), document, None, 0, "document")]


def _joined(first: Section, second: Section) -> Section:
    scores = [score for score in (first.score, second.score) if score is not None]
    status = "ok" if "ok" in (first.status, second.status) else "document"
    return Section(
        first.start, second.end, first.language, min(scores, default=None), first.letters + second.letters, status
    )


def _covering(found: list[Section], length: int) -> list[Section]:
    """What stands between two sections belongs to the first of them."""
    edges = [0, *(section.start for section in found[1:]), length]
    return [section._replace(start=edges[i], end=edges[i + 1]) for i, section in enumerate(found)]


def _parts(text: str, blocks: Sequence[Mapping[str, Any]] | None) -> Iterator[_Part]:
    """Neighbouring blocks joined until they have letters enough.

    A heading goes with what follows it, a short rest with what stands before it.
    """
    spans = list(_spans(text, blocks))
    least = LETTERS if len(spans) <= MOST else max(LETTERS, 2 * len(text) // MOST)
    waiting: _Part | None = None
    ready: list[_Part] = []
    for start, end, heads in spans:
        letters = sum(map(str.isalpha, text[start:end]))
        part = _Part(start, end, letters) if waiting is None else _Part(waiting.start, end, waiting.letters + letters)
        if part.letters >= least:
            ready.append(part)
            waiting = None
        elif heads or waiting is not None or not ready:
            waiting = part
        else:
            ready[-1] = _Part(ready[-1].start, end, ready[-1].letters + letters)
    if waiting is not None and ready:
        ready[-1] = _Part(ready[-1].start, waiting.end, ready[-1].letters + waiting.letters)
    elif waiting is not None:
        ready.append(waiting)
    yield from ready


def _spans(text: str, blocks: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether it heads what follows) of blocks, or of paragraphs: those without an end are taken for headings."""
    if not blocks:
        for match in _PARAGRAPH.finditer(text):
            yield *match.span(), not match[0].rstrip().endswith(_ENDS)
        return
    position = 0
    for block in sorted(blocks, key=lambda block: (block["start"], block["end"])):
        start = max(block["start"], position)
        if block["end"] > start and block["kind"] not in MOVED:
            yield start, block["end"], block["kind"] == "heading"
            position = block["end"]
