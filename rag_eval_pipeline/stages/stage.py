"""What a stage is: the declaration that each room's `stage.py` makes and `graph.py` lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rag_eval_pipeline.warehouse.table import Table, name_of

LABELS = frozenset({"queries.filter", "nuggets"})
"""Inputs that are gold: a stage may be told to go by them, to see what a right one would give."""


def _imported(config: Any) -> bool:
    return bool(getattr(config, "imported", False))


@dataclass(frozen=True)
class Stage:
    """One stage of the RAG system, as data. Functions are found by name in the room, so that nothing heavy loads early.

    Attributes:
        name: the room's name; also the section of corpus.yaml.
        phase: ingest | prepare | index | retrieve | answer.
        description: what it does, for people.
        reads: tables of earlier stages.
        inputs: outside inputs: `files`, `queries`, `principals`, `output:<name>` (a file of outputs/), `nuggets` (the text of gold
            claims). `queries.<column>` names one column, so that other columns don't change this stage's identity.
        imports: whether a config takes what lies in outputs/.
        labels: whether it takes labels: those inputs that are of `LABELS`.
        writes: tables, the first one being the main one.
        measures: tables that `quality.measure` reads (reads and writes are given to it in any case).
        shares: other stages whose config this one also obeys.
        libraries: distributions whose version is part of the stage's identity.
        kinds: badges in Dagster's UI.
        expects: (table or input, column): the main table has exactly one row for each of its values; checked, blocking.
            A table name with `:kept` counts only rows that were kept.
    """

    name: str
    phase: str
    description: str
    reads: tuple[str, ...]
    writes: tuple[type[Table], ...]
    inputs: tuple[str, ...] = ()
    imports: Callable[[Any], bool] = _imported
    labels: Callable[[Any], bool] = lambda _: False
    measures: tuple[str, ...] = ()
    has_quality: bool = True
    shares: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("polars",)
    expects: tuple[str, str] | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that it writes."""
        return tuple(name_of(table) for table in self.writes)

    def inputs_under(self, config: Any) -> tuple[str, ...]:
        """Outside inputs that decide it under a config: a file or a label that it does not take is none of them."""
        unused = () if self.imports(config) else tuple(name for name in self.inputs if name.startswith("output:"))
        return tuple(name for name in self.inputs if name not in unused and (name not in LABELS or self.labels(config)))

    def door(self, module: str, name: str) -> Callable[..., Any]:
        """A function or class of the room: `door("transform", "run")`."""
        return getattr(import_module(f"rag_eval_pipeline.stages.{self.name}.{module}"), name)

    @property
    def config(self) -> type[Any]:
        """The frozen pydantic model of its section in corpus.yaml."""
        return self.door("transform", "CONFIG")  # type: ignore[return-value]
