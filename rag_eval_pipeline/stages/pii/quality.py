"""How well personal data was found: by type, strictly, by overlap and by character; what leaked and what was masked in vain.

Labels stand in the reference text; they are carried to the clean text by alignment and by the cleaner's own map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.spans import ALL, MODES, Counts, mask_prf, span_scores
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

INF = float("inf")
METRICS: tuple[Metric, ...] = (
    Metric(
        "pii_precision",
        "Predicted spans (characters) that are labelled / predicted; unit says span, overlap or char",
        "higher",
    ),
    Metric("pii_recall", "Labelled spans (characters) that were found / labelled", "higher"),
    Metric("pii_f1", "Harmonic mean of precision and recall", "higher"),
    Metric("leaked_chars", "Labelled characters that the masked text still shows", "lower", 0, INF, "chars"),
    Metric("over_redacted_chars", "Masked characters that are not labelled", "lower", 0, INF, "chars"),
    Metric(
        "pii_gold_removed",
        "Labelled spans that cleaning had removed before: neither found nor leaked",
        "neither",
        0,
        INF,
        "spans",
    ),
)
UNITS = {"strict": "span", "overlap": "overlap", "char": "char"}


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Judge the documents that were kept and have labels (an empty list is a label); others are NULL `no_gold`."""
    kept = frames["masked"].select("doc_id", "status")
    labels = dict(gold.pii.select("doc_id", "spans").iter_rows())
    texts = _texts(frames, gold, [doc_id for doc_id in kept["doc_id"] if doc_id in labels])
    predicted = _predicted(frames["pii_spans"])
    totals: dict[tuple[str, str], Counts] = {}
    rows: list[dict[str, Any]] = []
    removed = 0
    for doc_id, status in kept.sort("doc_id").iter_rows():
        if doc_id not in labels:
            rows += _document_rows(doc_id, None, "no_gold")
            continue
        carried = carry([(s["start"], s["end"], s["type"]) for s in labels[doc_id] or ()], *texts[doc_id])
        expected = [span for span in carried if span is not None]
        removed += len(carried) - len(expected)
        found = predicted.get(doc_id, [])
        for key, counts in span_scores(expected, found).items():
            totals[key] = totals.get(key, Counts()) + counts
        masked = mask_prf(_ranges(expected), _ranges(found))
        if status not in {"ok", "empty"}:
            rows += _document_rows(doc_id, None, status)
        else:
            rows += _document_rows(doc_id, masked, "scored")
    rows += _type_rows(totals, config)
    gone = {"value": float(removed)} if labels else {"value": None, "status": "no_gold"}
    rows.append(measurement("pii_gold_removed", "corpus", ALL, unit="span", **gone))
    return measurements(rows)


def _texts(frames: Mapping[str, pl.DataFrame], gold: Gold, wanted: list[str]) -> dict[str, tuple[str, str, OffsetMap]]:
    """Reference, parsed text and clean map of the judged documents only."""
    chosen = pl.DataFrame({"doc_id": wanted}, schema={"doc_id": pl.String})
    joined = (
        chosen.join(gold.references.select("doc_id", pl.col("text").alias("reference")), on="doc_id", how="left")
        .join(frames["parsed"].select("doc_id", pl.col("text").alias("parsed")), on="doc_id", how="left")
        .join(frames["cleaned"].select("doc_id", "offsets"), on="doc_id", how="left")
    )
    # Labels without a reference are refused when gold is loaded; the parsed text then is the only text there is.
    return {
        row["doc_id"]: (
            row["reference"] if row["reference"] is not None else row["parsed"] or "",
            row["parsed"] or "",
            OffsetMap(row["offsets"] or []),
        )
        for row in joined.iter_rows(named=True)
    }


def carry(
    spans: list[tuple[int, int, str]], reference: str, parsed: str, clean: OffsetMap
) -> list[tuple[int, int, str] | None]:
    """Spans of the reference text as spans of the clean text; None where no character of it is left."""
    places = derive(parsed, reference)
    carried: list[tuple[int, int, str] | None] = []
    for start, end, kind in spans:
        there = [int(place) for place in places.forward(np.arange(start, end)) if place >= 0]
        # `forward_range`, not `forward`: a letter that cleaning composed with its accent is still there.
        ranges = [found for place in there if (found := clean.forward_range(place, place + 1))]
        carried.append((min(r[0] for r in ranges), max(r[1] for r in ranges), kind) if ranges else None)
    return carried


def _predicted(spans: pl.DataFrame) -> dict[str, list[tuple[int, int, str]]]:
    found: dict[str, list[tuple[int, int, str]]] = {}
    for doc_id, start, end, kind in spans.select("doc_id", "start", "end", "type").iter_rows():
        found.setdefault(doc_id, []).append((start, end, kind))
    return found


def _ranges(spans: list[tuple[int, int, str]]) -> list[tuple[int, int]]:
    return [(start, end) for start, end, _ in spans]


def _document_rows(doc_id: str, masked: Counts | None, status: str) -> list[dict[str, Any]]:
    if masked is None:
        names = ("leaked_chars", "over_redacted_chars")
        return [measurement(name, "document", doc_id, None, unit="char", status=status) for name in names]
    return [
        measurement("leaked_chars", "document", doc_id, float(masked.fn), unit="char"),
        measurement("over_redacted_chars", "document", doc_id, float(masked.fp), unit="char"),
    ]


def _type_rows(totals: Mapping[tuple[str, str], Counts], config: Any) -> list[dict[str, Any]]:
    """Three figures a type and mode, for every type that is labelled, predicted or looked for."""
    looked_for = config.entities if config.enabled and not config.imported else ()
    kinds = sorted({kind for _, kind in totals} - {ALL} | set(looked_for))
    rows = []
    for mode in MODES:
        for kind in (*kinds, ALL):
            counts = totals.get((mode, kind), Counts())
            item = "corpus" if kind == ALL else "type"
            parts = {
                "pii_precision": (counts.tp, counts.predicted, "no_prediction"),
                "pii_recall": (counts.tp, counts.gold, "no_gold"),
                "pii_f1": (2 * counts.tp, counts.gold + counts.predicted, "no_gold"),
            }
            for name, (top, bottom, reason) in parts.items():
                value = {"numerator": top, "denominator": bottom} if bottom else {"status": reason}
                rows.append(measurement(name, item, kind, top / bottom if bottom else None, unit=UNITS[mode], **value))
    return rows
