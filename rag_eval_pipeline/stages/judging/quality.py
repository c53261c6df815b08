"""How far verifiers and judges may be believed, and what judges said of answers: by query, so that every mean has its interval.

Here: verdicts against people's, judgments, probes, cost. Not here: what verdicts say of answers (the answering room), agreement by
slice as one table (`calibrating`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.calibration import ITEMISED, Item, agreed, answer_items, claim_items
from rag_eval_pipeline.judging.rubrics import ANSWER, BEST
from rag_eval_pipeline.measures.agreement import length_controlled
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.measures.powered import prediction_powered
from rag_eval_pipeline.stages.judging.transform import JudgingConfig
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

METRICS: tuple[Metric, ...] = (
    Metric(
        "judge_accuracy",
        "Share of what people labelled that the verifier or judge labelled alike; a failure is wrong",
        "higher",
    ),
    Metric("judge_false_pass", "Share of what people labelled that passed, and did not for people", "lower"),
    Metric("judge_false_fail", "Share of what people labelled that failed, and passed for people", "lower"),
    Metric("judge_failed", "Share of what was to be judged that has no judgment", "lower"),
    Metric("judge_kappa", "Cohen's kappa with people, over what both labelled", "higher", low=-1.0),
    Metric(
        "powered_support", "Supported claims / claims as people would find, by few labels and all verdicts", "higher"
    ),
    Metric("judge_score", "What the judge gave an answer, 0 to 5", "higher", high=float(BEST), unit="score"),
    Metric(
        "judge_weighted_score",
        "The same, ratings weighted by their probability (G-Eval)",
        "higher",
        high=float(BEST),
        unit="score",
    ),
    Metric("judge_unsatisfactory", "1 where the judge finds an answer unsatisfactory", "lower"),
    Metric("judge_cost", "Price of the judgments of a query's answer", "lower", high=math.inf, unit="currency"),
    Metric("injection_held", "1 where an order put into a passage did not turn the judgment", "higher"),
    Metric("repeat_held", "1 where the same prompt gave the same judgment again", "higher"),
    Metric("order_held", "1 where the order of two answers did not decide which is better", "higher"),
    Metric("order_first", "Share of preferences for what stood first; 0.5 is fair", "neither"),
    Metric(
        "length_controlled_win", "Share of pairs that the first of two answers would win at equal length", "neither"
    ),
)
SHARES = {"judge_accuracy": "accuracy", "judge_false_pass": "false_pass", "judge_false_fail": "false_fail"}
PROBES = {"injection": "injection_held", "repeat": "repeat_held", "order": "order_held"}
Rows = list[dict[str, Any]]


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: JudgingConfig, settings: Settings) -> pl.DataFrame:
    """Rows a verifier or judge, query and measure, for queries of the split; and one figure of all where a measure has no items.

    NULL: `no_gold` where people labelled nothing, `no_judgment` where nothing was there to judge, else the judgment's status.
    """
    queries = gold.measured(settings.evaluate.split).sort("query_id")["query_id"].to_list()
    rows: Rows = []
    for verifier, items in claim_items(frames, gold.queries, gold.verdicts).items():
        params = {"verifier": verifier}
        rows += _against_people(items, queries, params, "claim")
        rows.append(_powered(items, settings.evaluate.split, params))
    evals = _by_query(frames["judge_evals"], frames)
    for (judge, rubric), items in answer_items(frames, gold.queries, gold.verdicts).items():
        if rubric == ANSWER.id:
            rows += _against_people(items, queries, {"judge": judge, "rubric": rubric}, "answer")
    for judge, rubric in sorted({(judge, rubric) for _, judge, rubric in evals}):
        rows += _opinions(evals, queries, judge, rubric)
    if config.judge is not None:
        rows += _shaken(frames["judge_probes"], queries)
    return measurements(rows)


# --- against people ----------------------------------------------------------------------------------------------------


def _against_people(
    items: Sequence[Item], queries: Sequence[str], params: Mapping[str, str], unit: str
) -> Iterator[dict[str, Any]]:
    mine: dict[str, list[Item]] = {}
    for item in items:
        mine.setdefault(item.query_id, []).append(item)
    for query in queries:
        there = mine.get(query, [])
        yield from _shares(query, there, params, unit)
        failed = float(sum(item.found is None for item in there))
        yield _ratio("judge_failed", query, failed, len(there), "no_judgment", params, unit)
    try:
        found = agreed(items)
        value, status = found.kappa, found.kappa_status
        limits = {"low": found.kappa_low, "high": found.kappa_high}
    except Unmeasured as error:
        value, status, limits = None, error.reason, {}
    yield measurement(
        "judge_kappa", "corpus", "all", value, unit=unit, params=dict(params), status=status, **limits
    )  # fmt: skip


def _shares(query: str, there: Sequence[Item], params: Mapping[str, str], unit: str) -> Iterator[dict[str, Any]]:
    labelled = [item for item in there if item.people is not None]
    passes = [(item.people in ("supported", "pass"), item.found in ("supported", "pass")) for item in labelled]
    counts = {
        "judge_accuracy": sum(item.found == item.people for item in labelled),
        "judge_false_pass": sum(found and not wanted for wanted, found in passes),
        "judge_false_fail": sum(
            wanted and not found and item.found is not None
            for (wanted, found), item in zip(passes, labelled, strict=True)
        ),
    }
    for metric, count in counts.items():
        yield _ratio(metric, query, float(count), len(labelled), "no_gold", params, unit)


def _ratio(
    metric: str, query: str, above: float, below: int, nothing: str, params: Mapping[str, str], unit: str
) -> dict[str, Any]:
    fields = {"unit": unit, "params": dict(params)}
    if not below:
        return measurement(metric, "query", query, None, status=nothing, **fields)
    return measurement(
        metric, "query", query, above / below, numerator=above, denominator=float(below), **fields
    )  # fmt: skip


def _powered(items: Sequence[Item], split: str, params: Mapping[str, str]) -> dict[str, Any]:
    """The rate that people would find over the split; its limits stand in `low` and `high`."""
    inside = [item for item in items if item.slices.get("split") == split]
    known = [item for item in inside if item.people is not None]
    rest = [item for item in inside if item.people is None]
    fields = {"unit": "claim", "params": dict(params)}
    try:
        found = prediction_powered(
            [float(item.people == "supported") for item in known], [_held(i) for i in known], [_held(i) for i in rest]
        )
    except Unmeasured as error:
        return measurement("powered_support", "corpus", "all", None, status=error.reason, **fields)
    return measurement("powered_support", "corpus", "all", found.estimate, low=found.low, high=found.high, **fields)


def _held(item: Item) -> float | None:
    return None if item.found is None else float(item.found == "supported")


# --- what judges said --------------------------------------------------------------------------------------------------


def _by_query(evals: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(Query, judge, rubric) -> the judgment of its first answer."""
    first = frames["answers"].filter(pl.col("sample") == 1).select("answer_id")
    chosen = evals.join(first, on="answer_id", how="semi")
    return {(row["query_id"], row["judge"], row["rubric"]): row for row in chosen.iter_rows(named=True)}


