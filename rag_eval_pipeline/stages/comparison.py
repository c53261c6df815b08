"""Candidates of a stage side by side: means by document class with intervals, and the paired difference to the chosen one.

Here: the table `candidate_summary`, and what is run, for every room that compares. Not here: how candidates are run, and
their rows (each room's `comparison`); entries of the settings (`candidates`); methods of intervals (`measures`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import polars as pl

from rag_eval_pipeline.measures.intervals import DRAWS, Interval, Plan, mean_intervals
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.paired import direction, paired_intervals
from rag_eval_pipeline.stages.candidates import CHOSEN, Kind, Section
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import Table, boolean, conform, integer, number, string, table

ALL = "all"


@dataclass(frozen=True)
class Asked(Generic[Kind, Section]):
    """A candidate as it is to be run.

    Attributes:
        candidate: the entry.
        config: the section with the entry's settings laid over it.
        runtime: whose memo is that of a pipeline with this config: what was compared is not computed again once chosen.
        output: rows of outputs/<folder>/<name>.jsonl, where it is imported.
    """

    candidate: Kind
    config: Section
    runtime: Runtime
    output: pl.DataFrame | None = None

    def imported(self) -> dict[str, pl.DataFrame]:
        """What its stage reads as outside input.

        Raises:
            ValueError: it is imported, and its file is absent.
        """
        name = self.candidate.output
        if name is None:
            return {}
        if self.output is None:
            raise ValueError(
                f"candidates: {self.candidate.name} is imported, but outputs/{name}.jsonl is absent; add it or remove the "
                "candidate"
            )
        return {f"output:{self.candidate.OUTPUTS}": self.output}

    @contextmanager
    def naming_its_file(self) -> Iterator[None]:
        """What the stage refuses of an import names the file of this candidate, not that of the chosen one."""
        try:
            yield
        except ValueError as error:
            name = self.candidate.output
            if name is None:
                raise
            chosen = f"outputs/{self.candidate.OUTPUTS}.jsonl"
            raise ValueError(str(error).replace(chosen, f"outputs/{name}.jsonl")) from error


@dataclass(frozen=True)
class Compared:
    """A figure of candidates.

    Attributes:
        column: in the room's table of candidates.
        metric: its declaration.
        weight: column that the micro average weighs by; None where it has none.
    """

    column: str
    metric: Metric
    weight: str | None = None


@table(
    "candidate_summary",
    "One row a candidate (parser, cleaner), document class and figure: its mean, and the paired difference to the chosen one.",
)
class CandidateSummary(Table):
    """From `parser_candidates` and `cleaner_candidates`."""

    stage = string("parsing | cleaning", key=True)
    doc_class = string("Class of documents, or all", key=True)
    candidate = string("Name; `chosen`: what the pipeline uses", key=True)
    metric = string("Column of the table of candidates", key=True)
    n_expected = integer("Documents of the class")
    n_valued = integer("Those with a value")
    n_by_status = string("Status of the document → documents, JSON")
    mean = number("Macro: over documents with a value", null=True)
    mean_low = number("Lower limit of its 95 % interval; NULL where `interval` says why", null=True)
    mean_high = number("Upper limit", null=True)
    interval = string("bca, bounded (conservative), clopper_pearson; or why there is none: no_values, no_bounds")
    micro = number("Weighted by size of the reference, where the figure is a ratio of counts", null=True)
    delta = number("Mean of candidate − chosen over documents with a value of both; NULL without any", null=True)
    delta_low = number("Lower limit of its paired 95 % interval", null=True)
    delta_high = number("Upper limit", null=True)
    delta_method = string("As `interval`; NULL for the chosen one", null=True)
    n_pairs = integer("Documents with a value of both")
    direction = string("better | worse | different | inconclusive than the chosen one, by that interval", null=True)
    better = string("higher | lower | neither")
    is_chosen = boolean("Whether this is what the pipeline uses")
    seconds_per_page = number(
        "Σ seconds / Σ pages (a document without pages is one)", unit="s", null=True, volatile=True
    )


def summary(rooms: Mapping[str, tuple[pl.DataFrame, Sequence[Compared]]], draws: int = DRAWS) -> pl.DataFrame:
    """Rows of `CandidateSummary`.

    Args:
        rooms: stage -> its table of candidates (doc_id, candidate, doc_class, status, figures) and what is told of them.
        draws: resamples.
    """
    rows = [row for stage, (frame, told) in rooms.items() for row in _of_room(stage, frame, told, draws)]
    return conform(CandidateSummary, rows)


def _of_room(stage: str, frame: pl.DataFrame, told: Sequence[Compared], draws: int) -> Iterator[dict[str, Any]]:
    if frame.is_empty():
        return
    classes = [ALL, *frame["doc_class"].unique().sort().to_list()]
    for name in classes:
        part = (frame if name == ALL else frame.filter(pl.col("doc_class") == name)).sort("doc_id")
        chosen = part.filter(pl.col("candidate") == CHOSEN)
        for candidate in part["candidate"].unique().sort().to_list():
            own = part.filter(pl.col("candidate") == candidate)
            for row in _of_candidate(own, chosen, told, draws):
                yield {"stage": stage, "doc_class": name, "candidate": candidate, **row}


def _of_candidate(
    own: pl.DataFrame, chosen: pl.DataFrame, told: Sequence[Compared], draws: int
) -> Iterator[dict[str, Any]]:
    is_chosen = own["candidate"][0] == CHOSEN
    statuses = dict(own["status"].value_counts().sort("status").iter_rows())
    common = {
        "n_expected": own.height,
        "n_by_status": json.dumps(statuses),
        "is_chosen": is_chosen,
        "seconds_per_page": _seconds_per_page(own),
    }
    values, others = (_matrix(frame, told) for frame in (own, chosen))
    bounds = _bounds(told)
    means = mean_intervals(values, low=bounds[0], high=bounds[1], plan=Plan(draws=draws))
    for at, (figure, interval) in enumerate(zip(told, means, strict=True)):
        both = ~np.isnan(values[:, at]) & ~np.isnan(others[:, at])
        yield {
            **common,
            "metric": figure.column,
            "better": figure.metric.better,
            "n_valued": interval.n,
            "mean": interval.mean,
            "mean_low": interval.low,
            "mean_high": interval.high,
            "interval": _method(interval),
            "micro": _micro(own, figure),
            "n_pairs": int(both.sum()),
            **({} if is_chosen else _paired(values[both, at], others[both, at], figure, draws)),
        }


def _matrix(frame: pl.DataFrame, told: Sequence[Compared]) -> np.ndarray:
    """Documents × figures; NaN where a document has none."""
    return frame.select(pl.col(figure.column).cast(pl.Float64).fill_null(float("nan")) for figure in told).to_numpy()


def _bounds(told: Sequence[Compared]) -> tuple[list[float | None], list[float | None]]:
    low = [None if np.isinf(figure.metric.low) else figure.metric.low for figure in told]
    return low, [None if np.isinf(figure.metric.high) else figure.metric.high for figure in told]


def _method(interval: Interval) -> str:
    return interval.method if interval.status == "scored" else interval.status


def _micro(own: pl.DataFrame, figure: Compared) -> float | None:
    if figure.weight is None:
        return None
    valued = own.filter(pl.col(figure.column).is_not_null(), pl.col(figure.weight) > 0)
    total = float(valued[figure.weight].sum())
    return float((valued[figure.column] * valued[figure.weight]).sum()) / total if total else None


def _paired(own: np.ndarray, chosen: np.ndarray, figure: Compared, draws: int) -> dict[str, Any]:
    if not own.size:
        return {"delta_method": "no_values"}
    low, high = (None if np.isinf(bound) else bound for bound in (figure.metric.low, figure.metric.high))
    both = None if low is None or high is None else (low, high)
    found = paired_intervals(
        own[:, None],
        chosen[:, None],
        low=both and both[0],
        high=both and both[1],
        # Rates and counts without an upper bound are no hits, even where all of them are 0 or 1.
        binary=None if both else False,
        plan=Plan(draws=draws),
    )[0]
    return {
        "delta": found.mean,
        "delta_low": found.low,
        "delta_high": found.high,
        "delta_method": _method(found),
        "direction": direction(found, figure.metric.better),
    }


def _seconds_per_page(own: pl.DataFrame) -> float | None:
    if "seconds" not in own.columns:
        return None
    timed = own.filter(pl.col("seconds").is_not_null())
    pages = timed.select(pl.col("pages").fill_null(1).clip(1).sum()).item()
    return float(timed["seconds"].sum()) / pages if pages else None
