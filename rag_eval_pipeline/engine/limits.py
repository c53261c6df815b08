"""What one document may cost, and how its failure is told.

Belongs here: limits, the failure of one item, and how an exception becomes a message without document content. How
limits are enforced belongs in `pool`.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """Bounds for one item.

    Attributes:
        seconds: wall time from the moment a worker takes the item until it hands on the result; of an item that tells when
            a part is done (a page), that of each part, and twenty times as much in all.
        memory_mb: resident memory of the worker process and its children, in MiB.
    """

    seconds: float = 60.0
    memory_mb: int = 2048

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.memory_mb <= 0:
            raise ValueError(f"limits are positive, found seconds={self.seconds}, memory_mb={self.memory_mb}")


@dataclass(frozen=True)
class Failure:
    """Why an item has no result.

    Attributes:
        status: timeout | out_of_memory | crashed | error, or the status of a `Refusal`.
        error: what happened, without document content.
    """

    status: str
    error: str


class Refusal(Exception):  # noqa: N818 - the item is refused, nothing went wrong
    """An item that a stage refuses on purpose: `encrypted`, `too_large`… Its message holds no document content."""

    def __init__(self, status: str, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(status, message)  # both, so that it survives pickling


class EngineError(RuntimeError):
    """The engine itself could not work (a worker does not start, a function cannot be imported)."""


def failure_of(error: BaseException) -> Failure:
    """Tell an exception without its message, which may quote the document: class, and the line that raised it."""
    if isinstance(error, Refusal):
        return Failure(error.status, error.message)
    if isinstance(error, MemoryError):
        return Failure("out_of_memory", "MemoryError: raise the stage's memory_mb, or leave the document out")
    detail = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = f" at {Path(frame.f_code.co_filename).name}:{line}"
    return Failure("error", f"{type(error).__name__}{detail}{place}")
