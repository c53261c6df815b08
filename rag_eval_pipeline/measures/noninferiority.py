"""Non-inferiority of paired shares, exactly: the chance to pass at the very margin, whatever the share of wins.

Here: one test for pairs of 0 and 1. Score limits of the same difference, which are a little sharper than their level, are in
`paired`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtr, gammaln, xlog1py, xlogy

_GRID = 200
"""Shares of wins at which the chance is computed; it is smooth in them."""


def exact_noninferiority(up: int, down: int, n: int, margin: float) -> float:
    """Chance of pairs at least as good as these if the true difference of the shares were −margin, at the worst share of wins.

    Pairs are ordered by Tango's score at −margin; the unknown share of wins is maximised over (Chan 1998; Hsueh, Liu and Chen 2001,
    Biometrics 57, 478–483). Passing where it is ≤ 5 % passes at most 5 % of what sits on the margin, for any n.

    Args:
        up: pairs in which only the side in question is 1.
        down: pairs in which only the other is.
        n: all pairs.
        margin: how much worse is allowed, in [0, 1).

    Returns:
        A p-value in [0, 1].

    Raises:
        ValueError: counts that are none, or a margin outside its range.
    """
    if not (up >= 0 and down >= 0 and up + down <= n and n > 0):
        raise ValueError(f"{up} up and {down} down among {n} pairs: counts must be ≥ 0 and add up to at most n > 0")
    if not 0 <= margin < 1:
        raise ValueError(f"margin must lie in [0, 1), found {margin}")
    wins = np.arange(n + 1)
    most = _most_losses(wins, n, margin, float(_score(np.array(up), np.array(down), n, margin)))
    found = 0.0
    for share in np.linspace(0.0, (1.0 - margin) / 2, _GRID):
        chance = np.exp(
            gammaln(n + 1) - gammaln(wins + 1) - gammaln(n - wins + 1) + xlogy(wins, share) + xlog1py(n - wins, -share)
        )
        losing = min((share + margin) / (1.0 - share), 1.0)
        below = np.where(most < 0, 0.0, bdtr(np.maximum(most, 0), np.maximum(n - wins, 0), losing))
        below = np.where(most >= n - wins, 1.0, below)
        found = max(found, float(chance @ below))
    return min(found, 1.0)


def _most_losses(wins: np.ndarray, n: int, margin: float, score: float) -> np.ndarray:
    """By number of wins, the most losses whose score is no worse; −1 where none is. The score falls with every loss."""
    inside, outside = np.full(len(wins), -1), n - wins + 1
    for _ in range(int(n).bit_length() + 1):
        middle = (inside + outside) // 2
        open_ = outside - inside > 1
        held = _score(wins, np.maximum(middle, 0), n, margin) >= score - 1e-9
        inside = np.where(open_ & held, middle, inside)
        outside = np.where(open_ & ~held, middle, outside)
    return inside


def _score(up: np.ndarray, down: np.ndarray, n: int, margin: float) -> np.ndarray:
    """Tango's score of a difference of −margin: how far above it the pairs lie, in standard errors."""
    shift = -margin
    b = (2 * n + up - down) * -shift - up - down
    c = up * shift * (1 + shift)
    share = (np.sqrt(np.maximum(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
    variance = n * (2 * share - shift * (1 + shift))
    return (up - down - n * shift) / np.sqrt(np.maximum(variance, np.finfo(float).tiny))
