"""Commands that look: `waterfall`, `losses`, `fate`, `report`, `show`, `sql`, `evaluations`. They show redacted text only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.table import Table as RichTable
from rich.text import Text

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.warehouse.home import Home

KeyArgument = Annotated[str, typer.Argument(help="corpus@version or corpus@version#pipeline", show_default=False)]
ROWS = 40
UNLABELLED = "no query of the evaluated split has labelled evidence"


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
    limit: Annotated[int | None, typer.Option(help="rows to show; default: all")] = None,
) -> None:
    """One row a lost piece of evidence: its query, stage, cause and document."""
    from rag_eval_pipeline.attribution.order import STAGES
    from rag_eval_pipeline.release.reading import Evaluation

    evaluation = Evaluation.latest(Home.find(), key)
    retriever, k = served_cut(evaluation, retriever, k)
    fate = evaluation.frame("evidence_fate").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & pl.col("eligible") & ~pl.col("served")
    )
    lost = fate.join(
        evaluation.frame("evidence_units").select("query_id", "evidence_id", "doc_id"), on=["query_id", "evidence_id"]
    )
    shown = lost.select("query_id", "evidence_id", "first_loss_stage", "cause", "doc_id", "rank").sort(
        pl.col("first_loss_stage").cast(pl.Enum(STAGES)), "query_id", "evidence_id"
    )
    console.print(show_table(shown, f"{key}: {shown.height} lost units, {retriever} at {k}", limit=limit))


@app.command()
def fate(
    key: KeyArgument,
    query_id: Annotated[str, typer.Argument(help="a query of the measured split")],
    retriever: Annotated[str | None, typer.Option(help="default: the served one")] = None,
    k: Annotated[int | None, typer.Option(help="default: evaluate.serve_k")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as one JSON object, for other programs")] = False,
) -> None:
    """Tell one query's story: the evidence it needs, what each stage left of it, and where it stood in each list."""
    from rag_eval_pipeline.release.reading import Evaluation
    from rag_eval_pipeline.release.showing import story_lines
    from rag_eval_pipeline.release.stories import Stories, story_json

    evaluation = Evaluation.latest(Home.find(), key)
    page = Stories(evaluation, *served_cut(evaluation, retriever, k)).of(query_id)
    if as_json:
        print(story_json(page, evaluation))
        return
    for line in story_lines(page, evaluation.redactor):
        text = Text()
        for words, style in line:
            text.append(Text.from_markup(plain(words)).plain, style=style)
        console.print(text, highlight=False, soft_wrap=False)


@app.command()
def report(
    key: KeyArgument,
    form: Annotated[str, typer.Option("--format", help="html: the page; md: short, for a pull request")] = "html",
    out: Annotated[Path | None, typer.Option(help="file; default: below reports/ (html), the terminal (md)")] = None,
    evaluation_id: Annotated[str | None, typer.Option("--evaluation", help="default: the newest complete one")] = None,
) -> None:
    """Write the report of an evaluation: one HTML file that opens offline, or Markdown for a pull request's comment."""
    from rag_eval_pipeline.release.comment import markdown_report
    from rag_eval_pipeline.release.reading import Evaluation
    from rag_eval_pipeline.release.report import write_report, write_text

    if form not in {"html", "md"}:
        raise ValueError(f"unknown format {form!r}; choose html or md")
    home = Home.find()
    evaluation = Evaluation.of(home, key, evaluation_id) if evaluation_id else Evaluation.latest(home, key)
    if form == "html":
        console.print(f"report: {plain(write_report(evaluation, out))}", highlight=False, soft_wrap=True)
    elif out is None:
        print(markdown_report(evaluation), end="")
    else:
        write_text(out, markdown_report(evaluation))
        console.print(f"report: {plain(out)}", highlight=False, soft_wrap=True)


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
    console.print(show_table(rows, f"{doc_id} of {key}, {stage} text", limit=None))


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
    console.print(
        "SQL on data/rag_eval.duckdb; `SHOW TABLES;` lists tables, a `;` ends a question, an empty line the session."
    )
    while question := _question():
        try:
            _ask(home, question)
        except ValueError as error:
            console.print(plain(error), style="red")


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
        show_table(pl.DataFrame(rows), "evaluations") if rows else "no evaluations yet; make one by `rag-eval run KEY`"
    )


