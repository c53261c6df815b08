"""What an injector reads: the tables of a version as they stand, the units, and pages made of both.

Tables are replaced as faults are planted (`chain`); nothing here writes a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from rag_eval_pipeline.experiments.injector.sites import Page, Unit
from rag_eval_pipeline.stages.subject import Subject

LAYER_OF = {"parsed": "parsed", "cleaned": "cleaned", "masked": "masked"}
TABLES = (
    "documents", "parsed", "blocks", "parsed_tables", "languages", "section_languages", "cleaned", "dedup", "dedup_edges", "masked",
    "pii_spans", "chunks", "embeddings", "applied_filters", "prepared_queries",
)  # fmt: skip
"""What is read of the healthy evaluation."""


@dataclass
class State:
    """A version's tables and units.

    Attributes:
        subject: the healthy version: its settings, configs, gold and files.
        frames: tables by name.
        units: quotes of the measured split; `reworded` replaces some of them in one document.
    """

    subject: Subject
    frames: dict[str, pl.DataFrame]
    units: list[Unit]
    reworded: dict[str, dict[tuple[str, str], Unit]] = field(default_factory=dict)
    _pages: dict[tuple[str, str], Page] = field(default_factory=dict)

    def copy(self) -> State:
        """The same state; what is planted in the copy leaves this one alone."""
        return State(self.subject, dict(self.frames), self.units, {k: dict(v) for k, v in self.reworded.items()})

    @cached_property
    def _texts(self) -> dict[str, dict[str, str]]:
        return {}

    def texts(self, layer: str) -> Mapping[str, str]:
        """Texts of parsed, cleaned or masked documents."""
        if layer not in self._texts:
            self._texts[layer] = dict(self.frames[layer].select("doc_id", "text").iter_rows())
        return self._texts[layer]

    def page(self, layer: str, doc_id: str) -> Page:
        """A document's text with the quotes in it; an empty text where the layer lacks the document."""
        key = (layer, doc_id)
        if key not in self._pages:
            words = self.reworded.get(doc_id, {})
            units = [words.get(unit.id, unit) for unit in self.units]
            self._pages[key] = Page(doc_id, self.texts(layer).get(doc_id, ""), units)
        return self._pages[key]

    def replace(self, **frames: pl.DataFrame) -> None:
        """Put new tables in; pages are made anew."""
        self.frames.update(frames)
        self._pages.clear()
        self._texts.clear()

    def rows(self, table: str, doc_id: str) -> list[dict[str, Any]]:
        """Rows of one document."""
        return self._by_document(table).get(doc_id, [])

    def _by_document(self, table: str) -> dict[str, list[dict[str, Any]]]:
        frame = self.frames[table]
        cached = self._grouped.get(table)
        if cached is None or cached[0] is not frame:
            grouped: dict[str, list[dict[str, Any]]] = {}
            for row in frame.iter_rows(named=True):
                grouped.setdefault(row["doc_id"], []).append(row)
            cached = self._grouped[table] = (frame, grouped)
        return cached[1]

    @cached_property
    def _grouped(self) -> dict[str, tuple[pl.DataFrame, dict[str, list[dict[str, Any]]]]]:
        return {}

    @property
    def kept(self) -> list[str]:
        """Documents that dedup kept, sorted."""
        return sorted(self.frames["dedup"].filter("kept")["doc_id"].to_list())

    @cached_property
    def evidence(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Units by the document in whose healthy parsed or clean text they stand, or that gold names."""
        found: dict[str, set[tuple[str, str]]] = {}
        for unit in self.units:
            found.setdefault(unit.doc_id, set()).add(unit.id)
        for doc_id in self.texts("cleaned"):
            found.setdefault(doc_id, set()).update(self.page("cleaned", doc_id).evidence)
        return {doc_id: tuple(sorted(units)) for doc_id, units in found.items()}
