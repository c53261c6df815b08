"""How well languages were recognised: accuracy a document, precision, recall and F1 a language, short texts apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

METRICS: tuple[Metric, ...] = (
    Metric("language_accuracy", "The document's language is the labelled one", "higher"),
    Metric("language_precision", "Documents rightly given this language / documents given it", "higher"),
    Metric("language_recall", "Documents rightly given this language / documents labelled with it", "higher"),
    Metric("language_f1", "Harmonic mean of a language's precision and recall", "higher"),
    Metric("language_macro_f1", "Mean F1 over labelled languages", "higher"),
)
GROUPS = {"normal": False, "short": True}
"""Texts long enough to judge the detector by, and those that are not: never mixed in one figure."""


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Compare primary subtags with labels; a document without a label is NULL `no_gold`, one without a language wrong."""
    labels = gold.languages.select("doc_id", _primary("language").alias("gold"))
    judged = (
        frames["languages"]
        .join(labels, on="doc_id", how="left")
        .with_columns(_primary("language").alias("found"), pl.col("status").is_in(["short", "empty"]).alias("short"))
        .sort("doc_id")
    )
    rows = [_accuracy(row) for row in judged.iter_rows(named=True)]
    for name, short in GROUPS.items():
        rows += _by_language(judged.filter(pl.col("short") == short, pl.col("gold").is_not_null()), name)
    return measurements(rows)


def _primary(column: str) -> pl.Expr:
    return pl.col(column).str.to_lowercase().str.split("-").list.first()


def _accuracy(row: dict[str, Any]) -> dict[str, Any]:
    params = {"length": "short" if row["short"] else "normal"}
    common = {"unit": "document", "params": params}
    if row["gold"] is None:
        return measurement("language_accuracy", "document", row["doc_id"], None, status="no_gold", **common)
    status = "scored" if row["status"] in {"ok", "short"} else row["status"]
    return measurement(
        "language_accuracy", "document", row["doc_id"], float(row["gold"] == row["found"]), status=status, **common
    )


def _by_language(judged: pl.DataFrame, length: str) -> list[dict[str, Any]]:
    common: dict[str, Any] = {"unit": "document", "params": {"length": length}}
    if judged.is_empty():
        return [measurement("language_macro_f1", "corpus", "all", None, status="no_gold", **common)]
    rows, f1s = [], []
    for language in sorted({*judged["gold"], *judged["found"]}):
        found, labelled = judged["found"] == language, judged["gold"] == language
        right, n_found, n_gold = int((found & labelled).sum()), int(found.sum()), int(labelled.sum())
        rows.append(_ratio("language_precision", language, right, n_found, "no_prediction", common))
        rows.append(_ratio("language_recall", language, right, n_gold, "no_gold", common))
        rows.append(_ratio("language_f1", language, 2 * right, n_found + n_gold, "no_gold", common))
        if n_gold:
            f1s.append(2 * right / (n_found + n_gold))
    mean = sum(f1s) / len(f1s)
    return [
        *rows,
        measurement("language_macro_f1", "corpus", "all", mean, numerator=sum(f1s), denominator=len(f1s), **common),
    ]


def _ratio(metric: str, language: str, top: int, bottom: int, empty: str, common: dict[str, Any]) -> dict[str, Any]:
    if not bottom:
        return measurement(metric, "language", language, None, status=empty, **common)
    return measurement(metric, "language", language, top / bottom, numerator=top, denominator=bottom, **common)
