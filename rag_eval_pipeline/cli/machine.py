"""The command `doctor`: what this machine lacks, and how to get it."""

from __future__ import annotations

import typer
from rich.table import Table

from rag_eval_pipeline.cli import REFUSED, app, console, plain
from rag_eval_pipeline.warehouse.home import Home

SIGNS = {"ok": "[green]ok[/]", "optional": "[yellow]optional[/]", "missing": "[bold red]missing[/]"}


@app.command()
def doctor() -> None:
    """Look what is missing on this machine, and say how to get it. Exit code 1 where something that is needed is missing."""
    from rag_eval_pipeline.release.machine import examine

    findings = examine(Home.find())
    table = Table(box=None, pad_edge=False)
    for title in ("what", "", "found", "how to get it"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        table.add_row(plain(finding.what), SIGNS[finding.state], plain(finding.found), plain(finding.get))
    console.print(table)
    missing = sum(finding.state == "missing" for finding in findings)
    console.print(f"{missing} things are missing" if missing else "nothing that is needed is missing")
    if missing:
        raise typer.Exit(REFUSED)
