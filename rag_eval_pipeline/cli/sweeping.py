"""The command `sweep`: what dedup would find with other numbers of hash functions and other thresholds, and at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.cli.looking import KeyArgument
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    import polars as pl

COLUMNS = {
    "pairs": "pairs",
    "pair_precision": "P",
    "pair_recall": "R",
    "pair_f1": "F1",
    "b_cubed_f1": "B³ F1",
    "false_merge_rate": "false merges",
    "missed_merge_rate": "missed",
    "unjudged_pairs": "unjudged",
    "removed": "removed",
    "bytes": "MB",
    "seconds": "s",
}


@app.command()
def sweep(
    key: KeyArgument,
    num_perm: Annotated[
        list[int] | None, typer.Option(min=2, max=2048, help="hash functions; again for more. Default: 64, 128, 256")
    ] = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(min=0.01, max=1.0, help="similarity; again for more. Default: 0.5, 0.6, 0.7, 0.8, 0.9"),
    ] = None,
) -> None:
    """Try other numbers of hash functions and thresholds of dedup on the clean texts of a version, of any size.

    Scores need gold/duplicates.jsonl. The clean texts must be there: run the key first.
    """
    from rag_eval_pipeline.stages.dedup.sweep import GRID
    from rag_eval_pipeline.stages.dedup.sweep import sweep as swept
    from rag_eval_pipeline.stages.subject import Subject

    subject = Subject.open(Home.find(), key)
    config = subject.configs["dedup"]
    grid = [
        (perm, value)
        for perm in num_perm or sorted({perm for perm, _ in GRID})
        for value in threshold or sorted({value for _, value in GRID})
    ]
    duplicates, documents = subject.version.gold.duplicates, subject.frame("documents")
    rows = swept(subject.frame("cleaned"), duplicates, config, [*grid, (config.num_perm, config.threshold)], documents)
    if rows["status"][0] == "off":
        console.print(f"{plain(key)}: dedup is off or imported in this pipeline, so there is nothing to sweep.")
        return
    console.print(layout(rows, f"dedup of {key}: hash functions × threshold"))


def layout(rows: pl.DataFrame, title: str) -> RichTable:
    """The grid; what the pipeline uses is marked."""
    table = RichTable(title=plain(title), title_justify="left")
    for name in ("hash functions", "threshold", *COLUMNS.values()):
        table.add_column(name, justify="right")
    for row in rows.iter_rows(named=True):
        used = row["in_use"] == "yes"
        cells = [_cell(name, row[name]) for name in COLUMNS]
        table.add_row(
            f"{'▸ ' if used else ''}{row['num_perm']}", f"{row['threshold']:g}", *cells, style="bold" if used else None
        )
    table.caption = "▸ in use; – where nothing is labelled or found"
    return table


def _cell(name: str, value: float | int | None) -> str:
    if value is None:
        return "–"
    if name == "bytes":
        return f"{value / 1e6:.2f}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
