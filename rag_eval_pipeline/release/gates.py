"""Release gates: whether each pre-registered rule of corpus.yaml holds, by one-sided bounds, and what the whole gate says.

Here: rules on measurements of one or two evaluations, as pure functions. Which evaluations, where verdicts are kept and exit
codes stand in `gating`.

A rule passes where the one-sided 95 % bound of its figure lies inside its limit; all rules must pass (an intersection–union
test: no correction). What has no value is filled with the worst value that it could have where a pass is asked, and with the
best where a failure is, so leaving judgments out never helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.special import ndtr

from rag_eval_pipeline.corpus.settings import Gates, Rule
from rag_eval_pipeline.judging.calibration import UNCALIBRATED
from rag_eval_pipeline.measures.intervals import Interval, Side, confidence_interval
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.noninferiority import exact_noninferiority
from rag_eval_pipeline.measures.paired import holm, needed_n, paired_interval, rule_power, standard_error
from rag_eval_pipeline.warehouse.memo import digest

Verdict = Literal["pass", "fail", "inconclusive", "missing_evidence"]
WORST_FIRST: tuple[Verdict, ...] = ("fail", "missing_evidence", "inconclusive", "pass")
"""What the whole gate says: the first of these that any rule says."""
LIMITS = ("min", "max", "max_drop", "max_rise")
SERIES = ("stage", "retriever", "metric", "unit", "k", "params", "item_type")
SLICES = ("intent", "language", "doc_class", "answerable", "tags")
"""What a rule may slice by: facts of queries and documents. A slice by value or status would choose what passes."""
AGGREGATES = ("corpus", "type", "language")
"""Item types whose value is one figure of many items: it is held against its limit as it is."""
ABOUT_JUDGES = frozenset({
    "judge_accuracy", "judge_false_pass", "judge_false_fail", "judge_failed", "judge_kappa", "judge_cost",
    "injection_held", "repeat_held", "order_held", "order_first",
})  # fmt: skip
"""Figures about a verifier or judge, which need none that is calibrated."""
_NOT_CALIBRATED = (
    "whoever judged this is not calibrated on this corpus; label at least 30 of its claims in verdicts.jsonl (the table "
    "judge_calibration says what is missing), or allow it: --allow uncalibrated"
)
LEVEL = 0.95
EXACT = 2_000
"""Pairs up to which shares are tested exactly, too: beyond, score limits hold their level to a tenth of a percent."""


@dataclass(frozen=True)
class Finding:
    """One limit of one rule on one series of measurements. Figures are None where there are none.

    Attributes:
        rule: number of the rule, from 1.
        label: the figure in words: metric@k, unit, retriever, slice.
        limit: min | max | max_drop | max_rise.
        allowed: the limit's value.
        verdict: what was decided.
        reason: why, and what to do, in a sentence.
        found: the mean, or the mean difference to the baseline.
        before: mean of the baseline.
        low: one-sided lower bound of `found`.
        high: one-sided upper bound.
        n: items with a value (on both sides).
        n_expected: items that should have one.
        n_needed: items on which the rule would be settled with 80 % power, if the figure stays as it is: more than there are where
            it is inconclusive.
        power: how often the rule would pass on so many items, if nothing changed (relative limits only).
        p_fail: chance of a figure as bad as this one at the limit itself.
        p_holm: the same, adjusted for the number of limits: below 0.05 names this one as failing.
    """

    rule: int
    label: str
    limit: str
    allowed: float
    verdict: Verdict
    reason: str
    found: float | None = None
    before: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    n_expected: int = 0
    n_needed: int | None = None
    power: float | None = None
    p_fail: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Decision:
    """What the gate says of an evaluation.

    Attributes:
        verdict: the worst of all findings and refusals.
        findings: one a limit and series.
        refusals: why the two sides may not be compared, or the gate not decided at all; each says how to allow it.
        power: bounds of the chance that the whole gate passes if nothing changed; None without relative limits.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    refusals: tuple[str, ...] = ()
    power: tuple[float, float] | None = None

    def record(self) -> dict[str, Any]:
        """As JSON says it."""
        return asdict(self)


