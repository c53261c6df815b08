"""Two sides on the same items: intervals of the mean difference, tests, and what may be decided from them.

Here: pairing (refused where the items differ), the score interval of paired shares, randomisation test, Holm, power, verdicts.
Not here: intervals of one side (`intervals`), which rules a release has (`release`).

A difference is always a − b: `a` is the side in question, `b` what it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr, ndtr, ndtri

from rag_eval_pipeline.measures.bootstrap import BLOCK, Limits
from rag_eval_pipeline.measures.intervals import DRAWS, USUAL, Interval, Plan, Side, cluster_codes, mean_intervals

Values = Sequence[float | None] | np.ndarray | Mapping[str, float | None]
Verdict = Literal["pass", "fail", "inconclusive"]
_STEPS = 60
_CLOSE = 1e-12


class DifferentItemsError(ValueError):
    """Two sides do not speak of the same items; the message names those that differ."""


def pair_up(a: Values, b: Values) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """The items of two sides with both their values.

    An item without a value on both sides is left out; one that only one side has, or only one has a value for, is refused: a
    mean over other items is another figure.

    Args:
        a: item → value, or values in the order of b's.
        b: likewise.

    Returns:
        Items (sorted names, or positions), values of a, values of b.

    Raises:
        DifferentItemsError: the sides differ in their items.
    """
    one, other = _as_mappings(a, b)
    _refuse("only one side has", set(one), set(other))
    valued = [{item for item, value in side.items() if value is not None and value == value} for side in (one, other)]
    _refuse("only one side has a value for", valued[0], valued[1])
    items = sorted(valued[0])
    a_values, b_values = (np.array([side[item] for item in items], dtype=np.float64) for side in (one, other))
    return items, a_values, b_values


def _as_mappings(a: Values, b: Values) -> tuple[Mapping[Any, float | None], Mapping[Any, float | None]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a, b
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        raise TypeError("give both sides as item → value, or both as values in one order")
    if len(a) != len(b):
        raise DifferentItemsError(
            f"a has {len(a)} values and b has {len(b)}; give both as item → value to see which items differ"
        )
    return dict(enumerate(a)), dict(enumerate(b))


def _refuse(what: str, a: set, b: set, shown: int = 10) -> None:
    if a == b:
        return
    named = []
    for side, extra in (("a", sorted(a - b, key=str)), ("b", sorted(b - a, key=str))):
        if extra:
            rest = f" and {len(extra) - shown} more" if len(extra) > shown else ""
            named.append(f"{side}: {', '.join(map(str, extra[:shown]))}{rest}")
    raise DifferentItemsError(f"{what} {'; '.join(named)}. Compare on the items that both have, and say so")


def paired_interval(
    a: Values,
    b: Values,
    *,
    clusters: Sequence[Any] | Mapping[str, Any] | None = None,
    low: float | None = 0.0,
    high: float | None = 1.0,
    binary: bool | None = None,
    level: float = 0.95,
    side: Side = "two",
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """The interval of the mean of a − b over the same items.

    Both sides 0 or 1 and no clusters: Tango's score interval. Else as for any mean, with the differences as values: BCa where ≥ 30
    clusters and ≥ 10 differ from the most frequent difference, else conservative.

    Args:
        a: the side in question: item → value, or values in the order of b's.
        b: what it is compared with.
        clusters: which items belong together, by item or in the same order.
        low: least value that one side can have; None where there is none.
        high: greatest value of one side.
        binary: whether values are 0 or 1 by their nature; by default, whether all are and the bounds are.
        level: confidence; with a `side` that of the one limit.
        side: `two`, `lower` or `upper`: a one-sided limit, as for non-inferiority.
        draws: resamples.
        seed: of them.

    Raises:
        DifferentItemsError: the sides differ in their items.
    """
    items, one, other = pair_up(a, b)
    return paired_intervals(
        one[:, None],
        other[:, None],
        clusters=_in_order(clusters, items, len(a)),
        low=low,
        high=high,
        binary=binary,
        plan=Plan(level, side, draws, seed),
    )[0]


def _in_order(clusters: Sequence[Any] | Mapping[str, Any] | None, items: list[Any], n: int) -> list[Any] | None:
    """Clusters of the paired items."""
    if clusters is None:
        return None
    if not isinstance(clusters, Mapping) and len(clusters) != n:
        raise ValueError(f"{len(clusters)} clusters for {n} items; give one an item, None where it stands alone")
    known = clusters if isinstance(clusters, Mapping) else dict(enumerate(clusters))
    if not isinstance(clusters, Mapping) and items and not isinstance(items[0], int):
        raise TypeError("sides given as item → value need clusters as item → cluster")
    return [known.get(item) for item in items]


def paired_intervals(
    a: np.ndarray,
    b: np.ndarray,
    *,
    clusters: Sequence[Any] | np.ndarray | None = None,
    low: float | None = 0.0,
    high: float | None = 1.0,
    binary: bool | None = None,
    plan: Plan = USUAL,
) -> list[Interval]:
    """Intervals of the mean of a − b for many measures of the same items, paid once.

    Args:
        a: items × measures, without gaps.
        b: likewise.
        clusters: by item; None among them means alone.
        low: least value that one side can have.
        high: greatest value.
        binary: as `paired_interval` has it.
        plan: level, side, draws, seed.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise DifferentItemsError(f"a is {a.shape} and b is {b.shape}; both must be items × measures")
    alone = clusters is None or len(set(cluster_codes(clusters, len(a)).tolist())) == len(a)
    score = np.flatnonzero(_binary(a, b, binary, low, high) & alone & (len(a) > 0))
    rest = np.setdiff1d(np.arange(a.shape[1]), score)
    span = None if low is None or high is None else high - low
    found = dict(zip(score.tolist(), _score_intervals(a[:, score], b[:, score], plan), strict=True))
    others = mean_intervals(
        a[:, rest] - b[:, rest], clusters=clusters, binary=False, low=span and -span, high=span, plan=plan
    )
    found |= dict(zip(rest.tolist(), others, strict=True))
    return [found[at] for at in range(a.shape[1])]


