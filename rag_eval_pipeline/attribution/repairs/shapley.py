"""Share a total out among players: Shapley values, exact or from seeded orders. Pure maths on a game; it knows no stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import factorial
from typing import NamedTuple

import numpy as np

Game = Callable[[frozenset[str]], np.ndarray]
"""The value of a coalition; an array holds several games side by side."""
EXACT = 6
"""Players up to which all coalitions are run."""


class Share(NamedTuple):
    """A player's share, and its standard error where orders were sampled."""

    value: np.ndarray
    error: np.ndarray | None


def every_coalition(players: Sequence[str]) -> list[frozenset[str]]:
    """All subsets, small ones first."""
    return [frozenset(some) for size in range(len(players) + 1) for some in combinations(sorted(players), size)]


def exact(players: Sequence[str], game: Game) -> dict[str, Share]:
    """Shapley values by their definition (Shapley 1953): the mean gain of a player over all orders in which it may come."""
    names = sorted(players)
    n = len(names)
    shares = {}
    for player in names:
        others = [name for name in names if name != player]
        total = np.zeros_like(game(frozenset()), dtype=np.float64)
        for some in every_coalition(others):
            weight = factorial(len(some)) * factorial(n - len(some) - 1) / factorial(n)
            total = total + weight * (game(some | {player}) - game(some))
        shares[player] = Share(total, None)
    return shares


def orders(players: Sequence[str], pairs: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Seeded orders, each followed by its reverse: what comes early in one comes late in the other."""
    rng = np.random.default_rng(seed)
    names = np.array(sorted(players))
    found: list[tuple[str, ...]] = []
    for _ in range(pairs):
        order = tuple(str(name) for name in rng.permutation(names))
        found += [order, order[::-1]]
    return found


def prefixes(order: Sequence[str]) -> list[frozenset[str]]:
    """The coalitions that form as players come in an order, from nobody to all."""
    return [frozenset(order[:size]) for size in range(len(order) + 1)]


def sampled(drawn: Sequence[Sequence[str]], game: Game) -> dict[str, Share]:
    """Mean gains over the orders that `orders` drew. They add up to the total exactly, in each order.

    The standard error is that of the mean over pairs of an order and its reverse (Castro et al. 2009; antithetic pairs:
    Mitchell et al. 2022).
    """
    gains: dict[str, list[np.ndarray]] = {name: [] for name in sorted(drawn[0])}
    for order in drawn:
        steps = [game(coalition) for coalition in prefixes(order)]
        for name, before, after in zip(order, steps, steps[1:], strict=False):
            gains[name].append(after - before)
    return {name: _mean(np.array(each)) for name, each in gains.items()}


def _mean(gains: np.ndarray) -> Share:
    pairs = gains.reshape(len(gains) // 2, 2, *gains.shape[1:]).mean(axis=1)
    error = pairs.std(axis=0, ddof=1) / np.sqrt(len(pairs)) if len(pairs) > 1 else np.full(pairs.shape[1:], np.nan)
    return Share(pairs.mean(axis=0), error)
