"""Where gold evidence can stand: units and their carriers, fixed before the pipeline is looked at.

Here: eligibility, the reference places of each quote, its copies in duplicate documents, critical tokens. Not here: what
the pipeline's texts still hold of them (the rooms' `evidence` modules, joined in `units`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.predicates import acl_admits, visible
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import needed_chars, visible_indexes
from rag_eval_pipeline.text.alignment import Location, occurrences
from rag_eval_pipeline.text.critical import critical_tokens, find_listed
from rag_eval_pipeline.text.entities import EntityFinder
from rag_eval_pipeline.text.normalise import normalise, normalise_with_map

WIDTH = 40
"""A copy in another document is recognised by at least this many characters."""
SHINGLE = 5
JACCARD = 0.8

CARRIERS: dict[str, Any] = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    "carrier": pl.Int64,
    "doc_id": pl.String,
    "kind": pl.String,
    "own": pl.Boolean,
    "quote": pl.String,
    "needed": pl.Int64,
    "token_from": pl.List(pl.Int64),
    "token_to": pl.List(pl.Int64),
    "token_kind": pl.List(pl.String),
    "place": pl.Int64,
    "before": pl.String,
    "after": pl.String,
    "ref_positions": pl.List(pl.Int64),
}


@dataclass(frozen=True)
class Unit:
    """One piece of gold evidence. `quote` is normalised; token ranges index its non-space characters."""

    query_id: str
    evidence_id: str
    doc_id: str
    kind: str
    quote: str
    start: int | None
    occurrence: int | None
    tokens: tuple[tuple[int, int], ...]
    kinds: tuple[str, ...]
    grade: int
    hop: int | None
    eligible: bool
    split: str
    principal: str | None

    @property
    def n_chars(self) -> int:
        """Non-space characters of the quote."""
        return len(visible_indexes(self.quote))


class Groups:
    """Union–find over document ids."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._parent: dict[str, str] = {}
        for a, b in pairs:
            self._parent[self.of(a)] = self.of(b)

    def of(self, item: str) -> str:
        """The group's representative; an item in no pair is its own."""
        while (parent := self._parent.get(item, item)) != item:
            item = parent
        return item

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """Members by representative, sorted."""
        found: dict[str, set[str]] = {}
        for item in self._parent:
            found.setdefault(self.of(item), set()).update((item, self._parent[item]))
        return {group: sorted(items) for group, items in found.items()}


