"""Commands about corpora: `import`, `mirror`, `validate`, `split`, `bump`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_eval_pipeline.cli import REFUSED, UNDECIDED, app, console, plain
from rag_eval_pipeline.cli.runs import KeyArgument
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.corpus.mirror import Mirrored

SHARES = ("dev=0.2", "calibration=0.1", "test=0.7")


@app.command("import")
def import_(
    format: Annotated[str, typer.Argument(help="beir | trec | squad | spans | ragas | langsmith | phoenix")],
    src: Annotated[Path, typer.Argument(help="the set's folder (squad: its file; traces: file or folder)")],
    corpus: Annotated[str, typer.Option(help="name of the corpus")],
    version: Annotated[str, typer.Option(help="name of the version")],
    language: Annotated[str | None, typer.Option(help="of documents and queries")] = None,
    split: Annotated[str | None, typer.Option(help="beir: which qrels/<split>.tsv")] = None,
    query_split: Annotated[str | None, typer.Option(help="dev | calibration | test | monitor")] = None,
    pipeline_preset: Annotated[
        str | None, typer.Option("--preset", help="default | paper (BM25 on whole documents)")
    ] = None,
    corpus_file: Annotated[str | None, typer.Option(help="beir: another layout's documents")] = None,
    queries_file: Annotated[str | None, typer.Option(help="beir: another layout's queries")] = None,
    qrels_file: Annotated[str | None, typer.Option(help="beir: another layout's judgments")] = None,
    documents: Annotated[str | None, typer.Option(help="trec, spans: the documents")] = None,
    topics: Annotated[str | None, typer.Option(help="trec: the topics")] = None,
    qrels: Annotated[str | None, typer.Option(help="trec: the judgments")] = None,
    runs: Annotated[list[str] | None, typer.Option(help="trec: run files")] = None,
    questions: Annotated[str | None, typer.Option(help="spans: the questions")] = None,
    run: Annotated[str | None, typer.Option(help="ragas, langsmith, phoenix: name of the ranking")] = None,
    into: Annotated[
        bool, typer.Option("--into", help="ragas, langsmith, phoenix: beside documents and queries that are there")
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="replace a version (--into: outputs) of that name")] = False,
) -> None:
    """Make a corpus version of a public set (BEIR, TREC, SQuAD, spans) or of what your system did (RAGAS, LangSmith, Phoenix)."""
    from rag_eval_pipeline.corpus.importers import import_corpus, import_into

    if into:
        laid = import_into(format, src, Home.find().corpora, corpus, version, run or "imported", overwrite)
        for warning in laid.warnings:
            console.print(f"[yellow]warning:[/] {plain(warning)}", highlight=False, soft_wrap=True)
        console.print(
            f"{laid.key}: outputs of {laid.n_queries} queries in {', '.join(laid.files)}",
            highlight=False,
            soft_wrap=True,
        )
        console.print(f"next: rag-eval validate {laid.key}, rag-eval run '{laid.key}#{laid.pipeline}'")
        return

    options = {
        "language": language, "split": split, "query_split": query_split, "pipeline_preset": pipeline_preset,
        "corpus_file": corpus_file, "queries_file": queries_file, "qrels_file": qrels_file, "documents": documents,
        "topics": topics, "qrels": qrels, "runs": runs or None, "questions": questions, "overwrite": overwrite or None,
        "run": run,
    }  # fmt: skip
    report = import_corpus(format, src, Home.find().corpora, corpus, version, **options)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {plain(warning)}", highlight=False, soft_wrap=True)
    console.print(
        f"{report.key}: {report.n_documents} documents, {report.n_queries} queries, {report.n_units} labelled pieces"
    )
    console.print(f"next: rag-eval plan {report.key}, rag-eval run {report.key}")


@app.command()
def mirror() -> None:
    """Copy what is new at mirror.sources of automation.yaml into the corpora folder, once: what the sensor does at each tick.

    Exit code: 0 all that is there is here, 1 something is refused or can't be read, 2 something waits (run it again).
    """
    from rag_eval_pipeline.corpus.mirror import mirror as mirrored
    from rag_eval_pipeline.orchestration.automation import FILE, load

    home = Home.find()
    settings = load(home).mirror
    if not settings.sources:
        raise LookupError(
            f"{home.root / FILE} names no mirror.sources: write there from where corpora come (docs/automation.md)"
        )
    passes = []
    for source in settings.sources:
        passed = mirrored(
            home.corpora, source.url, source.resolved(), quiet=settings.quiet, ready=settings.ready, budget=math.inf
        )
        console.print(f"[bold]{plain(source.url)}[/]", highlight=False, soft_wrap=True)
        for line in _passed(passed):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
        passes.append(passed)
    if any(passed.refused for passed in passes):
        raise typer.Exit(REFUSED)
    if any(passed.waits for passed in passes):
        raise typer.Exit(UNDECIDED)


def _passed(passed: Mirrored) -> Iterator[str]:
    """What one pass over a source did, and what is left to do."""
    yield from (f"done: {plain(line)}" for line in passed.changes)
    yield from (f"[yellow]waits:[/] {plain(line)}" for line in passed.waits)
    yield from (f"[red]refused:[/] {plain(line)}" for line in passed.refused)
    yield from (f"next: rag-eval run {key}" for key in passed.placed)
    if not passed.changes and not passed.notes:
        yield "all that is there is here"


@app.command()
def validate(key: KeyArgument) -> None:
    """Name every fault of a version's files before anything runs: file, line, field, found, expected."""
    from rag_eval_pipeline.stages.subject import Subject

    subject = Subject.open(Home.find(), key)
    for warning in subject.version.warnings:
        console.print(f"[yellow]warning:[/] {plain(warning)}", highlight=False, soft_wrap=True)
    gold = subject.version.gold
    console.print(
        f"{subject.key.text} is valid: {subject.version.files.height} documents, {gold.queries.height} queries, "
        f"{gold.evidence.height} pieces of evidence, {gold.qrels.height} judgments; gold files: {', '.join(sorted(gold.present)) or 'none'}"
    )


