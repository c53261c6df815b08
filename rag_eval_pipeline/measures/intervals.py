"""Intervals of means: which method a figure gets, for one measure or for many at once.

Here: the choice between Clopper–Pearson, bootstrap and conservative limits, and what an interval says of itself. Not here: how
limits are computed (`bootstrap`, `bounded`), two sides and decisions (`paired`).

| figure | method |
| --- | --- |
| binary, no clusters | `clopper_pearson` |
| ≥ 30 clusters, of which ≥ 10 differ from the most frequent value and count as ≥ 6 (`differing`) | `bca`: outer limits of BCa and bootstrap-t |
| else, with finite bounds | `bounded`: conservative, by betting |
| else | `none`, with a status; limits are NULL |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import betaincinv

from rag_eval_pipeline.measures.bootstrap import Limits, Tails, bootstrap_limits
from rag_eval_pipeline.measures.bounded import bounded_limits

Method = Literal["clopper_pearson", "score", "bca", "bounded", "none"]
Side = Literal["two", "lower", "upper"]

DRAWS = 10_000
MIN_CLUSTERS = 30
MIN_DIFFERENT = 10
"""Of the clusters, those whose mean is not the most frequent one: below, resamples know too little of the spread."""
MIN_COUNTED = 6.0
"""As how many equal differences these must count: one large one among nine small ones is not enough."""
MANY_DIFFERENT = 30
"""From here on it no longer matters how unequal they are."""
_DIGITS = 12


@dataclass(frozen=True)
class Interval:
    """A mean and how sure we are of it.

    Attributes:
        mean: over queries; None where there are none.
        low: lower limit; None where there is none.
        high: upper limit; likewise.
        method: how it was made.
        n: queries with a value.
        n_clusters: independent groups of queries.
        level: confidence; of a one-sided limit the one-sided level.
        side: `two`, or which limit is meant; the other one is then the measure's bound, if it has one.
        status: `scored`, `no_values` or `no_bounds` (too few differ, and the measure has no finite range).
    """

    mean: float | None
    low: float | None
    high: float | None
    method: Method
    n: int
    n_clusters: int
    level: float = 0.95
    side: Side = "two"
    status: str = "scored"

    @property
    def conservative(self) -> bool:
        """Whether it covers more often than its level says."""
        return self.method == "bounded"

    @property
    def width(self) -> float | None:
        """Upper less lower limit."""
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Plan:
    """What a batch shares: level, side and draws."""

    level: float = 0.95
    side: Side = "two"
    draws: int = DRAWS
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1, found {self.level}; 95 % is 0.95")
        if self.side not in ("two", "lower", "upper"):
            raise ValueError(f"unknown side {self.side!r}; use two, lower or upper")
        if self.draws < 100:
            raise ValueError(f"{self.draws} draws give no limits; use at least 100, better {DRAWS}")

    @property
    def tails(self) -> Tails:
        """Probability below the lower and above the upper limit."""
        out = 1 - self.level
        return {"two": (out / 2, out / 2), "lower": (out, 0.0), "upper": (0.0, out)}[self.side]


USUAL = Plan()
"""95 %, two-sided."""


@dataclass(frozen=True)
class Columns:
    """Measures with a value for the same queries: clusters × columns.

    Attributes:
        sums: of values by cluster.
        sizes: queries by cluster.
        bounds: least and greatest value, by column; infinite where there is none.
        values: queries × columns.
    """

    sums: np.ndarray
    sizes: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    values: np.ndarray

    @property
    def single(self) -> bool:
        """Whether every query is its own cluster."""
        return len(self.sizes) == len(self.values)

    def at(self, chosen: np.ndarray) -> Columns:
        """Some of the columns."""
        least, greatest = self.bounds
        return Columns(self.sums[:, chosen], self.sizes, (least[chosen], greatest[chosen]), self.values[:, chosen])


def confidence_interval(
    values: Sequence[float] | np.ndarray,
    *,
    clusters: Sequence[Any] | np.ndarray | None = None,
    binary: bool | None = None,
    low: float | None = None,
    high: float | None = None,
    level: float = 0.95,
    side: Side = "two",
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """The interval of a mean over queries.

    Args:
        values: one a query; NaN and None are refused: leave out what has no value.
        clusters: which queries belong together, by query; None among them means alone.
        binary: whether values are 0 or 1 by their nature; by default, whether all are and no other bounds are declared.
        low: least value that the measure can have; None or infinite where there is none.
        high: greatest value.
        level: confidence; with a `side` that of the one limit.
        side: `two`, `lower` or `upper`.
        draws: resamples.
        seed: of the resamples; same values, same interval.

    Raises:
        ValueError: a value is missing or outside its bounds, or lengths differ.
    """
    column = np.array([np.nan if value is None else value for value in values], dtype=np.float64)[:, None]
    if np.isnan(column).any():
        raise ValueError(
            f"values: {int(np.isnan(column).sum())} of {len(column)} are missing; leave them out and count them"
        )
    return mean_intervals(
        column, clusters=clusters, binary=binary, low=low, high=high, plan=Plan(level, side, draws, seed)
    )[0]


def mean_intervals(
    values: np.ndarray,
    *,
    clusters: Sequence[Any] | np.ndarray | None = None,
    binary: bool | Sequence[bool | None] | None = None,
    low: float | Sequence[float | None] | None = None,
    high: float | Sequence[float | None] | None = None,
    plan: Plan = USUAL,
) -> list[Interval]:
    """Intervals of many measures of the same queries, paid once.

    Measures with a value for the same queries share their resamples. Memory: one block of weights and one of draws at a time
    (`bootstrap.BLOCK`).

    Args:
        values: queries × measures; NaN where a query has no value.
        clusters: as `confidence_interval` has it.
        binary: for all measures, or by measure.
        low: least value, for all or by measure.
        high: greatest value, likewise.
        plan: level, side, draws, seed.

    Returns:
        One interval a measure, in order.
    """
    values = np.asarray(values, dtype=np.float64)
    bounds = (_by_column(low, -np.inf, values.shape[1]), _by_column(high, np.inf, values.shape[1]))
    _check(values, bounds)
    codes = cluster_codes(clusters, len(values))
    flags = binary if isinstance(binary, Sequence) else [binary] * values.shape[1]
    result: list[Interval | None] = [None] * values.shape[1]
    for mask, chosen in _by_mask(values):
        group = _grouped(values[mask][:, chosen], codes[mask], (bounds[0][chosen], bounds[1][chosen]))
        for place, interval in zip(chosen, _intervals(group, [flags[at] for at in chosen], plan), strict=True):
            result[place] = interval
    return [interval for interval in result if interval is not None]


def _by_column(bound: float | Sequence[float | None] | None, open_side: float, width: int) -> np.ndarray:
    each = list(bound) if isinstance(bound, Sequence | np.ndarray) else [bound] * width
    if len(each) != width:
        raise ValueError(f"{len(each)} bounds for {width} measures; give one for all, or one a measure")
    return np.array([open_side if value is None else value for value in each], dtype=np.float64)


def _check(values: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> None:
    if values.ndim != 2:
        raise ValueError(f"values must be queries × measures, found {values.ndim} dimensions")
    if np.isinf(values).any():
        raise ValueError("values: infinite; a value that cannot be measured is left out")
    if not (bounds[0] < bounds[1]).all():  # NaN is less than nothing
        raise ValueError("low must be less than high")
    slack = 1e-9
    outside = (values < bounds[0] - slack) | (values > bounds[1] + slack)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        found = f"{values[row, column]:g} is outside [{bounds[0][column]:g}, {bounds[1][column]:g}]"
        raise ValueError(f"value {row} of measure {column}: {found}; declare the measure's own low and high")


def cluster_codes(clusters: Sequence[Any] | np.ndarray | None, n: int) -> np.ndarray:
    """A number for each query's cluster; a query without one is alone."""
    if clusters is None:
        return np.arange(n)
    if len(clusters) != n:
        raise ValueError(f"{len(clusters)} clusters for {n} values; give one a value, None where it stands alone")
    numbers: dict[Any, int] = {}
    names = [("alone", at) if name is None or name != name else ("in", name) for at, name in enumerate(clusters)]
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _by_mask(values: np.ndarray) -> list[tuple[np.ndarray, list[int]]]:
    """Which queries have a value, and the measures that have one for exactly these."""
    found: dict[bytes, list[int]] = {}
    there = ~np.isnan(values)
    for column in range(values.shape[1]):
        found.setdefault(there[:, column].tobytes(), []).append(column)
    return [(there[:, columns[0]], columns) for columns in found.values()]


