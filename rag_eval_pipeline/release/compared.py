"""What is computed from two evaluations, as data: one list, like `EVALUATED`.

Orchestration makes an asset of each entry; publish and prune find the tables through the comparisons' manifests. Which two
are compared, and where the result is kept, stands in `comparing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from rag_eval_pipeline.attribution.changes import Changes
from rag_eval_pipeline.attribution.regressions import (
    Side,
    VersionRecall,
    VersionRegressions,
    version_recall,
    version_regressions,
)
from rag_eval_pipeline.release.deltas import QUALITIES, ReleaseDelta, release_delta
from rag_eval_pipeline.warehouse.table import Table, name_of


@dataclass(frozen=True)
class Compared:
    """Tables of a comparison.

    Attributes:
        name: of the step.
        description: for people.
        reads: tables of both evaluations; those that an evaluation has not are left out of its frames.
        writes: tables, stored under the comparison's id; they carry `evaluation_before` and `evaluation_id` as keys.
        run: (before, now, changes) -> frames by table name.
        code: modules whose code decides the result.
    """

    name: str
    description: str
    reads: tuple[str, ...]
    writes: tuple[type[Table], ...]
    run: Callable[[Side, Side, Changes], Mapping[str, pl.DataFrame]]
    code: tuple[str, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that it writes."""
        return tuple(name_of(table) for table in self.writes)


def _regressions(before: Side, now: Side, changes: Changes) -> dict[str, pl.DataFrame]:
    return {
        "version_regressions": version_regressions(before, now, changes),
        "version_recall": version_recall(before, now),
    }


def _delta(before: Side, now: Side, _changes: Changes) -> dict[str, pl.DataFrame]:
    return {"release_delta": release_delta(before, now)}


COMPARED: tuple[Compared, ...] = (
    Compared(
        name="regressions",
        description="What became of each piece of evidence since the baseline of `gates.baseline`: kept, recovered, newly "
        "lost, by stage, cause and change of its document; and recall before and now with its paired interval.",
        reads=(
            "documents",
            "masked",
            "chunks",
            "evidence_units",
            "evidence_anchors",
            "evidence_pieces",
            "evidence_fate",
            "loss_waterfall",
        ),
        writes=(VersionRegressions, VersionRecall),
        run=_regressions,
        code=("rag_eval_pipeline.attribution.regressions",),
    ),
    Compared(
        name="delta",
        description="Every figure of the scorecard before and now, with the paired interval of its change over the items that "
        "both sides have, and how many only one side has. What a release gate decides is in `release_gate`.",
        reads=(*QUALITIES, "scorecard"),
        writes=(ReleaseDelta,),
        run=_delta,
        code=("rag_eval_pipeline.release.deltas",),
    ),
)