@dataclass
class Library:
    """The documents as gold knows them: reference texts, labels of duplicates, revisions, and who may see what."""

    gold: Gold
    frames: Mapping[str, pl.DataFrame]
    form: str
    _visible: dict[str | None, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def references(self) -> dict[str, str]:
        """Reference text by document."""
        return dict(self.gold.references.select("doc_id", "text").iter_rows())

    @cached_property
    def texts(self) -> dict[str, str]:
        """Text in which gold is looked up: the reference, else what was parsed."""
        parsed = self.frames.get("parsed")
        read = dict(parsed.select("doc_id", "text").iter_rows()) if parsed is not None else {}
        return {doc_id: text for doc_id, text in (read | self.references).items() if text.strip()}

    @cached_property
    def documents(self) -> frozenset[str]:
        """Documents of this version; without a documents table, all that gold and pipeline have a text of."""
        frame = self.frames.get("documents")
        return frozenset(frame["doc_id"].to_list() if frame is not None else self.texts)

    @cached_property
    def duplicates(self) -> Groups:
        """Groups of labelled duplicates."""
        labels = self.gold.duplicates.filter("duplicate")
        return Groups(labels.select("doc_a", "doc_b").iter_rows())

    @cached_property
    def revisions(self) -> Groups:
        """Chains of revisions."""
        frame = self.frames.get("documents")
        if frame is None or "supersedes" not in frame.columns:
            return Groups([])
        return Groups(frame.filter(pl.col("supersedes").is_not_null()).select("doc_id", "supersedes").iter_rows())

    @cached_property
    def different(self) -> set[frozenset[str]]:
        """Pairs of documents, and pairs of duplicate groups, that are labelled not to be duplicates."""
        rows = self.gold.duplicates.filter(~pl.col("duplicate")).select("doc_a", "doc_b").rows()
        groups = {frozenset((self.duplicates.of(a), self.duplicates.of(b))) for a, b in rows}
        return {frozenset(row) for row in rows} | {pair for pair in groups if len(pair) == 2}

    @cached_property
    def languages(self) -> dict[str, str]:
        """Language by document as declared or labelled; never as detected, which is the pipeline's work."""
        labelled = dict(self.gold.languages.select("doc_id", "language").iter_rows())
        frame = self.frames.get("documents")
        if frame is None or "language" not in frame.columns:
            return labelled
        return labelled | dict(frame.select("doc_id", "language").drop_nulls().iter_rows())

    @cached_property
    def shingles(self) -> dict[str, frozenset[str]]:
        """Shingles of documents, filled as they are asked for."""
        return {}

    def admitted(self, principal: str | None) -> frozenset[str]:
        """Documents of the version that a principal may see."""
        if principal not in self._visible:
            frame = self.frames.get("documents")
            if frame is None:
                self._visible[principal] = self.documents
            else:
                seen = frame.filter(visible(frame, principal, self.gold.principals))
                self._visible[principal] = frozenset(seen["doc_id"].to_list())
        return self._visible[principal]

    def eligible(self, doc_id: str, principal: str | None, acl: list[str] | None) -> bool:
        """Whether the caller may see a document. One that is absent is visible unless its evidence row's acl forbids."""
        if doc_id in self.documents:
            return doc_id in self.admitted(principal)
        return acl_admits(acl, principal, self.gold.principals) if acl else True

    def copies_allowed(self, doc_id: str, other: str, principal: str | None) -> bool | None:
        """Whether `other` may carry what stands in `doc_id`: True labelled, False never, None if Jaccard decides."""
        if other == doc_id or other not in self.admitted(principal):
            return False
        if self.revisions.of(doc_id) == self.revisions.of(other):
            return False
        a, b = self.duplicates.of(doc_id), self.duplicates.of(other)
        if frozenset((doc_id, other)) in self.different or frozenset((a, b)) in self.different:
            return False
        return True if a == b else None

    def alike(self, doc_id: str, other: str) -> bool:
        """Whether two documents' texts have a shingle Jaccard of at least 0.8."""
        a, b = self._shingles(doc_id), self._shingles(other)
        if min(len(a), len(b)) < JACCARD * max(len(a), len(b)):
            return False
        return len(a & b) >= JACCARD * len(a | b)

    def _shingles(self, doc_id: str) -> frozenset[str]:
        if doc_id not in self.shingles:
            text = normalise(self.texts.get(doc_id, ""), self.form)
            pieces = {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}
            self.shingles[doc_id] = frozenset(pieces)
        return self.shingles[doc_id]


def gold_units(library: Library, settings: Settings) -> list[Unit]:
    """Units of the measured split: evidence rows, and relevant judged documents of queries that have no evidence row."""
    gold, evaluate = library.gold, settings.evaluate
    queries = gold.queries.filter(pl.col("split") == evaluate.split).select("query_id", "split", "principal")
    evidence = gold.evidence.join(queries, on="query_id").sort("query_id", "evidence_id")
    judged = (
        gold.qrels.filter(pl.col("grade") >= evaluate.rel_level)
        .join(gold.evidence.select("query_id").unique(), on="query_id", how="anti")
        .join(queries, on="query_id")
        .sort("query_id", "doc_id")
    )
    entities = EntityFinder(settings.ledger.entity_models) if settings.ledger.entities == "spacy" else None
    units = [_quote_unit(row, library, entities) for row in evidence.iter_rows(named=True)]
    return units + [
        Unit(
            row["query_id"], row["doc_id"], row["doc_id"], "document", "", None, None, (), (), row["grade"], None,
            library.eligible(row["doc_id"], row["principal"], None), row["split"], row["principal"],
        )
        for row in judged.iter_rows(named=True)
    ]  # fmt: skip


def _quote_unit(row: dict[str, Any], library: Library, entities: EntityFinder | None) -> Unit:
    raw = row["quote"]
    if raw is None:
        raw = library.references.get(row["doc_id"], "")[row["start"] : row["end"]]
    tokens = _token_ranges(raw, row["critical"], library.languages.get(row["doc_id"]), library.form, entities)
    return Unit(
        row["query_id"], row["evidence_id"], row["doc_id"], "quote", normalise(raw, library.form), row["start"],
        row["occurrence"], tuple(tokens), tuple(tokens.values()),
        1 if row["grade"] is None else row["grade"], row["hop"],
        library.eligible(row["doc_id"], row["principal"], row["acl"]), row["split"], row["principal"],
    )  # fmt: skip


def _token_ranges(
    raw: str, listed: list[str] | None, language: str | None, form: str, entities: EntityFinder | None
) -> dict[tuple[int, int], str]:
    """Critical tokens as ranges of the quote's non-space characters, in order; with their kinds.

    An entity that lies in another token, or is one, is guarded by that. What gold lists is the whole list.
    """
    tokens = find_listed(raw, listed, language) if listed is not None else critical_tokens(raw, language)
    if entities is not None and listed is None:
        named = entities(raw, language)
        tokens = tokens + [e for e in named if not any(t.start <= e.start and e.end <= t.end for t in tokens)]
    normalised, offsets = normalise_with_map(raw, form)
    index_of = np.searchsorted(visible_indexes(normalised), np.arange(len(normalised) + 1))
    ranges: dict[tuple[int, int], str] = {}
    for token in tokens:
        place = offsets.forward_range(token.start, token.end)
        if place is not None and index_of[place[0]] < index_of[place[1]]:
            ranges.setdefault((int(index_of[place[0]]), int(index_of[place[1]])), token.kind)
    return dict(sorted(ranges.items()))


def carriers(units: list[Unit], library: Library, hold: float) -> pl.DataFrame:
    """All places that can carry a unit, numbered from 0 in their unit: its own document's first, then copies by doc_id."""
    copies = _copies(units, library)
    rows = []
    for unit in units:
        places = _own(unit, library)
        places += copies.get((unit.query_id, unit.evidence_id), [])
        ranges = {
            "token_from": [a for a, _ in unit.tokens],
            "token_to": [b for _, b in unit.tokens],
            "token_kind": list(unit.kinds),
        }
        for number, place in enumerate(places):
            rows.append(
                place
                | ranges
                | {
                    "query_id": unit.query_id,
                    "evidence_id": unit.evidence_id,
                    "carrier": number,
                    "kind": unit.kind,
                    "own": place["doc_id"] == unit.doc_id,
                    "quote": unit.quote,
                    "needed": needed_chars(unit.n_chars, hold),
                }
            )
    return pl.DataFrame(rows, schema=CARRIERS, orient="row")


def _own(unit: Unit, library: Library) -> list[dict[str, Any]]:
    nowhere = {"doc_id": unit.doc_id, "place": 0, "before": "", "after": "", "ref_positions": []}
    text = library.texts.get(unit.doc_id)
    if unit.kind == "document" or text is None:
        return [nowhere]
    found = occurrences(unit.quote, text, library.form)
    if not found:
        return [nowhere]
    chosen = range(len(found))
    if unit.start is not None:
        start = unit.start
        nearest = min(chosen, key=lambda i: abs(found[i].start - start))
        chosen = range(nearest, nearest + 1)
    elif unit.occurrence is not None:
        number = min(unit.occurrence, len(found)) - 1
        chosen = range(number, number + 1)
    return [_place(unit.doc_id, index, found[index], library) for index in chosen]


def _place(doc_id: str, index: int, place: Location, library: Library) -> dict[str, Any]:
    text = library.texts[doc_id]
    referenced = doc_id in library.references
    before = text[place.start - 1 : place.start] if place.start else ""
    after = text[place.end : place.end + 1]
    return {
        "doc_id": doc_id,
        "place": index,
        # What stands beside the quote is known for the source only: a parsed text's neighbours may be its faults.
        "before": before if referenced and not before.isspace() else "",
        "after": after if referenced and not after.isspace() else "",
        "ref_positions": place.positions.tolist() if referenced else [],
    }


def _copies(units: list[Unit], library: Library) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Copies of quotes in other documents: the first 40 characters of all quotes are looked for in one pass."""
    wide: dict[tuple[str, str], tuple[str, int]] = {}
    for unit in units:
        if unit.kind == "quote" and unit.quote and (widened := _widened(unit, library)) is not None:
            wide[(unit.query_id, unit.evidence_id)] = widened
    hits = _documents_with({text[:WIDTH] for text, _ in wide.values()}, library)
    result: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for unit in units:
        key = (unit.query_id, unit.evidence_id)
        if key not in wide:
            continue
        text, skip = wide[key]
        for other in hits.get(text[:WIDTH], []):
            allowed = library.copies_allowed(unit.doc_id, other, unit.principal)
            if allowed or (allowed is None and library.alike(unit.doc_id, other)):
                result.setdefault(key, []).extend(_copies_in(unit, other, text, skip, library))
    return result


def _widened(unit: Unit, library: Library) -> tuple[str, int] | None:
    """The quote, widened by its surroundings to 40 characters, and how many non-space characters stand before it."""
    if len(unit.quote) >= WIDTH:
        return unit.quote, 0
    places = _own(unit, library)
    text = library.texts.get(unit.doc_id)
    if text is None:
        return None
    found = occurrences(unit.quote, text, library.form)
    if not found:
        return None
    own = found[places[0]["place"]]
    start, end = own.start, own.end
    while len(widened := normalise(text[start:end], library.form)) < WIDTH and (start > 0 or end < len(text)):
        start, end = max(0, start - 1), min(len(text), end + 1)
    return widened, len(visible_indexes(normalise(text[start : own.start], library.form)))


def _documents_with(keys: set[str], library: Library) -> dict[str, list[str]]:
    if not keys:
        return {}
    doc_ids = sorted(library.documents & library.texts.keys())
    texts = pl.Series([normalise(library.texts[doc_id], library.form) for doc_id in doc_ids], dtype=pl.String)
    found = texts.str.extract_many(sorted(keys), overlapping=True).list.unique(maintain_order=True)
    hits: dict[str, list[str]] = {}
    for doc_id, matched in zip(doc_ids, found.to_list(), strict=True):
        for key in matched or []:
            hits.setdefault(key, []).append(doc_id)
    return hits


def _copies_in(unit: Unit, other: str, text: str, skip: int, library: Library) -> list[dict[str, Any]]:
    source = library.texts[other]
    starts = {
        int(place.positions[skip])
        for place in occurrences(text, source, library.form)
        if len(place.positions) >= skip + unit.n_chars
    }
    found = occurrences(unit.quote, source, library.form)
    return [_place(other, index, place, library) for index, place in enumerate(found) if place.start in starts]
