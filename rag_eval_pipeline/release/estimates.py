"""How sure each mean of the scorecard is: its interval, from the items behind it.

Here: which rows of measurements share their items, so that their resamples are paid once. Not here: methods
(`measures.intervals`), means and counts (`scorecard`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rag_eval_pipeline.measures.intervals import DRAWS, Plan, limits_of, mean_intervals
from rag_eval_pipeline.measures.metric import Metric

AGGREGATES = ("corpus", "type", "language")
"""Item types whose value is a figure of many items already: there is nothing to resample."""

LIMITS = {"mean_low": pl.Float64, "mean_high": pl.Float64, "interval": pl.String, "n_clusters": pl.Int64}


@dataclass(frozen=True)
class _Series:
    """One mean's values, by item in the order of its items."""

    place: int
    values: np.ndarray
    bounds: tuple[float, float]

    @property
    def content(self) -> tuple:
        return self.values.tobytes(), self.bounds


def estimates(
    rows: pl.DataFrame, group: Sequence[str], declared: Mapping[str, Metric], clusters: pl.DataFrame, draws: int = DRAWS
) -> pl.DataFrame:
    """An interval for each group of measurements.

    Args:
        rows: measurements with the columns of `group`, item_type, item_id, value.
        group: what one mean is about; holds metric and item_type.
        declared: metrics by name, for their bounds.
        clusters: query_id, cluster_id of queries that belong together; all other items stand alone.
        draws: resamples.

    Returns:
        `group` and the columns of `LIMITS`; `interval` is the method, or why there is none: `no_values`, `no_bounds`,
        `aggregate`.
    """
    key = list(dict.fromkeys(group))
    series = _series(rows, key, clusters)
    found: list[dict] = [dict.fromkeys(LIMITS)] * len(series)
    shared: dict[tuple, list[_Series]] = {}
    columns = ("metric", "item_type", "value", "item", "cluster")
    for place, (metric, kind, values, items, named) in enumerate(series.select(columns).iter_rows()):
        if kind in AGGREGATES or not values:
            why = "aggregate" if kind in AGGREGATES else "no_values"
            found[place] = {**dict.fromkeys(LIMITS), "interval": why, "n_clusters": len(values) if values else 0}
            continue
        one = _Series(place, np.array(values), (declared[metric].low, declared[metric].high))
        shared.setdefault((kind, tuple(items), tuple(named)), []).append(one)
    for (_, _, named), members in shared.items():
        for one, limits in zip(members, _of_shared(members, named, draws), strict=True):
            found[one.place] = limits
    return series.select(key).hstack(pl.DataFrame(found, schema=LIMITS, orient="row"))


def _series(rows: pl.DataFrame, key: list[str], clusters: pl.DataFrame) -> pl.DataFrame:
    """A row a mean: its valued items in order (as numbers), their values and clusters (0 where an item is alone)."""
    names = clusters.filter(pl.col("cluster_id").is_not_null()).select(
        pl.lit("query").alias("item_type"),
        pl.col("query_id").alias("item_id"),
        pl.col("cluster_id").rank("dense").cast(pl.UInt32).alias("cluster"),
    )
    numbered = (
        rows.select(*key, "item_id", "value")
        .join(names, on=["item_type", "item_id"], how="left")
        .with_columns(pl.col("item_id").rank("dense").alias("item"), pl.col("cluster").fill_null(0))
        .sort("item")
    )
    valued = pl.col("value").is_not_null()
    return numbered.group_by(key).agg(pl.col("value", "item", "cluster").filter(valued)).sort(key)


def _of_shared(members: list[_Series], named: Sequence[int], draws: int) -> list[dict]:
    """Limits of means over the same items; equal ones are made once."""
    distinct = {one.content: one for one in members}
    one_each = list(distinct.values())
    intervals = mean_intervals(
        np.column_stack([one.values for one in one_each]),
        clusters=[cluster or None for cluster in named],
        low=[one.bounds[0] for one in one_each],
        high=[one.bounds[1] for one in one_each],
        plan=Plan(draws=draws),
    )
    limits = limits_of(intervals)
    made = [dict(zip(limits, row, strict=True)) for row in zip(*limits.values(), strict=True)]
    by_content = dict(zip(distinct, made, strict=True))
    return [by_content[one.content] for one in members]
