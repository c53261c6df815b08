"""Where evidence stands in a text, by plain search, and what stands beside it. Nothing of the ledger is asked.

A quote is found where its words follow each other with any white space between them. A quote that is not found, or found
twice, is no site.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

LONG = 40
"""A quote this long counts as a copy in any document; a shorter one only in its own."""
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"\d[\d.,:/%-]*\d|\d")

Span = tuple[int, int]


@dataclass(frozen=True)
class Unit:
    """A piece of evidence of the measured split.

    Attributes:
        query_id: query.
        evidence_id: evidence.
        doc_id: document that gold names.
        quote: passage, as it is searched for.
        critical: tokens that gold lists; None where it lists none.
        eligible: its caller may see the document; others are evidence all the same, but no sites.
    """

    query_id: str
    evidence_id: str
    doc_id: str
    quote: str
    critical: tuple[str, ...] | None
    eligible: bool = True

    @property
    def id(self) -> tuple[str, str]:
        """query_id, evidence_id."""
        return self.query_id, self.evidence_id

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Its words, with any white space between them."""
        return re.compile(r"\s+".join(re.escape(word) for word in self.quote.split()))

    @cached_property
    def flat(self) -> str:
        """Its words with one space between them."""
        return " ".join(self.quote.split())

    def reading(self, quote: str) -> Unit:
        """The same unit after an edit changed the wording that is to be searched for."""
        return replace(self, quote=quote)


def units_of(
    evidence: pl.DataFrame, queries: pl.DataFrame, split: str, hidden: Container[tuple[str, str]] = ()
) -> list[Unit]:
    """Quotes of the measured split, in order of query and evidence; `hidden`: units that their callers may not see."""
    measured = queries.filter(pl.col("split") == split).select("query_id")
    rows = evidence.join(measured, on="query_id", how="semi").sort("query_id", "evidence_id")
    return [
        Unit(
            row["query_id"],
            row["evidence_id"],
            row["doc_id"],
            unicodedata.normalize("NFC", row["quote"]),
            None if row["critical"] is None else tuple(row["critical"]),
            (row["query_id"], row["evidence_id"]) not in hidden,
        )
        for row in rows.iter_rows(named=True)
        if row["quote"] and row["quote"].strip()
    ]


@dataclass(frozen=True)
class Place:
    """A quote in a text."""

    unit: Unit
    start: int
    end: int


class Page:
    """One document's text and every quote that stands in it."""

    def __init__(self, doc_id: str, text: str, units: Iterable[Unit]) -> None:
        self.doc_id, self.text = doc_id, text
        flat = " ".join(text.split())
        self.places: list[Place] = []
        for unit in units:
            if (unit.doc_id == doc_id or len(unit.flat) >= LONG) and unit.flat in flat:
                self.places += [Place(unit, *match.span()) for match in unit.pattern.finditer(text)]

    def once(self, unit: Unit) -> Place | None:
        """Where a unit of this document stands, if it stands there once."""
        found = [place for place in self.places if place.unit.id == unit.id]
        return found[0] if len(found) == 1 else None

    def touched(self, start: int, end: int) -> tuple[tuple[str, str], ...]:
        """Units some of whose characters stand in [start, end)."""
        return tuple(sorted({p.unit.id for p in self.places if p.start < end and p.end > start}))

    def across(self, at: int) -> tuple[tuple[str, str], ...]:
        """Units with characters on both sides of a place."""
        return tuple(sorted({place.unit.id for place in self.places if place.start < at < place.end}))

    def critical(self, start: int, end: int) -> tuple[tuple[str, str], ...]:
        """Units one of whose critical tokens has characters in [start, end)."""
        hit = {
            place.unit.id
            for place in self.places
            if any(low < end and high > start for low, high in critical_spans(place, self.text))
        }
        return tuple(sorted(hit))

    @property
    def evidence(self) -> tuple[tuple[str, str], ...]:
        """Every unit that stands in this document."""
        return tuple(sorted({place.unit.id for place in self.places}))

    def free(self, start: int, end: int, margin: int = 1) -> bool:
        """No evidence in [start, end), nor within `margin` characters of it."""
        return not self.touched(start - margin, end + margin)

    def words(self) -> list[Span]:
        """Spans of everything between white space."""
        return [match.span() for match in _WORD.finditer(self.text)]

    def lines(self) -> list[Span]:
        """Spans of lines that are not blank."""
        spans, start = [], 0
        for line in self.text.split("\n"):
            if line.strip():
                spans.append((start, start + len(line)))
            start += len(line) + 1
        return spans


def critical_spans(place: Place, text: str) -> list[Span]:
    """Where the critical tokens of a quote stand in a text: those that gold lists, else its numbers."""
    inside = text[place.start : place.end]
    if place.unit.critical is None:
        found = [match.span() for match in _NUMBER.finditer(inside)]
    else:
        found = []
        for token in place.unit.critical:
            pattern = r"\s+".join(re.escape(word) for word in unicodedata.normalize("NFC", token).split())
            if pattern and (match := re.search(pattern, inside)):
                found.append(match.span())
    return [(place.start + low, place.start + high) for low, high in found]


def nearest_length(spans: Sequence[Span], length: int) -> list[Span]:
    """Spans, those nearest in length first; of equals the earlier one."""
    return sorted(spans, key=lambda span: (abs(span[1] - span[0] - length), span))
