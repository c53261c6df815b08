"""`rag-eval`: the same services as Dagster's assets, for people and CI jobs. Commands stand in the modules beside this."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

app = typer.Typer(
    name="rag-eval",
    help="Evaluate a RAG system stage by stage, and say where each piece of evidence was lost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console()
errors = Console(stderr=True)


def main() -> None:
    """Run a command; a refusal is a sentence on standard error and exit code 1, not a traceback."""
    from rag_eval_pipeline.cli import corpora, looking, runs  # noqa: F401 - they register their commands

    try:
        app()
    except KeyboardInterrupt:
        errors.print("interrupted; what was computed is kept, run the command again to go on")
        sys.exit(130)
    except (ValueError, LookupError, FileExistsError, FileNotFoundError) as error:
        if isinstance(error, KeyError):
            raise
        errors.print(f"[bold red]error:[/] {_escaped(error)}", highlight=False)
        sys.exit(1)


def _escaped(error: Exception) -> str:
    from rich.markup import escape

    return escape(str(error))