def _grouped(values: np.ndarray, codes: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> Columns:
    least, greatest = bounds
    values = np.clip(values, least, greatest)  # of rounding alone: `_check` refuses more
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    if len(first) == len(codes):
        return Columns(values, np.ones(len(codes)), bounds, values)
    sums = np.zeros((len(first), values.shape[1]))
    np.add.at(sums, place, values)
    return Columns(sums, np.bincount(place).astype(np.float64), bounds, values)


def _intervals(group: Columns, flags: Sequence[bool | None], plan: Plan) -> list[Interval]:
    """Intervals of measures with a value for the same queries."""
    n, clusters = len(group.values), len(group.sizes)
    if n == 0:
        return [Interval(None, None, None, "none", 0, 0, plan.level, plan.side, "no_values") for _ in flags]
    methods = np.array(choose(group, flags))
    low, high = np.full(len(methods), -np.inf), np.full(len(methods), np.inf)
    for method, limits in _LIMITS.items():
        chosen = np.flatnonzero(methods == method)
        if len(chosen):
            low[chosen], high[chosen] = limits(group.at(chosen), plan)
    low, high = np.maximum(low, group.bounds[0]), np.minimum(high, group.bounds[1])
    mean = group.values.mean(axis=0)
    status = np.where(methods == "none", "no_bounds", "scored")
    return [
        Interval(
            float(mean[at]), *_limits(low[at], high[at], method), method, n, clusters, plan.level, plan.side, status
        )
        for at, (method, status) in enumerate(zip(methods.tolist(), status.tolist(), strict=True))
    ]


def _limits(low: float, high: float, method: str) -> tuple[float | None, float | None]:
    if method == "none":
        return None, None
    return (float(low) if np.isfinite(low) else None), (float(high) if np.isfinite(high) else None)


def choose(group: Columns, flags: Sequence[bool | None]) -> np.ndarray:
    """The method of each column."""
    binary = np.zeros(len(flags), dtype=bool)
    if group.single:
        zero_one = np.atleast_1d(np.isin(group.values, (0.0, 1.0)).all(axis=0))
        open_range = np.isinf(group.bounds[0]) & np.isinf(group.bounds[1])
        usual = open_range | ((group.bounds[0] == 0) & (group.bounds[1] == 1))
        binary = np.array([zero_one[at] and usual[at] if flag is None else flag for at, flag in enumerate(flags)])
        if (binary & ~zero_one).any():
            raise ValueError(
                f"measure {int(np.flatnonzero(binary & ~zero_one)[0])} is said to be binary and has other values"
            )
    different, counted = differing(group)
    enough = (different >= MANY_DIFFERENT) | ((different >= MIN_DIFFERENT) & (counted >= MIN_COUNTED))
    enough &= len(group.sizes) >= MIN_CLUSTERS
    finite = np.isfinite(group.bounds[0]) & np.isfinite(group.bounds[1])
    return np.select([binary, enough, finite], ["clopper_pearson", "bca", "bounded"], "none")


def differing(group: Columns) -> tuple[np.ndarray, np.ndarray]:
    """How many clusters' means differ from the most frequent one, and as how many equal ones they count, by column.

    The second is (Σd²)² / Σd⁴ of what each cluster adds beyond the most frequent mean: 10 equal differences count as 10; one
    large one among nine small ones as little more than one, since resamples then show nothing but whether it was drawn.
    """
    means = np.round(group.sums / group.sizes[:, None], _DIGITS)
    modes = _modes(means)
    apart = np.where(means != modes, group.sums - modes * group.sizes[:, None], 0.0)
    return (means != modes).sum(axis=0), _counting(apart)


def _counting(apart: np.ndarray) -> np.ndarray:
    unit = apart / np.maximum(np.abs(apart).max(axis=0), np.finfo(float).tiny)
    return (unit**2).sum(axis=0) ** 2 / np.maximum((unit**4).sum(axis=0), np.finfo(float).tiny)


def _modes(means: np.ndarray) -> np.ndarray:
    """The most frequent value of each column, the least of several."""
    ordered = np.sort(means, axis=0)
    changes = ordered[1:] != ordered[:-1]
    modes = np.empty(means.shape[1])
    for at, column in enumerate(changes.T):
        starts = np.append(0, 1 + np.flatnonzero(column))
        modes[at] = ordered[starts[np.diff(np.append(starts, len(ordered))).argmax()], at]
    return modes


def _clopper_pearson(group: Columns, plan: Plan) -> Limits:
    """Exact limits of a share (Clopper and Pearson 1934): quantiles of beta distributions."""
    hits, n = group.values.sum(axis=0), float(len(group.values))
    below, above = plan.tails
    low, high = np.zeros(len(hits)), np.ones(len(hits))
    if below:
        low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), n - hits + 1, below), 0.0)
    if above:
        high = np.where(hits < n, betaincinv(hits + 1, np.maximum(n - hits, 1), 1 - above), 1.0)
    return low, high


