"""Commands that help to choose: `parsers` and `cleaners`, each on the user's own documents, before any whole run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer
from rich.table import Table as RichTable

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag_eval_pipeline.stages.subject import Subject

KeyArgument = Annotated[str, typer.Argument(help="corpus@version or corpus@version#pipeline", show_default=False)]
COLUMNS = {
    "parsing": ("cer", "wer", "coverage", "invented", "word_recall", "teds", "heading_f1"),
    "cleaning": ("boilerplate_precision", "boilerplate_recall", "main_text_f1", "false_removals_chars", "missed_boilerplate_chars"),
}  # fmt: skip
"""Figures that are shown; the table `candidate_summary` has all."""


@app.command()
def parsers(
    key: KeyArgument,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help="pdfplumber, pymupdf, docling, unstructured, tesseract@150, rapidocr, import:NAME (outputs/parsed/NAME.jsonl) or "
            "package.module:Class; again for more. Default: pipeline.parsing.candidates, else every engine that is installed",
        ),
    ] = None,
) -> None:
    """Run several parsers on the same documents and show by class how well each read them, and how fast.

    What was read is kept: a second run, and a pipeline with the parser that you choose, does not read it again.
    """
    from rag_eval_pipeline.release.evaluated import compare_parsers
    from rag_eval_pipeline.stages.parsing.comparison import COMPARED
    from rag_eval_pipeline.stages.parsing.engines import ENGINES, installed

    subject = _subject(key, "parsing", tried, [name for name in ENGINES if installed(name)])
    rows = compare_parsers(subject)["parser_candidates"]
    _show(subject, "parsing", rows, COMPARED, "parser")


@app.command()
def cleaners(
    key: KeyArgument,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help="trafilatura, justext, resiliparse, blocks, none, import:NAME (outputs/cleaned/NAME.jsonl) or "
            "package.module:Class; again for more. Default: pipeline.cleaning.candidates, else every one that is installed",
        ),
    ] = None,
) -> None:
    """Run several cleaners on the same parsed texts and show by class what each removed, rightly and wrongly."""
    from rag_eval_pipeline.release.evaluated import compare_cleaners
    from rag_eval_pipeline.stages.cleaning.candidate import EXTRACTORS
    from rag_eval_pipeline.stages.cleaning.comparison import COMPARED

    installed = [name for name, (package, _) in EXTRACTORS.items() if find_spec(package) is not None]
    subject = _subject(key, "cleaning", tried, [*installed, "blocks", "none"])
    rows = compare_cleaners(subject)["cleaner_candidates"]
    _show(subject, "cleaning", rows, COMPARED, "cleaner")


def _subject(key: str, stage: str, tried: list[str] | None, installed: list[str]) -> Subject:
    """The subject with its candidates, its tables made up to the stage."""
    from pydantic import ValidationError

    from rag_eval_pipeline.stages.graph import BY_NAME
    from rag_eval_pipeline.stages.subject import Subject

    subject = Subject.open(Home.find(), key)
    config = subject.configs[stage]
    if tried or not config.candidates:
        others = [name for name in installed if name != _chosen(config, stage)]
        try:
            found = type(config)(candidates=tried or others).candidates
        except ValidationError as error:
            raise ValueError(f"--try: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
        subject.configs[stage] = config.model_copy(update={"candidates": found})
    names = ", ".join(candidate.name for candidate in subject.configs[stage].candidates)
    console.print(f"{plain(key)}: the chosen one beside {plain(names)}")
    for name in dict.fromkeys(("source", "parsing", stage)):
        subject.run(BY_NAME[name])
    return subject


def _show(subject: Subject, stage: str, rows: pl.DataFrame, told: Sequence[Any], what: str) -> None:
    from rag_eval_pipeline.stages.comparison import summary

    figures = summary({stage: (rows, told)})
    config = subject.configs[stage]
    classes = ["all", *figures.filter(pl.col("doc_class") != "all")["doc_class"].unique().sort()]
    bare = []
    for name in classes:
        part = figures.filter(pl.col("doc_class") == name)
        if part.filter(pl.col("metric").is_in(COLUMNS[stage]))["n_valued"].sum():
            console.print(_table(part, name, stage, what, _chosen(config, stage)))
        else:
            bare.append(name)
    if bare:
        console.print(
            plain(f"without a value, since nothing is labelled that they are measured by: {', '.join(bare)}"),
            soft_wrap=True,
        )
    console.print(
        "Means over documents with a value, with 95 % intervals where the documents are enough for one; below, the paired "
        "difference to the chosen one over the documents that both have a value of, and its interval."
    )
    unread = rows.filter(pl.col("compared"), ~pl.col("status").is_in(["ok", "empty"]))
    for row in unread.group_by("candidate", "status", "error").len().sort("candidate", "status", "error").to_dicts():
        why = "" if row["error"] is None else f" ({row['error']})"
        console.print(plain(f"not read: {row['candidate']}: {row['len']} {row['status']}{why}"), soft_wrap=True)


def _chosen(config: Any, stage: str) -> str:
    """Name of what the pipeline uses."""
    return "import" if config.imported else str(getattr(config, "parser" if stage == "parsing" else "html"))


def _table(part: pl.DataFrame, doc_class: str, stage: str, what: str, chosen: str) -> RichTable:
    shown = [name for name in COLUMNS[stage] if part.filter(pl.col("metric") == name, pl.col("n_valued") > 0).height]
    expected = part.select(pl.col("n_expected").max()).item()
    table = RichTable(title=plain(f"{doc_class}: {expected} documents"), title_justify="left")
    table.add_column(what, overflow="fold")
    for name in ("n", *shown, *(["s/page"] if stage == "parsing" else [])):
        table.add_column(name, justify="right")
    candidates = part["candidate"].unique().sort().to_list()
    for candidate in sorted(candidates, key=lambda name: (name != "chosen", name)):
        rows = {row["metric"]: row for row in part.filter(pl.col("candidate") == candidate).iter_rows(named=True)}
        first = next(iter(rows.values()))
        name = f"{chosen} (chosen)" if candidate == "chosen" else candidate
        valued = max((rows[metric]["n_valued"] for metric in shown), default=0)
        speed = (
            []
            if stage != "parsing"
            else ["–" if first["seconds_per_page"] is None else f"{first['seconds_per_page']:.2g}"]
        )
        table.add_row(plain(name), str(valued), *(_cell(rows[metric]) for metric in shown), *speed)
    return table


def _cell(row: Mapping[str, Any]) -> str:
    """Mean, its interval; the difference with its verdict, its interval. One line each: columns stay narrow."""
    lines = [_number(row["mean"])]
    if row["mean_low"] is not None:
        lines.append(f"{_number(row['mean_low'])}–{_number(row['mean_high'])}")
    if row["delta"] is not None:
        verdict = f" {row['direction']}" if row["direction"] in {"better", "worse", "different"} else ""
        lines.append(f"{_number(row['delta'], '+')}{verdict}")
        if row["delta_low"] is not None and row["delta_low"] < row["delta_high"]:
            lines.append(f"{_number(row['delta_low'], '+')} … {_number(row['delta_high'], '+')}")
    return "\n".join(lines)


def _number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.4g}" if abs(value) >= 10 else f"{value:{sign}.3f}"
