"""The nightly schedule: the newest version of every corpus, in full."""

import re
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
        versions = sorted(list_versions(home.corpora, corpus), key=_natural)
        keys = [f"{corpus}@{version}" for version in versions if ".limit" not in version]
        known = [key for key in keys if key in registered]
        if known:
            yield dg.RunRequest(run_key=f"nightly:{known[-1]}:{day}", partition_key=known[-1])


def _natural(version: str) -> list[tuple[int, str]]:
    """The order of versions as people name them: v9 before v10, 2026-09 before 2026-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", version)]
