"""How many items a release rule needs, before anything is measured: by the gate's own bounds, under a stated guess of the truth.

What a rule says of measurements, and the n that would settle it then, stands in `gates`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.special import ndtri
from scipy.stats import beta, binom

from rag_eval_pipeline.corpus.settings import Rule
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.release.gates import LEVEL, LIMITS

POWER = 0.8
CHURN = 0.1
"""Share of items that change from one version to the next, half of them for the better: what releases of one system look like."""
MOST = 100_000


@dataclass(frozen=True)
class Need:
    """What one limit of a rule needs.

    Attributes:
        rule: number of the rule, from 1.
        label: the figure in words.
        limit: min | max | max_drop | max_rise.
        allowed: the limit's value.
        n: items with a value for a pass in four of five releases that deserve one; None: values have no bounds, so only what is
            measured can tell.
        guess: the truth under which that holds.
    """

    rule: int
    label: str
    limit: str
    allowed: float
    n: int | None
    guess: str


def needs(rules: Iterable[Rule], metrics: Mapping[str, Metric]) -> list[Need]:
    """One a limit; rules on unknown metrics have none."""
    found = []
    for number, rule in enumerate(rules, 1):
        for limit in LIMITS:
            value = getattr(rule, limit)
            if value is not None and rule.metric in metrics:
                n, guess = needed(limit, value, metrics[rule.metric])
                found.append(Need(number, _label(rule), limit, value, n, guess))
    return found


def needed(limit: str, allowed: float, metric: Metric) -> tuple[int | None, str]:
    """Items for one limit, and under which guess.

    An absolute limit is taken to be kept with as much room as half the way to the best value; a relative one by a system in which a
    tenth of the items change, as many up as down.
    """
    width = metric.high - metric.low
    if not math.isfinite(width):
        return None, "values without bounds: measured once, the gate says it"
    if limit in ("max_drop", "max_rise"):
        margin = allowed / width
        guess = f"nothing is worse and {CHURN:.0%} of the items change"
        return (
            (None, "no change at all is allowed: no number of items shows that")
            if margin <= 0
            else (_paired(margin), guess)
        )
    share = (allowed - metric.low) / width if limit == "min" else (metric.high - allowed) / width
    if not 0 < share < 1:
        return None, "the limit is one of the two ends"
    truth = (1 + share) / 2
    told = metric.low + truth * width if limit == "min" else metric.high - truth * width
    return _share(share, truth), f"the truth is {told:.3g}"


def _label(rule: Rule) -> str:
    sliced = [f"{name}={value}" for name, value in rule.slice.items()]
    return " ".join(
        part
        for part in (f"{rule.metric}{f'@{rule.k}' if rule.k else ''}", rule.unit, rule.retriever or "", *sliced)
        if part
    )


def _paired(margin: float) -> int:
    """Pairs of 0 and 1. Normal approximation, and no fewer than the score limit asks where nothing changes (z² (1 − m) / m)."""
    z, power = -float(ndtri(1 - LEVEL)), float(ndtri(POWER))
    spread = ((z + power) / margin) ** 2 * CHURN
    return math.ceil(max(spread, z * z * (1 - margin) / margin))


def _share(least: float, truth: float) -> int | None:
    """Smallest n at which, and from which on, a share of `truth` has a one-sided exact bound of at least `least` (Clopper-Pearson)."""
    n = 1
    while not _passes(n, least, truth):
        n *= 2
        if n > MOST:
            return None
    # The exact bound rises in steps: an n counts where the dozen behind it pass, too.
    return next(m for m in itertools.count(n // 2 + 1) if all(_passes(m + i, least, truth) for i in range(12)))


def _passes(n: int, least: float, truth: float) -> bool:
    hits = _least_hits(n, least)
    return hits is not None and float(binom.sf(hits - 1, n, truth)) >= POWER


def _least_hits(n: int, least: float) -> int | None:
    """Fewest hits of n whose exact lower bound reaches `least`."""
    if float(beta.ppf(1 - LEVEL, n, 1)) < least:
        return None
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        bound = float(beta.ppf(1 - LEVEL, middle, n - middle + 1)) if middle else 0.0
        low, high = (low, middle) if bound >= least else (middle + 1, high)
    return high
