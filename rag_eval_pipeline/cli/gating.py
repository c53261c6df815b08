"""The command `gate`: a release's verdict for people and CI jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rag_eval_pipeline.cli import UNDECIDED, app, console, errors, plain
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.release.gating import Gated

NAMED = ("previous", "accepted")
"""Baselines that are no version."""
COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", "missing_evidence": "magenta"}


@app.command()
def gate(
    key: Annotated[str, typer.Argument(help="corpus@version or corpus@version#pipeline", show_default=False)],
    baseline: Annotated[
        str | None, typer.Option(help="previous | accepted | VERSION or VERSION#PIPELINE; default: gates.baseline")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="gold | rules | population: decide although the two sides differ in it; uncalibrated: count such judges"
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the verdict as JUnit XML.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the verdict as JSON.")] = None,
) -> None:
    """Decide on a release by the rules of corpus.yaml. Exit code: 0 pass, 1 fail, 2 inconclusive or missing evidence, 64 wrong usage."""
    from rag_eval_pipeline.corpus.faults import CorpusError
    from rag_eval_pipeline.corpus.keys import Key, KeyNameError
    from rag_eval_pipeline.release import gating
    from rag_eval_pipeline.release.publish import publish

    home = Home.find()
    try:
        parsed = Key.parse(key)
        if baseline not in (None, *NAMED):
            Key.parse(f"{parsed.corpus}@{baseline}")
        found = gating.gate(home, parsed.text, baseline, allow or ())
    except (KeyNameError, gating.AllowanceError) as error:
        raise typer.BadParameter(str(error)) from None
    except CorpusError as error:  # nobody knows the rules: that is no verdict, least of all `fail`
        errors.print(f"[bold red]error:[/] {plain(error)}", highlight=False, soft_wrap=True)
        raise typer.Exit(UNDECIDED) from None
    if found.evaluation_id:
        publish(home)
    _print(found)
    if found.decision.verdict in ("inconclusive", "missing_evidence"):
        _print_needs(home, found)
    try:
        if junit is not None:
            gating.write(junit, gating.junit(found))
        if json_file is not None:
            gating.write(json_file, json.dumps(found.record(), indent=1, ensure_ascii=False))
    except OSError as error:
        raise typer.BadParameter(
            f"{error.filename} can't be written ({error.strerror}); name a file that you may write"
        ) from None
    raise typer.Exit(found.exit_code)


def _print_needs(home: Home, found: Gated) -> None:
    """What each rule needs by a guess, where no figure says what would settle it."""
    from rag_eval_pipeline.cli.starting import needed_lines
    from rag_eval_pipeline.corpus.faults import CorpusError

    try:
        settled = {finding.rule for finding in found.decision.findings if finding.n_needed or finding.verdict == "pass"}
        lines = list(needed_lines(home, found.key, known=settled))
    except CorpusError:  # its folder is not here: the rules are those of the evaluation, and the verdict stands
        return
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _print(gated: Gated) -> None:
    decision = gated.decision
    console.print(f"[bold]{plain(gated.key)}[/] {gated.evaluation_id} · {plain(gated.baseline)}", soft_wrap=True)
    for reason in decision.refusals:
        console.print(f"[magenta]refused:[/] {plain(reason)}", soft_wrap=True, highlight=False)
    if decision.findings:
        table = Table("rule", "figure", "verdict", "why", "n", "n needed", box=None, pad_edge=False)
        for f in decision.findings:
            named = f" [dim](p {f.p_holm:.3f} after Holm)[/]" if f.verdict == "fail" and f.p_holm is not None else ""
            table.add_row(
                str(f.rule), f"{plain(f.label)} {f.limit} {f.allowed:g}", f"[{COLOURS[f.verdict]}]{f.verdict}[/]",
                plain(f.reason) + named, f"{f.n}/{f.n_expected}", str(f.n_needed or ""),
            )  # fmt: skip
        console.print(table)
    if decision.power is not None:
        least, most = decision.power
        console.print(
            f"power of the relative rules together, if nothing changed: {least:.0%} to {most:.0%}", highlight=False
        )
    console.print(
        f"verdict: [bold {COLOURS[decision.verdict]}]{decision.verdict}[/] (exit {gated.exit_code})", highlight=False
    )