def _bca(group: Columns, plan: Plan) -> Limits:
    return bootstrap_limits(group.sums, group.sizes, plan.tails, plan.draws, plan.seed)


def _bounded(group: Columns, plan: Plan) -> Limits:
    means = group.sums / group.sizes[:, None]
    shares = (group.sizes / group.sizes.max())[:, None]
    if group.single and len(means) >= MIN_CLUSTERS:
        means, counts = _condensed(means)
        return bounded_limits(means, np.ones((1, 1)), counts, group.bounds, plan.tails)
    return bounded_limits(means, shares, np.ones((1, 1)), group.bounds, plan.tails)


def _condensed(means: np.ndarray) -> Limits:
    """The values that are not the most frequent one, padded to the same number by column, and it; and how often each occurs."""
    means = np.round(means, _DIGITS)
    modes = _modes(means)
    apart = means != modes
    few = np.argsort(~apart, axis=0, kind="stable")[: apart.sum(axis=0).max()]
    counts = np.take_along_axis(apart, few, axis=0).astype(np.float64)
    values = np.vstack([np.take_along_axis(means, few, axis=0), modes])
    return values, np.vstack([counts, len(means) - counts.sum(axis=0)])


_LIMITS = {"clopper_pearson": _clopper_pearson, "bca": _bca, "bounded": _bounded}


def limits_of(intervals: Sequence[Interval]) -> Mapping[str, list[Any]]:
    """Columns mean_low, mean_high, interval method and number of clusters of many intervals, for a frame."""
    return {
        "mean_low": [each.low for each in intervals],
        "mean_high": [each.high for each in intervals],
        "interval": [each.method if each.status == "scored" else each.status for each in intervals],
        "n_clusters": [each.n_clusters for each in intervals],
    }