def _binary(a: np.ndarray, b: np.ndarray, asked: bool | None, low: float | None, high: float | None) -> np.ndarray:
    zero_one = np.atleast_1d((np.isin(a, (0.0, 1.0)) & np.isin(b, (0.0, 1.0))).all(axis=0))
    if asked and not zero_one.all():
        raise ValueError(f"measure {int(np.flatnonzero(~zero_one)[0])} is said to be binary and has other values")
    if asked is not None:
        return np.full(a.shape[1], asked)
    return zero_one if (low, high) in ((0.0, 1.0), (None, None)) else np.zeros(a.shape[1], dtype=bool)


def _score_intervals(a: np.ndarray, b: np.ndarray, plan: Plan) -> list[Interval]:
    n = len(a)
    up, down = ((a > b).sum(axis=0), (a < b).sum(axis=0))
    low, high = tango_limits(up, down, n, plan)
    return [
        Interval(float((u - d) / n), float(lo), float(hi), "score", n, n, plan.level, plan.side)
        for u, d, lo, hi in zip(up, down, low, high, strict=True)
    ]


def tango_limits(up: np.ndarray, down: np.ndarray, n: int, plan: Plan) -> Limits:
    """Score limits of a difference of paired shares (Tango 1998, Statistics in Medicine 17, 891–908).

    Args:
        up: pairs in which only a is 1.
        down: pairs in which only b is 1.
        n: pairs.
        plan: level and side.
    """
    up, down = np.asarray(up, dtype=np.float64), np.asarray(down, dtype=np.float64)
    below, above = plan.tails
    low, high = np.full(len(up), -1.0), np.full(len(up), 1.0)
    if below:
        low = -_tango_upper(down, up, n, -ndtri(below))
    if above:
        high = _tango_upper(up, down, n, -ndtri(above))
    return low, high


def _tango_upper(up: np.ndarray, down: np.ndarray, n: int, z: float) -> np.ndarray:
    """The greatest difference whose score is not below −z, by halving between the estimate and 1."""
    inside, outside = (up - down) / n, np.ones(len(up))
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        held = _tango_score(up, down, n, middle) >= -z
        inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
    return outside


