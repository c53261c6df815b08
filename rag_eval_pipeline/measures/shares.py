"""Shares and means of which some items have no value: what is known, what is missing, and how far it could move the figure.

Here: the form that answer measures give their figures in. Not here: what is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rag_eval_pipeline.measures.metric import Unmeasured, Valued


@dataclass(frozen=True)
class Share(Valued):
    """A weighted share, or why there is none.

    Attributes:
        value: numerator / denominator, over what has a value; None where `status` says why.
        status: `scored`, or the reason.
        numerator: above; a sum of weights.
        denominator: below; weights of what has a value.
        n_expected: items.
        n_valued: items with a value.
        worst: the share if all others counted nothing; None where nothing is expected.
        best: if all others counted in full.
    """

    value: float | None
    status: str
    numerator: float
    denominator: float
    n_expected: int
    n_valued: int
    worst: float | None
    best: float | None


def share(items: Iterable[tuple[float | None, float]], nothing: str, failed: str = "judge_error") -> Share:
    """Σ weight · value / Σ weight over items with a value.

    Args:
        items: (value in [0, 1] or None, weight > 0).
        nothing: status where there are no items.
        failed: status where there are some and none has a value.

    Raises:
        ValueError: a value is not finite, or a weight not above 0.
    """
    given = list(items)
    if not all(math.isfinite(weight) and weight > 0 and math.isfinite(value or 0.0) for value, weight in given):
        raise ValueError("a share needs finite values and weights above 0; give None where there is no value")
    valued = [(value, weight) for value, weight in given if value is not None]
    above, below = sum(value * weight for value, weight in valued), sum(weight for _, weight in valued)
    expected = sum(weight for _, weight in given)
    if not given:
        return Share(None, nothing, 0.0, 0.0, 0, 0, None, None)
    bounds = (above / expected, (above + expected - below) / expected)
    value = above / below if valued else None
    return Share(value, "scored" if valued else failed, above, below, len(given), len(valued), *bounds)


@dataclass(frozen=True)
class Mean:
    """A mean over items with a value, with all others named.

    Attributes:
        mean: over those with a value; None where there are none.
        n_expected: items.
        n_valued: those with a value.
        n_by_status: status → items; `scored` have a value.
        worst: the mean if every other item were worst.
        best: if every other were best.
    """

    mean: float | None
    n_expected: int
    n_valued: int
    worst: float | None
    best: float | None
    n_by_status: dict[str, int] = field(default_factory=dict)

    @property
    def coverage(self) -> float | None:
        """Items with a value / items."""
        return self.n_valued / self.n_expected if self.n_expected else None

    def require(self, min_coverage: float) -> float:
        """The mean, for a decision.

        Raises:
            Unmeasured: `missing_evidence`: fewer items have a value than the decision asks for.
        """
        if self.mean is None or self.coverage is None or self.coverage < min_coverage:
            raise Unmeasured("missing_evidence", f"{self.n_valued} of {self.n_expected} items have a value")
        return self.mean


def mean_of(values: Iterable[float | str | None], low: float = 0.0, high: float = 1.0) -> Mean:
    """The mean of what has a value; a failed item leaves neither the count nor the band.

    Args:
        values: a number; else the status that says why there is none (None: `missing`).
        low: least value that an item can have: the worst.
        high: greatest value.
    """
    given = list(values)
    numbers = [float(v) for v in given if v is not None and not isinstance(v, str)]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("a mean needs finite values; give a status or None where there is none")
    statuses = Counter("missing" if v is None else v if isinstance(v, str) else "scored" for v in given)
    if not given:
        return Mean(None, 0, 0, None, None, {})
    total, others = sum(numbers), len(given) - len(numbers)
    worst, best = (total + others * low) / len(given), (total + others * high) / len(given)
    mean = total / len(numbers) if numbers else None
    return Mean(mean, len(given), len(numbers), worst, best, dict(sorted(statuses.items())))
