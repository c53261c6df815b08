"""Gold evidence followed through the text stages: units, their anchors in each text, and their pieces in chunks.

Here: the order in which the rooms' `trace` doors are asked, and the three tables made of their answers. Not here: lists
and losses (`ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.carriers import Library, Unit, carriers, gold_units
from rag_eval_pipeline.attribution.tables import EvidenceAnchors, EvidencePieces, EvidenceUnits
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Ledger, Settings
from rag_eval_pipeline.measures.evidence import UNIT, visible_indexes
from rag_eval_pipeline.stages.chunking import evidence as chunking
from rag_eval_pipeline.stages.cleaning import evidence as cleaning
from rag_eval_pipeline.stages.dedup import evidence as dedup
from rag_eval_pipeline.stages.parsing import evidence as parsing
from rag_eval_pipeline.stages.pii import evidence as pii
from rag_eval_pipeline.stages.source import evidence as source
from rag_eval_pipeline.warehouse.table import conform

LISTS = ("ranked_runs", "fused_runs", "runs")


class Evidence(NamedTuple):
    """What `build_units` gives: frames of `evidence_units`, `evidence_anchors`, `evidence_pieces`."""

    units: pl.DataFrame
    anchors: pl.DataFrame
    pieces: pl.DataFrame


def build_units(gold: Gold, frames: Mapping[str, pl.DataFrame], settings: Settings) -> Evidence:
    """Units of the measured split, where their carriers stand in each text, and which chunk has which part.

    Args:
        gold: labels; queries of `settings.evaluate.split` are measured.
        frames: stage tables by name, those that there are: documents, parsed, cleaned, dedup, pii_spans, masked,
            chunks; where there are no chunks (imported runs only), the lists name the chunks of each document.
        settings: `evaluate` (split, rel_level) and `ledger`.
    """
    library = Library(gold, frames, settings.ledger.normalise)
    units = gold_units(library, settings)
    placed = carriers(units, library, settings.ledger.hold)
    texts = _layers(placed, gold, frames, settings.ledger)
    masked = texts["masked"]
    pieces = chunking.trace(masked, {}, {"chunks": _chunks(frames)}, settings.ledger)
    anchors = pl.concat([_anchor_rows(texts[layer], layer) for layer in ("parsed", "clean", "masked")])
    return Evidence(
        conform(EvidenceUnits, _unit_rows(units, texts, library, frames)),
        conform(EvidenceAnchors, anchors),
        conform(EvidencePieces, pieces),
    )


def _layers(
    placed: pl.DataFrame, gold: Gold, frames: Mapping[str, pl.DataFrame], config: Ledger
) -> dict[str, pl.DataFrame]:
    """Carriers anchored in each text, with `present`, `kept`, `survivor` and `counts`; a text that is not there is skipped."""
    if "documents" in frames:
        placed = source.trace(placed, {}, frames, config)
    else:
        placed = placed.with_columns(present=pl.lit(True))
    placed = dedup.trace(placed, {}, frames, config)
    empty = pl.DataFrame(schema={"doc_id": pl.String, "text": pl.String, "status": pl.String})
    texts = {
        "parsed": parsing.trace(
            placed, {"references": gold.references}, {"parsed": frames.get("parsed", empty)}, config
        )
    }
    texts["clean"] = cleaning.trace(texts["parsed"], frames, frames, config) if "cleaned" in frames else texts["parsed"]
    labels = {"pii_labels": gold.pii}
    texts["masked"] = pii.trace(texts["clean"], labels, frames, config) if "masked" in frames else texts["clean"]
    return texts


def _chunks(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The chunks; without a table of them, those that lists name, which are then taken as not empty and without a place."""
    if "chunks" in frames:
        return frames["chunks"]
    named = [frames[name].select("chunk_id", "doc_id") for name in LISTS if name in frames]
    schema = {"chunk_id": pl.String, "doc_id": pl.String}
    chunks = pl.concat(named).unique().sort("chunk_id") if named else pl.DataFrame(schema=schema)
    place = pl.lit(None, dtype=pl.Int64)
    return chunks.with_columns(start=place, end=place, text=pl.col("chunk_id"))