def _tango_score(up: np.ndarray, down: np.ndarray, n: int, shift: np.ndarray) -> np.ndarray:
    """(up − down − n·shift) over its standard error where the share of `down` is the likeliest one given the shift."""
    b = (2 * n - up + down) * shift - up - down
    c = -down * shift * (1 - shift)
    share = (np.sqrt(np.maximum(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
    variance = n * (2 * share + shift * (1 - shift))
    return (up - down - n * shift) / np.sqrt(np.maximum(variance, np.finfo(float).tiny))


# --- test ------------------------------------------------------------------------------------------------------------


def paired_randomisation(
    a: Values,
    b: Values,
    clusters: Sequence[Any] | Mapping[str, Any] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    *,
    mid: bool = True,
) -> float:
    """Two-sided p-value of "no difference": how often signs flipped by chance give a mean as far from 0.

    Exact where the differences that are not 0 have few sign patterns (≤ `draws`) or all one size; else (1 + as far) / (1 + draws).

    Args:
        a: the side in question: item → value, or values in the order of b's.
        b: what it is compared with.
        clusters: items whose signs flip together.
        draws: sign patterns drawn.
        seed: of them.
        mid: where all differences that are not 0 have one size (as with binary values), count outcomes exactly as far half: the
            whole count rejects 1.2 % instead of 5 % at 11 of them (Fagerland, Lydersen and Laake 2013). False: `scipy.stats.binomtest`.

    Raises:
        DifferentItemsError: the sides differ in their items.
    """
    items, one, other = pair_up(a, b)
    names = _in_order(clusters, items, len(a))
    return float(randomisation_tests((one - other)[:, None], clusters=names, draws=draws, seed=seed, mid=mid)[0])


def randomisation_tests(
    deltas: np.ndarray,
    *,
    clusters: Sequence[Any] | np.ndarray | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    mid: bool = True,
) -> np.ndarray:
    """p-values of many measures (items × measures of differences), which share their sign patterns."""
    deltas = np.asarray(deltas, dtype=np.float64)
    if not np.isfinite(deltas).all():
        raise ValueError("differences: missing or infinite; leave out items that one side has no value for")
    if draws < 1:
        raise ValueError(f"{draws} draws give no p-value; use at least 1, better {DRAWS}")
    codes = cluster_codes(clusters, len(deltas))
    sums = np.zeros((codes.max(initial=-1) + 1, deltas.shape[1]))
    np.add.at(sums, codes, deltas)
    p = np.ones(deltas.shape[1])
    rest = []
    for column, each in enumerate(sums.T):
        found = _exact(each, draws, mid)
        if found is None:
            rest.append(column)
        else:
            p[column] = found
    if rest:
        p[rest] = _drawn(sums[:, rest], draws, seed)
    return p


def _exact(sums: np.ndarray, draws: int, mid: bool) -> float | None:
    size = np.abs(sums)
    some = sums[size > _CLOSE * max(size.max(initial=0.0), 1e-300)]
    if not len(some):
        return 1.0
    if np.ptp(np.abs(some)) <= 1e-9 * np.abs(some).max():
        return _sign_test(int((some > 0).sum()), len(some), mid)
    if len(some) > np.log2(draws):
        return None
    signs = 1 - 2 * ((np.arange(2 ** len(some))[:, None] >> np.arange(len(some))) & 1)
    return float(_as_far((signs @ some)[:, None], some[:, None])[0] / len(signs))


def _sign_test(ups: int, n: int, mid: bool) -> float:
    """Exact McNemar: ups among n, each as likely up as down."""
    few = min(ups, n - ups)
    tail = float(bdtr(few, n, 0.5))
    if mid:
        at = tail - (float(bdtr(few - 1, n, 0.5)) if few else 0.0)
        return 1.0 - at if 2 * few == n else 2 * tail - at
    return min(1.0, 2 * tail)


def _drawn(sums: np.ndarray, draws: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = max(1, min(draws, BLOCK // max(sums.shape)))
    far = np.zeros(sums.shape[1])
    for start in range(0, draws, rows):
        signs = 1.0 - 2.0 * rng.integers(0, 2, size=(min(rows, draws - start), len(sums)))
        far += _as_far(signs @ sums, sums)
    return (1 + far) / (1 + draws)


def _as_far(flipped: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """How many of the flipped totals are as far from 0 as the real one, by column; equal up to rounding counts."""
    real = np.abs(sums.sum(axis=0)) - 1e-9 * np.abs(sums).sum(axis=0)
    return (np.abs(flipped) >= real).sum(axis=0)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979), in the given order: below α means that this one stands among all."""
    p = np.asarray(p_values, dtype=np.float64)
    if np.isnan(p).any() or (p < 0).any() or (p > 1).any():
        raise ValueError("p-values must lie in [0, 1]; leave out what was not tested")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.tolist()


# --- decisions -------------------------------------------------------------------------------------------------------


def standard_error(interval: Interval) -> float | None:
    """The standard error that a two-sided interval stands for: half its width over the normal quantile. Never 0."""
    if interval.side != "two":
        raise ValueError("a one-sided limit has no width; make the two-sided interval")
    if interval.width is None:
        return None
    return interval.width / 2 / float(-ndtri((1 - interval.level) / 2))


def detectable_effect(interval: Interval, *, level: float = 0.95, power: float = 0.8) -> float | None:
    """The smallest true difference that a two-sided test of this size would find with this power.

    Args:
        interval: two-sided, of the difference. Taken from its width, so few differing items don't make it look sharp.
        level: of the test.
        power: how often it should find it.
    """
    error = standard_error(interval)
    return None if error is None else float(-ndtri((1 - level) / 2) + ndtri(power)) * error


def needed_n(
    interval: Interval, margin: float, *, true: float = 0.0, level: float = 0.95, power: float = 0.8
) -> int | None:
    """Items for a one-sided limit to lie inside a margin with this power, if the true difference is `true`.

    Args:
        interval: two-sided, of the difference, as measured on its n.
        margin: how much worse is allowed, > 0.
        true: the true difference towards better.
        level: one-sided.
        power: how often it should pass.
    """
    error = standard_error(interval)
    if not margin + true > 0:
        raise ValueError(f"a true difference of {true} lies outside the margin of {margin}: no n shows the contrary")
    if error is None:
        return None
    return int(np.ceil(interval.n * (float(ndtri(level) + ndtri(power)) * error / (margin + true)) ** 2))


def rule_power(interval: Interval, margin: float, *, true: float = 0.0, level: float = 0.95) -> float | None:
    """How often a one-sided limit of this size lies inside a margin, if the true difference is `true`."""
    error = standard_error(interval)
    return None if error is None else float(ndtr((margin + true) / error - ndtri(level)))


def verdict(lower: Interval, upper: Interval, *, least: float | None = None, greatest: float | None = None) -> Verdict:
    """Whether a figure lies inside its margin, by its one-sided limits.

    `pass`: the limit lies inside. `fail`: even the limit on the other side lies outside. Else `inconclusive`: n is too small to say.

    Args:
        lower: interval with `side="lower"`.
        upper: with `side="upper"`.
        least: what the figure must not fall below, e.g. −margin of a difference.
        greatest: what it must not exceed.
    """
    if (lower.side, upper.side) != ("lower", "upper"):
        raise ValueError("a verdict needs a lower and an upper one-sided limit, in this order")
    low = -np.inf if lower.low is None else lower.low
    high = np.inf if upper.high is None else upper.high
    floor = -np.inf if least is None else least
    ceiling = np.inf if greatest is None else greatest
    if low >= floor and high <= ceiling:
        return "pass"
    return "fail" if high < floor or low > ceiling else "inconclusive"


def direction(interval: Interval, better: Literal["higher", "lower", "neither"] = "higher") -> str:
    """`better`, `worse`, `different` (where neither is better) or `inconclusive`: what a two-sided interval of a − b says."""
    if interval.low is None or interval.high is None or interval.low <= 0 <= interval.high:
        return "inconclusive"
    if better == "neither":
        return "different"
    return "better" if (interval.low > 0) == (better == "higher") else "worse"


def mirrored(interval: Interval) -> Interval:
    """The interval of b − a."""
    swap: dict[Side, Side] = {"two": "two", "lower": "upper", "upper": "lower"}
    low = None if interval.high is None else -interval.high
    high = None if interval.low is None else -interval.low
    mean = None if interval.mean is None else -interval.mean
    return replace(interval, mean=mean, low=low, high=high, side=swap[interval.side])
