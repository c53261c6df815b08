"""Which process carries a run, and whether it still lives: host, number and birth of it, as tags of the run."""

import os
import socket
from collections.abc import Mapping

import psutil

HOST_TAG, PID_TAG, BORN_TAG, RUN_TAG = "rag_eval/host", "rag_eval/pid", "rag_eval/process_started", "rag_eval/run"


def tags_of(run_id: str, pid: int | None = None) -> dict[str, str]:
    """Tags that name a process of this host (by default this one) as the carrier of a run."""
    pid = pid or os.getpid()
    return {HOST_TAG: socket.gethostname(), PID_TAG: str(pid), BORN_TAG: born(pid), RUN_TAG: run_id}


def is_gone(run_id: str, tags: Mapping[str, str]) -> bool | None:
    """Whether the run's process has ended; None where that can't be known.

    A run that is started again inherits the tags of the first one, which say nothing of it; and another host's processes
    can't be seen from here.
    """
    if tags.get(RUN_TAG) != run_id or tags.get(HOST_TAG) != socket.gethostname():
        return None
    return born(int(tags.get(PID_TAG, "0"))) != tags.get(BORN_TAG)


def born(pid: int) -> str:
    """When a process started, empty where there is none: a number may be given to another process later."""
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.0f}"
    except psutil.Error:
        return ""