@dataclass(frozen=True)
class Measured:
    """One evaluation as the gate reads it.

    Attributes:
        rows: its measurements.
        served: the retriever that it serves; a rule without one speaks of it.
        clusters: query → cluster.
    """

    rows: pl.DataFrame
    served: str
    clusters: Mapping[str, str]

    def unknown(self, rule: Rule) -> list[str]:
        """Slices of a rule that there are none of."""
        return sorted(set(rule.slice) - set(SLICES))

    def select(self, rule: Rule) -> pl.DataFrame:
        """Rows that a rule speaks of: its metric, and what else it names. Unanswerable queries have no evidence to find."""
        rows = self.rows.filter(pl.col("metric") == rule.metric)
        if rule.k:
            rows = rows.filter(pl.col("k") == rule.k)
        if rule.unit:
            rows = rows.filter(pl.col("unit") == rule.unit)
        wanted = [rule.retriever] if rule.retriever else ["", self.served]
        rows = rows.filter(pl.col("retriever").is_in(wanted))
        if self.unknown(rule):
            return rows.clear()
        for name, value in rule.slice.items():
            if name == "tags":
                rows = rows.filter(pl.col("tags").list.contains(value))
            else:
                rows = rows.filter(pl.col(name).cast(pl.String) == value)
        out_of_scope = (pl.col("status") == "no_gold") & pl.col("answerable").eq(False)
        return rows.filter(~out_of_scope.fill_null(False))


def rules_hash(gates: Gates) -> str:
    """Of what is asked: rules and minimum coverage. Which baseline they are held against is left out."""
    return digest(gates.model_dump(mode="json", exclude={"baseline"}))[:16]


def decide(
    gates: Gates,
    metrics: Mapping[str, Metric],
    now: Measured,
    before: Measured | None,
    *,
    no_baseline: str = "there is no baseline",
    refusals: Sequence[str] = (),
    other_population: bool = False,
    uncalibrated: bool = False,
) -> Decision:
    """Hold every rule against the measurements.

    Args:
        gates: rules and minimum coverage.
        metrics: declarations, for bounds.
        now: the evaluation that is decided on.
        before: its baseline, for `max_drop` and `max_rise`.
        no_baseline: why there is none.
        refusals: what forbids a decision (changed gold or rules, another split): at best `missing_evidence`.
        other_population: compare the items that both sides have, where they differ.
        uncalibrated: let figures of verifiers and judges count that are not calibrated on this corpus.
    """
    if not gates.rules:
        refusals = [
            *refusals,
            "corpus.yaml has no gates.rules, and a gate without a rule lets nothing pass; write at least one",
        ]
    findings = [
        finding
        for number, rule in enumerate(gates.rules, 1)
        for finding in _Judge(
            number, rule, gates, metrics, now, before, no_baseline, other_population, uncalibrated
        ).findings()
    ]
    findings = _with_holm(findings)
    said: set[Verdict] = {finding.verdict for finding in findings}
    if refusals:
        said.add("missing_evidence")
    return Decision(next(v for v in WORST_FIRST if v in said), tuple(findings), tuple(refusals), _whole_power(findings))


def _with_holm(findings: Sequence[Finding]) -> list[Finding]:
    tested = [number for number, finding in enumerate(findings) if finding.p_fail is not None]
    adjusted = dict(zip(tested, holm([findings[number].p_fail or 0.0 for number in tested]), strict=True))
    return [Finding(**{**asdict(f), "p_holm": adjusted.get(number)}) for number, f in enumerate(findings)]


def _whole_power(findings: Sequence[Finding]) -> tuple[float, float] | None:
    """Least and greatest chance that all relative limits pass together: their dependence is not known."""
    powers = [finding.power for finding in findings if finding.power is not None]
    if not powers:
        return None
    return max(0.0, 1.0 - sum(1.0 - power for power in powers)), min(powers)


