"""A version without documents: what of it can be evaluated, from outputs/ alone.

Chunks alone, or ranked lists alone, are enough for the stages behind them. Here: the stand-in documents that let the same
stages run. What the ledger then can't see is said by attribution (`unseen_stages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import polars as pl

from rag_eval_pipeline.corpus.documents import FILES
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.settings import Settings

Given = Literal["documents", "chunks", "runs"]
RUNS = ("runs", "runs_before_rerank")


def given(layout: Layout) -> Given:
    """What a version's stages begin with: its documents; with none in it, imported chunks; else ranked lists.

    A version that has none of them begins with documents, whose absence is then a fault.
    """
    folder = layout.documents
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        return "documents"
    if (layout.outputs / "chunks.jsonl").is_file():
        return "chunks"
    runs = layout.outputs / "runs"
    return "runs" if runs.is_dir() and any(runs.iterdir()) else "documents"


def stand_in(kind: Given, outputs: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Documents made of chunks, or of the document ids that lists name.

    A document's text is that of its chunks, one after the other, and passes parsing and cleaning as it is. Where only lists
    are there, a document is one chunk that says nothing but its id.

    Args:
        kind: chunks | runs.
        outputs: frames of outputs/ by name.

    Returns:
        Columns of `FILES`; and the outputs with `parsed`, `cleaned` and `chunks` to import.
    """
    chunks = outputs["chunks"] if kind == "chunks" else _named(outputs)
    # Given offsets speak of a text that is not here: places are found in the one that is made.
    nowhere = [pl.lit(None, dtype=chunks.schema[name]).alias(name) for name in ("start", "end")]
    texts = chunks.group_by("doc_id", maintain_order=True).agg(pl.col("text").str.join("\n")).sort("doc_id")
    blank = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in FILES.items() if name != "doc_id"]
    files = texts.select("doc_id", *blank).with_columns(
        path=pl.lit(""), acl=pl.lit([], dtype=pl.List(pl.String)), metadata=pl.lit("{}"), bytes=pl.lit(0, pl.Int64),
        content_hash=pl.lit(""),
    )  # fmt: skip
    made = {
        "parsed": texts.with_columns(blocks=None, tables=None),
        "cleaned": texts,
        "chunks": chunks.with_columns(nowhere),
    }
    return files.select(list(FILES)), {**outputs, **made}


def _named(outputs: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One chunk a document that some list names."""
    ids = pl.concat([outputs[name].select("item_id") for name in RUNS if name in outputs]).unique().sort("item_id")
    place = pl.lit(None, dtype=pl.Int64)
    return ids.select(
        pl.col("item_id").alias("chunk_id"), pl.col("item_id").alias("doc_id"), pl.col("item_id").alias("text"),
        place.alias("start"), place.alias("end"),
    )  # fmt: skip


def without_documents(settings: Settings, begin: Given) -> Settings:
    """Settings under which the stages before chunking pass the stand-in on as it is.

    Where only lists are there no chunk says anything: nothing is answered from them, unless answers are imported.
    """
    pipeline: dict[str, Any] = {
        **settings.pipeline,
        "parsing": {"import": True}, "cleaning": {"import": True}, "dedup": None, "pii": None,
        "chunking": {**(settings.pipeline.get("chunking") or {}), "import": True},
    }  # fmt: skip
    answering = settings.pipeline.get("answering")
    if begin == "runs" and not (isinstance(answering, Mapping) and answering.get("answerer") == "import"):
        pipeline["answering"] = None
    return settings.model_copy(update={"pipeline": pipeline})
