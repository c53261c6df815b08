"""What changed since the baseline, for every figure of the scorecard: the table `release_delta`.

Here: pairing of items, and which series share their resamples. Not here: methods of intervals and tests (`measures.paired`),
which two evaluations are compared (`comparing`), rules and verdicts (`gates`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.regressions import Side
from rag_eval_pipeline.measures.intervals import DRAWS, Interval, Plan
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.paired import direction, paired_intervals, randomisation_tests
from rag_eval_pipeline.release.estimates import AGGREGATES
from rag_eval_pipeline.release.scorecard import CROSS, GROUP, SLICE, sliced
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.warehouse.table import Table, conform, integer, number, string, table

KEY = [*GROUP, *SLICE]
QUALITIES = tuple(f"{stage.name}_quality" for stage in STAGES if stage.has_quality)


@table(
    "release_delta",
    "One row a figure of the scorecard and slice, of two evaluations: before, now, and the paired change over the items that "
    "have a value on both sides.",
)
class ReleaseDelta(Table):
    """The scorecard's series, by both evaluations and the rules of the newer one."""

    evaluation_before = string("Evaluation that is compared with", key=True)
    evaluation_id = string("Evaluation that is compared", key=True)
    rules_hash = string("Hash of the release rules (`gates`) of evaluation_id", key=True)
    stage = string("Room", key=True)
    retriever = string("Lane of this name on both sides, or empty", key=True)
    metric = string("Metric", key=True)
    unit = string("Unit of measurement", key=True)
    k = integer("Cut-off; 0 where none", key=True)
    params = string("Parameters, JSON", key=True)
    item_type = string("What one measured item is", key=True)
    slice_name = string("`all`, the slice's column, or two columns crossed", key=True)
    slice_value = string("Value of the slice", key=True)
    version_before = string("corpus@version of evaluation_before")
    pipeline_before = string("Pipeline of evaluation_before")
    before = number("Mean of the baseline over the common items; NULL where there are none", null=True)
    now = number("Mean now over the same items", null=True)
    delta = number("now − before", null=True)
    low = number("Lower limit of the paired 95 % interval of delta; NULL where `method` says why", null=True)
    high = number("Upper limit", null=True)
    method = string(
        "score, bca, bounded (conservative); or why there is none: no_values, no_bounds, aggregate (one figure of many items)"
    )
    p = number(
        "Paired randomisation test of no change; not adjusted for the number of rows. NULL without items", null=True
    )
    direction = string(
        "better | worse | different (no side is better) | inconclusive, by the interval; of an aggregate by its value, `same` "
        "where it is equal; NULL where nothing is shared",
        null=True,
    )
    better = string("higher | lower | neither")
    n = integer("Common items: with a value on both sides")
    n_only_before = integer("Items with a value before and none now: gone, or without a value")
    n_only_now = integer("Items with a value now and none before")
    status = string(
        "paired | only_before | only_now (the series is not there on the other side) | nothing_shared | no_values"
    )


@dataclass(frozen=True)
class _Series:
    """One figure's values on both sides, by common item."""

    place: int
    before: np.ndarray
    now: np.ndarray

    @property
    def content(self) -> bytes:
        return self.before.tobytes() + self.now.tobytes()


@dataclass(frozen=True)
class _Shared:
    """What series that are resampled together agree in."""

    item_type: str
    items: tuple[int, ...]
    clusters: tuple[int, ...]
    low: float | None
    high: float | None


def release_delta(before: Side, now: Side, *, draws: int = DRAWS) -> pl.DataFrame:
    """Rows of `ReleaseDelta`.

    A series is found again by its name alone: a retriever that was renamed is `only_before` and `only_now`.

    Args:
        before: quality tables and scorecard of the baseline.
        now: of the evaluation; its clusters count, and the baseline's for queries that it has no longer.
        draws: resamples and sign patterns.
    """
    names = _slices(before, now)
    clusters = {**before.clusters, **now.clusters}
    series = _paired(_measured(before, names), _measured(now, names), clusters)
    declared = _declared()
    found: list[dict[str, Any]] = [{} for _ in range(series.height)]
    shared: dict[_Shared, list[_Series]] = {}
    for place, row in enumerate(series.iter_rows(named=True)):
        metric = declared.get(row["metric"])
        found[place] = _plain(row, metric)
        if row["n"] and row["item_type"] not in AGGREGATES:
            bounds = _bounds(metric)
            key = _Shared(row["item_type"], tuple(row["item"]), tuple(row["cluster"]), *bounds)
            shared.setdefault(key, []).append(
                _Series(place, np.array(row["values_before"]), np.array(row["values_now"]))
            )
    for key, members in shared.items():
        for place, interval, p in _tested(key, members, draws):
            found[place] |= {
                "low": interval.low,
                "high": interval.high,
                "method": interval.method if interval.status == "scored" else interval.status,
                "p": p,
                "direction": direction(interval, found[place]["better"]),
            }
    frame = series.drop("values_before", "values_now", "item", "cluster", "rows_before", "rows_now")
    made = pl.DataFrame(found, schema=FIGURES, orient="row")
    return conform(ReleaseDelta, _identified(frame.hstack(made), before, now))


FIGURES = {
    "before": pl.Float64, "now": pl.Float64, "delta": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "method": pl.String, "p": pl.Float64, "direction": pl.String, "better": pl.String, "status": pl.String,
}  # fmt: skip


