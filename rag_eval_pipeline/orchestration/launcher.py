"""Dagster's default launcher, which also sees that a run's process is gone: named in dagster.yaml.

The default one can't tell, so that a run whose machine was switched off would stay `started` for ever, and keep its place in
the queue. With it, Dagster's run monitoring marks such a run as failed, and its retries start it again.
"""

import time

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus

from rag_eval_pipeline.orchestration.processes import RUN_TAG, is_gone

SETTLE_SECONDS = 120
"""A run that started so lately may not have said yet which process carries it."""


class Launcher(dg.DefaultRunLauncher):
    """Launches runs in processes of the code server, and looks after them."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """It does."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the process of a started run lives."""
        gone = is_gone(run.run_id, run.tags)
        if gone:
            return CheckRunHealthResult(WorkerStatus.FAILED, "its process is gone")
        if gone is None and run.tags.get(RUN_TAG) != run.run_id and self._is_settled(run.run_id):
            return CheckRunHealthResult(WorkerStatus.UNKNOWN, "it never said which process carries it")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _is_settled(self, run_id: str) -> bool:
        record = self._instance.get_run_record_by_id(run_id)
        return record is not None and record.start_time is not None and time.time() - record.start_time > SETTLE_SECONDS
