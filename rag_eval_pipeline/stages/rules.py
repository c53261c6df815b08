"""Release rules that can decide nothing, found before anything runs: unknown metrics, slices and lanes, limits that always hold.

What a rule decides belongs to `release.gates`. The rooms' own declarations say which metrics there are and which values they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

import polars as pl

from rag_eval_pipeline.corpus.configuration import Loc, Marks, dotted_loc
from rag_eval_pipeline.corpus.faults import Faults, suggestion
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Rule, Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.stages.source.transform import BY_EXTENSION, CLASSES
from rag_eval_pipeline.stages.stage import Stage

SLICES = ("intent", "language", "doc_class", "answerable", "tags")
"""What a rule may slice by."""
REMOVE = "tighten it, or remove the rule"


def check_rules(
    settings: Settings, stages: Iterable[Stage], lanes: Collection[str], marks: Marks, faults: Faults
) -> None:
    """Refuse rules that no evaluation could break or decide, each at the line where it is written.

    Args:
        settings: corpus.yaml with a pipeline laid over it.
        stages: rooms; their `METRICS` are what a rule may speak of.
        lanes: names of the pipeline's retrievers.
        marks: where each key was written.
        faults: gets an error for each rule that is vacuous or speaks of nothing.
    """
    metrics = {metric.name: metric for stage in stages if stage.has_quality for metric in _metrics(stage)}
    for number, rule in enumerate(settings.gates.rules):
        place: Loc = ("gates", "rules", number)
        _check_names(rule, place, metrics, lanes, settings, marks, faults)
        if rule.metric in metrics:
            _check_limits(rule, place, metrics[rule.metric], marks, faults)


def warn_of_empty_slices(settings: Settings, gold: Gold, files: pl.DataFrame, marks: Marks, faults: Faults) -> None:
    """A slice whose value no query and no document of the version has leaves its rule without evidence."""
    for number, rule in enumerate(settings.gates.rules):
        for name, value in rule.slice.items():
            known = _values(name, gold, files)
            if name in SLICES and value not in known:
                place = ("gates", "rules", number, "slice", name)
                faults.warn(
                    *marks.at(place), dotted_loc(place), f"{value!r}, which no query or document of this version has",
                    "a value that some have", f"the gate will say missing_evidence; {suggestion(value, known)}",
                )  # fmt: skip


def _metrics(stage: Stage) -> tuple[Metric, ...]:
    return stage.door("quality", "METRICS")  # type: ignore[return-value]


def _check_names(
    rule: Rule, place: Loc, metrics: Mapping[str, Metric], lanes: Collection[str], settings: Settings, marks: Marks,
    faults: Faults,
) -> None:  # fmt: skip
    named: list[tuple[str, str, Collection[str], str]] = [
        ("metric", rule.metric, metrics, "a metric that some room declares")
    ]
    if rule.retriever is not None:
        named.append(("retriever", rule.retriever, lanes, "a lane of pipeline.retrieval"))
    for field, value, known, what in named:
        if value not in known:
            loc = (*place, field)
            faults.add(*marks.at(loc), dotted_loc(loc), f"{value!r}, which is none", what, suggestion(value, known))
    for name in rule.slice:
        if name not in SLICES:
            loc = (*place, "slice", name)
            faults.add(
                *marks.at(loc), dotted_loc(loc), "a slice that measurements don't have", f"one of {', '.join(SLICES)}",
                suggestion(name, SLICES),
            )  # fmt: skip
    if rule.k and rule.k not in settings.evaluate.cuts:
        loc = (*place, "k")
        faults.add(
            *marks.at(loc), dotted_loc(loc), f"the cut-off {rule.k}, which is not measured",
            f"one of {', '.join(map(str, settings.evaluate.cuts))}", "add it to evaluate.k, or change the rule",
        )  # fmt: skip


def _check_limits(rule: Rule, place: Loc, metric: Metric, marks: Marks, faults: Faults) -> None:
    """A limit outside of what values can be holds always, or never."""
    width = metric.high - metric.low
    never: dict[str, bool] = {}
    always: dict[str, bool] = {}
    if rule.min is not None:
        always["min"], never["min"] = rule.min <= metric.low, rule.min > metric.high
    if rule.max is not None:
        always["max"], never["max"] = rule.max >= metric.high, rule.max < metric.low
    for name in ("max_drop", "max_rise"):
        if (value := getattr(rule, name)) is not None:
            always[name] = value >= width
    span = f"{metric.name} lies in {metric.low:g} … {metric.high:g}"
    for name, holds in always.items():
        loc = (*place, name)
        found = f"{getattr(rule, name):g}"
        if holds:
            faults.add(
                *marks.at(loc),
                dotted_loc(loc),
                f"{found}, a limit that always holds ({span})",
                "a limit that can be broken",
                REMOVE,
            )
        elif never.get(name):
            faults.add(
                *marks.at(loc),
                dotted_loc(loc),
                f"{found}, a limit that never holds ({span})",
                "a limit that can be kept",
                "correct it",
            )


def _values(name: str, gold: Gold, files: pl.DataFrame) -> set[str]:
    if name == "answerable":
        return {str(value).lower() for value in gold.queries[name].unique()}
    if name == "doc_class":
        return set(files[name].drop_nulls()) | _media(files.filter(pl.col(name).is_null()))
    if name == "tags":
        return set(gold.queries[name].explode(empty_as_null=True).drop_nulls())
    return set(gold.queries[name].drop_nulls()) | (set(files[name].drop_nulls()) if name == "language" else set())


def _media(files: pl.DataFrame) -> set[str]:
    """Classes that documents without a declared one get, as far as their names tell."""
    media = {BY_EXTENSION.get(PurePosixPath(path).suffix.lower().lstrip("."), "other") for path in files["path"]}
    return {CLASSES.get(name, name) for name in media}
