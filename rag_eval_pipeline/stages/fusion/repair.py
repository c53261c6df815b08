"""What fusion should have handed on: its best lane, chosen on the dev split. Fusing belongs in `transform`."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.measures.evidence import UNIT, hold_rank, served
from rag_eval_pipeline.measures.lists import RUN, cut, empty
from rag_eval_pipeline.stages.fusion.tables import ExactFusedRuns, FusedRuns
from rag_eval_pipeline.stages.fusion.transform import FusionConfig, sequence
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.table import conform

Lists = dict[str, pl.DataFrame]
ORDER = ["query_id", "rank", "chunk_id"]


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: FusionConfig
) -> dict[str, pl.DataFrame]:
    """For each fused retriever the lists of its lane with the best evidence recall@k on the dev split, under its name.

    One lane for all queries; the first in the config among equals. A fused lane among the lanes stands there repaired. The
    list is cut at the fused list's depth. Without dev queries that need evidence, or without k, nothing is changed.

    Args:
        before: `runs`, `exact_runs`.
        after: `fused_runs`, `exact_fused_runs`.
        truth: `k`, `dev_units`, `dev_pieces` and `ledger.hold`.
        config: the stage's own.
    """
    units = truth.dev_units.filter("eligible")
    if truth.k is None or units.is_empty():
        return dict(after)
    real, exact = _by_name(before["runs"]), _by_name(before["exact_runs"])
    given, given_exact = _by_name(after["fused_runs"]), _by_name(after["exact_fused_runs"])
    changed = False
    for name in sequence(config.lanes):
        lane = config.lanes[name]
        best = max(lane.lanes, key=lambda source: _recall(real.get(source, empty()), units, truth))
        depth = lane.depth or config.depth
        made = _named(cut(real.get(best, empty()), depth, lane.depth_unit), name)
        truer = _named(cut(exact.get(best, empty()), depth, lane.depth_unit), name)
        if _same(made, given.get(name)) and _same(truer, given_exact.get(name)):
            made, truer = given.get(name, empty()), given_exact.get(name, empty())
        else:
            changed = True
        real[name] = made
        if truer.height:
            exact[name] = truer
    if not changed:
        return dict(after)
    return {
        **after,
        "fused_runs": conform(FusedRuns, pl.concat([empty(), *(real[name] for name in config.lanes)])),
        "exact_fused_runs": conform(
            ExactFusedRuns, pl.concat([empty(), *(exact[name] for name in config.lanes if name in exact)])
        ),
    }


def _by_name(runs: pl.DataFrame) -> Lists:
    return {str(name): runs.filter(pl.col("retriever") == name) for name in runs["retriever"].unique().sort()}


def _named(runs: pl.DataFrame, name: str) -> pl.DataFrame:
    return runs.with_columns(retriever=pl.lit(name)).select(list(RUN))


def _recall(runs: pl.DataFrame, units: pl.DataFrame, truth: Truth) -> float:
    """Mean over the dev queries of the share of their eligible units that the first k items hold."""
    assert truth.k is not None
    ranks = hold_rank(truth.dev_pieces, runs, units, truth.settings.ledger.hold)
    found = units.select(UNIT).join(served(ranks, truth.k).select(*UNIT, "served"), on=UNIT, how="left")
    by_query = found.group_by("query_id", maintain_order=True).agg(pl.col("served").fill_null(False).mean())
    return float(by_query.sort("query_id")["served"].mean() or 0.0)  # type: ignore[arg-type]


def _same(made: pl.DataFrame, given: pl.DataFrame | None) -> bool:
    """Whether lists have the same items in the same order; their scores may be of two scales."""
    given = empty() if given is None else given
    return made.select(ORDER).sort(ORDER).equals(given.select(ORDER).sort(ORDER))
