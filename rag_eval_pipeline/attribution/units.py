"""Gold evidence followed through the text stages: units, their anchors in each text, and their pieces in chunks.

Here: the order in which the rooms' `trace` doors are asked, and the three tables made of their answers. Not here: lists
and losses (`ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from rag_eval_pipeline.text.critical import differing
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
    return Carried(gold, frames, settings).evidence(frames)


class Carried:
    """The carriers of a split's units, found once, and where they stand in any texts that a pipeline makes.

    A document whose texts were seen before is not looked at again, so that texts which differ in a few documents (a repair's)
    cost what those cost.

    Args:
        gold: labels.
        frames: tables of the pipeline as it ran: carriers are fixed on them (a document without a reference text is
            looked up as it was parsed).
        settings: `evaluate` (split, rel_level) and `ledger`.
    """

    def __init__(self, gold: Gold, frames: Mapping[str, pl.DataFrame], settings: Settings) -> None:
        self._gold, self._config = gold, settings.ledger
        self._library = Library(gold, frames, settings.ledger.normalise)
        self._units = gold_units(self._library, settings)
        self._placed = carriers(self._units, self._library, settings.ledger.hold).sort("doc_id", maintain_order=True)
        self._parts = self._placed.partition_by("doc_id", maintain_order=True)
        self._seen: dict[tuple[str, ...], pl.DataFrame] = {}

    def evidence(self, frames: Mapping[str, pl.DataFrame]) -> Evidence:
        """Frames of `evidence_units`, `evidence_anchors`, `evidence_pieces` for a whole pipeline's tables."""
        texts = self._texts(frames)
        rows = _unit_rows(self._units, texts, self._library, frames)
        return Evidence(conform(EvidenceUnits, rows), _anchors(texts), self._pieces(texts, frames))

    def anchors(self, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """`evidence_anchors` in those texts that are made."""
        texts = self._texts(frames)
        return _anchors({layer: texts[layer] for layer, (table, _) in LAYERS.items() if table in frames})

    def pieces(self, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """`evidence_pieces`; without rows where no chunks are made yet."""
        if "chunks" not in frames:
            return conform(EvidencePieces, [])
        return self._pieces(self._texts(frames), frames)

    def _pieces(self, texts: Mapping[str, pl.DataFrame], frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        return conform(EvidencePieces, chunking.trace(texts["masked"], {}, {"chunks": _chunks(frames)}, self._config))

    def _texts(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Carriers anchored in each text, with `present`, `kept`, `survivor`, `counts`; a text not made is the one before."""
        if "documents" in frames:
            placed = source.trace(self._placed, {}, frames, self._config)
        else:
            placed = self._placed.with_columns(present=pl.lit(True))
        placed = dedup.trace(placed, {}, frames, self._config)
        empty = pl.DataFrame(schema={"doc_id": pl.String, "text": pl.String, "status": pl.String})
        frames = {"parsed": empty, **frames}
        keys: list[tuple[str, ...]] = [(part["doc_id"][0],) for part in self._parts]
        parts, texts = self._parts, {}
        for layer, (table, columns) in LAYERS.items():
            if table in frames:
                keys = _keys(keys, layer, frames[table], columns)
                parts = self._layer(layer, keys, parts, frames)
            made = pl.concat(parts) if parts else pl.DataFrame(schema=parsing.LAYER)
            texts[layer] = placed.hstack(made.select(list(parsing.LAYER)))
        return texts

    def _layer(
        self,
        layer: str,
        keys: Sequence[tuple[str, ...]],
        parts: Sequence[pl.DataFrame],
        frames: Mapping[str, pl.DataFrame],
    ) -> list[pl.DataFrame]:
        """Each document's carriers anchored in one text, those that are not known yet all at once."""
        new = [index for index, key in enumerate(keys) if key not in self._seen]
        if new:
            made = _trace(layer, pl.concat([parts[index] for index in new]), self._gold, frames, self._config)
            start = 0
            for index in new:
                self._seen[keys[index]] = made.slice(start, parts[index].height)
                start += parts[index].height
        return [self._seen[key] for key in keys]


LAYERS: dict[str, tuple[str, list[str]]] = {
    "parsed": ("parsed", ["text", "status"]),
    "clean": ("cleaned", ["text", "offsets", "status"]),
    "masked": ("masked", ["text", "offsets", "status"]),
}
"""Layers of anchors in order: the table that makes each, and its columns that decide where carriers stand."""


def _keys(
    keys: Sequence[tuple[str, ...]], layer: str, table: pl.DataFrame, columns: list[str]
) -> list[tuple[str, ...]]:
    """Each document's key, longer by the layer and the content of its row."""
    content = dict(zip(table["doc_id"], table.select(columns).hash_rows(), strict=True))
    return [(*key, f"{layer}:{content.get(key[0])}") for key in keys]


def _trace(
    layer: str, placed: pl.DataFrame, gold: Gold, frames: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    if layer == "parsed":
        return parsing.trace(placed, {"references": gold.references}, frames, config)
    if layer == "clean":
        return cleaning.trace(placed, frames, frames, config)
    return pii.trace(placed, {"pii_labels": gold.pii}, frames, config)


def _anchors(texts: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    rows = [_anchor_rows(texts[layer], layer) for layer in texts]
    return conform(EvidenceAnchors, pl.concat(rows) if rows else [])


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
    kinds: list[list[str]] = [[] for _ in broken]
    damaged = texts.with_columns(broken=pl.Series(broken, dtype=pl.List(pl.Int64))).with_row_index("row")
    for row in damaged.filter(pl.col("broken").list.len() > 0).iter_rows(named=True):
        kinds[row["row"]] = [_difference(row, token) for token in row["broken"]]
    places = pl.col("positions").list
    first = places.eval(pl.element().filter(pl.element() >= 0).min()).list.first()
    place = {} if layer == "parsed" else {"low": first, "high": pl.when(places.max() >= 0).then(places.max() + 1)}
    return texts.with_columns(
        pl.lit(layer).alias("layer"),
        pl.Series("broken", broken, dtype=pl.List(pl.Int64)),
        pl.Series("broken_kinds", kinds, dtype=pl.List(pl.String)),
        pl.Series("token_ok", [not numbers for numbers in broken], dtype=pl.Boolean),
        **place,
    ).select(list(EvidenceAnchors.columns()))


def _difference(row: Mapping[str, Any], token: int) -> str:
    """What of a critical token differs in a text that does not have it intact."""
    low, high = row["token_from"][token], row["token_to"][token]
    characters = [character for character in row["quote"] if not character.isspace()]
    there = [position >= 0 for position in row["positions"][low:high]]
    return differing("".join(characters[low:high]), row["token_kind"][token], there)


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
                "critical_kinds": list(unit.kinds),
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
    for row in texts["clean"].sort([*UNIT, "carrier"]).iter_rows(named=True):
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