@dataclass(frozen=True)
class _Judge:
    """One rule on its measurements."""

    number: int
    rule: Rule
    gates: Gates
    metrics: Mapping[str, Metric]
    now: Measured
    before: Measured | None
    no_baseline: str
    other_population: bool
    uncalibrated: bool = False

    def findings(self) -> Iterator[Finding]:
        """One a limit and series."""
        limits = [(name, value) for name in LIMITS if (value := getattr(self.rule, name)) is not None]
        if self.rule.metric not in self.metrics:
            known = f"no room declares a metric {self.rule.metric!r}; docs/measures.md lists them"
            yield from (self._missing(self.rule.metric, *limit, known) for limit in limits)
            return
        rows = self.now.select(self.rule)
        if rows.is_empty():
            nothing = "no measurement is what the rule speaks of; look at metric, k, unit, retriever and slice in the view measurements"
            if unknown := self.now.unknown(self.rule):
                nothing = f"measurements have no slice {', '.join(map(repr, unknown))}; there are {', '.join(SLICES)}"
            yield from (self._missing(self._label(None), *limit, nothing) for limit in limits)
        for key, series in sorted(rows.group_by(SERIES), key=lambda part: str(part[0])):
            named = dict(zip(SERIES, key, strict=True))
            for name, allowed in limits:
                yield self._one(named, series, name, allowed)

    def _label(self, series: Mapping[str, Any] | None) -> str:
        rule, named = self.rule, series or {}
        k = named.get("k", rule.k)
        parts = [
            f"{rule.metric}{f'@{k}' if k else ''}",
            named.get("unit", rule.unit),
            named.get("retriever", rule.retriever),
        ]
        parts += [f"{name}={value}" for name, value in rule.slice.items()]
        params = str(named.get("params", "{}"))
        return " ".join(str(part) for part in (*parts, "" if params == "{}" else params) if part)

    def _missing(self, label: str, limit: str, allowed: float, reason: str, **figures: Any) -> Finding:
        return Finding(self.number, label, limit, allowed, "missing_evidence", reason, **figures)

    def _one(self, named: Mapping[str, Any], rows: pl.DataFrame, limit: str, allowed: float) -> Finding:
        label, metric = self._label(named), self.metrics[self.rule.metric]
        if UNCALIBRATED in str(named["params"]) and not self.uncalibrated and named["metric"] not in ABOUT_JUDGES:
            return self._missing(label, limit, allowed, _NOT_CALIBRATED)
        now = _items(rows)
        before: dict[str, float | None] | None = None
        if limit in ("max_drop", "max_rise"):
            if self.before is None:
                return self._missing(label, limit, allowed, self.no_baseline)
            before = _items(_same_series(self.before.select(self.rule), named, self.before.served))
            apart = sorted(set(now) ^ set(before))
            if apart and not self.other_population:
                shown = ", ".join(apart[:5]) + (f" and {len(apart) - 5} more" if len(apart) > 5 else "")
                return self._missing(
                    label, limit, allowed,
                    f"the two sides have other items ({shown}); measure both on the same ones, or allow it: --allow population",
                )  # fmt: skip
            both = set(now) & set(before)
            now, before = ({item: side[item] for item in sorted(both)} for side in (now, before))
        case = _Case(limit, allowed, now, before, metric, self._clusters(named["item_type"]))
        least = min(case.coverages)
        if not now or least < self.gates.min_coverage:
            return self._missing(
                label, limit, allowed,
                f"{least:.0%} of {len(now)} items have a value, and gates.min_coverage asks for {self.gates.min_coverage:.0%}",
                n=case.n, n_expected=len(now),
            )  # fmt: skip
        if named["item_type"] in AGGREGATES:
            return self._plain(label, case)
        return self._bounded(label, case)

    def _clusters(self, item_type: str) -> Mapping[str, str]:
        return self.now.clusters if item_type == "query" else {}

    def _plain(self, label: str, case: _Case) -> Finding:
        """A figure of the whole corpus: there are no items to resample, so it is held against its limit as it is."""
        value = case.mean
        held: Verdict = "missing_evidence" if value is None else "pass" if case.inside(value) else "fail"
        reason = f"{case.words(value)}; one figure of the whole corpus, so without an interval"
        return Finding(
            self.number, label, case.limit, case.allowed, held, reason,
            found=value, before=case.mean_before, n=case.n, n_expected=len(case.now),
        )  # fmt: skip

    def _bounded(self, label: str, case: _Case) -> Finding:
        try:
            pessimist, optimist = case.bound("worst"), case.bound("best")
        except ValueError as error:
            return self._missing(label, case.limit, case.allowed, str(error), n=case.n, n_expected=len(case.now))
        low, high = (pessimist, optimist) if case.downwards else (optimist, pessimist)
        figures: dict[str, Any] = {
            "found": case.mean, "before": case.mean_before, "low": low.low, "high": high.high,
            "n": case.n, "n_expected": len(case.now),
        }  # fmt: skip
        worst, best = (low.low, high.high) if case.downwards else (high.high, low.low)
        if worst is None or best is None:
            return self._missing(
                label, case.limit, case.allowed,
                "there is no bound; measure more items", **figures,
            )  # fmt: skip
        held: Verdict = "pass" if case.inside(worst) else "fail" if not case.inside(best) else "inconclusive"
        reason = _because(held, case, worst, best)
        if held == "pass" and (p := case.exact()) is not None and p > 1 - LEVEL:
            held, reason = (
                "inconclusive",
                f"{case.words(case.mean)}; its bound lies inside by so little that an exact test says p = {p:.3f}",
            )
        two = case.interval("two")
        return Finding(
            self.number, label, case.limit, case.allowed, held, reason, **figures,
            n_needed=case.needed(two),
            power=rule_power(two, case.allowed) if case.relative else None,
            p_fail=case.p_fail(two),
        )  # fmt: skip


