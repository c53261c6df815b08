"""How well documents were cut: pointers, edges, split evidence, sizes, and what overlap costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import holds_together
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.stages.chunking.splitters import map_blocks
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

INF = float("inf")
METRICS: tuple[Metric, ...] = (
    Metric("attribution_fidelity", "The chunk's offsets re-read exactly its text", "higher"),
    Metric("boundary_integrity", "Share of the chunk's edges that cut no sentence (or table: see params)", "higher"),
    Metric("chunk_tokens", "Length of the chunk in the splitter's unit", "neither", 0, INF, "tokens"),
    Metric("oversize_share", "The chunk is longer than the configured size", "lower"),
    Metric("chunk_coverage", "Share of the document's non-space characters that stand in some chunk", "higher"),
    Metric("duplication_cost", "Characters of all chunks / distinct characters that they hold − 1", "lower", 0, INF),
    Metric("evidence_split_rate", "The chunks hold the quote together, and none of them alone", "lower"),
)
_EDGE_KINDS = ("sentence", "table")
SPACES = np.array([place for place in range(0x3001) if chr(place).isspace()], dtype=np.uint32)
"""Code points of white space; U+3000 is the last one."""


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """All but the split rate need no labels; the split rate is over eligible, anchored quotes."""
    chunks = frames["chunks"].sort("doc_id", "ordinal")
    texts = frames["masked"].select("doc_id", "text", "offsets").sort("doc_id")
    clean = dict(frames["cleaned"].select("doc_id", "offsets").iter_rows())
    tables = frames["blocks"].filter(pl.col("kind") == "table").partition_by("doc_id", as_dict=True)
    languages = dict(frames["languages"].select("doc_id", "language").iter_rows())
    by_document = chunks.partition_by("doc_id", as_dict=True)
    rows: list[dict[str, Any]] = []
    for doc_id, text, offsets in texts.iter_rows():
        own = by_document.pop((doc_id,), chunks.clear())
        blocks = tables.get((doc_id,))
        found = (
            map_blocks(blocks.to_dicts(), OffsetMap(offsets), OffsetMap(clean.get(doc_id) or []))
            if blocks is not None
            else []
        )
        whole = {"sentence": sentences(text, languages.get(doc_id)), "table": [(b.start, b.end) for b in found]}
        edges = {kind: np.array(spans, dtype=np.int64).reshape(-1, 2) for kind, spans in whole.items()}
        rows += [row for chunk in own.iter_rows(named=True) for row in _chunk_rows(chunk, text, edges, config)]
        rows += _document_rows(doc_id, text, own)
    for stale in by_document.values():
        rows += [row for chunk in stale.iter_rows(named=True) for row in _chunk_rows(chunk, "", {}, config)]
    return pl.concat([measurements(rows), measurements(_split_rows(frames, settings))])


def _chunk_rows(chunk: dict[str, Any], text: str, edges: Mapping[str, np.ndarray], config: Any) -> list[dict[str, Any]]:
    chunk_id, start, end = chunk["chunk_id"], chunk["start"], chunk["end"]
    common: dict[str, Any] = {"unit": "chunk"}
    rows = [
        measurement("chunk_tokens", "chunk", chunk_id, float(chunk["tokens"]), **common),
        measurement("oversize_share", "chunk", chunk_id, float(chunk["tokens"] > config.size), **common),
    ]
    if start is None:
        # A chunk that points nowhere is the system's failure: 0, not unmeasured. Its edges are nowhere.
        rows.append(measurement("attribution_fidelity", "chunk", chunk_id, 0.0, status=chunk["status"], **common))
        return rows + [
            measurement(
                "boundary_integrity", "chunk", chunk_id, None, status=chunk["status"], params={"kind": kind}, **common
            )
            for kind in _EDGE_KINDS
        ]
    rows.append(
        measurement("attribution_fidelity", "chunk", chunk_id, float(text[start:end] == chunk["text"]), **common)
    )
    for kind in _EDGE_KINDS:
        whole = sum(not _cuts(edge, edges[kind]) for edge in (start, end))
        params = {"params": {"kind": kind}, "numerator": whole, "denominator": 2}
        rows.append(measurement("boundary_integrity", "chunk", chunk_id, whole / 2, **params, **common))
    return rows


def _cuts(place: int, spans: np.ndarray) -> bool:
    """Whether a place lies strictly inside one of the disjoint spans."""
    index = int(np.searchsorted(spans[:, 0], place, "left")) - 1
    return index >= 0 and bool(place < spans[index, 1])


def _document_rows(doc_id: str, text: str, chunks: pl.DataFrame) -> list[dict[str, Any]]:
    visible = ~np.isin(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4"), SPACES)
    times = np.zeros(len(text) + 1, dtype=np.int64)
    for start, end in chunks.filter(pl.col("start").is_not_null()).select("start", "end").iter_rows():
        times[start] += 1
        times[end] -= 1
    times = times.cumsum()[:-1]
    total, held, copies = int(visible.sum()), int((visible & (times > 0)).sum()), int(times[visible].sum())
    if not total:
        return [
            measurement(name, "document", doc_id, None, unit="char", status="empty")
            for name in ("chunk_coverage", "duplication_cost")
        ]
    coverage = measurement(
        "chunk_coverage", "document", doc_id, held / total, unit="char", numerator=held, denominator=total
    )
    if not held:
        return [coverage, measurement("duplication_cost", "document", doc_id, None, unit="char", status="no_chunks")]
    cost = {"numerator": copies - held, "denominator": held}
    return [coverage, measurement("duplication_cost", "document", doc_id, (copies - held) / held, unit="char", **cost)]


def _split_rows(frames: Mapping[str, pl.DataFrame], settings: Settings) -> list[dict[str, Any]]:
    """One row an eligible, anchored quote; NULL `not_held` where all chunks together don't hold it either."""
    units = frames.get("evidence_units")
    common: dict[str, Any] = {"unit": "evidence"}
    if units is not None:
        units = units.filter(pl.col("kind") == "quote", "eligible", "present", "anchored").sort(
            "query_id", "evidence_id"
        )
    if units is None or units.is_empty():
        return [measurement("evidence_split_rate", "corpus", "all", None, status="no_gold", **common)]
    held = holds_together(frames["evidence_pieces"], units, settings.ledger.hold)
    judged = units.select("query_id", "evidence_id").join(held, on=["query_id", "evidence_id"], how="left")
    rows = []
    for row in judged.sort("query_id", "evidence_id").iter_rows(named=True):
        item = f"{row['query_id']} | {row['evidence_id']}"
        if row["held"]:
            rows.append(measurement("evidence_split_rate", "evidence", item, float(not row["whole"]), **common))
        else:
            rows.append(measurement("evidence_split_rate", "evidence", item, None, status="not_held", **common))
    return rows
