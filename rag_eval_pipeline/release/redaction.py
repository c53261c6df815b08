"""The personal strings of an evaluation, and where they stand in its texts: what is hidden wherever text is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.table import Table, integer, string, table

TERMS = "pii_terms"
PLACES = "pii_places"
NEAR = 40
"""Characters beside a labelled span within which its place is looked for where the parser changed the span itself."""


@table(
    TERMS,
    "One row a personal string of the evaluation, predicted or labelled: what the redactor hides. Never published.",
)
class PiiTerms(Table):
    """Working store only."""

    term = string("The string", privacy="source", key=True)
    origin = string("labelled | predicted", key=True)


@table(
    PLACES,
    "One row a personal place in a text: predicted spans, and labelled ones as alignment and offset maps carry them.",
)
class PiiPlaces(Table):
    """Offsets and types, never text. Predicted spans have none in the masked text: there they are replaced."""

    doc_id = string("Document", key=True)
    layer = string("parsed | clean | masked", key=True)
    start = integer("First character in that text", key=True)
    end = integer("One past the last", key=True)
    type = string("Entity type", key=True)
    origin = string("labelled | predicted", key=True)


def personal(subject: Subject) -> dict[str, pl.DataFrame]:
    """Both tables of a subject."""
    gold = subject.version.gold
    places = pii_places(
        {name: subject.frame(name) for name in ("parsed", "cleaned", "masked", "pii_spans")}, gold.pii, gold.references
    )
    return pii_terms(subject) | {PLACES: places}


def pii_places(frames: Mapping[str, pl.DataFrame], labels: pl.DataFrame, references: pl.DataFrame) -> pl.DataFrame:
    """Where personal data stands in the parsed, clean and masked texts.

    Args:
        frames: parsed, cleaned, masked, pii_spans.
        labels: gold pii: doc_id, spans in the reference text (the parsed text where there is none).
        references: gold references: doc_id, text.

    Returns:
        Rows of `PiiPlaces`. A labelled span that the parser changed is placed between what stands beside it.
    """
    texts = dict(references.select("doc_id", "text").iter_rows())
    labelled = {doc_id: spans for doc_id, spans in labels.select("doc_id", "spans").iter_rows() if spans}
    predicted: dict[str, list[tuple[int, int, str]]] = {}
    for doc_id, start, end, kind in frames["pii_spans"].select("doc_id", "start", "end", "type").iter_rows():
        predicted.setdefault(doc_id, []).append((start, end, kind))
    wanted = pl.DataFrame({"doc_id": sorted(labelled.keys() | predicted.keys())}, schema={"doc_id": pl.String})
    joined = (
        wanted.join(frames["parsed"].select("doc_id", "text"), on="doc_id")
        .join(frames["cleaned"].select("doc_id", cleaned="offsets"), on="doc_id", how="left")
        .join(frames["masked"].select("doc_id", masked="offsets"), on="doc_id", how="left")
    )
    rows: set[tuple[Any, ...]] = set()
    for row in joined.iter_rows(named=True):
        doc_id, parsed = row["doc_id"], row["text"] or ""
        clean, masked = OffsetMap(row["cleaned"] or []), OffsetMap(row["masked"] or [])
        for start, end, kind in predicted.get(doc_id, []):
            rows.add((doc_id, "clean", start, end, kind, "predicted"))
            rows |= {(doc_id, "parsed", low, high, kind, "predicted") for low, high in clean.source(start, end)}
        for start, end, kind in _carried(labelled.get(doc_id, []), texts.get(doc_id, parsed), parsed):
            rows.add((doc_id, "parsed", start, end, kind, "labelled"))
            for layer, offsets in (("clean", clean), ("masked", masked)):
                place = offsets.forward_range(start, end)
                if place is None:
                    break
                start, end = place
                rows.add((doc_id, layer, start, end, kind, "labelled"))
    schema = {"doc_id": pl.String, "layer": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String}
    return pl.DataFrame(sorted(rows), schema=schema | {"origin": pl.String}, orient="row")


def _carried(spans: list[dict[str, Any]], reference: str, parsed: str) -> Iterator[tuple[int, int, str]]:
    if not spans:
        return
    offsets = derive(parsed, reference)
    for span in spans:
        place = _place(offsets, span["start"], span["end"], len(reference))
        if place is not None:
            yield *place, span["type"] or "PII"


def _place(offsets: OffsetMap, start: int, end: int, length: int) -> tuple[int, int] | None:
    """The hull of what is left of a span, widened to its neighbours where those are near: what was misread lies between."""
    around = np.arange(max(0, start - NEAR), min(length, end + NEAR))
    there = offsets.forward(around)
    inside, before, after = (
        there[mask & (there >= 0)]
        for mask in ((around >= start) & (around < end), around < start, around >= end)
    )  # fmt: skip
    most = 2 * (end - start) + 10
    low, high = (int(inside.min()), int(inside.max()) + 1) if inside.size else (None, None)
    left = int(before[-1]) + 1 if before.size else 0
    right = int(after[0]) if after.size else (high if high is not None else left)
    if left < right and right - left <= most and (low is None or (left <= low and high is not None and right >= high)):
        return left, right
    return None if low is None or high is None else (low, high)


def pii_terms(subject: Subject) -> dict[str, pl.DataFrame]:
    """Personal strings of a subject: labelled in the reference texts, predicted in the clean texts."""
    gold = subject.version.gold
    references = dict(gold.references.iter_rows())
    labelled = {
        references[doc_id][span["start"] : span["end"]]
        for doc_id, spans in gold.pii.iter_rows()
        if doc_id in references
        for span in spans
    }
    texts = dict(subject.frame("cleaned").select("doc_id", "text").iter_rows())
    spans = subject.frame("pii_spans").select("doc_id", "start", "end").iter_rows()
    predicted = {texts[doc_id][start:end] for doc_id, start, end in spans}
    rows = [
        {"term": term, "origin": origin}
        for origin, terms in (("labelled", labelled), ("predicted", predicted))
        for term in sorted(terms)
        if term.strip()
    ]
    return {TERMS: pl.DataFrame(rows, schema={"term": pl.String, "origin": pl.String})}
