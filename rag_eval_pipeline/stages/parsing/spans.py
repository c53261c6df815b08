"""Where documents were read worst: the table `fidelity_spans`: offsets, kinds, lengths, and a few masked words around them.

Here: which places are listed. Not here: rates (`quality`), masking (`stages.excerpts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.errors import ErrorSpan, error_spans
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.stages.excerpts import Hidden, Places, excerpt, labelled
from rag_eval_pipeline.warehouse.table import Table, conform, integer, string, table

WORST = 20
"""Spans that are kept of a document."""


@table(
    "fidelity_spans", f"The {WORST} worst spans of each document with a reference text: where its parsed text differs."
)
class FidelitySpans(Table):
    """Places in both texts; what stands there with personal data masked."""

    doc_id = string("Document", key=True)
    rank = integer("1 is the span with most wrong characters", key=True)
    kind = string("lost | invented | replaced; too_large: texts too long to align, one row for all of them")
    errors = integer("Characters substituted, lost and inserted; NULL where too_large", null=True, unit="char")
    reference_start = integer("First code point in the reference text")
    reference_end = integer("One past the last; the start itself where nothing was lost")
    start = integer("First code point in the parsed text")
    end = integer("One past the last; the start itself where nothing was read")
    page = integer("Page of the place in the parsed text, from 1", null=True)
    expected = string(
        "The place in the reference text in brackets and a few words around it, masked", privacy="masked", null=True
    )
    found = string("The same of the parsed text, masked", privacy="masked", null=True)


def fidelity_spans(
    frames: Mapping[str, pl.DataFrame],
    references: pl.DataFrame,
    pii: pl.DataFrame | None = None,
    places: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The table.

    Args:
        frames: `parsed` and `blocks`.
        references: doc_id, text.
        pii: labels of personal data in the reference texts.
        places: `pii_places`, for the parsed texts.
    """
    in_reference, in_parsed = labelled(pii) if pii is not None else {}, Places(places)
    texts = frames["parsed"].select("doc_id", "text").join(
        references.select("doc_id", pl.col("text").alias("reference")), on="doc_id"
    )  # fmt: skip
    blocks = frames["blocks"].filter(pl.col("page").is_not_null()).sort("doc_id", "start")
    pages = {
        doc_id: (starts, numbers)
        for doc_id, starts, numbers in blocks.group_by("doc_id", maintain_order=True).agg("start", "page").iter_rows()
    }
    rows: list[dict[str, Any]] = []
    for doc_id, text, reference in texts.sort("doc_id").iter_rows():
        rows += [
            {
                **row,
                "doc_id": doc_id,
                "rank": rank,
                "page": _page(pages.get(doc_id), row["start"]),
                **_shown(row, reference, text, in_reference.get(doc_id, []), in_parsed.of(doc_id, "parsed")),
            }
            for rank, row in enumerate(_worst(reference, text), 1)
        ]
    return conform(FidelitySpans, rows)


def _shown(
    row: Mapping[str, Any], reference: str, text: str, in_reference: list[Hidden], in_parsed: list[Hidden]
) -> dict[str, str]:
    if row["errors"] is None:  # the whole document: there is no place to show
        return {}
    return {
        "expected": excerpt(reference, row["reference_start"], row["reference_end"], in_reference),
        "found": excerpt(text, row["start"], row["end"], in_parsed),
    }


def _worst(reference: str, text: str) -> list[dict[str, Any]]:
    try:
        spans = error_spans(reference, text)
    except Unmeasured as reason:
        whole = ErrorSpan(0, len(reference), 0, len(text), 0)
        return [{**_row(whole), "kind": reason.reason, "errors": None}]
    return [_row(span) for span in sorted(spans, key=lambda span: (-span.errors, span.start, span.out_start))[:WORST]]


def _row(span: ErrorSpan) -> dict[str, Any]:
    return {
        "kind": span.kind,
        "errors": span.errors,
        "reference_start": span.start,
        "reference_end": span.end,
        "start": span.out_start,
        "end": span.out_end,
    }


def _page(pages: tuple[list[int], list[int]] | None, place: int) -> int | None:
    """Page of the last block that begins at this place or before it."""
    if pages is None:
        return None
    starts, numbers = pages
    return numbers[max(bisect_right(starts, place) - 1, 0)]
