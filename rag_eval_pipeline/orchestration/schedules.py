"""The nightly schedule: the newest version of every corpus, in full."""

from collections.abc import Iterator

import dagster as dg

from rag_eval_pipeline.corpus.layout import list_corpora, list_versions
from rag_eval_pipeline.orchestration.jobs import EVALUATE
from rag_eval_pipeline.orchestration.partitions import SUBJECTS
from rag_eval_pipeline.warehouse.home import Home


@dg.schedule(
    job=EVALUATE,
    cron_schedule="0 2 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every night at two: the newest registered version of every corpus. What did not change is not computed again.",
)
def nightly(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Request one run a corpus."""
    home = Home.find()
    registered = set(context.instance.get_dynamic_partitions(SUBJECTS.name or ""))
    day = context.scheduled_execution_time.date().isoformat()
    for corpus in list_corpora(home.corpora):
        keys = [f"{corpus}@{version}" for version in list_versions(home.corpora, corpus)]
        known = [key for key in keys if key in registered]
        if known:
            yield dg.RunRequest(run_key=f"nightly:{known[-1]}:{day}", partition_key=known[-1])
