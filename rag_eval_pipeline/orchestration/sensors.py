"""Sensors: a changed corpus starts a run; sources are mirrored; a failed run leaves a failed manifest and a notice.

What is looked at stands in `changes`, what is copied in `corpus.mirror`, what is said to whom in `notices`.
"""

from collections.abc import Iterator

import dagster as dg

from rag_eval_pipeline.corpus.mirror import mirror
from rag_eval_pipeline.orchestration.automation import Automation, AutomationError, Event, Mirroring, Source, load
from rag_eval_pipeline.orchestration.changes import Cursor, look
from rag_eval_pipeline.orchestration.jobs import EVALUATE
from rag_eval_pipeline.orchestration.notices import Notice, deliver, put
from rag_eval_pipeline.orchestration.partitions import SUBJECTS
from rag_eval_pipeline.release.evaluation import failed_manifest
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home

PARTITION_TAG = "dagster/partition"
RETRIED_TAG = "dagster/will_retry"
"""On a run whose process died and that Dagster starts again by itself: nothing has failed yet."""
GATE = "release_gate"
"""The step that fails alone where a release is refused: the evaluation itself is complete."""
SHOWN = 2000
"""Characters of a tick's notes."""


def _intervals() -> tuple[int, int]:
    """Seconds between ticks of `corpus_changes` and `corpus_mirror`; a wrong file is told by the ticks themselves."""
    try:
        settings = load(Home.find())
    except AutomationError:
        settings = Automation()
    return settings.sensor.every, settings.mirror.every


CHANGES_EVERY, MIRROR_EVERY = _intervals()


@dg.sensor(
    job=EVALUATE,
    minimum_interval_seconds=CHANGES_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Looks below data/corpora: a new or changed version that is quiet (or has _READY) is registered and run once. "
    "An edit of documents under a key that has run requests nothing and names `rag-eval bump`.",
)
def corpus_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Register and request what changed."""
    cursor = Cursor.load(context.cursor)
    home = Home.find()
    try:
        tick = look(home, cursor, load(home).sensor)
    except AutomationError as error:
        return dg.SkipReason(str(error)[:SHOWN])
    note = "; ".join(tick.notes)[:SHOWN]
    if not tick.requests:
        context.update_cursor(cursor.dump())
        return dg.SkipReason(note or "nothing changed below data/corpora")
    keys = [request.key for request in tick.requests]
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=r.run_key, partition_key=r.key) for r in tick.requests],
        dynamic_partitions_requests=[SUBJECTS.build_add_request(keys)],
        cursor=cursor.dump(),
    )


@dg.sensor(
    minimum_interval_seconds=MIRROR_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Mirrors corpora from the fsspec URLs of automation.yaml (s3://, gs://, file://, …) into data/corpora: whole "
    "versions, once they are quiet. Does nothing where no source is named.",
)
def corpus_mirror(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """One pass over each source; what is not done goes on in the next tick."""
    home = Home.find()
    try:
        settings = load(home).mirror
        if not settings.sources:
            return dg.SkipReason("off: automation.yaml names no mirror.sources")
        said = [line for source in settings.sources for line in _passed(home, settings, source)]
    except AutomationError as error:
        return dg.SkipReason(str(error)[:SHOWN])
    return dg.SkipReason("; ".join(said)[:SHOWN] or "the sources are as they were")


def _passed(home: Home, settings: Mirroring, source: Source) -> Iterator[str]:
    """One pass over a source, in words."""
    passed = mirror(
        home.corpora, source.url, source.resolved(),
        quiet=settings.quiet, ready=settings.ready, budget=settings.budget / len(settings.sources),
    )  # fmt: skip
    yield from (*passed.changes, *passed.notes)


@dg.run_failure_sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description="A run that failed leaves a manifest with status failed and the asset at which it stopped, and a notice for the "
    "channels of automation.yaml. Where only the release gate failed, the evaluation is complete and the notice says so.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Record where a run stopped, and leave a notice."""
    key = context.dagster_run.tags.get(PARTITION_TAG)
    if key is None or context.dagster_run.tags.get(RETRIED_TAG) == "true":
        return
    steps = list(dict.fromkeys(event.step_key for event in context.get_step_failure_events() if event.step_key))
    gated = steps == [GATE]
    if not gated:
        record_failure(key, steps[0] if steps else "before the first step")
    event: Event = "gate_failed" if gated else "run_failed"
    put(Home.find(), Notice(event, key, context.dagster_run.run_id, steps[0] if steps else "before the first step"))


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Sends the notices of failed runs and gates to the webhook and e-mail of automation.yaml; what can't be delivered "
    "is tried again. Does nothing where no channel is named.",
)
def notifications(_context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Send what waits."""
    home = Home.find()
    try:
        settings = load(home).notify
    except AutomationError as error:
        return dg.SkipReason(str(error)[:SHOWN])
    if not settings.channels:
        return dg.SkipReason("off: automation.yaml names no channel in notify")
    return dg.SkipReason("; ".join(deliver(home, settings))[:SHOWN] or "nothing to tell")


def record_failure(key: str, stopped_at: str) -> str | None:
    """Write the failed manifest and show it; returns why it could not be written, where the subject itself is refused."""
    try:
        subject = Subject.open(Home.find(), key)
    except ValueError as error:
        return str(error)
    subject.manifests.write(failed_manifest(subject, stopped_at))
    publish(subject.home)
    return None
