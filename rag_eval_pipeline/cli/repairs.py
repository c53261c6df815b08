"""The command `repairs`: what each cause cost. The figures stand in `stage_repairs`; here they are only laid out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import polars as pl
import typer
from rich.table import Table as RichTable

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.cli.looking import KeyArgument, served_cut
from rag_eval_pipeline.warehouse.home import Home

LABELS = {
    "all_repairs": "all of them together",
    "reranker_ceiling": "any order of the candidates",
    "context": "context without a budget",
}


@app.command()
def repairs(
    key: KeyArgument,
    retriever: Annotated[str | None, typer.Option(help="default: the served one")] = None,
    k: Annotated[int | None, typer.Option(help="default: evaluate.serve_k")] = None,
) -> None:
    """What each cause cost: recall that comes back when a stage is repaired by gold and all that follows runs again."""
    from rag_eval_pipeline.release.reading import Evaluation

    evaluation = Evaluation.latest(Home.find(), key)
    chosen, cut = served_cut(evaluation, retriever, k)
    rows = evaluation.frame("stage_repairs").filter((pl.col("retriever") == chosen) & (pl.col("k") == cut))
    if rows.is_empty():
        console.print(
            f"{plain(key)}: no repairs were run. Set `ledger: {{repairs: single}}` or `shapley` in corpus.yaml, or label "
            "evidence for the measured split."
        )
        return
    console.print(layout(rows, f"What each cause cost: {key}, {chosen} at {cut}"))


def layout(rows: pl.DataFrame, title: str) -> RichTable:
    """A table of one retriever at one k, in the waterfall's order."""
    table = RichTable(title=plain(title), title_justify="left")
    table.add_column("stage")
    for name in ("lost", "recovered", "95 %", "on top of the others", "Shapley", "helped / hurt"):
        table.add_column(name, justify="right")
    ordered = rows.sort("position").to_dicts()
    last = max((i for i, row in enumerate(ordered) if row["kind"] == "stage"), default=-1)
    for number, row in enumerate(ordered):
        table.add_row(*_cells(row), end_section=number == last, style="dim" if row["status"] == "unchanged" else None)
    table.caption = (
        f"recall {rows['baseline'][0]:.3f} as it ran; lost: units, and after / how many of them the labels can repair: where "
        "they are fewer, what is recovered is a lower bound (≥)"
    )
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    name = LABELS.get(row["stage"], row["stage"])
    if row["status"] == "import_misfit":
        return [name, _lost(row), "imported outputs don't fit it", "", "", "", ""]
    bound = "≥ " if row["kind"] == "stage" and (row["n_repairable"] or 0) < (row["n_lost"] or 0) else ""
    interval = "" if row["recovered_low"] is None else f"{row['recovered_low']:+.3f} … {row['recovered_high']:+.3f}"
    share = "" if row["shapley"] is None else f"{row['shapley']:+.3f}"
    if row["shapley_error"]:
        share += f" ± {row['shapley_error']:.3f}"
    helped = "" if row["queries_helped"] is None else f"{row['queries_helped']} / {row['queries_hurt']}"
    return [
        name,
        _lost(row),
        f"{bound}{row['recovered_recall']:+.3f}",
        interval,
        _signed(row["marginal_recall"]),
        share,
        helped,
    ]


def _lost(row: Mapping[str, Any]) -> str:
    if row["n_lost"] is None:
        return ""
    known = row["n_repairable"]
    return str(row["n_lost"]) if known is None or known == row["n_lost"] else f"{row['n_lost']} / {known}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"
