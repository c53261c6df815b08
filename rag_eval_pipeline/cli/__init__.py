"""`rag-eval`: the same services as Dagster's assets, for people and CI jobs. Commands stand in the modules beside this."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from typer.core import TyperGroup

REFUSED, UNDECIDED, USAGE, BUG = 1, 2, 64, 70
"""Exit codes: something of the user's is to be mended; no verdict, or not all is here, yet (`gate`, `mirror`); the command line
is wrong; something of ours is."""

WRONG_USAGE: Any = typer.BadParameter.__base__
"""click's UsageError: of typer's own copy of click, where it has one."""


class Commands(TyperGroup):
    """All commands. A wrong command line exits with 64 (EX_USAGE): 2 would say that a release is not decided."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Of the options before the command."""
        with _usage():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Read the command's own arguments, and run it."""
        with _usage():
            return super().invoke(ctx)


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except WRONG_USAGE as error:
        error.exit_code = USAGE
        raise


app = typer.Typer(
    name="rag-eval",
    cls=Commands,
    help="Evaluate a RAG system stage by stage, and say where each piece of evidence was lost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
WIDEST = 250
"""Columns that a table may take where no terminal limits it."""


class Printer(Console):
    """A console that guesses no width for tables: in a file, a pipe or a CI job they are as wide as what they hold."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's; a table alone is printed whole."""
        if self.is_terminal or not (len(objects) == 1 and isinstance(objects[0], Table)):
            super().print(*objects, **options)
            return
        needed = Measurement.get(self, self.options.update(width=WIDEST), objects[0]).maximum
        guessed, self._width = self._width, max(self.width, needed)
        try:
            super().print(*objects, **options)
        finally:
            self._width = guessed


console = Printer()
errors = Console(stderr=True)

DEBUG = "RAG_EVAL_DEBUG"
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def main() -> None:
    """Run a command; a refusal is a sentence on standard error and exit code 1, not a traceback."""
    from rag_eval_pipeline.cli import (  # noqa: F401 - they register their commands
        choosing,
        comparing,
        corpora,
        experiments,
        exporting,
        gating,
        labelling,
        looking,
        machine,
        repairs,
        runs,
        starting,
        sweeping,
    )  # fmt: skip

    try:
        app()
    except KeyboardInterrupt:
        errors.print("interrupted; what was computed is kept, run the command again to go on")
        sys.exit(130)
    except BrokenPipeError:  # `rag-eval show … | head`: nobody listens any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        sys.exit(_tell(error))


def _tell(error: Exception) -> int:
    """Say what went wrong; what nobody foresaw is told without its message, which may quote a document."""
    from rag_eval_pipeline.engine.limits import EngineError, failure_of

    told = isinstance(error, ValueError | LookupError | OSError | EngineError) and not isinstance(
        error, KeyError | IndexError | UnicodeError
    )
    if told:
        errors.print(f"[bold red]error:[/] {plain(_sentence(error))}", highlight=False, soft_wrap=True)
        return REFUSED
    errors.print(
        f"[bold red]error:[/] a fault of rag-eval itself: {plain(failure_of(error).error)}. Nothing stored is lost. "
        f"{DEBUG}=1 shows the traceback; please report it.",
        highlight=False,
        soft_wrap=True,
    )
    return BUG


def _sentence(error: Exception) -> str:
    """What an error says; of the system's own about a path ("[Errno 21] …"), what is wrong there and what to do."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return (
            f"{error.filename2 or error.filename} can't be read or written ({error.strerror.lower()}); name a file in a folder that is "
            "there and that you may use"
        )
    return str(error)


def plain(value: object) -> str:
    """Text of others as a terminal may show it: no markup of ours, no signs that steer a terminal or turn text around."""
    return escape(_UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), str(value)))
