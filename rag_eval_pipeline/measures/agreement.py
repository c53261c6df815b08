"""A judge against people, against itself, and against answers' length.

Here: labels against labels. Not here: who judged (judging), estimates of the true rate from few labels (`powered`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit, ndtri

from rag_eval_pipeline.measures.intervals import (
    DRAWS,
    MIN_CLUSTERS,
    MIN_DIFFERENT,
    Interval,
    confidence_interval,
)
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.measures.shares import Share, share

_STILL = 1e-10
_LARGEST_LOG = 709.0
"""Beyond it, e to this power is no double any more."""
PASSES = frozenset({True, "supported", "pass"})
Order = Literal["first", "second", "tie"]


@dataclass(frozen=True)
class Agreement:
    """A judge against people's labels.

    Attributes:
        kappa: Cohen's κ over pairs that both judged; None where `kappa_status` says why.
        kappa_low: lower limit at 95 %, by resampling pairs; None where too few agree or differ to say.
        kappa_high: upper limit.
        kappa_status: `scored`, `no_pairs`, `one_class` (both gave one label throughout: agreement by chance is certain).
        n: items that people labelled.
        n_both: those that the judge judged too.
        unlabelled: items that nobody labelled; in no figure.
        accuracy: right / labelled; a failure counts as wrong.
        false_pass: passed by the judge, not by people / labelled.
        false_fail: failed by the judge, passed by people / labelled.
        failed: no judgment / labelled.
        confusion: (people's label, judge's label or None) → items.
    """

    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    kappa_status: str
    n: int
    n_both: int
    unlabelled: int
    accuracy: Interval
    false_pass: Interval
    false_fail: Interval
    failed: Interval
    confusion: dict[tuple[Any, Any], int]


def agreement(
    judge: Sequence[Hashable | None],
    people: Sequence[Hashable | None],
    passes: Collection[Hashable] = PASSES,
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Agreement:
    """κ on pairs that both judged; accuracy and the three ways to be wrong over all that people labelled.

    False passes, false failures and failures need not add up to 1 − accuracy: labels may differ and both pass or both not.

    Args:
        judge: its label an item; None: it failed.
        people: theirs; None: unlabelled.
        passes: labels that let an item pass.
        clusters: which items belong together.
        seed: of resamples.

    Raises:
        Unmeasured: `no_gold`: nothing is labelled.
        ValueError: lengths differ.
    """
    if len(judge) != len(people):
        raise ValueError(f"{len(judge)} judgments for {len(people)} labels; give one each")
    if clusters is not None and len(clusters) != len(people):
        raise ValueError(f"{len(clusters)} clusters for {len(people)} labels; give one each")
    kept = [index for index, label in enumerate(people) if label is not None]
    if not kept:
        raise Unmeasured("no_gold")
    pairs = [(people[index], judge[index]) for index in kept]
    groups = None if clusters is None else [clusters[index] for index in kept]

    def rate(values: list[bool]) -> Interval:
        return confidence_interval([float(v) for v in values], clusters=groups, binary=True, low=0, high=1, seed=seed)

    both = [index for index, (_, found) in enumerate(pairs) if found is not None]
    kappa, status = _kappa([pairs[index] for index in both])
    low, high = _kappa_limits([pairs[i] for i in both], None if groups is None else [groups[i] for i in both], seed)
    ok = set(passes)
    return Agreement(
        kappa=kappa,
        kappa_low=low if kappa is not None else None,
        kappa_high=high if kappa is not None else None,
        kappa_status=status,
        n=len(pairs),
        n_both=len(both),
        unlabelled=len(people) - len(pairs),
        accuracy=rate([wanted == found for wanted, found in pairs]),
        false_pass=rate([found is not None and found in ok and wanted not in ok for wanted, found in pairs]),
        false_fail=rate([found is not None and found not in ok and wanted in ok for wanted, found in pairs]),
        failed=rate([found is None for _, found in pairs]),
        confusion=dict(Counter(pairs)),
    )


def _matrix(pairs: Sequence[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray, int]:
    codes: dict[Any, int] = {}
    rows = np.array([[codes.setdefault(a, len(codes)), codes.setdefault(b, len(codes))] for a, b in pairs], dtype=int)
    return rows[:, 0], rows[:, 1], len(codes)


def _kappa(pairs: Sequence[tuple[Any, Any]]) -> tuple[float | None, str]:
    if not pairs:
        return None, "no_pairs"
    a, b, size = _matrix(pairs)
    counts = np.bincount(a * size + b, minlength=size * size).reshape(1, size, size)
    value = float(_kappas(counts.astype(float))[0])
    return (None, "one_class") if math.isnan(value) else (value, "scored")


def _kappas(counts: np.ndarray) -> np.ndarray:
    """Cohen 1960: (observed − by chance) / (1 − by chance); NaN where chance alone agrees always."""
    total = counts.sum(axis=(1, 2))
    observed = np.trace(counts, axis1=1, axis2=2) / total
    chance = (counts.sum(axis=1) * counts.sum(axis=2)).sum(axis=1) / total**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.isclose(chance, 1.0, atol=1e-12), np.nan, (observed - chance) / (1 - chance))


def _kappa_limits(
    pairs: Sequence[tuple[Any, Any]], clusters: Sequence[Hashable] | None, seed: int
) -> tuple[float | None, float | None]:
    """Percentiles over resampled pairs or clusters; none where fewer than 10 agree or differ, or there are fewer than 30."""
    names: dict[Hashable, int] = {}
    groups = np.array([names.setdefault(g, len(names)) for g in (clusters or range(len(pairs)))], dtype=int)
    apart = sum(a != b for a, b in pairs)
    if len(names) < MIN_CLUSTERS or min(apart, len(pairs) - apart) < MIN_DIFFERENT:
        return None, None
    a, b, size = _matrix(pairs)
    table = np.zeros((len(names), size * size))
    np.add.at(table, (groups, a * size + b), 1.0)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS // 5)
    drawn = _kappas((weights @ table).reshape(-1, size, size))
    low, high = np.nanpercentile(drawn, (2.5, 97.5))
    return float(low), float(high)


@dataclass(frozen=True)
class OrderFlips:
    """A pairwise judge asked in both orders.

    Attributes:
        flips: pairs whose winner changed with the order / pairs judged both times.
        first: of all judgments with a winner, the share that preferred what stood first.
    """

    flips: Share
    first: Share


def order_flips(forward: Sequence[Order | None], backward: Sequence[Order | None]) -> OrderFlips:
    """How often the order of two answers decides which is better.

    Args:
        forward: which was preferred as shown, A before B: `first`, `second`, `tie`; None: it failed.
        backward: the same with B before A.

    Raises:
        ValueError: lengths differ, or a preference has another name.
    """
    if len(forward) != len(backward):
        raise ValueError(
            f"{len(forward)} forward for {len(backward)} backward judgments; give both orders of each pair"
        )
    turned = {"first": "second", "second": "first", "tie": "tie", None: None}
    if strange := {*forward, *backward} - turned.keys():
        raise ValueError(f"unknown preference {min(map(str, strange))!r}; use first, second or tie")
    pairs = list(zip(forward, backward, strict=True))
    flips = [None if a is None or b is None else float(a != turned[b]) for a, b in pairs]
    decided = [float(p == "first") for p in (*forward, *backward) if p in ("first", "second")]
    return OrderFlips(
        share([(value, 1.0) for value in flips], "no_pairs"), share([(v, 1.0) for v in decided], "no_preferences")
    )


def self_consistency(answers: Sequence[Hashable | None]) -> float:
    """Share of repeated answers (or labels) that equal the most frequent one; compare wording with `normalise_answer` first.

    Args:
        answers: of one input, one a repeat; None: it failed, and is in no count.

    Raises:
        Unmeasured: `too_few_repeats`: fewer than two.
    """
    given = [answer for answer in answers if answer is not None]
    if len(given) < 2:
        raise Unmeasured("too_few_repeats")
    return Counter(given).most_common(1)[0][1] / len(given)


def g_eval_score(
    probabilities: Mapping[str, float], scale: Sequence[int] = (0, 1, 2, 3, 4, 5), logs: bool = False
) -> float:
    """Σ p(s) · s over rating tokens, probabilities renormalised over them (Liu et al. 2023).

    Args:
        probabilities: token → its probability; white space around a rating is ignored, other tokens are left out.
        scale: ratings there are.
        logs: whether natural logarithms are given.

    Raises:
        Unmeasured: `no_probabilities`: no rating token among them has any.
        ValueError: a probability is negative or no number.
    """
    mass: dict[int, float] = dict.fromkeys(scale, 0.0)
    for token, given in probabilities.items():
        weight = (math.exp(given) if given < _LARGEST_LOG else math.inf) if logs else given
        if not (weight >= 0 and math.isfinite(weight)):
            raise ValueError(f"probability {given} of a token; give probabilities ≥ 0, or logs=True for logarithms")
        rating = token.strip()
        if rating.isascii() and rating.isdecimal() and int(rating) in scale:
            mass[int(rating)] += weight
    total = math.fsum(mass.values())
    if not total:
        raise Unmeasured("no_probabilities")
    return math.fsum(rating * weight for rating, weight in mass.items()) / total


@dataclass(frozen=True)
class LengthControlled:
    """Which of two systems a judge prefers, at equal length.

    Attributes:
        raw: share of pairs that A wins, ties half.
        controlled: the share at equal length, by the model.
        low: its lower limit at 95 %.
        high: its upper limit.
        length_effect: log-odds that a difference of one standard deviation in length adds.
        n: pairs.
    """

    raw: float
    controlled: float
    low: float
    high: float
    length_effect: float
    n: int


def length_controlled(wins: Sequence[float], lengths: Sequence[float], level: float = 0.95) -> LengthControlled:
    """The win rate that is left when length decides nothing (the idea of length-controlled AlpacaEval, Dubois et al. 2024).

    Logistic regression of the winner on tanh(difference of lengths / its root mean square), read off at no difference. Fitted
    with Firth's prior, so that it is finite where one side always wins; limits are Wald's on the log-odds.

    Args:
        wins: 1 where A wins, 0 where B does, 0.5 for a tie.
        lengths: length of A's answer less that of B's.
        level: confidence.

    Raises:
        Unmeasured: `no_pairs`.
        ValueError: lengths of the lists differ, or a win is outside [0, 1].
    """
    y, difference = np.asarray(wins, dtype=np.float64), np.asarray(lengths, dtype=np.float64)
    if y.shape != difference.shape:
        raise ValueError(f"{y.size} wins for {difference.size} differences of length; give one each")
    if not y.size:
        raise Unmeasured("no_pairs")
    if not ((y >= 0) & (y <= 1)).all():
        raise ValueError("a win is 1, 0, or 0.5 for a tie")
    if not np.isfinite(difference).all():
        raise ValueError("lengths: missing or infinite; leave out pairs of which a length is not known")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, found {level}; 95 % is 0.95")
    scale = math.sqrt(float(np.mean(difference**2)))
    columns = [np.ones_like(y), *([np.tanh(difference / scale)] if scale and np.ptp(difference) else [])]
    beta, spread = firth(np.column_stack(columns), y)
    reach = ndtri((1 + level) / 2) * math.sqrt(spread[0, 0])
    centre = float(beta[0])
    limits = expit([centre - reach, centre + reach])
    effect = float(beta[1]) if len(beta) > 1 else 0.0
    return LengthControlled(float(y.mean()), float(expit(centre)), float(limits[0]), float(limits[1]), effect, y.size)


def firth(x: np.ndarray, y: np.ndarray, steps: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Logistic coefficients under Jeffreys' prior (Firth 1993), and their covariance. x: items × columns; y in [0, 1]."""
    beta = np.zeros(x.shape[1])
    now = _penalised(x, y, beta)
    for _ in range(steps):
        p = expit(x @ beta)
        w = p * (1 - p)
        spread = np.linalg.inv((x.T * w) @ x)
        leverage = w * np.einsum("ij,jk,ik->i", x, spread, x)
        step = spread @ (x.T @ (y - p + leverage * (0.5 - p)))
        while (then := _penalised(x, y, beta + step)) < now and np.abs(step).max() > _STILL:
            step = step / 2
        beta, now = beta + step, then
        if np.abs(step).max() <= _STILL:
            break
    p = expit(x @ beta)
    return beta, np.linalg.inv((x.T * (p * (1 - p))) @ x)


def _penalised(x: np.ndarray, y: np.ndarray, beta: np.ndarray) -> float:
    """Log-likelihood with half the log-determinant of the information."""
    logits = x @ beta
    p = expit(logits)
    sign, information = np.linalg.slogdet((x.T * (p * (1 - p))) @ x)
    likelihood = float((y * logits - np.logaddexp(0.0, logits)).sum())
    return likelihood + 0.5 * float(information) if sign > 0 else -math.inf