def _slices(before: Side, now: Side) -> list[tuple[str, ...]]:
    """Slices of either scorecard, as columns; the whole first."""
    named = {name for side in (before, now) for name in side.frames["scorecard"]["slice_name"].unique()}
    return [(), *(tuple(name.split(CROSS)) for name in sorted(named - {"all"}))]


def _measured(side: Side, names: Sequence[tuple[str, ...]]) -> pl.DataFrame:
    """Item and value by series."""
    measured = pl.concat([side.frames[name] for name in QUALITIES if name in side.frames])
    return pl.concat([sliced(measured, columns).select(*KEY, "item_id", "value") for columns in names])


def _paired(before: pl.DataFrame, now: pl.DataFrame, clusters: Mapping[str, str]) -> pl.DataFrame:
    """A row a series of either side: counts, and values of the common items in one order, with their clusters (0: alone)."""
    names = pl.DataFrame(
        {"item_id": list(clusters), "cluster_id": list(clusters.values())},
        schema={"item_id": pl.String, "cluster_id": pl.String},
    ).select(
        pl.lit("query").alias("item_type"),
        "item_id",
        pl.col("cluster_id").rank("dense").cast(pl.UInt32).alias("cluster"),
    )
    sides = [
        side.with_columns(pl.lit(True).alias(f"row_{name}")).rename({"value": f"values_{name}"})
        for name, side in (("before", before), ("now", now))
    ]
    rows = (
        sides[0]
        .join(sides[1], on=[*KEY, "item_id"], how="full", coalesce=True)
        .join(names, on=["item_type", "item_id"], how="left")
        .with_columns(pl.col("item_id").rank("dense").alias("item"), pl.col("cluster").fill_null(0))
        .sort("item")
    )
    was, is_ = pl.col("values_before").is_not_null(), pl.col("values_now").is_not_null()
    return (
        rows.group_by(KEY)
        .agg(
            pl.col("values_before", "values_now", "item", "cluster").filter(was & is_),
            (was & is_).sum().cast(pl.Int64).alias("n"),
            (was & ~is_).sum().cast(pl.Int64).alias("n_only_before"),
            (is_ & ~was).sum().cast(pl.Int64).alias("n_only_now"),
            pl.col("row_before").sum().alias("rows_before"),
            pl.col("row_now").sum().alias("rows_now"),
        )
        .sort(KEY)
    )


def _declared() -> dict[str, Metric]:
    metrics: list[Metric] = [m for stage in STAGES if stage.has_quality for m in stage.door("quality", "METRICS")]  # type: ignore[attr-defined]
    return {metric.name: metric for metric in metrics}


def _bounds(metric: Metric | None) -> tuple[float | None, float | None]:
    """Least and greatest value of one side; None where there is none."""
    if metric is None or np.isinf(metric.low) or np.isinf(metric.high):
        return None, None
    return float(metric.low), float(metric.high)


def _plain(row: Mapping[str, Any], metric: Metric | None) -> dict[str, Any]:
    """Means and status; what needs an interval follows."""
    better = metric.better if metric else "neither"
    figures = dict.fromkeys(FIGURES) | {"better": better, "status": _status(row), "method": "no_values"}
    if not row["n"]:
        return figures
    before, now = float(np.mean(row["values_before"])), float(np.mean(row["values_now"]))
    figures |= {"before": before, "now": now, "delta": now - before}
    if row["item_type"] in AGGREGATES:
        figures |= {"method": "aggregate", "direction": _by_value(now - before, better)}
    return figures


def _status(row: Mapping[str, Any]) -> str:
    if row["n"]:
        return "paired"
    if not row["rows_now"]:
        return "only_before"
    if not row["rows_before"]:
        return "only_now"
    return "nothing_shared" if row["n_only_before"] or row["n_only_now"] else "no_values"


def _by_value(change: float, better: str) -> str:
    if change == 0:
        return "same"
    if better == "neither":
        return "different"
    return "better" if (change > 0) == (better == "higher") else "worse"


def _tested(shared: _Shared, members: list[_Series], draws: int) -> Iterator[tuple[int, Interval, float]]:
    """Place, interval and p of series over the same items; equal ones are made once."""
    distinct = list({one.content: one for one in members}.values())
    now, before = (np.column_stack([getattr(one, side) for one in distinct]) for side in ("now", "before"))
    clusters = [cluster or None for cluster in shared.clusters]
    # A count or a time is no hit, even where all of its values happen to be 0 and 1.
    binary = False if shared.low is None or shared.high is None else None
    intervals = paired_intervals(
        now, before, clusters=clusters, low=shared.low, high=shared.high, binary=binary, plan=Plan(draws=draws)
    )
    tests = randomisation_tests(now - before, clusters=clusters, draws=draws)
    made = {one.content: (interval, float(p)) for one, interval, p in zip(distinct, intervals, tests, strict=True)}
    for one in members:
        yield (one.place, *made[one.content])


def _identified(rows: pl.DataFrame, before: Side, now: Side) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit(before.evaluation_id).alias("evaluation_before"),
        pl.lit(now.evaluation_id).alias("evaluation_id"),
        pl.lit(now.rules_hash).alias("rules_hash"),
        pl.lit(before.version).alias("version_before"),
        pl.lit(before.pipeline).alias("pipeline_before"),
    )
