"""How well languages were recognised: accuracy a document, precision, recall and F1 a language, short texts and parts apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

METRICS: tuple[Metric, ...] = (
    Metric("language_accuracy", "The document's language is the labelled one", "higher"),
    Metric(
        "section_language_accuracy",
        "Characters of labelled parts that have their language / characters of them",
        "higher",
    ),
    Metric("language_precision", "Documents rightly given this language / documents given it", "higher"),
    Metric("language_recall", "Documents rightly given this language / documents labelled with it", "higher"),
    Metric("language_f1", "Harmonic mean of a language's precision and recall", "higher"),
    Metric("language_macro_f1", "Mean F1 over labelled languages", "higher"),
)
GROUPS = {"normal": False, "short": True}
"""Texts long enough to judge the detector by, and those that are not: never mixed in one figure."""


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Compare primary subtags with labels; a document without a label is NULL `no_gold`, one without a language wrong."""
    labels = gold.languages.select("doc_id", _primary_of("language").alias("gold"))
    judged = (
        frames["languages"]
        .join(labels, on="doc_id", how="left")
        .with_columns(_primary_of("language").alias("found"), pl.col("status").is_in(["short", "empty"]).alias("short"))
        .sort("doc_id")
    )
    rows = [_accuracy(row) for row in judged.iter_rows(named=True)]
    for name, short in GROUPS.items():
        rows += _by_language(judged.filter(pl.col("short") == short, pl.col("gold").is_not_null()), name)
    if "section_languages" in frames:
        rows += _of_sections(frames, gold)
    return measurements(rows)


def _of_sections(frames: Mapping[str, pl.DataFrame], gold: Gold) -> list[dict[str, Any]]:
    """Labelled parts against the parts that were found, character by character; a part that was not read has no language."""
    labels = {doc_id: spans for doc_id, spans in gold.languages.select("doc_id", "sections").iter_rows() if spans}
    references = dict(gold.references.iter_rows())
    texts = dict(frames["parsed"].filter(pl.col("doc_id").is_in(list(labels))).select("doc_id", "text").iter_rows())
    found: dict[str, list[tuple[int, int, str]]] = {}
    for doc_id, *part in frames["section_languages"].select("doc_id", "start", "end", "language").iter_rows():
        found.setdefault(doc_id, []).append((part[0], part[1], part[2]))
    rows, judged = [], []
    for doc_id in frames["languages"]["doc_id"].sort():
        if doc_id not in labels:
            rows.append(_section_row(doc_id, None))
            continue
        offsets = derive(texts.get(doc_id, ""), references[doc_id])
        right = total = 0
        for span in labels[doc_id]:
            shares = _shares(offsets, span["start"], span["end"], found.get(doc_id, []))
            wanted = primary(span["language"])
            right, total = right + shares[wanted], total + span["end"] - span["start"]
            judged.append({"gold": wanted, "found": max(shares, key=lambda name: shares[name], default="und")})
        rows.append(_section_row(doc_id, (right, total)))
    frame = pl.DataFrame(judged, schema={"gold": pl.String, "found": pl.String})
    return [*rows, *_by_language(frame, "section", "section")] if judged else rows


def _shares(offsets: OffsetMap, start: int, end: int, found: list[tuple[int, int, str]]) -> Counter[str]:
    """Language -> characters of a labelled part that stand in parts of this language."""
    shares: Counter[str] = Counter()
    place = offsets.forward_range(start, end)
    if place is not None:
        for low, high, language in found:
            common = min(high, place[1]) - max(low, place[0])
            if common > 0:
                shares[language] += min(common, end - start)
    return shares


def _section_row(doc_id: str, counts: tuple[int, int] | None) -> dict[str, Any]:
    if counts is None:
        return measurement("section_language_accuracy", "document", doc_id, None, unit="char", status="no_gold")
    right, total = min(counts[0], counts[1]), counts[1]
    return measurement(
        "section_language_accuracy", "document", doc_id, right / total, unit="char",
        numerator=float(right), denominator=float(total), weight=float(total),
    )  # fmt: skip


def _primary_of(column: str) -> pl.Expr:
    return pl.col(column).str.to_lowercase().str.extract(r"^([a-z]+)")


def _accuracy(row: dict[str, Any]) -> dict[str, Any]:
    params = {"length": "short" if row["short"] else "normal"}
    common = {"unit": "document", "params": params}
    if row["gold"] is None:
        return measurement("language_accuracy", "document", row["doc_id"], None, status="no_gold", **common)
    status = "scored" if row["status"] in {"ok", "short"} else row["status"]
    return measurement(
        "language_accuracy", "document", row["doc_id"], float(row["gold"] == row["found"]), status=status, **common
    )


def _by_language(judged: pl.DataFrame, length: str, unit: str = "document") -> list[dict[str, Any]]:
    common: dict[str, Any] = {"unit": unit, "params": {"length": length}}
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
