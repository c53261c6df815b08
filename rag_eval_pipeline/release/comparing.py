"""Two evaluations against each other: which two, whether they may be compared, and where the result is kept.

What is computed stands in `compared`. Only complete evaluations of one corpus are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.changes import Changes, changes_between
from rag_eval_pipeline.attribution.regressions import Side
from rag_eval_pipeline.corpus.keys import Key, KeyNameError
from rag_eval_pipeline.corpus.settings import Gates
from rag_eval_pipeline.release.compared import COMPARED, Compared
from rag_eval_pipeline.release.evaluated import MEASURED, metrics_of
from rag_eval_pipeline.release.gates import rules_hash
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.scorecard import GROUP
from rag_eval_pipeline.warehouse.fingerprint import code_fingerprint
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Comparison, Manifest, Manifests
from rag_eval_pipeline.warehouse.memo import digest
from rag_eval_pipeline.warehouse.redact import Redactor
from rag_eval_pipeline.warehouse.store import Store, Stored


class NotComparableError(ValueError):
    """Two evaluations may not be compared, or one is not there; the message says what to do."""


def choose(home: Home, key: str, evaluation_id: str | None = None) -> Manifest:
    """A complete evaluation of a key: the newest, or the one whose id begins so.

    Raises:
        NotComparableError: there is none, or it failed.
    """
    manifests = Manifests(home.manifests)
    mine = manifests.of(Key.parse(key).text)
    if evaluation_id is None:
        found = manifests.latest(Key.parse(key).text) or (mine[-1] if mine else None)
    else:
        found = manifests.find(Key.parse(key).text, evaluation_id)
    if found is None:
        known = ", ".join(m.evaluation_id for m in mine) or "none"
        which = f"no single evaluation that starts with {evaluation_id!r}" if evaluation_id else "no evaluation"
        raise NotComparableError(f"{key} has {which}; it has: {known}. `rag-eval run {key}` makes one")
    _refuse_failed(found)
    return found


def _refuse_failed(manifest: Manifest) -> None:
    if manifest.status != "complete":
        raise NotComparableError(
            f"evaluation {manifest.evaluation_id} of {manifest.key} failed at {manifest.stopped_at}; a failed evaluation is "
            f"never compared. Mend what stopped it and run `rag-eval run {manifest.key}`"
        )


@dataclass(frozen=True)
class Baseline:
    """What `gates.baseline` stands for; `manifest` is None where there is none, and `sentence` says why."""

    manifest: Manifest | None
    sentence: str


def baseline(home: Home, now: Manifest) -> Baseline:
    """The evaluation that another is compared with, by its own `gates.baseline`.

    `previous`: the last complete evaluation before it of the same corpus and pipeline, of whatever version. `accepted`: what
    `rag-eval accept` marked. Else the newest complete evaluation of that version and pipeline of the corpus.
    """
    manifests = Manifests(home.manifests)
    corpus = now.key.partition("@")[0]
    rule = str(now.config.get("gates", {}).get("baseline", "previous"))
    if rule == "previous":
        return _previous(manifests, now)
    if rule == "accepted":
        mark = manifests.accepted(corpus)
        found = manifests.find(*mark) if mark else None
        missing = f"no evaluation of {corpus} is accepted; mark one by `rag-eval accept KEY EVALUATION_ID`"
    else:
        try:
            key = Key.parse(f"{corpus}@{rule}").text
        except KeyNameError as error:
            return Baseline(None, f"no baseline: gates.baseline is {rule!r}, and {error}")
        found = manifests.latest(key)
        missing = f"{key} has no complete evaluation; make it by `rag-eval run {key}`"
    if found is None:
        return Baseline(None, f"no baseline: gates.baseline is {rule!r}, but {missing}")
    if found.evaluation_id == now.evaluation_id:
        return Baseline(None, f"no baseline: gates.baseline is {rule!r}, and that is this evaluation itself")
    return Baseline(found, f"compared with {found.key} {found.evaluation_id} ({rule})")


def _previous(manifests: Manifests, now: Manifest) -> Baseline:
    corpus, pipeline = now.key.partition("@")[0], now.key.partition("#")[2]
    earlier = [
        m
        for m in manifests.all()
        if m.status == "complete"
        and (m.key.partition("@")[0], m.key.partition("#")[2]) == (corpus, pipeline)
        and m.started <= now.started
        and m.evaluation_id != now.evaluation_id
    ]
    if not earlier:
        name = pipeline or "default"
        first = f"this is the first complete evaluation of {corpus}, pipeline {name}; the next one is compared with it"
        return Baseline(None, f"no baseline: {first}")
    found = max(earlier, key=lambda m: (m.started, m.key, m.evaluation_id))
    return Baseline(found, f"compared with {found.key} {found.evaluation_id} (previous)")


@dataclass
class Result:
    """A comparison with what it was made of.

    Attributes:
        comparison: its manifest.
        before: evaluation that is compared with.
        now: evaluation that is compared.
        changes: what differs between them.
        stored: its tables.
        reused: it was there.
    """

    home: Home
    comparison: Comparison
    before: Evaluation
    now: Evaluation
    changes: Changes
    stored: dict[str, Stored]
    reused: bool
    _redactor: list[Redactor] = field(default_factory=list)

    def frame(self, name: str) -> pl.DataFrame:
        """A table of the comparison, as stored: masked text is not redacted yet."""
        return Store(self.home.store).read(self.stored[name])

    @property
    def redactor(self) -> Redactor:
        """Hides the personal strings of both subjects."""
        if not self._redactor:
            self._redactor.append(Redactor([*self.before.redactor.terms, *self.now.redactor.terms]))
        return self._redactor[0]


def compare(home: Home, before: Manifest, now: Manifest) -> Result:
    """Find or compute the comparison of two evaluations, and keep it.

    Raises:
        NotComparableError: one failed, both are the same, or they are of different corpora.
    """
    for manifest in (before, now):
        _refuse_failed(manifest)
    if before.evaluation_id == now.evaluation_id:
        raise NotComparableError(
            f"{now.key} {now.evaluation_id} would be compared with itself; name two evaluations: `rag-eval evaluations` lists them"
        )
    if before.key.partition("@")[0] != now.key.partition("@")[0]:
        raise NotComparableError(
            f"{before.key} and {now.key} are of different corpora: their queries are not the same. Compare versions or "
            "pipelines of one corpus"
        )
    manifests, store = Manifests(home.manifests), Store(home.store)
    changes = changes_between(before, now)
    id_ = comparison_id(before, now)
    known = manifests.comparison(id_)
    names = [name for step in COMPARED for name in step.tables]
    sides = (Evaluation(home, before), Evaluation(home, now))
    subject = now.key.partition("#")[0]
    present = [store.find(name, subject, id_, "comparison_id") for name in names]
    if known is not None and all(present):
        return Result(home, known, *sides, changes, {s.table: s for s in present if s}, True)
    stored = {}
    for step in COMPARED:
        frames = step.run(_side(sides[0], step), _side(sides[1], step), changes)
        for schema, name in zip(step.writes, step.tables, strict=True):
            stored[name] = store.write(schema, frames[name], subject, id_, "comparison_id")
    comparison = Comparison(
        comparison_id=id_,
        key_before=before.key,
        evaluation_before=before.evaluation_id,
        key=now.key,
        evaluation_id=now.evaluation_id,
        tables={
            name: {
                "path": store.url(s),
                "content_hash": s.content_hash,
                "rows": s.rows,
                "kind": "comparison_id",
                "id": id_,
            }
            for name, s in stored.items()
        },
        changes=changes.record(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    manifests.compare(comparison)
    return Result(home, comparison, *sides, changes, stored, False)


def comparison_id(before: Manifest, now: Manifest) -> str:
    """What decides a comparison: both evaluations, what their manifests tell of their parts, rules, and the code that compares."""
    told = [[m.evaluation_id, m.parts, m.measuring, m.clusters, _rules_of(m)] for m in (before, now)]
    return digest([told, code_fingerprint(sorted({module for step in COMPARED for module in step.code}))])[:16]


def _side(evaluation: Evaluation, step: Compared) -> Side:
    manifest = evaluation.manifest
    subject, _, pipeline = manifest.key.partition("#")
    frames = {name: evaluation.frame(name) for name in step.reads if name in manifest.tables}
    return Side(
        subject, pipeline or "default", manifest.evaluation_id, frames, manifest.clusters, _rules_of(manifest)
    )  # fmt: skip


def _rules_of(manifest: Manifest) -> str:
    return rules_hash(Gates(**manifest.config.get("gates", {})))


def scorecard_changes(before: Evaluation, now: Evaluation) -> pl.DataFrame:
    """Means of both scorecards over all items, largest change first; measures that only one side has are left out.

    A change is measured against the metric's range, or, where it has none, against the larger of the two means and 1.

    Returns:
        The columns of a measure (stage, retriever, metric, unit, k, params, item_type), before, now, change, share, verdict
        (better | worse | changed).
    """
    means = [
        side.frame("scorecard").filter(pl.col("slice_name") == "all").select(*GROUP, "mean", "better")
        for side in (before, now)
    ]
    both = means[0].drop("better").join(means[1], on=list(GROUP), suffix="_now").drop_nulls(["mean", "mean_now"])
    change = pl.col("now") - pl.col("before")
    largest = pl.max_horizontal(pl.col("before").abs(), pl.col("now").abs(), pl.lit(1.0))
    improved = (change > 0) == (pl.col("better") == "higher")
    return (
        both.rename({"mean": "before", "mean_now": "now"})
        .join(_ranges(), on=["stage", "metric"], how="left")
        .with_columns(change.alias("change"))
        .filter(pl.col("change").abs() > 1e-12)
        .with_columns(
            (pl.col("change").abs() / pl.coalesce("range", largest)).alias("share"),
            pl.when(pl.col("better") == "neither")
            .then(pl.lit("changed"))
            .when(improved)
            .then(pl.lit("better"))
            .otherwise(pl.lit("worse"))
            .alias("verdict"),
        )
        .sort(["share", *GROUP], descending=[True, *[False] * len(GROUP)])
        .drop("range", "better")
    )


def _ranges() -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "stage": stage.name,
            "metric": m.name,
            "range": m.high - m.low if abs(m.high - m.low) != float("inf") else None,
        }
        for stage in MEASURED
        for m in metrics_of(stage.name)
    ]
    return pl.DataFrame(rows, schema={"stage": pl.String, "metric": pl.String, "range": pl.Float64}).unique(
        ["stage", "metric"], maintain_order=True
    )
