"""Open a partition's subject once a run, report its progress, and turn its refusals into sentences in the UI."""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.engine.plugins import PluginError
from rag_eval_pipeline.orchestration.jobs import EVALUATE_MULTIPROCESS
from rag_eval_pipeline.orchestration.processes import RUN_TAG, tags_of
from rag_eval_pipeline.stages.subject import FrozenError, NotMaterializedError, Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.store import NotReproducibleError
from rag_eval_pipeline.warehouse.table import TableError

REFUSALS = (
    CorpusError,
    FrozenError,
    NotMaterializedError,
    NotReproducibleError,
    PluginError,
    TableError,
    ValueError,
)
"""Errors whose message tells a user what to do; anything else is a defect and keeps its traceback."""

LOG_EVERY = 10.0
_opened: OrderedDict[tuple[str, str], Subject] = OrderedDict()
listener: Callable[[str, int, int], None] | None = None
"""Set by the command line to draw progress; called with (stage, done, total)."""


def subject_of(context: dg.AssetExecutionContext) -> Subject:
    """The subject of this run's partition; loaded and validated once a run."""
    key = (context.run.run_id, context.partition_key)
    if key not in _opened:
        _name_process(context)
        with refusals():
            _opened[key] = Subject.open(Home.find(), context.partition_key)
        while len(_opened) > 2:
            _opened.popitem(last=False)
    subject = _opened[key]
    subject.progress = _reporter(context)
    return subject


def _name_process(context: dg.AssetExecutionContext) -> None:
    """Say which process carries the run, so that Dagster sees when it is gone; with a process a step, that is their parent."""
    pid = os.getppid() if context.job_name == EVALUATE_MULTIPROCESS.name else os.getpid()
    if context.run.tags.get(RUN_TAG) != context.run.run_id:
        context.instance.add_run_tags(context.run.run_id, tags_of(context.run.run_id, pid))


@contextmanager
def refusals() -> Iterator[None]:
    """Show a refusal as its own sentence, without the traceback that would bury it."""
    try:
        yield
    except REFUSALS as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def _reporter(context: dg.AssetExecutionContext) -> Callable[[str, int, int], None]:
    """Log progress every ten seconds, and tell the listener every time."""
    started = last = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        nonlocal last
        if listener is not None:
            listener(stage, done, total)
        now = time.monotonic()
        if now - last >= LOG_EVERY and total:
            last = now
            rest = (now - started) / max(done, 1) * (total - done)
            context.log.info(f"{stage}: {done} of {total} ({done / total:.0%}), about {rest:.0f} s to go")

    return report
