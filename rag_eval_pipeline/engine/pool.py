"""Map a function over items in worker processes that may crash, hang or eat all memory without taking the run along.

Belongs here: starting, feeding, watching, killing and replacing workers. Not here: what is computed, how results are
remembered (`warehouse`), what a failed item's row looks like (each room's `failed`).

Workers are fresh interpreters started by `subprocess`, not by `multiprocessing`: nothing is forked from a parent that
has threads or torch loaded, and the parent's `__main__` is never imported, so a script without `if __name__` works too.
POSIX only.

One item runs at a time in a worker. Small, fast items are sent ahead (up to `AHEAD` of them), so that a worker never
waits for the parent; limits stay those of one item. Idle workers are kept for the next call in the same environment.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import psutil

from rag_eval_pipeline.engine.limits import EngineError, Failure, Limits, failure_of
from rag_eval_pipeline.engine.worker import ITEM, JOB, MB, ONE_THREAD, TOLD_EVERY

Results = Generator[tuple[int, "dict | Failure"], None, None]

__all__ = ["EngineError", "Failure", "Limits", "map_items"]

POLL = 0.05
"""Seconds between two looks at a worker's clock and memory."""
CHILDREN_EVERY = 0.25
"""Seconds between two looks at the memory of a worker's children: listing processes is not free."""
START_SECONDS = 600.0
"""How long a worker may take to import the function and load its models."""
AHEAD, AHEAD_BYTES, AHEAD_SECONDS = 64, 64 * 1024, 0.02
"""Items sent ahead: how many, together how large (less than a socket holds, so that sending never blocks), how long."""
PARTS = 20
"""How many times its limit an item may take in all that tells when its parts are done (`worker.part_done`)."""
KEEP_MB = 512
"""An idle worker larger than this is ended instead of kept."""

BOOT = (
    "import sys,json; sys.path[:]=json.loads(sys.argv[1]); "
    "from rag_eval_pipeline.engine.worker import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)


def map_items(
    one: Callable[[dict, Any], dict],
    items: Iterable[dict],
    config: Any,
    *,
    limits: Limits,
    workers: int,
    on_done: Callable[[int], None] | None = None,
) -> Results:
    """Yield (position, `one(item, config)` or why it failed) for every item, in the order in which they finish.

    `items` is consumed as workers become free, so it may be an endless generator of large things. Where the module of
    `one` has a function `prepare(config)`, each worker calls it before its first item, outside of the time limit: the
    place to load models. An item that crashes or runs out of memory in a used worker is tried once more in a fresh one,
    so that its fate does not depend on what ran before it.

    Args:
        one: function of an importable module.
        items: what to map; each is pickled.
        config: second argument of every call.
        limits: bounds for each item.
        workers: processes; 0 runs in this process, without limits.
        on_done: called with the number of finished items after each.

    Raises:
        EngineError: `one` or `config` cannot be had in a worker, or `prepare` failed.
    """
    source = _here(one, items, config) if workers <= 0 else _Mapping(one, items, config, limits, workers).run()
    try:
        for done, result in enumerate(source, start=1):
            if on_done is not None:
                on_done(done)
            yield result
    finally:
        source.close()


def _here(one: Callable[[dict, Any], dict], items: Iterable[dict], config: Any) -> Results:
    prepare = getattr(sys.modules.get(one.__module__), "prepare", None)
    for index, item in enumerate(items):
        if prepare is not None and index == 0:
            prepare(config)
        try:
            yield index, one(item, config)
        except Exception as error:
            yield index, failure_of(error)


class _Worker:
    """One process and what it is busy with."""

    def __init__(self, environment: str) -> None:
        self.environment = environment
        ours, theirs = Pipe(duplex=True)
        read, self.lifeline = os.pipe()
        path = json.loads(environment)["path"]
        command = [sys.executable, "-c", BOOT, json.dumps(path), str(theirs.fileno()), str(read)]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                command,
                pass_fds=(theirs.fileno(), read),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **ONE_THREAD},
            )
        finally:
            os.close(read)
            theirs.close()
        self.connection = ours
        self.ready = False
        self.used = 0
        self.queue: deque[tuple[int, bytes]] = deque()
        """Items sent and not answered; the first one is running."""
        self.queued = 0
        """Their size together."""
        self.since = self.began = time.monotonic()
        """When the running item's part began, and the item."""
        self.looked = 0.0
        self.pace = AHEAD_SECONDS

    def prepare(self, job: bytes) -> None:
        self.ready, self.pace, self.since = False, AHEAD_SECONDS, time.monotonic()
        self.connection.send_bytes(job)

    def has_room(self, size: int) -> bool:
        """An idle worker takes anything; a busy one takes small items ahead while they are quick."""
        if not self.queue:
            return True
        ahead = min(AHEAD, AHEAD_SECONDS / max(self.pace, 1e-6))
        return len(self.queue) < ahead and self.queued + size <= AHEAD_BYTES

    def send(self, index: int, payload: bytes) -> None:
        if not self.queue:
            self.since = self.began = time.monotonic()
        self.queue.append((index, payload))
        self.queued += len(payload)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died: found when its end is read
            self.connection.send_bytes(ITEM + payload)

    def over(self, limits: Limits) -> Failure | None:
        """Which limit the running item broke, if any."""
        now = time.monotonic()
        if now - self.since > limits.seconds + TOLD_EVERY:
            return Failure("timeout", _too_long(limits.seconds))
        if now - self.began > PARTS * limits.seconds:
            return Failure("timeout", _too_long(PARTS * limits.seconds))
        with_children = now - max(self.looked, self.began) > CHILDREN_EVERY
        if with_children:
            self.looked = now
        if self.memory(with_children) > limits.memory_mb * MB:
            return Failure("out_of_memory", f"used more than {limits.memory_mb} MiB")
        return None

    def memory(self, with_children: bool = False) -> int:
        """Resident bytes; 0 if it is gone."""
        total = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.process.pid)
            total = process.memory_info().rss
            for child in process.children(recursive=True) if with_children else ():
                with contextlib.suppress(psutil.Error):
                    total += child.memory_info().rss
        return total

    def kill(self) -> None:
        """End it and whatever it started (it leads its own process group)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()
        with contextlib.suppress(OSError):
            os.close(self.lifeline)
        self.lifeline = -1

    def death(self) -> Failure:
        """How it ended by itself."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it closed the channel and lives on
            return Failure("crashed", "closed its channel")
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (from outside; the kernel does it when memory runs out)" if -code == signal.SIGKILL else ""
            return Failure("crashed", f"killed by {name}{hint}")
        return Failure("crashed", f"the process ended with exit code {code}")