def _opinions(
    evals: Mapping[tuple[str, str, str], dict[str, Any]], queries: Sequence[str], judge: str, rubric: str
) -> Iterator[dict[str, Any]]:
    params = {"judge": judge, "rubric": rubric}
    columns = {"judge_cost": "cost"}
    if rubric not in ITEMISED:
        columns |= {"judge_unsatisfactory": "is_unsatisfactory"}
    if rubric == ANSWER.id:
        columns |= {"judge_score": "score", "judge_weighted_score": "weighted_score"}
    for query in queries:
        row = evals.get((query, judge, rubric))
        for metric, column in columns.items():
            value = None if row is None else row[column]
            status = "no_judgment" if row is None else "scored" if row["status"] == "ok" else row["status"]
            if value is None and status == "scored":
                status = "no_price" if metric == "judge_cost" else "no_probabilities"
            unit = {"judge_cost": "query", "judge_unsatisfactory": "answer"}.get(metric, "score")
            yield measurement(
                metric, "query", query, None if value is None else float(value), unit=unit, status=status, params=params
            )


# --- probes ------------------------------------------------------------------------------------------------------------


def _shaken(probes: pl.DataFrame, queries: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row an answer that was probed; of orders, a row a pair. Nobody expects other answers to be."""
    mine = probes.filter(pl.col("query_id").is_in(list(queries))).sort("judge", "kind", "answer_id", "probe")
    for (judge, kind), group in mine.group_by(["judge", "kind"], maintain_order=True):
        params = {"judge": str(judge), "rubric": ANSWER.id}
        for row in group.iter_rows(named=True):
            item = f"{row['answer_id']} ~ {row['probe']}" if kind == "order" else row["answer_id"]
            value = None if row["held"] is None else float(row["held"])
            status = "scored" if value is not None else row["status"]
            yield measurement(
                PROBES[str(kind)], "answer", item, value, unit="judgment", status=status, params=params
            )  # fmt: skip
        if kind == "order":
            yield from _orders(group, params)


def _orders(pairs: pl.DataFrame, params: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Two figures of all pairs: preference for the first place, and the win rate at equal length."""
    fields = {"unit": "pair", "params": dict(params)}
    turned = {"first": "second", "second": "first", "tie": "tie"}
    rows = pairs.drop_nulls(["expected", "found"])
    shown = [*rows["expected"], *(turned[each] for each in rows["found"])]
    decided = [float(each == "first") for each in shown if each != "tie"]
    if decided:
        yield measurement("order_first", "corpus", "all", sum(decided) / len(decided), **fields)
    else:
        yield measurement("order_first", "corpus", "all", None, status="no_preferences", **fields)
    points = {"first": 1.0, "second": 0.0, "tie": 0.5}
    wins = [(points[a] + points[b]) / 2 for a, b in zip(rows["expected"], rows["found"], strict=True)]
    try:
        found = length_controlled(wins, [float(each) for each in rows["longer"]])
    except Unmeasured as error:
        yield measurement("length_controlled_win", "corpus", "all", None, status=error.reason, **fields)
        return
    yield measurement(
        "length_controlled_win", "corpus", "all", found.controlled, low=found.low, high=found.high, **fields
    )  # fmt: skip
