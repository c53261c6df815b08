"""What a report says of answers: the main figures, who was refused, and whether confidence means what it says.

Here: rows of `answering_quality` and the scorecard put together for people. Not here: what a figure means (the answering room).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.calibration import Bin, reliability_curve
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.stages.answering.evidence import deciding

SHOWN = (
    "evidence_availability", "evidence_used", "faithfulness", "unsupported_evidence_absent", "unsupported_evidence_ignored",
    "citation_precision", "citation_recall", "dangling_citations", "nugget_vital", "token_f1", "numeric_agreement",
    "refusal_precision", "refusal_recall", "false_refusal", "asserted_without_support",
)  # fmt: skip
"""Measures of the report's table, in order; the scorecard has all."""
OUTCOMES = {
    "token_f1>=0.5": "token F1 with a gold answer is 0.5 or more",
    "all_supported": "all claims are supported",
    "exact_match": "it equals a gold answer",
}


@dataclass(frozen=True)
class Answered:
    """Answers of an evaluation, for people.

    Attributes:
        rows: of the scorecard, those that are shown, in order.
        quadrants: (refused | answered | empty) × (should_refuse | should_answer) → queries.
        unknown: queries of which nobody knows what they call for.
        outcome: what the curve takes for right, in words; empty where there is no curve.
        curve: its bins.
    """

    rows: list[dict[str, Any]]
    quadrants: dict[tuple[str, str], int]
    unknown: int
    outcome: str
    curve: list[Bin]


def answered(evaluation: Evaluation) -> Answered | None:
    """None where nothing answers, or the evaluation is older than this room."""
    if "answering_quality" not in evaluation.manifest.tables:
        return None
    frame = evaluation.frame("answering_quality")
    if frame.is_empty():
        return None
    outcome, curve = _curve(frame)
    quadrants, unknown = _quadrants(frame)
    return Answered(_rows(evaluation), quadrants, unknown, OUTCOMES.get(outcome, outcome), curve)


def doubt_of(evaluation: Evaluation) -> str:
    """What a loss at `answering` is to be marked with; empty where nobody judged it, or one who is calibrated on this corpus."""
    if not {"claim_verdicts", "judge_calibration"} <= set(evaluation.manifest.tables):
        return ""
    known = evaluation.frame("judge_calibration").filter(pl.col("rubric") == "claims")
    return doubt(evaluation.frame("claim_verdicts"), dict(known.select("judge", "calibrated").iter_rows()))


def doubt(verdicts: pl.DataFrame, calibrated: Mapping[str, bool]) -> str:
    """The same from `claim_verdicts` and verifier -> whether it is calibrated: the verifier says on what claims stand."""
    name = deciding(verdicts["verifier"].unique())
    return "" if name is None or calibrated.get(name, False) else f"{name}, uncalibrated"


def _rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    score = evaluation.frame("scorecard").filter(
        (pl.col("slice_name") == "all")
        & (pl.col("stage") == "answering")
        & pl.col("metric").is_in(SHOWN)
        & (pl.col("k") == 0)
    )
    order = {name: place for place, name in enumerate(SHOWN)}
    place = pl.col("metric").replace_strict(order, return_dtype=pl.Int64)
    return score.sort(place, "params").to_dicts()


def _quadrants(frame: pl.DataFrame) -> tuple[dict[tuple[str, str], int], int]:
    """From the rows of refusing: those with a value say what a query called for, and their status what was said instead."""
    counts: Counter[tuple[str, str]] = Counter()
    for metric, should in (("refusal_recall", "should_refuse"), ("false_refusal", "should_answer")):
        rows = frame.filter((pl.col("metric") == metric) & pl.col("value").is_not_null())
        for value, status in rows.select("value", "status").iter_rows():
            said = "refused" if value else "answered" if status == "scored" else "empty"
            counts[said, should] += 1
    unknown = frame.filter(
        (pl.col("metric") == "false_refusal") & pl.col("status").is_in(["no_gold", "ineligible"])
    ).height
    return dict(counts), unknown


def _curve(frame: pl.DataFrame) -> tuple[str, list[Bin]]:
    """The curve of the first outcome that has values; of verifiers the first by name."""
    stated = frame.filter((pl.col("metric") == "answer_confidence") & pl.col("value").is_not_null())
    right = frame.filter((pl.col("metric") == "answer_right") & pl.col("value").is_not_null())
    both = right.join(stated.select("item_id", confidence="value"), on="item_id").sort("item_id")
    for outcome in OUTCOMES:
        for params in both["params"].unique().sort().to_list():
            mine = both.filter(pl.col("params") == params)
            if json.loads(params).get("outcome") == outcome and mine.height:
                return outcome, reliability_curve(mine["confidence"].to_list(), mine["value"].to_list())
    return "", []
