"""Which coalitions are run, and the table that comes of them: recovered, marginal, Shapley, ceilings.

Here: players by closure, modes, rows. Not here: how a coalition is run (`runner`), valued (`values`) or shared out (`shapley`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.evaluate import KEPT_OFF, retrievers
from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.attribution.order import STAGES as ORDER
from rag_eval_pipeline.attribution.order import RetrieverInfo, shown, unseen
from rag_eval_pipeline.attribution.repairs.runner import (
    NOBODY,
    Asked,
    Coalition,
    Outcome,
    Repair,
    Runner,
    Truths,
    with_silence,
)
from rag_eval_pipeline.attribution.repairs.shapley import (
    EXACT,
    Share,
    every_coalition,
    exact,
    orders,
    prefixes,
    sampled,
)
from rag_eval_pipeline.attribution.repairs.tables import StageRepairs
from rag_eval_pipeline.attribution.repairs.values import Asking, Values, ceiling
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import UNIT
from rag_eval_pipeline.measures.intervals import Interval
from rag_eval_pipeline.measures.paired import paired_intervals
from rag_eval_pipeline.stages.chunking import repair as chunking
from rag_eval_pipeline.stages.cleaning import repair as cleaning
from rag_eval_pipeline.stages.context import evidence as context
from rag_eval_pipeline.stages.dedup import repair as dedup
from rag_eval_pipeline.stages.embedding import repair as embedding
from rag_eval_pipeline.stages.filtering import repair as filtering
from rag_eval_pipeline.stages.fusion import repair as fusion
from rag_eval_pipeline.stages.graph import BY_NAME, STAGES, inputs_of
from rag_eval_pipeline.stages.indexing import repair as indexing
from rag_eval_pipeline.stages.parsing import repair as parsing
from rag_eval_pipeline.stages.pii import repair as pii
from rag_eval_pipeline.stages.reranking import repair as reranking
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

PAIRS = 4
"""Seeded orders, each with its reverse, where players are more than `shapley.EXACT`."""
NO_BUDGET = 2**40
TOTAL, CEILING, CONTEXT = "all_repairs", "reranker_ceiling", "context"
NEW_TEXT = ["prefix", "text", "window"]


ROOMS: tuple[Any, ...] = (
    parsing, cleaning, dedup, pii, chunking, embedding, indexing, filtering, fusion, reranking,
)  # fmt: skip
REPAIRS: dict[str, Repair] = {room.__name__.split(".")[-2]: room.repair for room in ROOMS}
"""The repair of every room that has one. Imported by name, so that their code counts in an evaluation's identity."""


def repairs(subject: Subject) -> dict[str, pl.DataFrame]:
    """The table `stage_repairs` of a subject; without rows where repairs are off or no query needs evidence."""
    settings, gold = subject.version.settings, subject.version.gold
    if settings.ledger.repairs == "off":
        return {"stage_repairs": conform(StageRepairs, [])}
    base = {name: subject.frame(name) for stage in STAGES for name in stage.tables}
    study = Study(
        base=base,
        outside=subject.outside(),
        configs=subject.configs,
        runtime=subject.runtime(),
        gold=gold,
        settings=settings,
        units=subject.kept("evidence_units"),
        fate=subject.kept("evidence_fate"),
        repairs=REPAIRS,
    )
    return {"stage_repairs": study.table()}


