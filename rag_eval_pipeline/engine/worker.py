"""The inside of a worker process: take an item, call the function, hand back its result. The outside is `pool`.

A worker ends by itself when its parent is gone: the lifeline is a pipe of which only the parent holds the writing end,
and the kernel sends SIGIO, which ends the process, as soon as that end closes. It needs neither a thread nor the
interpreter, so a worker stuck in C ends too. (PR_SET_PDEATHSIG would fire when the *thread* that started it ends.)
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from rag_eval_pipeline.engine.limits import Failure, Limits, failure_of

JOB, ITEM = b"J", b"I"
TOLD_EVERY = 0.25
"""Seconds between two words to the parent that parts were done: short ones need none."""
MB = 1 << 20
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)
"""Workers are the parallelism; libraries with threads of their own would only fight over the cores."""


class _Clock:
    """When the part of an item began that is being worked on, how long the longest one took, and who watches."""

    def __init__(self) -> None:
        self.watcher: Connection | None = None
        self.began = self.told = 0.0
        self.longest = 0.0

    def start(self) -> None:
        self.began = self.told = time.monotonic()
        self.longest = 0.0

    def turn(self) -> None:
        now = time.monotonic()
        self.longest, self.began = max(self.longest, now - self.began), now


_CLOCK = _Clock()


def part_done() -> None:
    """A part of the item is done, such as a page: its time limit begins anew. Outside of a worker nothing happens."""
    _CLOCK.turn()
    if _CLOCK.watcher is not None and _CLOCK.began - _CLOCK.told >= TOLD_EVERY:
        _CLOCK.told = _CLOCK.began
        _CLOCK.watcher.send_bytes(pickle.dumps(("part", None, 0.0)))


def serve(channel: int, lifeline: int) -> None:
    """Answer messages on the file descriptor `channel` until it closes."""
    _end_with_parent(lifeline)
    connection = _CLOCK.watcher = Connection(channel)
    home, one, config = os.getpid(), None, None
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        body = memoryview(message)[1:]
        if message[:1] == JOB:
            answer, one, config = _job(body)
        else:
            answer = _item(one, config, body)
        if os.getpid() != home:  # the function forked, and its child came back here
            os._exit(0)
        connection.send_bytes(answer)


def _end_with_parent(lifeline: int) -> None:
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends its workers
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed before the signal was armed
        os._exit(1)


def _job(body: memoryview) -> tuple[bytes, Callable | None, Any]:
    """Set up for a function and its config: limits, and `prepare(config)` of the function's module where it has one."""
    try:
        limits, one_pickled, config_pickled = pickle.loads(body)  # noqa: S301 - from our own parent
        _backstop(limits)
        one = pickle.loads(one_pickled)  # noqa: S301
        config = pickle.loads(config_pickled)  # noqa: S301
        prepare = getattr(sys.modules.get(one.__module__), "prepare", None)
        if prepare is not None:
            prepare(config)
    except BaseException as error:
        # No document is involved yet, so the whole message may be told.
        return pickle.dumps(("setup", f"{type(error).__name__}: {error}", 0.0)), None, None
    _mute()
    return pickle.dumps(("ready", None, 0.0)), one, config


def _item(one: Callable | None, config: Any, body: memoryview) -> bytes:
    """The result of an item, or why it has none, with the seconds that its longest part took."""
    _CLOCK.start()
    try:
        assert one is not None
        result = one(pickle.loads(body), config)  # noqa: S301
        _CLOCK.turn()
        return pickle.dumps(("ok", result, _CLOCK.longest), protocol=pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        failure: Failure = failure_of(error)
    _CLOCK.turn()
    return pickle.dumps(("failed", failure, _CLOCK.longest))


def _backstop(limits: Limits) -> None:
    """Refuse absurd allocations at once; the parent's watch over resident memory is the limit that is meant.

    Generous, because address space and data also count what is mapped and never touched (thread stacks, arenas).
    """
    import resource

    for kind, size in (
        (getattr(resource, "RLIMIT_DATA", None), 2 * limits.memory_mb * MB + 2048 * MB),
        (getattr(resource, "RLIMIT_AS", None), 4 * limits.memory_mb * MB + 32768 * MB),
        (resource.RLIMIT_CORE, 0),
    ):
        if kind is not None:
            _, hard = resource.getrlimit(kind)
            ceiling = size if hard == resource.RLIM_INFINITY else min(size, hard)
            resource.setrlimit(kind, (ceiling, hard))


def _mute() -> None:
    """Libraries print what they read; a worker has nothing to say but its results."""
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


def run_tool(command: Sequence[str], data: bytes, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run an outside program on `data`, with one thread; it ends with this process, whatever ends it.

    Raises:
        TimeoutError: it ran longer than `seconds`.
        subprocess.CalledProcessError: it failed.
    """
    try:
        return subprocess.run(  # noqa: S603 - the command is the caller's own
            list(command),
            input=data,
            capture_output=True,
            timeout=seconds,
            check=True,
            preexec_fn=_die_with_me,
            env={**os.environ, **ONE_THREAD},
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{command[0]} ran longer than {seconds:g} s") from error


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_me() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
