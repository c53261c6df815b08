"""How well boilerplate was told from main text, and which Unicode trouble a document had."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import regex

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.stages.cleaning.signs import INVISIBLE, broken_encodings, mixed_scripts
from rag_eval_pipeline.stages.cleaning.transform import kept, solid
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

INF = float("inf")
METRICS: tuple[Metric, ...] = (
    Metric("boilerplate_precision", "Removed characters that are boilerplate / removed characters", "higher"),
    Metric("boilerplate_recall", "Boilerplate characters that were removed / boilerplate characters", "higher"),
    Metric("boilerplate_f1", "Harmonic mean of boilerplate precision and recall", "higher"),
    Metric("false_removals_chars", "Main-text characters that were removed", "lower", 0, INF, "chars"),
    Metric("missed_boilerplate_chars", "Boilerplate characters that were left in", "lower", 0, INF, "chars"),
    Metric("main_text_precision", "Words of the clean text that are main text (bag of words)", "higher"),
    Metric("main_text_recall", "Words of the main text that are in the clean text (bag of words)", "higher"),
    Metric("main_text_f1", "Harmonic mean of main-text precision and recall", "higher"),
    Metric("nfkc_stable", "The clean text's NFC and NFKC forms are equal", "neither"),
    Metric(
        "invisible_chars", "Invisible code points, in the parsed text and in the clean text", "lower", 0, INF, "chars"
    ),
    Metric(
        "mixed_script_words",
        "Words that mix look-alike scripts (Latin with Greek or Cyrillic)",
        "lower",
        0,
        INF,
        "words",
    ),
    Metric("mojibake", "The clean text holds sequences typical of a wrong decoding", "lower"),
)
_WORDS = regex.compile(r"[\p{L}\p{M}\p{N}_]+")


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Boilerplate figures need `main_text` labels (NULL `no_gold` elsewhere); the Unicode figures need none."""
    documents = frames["cleaned"].join(
        frames["parsed"].select("doc_id", pl.col("text").alias("parsed")), on="doc_id", how="left"
    )
    labels = {row["doc_id"]: row for row in gold.main_text.iter_rows(named=True)}
    references = dict(gold.references.select("doc_id", "text").iter_rows())
    rows: list[dict[str, Any]] = []
    for row in documents.sort("doc_id").iter_rows(named=True):
        label = labels.get(row["doc_id"])
        rows += _boilerplate(row, label, references.get(row["doc_id"]))
        rows += _unicode(row)
    return measurements(rows)


def _boilerplate(row: dict[str, Any], label: dict[str, Any] | None, reference: str | None) -> list[dict[str, Any]]:
    doc_id, parsed = row["doc_id"], row["parsed"] or ""
    by_char = ("boilerplate_precision", "boilerplate_recall", "boilerplate_f1")
    by_word = ("main_text_precision", "main_text_recall", "main_text_f1")
    if label is None or (label["text"] is None and reference is None):
        reason = "no_gold" if label is None else "no_reference"
        rows = [measurement(name, "document", doc_id, None, unit="char", status=reason) for name in by_char]
        for name in ("false_removals_chars", "missed_boilerplate_chars"):
            rows.append(measurement(name, "document", doc_id, None, unit="char", status=reason))
        return rows + [measurement(name, "document", doc_id, None, unit="word", status=reason) for name in by_word]
    main = main_mask(parsed, label, reference)
    visible = solid(parsed)
    removed = visible & ~kept(OffsetMap(row["offsets"]), len(parsed))
    boilerplate = visible & ~main
    hit, cut, all_boilerplate = int((removed & boilerplate).sum()), int(removed.sum()), int(boilerplate.sum())
    if all_boilerplate:
        rows = _prf(by_char, doc_id, hit, cut, all_boilerplate, "char", ("nothing_removed", "no_boilerplate"))
    else:
        rows = [measurement(name, "document", doc_id, None, unit="char", status="no_boilerplate") for name in by_char]
    wrong = float((removed & main).sum())
    rows.append(measurement("false_removals_chars", "document", doc_id, wrong, unit="char"))
    left = float(all_boilerplate - hit)
    rows.append(measurement("missed_boilerplate_chars", "document", doc_id, left, unit="char"))
    found, wanted = _bag(row["text"]), _bag(_main_text(label, reference))
    shared = sum((found & wanted).values())
    return rows + _prf(by_word, doc_id, shared, found.total(), wanted.total(), "word", ("empty_text", "no_main_text"))


def _main_text(label: dict[str, Any], reference: str | None) -> str:
    if label["text"] is not None:
        return str(label["text"])
    text, cut = reference or "", {index for s in label["boilerplate"] or () for index in range(s["start"], s["end"])}
    return "".join("\n" if index in cut else character for index, character in enumerate(text))


def main_mask(parsed: str, label: dict[str, Any], reference: str | None) -> np.ndarray:
    """Main-text code points of the parsed text: what the labelled main text aligns with, or all but the labelled spans."""
    visible = solid(parsed)
    if label["text"] is not None:
        return visible & kept(derive(label["text"], parsed), len(parsed))
    boilerplate = np.zeros(len(reference or ""), dtype=bool)
    for span in label["boilerplate"] or ():
        boilerplate[span["start"] : span["end"]] = True
    places = derive(parsed, reference or "")
    mask = np.zeros(len(parsed), dtype=bool)
    for segment in places.segments:
        mask[segment.out_start : segment.out_end] = boilerplate[segment.src_start : segment.src_end]
    return visible & ~mask


def _bag(text: str) -> Counter[str]:
    return Counter(unicodedata.normalize("NFC", match.group()).casefold() for match in _WORDS.finditer(text))


def _prf(
    names: tuple[str, str, str], doc_id: str, hit: int, found: int, wanted: int, unit: str, empty: tuple[str, str]
) -> list[dict[str, Any]]:
    parts = ((hit, found, empty[0]), (hit, wanted, empty[1]), (2 * hit, found + wanted, empty[1]))
    rows = []
    for name, (top, bottom, reason) in zip(names, parts, strict=True):
        if bottom:
            value = {"numerator": top, "denominator": bottom, "weight": float(bottom)}
            rows.append(measurement(name, "document", doc_id, top / bottom, unit=unit, **value))
        else:
            rows.append(measurement(name, "document", doc_id, None, unit=unit, status=reason))
    return rows


def _unicode(row: dict[str, Any]) -> list[dict[str, Any]]:
    doc_id, clean = row["doc_id"], row["text"]
    if not clean:
        status = "empty" if row["status"] in {"ok", "empty"} else row["status"]
        names = {"nfkc_stable": "document", "mixed_script_words": "word", "mojibake": "document"}
        rows = [measurement(name, "document", doc_id, None, unit=unit, status=status) for name, unit in names.items()]
    else:
        stable = clean.isascii() or unicodedata.normalize("NFC", clean) == unicodedata.normalize("NFKC", clean)
        mixed = sum(1 for _ in mixed_scripts(clean))
        broken = bool(broken_encodings(clean))
        rows = [
            measurement("nfkc_stable", "document", doc_id, float(stable), unit="document"),
            measurement("mixed_script_words", "document", doc_id, float(mixed), unit="word"),
            measurement("mojibake", "document", doc_id, float(broken), unit="document"),
        ]
    for where, text in (("parsed", row["parsed"] or ""), ("clean", clean)):
        for kind, pattern in INVISIBLE.items():
            count = float(len(pattern.findall(text)))
            params = {"kind": kind, "text": where}
            rows.append(measurement("invisible_chars", "document", doc_id, count, unit="char", params=params))
    return rows
