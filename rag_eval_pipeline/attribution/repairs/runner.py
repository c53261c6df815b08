"""Walk the graph under coalitions: each stage by its own transform, each stage of the coalition handing on its repair.

Here: what must run again and what need not. A coalition's path branches off only where a repair changes an output; a stage
whose input did not change is not run. Not here: what a repair does (the rooms' `repair`), what an outcome is worth (`values`).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.units import Carried
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.graph import STAGES, inputs_of
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import name_of, volatile_columns

Frames = Mapping[str, pl.DataFrame]
Coalition = frozenset[str]
Asked = tuple[Coalition, int]
"""A coalition and the cut-off at which its outcome is read: fusion is repaired for one k."""
Repair = Callable[..., dict[str, pl.DataFrame]]
"""`repair(before, after, truth, config)` of a room."""

NOBODY: Coalition = frozenset()
LAST = "reranking"
"""The last stage that recall depends on."""
BY_CUT = "fusion"
"""The stage whose repair is made for each k."""
TEXTS = ("documents", "parsed", "cleaned", "dedup", "pii_spans", "masked", "chunks")
"""Tables that decide anchors and pieces."""


@dataclass(frozen=True)
class Outcome:
    """Where some coalitions ended, all with the same tables.

    Attributes:
        asked: the coalitions and cut-offs that end here.
        frames: every table up to the final lists.
        truth: units, anchors and pieces on these very texts and chunks.
        seconds: wall time of all that ran for it, shared parts included.
    """

    asked: frozenset[Asked]
    frames: Frames
    truth: Truth
    seconds: float


class Truths:
    """What gold says of any run's texts: units stay as they were fixed, anchors and pieces follow the texts.

    Args:
        gold: labels.
        settings: `evaluate` and `ledger`.
        base: tables of the pipeline as it ran.
        units: evidence_units of the measured split.
    """

    def __init__(self, gold: Gold, settings: Settings, base: Frames, units: pl.DataFrame) -> None:
        self._gold, self._settings, self._base, self._units = gold, settings, base, units
        self._known: list[tuple[dict[str, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]] = []
        self._known_dev: list[tuple[dict[str, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]] = []

    @cached_property
    def _carried(self) -> Carried:
        return Carried(self._gold, self._base, self._settings)

    @cached_property
    def _dev(self) -> Carried | None:
        if self._gold.measured("dev").is_empty():
            return None
        evaluate = self._settings.evaluate.model_copy(update={"split": "dev"})
        return Carried(self._gold, self._base, self._settings.model_copy(update={"evaluate": evaluate}))

    @cached_property
    def _dev_units(self) -> pl.DataFrame:
        return self._units.clear() if self._dev is None else self._dev.evidence(self._base).units

    def of(self, frames: Frames, k: int | None = None) -> Truth:
        """The truth about the tables made so far; with `k`, also that of the dev split."""
        anchors, pieces = _followed(self._carried, frames, self._known)
        dev_units, dev_pieces = self._units.clear(), pieces.clear()
        if k is not None and self._dev is not None:
            dev_units, (_, dev_pieces) = self._dev_units, _followed(self._dev, frames, self._known_dev)
        return Truth(self._gold, self._settings, self._units, anchors, pieces, dev_units, dev_pieces, k)


def _followed(
    carried: Carried, frames: Frames, known: list[tuple[dict[str, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Anchors and pieces, remembered for the texts asked about last: later stages ask again about the same ones."""
    texts = {name: frames[name] for name in TEXTS if name in frames}
    for seen, result in known:
        if _identical(seen, texts):
            return result
    result = (carried.anchors(texts), carried.pieces(texts))
    known.append((texts, result))
    del known[:-2]
    return result


