"""Sensors: a changed corpus starts a run; a failed run leaves a failed manifest."""

import dagster as dg

from rag_eval_pipeline.orchestration.changes import Cursor, look
from rag_eval_pipeline.orchestration.jobs import EVALUATE
from rag_eval_pipeline.orchestration.partitions import SUBJECTS
from rag_eval_pipeline.release.evaluation import failed_manifest
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home

PARTITION_TAG = "dagster/partition"


@dg.sensor(
    job=EVALUATE,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Looks below data/corpora: a new or changed version that is quiet (or has _READY) is registered and run once. "
    "An edit of documents under a key that has run requests nothing and names `rag-eval bump`.",
)
def corpus_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Register and request what changed."""
    cursor = Cursor.load(context.cursor)
    tick = look(Home.find(), cursor)
    note = "; ".join(tick.notes)[:2000]
    if not tick.requests:
        context.update_cursor(cursor.dump())
        return dg.SkipReason(note or "nothing changed below data/corpora")
    keys = [request.key for request in tick.requests]
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=r.run_key, partition_key=r.key) for r in tick.requests],
        dynamic_partitions_requests=[SUBJECTS.build_add_request(keys)],
        cursor=cursor.dump(),
    )


@dg.run_failure_sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description="A run that failed leaves a manifest with status failed and the asset at which it stopped.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Record where a run stopped."""
    key = context.dagster_run.tags.get(PARTITION_TAG)
    if key is None:
        return
    steps = [event.step_key for event in context.get_step_failure_events() if event.step_key]
    record_failure(key, steps[0] if steps else "before the first step")


def record_failure(key: str, stopped_at: str) -> str | None:
    """Write the failed manifest and show it; returns why it could not be written, where the subject itself is refused."""
    try:
        subject = Subject.open(Home.find(), key)
    except ValueError as error:
        return str(error)
    subject.manifests.write(failed_manifest(subject, stopped_at))
    publish(subject.home)
    return None
