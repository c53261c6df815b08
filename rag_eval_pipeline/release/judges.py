"""Verifiers and judges of an evaluation as people see them: how far they agree with people, what they cost, who is uncalibrated.

Here: rows and pictures for the report. Not here: how agreement is computed (`judging.calibration`), how it is drawn (`pictures`).
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from rag_eval_pipeline.release.pictures.judges import costs_picture, matrix_picture
from rag_eval_pipeline.release.reading import Evaluation

MANY = 20
"""Judgments that a 95th percentile needs."""


def judges_of(evaluation: Evaluation) -> list[dict[str, Any]]:
    """A row a verifier or judge of the evaluation: agreement over all that people labelled, and whether its figures count."""
    if "judge_calibration" not in evaluation.manifest.tables:
        return []
    frame = evaluation.frame("judge_calibration")
    rows = frame.filter((pl.col("decided_by") == "label") & (pl.col("slice_name") == "all")).sort("judge", "rubric")
    return [row | {"says": "" if row["calibrated"] else f"uncalibrated: {row['why']}"} for row in rows.to_dicts()]


def costs_of(evaluation: Evaluation) -> list[dict[str, Any]]:
    """A row a judge: judgments, price of a thousand, seconds of one."""
    if "judge_evals" not in evaluation.manifest.tables:
        return []
    evals = evaluation.frame("judge_evals")
    rows = evals.group_by("judge").agg(
        pl.len().alias("n"),
        (1000 * pl.col("cost").mean()).alias("cost_per_1000"),
        pl.col("latency_s").quantile(0.5, "linear").alias("latency_p50"),
        pl.when(pl.col("latency_s").count() >= MANY)
        .then(pl.col("latency_s").quantile(0.95, "linear"))
        .alias("latency_p95"),
    )
    return rows.sort("judge").to_dicts()


def pictures_of(evaluation: Evaluation) -> list[str]:
    """Markup of the matrices of those that people can be compared with, and of costs."""
    made = []
    for number, row in enumerate(judges_of(evaluation)):
        counts = [(people, judge, n) for people, judge, n in json.loads(row["confusion"])]
        title = f"{row['judge']} against people ({row['rubric']})"
        about = f"{row['n_labelled']} labelled items: rows as people said, columns as {row['judge']} said."
        made.append(matrix_picture(counts, title, about, name=f"matrix{number}"))
    return [each for each in (*made, costs_picture(costs_of(evaluation))) if each]