class _Mapping:
    """One call of `map_items`."""

    def __init__(self, one: Callable, items: Iterable[dict], config: Any, limits: Limits, workers: int) -> None:
        self.limits, self.limit = limits, workers
        self.items = enumerate(items)
        self.back: deque[tuple[int, bytes]] = deque()
        """Items that a lost worker had not started: first in line."""
        self.again: deque[tuple[int, bytes]] = deque()
        """Items that get a second try, in a fresh worker."""
        self.ahead: tuple[int, bytes] | None = None
        self.exhausted = False
        self.workers: list[_Worker] = []
        self.environment = _environment()
        self.results: deque[tuple[int, dict | Failure]] = deque()
        self.job = JOB + _pickled_job(one, config, limits)

    def run(self) -> Results:
        try:
            while True:
                self._feed()
                while self.results:
                    yield self.results.popleft()
                if self._peek() is None and not (self.again or self.results or any(w.queue for w in self.workers)):
                    return
                self._listen()
        finally:
            for worker in self.workers:
                if worker.queue or not worker.ready or not _keep(worker):
                    worker.kill()

    def _peek(self) -> tuple[int, bytes] | None:
        if self.back:
            return self.back[0]
        while self.ahead is None and not self.exhausted:
            index, item = next(self.items, (-1, None))
            if item is None:
                self.exhausted = True
                return None
            try:
                self.ahead = (index, pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL))
            except Exception as error:
                self.results.append((index, failure_of(error)))
        return self.ahead

    def _take(self) -> tuple[int, bytes]:
        if self.back:
            return self.back.popleft()
        assert self.ahead is not None
        item, self.ahead = self.ahead, None
        return item

    def _feed(self) -> None:
        """Give every free worker something to do, second tries to fresh ones, and start workers while items wait."""
        for worker in self.workers:
            if worker.ready and not worker.used and not worker.queue and self.again:
                worker.send(*self.again.popleft())
        # The emptiest worker first, so that items spread before they pile up.
        while (head := self._peek()) is not None:
            free = [worker for worker in self.workers if worker.ready and worker.has_room(len(head[1]))]
            if not free:
                break
            min(free, key=lambda worker: len(worker.queue)).send(*self._take())
        busy_or_starting = sum(1 for worker in self.workers if worker.queue or not worker.ready)
        fresh = sum(1 for worker in self.workers if not worker.used and not worker.queue)
        if self.again and not fresh:
            self._make_room()
            self._start(fresh=True)
        elif head is not None and len(self.workers) < self.limit and busy_or_starting == len(self.workers):
            self._start()

    def _make_room(self) -> None:
        """A fresh worker takes the place of an idle used one where all places are taken."""
        if len(self.workers) >= self.limit:
            for worker in self.workers:
                if worker.ready and not worker.queue:
                    self.workers.remove(worker)
                    worker.kill()
                    return

    def _start(self, fresh: bool = False) -> None:
        if len(self.workers) >= self.limit:
            return  # all are busy: one will be idle or lost soon
        worker = (None if fresh else _idle(self.environment)) or _Worker(self.environment)
        self.workers.append(worker)
        worker.prepare(self.job)

    def _listen(self) -> None:
        """Wait for results; then look after the clock and memory of those that have none yet."""
        by_connection = {worker.connection: worker for worker in self.workers}
        ready = wait(list(by_connection), timeout=POLL)
        for connection in ready:
            self._read(by_connection[connection])  # type: ignore[index]
        for worker in [worker for worker in self.workers if worker.connection not in ready]:
            if not worker.ready:
                if time.monotonic() - worker.since > START_SECONDS:
                    raise EngineError(f"a worker was not ready after {START_SECONDS:g} s; see the stage's `prepare`")
            elif worker.queue and (failure := worker.over(self.limits)):
                # Its result may have come in while we looked: a finished item is not a failed one.
                if worker.connection.poll():
                    self._read(worker)
                else:
                    self._lose(worker, failure)

    def _read(self, worker: _Worker) -> None:
        """Take all answers that are there."""
        try:
            while True:
                self._answer(worker, *pickle.loads(worker.connection.recv_bytes()))  # noqa: S301 - from our own worker
                if worker not in self.workers or not worker.connection.poll():
                    return
        except (EOFError, OSError, pickle.UnpicklingError):
            self._lose(worker, worker.death())

    def _answer(self, worker: _Worker, kind: str, value: Any, seconds: float) -> None:
        if kind == "setup":
            raise EngineError(f"a worker could not be set up: {value}")
        if kind == "ready":
            worker.ready = True
            return
        if kind == "part":
            worker.since = time.monotonic()
            return
        index, payload = worker.queue.popleft()
        worker.queued -= len(payload)
        worker.pace = 0.7 * worker.pace + 0.3 * seconds
        worker.since = worker.began = time.monotonic()
        if kind == "failed" and value.status == "out_of_memory":  # what it holds by now may be why
            worker.queue.appendleft((index, payload))
            self._lose(worker, value)
            return
        worker.used += 1
        if seconds > self.limits.seconds:  # nobody looked while it ran: the caller was busy with earlier results
            self.results.append((index, Failure("timeout", _too_long(self.limits.seconds))))
        else:
            self.results.append((index, value))

    def _lose(self, worker: _Worker, failure: Failure) -> None:
        """End a worker; its running item failed or gets a second try, those behind it go back."""
        self.workers.remove(worker)
        queue = list(worker.queue)
        worker.queue.clear()
        worker.kill()
        if not worker.ready:
            raise EngineError(f"a worker ended before it was ready ({failure.error}); its message is on stderr")
        if not queue:
            return
        (index, payload), *rest = queue
        if worker.used and failure.status != "timeout":
            self.again.append((index, payload))
        else:
            self.results.append((index, failure))
        self.back.extendleft(reversed(rest))


