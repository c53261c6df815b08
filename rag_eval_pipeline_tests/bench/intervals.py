"""`python -m rag_eval_pipeline_tests.bench.intervals [--repeats N] [--draws N]`: do the intervals hold what they promise?

Draws samples of known populations, makes all their intervals at once (a repeat is a column), and counts how often the true mean
lies inside; for tests, how often "no difference" is refused where there is none. Prints the tables of docs/benchmarks.md.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rag_eval_pipeline.measures.intervals import Interval, Plan, mean_intervals
from rag_eval_pipeline.measures.paired import paired_intervals, randomisation_tests

SIZES = (20, 50, 200)
MANY = 30
"""Items that differ from the mode, from where an interval must not be too wide."""
SOME = 10
"""Differences that are not 0, from where a test must not be too strict."""
Sample = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Population:
    """Where samples come from.

    Attributes:
        name: row of the table.
        sample: generator and (items, repeats) → values; of `b` where it is paired, each with its own.
        mean: the true one.
        low: declared bound; None where there is none.
        high: likewise.
        clusters: sizes that clusters take in turn; the items are then clusters, whose queries share a tendency.
        other: the other side, for paired binary values.
    """

    name: str
    sample: Sample
    mean: float
    low: float | None = 0.0
    high: float | None = 1.0
    clusters: tuple[int, ...] = ()
    other: Callable[[np.random.Generator, np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True)
class Covered:
    """What one population and n gave.

    Attributes:
        population: its name.
        n: items.
        share: of the intervals that hold the true mean; of those that exist.
        repeats: samples drawn.
        many: share of samples with ≥ `MANY` items that differ from the mode.
        width: mean of them.
        methods: how often each was chosen.
        zero: intervals without width.
    """

    population: str
    n: int
    share: float
    repeats: int
    many: float
    width: float
    methods: Counter = field(default_factory=Counter)
    zero: int = 0

    @property
    def bounded_above(self) -> bool:
        """Whether it must not cover too often."""
        return self.many >= 0.95


def _hits(share: float) -> Sample:
    return lambda rng, shape: (rng.random(shape) < share).astype(float)


def _among(values: tuple[float, ...], shares: tuple[float, ...]) -> Sample:
    return lambda rng, shape: rng.choice(np.array(values), p=np.array(shares), size=shape)


def _discrete(name: str, values: tuple[float, ...], shares: tuple[float, ...], low: float = 0.0) -> Population:
    return Population(name, _among(values, shares), float(np.dot(values, shares)), low)


def _beta(a: float, b: float) -> Population:
    return Population(f"skewed, Beta({a:g}, {b:g})", lambda rng, shape: rng.beta(a, b, shape), a / (a + b))


def _ranks(first: float) -> Population:
    """Reciprocal ranks: so many answers at the first place, a tail, and misses."""
    tail = np.array([0.35, 0.2, 0.15, 0.3]) * (1 - first)
    return _discrete(f"reciprocal rank, {first:.0%} first", (1.0, 1 / 2, 1 / 3, 1 / 5, 0.0), (first, *tail))


def _deltas(share: float, ups: float = 0.6) -> Population:
    """Graded differences, all but a share of them 0."""
    up, down = share * ups / 2, share * (1 - ups) / 2
    name = f"deltas, {share:.0%} not 0" + (", all up" if ups == 1 else "")
    return _discrete(name, (0.0, 1.0, 0.5, -1.0, -0.5), (1 - share, up, up, down, down), -1.0)


def _paired(up: float, down: float) -> Population:
    """Hits of two sides: a is 1 in 70 % of items; b differs in some."""

    def other(rng: np.random.Generator, a: np.ndarray) -> np.ndarray:
        flips = np.where(a == 1, up / 0.7, down / 0.3)
        return np.where(rng.random(a.shape) < flips, 1 - a, a)

    return Population(f"paired hits, {up:.0%} up, {down:.0%} down", _hits(0.7), up - down, other=other)


def _clustered(share: float, sizes: tuple[int, ...]) -> Population:
    """Hits whose clusters have their own rate, Beta with an intra-cluster correlation of 0.25."""

    def sample(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        rates = rng.beta(3 * share, 3 * (1 - share), shape)
        repeated = np.repeat(rates, np.resize(sizes, shape[0]), axis=0)
        return (rng.random(repeated.shape) < repeated).astype(float)

    return Population(f"clusters of {min(sizes)}–{max(sizes)}, hits {share:g}", sample, share, clusters=sizes)


def _clustered_deltas(share: float, sizes: tuple[int, ...]) -> Population:
    """Differences that a whole cluster has or has not, with noise in it."""

    def sample(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        moved = rng.choice([0.0, 1.0, -1.0], p=[1 - share, share * 0.6, share * 0.4], size=shape)
        repeated = np.repeat(moved, np.resize(sizes, shape[0]), axis=0)
        return repeated * rng.choice([0.0, 0.5, 1.0], size=repeated.shape)

    return Population(
        f"clusters of {min(sizes)}–{max(sizes)}, deltas, {share:.0%} moved", sample, share * 0.1, -1.0, 1.0, sizes
    )


POPULATIONS = (
    *(Population(f"hits {share:g}", _hits(share), share) for share in (0.5, 0.7, 0.9, 0.95, 0.99)),
    _beta(0.3, 3),
    _beta(5, 0.5),
    _beta(2, 8),
    _ranks(0.3),
    _ranks(0.6),
    _ranks(0.9),
    Population("unbounded, exponential", lambda rng, shape: rng.exponential(1.0, shape), 1.0, 0.0, None),
    Population("unbounded, log-normal σ 1", lambda rng, s: rng.lognormal(0, 1, s), float(np.exp(0.5)), 0.0, None),
    *(_deltas(share) for share in (0.02, 0.05, 0.1, 0.2, 0.4)),
    _deltas(0.1, ups=1.0),
    _deltas(0.3, ups=1.0),
    _paired(0.01, 0.01),
    _paired(0.05, 0.02),
    _paired(0.1, 0.1),
    _paired(0.25, 0.15),
    _clustered(0.5, (1, 2, 3, 6)),
    _clustered(0.9, (1, 2, 3, 6)),
    _clustered(0.8, (4,)),
    _clustered_deltas(0.1, (1, 2, 5)),
    _clustered_deltas(0.4, (1, 2, 5)),
)


def coverage(population: Population, n: int, repeats: int, draws: int, seed: int = 0) -> Covered:
    """How often the interval of n items holds the true mean."""
    rng = np.random.default_rng([seed, n])
    values = population.sample(rng, (n, repeats))
    plan = Plan(draws=draws, seed=seed)
    clusters = np.repeat(np.arange(n), np.resize(population.clusters, n)) if population.clusters else None
    if population.other:
        b = population.other(rng, values)
        found, values = paired_intervals(values, b, plan=plan), values - b
    else:
        found = mean_intervals(values, clusters=clusters, low=population.low, high=population.high, plan=plan)
    return _covered(population, n, found, _differing(values))


def _differing(values: np.ndarray) -> np.ndarray:
    return np.array([len(column) - np.unique(column, return_counts=True)[1].max() for column in values.T])


def _covered(population: Population, n: int, found: list[Interval], differing: np.ndarray) -> Covered:
    there = [each for each in found if each.method != "none"]
    low = np.array([-np.inf if each.low is None else each.low for each in there])
    high = np.array([np.inf if each.high is None else each.high for each in there])
    inside = (low <= population.mean) & (population.mean <= high)
    return Covered(
        population.name,
        n,
        float(inside.mean()) if there else float("nan"),
        len(found),
        float((differing >= MANY).mean()),
        float((high - low).mean()) if there else float("nan"),
        Counter(each.method for each in found),
        int((high <= low).sum()),
    )


# --- tests -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """How often a test found a difference where there is none.

    Attributes:
        null: name of the population.
        n: items.
        share: p ≤ 0.05.
        share_some: the same, of samples with ≥ `SOME` differences that are not 0; NaN where they are less than half.
        repeats: samples drawn.
    """

    null: str
    n: int
    share: float
    share_some: float
    repeats: int


def _symmetric(share: float, size: Sample) -> Sample:
    def sample(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return np.where(rng.random(shape) < share, size(rng, shape) * rng.choice([-1.0, 1.0], size=shape), 0.0)

    return sample


def _one(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.ones(shape)


def _grades(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.choice([1.0, 0.5, 1 / 3, 2 / 3], p=[0.4, 0.4, 0.1, 0.1], size=shape)


def _any(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.beta(0.5, 3, shape)


NULLS = {
    f"{kind}, {share:.0%} not 0": (_symmetric(share, size), clusters)
    for kind, size, clusters in (
        ("hits", _one, ()),
        ("graded", _grades, ()),
        ("continuous, skewed sizes", _any, ()),
        ("graded, clusters of 1–3", _grades, (1, 2, 3)),
    )
    for share in (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
}


def type_one(null: str, n: int, repeats: int, draws: int, seed: int = 0) -> Refused:
    """How often the paired test refuses a true "no difference" at 5 %."""
    sample, sizes = NULLS[null]
    rng = np.random.default_rng([seed, n])
    deltas = sample(rng, (n, repeats))
    clusters = np.repeat(np.arange(n), np.resize(sizes, n))[:n] if sizes else None
    p = randomisation_tests(deltas, clusters=clusters, draws=draws, seed=seed)
    groups = np.arange(n) if clusters is None else clusters
    sums = np.zeros((groups.max() + 1, repeats))
    np.add.at(sums, groups, deltas)
    some = (np.abs(sums) > 1e-12).sum(axis=0) >= SOME
    share_some = float((p[some] <= 0.05).mean()) if some.mean() >= 0.5 else float("nan")
    return Refused(null, n, float((p <= 0.05).mean()), share_some, repeats)


# --- tables ----------------------------------------------------------------------------------------------------------


def coverage_table(results: list[Covered]) -> str:
    """Markdown: a row a population, coverage and mean width by n."""
    head = "| population | " + " | ".join(f"n = {n} | method" for n in SIZES) + " |"
    lines = [head, "| --- |" + " --- |" * (2 * len(SIZES))]
    for name in dict.fromkeys(result.population for result in results):
        cells = []
        for n in SIZES:
            cells += _cells(next(result for result in results if (result.population, result.n) == (name, n)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(result: Covered) -> list[str]:
    total = result.methods.total()
    methods = ", ".join(
        name + ("" if count == total else f" {count / total:.0%}") for name, count in result.methods.most_common()
    )
    mark = " °" if result.bounded_above else ""
    return ["–" if np.isnan(result.share) else f"{result.share:.4f}{mark}", methods]


def type_one_table(results: list[Refused]) -> str:
    """Markdown: a row a population, error by n, and of samples with ≥ `SOME` that are not 0."""
    head = "| differences | " + " | ".join(f"n = {n} | ≥ {SOME} not 0" for n in SIZES) + " |"
    lines = [head, "| --- |" + " --- |" * (2 * len(SIZES))]
    for name in NULLS:
        cells = []
        for n in SIZES:
            found = next(result for result in results if (result.null, result.n) == (name, n))
            cells += [f"{found.share:.4f}", "–" if np.isnan(found.share_some) else f"{found.share_some:.4f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def error(share: float, repeats: int) -> float:
    """Two standard errors of a simulated share: what its own chance may move it."""
    return float(2 * np.sqrt(share * (1 - share) / repeats))


def faults(covered: list[Covered], refused: list[Refused]) -> list[str]:
    """What breaks a promise beyond the simulation's own error."""
    found = []
    for r in covered:
        too_few = r.n >= 50 and r.share < 0.93 - error(0.93, r.repeats)
        too_many = r.bounded_above and r.share > 0.97 + error(0.97, r.repeats)
        if too_few or too_many or r.zero:
            found.append(f"{r.population}, n = {r.n}: covers {r.share:.4f}, {r.zero} without width")
    for t in refused:
        too_strict = t.share_some < 0.03 - error(0.03, t.repeats // 2)
        if too_strict or t.share > 0.07 + error(0.07, t.repeats):
            found.append(f"{t.null}, n = {t.n}: refuses {t.share:.4f}, of those with ≥ {SOME} not 0 {t.share_some:.4f}")
    return found


def main() -> None:
    """Simulate everything and print it."""
    parser = argparse.ArgumentParser(prog="python -m rag_eval_pipeline_tests.bench.intervals", description=__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    options = (asked.repeats, asked.draws, asked.seed)
    covered = [coverage(population, n, *options) for population in POPULATIONS for n in SIZES]
    print(coverage_table(covered), end="\n\n", flush=True)
    refused = [type_one(null, n, *options) for null in NULLS for n in SIZES]
    print(type_one_table(refused), end="\n\n")
    print("\n".join(faults(covered, refused)) or "every promise holds, within two standard errors of the simulation")


if __name__ == "__main__":
    main()
