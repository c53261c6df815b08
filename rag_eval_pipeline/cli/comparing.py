"""The command `compare`: what became of the evidence between two evaluations. Text of documents is not printed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.cli.looking import served_cut, show_table
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.release.comparing import Result

LARGEST = 12
"""Changes of the scorecard that are shown."""


@app.command()
def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A [ID] B [ID]", help="two keys, before and now; each may be followed by an evaluation_id"
        ),
    ],
    retriever: Annotated[str | None, typer.Option(help="default: the served one of B")] = None,
    k: Annotated[int | None, typer.Option(help="default: evaluate.serve_k of B")] = None,
) -> None:
    """What is lost, kept and recovered from A to B, by stage, cause and change of the document; recall, largest changes."""
    from rag_eval_pipeline.release import comparing
    from rag_eval_pipeline.release.publish import publish

    home = Home.find()
    (first, first_id), (second, second_id) = two_sides(sides)
    result = comparing.compare(home, comparing.choose(home, first, first_id), comparing.choose(home, second, second_id))
    publish(home)
    chosen, cut = served_cut(result.now, retriever, k)
    _print_changes(result)
    _print_diff(result, chosen, cut)
    _print_recall(result)
    _print_scorecard(result)
    console.print(
        f"each unit with both texts: rag-eval sql \"FROM version_regressions WHERE comparison_id = '{result.comparison.comparison_id}' "
        f"AND state = 'newly_lost' AND retriever = '{plain(chosen)}' AND k = {cut}\"; one query: rag-eval fate {second} QUERY_ID",
        soft_wrap=True,
        highlight=False,
    )


def two_sides(sides: list[str]) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """Two keys, each with the evaluation_id that follows it, if any."""
    found: list[tuple[str, str | None]] = []
    for word in sides:
        if "@" in word:
            found.append((word, None))
        elif found and found[-1][1] is None:
            found[-1] = (found[-1][0], word)
        else:
            raise ValueError(f"{word!r} follows no key: write A [evaluation_id] B [evaluation_id]")
    if len(found) != 2:
        raise ValueError(
            f"{len(found)} keys were named, and two are compared: rag-eval compare CORPUS@V1 CORPUS@V2, or with evaluation_ids "
            "behind them; `rag-eval evaluations` lists both"
        )
    return found[0], found[1]


def _print_changes(result: Result) -> None:
    before, now, changes = result.before.manifest, result.now.manifest, result.changes
    console.print(
        f"[bold]{plain(before.key)}[/] {before.evaluation_id} → [bold]{plain(now.key)}[/] {now.evaluation_id}"
    )
    stages = changes.named()
    lines = [
        f"documents: {'changed' if changes.documents else 'the same'}",
        f"labels: {'changed' if changes.gold else 'the same'}",
        f"stages: {'; '.join(stages) if stages else 'config, code, models and inputs are the same'}",
    ]
    console.print(" · ".join(lines), soft_wrap=True, highlight=False)
    if changes.measuring is None:
        console.print(
            "[yellow]warning:[/] an old manifest does not say how it was measured nor which queries belong together (intervals may "
            "be too narrow); run it again to be sure",
            soft_wrap=True,
        )
    elif changes.measuring:
        console.print(
            f"[yellow]warning:[/] measured differently ({', '.join(changes.measuring)}): figures may differ for that reason alone",
            soft_wrap=True,
        )


def _print_diff(result: Result, retriever: str, k: int) -> None:
    from rag_eval_pipeline.attribution.regressions import STATES, version_diff

    rows = result.frame("version_regressions").filter((pl.col("retriever") == retriever) & (pl.col("k") == k))
    if rows.is_empty():
        console.print(f"{plain(retriever)} at {k} was not measured on both sides, so no unit of it is compared")
        return
    counts = ", ".join(f"{int((rows['state'] == state).sum())} {state.replace('_', ' ')}" for state in STATES)
    diff = version_diff(rows).filter(pl.col("state") != "kept").drop("retriever", "k")
    console.print(show_table(diff, f"{retriever} at {k}: {counts}"))


def _print_recall(result: Result) -> None:
    recall = result.frame("version_recall")
    shown = recall.select(
        "retriever",
        "k",
        pl.col("recall_before").round(4),
        pl.col("recall_now").round(4),
        pl.col("delta").round(4),
        pl.format("{} … {}", pl.col("low").round(4), pl.col("high").round(4)).alias("95 % interval"),
        "method",
        "n_queries",
        "newly_lost",
        "recovered",
        pl.when(pl.col("status") == "paired").then(pl.lit("")).otherwise("status").alias("note"),
    )
    console.print(show_table(shown, "evidence recall, before and now; change over the units that both sides have"))


def _print_scorecard(result: Result) -> None:
    from rag_eval_pipeline.release.comparing import scorecard_changes

    changes = scorecard_changes(result.before, result.now)
    if changes.is_empty():
        console.print("no mean of the scorecard changed")
        return
    shown = changes.head(LARGEST).select(
        "stage", "retriever", "metric", "unit", "k", "params", "before", "now", "change", "verdict"
    )
    console.print(show_table(shown, f"largest of {changes.height} changed means of the scorecard (no intervals)"))
