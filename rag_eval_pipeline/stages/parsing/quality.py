"""How faithfully documents were read: text against the reference text; lengths, tables and structure in the modules beside this.

A document that could not be read has lost all of its text: it is measured as an empty output and its status says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.fidelity import Measured, cer, coverage, wer
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.stages.parsing import length_quality, structure_quality, tables_quality
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

INF = float("inf")
FORMS = ("none", "nfc+ws")
"""Normalisation forms under which error rates are measured; the second is the usual one."""
METRICS: tuple[Metric, ...] = (
    Metric("cer", "Character errors (substituted, lost, inserted) / characters of the reference", "lower", 0, INF),
    Metric("wer", "Word errors / words of the reference", "lower", 0, INF),
    Metric("coverage", "Words of the reference that were read, in order / words of the reference", "higher"),
    Metric("invented", "Words read that have no counterpart in the reference / words read", "lower"),
    Metric("word_precision", "Words read that are in the reference, in any order / words read", "higher"),
    Metric("word_recall", "Words of the reference that were read, in any order / words of the reference", "higher"),
    Metric("length_ratio", "Characters read / characters expected", "neither", 0, INF),
    *length_quality.METRICS,
    *tables_quality.METRICS,
    *structure_quality.METRICS,
)
UNITS = {"cer": "char", "wer": "word", "length_ratio": "char"}


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Every metric for every document, and for tables every reference table; `no_gold` where there is no reference."""
    documents = frames["documents"].select("doc_id", "doc_class")
    parsed = frames["parsed"].select("doc_id", "text", "status")
    references = gold.references.select("doc_id", pl.col("text").alias("reference"))
    joined = documents.join(parsed, on="doc_id", how="left").join(references, on="doc_id", how="left").sort("doc_id")
    joined = joined.with_columns(pl.col("text").fill_null(""), pl.col("status").fill_null("missing"))
    typical = dict(
        joined.filter(pl.col("status") == "ok")
        .group_by("doc_class")
        .agg(pl.col("text").str.len_chars().median())
        .iter_rows()
    )
    rows: list[dict[str, Any]] = []
    for row in joined.iter_rows(named=True):
        rows += _fidelity(row)
        rows.append(_length_ratio(row, typical.get(row["doc_class"])))
    rows += length_quality.length_rows(frames)
    statuses = dict(joined.select("doc_id", "status").iter_rows())
    rows += tables_quality.table_rows(statuses, frames, gold)
    rows += structure_quality.structure_rows(statuses, frames, gold)
    return measurements(rows)


def _fidelity(row: dict[str, Any]) -> list[dict[str, Any]]:
    reference, text = row["reference"], row["text"]
    found: list[tuple[str, str, Measured | None]] = []
    for form in FORMS:
        found.append(("cer", form, None if reference is None else cer(reference, text, form)))
        found.append(("wer", form, None if reference is None else wer(reference, text, form)))
    words = None if reference is None else coverage(reference, text, FORMS[-1])
    for name in ("coverage", "invented", "word_precision", "word_recall"):
        found.append((name, FORMS[-1], getattr(words, name) if words else None))
    return [_row(row, name, form, measured) for name, form, measured in found]


def _row(row: dict[str, Any], name: str, form: str, measured: Measured | None) -> dict[str, Any]:
    """One measurement; the status of a document that was not read tells why its figures are what they are."""
    if measured is None:
        counts: dict[str, Any] = {"status": "no_gold"}
    else:
        unread = row["status"] != "ok" and measured.status != "empty_reference" and bool(row["reference"])
        counts = {
            "status": row["status"] if unread else measured.status,
            "numerator": float(measured.numerator),
            "denominator": float(measured.denominator),
            # The micro average weighs a document by the size of its reference.
            "weight": float(measured.denominator) if measured.value is not None else 1.0,
        }
    value = measured.value if measured else None
    unit = UNITS.get(name, "word")
    return measurement(name, "document", row["doc_id"], value, unit=unit, params={"form": form}, **counts)


def _length_ratio(row: dict[str, Any], typical: float | None) -> dict[str, Any]:
    """Against the reference's length; without one, against the median of the documents read of its class."""
    read = len(row["text"])
    expected, status = typical, "estimated"
    if row["reference"] is not None:
        expected, status = float(len(row["reference"])), "scored" if row["status"] == "ok" else row["status"]
    if not expected:
        status = "empty_reference" if row["reference"] is not None else "no_gold"
        return measurement("length_ratio", "document", row["doc_id"], None, unit="char", status=status)
    return measurement(
        "length_ratio", "document", row["doc_id"], read / expected, unit="char", status=status,
        numerator=float(read), denominator=float(expected),
    )  # fmt: skip
