"""A place in a text with a few words around it, personal data masked: what a listing shows a person.

Here: cutting and masking. Not here: where personal data stands (`release.redaction`), which places are listed (rooms).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

AROUND = 40
"""Characters that are shown on each side of a place."""
LONGEST = 120
"""Characters of the place itself that are shown; the middle of a longer one is left out."""
Hidden = tuple[int, int, str]


class Places:
    """Personal places by document and layer, as `pii_places` has them."""

    def __init__(self, places: pl.DataFrame | None) -> None:
        self._by_text: dict[tuple[str, str], list[Hidden]] = {}
        if places is not None:
            columns = places.sort("doc_id", "layer", "start", "end").select("doc_id", "layer", "start", "end", "type")
            for doc_id, layer, *place in columns.iter_rows():
                self._by_text.setdefault((doc_id, layer), []).append((place[0], place[1], place[2]))

    def of(self, doc_id: str, layer: str) -> list[Hidden]:
        """Places in one text, in order."""
        return self._by_text.get((doc_id, layer), [])


def labelled(pii: pl.DataFrame) -> Mapping[str, list[Hidden]]:
    """Labelled personal spans by document, in the reference text."""
    return {
        doc_id: sorted((span["start"], span["end"], span["type"] or "PII") for span in spans or ())
        for doc_id, spans in pii.select("doc_id", "spans").iter_rows()
    }


def excerpt(text: str, start: int, end: int, hidden: Sequence[Hidden] = ()) -> str:
    """`before [place] after` on one line; every personal place that it touches is shown as its type alone.

    Args:
        text: the whole text.
        start: first character of the place.
        end: one past the last; `start` itself where the place is between two characters.
        hidden: personal places in `text`, sorted.
    """
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    place = _masked(text, start, end, hidden)
    if len(place) > LONGEST:
        place = f"{place[: LONGEST // 2]} … {place[-LONGEST // 2 :]}"
    before, after = _masked(text, low, start, hidden), _masked(text, end, high, hidden)
    return f"{_line(before)}[{_line(place)}]{_line(after)}"


def _line(text: str) -> str:
    """On one line, white space at its ends kept as one space, signs that nobody sees written out."""
    joined = " ".join(text.split())
    lead, trail = text[:1].isspace() and joined, text[-1:].isspace() and joined
    shown = "".join(c if c.isprintable() or c == " " else f"\\u{ord(c):04x}" for c in joined)
    return f"{' ' if lead else ''}{shown}{' ' if trail else ''}"


def _masked(text: str, low: int, high: int, hidden: Sequence[Hidden]) -> str:
    """A piece of the text. A personal place that reaches into it is masked whole: no half of a name is left."""
    parts, position = [], low
    for start, end, kind in _touching(hidden, low, high):
        if end <= position:
            continue
        parts += [text[position : max(start, position)], f"<{kind}>"]
        position = min(end, high)
    return "".join([*parts, text[position:high]])


def _touching(hidden: Sequence[Hidden], low: int, high: int) -> Iterable[Hidden]:
    """Places that share a character with a range."""
    last = bisect_right(hidden, high, key=lambda place: place[0])
    return (place for place in hidden[:last] if place[1] > low and place[0] < high)
