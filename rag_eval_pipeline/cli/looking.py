"""Commands that look: `waterfall`, `losses`, `fate`, `show`, `sql`, `evaluations`. Text is redacted before it is shown."""

from __future__ import annotations

from typing import Annotated

import polars as pl
import typer
from rich.table import Table as RichTable

from rag_eval_pipeline.cli import app, console
from rag_eval_pipeline.warehouse.home import Home

KeyArgument = Annotated[str, typer.Argument(help="corpus@version or corpus@version#pipeline", show_default=False)]
ROWS = 40


@app.command()
def waterfall(
    keys: Annotated[list[str], typer.Argument(help="one or more keys, shown side by side", show_default=False)],
    retriever: Annotated[str | None, typer.Option(help="default: the served one")] = None,
    k: Annotated[int | None, typer.Option(help="default: evaluate.serve_k")] = None,
) -> None:
    """Where recall was lost, stage by stage, from 1.0 down to what was served."""
    print_waterfalls(Home.find(), keys, retriever, k)


@app.command()
def losses(
    key: KeyArgument,
    retriever: Annotated[str | None, typer.Option(help="default: the served one")] = None,
    k: Annotated[int | None, typer.Option(help="default: evaluate.serve_k")] = None,
) -> None:
    """One row a lost piece of evidence: its query, stage, cause and document."""
    from rag_eval_pipeline.release.reading import Evaluation

    evaluation = Evaluation.latest(Home.find(), key)
    retriever, k = _served(evaluation, retriever, k)
    fate = evaluation.frame("evidence_fate").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & pl.col("eligible") & ~pl.col("served")
    )
    lost = fate.join(
        evaluation.frame("evidence_units").select("query_id", "evidence_id", "doc_id"), on=["query_id", "evidence_id"]
    )
    shown = lost.select("query_id", "evidence_id", "first_loss_stage", "cause", "doc_id", "rank").sort(
        "first_loss_stage", "query_id"
    )
    console.print(_rich(shown, f"{key}: {shown.height} lost units, {retriever} at {k}"))


@app.command()
def fate(key: KeyArgument, query_id: Annotated[str, typer.Argument(help="a query of the measured split")]) -> None:
    """Tell one query's story: the evidence it needs, and what each stage left of it."""
    from rag_eval_pipeline.attribution.story import story
    from rag_eval_pipeline.release.reading import Evaluation

    evaluation = Evaluation.latest(Home.find(), key)
    retriever, k = _served(evaluation, None, None)
    redactor = evaluation.redactor()
    units, ledger, fates = (evaluation.frame(name) for name in ("evidence_units", "evidence_ledger", "evidence_fate"))
    for line in story(query_id, units, ledger, fates, retriever, k):
        console.print(redactor.text(line), markup=False, highlight=False)


@app.command()
def show(
    key: KeyArgument,
    doc_id: Annotated[str, typer.Argument(help="a document of the version")],
    stage: Annotated[str, typer.Option(help="parsed | cleaned | masked: whose text to show")] = "masked",
) -> None:
    """Print what was read from a document, beside where it came from, block by block."""
    from rag_eval_pipeline.release.reading import Evaluation
    from rag_eval_pipeline.release.showing import document_rows

    evaluation = Evaluation.latest(Home.find(), key)
    rows = document_rows(evaluation, doc_id, stage)
    console.print(_rich(rows, f"{doc_id} of {key}, {stage} text", limit=None))


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="a query; without it, an interactive prompt")] = None,
) -> None:
    """Ask the DuckDB file; opened read-only and closed after each question, so it blocks nobody."""
    home = Home.find()
    if not home.database.is_file():
        raise FileNotFoundError(f"{home.database} is not there; `rag-eval run KEY` makes it")
    if query is not None:
        _ask(home, query)
        return
    console.print("SQL on data/rag_eval.duckdb; `SHOW TABLES;` lists tables, an empty line ends.")
    while line := console.input("[bold]sql>[/] ").strip():
        try:
            _ask(home, line)
        except ValueError as error:
            console.print(str(error), style="red", markup=False)


@app.command()
def evaluations() -> None:
    """List what has been evaluated."""
    from rag_eval_pipeline.warehouse.manifests import Manifests

    manifests = Manifests(Home.find().manifests)
    rows = [
        {
            "key": m.key,
            "evaluation_id": m.evaluation_id,
            "started": m.started,
            "status": m.status if m.stopped_at is None else f"{m.status} at {m.stopped_at}",
            "accepted": "yes" if manifests.accepted(m.key.partition("@")[0]) == (m.key, m.evaluation_id) else "",
        }
        for m in manifests.all()
    ]
    console.print(
        _rich(pl.DataFrame(rows), "evaluations") if rows else "no evaluations yet; make one by `rag-eval run KEY`"
    )


def print_waterfalls(home: Home, keys: list[str], retriever: str | None = None, k: int | None = None) -> None:
    """Waterfalls side by side, with bars."""
    from rag_eval_pipeline.release.reading import Evaluation
    from rag_eval_pipeline.release.showing import waterfall_rows

    columns = []
    for key in keys:
        evaluation = Evaluation.latest(home, key)
        chosen, cut = _served(evaluation, retriever, k)
        columns.append((f"{key}\n{chosen} at {cut}", waterfall_rows(evaluation, chosen, cut)))
    table = RichTable(title="Where evidence recall was lost", title_justify="left")
    table.add_column("stage")
    for title, _ in columns:
        table.add_column(title)
    names = list(dict.fromkeys(name for _, rows in columns for name in rows))
    for name in names:
        final = name == "served"
        table.add_row(
            name,
            *(rows.get(name, "not in this pipeline") for _, rows in columns),
            style="bold" if final else None,
            end_section=name == names[-2] if len(names) > 1 else False,
        )
    console.print(table)


def _served(evaluation: object, retriever: str | None, k: int | None) -> tuple[str, int]:
    """The retriever and cut-off that are served, where the caller names none."""
    from rag_eval_pipeline.release.reading import Evaluation

    assert isinstance(evaluation, Evaluation)
    frame = evaluation.frame("loss_waterfall")
    chosen = retriever or evaluation.served
    if chosen not in frame["retriever"].to_list():
        raise LookupError(
            f"no retriever {chosen!r} in this evaluation; it has {frame['retriever'].unique().sort().to_list()}"
        )
    ks = frame["k"].unique().sort().to_list()
    cut = k or evaluation.serve_k
    if cut not in ks:
        if k is not None:
            raise LookupError(f"recall was not measured at {k}; evaluate.k has {ks}")
        cut = ks[-1]
    return chosen, cut


def _ask(home: Home, query: str) -> None:
    import duckdb

    try:
        with duckdb.connect(str(home.database), read_only=True) as con:
            answer = con.sql(query)
            frame = None if answer is None else answer.pl()
    except duckdb.Error as error:
        raise ValueError(f"{error}") from error
    if frame is not None:
        console.print(_rich(frame, "", limit=200))


def _rich(frame: pl.DataFrame, title: str, limit: int | None = ROWS) -> RichTable:
    table = RichTable(title=title or None, title_justify="left")
    for name, dtype in frame.schema.items():
        table.add_column(name, justify="right" if dtype.is_numeric() else "left", overflow="fold")
    shown = frame if limit is None else frame.head(limit)
    for row in shown.iter_rows():
        table.add_row(
            *("" if value is None else f"{value:.4g}" if isinstance(value, float) else _plain(value) for value in row)
        )
    if shown.height < frame.height:
        table.caption = f"{frame.height - shown.height} more rows"
    return table


def _plain(value: object) -> str:
    from rich.markup import escape

    return escape(str(value))
