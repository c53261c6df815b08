"""`python -m rag_eval_pipeline_tests.bench.gates [--repeats N]`: how often does a release rule pass at its very margin?

Draws pairs of evaluations whose true drop is exactly what `max_drop` allows, makes all their bounds at once (a repeat is a
column), and counts how often the rule passes. Then the same where nothing changed: the rule's power, beside what the gate
prints of it. Prints the table of docs/gates.md.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rag_eval_pipeline.measures.intervals import Plan
from rag_eval_pipeline.measures.noninferiority import exact_noninferiority
from rag_eval_pipeline.measures.paired import paired_intervals, rule_power

MARGIN = 0.1
SIZES = (50, 200)
Pairs = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator, tuple[int, int]], Pairs]


def _losing(share: float) -> Draw:
    """Hits of such a share, of which the margin is lost and none is won."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Pairs:
        before = rng.random(shape) < share
        return before & (rng.random(shape) >= MARGIN / share), before

    return draw


def _exchanging(rng: np.random.Generator, shape: tuple[int, int]) -> Pairs:
    """Hits half of which are unsure: 5 % are won and 5 % + margin lost."""
    chance, before = rng.random(shape), rng.random(shape) < 0.7
    won, lost = 0.05 / 0.3, (0.05 + MARGIN) / 0.7
    return np.where(before, chance >= lost, chance < won), before


def _skewed(rng: np.random.Generator, shape: tuple[int, int]) -> Pairs:
    """Values near 1, three in eight of which lose a part, mostly a small one."""
    before = rng.beta(4, 1, shape)
    share = np.where(rng.random(shape) < MARGIN / (0.8 / 3), rng.beta(1, 2, shape), 0.0)
    return before * (1 - share), before


def _rare(rng: np.random.Generator, shape: tuple[int, int]) -> Pairs:
    """Values near 1, one in eight of which loses all."""
    before = rng.beta(4, 1, shape)
    return before * (rng.random(shape) >= MARGIN / 0.8), before


POPULATIONS: dict[str, Draw] = {
    "shares of 0.9, only losses": _losing(0.9),
    "shares of 0.5, only losses": _losing(0.5),
    "shares of 0.7, wins and losses": _exchanging,
    "skewed values, many small losses": _skewed,
    "skewed values, few whole losses": _rare,
}


@dataclass(frozen=True)
class Decided:
    """What one population and n gave.

    Attributes:
        population: its name.
        n: items.
        passed_at_margin: share of releases that pass although their true drop is the margin.
        passed_unchanged: share that pass where nothing changed.
        printed: mean power that the gate prints in the latter.
        repeats: releases drawn.
    """

    population: str
    n: int
    passed_at_margin: float
    passed_unchanged: float
    printed: float
    repeats: int


def simulate(repeats: int, draws: int = 2_000, sizes: tuple[int, ...] = SIZES) -> Iterator[Decided]:
    """All populations and sizes."""
    for name, draw in POPULATIONS.items():
        for n in sizes:
            rng = np.random.default_rng([n, len(name)])
            now, before = (side.astype(float) for side in draw(rng, (n, repeats)))
            swapped = rng.random((n, repeats)) < 0.5  # which side is which by chance: no change, the same spread
            same = np.where(swapped, before, now), np.where(swapped, now, before)
            two = paired_intervals(*same, plan=Plan(draws=draws))
            powers = [rule_power(interval, MARGIN) or 0.0 for interval in two]
            yield Decided(name, n, passed(now, before, draws), passed(*same, draws), float(np.mean(powers)), repeats)


def passed(now: np.ndarray, before: np.ndarray, draws: int) -> float:
    """Share of the columns whose lower bound keeps the margin, as the gate decides `max_drop`."""
    bounds = paired_intervals(now, before, plan=Plan(side="lower", draws=draws))
    held = np.array([bound.low is not None and bound.low >= -MARGIN for bound in bounds])
    score = np.array([bound.method == "score" for bound in bounds])
    pairs = [
        (int((now[:, at] > before[:, at]).sum()), int((now[:, at] < before[:, at]).sum()))
        for at in np.flatnonzero(held & score)
    ]
    p = {pair: exact_noninferiority(*pair, len(now), MARGIN) for pair in set(pairs)}
    held[held & score] = [p[pair] <= 0.05 for pair in pairs]
    return float(held.mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=2_000)
    parser.add_argument("--draws", type=int, default=2_000)
    arguments = parser.parse_args()
    print("| values | items | passes at the margin | passes unchanged | power printed |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in simulate(arguments.repeats, arguments.draws):
        print(
            f"| {row.population} | {row.n} | {row.passed_at_margin:.1%} | {row.passed_unchanged:.0%} | {row.printed:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
