"""The scorecard: plain means over every measurement, with counts that hide nothing, and the interval of each mean.

Here: aggregates by slice. Not here: how intervals are made (`estimates`, `measures.intervals`), gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import polars as pl

from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.release.estimates import estimates
from rag_eval_pipeline.warehouse.table import Table, conform, integer, number, string, table

GROUP = ("stage", "retriever", "metric", "unit", "k", "params", "item_type")
SLICE = ("slice_name", "slice_value")
ALWAYS = ("answerable", "tags")
"""Slices that are made whatever `evaluate.slices` says; they are crossed only where it names them."""
CROSS = "×"
ALONE = pl.DataFrame(schema={"query_id": pl.String, "cluster_id": pl.String})
"""No two queries belong together."""


@table("scorecard", "One row a metric and slice: its mean over what could be measured, with counts and bounds.")
class Scorecard(Table):
    """Tidy, like the measurements that it aggregates."""

    stage = string("Room", key=True)
    retriever = string("Lane, or empty", key=True)
    metric = string("Metric", key=True)
    unit = string("Unit of measurement", key=True)
    k = integer("Cut-off; 0 where none", key=True)
    params = string("Parameters, JSON", key=True)
    item_type = string("What one measured item is", key=True)
    slice_name = string("`all`, the slice's column, or two columns crossed: `intent×language`", key=True)
    slice_value = string("Value of the slice; of a crossed one both: `howto×es`", key=True)
    mean = number("Mean over valued items; NULL where none has a value", null=True)
    mean_low = number("Lower limit of the mean's 95 % interval; NULL where `interval` says why", null=True)
    mean_high = number("Upper limit of the mean's 95 % interval; NULL where `interval` says why", null=True)
    interval = string(
        "Method: clopper_pearson, bca, bounded (conservative); or why there is none: no_values, no_bounds, aggregate"
    )
    n_clusters = integer("Independent groups of items behind the interval; an item without a cluster is its own")
    micro = number("Σ numerator / Σ denominator, where the metric is a ratio of counts", null=True)
    n_expected = integer("Items that should have a value")
    n_valued = integer("Items that have one")
    n_by_status = string("Status → items, JSON")
    coverage = number("n_valued / n_expected")
    worst = number("Mean if every unvalued item were worst; NULL where the metric has no bound", null=True)
    best = number("Mean if every unvalued item were best; NULL where the metric has no bound", null=True)
    low = number("Mean of the lower band over tied orders", null=True)
    high = number("Mean of the upper band over tied orders", null=True)
    better = string("higher | lower | neither")
    description = string("Meaning of the metric")


def scorecard(
    measured: pl.DataFrame, metrics: Sequence[Metric], slices: Sequence[str], clusters: pl.DataFrame = ALONE
) -> pl.DataFrame:
    """Aggregate a union of quality tables, over all items, by each slice and by each two of `slices` crossed.

    Args:
        measured: rows of the tidy base.
        metrics: declarations; a metric that none declares is an error.
        slices: columns to slice by, beside `ALWAYS`; `tags` counts an item under each of its tags.
        clusters: query_id, cluster_id; queries of one cluster are not independent.
    """
    declared = {metric.name: metric for metric in metrics}
    if unknown := sorted(set(measured["metric"].to_list()) - set(declared)):
        raise ValueError(f"metrics without a declaration: {unknown}; add them to METRICS of their room's quality.py")
    singles = [(name,) for name in dict.fromkeys((*slices, *ALWAYS))]
    rows = pl.concat([sliced(measured, names) for names in ((), *singles, *combinations(slices, 2))])
    group = [*GROUP, *SLICE]
    limits = estimates(rows, group, declared, clusters)
    return conform(Scorecard, _aggregate(rows, declared).join(limits, on=group, how="left"))


def sliced(measured: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The rows that have a value in every one of these slices, with the slice's name and value."""
    rows = measured.explode("tags") if "tags" in names else measured
    rows = rows.filter(pl.col(name).is_not_null() for name in names) if names else rows
    value = pl.concat_str([pl.col(name).cast(pl.String) for name in names], separator=CROSS) if names else pl.lit("all")
    keep = [*GROUP, "item_id", "status", "value", "numerator", "denominator", "low", "high"]
    return rows.select(*keep, slice_name=pl.lit(CROSS.join(names) or "all"), slice_value=value)


def _aggregate(rows: pl.DataFrame, declared: Mapping[str, Metric]) -> pl.DataFrame:
    bounds = pl.DataFrame(
        [
            {
                "metric": m.name,
                "floor": m.low if abs(m.low) != float("inf") else None,
                "ceiling": m.high if abs(m.high) != float("inf") else None,
                "better": m.better,
                "description": m.description,
            }
            for m in declared.values()
        ],
        schema={
            "metric": pl.String,
            "floor": pl.Float64,
            "ceiling": pl.Float64,
            "better": pl.String,
            "description": pl.String,
        },
    )
    group = [*GROUP, *SLICE]
    statuses = (
        rows.group_by([*group, "status"])
        .len()
        .sort([*group, "status"])
        .group_by(group, maintain_order=True)
        .agg(pl.concat_str(pl.lit('"'), "status", pl.lit('": '), pl.col("len")).str.join(", ").alias("n_by_status"))
        .with_columns(pl.concat_str(pl.lit("{"), "n_by_status", pl.lit("}")).alias("n_by_status"))
    )
    value, valued = pl.col("value"), pl.col("value").is_not_null()
    counted = valued & pl.col("numerator").is_not_null() & pl.col("denominator").is_not_null()
    sums = rows.group_by(group).agg(
        value.mean().alias("mean"),
        value.sum().alias("total"),
        pl.len().cast(pl.Int64).alias("n_expected"),
        valued.sum().cast(pl.Int64).alias("n_valued"),
        pl.col("numerator").filter(counted).sum().alias("numerator"),
        pl.col("denominator").filter(counted).sum().alias("denominator"),
        pl.coalesce("low", "value").mean().alias("low"),
        pl.coalesce("high", "value").mean().alias("high"),
        pl.col("low").is_not_null().any().alias("banded"),
    )
    missing = pl.col("n_expected") - pl.col("n_valued")
    at_floor = (pl.col("total") + missing * pl.col("floor")) / pl.col("n_expected")
    at_ceiling = (pl.col("total") + missing * pl.col("ceiling")) / pl.col("n_expected")
    lower_is_better = pl.col("better") == "lower"
    return (
        sums.join(statuses, on=group, how="left")
        .join(bounds, on="metric", how="left")
        .with_columns(
            pl.when(pl.col("denominator") > 0).then(pl.col("numerator") / pl.col("denominator")).alias("micro"),
            (pl.col("n_valued") / pl.col("n_expected")).alias("coverage"),
            pl.when(lower_is_better).then(at_ceiling).otherwise(at_floor).alias("worst"),
            pl.when(lower_is_better).then(at_floor).otherwise(at_ceiling).alias("best"),
            pl.when("banded").then("low").alias("low"),
            pl.when("banded").then("high").alias("high"),
        )
        .drop("total", "numerator", "denominator", "floor", "ceiling", "banded")
    )