def _because(held: Verdict, case: _Case, worst: float, best: float) -> str:
    if held == "pass":
        return f"{case.words(case.mean)}; its 95 % bound {worst:.4g} lies inside"
    if held == "fail":
        return f"{case.words(case.mean)}; even the bound on the other side, {best:.4g}, lies outside"
    return f"{case.words(case.mean)}; its 95 % bound {worst:.4g} lies outside, the other, {best:.4g}, inside: too few items to say"


def _items(rows: pl.DataFrame) -> dict[str, float | None]:
    return dict(rows.select("item_id", "value").sort("item_id").iter_rows())


def _same_series(rows: pl.DataFrame, named: Mapping[str, Any], served: str) -> pl.DataFrame:
    """The same series on the other side; the served retriever may have another name there."""
    retriever = (
        served if named["retriever"] and not rows["retriever"].is_in([named["retriever"]]).any() else named["retriever"]
    )
    wanted = {**named, "retriever": retriever}
    return rows.filter(pl.all_horizontal(pl.col(name) == value for name, value in wanted.items()))


@dataclass(frozen=True)
class _Case:
    """A limit on values; `before` where it is relative. An item without a value has None."""

    limit: str
    allowed: float
    now: Mapping[str, float | None]
    before: Mapping[str, float | None] | None
    metric: Metric
    clusters: Mapping[str, str]

    @property
    def relative(self) -> bool:
        """Whether it is held against a baseline."""
        return self.before is not None

    @property
    def downwards(self) -> bool:
        """Whether lower values are the ones that break the limit."""
        return self.limit in ("min", "max_drop")

    @property
    def threshold(self) -> float:
        """What the figure is held against: a mean, or a difference now − before."""
        return -self.allowed if self.limit == "max_drop" else self.allowed

    def inside(self, value: float) -> bool:
        """Whether a figure keeps the limit."""
        return value >= self.threshold if self.downwards else value <= self.threshold

    @cached_property
    def coverages(self) -> tuple[float, ...]:
        """Share of items with a value, by side."""
        sides = [self.now] if self.before is None else [self.now, self.before]
        return tuple(sum(v is not None for v in side.values()) / max(len(side), 1) for side in sides)

    @cached_property
    def n(self) -> int:
        """Items with a value on all sides."""
        return sum(v is not None and (self.before is None or self.before[i] is not None) for i, v in self.now.items())

    @cached_property
    def mean(self) -> float | None:
        """The figure over what has a value: a mean, or the mean difference."""
        if self.before is None:
            found = [v for v in self.now.values() if v is not None]
        else:
            found = [v - w for i, v in self.now.items() if v is not None and (w := self.before[i]) is not None]
        return float(np.mean(found)) if found else None

    @cached_property
    def mean_before(self) -> float | None:
        """Mean of the baseline."""
        found = [v for v in (self.before or {}).values() if v is not None]
        return float(np.mean(found)) if found else None

    @cached_property
    def range(self) -> tuple[float, float]:
        """Least and greatest value of an item; where the metric has no such, the outermost ones seen on either side, and 1.

        Without it a limit on an error rate could never be decided where all items agree: nothing would bound the next one.
        """
        seen = [v for side in (self.now, self.before or {}) for v in side.values() if v is not None]
        least, greatest = self.metric.low, self.metric.high
        least = min([0.0, *seen]) if least == float("-inf") else least
        return least, max([1.0, *seen]) if greatest == float("inf") else greatest

    def words(self, value: float | None) -> str:
        """Figure and limit."""
        if value is None:
            return "no item has a value"
        if self.relative:
            return f"{self.mean_before:.4g} → {value:+.4g}, allowed {'a drop' if self.downwards else 'a rise'} of {self.allowed:g}"
        return f"{value:.4g}, allowed at {'least' if self.downwards else 'most'} {self.allowed:g}"

    def bound(self, which: Literal["worst", "best"]) -> Interval:
        """The one-sided interval towards (worst) or away from (best) the limit, gaps filled accordingly."""
        towards: Side = "lower" if self.downwards else "upper"
        away: Side = "upper" if self.downwards else "lower"
        return self.interval(towards if which == "worst" else away, which)

    def interval(self, side: Side, fill: Literal["worst", "best"] = "worst") -> Interval:
        """Interval of the figure; two-sided at 95 %, one-sided likewise."""
        sinks = self.downwards == (fill == "worst")
        now = self._filled(self.now, self.metric.low if sinks else self.metric.high)
        low, high = self.range
        if self.before is not None:
            before = self._filled(self.before, self.metric.high if sinks else self.metric.low)
            return paired_interval(
                now, before, clusters=self.clusters or None, low=low, high=high, level=LEVEL, side=side
            )
        clusters = [self.clusters.get(item) for item in now] if self.clusters else None
        return confidence_interval(list(now.values()), clusters=clusters, low=low, high=high, level=LEVEL, side=side)

    def exact(self) -> float | None:
        """P of the exact test that pairs of 0 and 1 lie beyond their margin, gaps filled with the worst; None for other values.

        Score limits are a little too sharp for some shares: up to 5.9 % of releases at their very margin would pass.
        """
        if self.before is None or self.clusters or (self.metric.low, self.metric.high) != (0, 1):
            return None
        worst, other = (0.0, 1.0) if self.downwards else (1.0, 0.0)
        now, before = self._filled(self.now, worst), self._filled(self.before, other)
        if len(now) > EXACT or self.allowed >= 1 or not {*now.values(), *before.values()} <= {0.0, 1.0}:
            return None
        up = sum(now[item] > before[item] for item in now)
        down = sum(now[item] < before[item] for item in now)
        good, bad = (up, down) if self.downwards else (down, up)
        return exact_noninferiority(good, bad, len(now), self.allowed)

    def _filled(self, side: Mapping[str, float | None], value: float) -> dict[str, float]:
        if abs(value) == float("inf") and any(v is None for v in side.values()):
            raise ValueError(
                "items without a value could have any: the metric has no bound to fill them with. Give them a value, or leave "
                "them out of the slice"
            )
        return {item: value if v is None else v for item, v in side.items()}

    def needed(self, two: Interval) -> int | None:
        """Items that would settle it, if the figure stays as it is."""
        distance = 0.0 if self.mean is None else abs(self.mean - self.threshold)
        return needed_n(two, distance) if distance > 1e-9 else None

    def p_fail(self, two: Interval) -> float | None:
        """Chance of a figure this far on the wrong side if the truth stood at the limit (normal approximation)."""
        error = standard_error(two)
        if error is None or self.mean is None or error == 0:
            return None
        beyond = (self.mean - self.threshold) / error
        return float(ndtr(beyond if self.downwards else -beyond))
