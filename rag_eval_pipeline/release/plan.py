"""What a run would do, said before a long one: documents by kind, queries, minutes and disk at most."""

from __future__ import annotations

from pathlib import PurePosixPath

import polars as pl
from rich.table import Table as RichTable

from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject

SECONDS_BY_KIND = {"pdf": 0.5, "docx": 0.1, "html": 0.15, "png": 4.0, "jpg": 4.0, "jpeg": 4.0, "tif": 4.0, "tiff": 4.0}
"""Parsing a document, one worker, as seen on two cores without a GPU; others are read in no time. OCR dominates."""
TEXT_SHARE = {"pdf": 0.05, "docx": 0.15, "html": 0.4, "png": 0.02, "jpg": 0.02, "jpeg": 0.02, "tif": 0.02, "tiff": 0.02}
"""Characters of text a byte of file; txt, md and csv are text."""
CHUNKS_PER_SECOND = 14.0
CHARS_PER_TOKEN = 4.0
PII_CHARS_PER_SECOND = 60_000.0
SECONDS_OF_A_RUN = 90.0
"""CPU time of a run of ten small documents: the starts of Dagster, workers and encoder, and all the steps that are small."""
DISK_PER_CHUNK = 6_000
"""Bytes of vectors, index, texts and memo a chunk."""


def plan_table(subject: Subject) -> RichTable:
    """A table for the terminal. Figures are upper estimates for a cold run; what is in the memo costs nothing."""
    files = subject.version.files.with_columns(
        pl.col("path").map_elements(_kind, return_dtype=pl.String).alias("kind"),
    )
    by_kind = files.group_by("kind").agg(pl.len().alias("n"), pl.col("bytes").sum()).sort("kind")
    table = RichTable(title=f"plan of {subject.key.text}", title_justify="left")
    for name, justify in (("what", "left"), ("n", "right"), ("MB", "right"), ("minutes ≤", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    workers = max(subject.workers, 1)
    chars = parsing = 0.0
    for kind, count, size in by_kind.iter_rows():
        seconds = SECONDS_BY_KIND.get(kind, 0.01) * count / workers
        chars += size * TEXT_SHARE.get(kind, 1.0)
        parsing += seconds
        table.add_row(f"documents: {kind}", str(count), f"{size / 1e6:.1f}", f"{seconds / 60:.1f}")
    chunks = _chunks(subject, chars)
    dense = subject.configs["embedding"].enabled
    embedding = chunks / CHUNKS_PER_SECOND if dense else 0.0
    pii = chars / PII_CHARS_PER_SECOND / workers if subject.configs["pii"].enabled else 0.0
    table.add_row("personal data", "", f"{chars / 1e6:.1f}", f"{pii / 60:.1f}")
    table.add_row("chunks to embed" if dense else "chunks", f"≈{chunks:.0f}", "", f"{embedding / 60:.1f}")
    table.add_row("queries", str(subject.version.gold.queries.height), "", "")
    table.add_row("starts and small steps of any run", "", "", f"{SECONDS_OF_A_RUN / 60:.1f}")
    there = sum(all(subject.find(name) for name in stage.tables) for stage in STAGES)
    table.add_section()
    table.add_row(f"stages already there: {there} of {len(STAGES)}", "", "", "")
    table.add_row(
        "disk and time of a cold run ≤",
        "",
        f"{chunks * DISK_PER_CHUNK / 1e6:.0f}",
        f"{(parsing + embedding + pii + SECONDS_OF_A_RUN) / 60:.1f}",
    )
    return table


def _chunks(subject: Subject, chars: float) -> float:
    config = subject.configs["chunking"]
    documents = subject.version.files.height
    if config.splitter == "none":
        return float(documents)
    unit = {"tokens": CHARS_PER_TOKEN, "chars": 1.0, "words": 6.0}.get(config.unit, CHARS_PER_TOKEN)
    return max(chars / (max(config.size - config.overlap, 1) * unit), documents)


def _kind(path: str) -> str:
    return PurePosixPath(path).suffix.lower().lstrip(".") or "none"