def _anchor_rows(texts: pl.DataFrame, layer: str) -> pl.DataFrame:
    broken = [[number for number, ok in enumerate(flags) if not ok] for flags in texts["token_ok"].to_list()]
    return texts.with_columns(
        pl.lit(layer).alias("layer"),
        pl.Series("broken", broken, dtype=pl.List(pl.Int64)),
        pl.Series("token_ok", [not numbers for numbers in broken], dtype=pl.Boolean),
    ).select(list(EvidenceAnchors.columns()))


def _unit_rows(
    units: list[Unit], texts: dict[str, pl.DataFrame], library: Library, frames: Mapping[str, pl.DataFrame]
) -> list[dict[str, Any]]:
    parsed = texts["parsed"]
    places = parsed.group_by(UNIT).agg(
        (((pl.col("status") != "unanchored") & pl.col("present")).any() | ~pl.col("present").any()).alias("anchored")
    )
    anchored = {(query, evidence): flag for query, evidence, flag in places.iter_rows()}
    own = parsed.filter("own").group_by(UNIT).agg(pl.col("similarity").max())
    similarity = {(query, evidence): value for query, evidence, value in own.select(*UNIT, "similarity").iter_rows()}
    personal = _personal(texts, library, frames)
    rows = []
    for unit in units:
        key = (unit.query_id, unit.evidence_id)
        quote, tokens = _redacted(unit, personal.get(key, {}))
        rows.append(
            {
                "query_id": unit.query_id,
                "evidence_id": unit.evidence_id,
                "doc_id": unit.doc_id,
                "kind": unit.kind,
                "quote": quote,
                "critical": tokens,
                "critical_from": [low for low, _ in unit.tokens],
                "critical_to": [high for _, high in unit.tokens],
                "n_chars": unit.n_chars,
                "grade": unit.grade,
                "hop": unit.hop,
                "eligible": unit.eligible,
                "present": unit.doc_id in library.documents,
                "anchored": anchored[key],
                "split": unit.split,
                "similarity": similarity.get(key),
            }
        )
    return rows


def _personal(
    texts: dict[str, pl.DataFrame], library: Library, frames: Mapping[str, pl.DataFrame]
) -> dict[tuple[str, str], dict[int, str]]:
    """Per unit the indexes of its characters that are personal, labelled or predicted, in any carrier; with the type."""
    labelled = {doc_id: spans or [] for doc_id, spans in library.gold.pii.select("doc_id", "spans").iter_rows()}
    predicted: dict[str, list[dict[str, Any]]] = {}
    if "pii_spans" in frames:
        for row in frames["pii_spans"].select("doc_id", "start", "end", "type").iter_rows(named=True):
            predicted.setdefault(row["doc_id"], []).append(row)
    found: dict[tuple[str, str], dict[int, str]] = {}
    for row in texts["clean"].iter_rows(named=True):
        marks = found.setdefault((row["query_id"], row["evidence_id"]), {})
        for spans, places in (
            (labelled.get(row["doc_id"], []), row["ref_positions"]),
            (predicted.get(row["doc_id"], []), row["positions"]),
        ):
            positions = np.asarray(places, dtype=np.int64)
            for span in spans:
                inside = np.flatnonzero((positions >= span["start"]) & (positions < span["end"]))
                marks.update(dict.fromkeys(inside.tolist(), span["type"] or "PII"))
    return found


def _redacted(unit: Unit, personal: dict[int, str]) -> tuple[str, list[str]]:
    """The quote and its critical tokens with personal characters replaced by their type."""
    places = visible_indexes(unit.quote)
    marked = {places[index]: kind for index, kind in personal.items()}
    for left, right in zip(sorted(marked), sorted(marked)[1:], strict=False):
        if unit.quote[left + 1 : right].isspace() and marked[left] == marked[right]:
            marked.update(dict.fromkeys(range(left + 1, right), marked[left]))

    def masked(start: int, end: int) -> str:
        out: list[str] = []
        for index in range(start, end):
            kind = marked.get(index)
            if kind is None:
                out.append(unit.quote[index])
            elif index == start or marked.get(index - 1) != kind:
                out.append(f"<{kind}>")
        return "".join(out)

    return masked(0, len(unit.quote)), [masked(places[low], places[high - 1] + 1) for low, high in unit.tokens]
