"""Commands for analysts: `export`, an evaluation in the formats of other tools, and `tables`, the data dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.cli.looking import KeyArgument
from rag_eval_pipeline.corpus.faults import suggestion
from rag_eval_pipeline.warehouse.home import Home


@app.command()
def export(
    format: Annotated[str, typer.Argument(help="ragas | trec | beir | parquet | csv")],
    key: KeyArgument,
    to: Annotated[Path, typer.Option("--to", help="folder; made where it is absent, and empty")],
    table: Annotated[
        list[str] | None,
        typer.Option(help="parquet, csv: only this table, repeatable; default: all that are published"),
    ] = None,
    evaluation_id: Annotated[str | None, typer.Option("--evaluation", help="default: the newest complete one")] = None,
) -> None:
    """Write an evaluation for other tools: RAGAS, TREC, BEIR, or its tables as Parquet or CSV. Masked text, unless publish.source_text."""
    from rag_eval_pipeline.release.exporting import FORMATS, export_evaluation
    from rag_eval_pipeline.release.reading import Evaluation

    if format not in FORMATS:
        raise typer.BadParameter(f"unknown format {format!r}: {suggestion(format, FORMATS)}")
    home = Home.find()
    evaluation = Evaluation.of(home, key, evaluation_id) if evaluation_id else Evaluation.latest(home, key)
    written = export_evaluation(format, evaluation, to, table or ())
    for name, rows in written.items():
        console.print(f"{plain(to / name)}: {rows} rows", highlight=False, soft_wrap=True)


@app.command()
def tables(
    name: Annotated[str | None, typer.Argument(help="only this table")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="the page docs/tables.md")] = False,
) -> None:
    """Say what every table and column means, from the declarations in code."""
    import polars as pl

    from rag_eval_pipeline.cli.looking import show_table
    from rag_eval_pipeline.release.dictionary import markdown, rows

    if as_markdown:
        print(markdown(), end="")
        return
    found = rows()
    if name is not None:
        chosen = found.filter(pl.col("table") == name)
        if chosen.is_empty():
            raise LookupError(f"there is no table {name!r}; {suggestion(name, found['table'].unique())}")
        found = chosen
    console.print(show_table(found.drop("volatile"), "", limit=None))
