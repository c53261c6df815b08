"""Table `judge_calibration`: each verifier and judge against people, over all and by slice, with intervals.

Here: rows. Not here: how they are computed (`judging.calibration`), figures by query (`quality`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.judging.calibration import (
    Item,
    agreed,
    answer_items,
    at,
    by_slice,
    choose_threshold,
    claim_items,
    why_uncalibrated,
)
from rag_eval_pipeline.measures.intervals import Interval
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.warehouse.table import Table, boolean, conform, integer, number, string, table

SHARES = ("accuracy", "false_pass", "false_fail", "failed")


@table(
    "judge_calibration",
    "One row a verifier or judge, threshold and slice: how far it agrees with people, with 95 % intervals.",
)
class JudgeCalibration(Table):
    """Shares are over labelled items."""

    judge = string("lexical | nli | hhem | llm:<model>", key=True)
    rubric = string("Rubric of a judge of answers; `claims` of a verifier", key=True)
    decided_by = string(
        "`label`: as it said; `threshold`: by score, held against items outside the calibration split", key=True
    )
    slice_name = string("all | split | intent | language | answerable | kinship (of judge and answerer)", key=True)
    slice_value = string("Value of the slice", key=True)
    n_judged = integer("Items that it judged or failed on")
    n_labelled = integer("Of these, items that people labelled")
    n_both = integer("Of these, items that it gave a label")
    kappa = number("Cohen's kappa over items with both labels; NULL where kappa_status says why", null=True)
    kappa_low = number("Lower limit; NULL where too few agree or differ", null=True)
    kappa_high = number("Upper limit", null=True)
    kappa_status = string("scored | no_gold | no_pairs | one_class | no_calibration_split")
    accuracy = number("Right / labelled; a failure is wrong", null=True)
    accuracy_low = number("Lower limit", null=True)
    accuracy_high = number("Upper limit", null=True)
    false_pass = number("Passed by it, not by people / labelled", null=True)
    false_pass_low = number("Lower limit", null=True)
    false_pass_high = number("Upper limit", null=True)
    false_fail = number("Failed by it, passed by people / labelled", null=True)
    false_fail_low = number("Lower limit", null=True)
    false_fail_high = number("Upper limit", null=True)
    failed = number("Gave no label / labelled", null=True)
    failed_low = number("Lower limit", null=True)
    failed_high = number("Upper limit", null=True)
    confusion = string("People's label, its label (null: none), items: a JSON list of triples")
    threshold = number("Least score that passes, chosen on the calibration split alone", null=True)
    n_threshold = integer("Labelled items that it was chosen on", null=True)
    calibrated = boolean("Whether its figures count: at least 30 items with both labels, of more than one class")
    why = string("Why it is not calibrated and what to do; empty where it is")


def judge_calibration(frames: Mapping[str, pl.DataFrame], gold: Gold) -> pl.DataFrame:
    """Rows of all verifiers and judges.

    Args:
        frames: `answers`, `answer_claims`, `claim_verdicts`, `judge_evals`.
        gold: labels; without verdicts every row says `no_gold`.
    """
    rows: list[dict[str, Any]] = []
    for verifier, items in claim_items(frames, gold.queries, gold.verdicts).items():
        rows += _rows(verifier, "claims", items)
    for (judge, rubric), items in answer_items(frames, gold.queries, gold.verdicts).items():
        rows += _rows(judge, rubric, items)
    return conform(JudgeCalibration, rows)


def _rows(judge: str, rubric: str, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    why = why_uncalibrated(items)
    name = {"judge": judge, "rubric": rubric, "calibrated": why is None, "why": why or ""}
    for slice_name, value, inside in by_slice(items):
        yield {**name, "decided_by": "label", "slice_name": slice_name, "slice_value": value, **_figures(inside)}
    if all(item.score is None for item in items):
        return
    about = {**name, "decided_by": "threshold"}
    try:
        chosen = choose_threshold(items)
    except Unmeasured as error:
        yield {**about, "slice_name": "all", "slice_value": "all", **_nothing(items, error.reason)}
        return
    for slice_name, value, inside in by_slice(at(items, chosen.value)):
        figures = {**_figures(inside), "threshold": chosen.value, "n_threshold": chosen.n}
        yield {**about, "slice_name": slice_name, "slice_value": value, **figures}


def _nothing(items: Sequence[Item], status: str) -> dict[str, Any]:
    return {"n_judged": len(items), "n_labelled": 0, "n_both": 0, "kappa_status": status, "confusion": "[]"}


def _figures(items: Sequence[Item]) -> dict[str, Any]:
    try:
        found = agreed(items)
    except Unmeasured as error:
        return _nothing(items, error.reason)
    shares: dict[str, Interval] = {name: getattr(found, name) for name in SHARES}
    return {
        "n_judged": len(items),
        "n_labelled": found.n,
        "n_both": found.n_both,
        "kappa": found.kappa,
        "kappa_low": found.kappa_low,
        "kappa_high": found.kappa_high,
        "kappa_status": found.kappa_status,
        "confusion": json.dumps(sorted(([a, b, n] for (a, b), n in found.confusion.items()), key=str)),
        **{name: each.mean for name, each in shares.items()},
        **{f"{name}_low": each.low for name, each in shares.items()},
        **{f"{name}_high": each.high for name, each in shares.items()},
    }