@dataclass
class Study:
    """All that is run and counted for one table.

    Attributes:
        base: tables of the pipeline as it ran.
        outside: inputs that no stage makes.
        configs: stage -> config.
        runtime: workers, memo, progress.
        gold: labels.
        settings: `evaluate`, and `ledger.repairs`.
        units: evidence_units.
        fate: evidence_fate.
        repairs: room -> its repair.
        pairs: orders and reverses that are drawn where players are many.
    """

    base: Mapping[str, pl.DataFrame]
    outside: Mapping[str, pl.DataFrame]
    configs: Mapping[str, Any]
    runtime: Runtime
    gold: Gold
    settings: Settings
    units: pl.DataFrame
    fate: pl.DataFrame
    repairs: Mapping[str, Repair]
    pairs: int = PAIRS
    players: frozenset[str] = NOBODY
    excluded: frozenset[str] = NOBODY
    """Stages whose repair can't be followed: what was imported later doesn't fit it."""
    _costs: dict[Asked, tuple[float, int]] = field(default_factory=dict)
    _mended: dict[tuple[str, int], pl.DataFrame] = field(default_factory=dict)
    _ceiling: dict[int, np.ndarray] = field(default_factory=dict)
    _group: dict[Asked, int] = field(default_factory=dict)
    """Number of the outcome that a coalition ended with; the same one: the same tables."""
    _done: int = 0

    @cached_property
    def infos(self) -> dict[str, RetrieverInfo]:
        """Every lane and fused list."""
        return retrievers(self.configs)

    @cached_property
    def ks(self) -> tuple[int, ...]:
        """Every k that is measured."""
        return self.settings.evaluate.cuts

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Tables that the ledger is given: those of stages that this pipeline has."""
        there = [s for s in STAGES if getattr(self.configs[s.name], "enabled", True) or s.name in KEPT_OFF]
        return tuple(name for stage in there for name in stage.tables)

    @cached_property
    def shown(self) -> dict[str, tuple[str, ...]]:
        """Stages with a row, by retriever: those with a repair that the waterfall shows, too."""
        hidden = unseen({name: self.base[name] for name in self.tables if name in self.base})
        return {
            name: tuple(
                stage
                for stage in shown(name, info, hidden)
                if stage in self.repairs and getattr(self.configs[stage], "enabled", True)
            )
            for name, info in self.infos.items()
        }

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """Stages that can be repaired, in the waterfall's order."""
        every = {stage for stages in self.shown.values() for stage in stages}
        return tuple(stage for stage in ORDER if stage in every)

    @cached_property
    def asking(self) -> Asking:
        """Units and retrievers."""
        return Asking(self.units, tuple(sorted(self.infos)), self.settings.ledger.hold)

    @cached_property
    def values(self) -> Values:
        """Outcomes so far."""
        return Values(self.asking)

    @cached_property
    def runner(self) -> Runner:
        """The pipeline, repairable."""
        return Runner(
            base=self.base,
            outside=self.outside,
            configs=self.configs,
            runtime=with_silence(self.runtime),
            repairs={stage: self.repairs[stage] for stage in self.candidates},
            truths=Truths(self.gold, self.settings, self.base, self.units),
        )

    def table(self) -> pl.DataFrame:
        """Run what the mode asks for; rows of `stage_repairs`."""
        if not self.asking.queries:
            return conform(StageRepairs, [])
        self.run()
        rows = _Rows(self).all()
        return conform(StageRepairs, rows)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run coalitions until no further stage turns out to be a player."""
        self._cover([NOBODY, *map(_one, self.candidates)])
        while True:
            before = (self.players, self.excluded)
            self._cover(self._wanted())
            if (self.players, self.excluded) == before:
                return

    def _wanted(self) -> list[Coalition]:
        everyone = self.players
        wanted = [NOBODY, everyone, *(everyone - {player} for player in sorted(everyone))]
        if self.settings.ledger.repairs == "shapley":
            wanted += (
                every_coalition(sorted(everyone))
                if len(everyone) <= EXACT
                else [coalition for order in self.orders for coalition in prefixes(order)]
            )
        return list(dict.fromkeys(wanted))

    @property
    def orders(self) -> list[tuple[str, ...]]:
        """The drawn orders of the players."""
        return orders(sorted(self.players), self.pairs)

    def _cover(self, coalitions: Sequence[Coalition]) -> None:
        asked = [item for item in self.values.missing(coalitions, self.ks) if item[0] not in self.runner.misfits]
        self._done = 0
        self.runner.run(asked, partial(self._note, total=len(asked)), self.players)
        self.excluded |= frozenset(
            stage
            for coalition, misfit in self.runner.misfits.items()
            for stage in coalition
            if STAGES.index(BY_NAME[stage]) < STAGES.index(BY_NAME[misfit])
        )
        self.players = frozenset(self.runner.movers) - self.excluded

    def _note(self, outcome: Outcome, total: int) -> None:
        self.values.note(outcome)
        self._group.update(dict.fromkeys(outcome.asked, len(self._group)))
        tokens = self._tokens(outcome)
        self._costs.update(dict.fromkeys(outcome.asked, (outcome.seconds, tokens)))
        singles = {item for item in outcome.asked if len(item[0]) == 1}
        if any(self._lost(stage, k).height for coalition, k in singles for stage in coalition):
            fate = self._fate(outcome)
            for coalition, k in sorted(singles, key=lambda item: (sorted(item[0]), item[1])):
                (stage,) = coalition
                lost = self._lost(stage, k).join(
                    fate.filter((pl.col("k") == k) & (pl.col("first_loss_stage") == stage)),
                    on=["retriever", *UNIT],
                    how="anti",
                )
                self._mended[stage, k] = lost
        if any(not coalition for coalition, _ in outcome.asked):
            self._ceiling = ceiling(outcome, self.asking, self.ks)
        self._done += len(outcome.asked)
        self.runtime.progress("repairs", self._done, total)

    def _lost(self, stage: str, k: int) -> pl.DataFrame:
        lost = (pl.col("first_loss_stage") == stage) & (pl.col("k") == k) & pl.col("eligible")
        return self.fate.filter(lost).select("retriever", *UNIT)

    def _fate(self, outcome: Outcome) -> pl.DataFrame:
        """Where the ledger loses units now."""
        frames = {name: outcome.frames[name] for name in self.tables if name in outcome.frames}
        truth = outcome.truth
        return build_ledger(
            frames, self.units, truth.anchors, truth.pieces, self.settings, self.infos, self.gold.queries
        ).fate

    def _tokens(self, outcome: Outcome) -> int:
        """Word pieces of texts that the base run had not encoded."""
        if outcome.frames["embeddings"] is self.base["embeddings"]:
            return 0
        new = self._encoded(outcome.frames).join(self._encoded(self.base), on=NEW_TEXT, how="anti")
        return int(new["encoded_tokens"].sum())

    def _encoded(self, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """What the encoder had to see: a row a text; none where vectors were imported."""
        embeddings = frames["embeddings"]
        if getattr(self.configs["embedding"], "imported", False):
            embeddings = embeddings.clear()
        texts = frames["chunks"].select("chunk_id", pl.col("prefix").fill_null(""), "text")
        rows = embeddings.select("chunk_id", "window", "encoded_tokens").join(texts, on="chunk_id")
        return rows.unique(NEW_TEXT, keep="first", maintain_order=True)

    @cached_property
    def base_tokens(self) -> int:
        """Word pieces that the encoder saw for the pipeline as it ran."""
        return int(self._encoded(self.base)["encoded_tokens"].sum())

    # --- sharing out -------------------------------------------------------------------------------------------------

    def shares(self, k: int) -> dict[str, Share]:
        """Shapley values at k, by player; each an array over retrievers. None of them unless the mode asks."""
        if self.settings.ledger.repairs != "shapley" or not self.players:
            return {}

        def game(coalition: Coalition) -> np.ndarray:
            return self.values.mean(coalition, k)

        players = sorted(self.players)
        return exact(players, game) if len(players) <= EXACT else sampled(self.orders, game)

    # --- context -----------------------------------------------------------------------------------------------------

    def context(self) -> tuple[str, np.ndarray, np.ndarray] | None:
        """The served retriever, and by unit whether the context holds it: as assembled, and without a budget."""
        contexts = self.base.get("contexts")
        if contexts is None or contexts.is_empty():
            return None
        stage, config = BY_NAME["context"], self.configs["context"]
        free = config.model_copy(update={"imported": False, "budget_tokens": NO_BUDGET})
        known = {**self.outside, **self.base}
        made = stage.door("transform", "run")(inputs_of(stage, known, free), free, with_silence(self.runtime))
        held = self._context_holds(contexts), self._context_holds(made["contexts"])
        return str(contexts["retriever"][0]), *held

    def _context_holds(self, contexts: pl.DataFrame) -> np.ndarray:
        pieces = self.runner.truths.of(self.base).pieces
        held = context.trace(self.units, {"evidence_pieces": pieces}, {"contexts": contexts}, self.settings.ledger)
        rows = self.asking.eligible.join(held, on=UNIT, how="left", maintain_order="left")
        return rows["held"].fill_null(False).to_numpy()


def _one(stage: str) -> Coalition:
    return frozenset([stage])


@dataclass
class _Rows:
    """The rows of a study that has run."""

    study: Study
    _pending: list[tuple[dict[str, Any], str, np.ndarray, np.ndarray]] = field(default_factory=list)
    """Row, prefix of its columns, and both sides by query: intervals are made for all at once."""

    def all(self) -> list[dict[str, Any]]:
        """Every row."""
        study, rows = self.study, []
        for k in study.ks:
            shares = study.shares(k)
            for index, retriever in enumerate(study.asking.retrievers):
                for stage in study.candidates:
                    row = self._stage(retriever, index, k, stage, shares.get(stage))
                    if stage in study.shown[retriever] or row["recovered_recall"] or row["shapley"]:
                        rows.append(row)
                rows += [self._total(retriever, index, k), self._ceiling(retriever, index, k)]
        rows += self._context()
        self._fill()
        return rows

    def _base(self, retriever: str, index: int, k: int, stage: str, kind: str, position: int) -> dict[str, Any]:
        return {
            "retriever": retriever,
            "k": k,
            "stage": stage,
            "kind": kind,
            "position": position,
            "status": "ok",
            "baseline": float(self.study.values.mean(NOBODY, k)[index]),
            "player": False,
            "recovered_recall": None,
            "shapley": None,
            "n_queries": len(self.study.asking.queries),
            "base_encoder_tokens": self.study.base_tokens,
        }

    def _stage(self, retriever: str, index: int, k: int, stage: str, share: Share | None) -> dict[str, Any]:
        study, values = self.study, self.study.values
        row = self._base(retriever, index, k, stage, "stage", ORDER.index(stage))
        lost = study._lost(stage, k).filter(pl.col("retriever") == retriever)
        mended = study._mended.get((stage, k), lost.clear()).filter(pl.col("retriever") == retriever)
        row |= {"n_lost": lost.height, "n_repairable": mended.height, "player": stage in study.players}
        if stage in study.excluded:
            return row | {"status": "import_misfit", "n_repairable": None}
        alone, everyone = _one(stage), study.players
        row["status"] = "ok" if stage in study.players else "unchanged"
        row |= self._compared(values.served[alone, k][index], values.served[NOBODY, k][index])
        self._difference(row, "recovered", alone, NOBODY, index, k)
        self._difference(row, "marginal", everyone, everyone - alone, index, k)
        seconds, tokens = study._costs[alone, k]
        row |= {"seconds": seconds, "encoder_tokens": tokens}
        if study.settings.ledger.repairs == "shapley":
            row["shapley"] = float(share.value[index]) if share else 0.0
            row["shapley_error"] = float(share.error[index]) if share and share.error is not None else None
        return row

    def _total(self, retriever: str, index: int, k: int) -> dict[str, Any]:
        study, everyone = self.study, self.study.players
        row = self._base(retriever, index, k, TOTAL, "total", len(ORDER))
        row["status"] = "ok" if everyone else "unchanged"
        row |= self._compared(study.values.served[everyone, k][index], study.values.served[NOBODY, k][index])
        self._difference(row, "recovered", everyone, NOBODY, index, k)
        seconds, tokens = study._costs[everyone, k]
        row |= {"seconds": seconds, "encoder_tokens": tokens}
        return row

    def _ceiling(self, retriever: str, index: int, k: int) -> dict[str, Any]:
        row = self._base(retriever, index, k, CEILING, "ceiling", len(ORDER) + 1)
        best = self.study._ceiling[k][index]
        now = self.study.values.by_query(NOBODY, k)[index]
        row |= {"recovered_recall": _mean(best - now), "queries_helped": int((best > now).sum()), "queries_hurt": 0}
        self._pending.append((row, "recovered", best, now))
        return row

    def _context(self) -> list[dict[str, Any]]:
        study, k = self.study, self.study.settings.evaluate.serve_k
        found = study.context()
        if found is None or found[0] not in study.asking.retrievers:
            return []
        retriever, budget, free = found
        index = study.asking.retrievers.index(retriever)
        row = self._base(retriever, index, k, CONTEXT, "context", len(ORDER) + 2)
        one, other = (study.asking.recall(held[None, :])[0] for held in (free, budget))
        served = study.values.served[NOBODY, k][index]
        row |= self._compared(free, budget) | {"baseline": _mean(other), "recovered_recall": _mean(one - other)}
        row |= {"n_lost": int((served & ~budget).sum()), "n_repairable": int((served & ~budget & free).sum())}
        self._pending.append((row, "recovered", one, other))
        return [row]

    def _compared(self, now: np.ndarray, before: np.ndarray) -> dict[str, Any]:
        """Units and queries that differ between two outcomes of one retriever."""
        ahead, behind = (self.study.asking.recall(side[None, :])[0] for side in (now, before))
        return {
            "units_gained": int((now & ~before).sum()),
            "units_lost": int((before & ~now).sum()),
            "queries_helped": int((ahead > behind).sum()),
            "queries_hurt": int((ahead < behind).sum()),
        }

    def _difference(
        self, row: dict[str, Any], prefix: str, one: Coalition, other: Coalition, index: int, k: int
    ) -> None:
        values = self.study.values
        row[f"{prefix}_recall"] = float(values.mean(one, k)[index] - values.mean(other, k)[index])
        if (
            self.study._group[one, k] != self.study._group[other, k]
        ):  # else no query can differ: there is nothing to doubt
            self._pending.append((row, prefix, values.by_query(one, k)[index], values.by_query(other, k)[index]))

    def _fill(self) -> None:
        """Add the intervals."""
        if not self._pending:
            return
        one = np.stack([ahead for _, _, ahead, _ in self._pending], axis=1)
        other = np.stack([behind for _, _, _, behind in self._pending], axis=1)
        clusters = dict(self.study.gold.queries.select("query_id", "cluster_id").iter_rows())
        names = [clusters.get(query) for query in self.study.asking.queries]
        found: list[Interval] = paired_intervals(one, other, clusters=names, low=0.0, high=1.0)
        for (row, prefix, _, _), interval in zip(self._pending, found, strict=True):
            row |= {
                f"{prefix}_low": interval.low,
                f"{prefix}_high": interval.high,
                f"{prefix}_method": interval.method,
            }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
