"""Commands that run: `run`, `demo`, `register`, `accept`, `prune`, `plan`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rag_eval_pipeline.cli import app, console, errors, plain
from rag_eval_pipeline.cli.looking import print_waterfalls
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.orchestration.running import RunReport

KeyArgument = Annotated[str, typer.Argument(help="corpus@version or corpus@version#pipeline", show_default=False)]
DEMO_CORPUS = "nimbara"


@app.command()
def run(
    key: KeyArgument,
    limit: Annotated[int | None, typer.Option(help="Make and run <version>.limit<N> with N documents.", min=1)] = None,
) -> None:
    """Evaluate a corpus version: every stage, every measure, the ledger; ends with the waterfall.

    Exit code 1 where it stopped, or where its release gate fails; report and database are there in the latter case.
    """
    from rag_eval_pipeline.corpus.keys import Key
    from rag_eval_pipeline.corpus.versions import limit_version

    home = Home.find()
    parsed = Key.parse(key)
    if limit is not None:
        parsed = limit_version(home.corpora, parsed, limit)
        console.print(f"made {parsed.subject} with {limit} documents")
    done = _run(home, parsed.text)
    if not done.success and not done.gated:
        raise typer.Exit(1)
    print_waterfalls(home, [parsed.text])
    console.print(f"report: {_report_of(home, parsed.text)}")
    if done.gated:
        _tell_gate(done)
        raise typer.Exit(1)


@app.command()
def demo() -> None:
    """Evaluate the shipped versions of the demo corpus and show their waterfalls side by side."""
    from rag_eval_pipeline.corpus.layout import list_versions

    home = Home.find()
    keys = [f"{DEMO_CORPUS}@{version}" for version in list_versions(home.corpora, DEMO_CORPUS)]
    keys = [key for key in keys if ".limit" not in key]
    if not keys:
        raise FileNotFoundError(f"the demo corpus is not below {home.corpora}; run `make demo` in the project's folder")
    done: list[RunReport] = []
    for key in keys:
        done.append(_run(home, key))
        if not done[-1].success and not done[-1].gated:
            raise typer.Exit(1)
    print_waterfalls(home, keys)
    for each in done:
        if each.gated:  # the demo's second version is there to be refused
            _tell_gate(each)
    console.print("\n[bold]Look further[/]")
    console.print(f"  database   {home.database}   (`rag-eval sql`, or any DuckDB ≥ 1.5)")
    for key in keys:
        console.print(f"  report     {_report_of(home, key)}")
    console.print(f"  one query  rag-eval fate {keys[-1]} QUERY_ID      losses by query: rag-eval losses {keys[-1]}")
    console.print("  UI         make ui   → http://localhost:3000 (Dagster: assets, checks, runs)")


@app.command()
def plan(key: KeyArgument) -> None:
    """Say what a run would do, before it does it: documents by kind, queries, minutes, disk."""
    from rag_eval_pipeline.release.plan import plan_table
    from rag_eval_pipeline.stages.subject import Subject

    console.print(plan_table(Subject.open(Home.find(), key)))


@app.command()
def register(key: KeyArgument) -> None:
    """Validate a version and add it to Dagster's partitions."""
    from rag_eval_pipeline.orchestration import running
    from rag_eval_pipeline.stages.subject import Subject

    home = Home.find()
    subject = Subject.open(home, key)
    running.register(home, subject.key.text)
    console.print(
        f"registered {subject.key.text}: dagster asset materialize --partition '{subject.key.text}' knows it now"
    )


@app.command()
def accept(key: KeyArgument, evaluation_id: Annotated[str, typer.Argument(help="or a unique beginning of it")]) -> None:
    """Mark an evaluation as its corpus's accepted baseline."""
    from rag_eval_pipeline.release.publish import publish
    from rag_eval_pipeline.warehouse.manifests import Manifests

    home = Home.find()
    manifests = Manifests(home.manifests)
    manifest = manifests.find(key, evaluation_id)
    if manifest is None:
        known = ", ".join(m.evaluation_id for m in manifests.of(key)) or "none"
        raise LookupError(f"{key} has no single evaluation that starts with {evaluation_id!r}; it has: {known}")
    if manifest.status != "complete":
        raise ValueError(
            f"evaluation {manifest.evaluation_id} failed at {manifest.stopped_at}; only a complete one is a baseline"
        )
    manifests.accept(key, manifest.evaluation_id)
    publish(home)
    console.print(f"accepted {key} {manifest.evaluation_id} as the baseline of its corpus")


@app.command()
def prune(
    really: Annotated[bool, typer.Option("--yes", help="Remove; without it, only say what would be removed.")] = False,
) -> None:
    """Remove stored files that no evaluation names, and what killed runs left behind."""
    from rag_eval_pipeline.warehouse.pruning import removable

    home = Home.find()
    files = removable(home)
    size = sum(file.stat().st_size for file in files)
    if really:
        for file in files:
            file.unlink(missing_ok=True)
    verb = "removed" if really else "would remove (say --yes)"
    console.print(f"{verb} {len(files)} files, {size / 1e6:.1f} MB")


def _report_of(home: Home, key: str) -> str:
    from rag_eval_pipeline.release.reading import Evaluation

    return str(home.reports / key / f"{Evaluation.latest(home, key).manifest.evaluation_id}.html")


def _tell_gate(done: RunReport) -> None:
    """A release that is refused: said last, since everything else is there."""
    errors.print(f"[bold red]{plain(done.key)} is evaluated, and its release gate fails[/]")
    for error in done.errors:
        errors.print(plain(error), highlight=False, soft_wrap=True)


def _run(home: Home, key: str) -> RunReport:
    """Run with a bar a stage; tells what went wrong in sentences."""
    from rag_eval_pipeline.orchestration import running

    started = time.monotonic()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task(f"[bold]{key}[/]", total=None)
        tasks = {}

        def listen(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(f"  {stage}", total=total)
            progress.update(tasks[stage], completed=done, total=total)

        report = running.run(home, key, listen)
        progress.update(whole, total=1, completed=1)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {plain(warning)}", highlight=False, soft_wrap=True)
    if report.success or report.gated:
        console.print(f"{key}: evaluated in {time.monotonic() - started:.0f} s")
        return report
    errors.print(f"[bold red]{key} stopped at {report.stopped_at}[/]")
    for error in report.errors:
        errors.print(plain(error), highlight=False, soft_wrap=True)
    return report
