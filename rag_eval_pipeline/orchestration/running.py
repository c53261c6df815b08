"""Run an evaluation from a command: the same job and the same instance as the UI's, in this process."""

import os
import shutil
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import dagster as dg

from rag_eval_pipeline.orchestration import subjects
from rag_eval_pipeline.orchestration.partitions import SUBJECTS
from rag_eval_pipeline.orchestration.processes import HOST_TAG, PID_TAG, is_gone, tags_of
from rag_eval_pipeline.orchestration.sensors import GATE, record_failure
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
"""A kill may come before the first step, too. Queued runs are the daemon's, and carry none of our tags."""
SETTINGS = Path(__file__).parents[2] / "dagster.yaml"
FALLBACK = "telemetry:\n  enabled: false\nnux:\n  enabled: false\n"


@dataclass
class RunReport:
    """How a run ended.

    Attributes:
        key: the subject.
        success: every step and every blocking check passed.
        stopped_at: step at which it stopped.
        errors: what to tell a person, one sentence a cause.
        warnings: failed checks that don't block.
        gated: all is there, and the release gate alone says no.
    """

    key: str
    success: bool
    stopped_at: str | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    gated: bool = False


def instance(home: Home) -> dg.DagsterInstance:
    """The Dagster instance below the data folder, with the project's dagster.yaml."""
    home.dagster.mkdir(parents=True, exist_ok=True)
    target = home.dagster / "dagster.yaml"
    if SETTINGS.is_file():
        shutil.copyfile(SETTINGS, target)
    elif not target.exists():
        target.write_text(FALLBACK, "utf-8")
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    return dg.DagsterInstance.get()


def register(home: Home, key: str) -> None:
    """Add a key to the partitions, so that the UI and `dagster asset materialize --partition` know it."""
    with instance(home) as running:
        running.add_dynamic_partitions(SUBJECTS.name or "", [key])


def run(home: Home, key: str, listener: Callable[[str, int, int], None] | None = None) -> RunReport:
    """Evaluate one key; the run is in the UI's list like any other.

    A signal ends the run as failed; runs of this host whose process is gone are marked failed at the start.

    Raises:
        CorpusError: the version is refused; nothing was registered or started.
        FrozenError: its documents changed since it first ran.
    """
    from rag_eval_pipeline.orchestration.build import build_defs

    Subject.open(home, key)
    with instance(home) as running, _listening(listener), _ending_on_signals():
        _bury_dead_runs(running)
        running.add_dynamic_partitions(SUBJECTS.name or "", [key])
        result = (
            build_defs()
            .resolve_job_def("evaluate")
            .execute_in_process(
                partition_key=key,
                instance=running,
                raise_on_error=False,
                run_id=(run_id := str(uuid.uuid4())),
                tags=tags_of(run_id),
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        )
    return _report(key, result)


def _report(key: str, result: dg.ExecuteInProcessResult) -> RunReport:
    failures = [event for event in result.all_events if event.is_step_failure]
    report = RunReport(key, result.success, failures[0].step_key if failures else None)
    said_no = False
    for evaluation in result.get_asset_check_evaluations():
        if not evaluation.passed:
            said_no |= evaluation.asset_key.path[-1] == GATE and evaluation.severity == dg.AssetCheckSeverity.ERROR
            target = report.errors if evaluation.severity == dg.AssetCheckSeverity.ERROR else report.warnings
            target.append(
                f"check {evaluation.check_name} of {evaluation.asset_key.to_user_string()}: {evaluation.description}"
            )
    # An interrupted gate has said nothing.
    report.gated = said_no and {event.step_key for event in failures} == {GATE}
    for event in failures:
        data = event.step_failure_data
        description = data.user_failure_data.description if data.user_failure_data else None
        if description:
            report.errors.append(description)
        elif data.error and not report.errors:
            cause = data.error.cause or data.error
            report.errors.append(f"{event.step_key}: {cause.message.strip()}")
    report.errors = list(dict.fromkeys(report.errors))  # steps side by side may stop for one reason
    if not result.success and not report.gated:
        record_failure(key, report.stopped_at or "before the first step")
    return report


@contextmanager
def _listening(listener: Callable[[str, int, int], None] | None) -> Iterator[None]:
    subjects.listener = listener
    try:
        yield
    finally:
        subjects.listener = None


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """SIGTERM ends a run as an interrupt does: with its failure recorded."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _bury_dead_runs(running: dg.DagsterInstance) -> None:
    """Mark runs of this host as failed where their process is gone: nobody else watches them."""
    active = dg.RunsFilter(statuses=UNFINISHED, tags={HOST_TAG: socket.gethostname()})
    for past in running.get_runs(active):
        if is_gone(past.run_id, past.tags):
            pid = past.tags.get(PID_TAG)
            running.report_run_failed(past, f"its process {pid} is gone; run it again, what was computed is kept")
