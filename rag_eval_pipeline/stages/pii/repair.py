"""What should have been masked: what is labelled personal, and nothing else; without a label, no mask over evidence.

Not here: how personal data is found (`transform`), how well (`quality`), and what a mask costs (attribution).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.stages.pii.quality import carry
from rag_eval_pipeline.stages.pii.tables import Masked, PiiSpans
from rag_eval_pipeline.stages.pii.transform import one
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.text.normalise import normalise_with_map
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.table import conform

Span = dict[str, Any]
UNIT = ["query_id", "evidence_id"]


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: Any
) -> dict[str, pl.DataFrame]:
    """Labelled spans masked as the stage masks, in documents with a label; in others, masks that broke a unit undone.

    A labelled document's masked text is made of clean text and label alone; an empty list is a label. A document without
    one that the stage failed on stays empty: nobody said what in it is personal. Where pii is off, it stays off.

    Args:
        before: `cleaned`.
        after: `masked`, `pii_spans`.
        truth: pii and references of gold; `anchors`, layers clean and masked.
        config: `enabled`, `action`, `salt`.
    """
    if not config.enabled:
        return dict(after)
    labels = dict(truth.gold.pii.select("doc_id", "spans").iter_rows())
    broken = _broken(truth.anchors)
    references = dict(
        truth.gold.references.filter(pl.col("doc_id").is_in(sorted(labels))).select("doc_id", "text").iter_rows()
    )
    clean = before["cleaned"].select("doc_id", pl.col("text").alias("clean"))
    todo = after["masked"].filter(pl.col("doc_id").is_in(sorted({*labels, *broken})))
    spans = _by_document(after["pii_spans"], todo["doc_id"])
    masked: list[dict[str, Any]] = []
    found: list[Span] = []
    for row in todo.join(clean, on="doc_id", maintain_order="left").iter_rows(named=True):
        doc_id, text = row["doc_id"], row.pop("clean") or ""
        mine = spans.get(doc_id, [])
        if doc_id in labels:
            wanted = _labelled(labels[doc_id] or (), references.get(doc_id, text), text)
        else:
            wanted = [span for span in mine if not _over(span, broken[doc_id])]
            if len(wanted) == len(mine):
                continue
        made = one({"text": text, "spans": wanted}, config)
        new = {"doc_id": doc_id} | made["masked"][0]
        if new["text"] == row["text"] and _keys(made["pii_spans"]) == _keys(mine) and new["status"] == row["status"]:
            continue
        masked.append(new)
        found += [{"doc_id": doc_id, **span} for span in made["pii_spans"]]
    if not masked:
        return dict(after)
    changed = pl.col("doc_id").is_in([row["doc_id"] for row in masked])
    tables = {"masked": (Masked, masked), "pii_spans": (PiiSpans, found)}
    return {
        name: conform(
            schema,
            pl.concat([after[name].filter(~changed), pl.DataFrame(rows, schema=after[name].schema, orient="row")]),
        )
        for name, (schema, rows) in tables.items()
    }


def _by_document(spans: pl.DataFrame, wanted: pl.Series) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for row in spans.filter(pl.col("doc_id").is_in(wanted.implode())).iter_rows(named=True):
        found.setdefault(row.pop("doc_id"), []).append(row)
    return found


def _keys(spans: Sequence[Span]) -> set[tuple[int, int, str]]:
    return {(span["start"], span["end"], span["type"]) for span in spans}


def _labelled(labels: Sequence[Span], reference: str, clean: str) -> list[Span]:
    """Labelled spans as spans of the clean text; those of which nothing is left there are nobody's."""
    composed, places = normalise_with_map(reference, "nfc")
    wanted = [
        (*place, span["type"] or "PII")
        for span in labels
        if (place := places.forward_range(span["start"], span["end"])) is not None
    ]
    # The clean text is aligned itself: what cleaning removed or normalised is then just another difference.
    carried = carry(wanted, composed, clean, OffsetMap.identity(len(clean)))
    return [
        {"start": start, "end": end, "type": kind, "score": None} for start, end, kind in sorted(filter(None, carried))
    ]


def _broken(anchors: pl.DataFrame) -> dict[str, np.ndarray]:
    """By document, where in the clean text the characters stand of units that masking took from all their carriers."""
    clean = anchors.filter((pl.col("layer") == "clean") & pl.col("held") & pl.col("kept") & pl.col("present"))
    held = anchors.filter((pl.col("layer") == "masked") & pl.col("held") & pl.col("kept") & pl.col("present"))
    lost = clean.join(held.select(UNIT).unique(), on=UNIT, how="anti")
    found: dict[str, list[np.ndarray]] = {}
    for doc_id, positions in lost.sort(*UNIT, "carrier").select("doc_id", "positions").iter_rows():
        found.setdefault(doc_id, []).append(np.asarray(positions, dtype=np.int64))
    return {doc_id: np.unique(np.concatenate(places)) for doc_id, places in found.items()}


def _over(span: Span, places: np.ndarray) -> bool:
    return bool(((places >= span["start"]) & (places < span["end"])).any())