@dataclass
class Runner:
    """The pipeline, with any of its stages repaired.

    Attributes:
        base: tables of the pipeline as it ran.
        outside: inputs that no stage makes.
        configs: stage -> config.
        runtime: workers and memo; what was computed once for an item is not computed again.
        repairs: stage -> its repair. Stages without one are run as they are.
        truths: what gold says.
        movers: filled by `run`: stages whose repair changed an output in some coalition that was run without them, too.
        misfits: filled by `run`: coalitions that can't be run, with the stage whose imported input doesn't fit any more.
    """

    base: Frames
    outside: Frames
    configs: Mapping[str, Any]
    runtime: Runtime
    repairs: Mapping[str, Repair]
    truths: Truths
    movers: set[str] = field(default_factory=set)
    misfits: dict[Coalition, str] = field(default_factory=dict)
    _last: dict[str, tuple[dict[str, pl.DataFrame], dict[str, pl.DataFrame]]] = field(default_factory=dict)

    def run(self, asked: Collection[Asked], visit: Callable[[Outcome], None], players: Collection[str] = ()) -> None:
        """Run coalitions; `visit` is called once for each group that ends with the same tables.

        Depth first: of the tables that were made anew only those on the way to the present coalition are kept.

        Args:
            asked: coalitions and cut-offs.
            visit: gets every outcome.
            players: stages known to change something; all others are asked in every coalition, and named in `movers`
                if they would.
        """
        stages = STAGES[: 1 + next(i for i, stage in enumerate(STAGES) if stage.name == LAST)]
        walk = _Walk(self, stages, visit, frozenset(players))
        if asked:
            walk.descend(0, dict(self.outside), frozenset(asked), 0.0)

    def outputs(self, stage: Stage, inputs: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """A stage's tables for these inputs: the stored ones for the inputs that it had, else made anew."""
        if all(inputs[name] is self.base.get(name, self.outside.get(name)) for name in inputs):
            return {name: self.base[name] for name in stage.tables}
        seen, made = self._last.get(stage.name, ({}, {}))
        if not made or not _equal(seen, inputs):
            run = stage.door("transform", "run")
            made = self._settled(stage, run(inputs, self.configs[stage.name], self.runtime))
            self._last[stage.name] = (inputs, made)
        return made

    def _settled(self, stage: Stage, made: Frames) -> dict[str, pl.DataFrame]:
        """The tables of a stage; one that is as it was in the base run is that very frame."""
        return {
            name: self.base[name] if same(stage, name, made[name], self.base[name]) else made[name]
            for name in stage.tables
        }

    def repaired(
        self, stage: Stage, before: Frames, after: dict[str, pl.DataFrame], truth: Truth
    ) -> dict[str, pl.DataFrame]:
        """What a stage should have handed on; `after` itself where that is the same."""
        repair = self.repairs[stage.name]
        options = {"runtime": self.runtime} if "runtime" in inspect.signature(repair).parameters else {}
        made = repair(before, after, truth, self.configs[stage.name], **options)
        if missing := set(stage.tables) - set(made):
            raise RuntimeError(f"the repair of {stage.name} did not give {sorted(missing)}")
        if all(same(stage, name, made[name], after[name]) for name in stage.tables):
            return after
        return self._settled(stage, made)


@dataclass(frozen=True)
class _Walk:
    """One depth-first walk."""

    runner: Runner
    stages: Sequence[Stage]
    visit: Callable[[Outcome], None]
    players: frozenset[str]

    def descend(self, position: int, known: dict[str, pl.DataFrame], asked: frozenset[Asked], seconds: float) -> None:
        if position == len(self.stages):
            self.visit(Outcome(asked, known, self.runner.truths.of(known), seconds))
            return
        stage = self.stages[position]
        started = time.perf_counter()
        config = self.runner.configs[stage.name]
        before = inputs_of(stage, known, config)
        try:
            after = self.runner.outputs(stage, before)
        except ValueError:
            if not stage.imports(config):
                raise
            # What the user's own system made for the chunks as they were says nothing of others: no figure, and it is said.
            self.runner.misfits.update((coalition, stage.name) for coalition, _ in asked)
            return
        seconds += time.perf_counter() - started
        for made, part, cost in self._branches(stage, before, after, known, asked):
            self.descend(position + 1, known | made, part, seconds + cost)

    def _branches(
        self,
        stage: Stage,
        before: Frames,
        after: dict[str, pl.DataFrame],
        known: Frames,
        asked: frozenset[Asked],
    ) -> Iterable[tuple[dict[str, pl.DataFrame], frozenset[Asked], float]]:
        """The stage's possible outputs, each with those that go on from it and what its repair took."""
        inside = frozenset(item for item in asked if stage.name in item[0])
        curious = stage.name in self.runner.repairs and stage.name not in self.players | self.runner.movers
        if stage.name not in self.runner.repairs or not (inside or curious):
            yield after, asked, 0.0
            return
        groups: list[tuple[dict[str, pl.DataFrame], frozenset[Asked], float]] = []
        same_as_after = asked - inside
        for cut, part in _by_cut(stage, asked):
            started = time.perf_counter()
            truth = self.runner.truths.of({**known, **after}, cut)
            made = self.runner.repaired(stage, before, after, truth)
            cost = time.perf_counter() - started
            if made is after:
                same_as_after |= part & inside
                continue
            self.runner.movers.add(stage.name)
            if part & inside:
                groups = _merged(stage, groups, made, part & inside, cost)
        if same_as_after:
            yield after, same_as_after, 0.0
        yield from groups


def _by_cut(stage: Stage, asked: frozenset[Asked]) -> Iterable[tuple[int | None, frozenset[Asked]]]:
    if stage.name != BY_CUT:
        return [(None, asked)]
    cuts = sorted({cut for _, cut in asked})
    return [(cut, frozenset(item for item in asked if item[1] == cut)) for cut in cuts]


def _merged(
    stage: Stage,
    groups: list[tuple[dict[str, pl.DataFrame], frozenset[Asked], float]],
    made: dict[str, pl.DataFrame],
    part: frozenset[Asked],
    cost: float,
) -> list[tuple[dict[str, pl.DataFrame], frozenset[Asked], float]]:
    """The groups with one more; cut-offs with the same output go on together."""
    for index, (other, members, spent) in enumerate(groups):
        if all(same(stage, name, made[name], other[name]) for name in stage.tables):
            return [*groups[:index], (other, members | part, spent + cost), *groups[index + 1 :]]
    return [*groups, (made, part, cost)]


def same(stage: Stage, name: str, one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether two frames of a stage's table have the same content; durations are none."""
    if one is other:
        return True
    schema = next(schema for schema in stage.writes if name_of(schema) == name)
    volatile = volatile_columns(schema)
    return one.drop(volatile, strict=False).equals(other.drop(volatile, strict=False))


def _identical(one: Frames, other: Frames) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _equal(one: Frames, other: Frames) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] or one[name].equals(other[name]) for name in one)


def with_silence(runtime: Runtime) -> Runtime:
    """The same surroundings, without a report of each stage's progress."""
    return replace(runtime, progress=lambda stage, done, total: None)
