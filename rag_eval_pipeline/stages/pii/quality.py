"""How well personal data was found, by type and threshold, and which labelled evidence masking in vain has cost.

Labels stand in the reference text; they are carried to the clean text by alignment and by the cleaner's own map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Metric(
        "swept_leaked_chars",
        "Labelled characters shown if only findings with at least this score (params.threshold) were masked",
        "lower",
        0,
        INF,
        "chars",
    ),
    Metric("swept_over_redacted_chars", "Characters that are masked then and not labelled", "lower", 0, INF, "chars"),
    Metric(
        "over_redacted_units",
        "Eligible evidence that masking took, under findings of this type that no label confirms",
        "lower",
        0,
        INF,
        "units",
    ),
    Metric("over_redacted_queries", "Queries with such evidence", "lower", 0, INF, "queries"),
)
THRESHOLDS = tuple(round(step / 20, 2) for step in range(21))
"""Operating points of the sweep."""
Placed = tuple[int, int, str]
UNIT = ["query_id", "evidence_id"]
UNITS = {"strict": "span", "overlap": "overlap", "char": "char"}


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Judge the documents that were kept and have labels (an empty list is a label); others are NULL `no_gold`."""
    kept = frames["masked"].select("doc_id", "status")
    statuses = dict(kept.iter_rows())
    labels = dict(gold.pii.select("doc_id", "spans").iter_rows())
    texts = _texts(frames, gold, [doc_id for doc_id in kept["doc_id"] if doc_id in labels])
    predicted = _predicted(frames["pii_spans"])
    totals: dict[tuple[str, str], Counts] = {}
    rows: list[dict[str, Any]] = []
    confirmed: dict[str, list[Placed]] = {}
    removed = 0
    for doc_id, status in kept.sort("doc_id").iter_rows():
        if doc_id not in labels:
            rows += _document_rows(doc_id, None, "no_gold")
            continue
        carried = carry([(s["start"], s["end"], s["type"]) for s in labels[doc_id] or ()], *texts[doc_id])
        expected = confirmed[doc_id] = [span for span in carried if span is not None]
        removed += len(carried) - len(expected)
        found = [span for span, _ in predicted.get(doc_id, [])]
        for key, counts in span_scores(expected, found).items():
            totals[key] = totals.get(key, Counts()) + counts
        masked = mask_prf(_ranges(expected), _ranges(found))
        if status not in {"ok", "empty"}:
            rows += _document_rows(doc_id, None, status)
        else:
            rows += _document_rows(doc_id, masked, "scored")
    kinds = _kinds(totals, predicted, config)
    rows += _type_rows(totals, kinds)
    gone = {"value": float(removed)} if labels else {"value": None, "status": "no_gold"}
    rows.append(measurement("pii_gold_removed", "corpus", ALL, unit="span", **gone))
    judged = {doc_id: spans for doc_id, spans in confirmed.items() if statuses[doc_id] in {"ok", "empty"}}
    rows += _sweep_rows(judged, predicted, config)
    rows += _cost_rows(frames, predicted, confirmed, kinds)
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


def _predicted(spans: pl.DataFrame) -> dict[str, list[tuple[Placed, float]]]:
    """By document, spans with their scores. What an import gives without a score is masked at any threshold."""
    found: dict[str, list[tuple[Placed, float]]] = {}
    for doc_id, start, end, kind, score in spans.select("doc_id", "start", "end", "type", "score").iter_rows():
        found.setdefault(doc_id, []).append(((start, end, kind), 1.0 if score is None else score))
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


def _kinds(
    totals: Mapping[tuple[str, str], Counts], predicted: Mapping[str, list[tuple[Placed, float]]], config: Any
) -> list[str]:
    """Every type that is labelled, predicted or looked for."""
    looked_for = config.entities if config.enabled and not config.imported else ()
    found = {kind for spans in predicted.values() for (_, _, kind), _ in spans}
    return sorted({kind for _, kind in totals} - {ALL} | set(looked_for) | found)


