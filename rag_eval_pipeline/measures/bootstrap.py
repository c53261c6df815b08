"""Resampled means and the limits read off them, for many measures at once.

Here: multinomial weights shared by all columns, draws of means as matrix products, BCa and bootstrap-t limits. Not here: which
interval suits which figure (`intervals`), comparisons of two sides (`paired`).

A column is one measure; a row is one cluster (one query where there are no clusters). A cluster enters by its sum and its
size, so the mean over queries of a resample is Σ w·sum / Σ w·size, and clusters of unequal size need nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

BLOCK = 4_000_000
"""Numbers that a block of weights or of resampled means may hold: 32 MB."""
REACH = 2.0
"""A bootstrap-t limit stands at most this many times as far from the mean as BCa's."""
LEAST_FREEDOM = 6.0
_SAME = 1e-12

Limits = tuple[np.ndarray, np.ndarray]
"""Lower and upper limits, by column; infinite on a side that is left open."""
Tails = tuple[float, float]
"""Probability left below the lower and above the upper limit; 0 leaves the side open."""


@dataclass(frozen=True)
class Draws:
    """Resampled means (columns × draws) and, as asked, their standard errors."""

    means: np.ndarray
    errors: np.ndarray


def multinomial_weights(n: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks (draws × n) of how often each of n clusters stands in a resample of n.

    The weights depend on n, draws and seed alone, not on how they are cut into blocks.
    """
    rng = np.random.default_rng(seed)
    rows = max(1, min(draws, BLOCK // max(n, 1)))
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        picked = rng.integers(0, n, size=(size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(picked.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def resample(sums: np.ndarray, sizes: np.ndarray, draws: int, seed: int) -> Draws:
    """Means over queries of resampled clusters, with the standard error of each.

    The error is that of a ratio (linearised): sqrt(Σ w (sum − mean · size)²) / Σ w · size.

    Args:
        sums: clusters × columns.
        sizes: queries by cluster.
        draws: resamples.
        seed: of the weights, which all columns share.
    """
    means, errors = [], []
    for weights in multinomial_weights(len(sizes), draws, seed):
        total = (weights @ sizes)[:, None]
        mean = weights @ sums / total
        across = weights @ (sums * sizes[:, None])
        spread = weights @ sums**2 - 2 * mean * across + mean**2 * (weights @ sizes**2)[:, None]
        means.append(mean)
        errors.append(np.sqrt(np.maximum(spread, 0.0)) / total)
    return Draws(_by_column(means), _by_column(errors))


def _by_column(blocks: list[np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(blocks).T)


def bootstrap_limits(sums: np.ndarray, sizes: np.ndarray, tails: Tails, draws: int, seed: int) -> Limits:
    """The outer ones of the expanded BCa limits and the bootstrap-t limits, by column.

    BCa alone covers too seldom where few large values carry the mean (docs/benchmarks.md); bootstrap-t
    errs where resamples hold almost no spread. So the wider of the two stands, bootstrap-t at most `REACH` times as far out.
    """
    columns = max(1, BLOCK // draws)
    parts = [_outer(sums[:, at : at + columns], sizes, tails, draws, seed) for at in range(0, sums.shape[1], columns)]
    return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])


def _outer(sums: np.ndarray, sizes: np.ndarray, tails: Tails, draws: int, seed: int) -> Limits:
    drawn = resample(sums, sizes, draws, seed)
    mean = sums.sum(axis=0) / sizes.sum()
    low, high = bca_limits(sums, sizes, drawn.means, expanded_quantiles(sums, sizes, tails))
    t_low, t_high = t_limits(sums, sizes, drawn, tails)
    with np.errstate(invalid="ignore"):  # an open side is infinite on both
        t_low, t_high = np.maximum(t_low, mean - REACH * (mean - low)), np.minimum(t_high, mean + REACH * (high - mean))
    return np.minimum(low, t_low), np.maximum(high, t_high)


def bca_limits(sums: np.ndarray, sizes: np.ndarray, means: np.ndarray, quantiles: Limits) -> Limits:
    """Bias-corrected and accelerated limits (Efron 1987), by column.

    Args:
        sums: clusters × columns.
        sizes: queries by cluster.
        means: columns × draws.
        quantiles: normal quantiles of the lower and the upper limit, by column; infinite leaves a side open. With
            ∓1.96 the limits are those of `scipy.stats.bootstrap`.
    """
    shift = bias(means, sums.sum(axis=0) / sizes.sum())
    bend = acceleration(sums, sizes)

    def limit(z: np.ndarray) -> np.ndarray:
        if np.isinf(z).all():
            return z
        reached = shift + z
        return quantile_of_each(means, ndtr(shift + reached / (1 - bend * reached)))

    return limit(quantiles[0]), limit(quantiles[1])


def expanded_quantiles(sums: np.ndarray, sizes: np.ndarray, tails: Tails) -> Limits:
    """Quantiles for `bca_limits` that allow for what a resample does not know, by column.

    A resample of n has (n − 1)/n of the unbiased variance, and knows nothing of the variance's own error. So Student's
    quantile stands for the normal one (Hesterberg, "What teachers should know about the bootstrap", 2015, section 3.3), with
    the degrees of freedom that the variance really has: see `freedom`.
    """
    degrees, clusters = freedom(sums, sizes), len(sizes)
    wider = np.sqrt(clusters / (clusters - 1))
    sides = [stdtrit(degrees, tail) * wider if tail else np.full(len(degrees), -np.inf) for tail in tails]
    return sides[0], -sides[1]


def freedom(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Degrees of freedom of the variance, by column: 2n / (kurtosis − 1), at most n − 1.

    The error of a variance is √((kurtosis − 1)/n) of it, of a χ² with ν degrees of freedom √(2/ν) (Box 1953). Where all but a
    few values are equal the kurtosis is large: the variance rests on those few.
    """
    apart = sums - sums.sum(axis=0) / sizes.sum() * sizes[:, None]
    square = (apart**2).mean(axis=0)
    kurtosis = (apart**4).mean(axis=0) / np.maximum(square, np.finfo(float).tiny) ** 2
    return np.clip(2 * len(sizes) / np.maximum(kurtosis - 1, _SAME), LEAST_FREEDOM, len(sizes) - 1)


def t_limits(sums: np.ndarray, sizes: np.ndarray, drawn: Draws, tails: Tails) -> Limits:
    """Bootstrap-t limits (Efron and Tibshirani 1993, chapter 12), by column."""
    mean = sums.sum(axis=0) / sizes.sum()
    error = np.sqrt(((sums - mean * sizes[:, None]) ** 2).sum(axis=0)) / sizes.sum()
    least = np.maximum(_SAME * error, np.finfo(float).tiny)[:, None]
    studentised = (drawn.means - mean[:, None]) / np.maximum(drawn.errors, least)

    def limit(share: float) -> np.ndarray:
        return mean - quantile_of_each(studentised, np.full(len(mean), share)) * error

    open_side = np.full(len(mean), np.inf)
    return limit(1 - tails[0]) if tails[0] else -open_side, limit(tails[1]) if tails[1] else open_side


def bias(means: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Normal quantile of the share of resampled means (columns × draws) below the estimate; equal ones count half."""
    apart = means - estimate[:, None]
    close = _SAME * np.maximum(1.0, np.abs(estimate))[:, None]
    share = ((apart < -close).mean(axis=1) + (apart <= close).mean(axis=1)) / 2
    draws = means.shape[1]
    return ndtri(np.clip(share, 0.5 / draws, 1 - 0.5 / draws))


def acceleration(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Skewness of the jackknife over clusters, by column: Σd³ / 6(Σd²)^1.5; 0 where nothing differs."""
    left_out = (sums.sum(axis=0) - sums) / (sizes.sum() - sizes)[:, None]
    apart = left_out.mean(axis=0) - left_out
    spread = (apart**2).sum(axis=0)
    safe = np.where(spread > 0, spread, 1.0)
    return np.where(spread > 0, (apart**3).sum(axis=0) / (6 * safe**1.5), 0.0)


def quantile_of_each(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """A quantile of each row, each at its own share, linear between neighbours as numpy has it."""
    place = np.clip(shares, 0, 1) * (values.shape[1] - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, values.shape[1] - 1)
    result = np.empty(len(values))
    for row, (low, high, part) in enumerate(zip(below, above, place - below, strict=True)):
        ordered = np.partition(values[row], [low, high])
        result[row] = ordered[low] + part * (ordered[high] - ordered[low])
    return result