def _too_long(seconds: float) -> str:
    return f"took longer than {seconds:g} s: raise the limit `seconds`, or split the document"


def _pickled_job(one: Callable, config: Any, limits: Limits) -> bytes:
    if getattr(one, "__module__", None) == "__main__" or "<" in getattr(one, "__qualname__", "<"):
        raise EngineError(f"{one!r} cannot be imported in a worker: define it at the top level of a module")
    try:
        return pickle.dumps((limits, pickle.dumps(one), pickle.dumps(config)))
    except Exception as error:
        raise EngineError(f"{one!r} or its config cannot be sent to a worker: {error}") from error


_IDLE: list[_Worker] = []
_LOCK = threading.Lock()


def _environment() -> str:
    """What a worker takes over at its start: only workers of an equal environment are used again."""
    path = [str(Path(entry).absolute()) if entry else str(Path.cwd()) for entry in sys.path]
    # pytest renames one variable for every test, and no worker needs it.
    variables = sorted((name, value) for name, value in os.environ.items() if not name.startswith("PYTEST_"))
    return json.dumps({"path": path, "cwd": str(Path.cwd()), "env": variables})


def _idle(environment: str) -> _Worker | None:
    with _LOCK:
        for worker in reversed(_IDLE):
            if worker.environment == environment:
                _IDLE.remove(worker)
                break
        else:
            return None
    if worker.process.poll() is None:
        return worker
    worker.kill()
    return None


def _keep(worker: _Worker) -> bool:
    """Keep an idle worker for the next call, unless it is large or there are enough."""
    if not 0 < worker.memory() <= KEEP_MB * MB:
        return False
    with _LOCK:
        _IDLE.append(worker)
        spare = _IDLE.pop(0) if len(_IDLE) > 2 * (os.cpu_count() or 1) else None
    if spare is not None:
        spare.kill()
    return True


def _end_idle() -> None:
    with _LOCK:
        workers, _IDLE[:] = list(_IDLE), []
    for worker in workers:
        worker.kill()


def _forget_idle() -> None:
    """In a forked child: the idle workers are the parent's."""
    global _LOCK
    _LOCK = threading.Lock()
    for worker in _IDLE:
        os.close(worker.lifeline)  # else they would outlive the parent as long as this child lives
        worker.connection.close()
    _IDLE.clear()


atexit.register(_end_idle)
os.register_at_fork(after_in_child=_forget_idle)