@app.command()
def split(
    key: KeyArgument,
    share: Annotated[
        list[str] | None, typer.Option(help="split=share, repeatable; default dev=0.2 calibration=0.1 test=0.7")
    ] = None,
    seed: Annotated[int, typer.Option(help="other seed, other split")] = 0,
    write: Annotated[bool, typer.Option("--write", help="write it into queries.jsonl; without it, only count")] = False,
) -> None:
    """Split queries so that no document and no cluster stands on two sides."""
    from rag_eval_pipeline.corpus.splits import make_splits, write_splits
    from rag_eval_pipeline.corpus.version import load_version

    home = Home.find()
    version = load_version(home.corpora, key)
    splits = make_splits(version.gold, _shares(list(share or SHARES)), seed)
    counts = splits["split"].value_counts(sort=True)
    console.print(", ".join(f"{name}: {count}" for name, count in counts.iter_rows()))
    if write:
        for folder in (home.corpora / version.key.corpus / "gold", version.folder / "gold"):
            if (folder / "queries.jsonl").is_file():
                console.print(
                    f"wrote {write_splits(folder / 'queries.jsonl', splits)} splits into {plain(folder / 'queries.jsonl')}"
                )


def _shares(given: list[str]) -> dict[str, float]:
    shares = {}
    for item in given:
        name, _, value = item.partition("=")
        try:
            shares[name] = float(value)
        except ValueError:
            raise ValueError(f"--share {item!r}: write split=share, such as dev=0.2") from None
        if not 0 <= shares[name] <= 1:
            raise ValueError(f"--share {item!r}: a share is between 0 and 1")
    return shares


@app.command()
def bump(key: KeyArgument, new: Annotated[str, typer.Argument(help="name of the new version")]) -> None:
    """Copy a version's folder to a new version: where edits of documents belong once a key has run."""
    from rag_eval_pipeline.corpus.versions import bump_version

    made = bump_version(Home.find().corpora, Key.parse(key), new)
    console.print(f"made {made.subject}; edit its documents, then: rag-eval run {made.subject}")
