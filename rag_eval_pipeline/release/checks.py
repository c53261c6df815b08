"""Checks that need more than one room: entitlement, the books, and absolute thresholds of corpus.yaml."""

from __future__ import annotations

from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.evaluate import check_books
from rag_eval_pipeline.attribution.waterfall import TOLERANCE
from rag_eval_pipeline.corpus.settings import Rule
from rag_eval_pipeline.release.evaluated import metrics_of
from rag_eval_pipeline.release.gates import SERIES, Measured
from rag_eval_pipeline.stages.checks import Outcome
from rag_eval_pipeline.stages.graph import BY_NAME
from rag_eval_pipeline.stages.subject import Subject


def entitlement(subject: Subject, table: str) -> Outcome:
    """Items of a candidate list that the caller may not see must be none."""
    count = BY_NAME["filtering"].door("quality", "entitlement_violations")
    gold = subject.version.gold
    found = count(subject.frame("documents"), gold.queries, gold.principals, subject.frame(table))
    violations = int(found["violations"].sum())
    if not violations:
        return Outcome(True, f"no list of {table} holds a document that its caller may not see", {"violations": 0})
    worst = found.filter(pl.col("violations") > 0).sort("violations", descending=True).head(5)["query_id"].to_list()
    return Outcome(
        False,
        f"{violations} items of {table} lie outside their caller's set, e.g. queries {worst}. Mend the lane, reranker or "
        "imported run that returns them: entitlement is checked on what it returns, and the run stops here.",
        {"violations": violations},
    )


def books(subject: Subject, waterfall: pl.DataFrame) -> Outcome:
    """The ledger and the ranking table agree on what was served."""
    found = check_books(subject, waterfall)
    numbers = {
        "worst_residual": found.worst,
        "allowed_residual": TOLERANCE,
        "impossible": found.impossible,
        "groups_out_of_balance": found.faults.height,
    }
    return Outcome(found.ok, found.describe(), numbers)


def thresholds(room: str, frame: pl.DataFrame, subject: Subject) -> Outcome:
    """Absolute rules (`min`, `max`) of corpus.yaml's gates on this room's metrics, on plain means of what the gate decides on."""
    names = {metric.name for metric in metrics_of(room)}
    rules = [
        rule
        for rule in subject.version.settings.gates.rules
        if rule.metric in names and (rule.min, rule.max) != (None, None)
    ]
    if not rules:
        return Outcome(True, "corpus.yaml sets no absolute rule on this room's metrics", {"rules": 0})
    measured = Measured(frame, str(subject.configs["context"].serve), {})
    verdicts = [verdict(rule, measured) for rule in rules]
    failed = [text for passed, text in verdicts if not passed]
    told = {f"rule {number}": text for number, (_, text) in enumerate(verdicts, 1)}
    found = {"rules": len(rules), "failed": len(failed), **told}
    return Outcome(not failed, "; ".join(failed or [text for _, text in verdicts]), found)


def verdict(rule: Rule, measured: Measured) -> tuple[bool, str]:
    """Whether the means of all series that an absolute rule speaks of keep it, and in words what was found.

    Reads the same rows as the release gate (`Measured.select`), which decides on bounds instead.
    """
    rows = measured.select(rule)
    label = f"{rule.metric}{f'@{rule.k}' if rule.k else ''} {rule.slice or ''}".strip()
    series = rows.group_by(SERIES).agg(pl.col("value").mean().alias("mean"), pl.len().alias("items")).sort(SERIES)
    if series.is_empty():
        return False, f"{label}: missing evidence, no item is what the rule speaks of"
    told = [_held(rule, label, row, series.height > 1) for row in series.iter_rows(named=True)]
    failed = [text for passed, text in told if not passed]
    return not failed, "; ".join(failed or [text for _, text in told])


def _held(rule: Rule, label: str, row: dict[str, Any], several: bool) -> tuple[bool, str]:
    """One series; named by what tells it from the others, where there are any."""
    parts = [
        row["unit"],
        row["retriever"],
        f"k={row['k']}" if row["k"] and not rule.k else "",
        row["params"].strip("{}"),
    ]
    label = " ".join([label, *(part for part in parts if part)]) if several else label
    mean = row["mean"]
    if mean is None:
        return False, f"{label}: missing evidence, none of {row['items']} items has a value"
    low = rule.min is None or mean >= rule.min
    high = rule.max is None or mean <= rule.max
    bounds = f"[{'−∞' if rule.min is None else rule.min}, {'∞' if rule.max is None else rule.max}]"
    return low and high, f"{label} = {mean:.4g}, allowed {bounds}"
