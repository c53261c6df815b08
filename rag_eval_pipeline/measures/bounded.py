"""Conservative limits of the mean of a bounded variable, by betting; they hold for every distribution and any n.

Someone starts with 1 and bets on each cluster that the mean is above m. If it is m, the expected capital stays 1, so it
reaches 1/α with probability ≤ α (Markov); an m at which it did is refused. Waudby-Smith and Ramdas, "Estimating means of
bounded random variables by betting" (2024). The capital here is the average over fixed bets, whose order does not matter
(a portfolio in the sense of Orabona and Jun, 2024): same values, same limits.
"""

from __future__ import annotations

import numpy as np

BETS = np.array([0.3, 0.6, 0.95])
"""Shares of the largest bet that can't go bankrupt."""
_STEPS = 45
_BLOCK = 2_000_000


def bounded_limits(
    means: np.ndarray,
    shares: np.ndarray,
    counts: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    tails: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits of the mean over queries, by column.

    Args:
        means: clusters × columns, each within its column's bounds.
        shares: clusters × 1 or × columns: size of a cluster over that of the largest, in (0, 1].
        counts: how often such a cluster occurs; likewise.
        bounds: least and greatest value, by column.
        tails: probability below the lower and above the upper limit; 0 leaves a side at its bound.
    """
    least, greatest = bounds
    span = greatest - least
    low, high = least.astype(np.float64), greatest.astype(np.float64)
    if tails[0]:
        low = least + span * _lower((means - least) / span, shares, counts, tails[0])
    if tails[1]:
        high = greatest - span * _lower((greatest - means) / span, shares, counts, tails[1])
    return low, high


def _lower(unit: np.ndarray, shares: np.ndarray, counts: np.ndarray, tail: float) -> np.ndarray:
    """Lower limits of means in [0, 1], a block of columns at a time."""
    shares, counts = np.broadcast_to(shares, unit.shape), np.broadcast_to(counts, unit.shape)
    columns = max(1, _BLOCK // (len(unit) * len(BETS)))
    cuts = range(0, unit.shape[1], columns)
    parts = [
        _root(unit[:, at : at + columns], shares[:, at : at + columns], counts[:, at : at + columns], tail)
        for at in cuts
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _root(unit: np.ndarray, shares: np.ndarray, counts: np.ndarray, tail: float) -> np.ndarray:
    """Where the capital, which falls in m, is 1/tail: by halving. Where all values are 0 it is 0."""
    weights = shares * counts
    below = np.zeros(unit.shape[1])
    above = (weights * unit).sum(axis=0) / weights.sum(axis=0)
    wanted = -np.log(tail)
    for _ in range(_STEPS):
        middle = (below + above) / 2
        refused = _log_capital(unit, shares, counts, middle) >= wanted
        below, above = np.where(refused, middle, below), np.where(refused, above, middle)
    return below  # the side that is refused: never inside by rounding


def _log_capital(unit: np.ndarray, shares: np.ndarray, counts: np.ndarray, m: np.ndarray) -> np.ndarray:
    gains = shares * (unit / np.maximum(m, np.finfo(float).tiny) - 1)
    logs = (counts * np.log1p(BETS[:, None, None] * gains)).sum(axis=1)
    return np.logaddexp.reduce(logs, axis=0) - np.log(len(BETS))