def print_waterfalls(home: Home, keys: list[str], retriever: str | None = None, k: int | None = None) -> None:
    """Waterfalls side by side, with bars."""
    from rag_eval_pipeline.release.reading import Evaluation
    from rag_eval_pipeline.release.showing import waterfall_rows

    columns = []
    for key in keys:
        evaluation = Evaluation.latest(home, key)
        if evaluation.frame("loss_waterfall").is_empty():
            console.print(f"{plain(key)}: no waterfall, since {UNLABELLED}")
            continue
        chosen, cut = served_cut(evaluation, retriever, k)
        columns.append((f"{key}\n{chosen} at {cut}", waterfall_rows(evaluation, chosen, cut)))
    if not columns:
        return
    table = RichTable(title="Where evidence recall was lost", title_justify="left")
    table.add_column("stage")
    for title, _ in columns:
        table.add_column(plain(title))
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


def served_cut(evaluation: object, retriever: str | None, k: int | None) -> tuple[str, int]:
    """The retriever and cut-off that are served, where the caller names none."""
    from rag_eval_pipeline.release.reading import Evaluation

    assert isinstance(evaluation, Evaluation)
    frame = evaluation.frame("loss_waterfall")
    chosen = evaluation.served if retriever is None else retriever
    if frame.is_empty():
        raise LookupError(f"nothing can be told lost, since {UNLABELLED}")
    if chosen not in frame["retriever"].to_list():
        raise LookupError(
            f"no retriever {chosen!r} in this evaluation; it has {frame['retriever'].unique().sort().to_list()}"
        )
    ks = frame["k"].unique().sort().to_list()
    cut = evaluation.serve_k if k is None else k
    if cut not in ks:
        if k is not None:
            raise LookupError(f"recall was not measured at {k}; evaluate.k has {ks}")
        cut = ks[-1]
    return chosen, cut


def _question() -> str:
    """Lines up to one that ends with `;`, or to an empty one; empty where the session ends."""
    lines: list[str] = []
    while line := _line("sql> " if not lines else "...> "):
        lines.append(line)
        if line.endswith(";"):
            break
    return "\n".join(lines)


def _line(prompt: str) -> str:
    import readline  # noqa: F401 - gives the prompt its history

    try:
        return console.input(f"[bold]{prompt}[/]").rstrip()
    except EOFError:
        return ""


SQL_ROWS = 200
SEALED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}
"""A question sees the database and nothing else: no files, no network, no variables of this program."""


def _ask(home: Home, query: str) -> None:
    """Print at most `SQL_ROWS` rows, and read no more: an answer may have more rows than memory holds."""
    import duckdb

    try:
        with duckdb.connect(str(home.database), read_only=True, config=SEALED) as con:
            answer = con.sql(query)
            if answer is None:
                return
            names, types = list(answer.columns), [str(kind) for kind in answer.types]
            rows = answer.limit(SQL_ROWS + 1).fetchall()
    except duckdb.Error as error:
        raise ValueError(f"{error}") from error
    table = RichTable()
    for name, kind in zip(names, types, strict=True):
        table.add_column(
            plain(name), justify="right" if kind in _NUMBERS or "DECIMAL" in kind else "left", overflow="fold"
        )
    for row in rows[:SQL_ROWS]:
        table.add_row(*(_shown(value) for value in row))
    console.print(table)
    if len(rows) > SQL_ROWS:
        console.print(f"the first {SQL_ROWS} rows; say LIMIT and OFFSET for others")


_NUMBERS = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "HUGEINT",
    "FLOAT",
    "DOUBLE",
}


def show_table(frame: pl.DataFrame, title: str, limit: int | None = ROWS) -> RichTable:
    """A frame as a table for the terminal; at most `limit` rows, and a line that says how many are not shown."""
    table = RichTable(title=plain(title) or None, title_justify="left")
    for name, dtype in frame.schema.items():
        table.add_column(plain(name), justify="right" if dtype.is_numeric() else "left", overflow="fold")
    shown = frame if limit is None else frame.head(limit)
    for row in shown.iter_rows():
        table.add_row(*(_shown(value) for value in row))
    if shown.height < frame.height:
        table.caption = f"{frame.height - shown.height} more rows"
    return table


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else plain(value)