def _type_rows(totals: Mapping[tuple[str, str], Counts], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Three figures a type and mode."""
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


# The sweep ------------------------------------------------------------------------------------------------------------


def sweep(
    judged: Mapping[str, list[Placed]], predicted: Mapping[str, list[tuple[Placed, float]]], floor: float = 0.0
) -> list[tuple[float, int, int]]:
    """(threshold, leaked, over-redacted characters), from stored scores alone; nothing is run again.

    Args:
        judged: labelled spans by document.
        predicted: predicted spans and scores by document; a span of several findings has the score of the best.
        floor: what the findings were cut at; below, nothing is known.
    """
    points = []
    for threshold in sorted({floor, *(step for step in THRESHOLDS if step > floor)}):
        total = Counts()
        for doc_id, expected in judged.items():
            found = [span for span, score in predicted.get(doc_id, []) if score >= threshold - 1e-9]
            total += mask_prf(_ranges(expected), _ranges(found))
        points.append((threshold, total.fn, total.fp))
    return points


def _sweep_rows(
    judged: Mapping[str, list[Placed]], predicted: Mapping[str, list[tuple[Placed, float]]], config: Any
) -> list[dict[str, Any]]:
    names = ("swept_leaked_chars", "swept_over_redacted_chars")
    floor = 0.0 if config.imported or not config.enabled else config.score_threshold
    rows = []
    for threshold, *values in sweep(judged, predicted, floor):
        for name, value in zip(names, values, strict=True):
            given = {"value": float(value)} if judged else {"value": None, "status": "no_gold"}
            rows.append(measurement(name, "corpus", ALL, unit="char", params={"threshold": threshold}, **given))
    return rows


# What it cost ---------------------------------------------------------------------------------------------------------


def _cost_rows(
    frames: Mapping[str, pl.DataFrame],
    predicted: Mapping[str, list[tuple[Placed, float]]],
    confirmed: Mapping[str, list[Placed]],
    kinds: Sequence[str],
) -> list[dict[str, Any]]:
    """Units and queries by type, once for labelled documents and once for those of which nobody said what is personal."""
    lost = _lost(frames)
    rows = []
    for documents in ("labelled", "unlabelled"):
        hurt = _hurt(lost, predicted, confirmed, documents) if lost is not None else {}
        for kind in (*kinds, ALL):
            of_kind = hurt.get(kind, set()) if kind != ALL else set().union(*hurt.values())
            values = {
                "over_redacted_units": len(of_kind),
                "over_redacted_queries": len({query for query, _ in of_kind}),
            }
            for name, value in values.items():
                unit = "evidence" if name == "over_redacted_units" else "query"
                given = {"value": float(value)} if lost is not None else {"value": None, "status": "no_gold"}
                item = "corpus" if kind == ALL else "type"
                rows.append(measurement(name, item, kind, unit=unit, params={"documents": documents}, **given))
    return rows


def _lost(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """Carriers in the clean text of eligible units that no masked text holds; None where there are no units.

    Left out are units whose masked carriers say `policy`: what broke them is labelled personal.
    """
    units, anchors = frames.get("evidence_units"), frames.get("evidence_anchors")
    if units is None or anchors is None:
        return None
    units = units.filter(pl.col("eligible") & pl.col("present")).select(UNIT)
    if units.is_empty():
        return None
    there = anchors.filter(pl.col("kept") & pl.col("present")).join(units, on=UNIT, how="semi")
    clean = there.filter((pl.col("layer") == "clean") & pl.col("held"))
    masked = there.filter(pl.col("layer") == "masked")
    safe = masked.filter(pl.col("held") | (pl.col("status") == "policy")).select(UNIT).unique()
    return clean.join(safe, on=UNIT, how="anti").sort(*UNIT, "carrier")


def _hurt(
    lost: pl.DataFrame,
    predicted: Mapping[str, list[tuple[Placed, float]]],
    confirmed: Mapping[str, list[Placed]],
    documents: str,
) -> dict[str, set[tuple[str, str]]]:
    """Type -> units under its spans that touch no label."""
    hurt: dict[str, set[tuple[str, str]]] = {}
    for query_id, evidence_id, doc_id, positions in lost.select(*UNIT, "doc_id", "positions").iter_rows():
        if (doc_id in confirmed) != (documents == "labelled"):
            continue
        places = np.asarray(positions, dtype=np.int64)
        for (start, end, kind), _ in predicted.get(doc_id, []):
            rightly = any(low < end and start < high for low, high, _ in confirmed.get(doc_id, ()))
            if not rightly and bool(((places >= start) & (places < end)).any()):
                hurt.setdefault(kind, set()).add((query_id, evidence_id))
    return hurt
