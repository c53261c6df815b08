"""What an answer was given: the passages of a query's context with their text.

Here: from tables to texts, one place for answerers, verifiers and judges. Not here: who fills the context (its room).
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rag_eval_pipeline.judging.verifiers import Passage

SUPPLIED = ("query_id", "position", "chunk_id", "doc_id", "text", "language")


def supplied(contexts: pl.DataFrame, chunks: pl.DataFrame) -> pl.DataFrame:
    """Passages by query and position.

    The text is what was given word for word, where the context was imported with it; else the range of the chunk. The first
    piece of a chunk has the prefix that the pipeline wrote before it.

    Args:
        contexts: table `contexts`.
        chunks: table `chunks`.

    Returns:
        query_id, position, chunk_id, doc_id, text, language; sorted by query and position.
    """
    source = chunks.select("chunk_id", "prefix", "language", chunk_start="start", chunk_end="end", whole="text")
    both = contexts.join(source, on="chunk_id", how="left")
    offset = (pl.col("start") - pl.col("chunk_start")).clip(lower_bound=0)
    is_whole = (
        pl.col("start").is_null()
        | pl.col("chunk_start").is_null()
        | ((pl.col("start") <= pl.col("chunk_start")) & (pl.col("end") >= pl.col("chunk_end")))
    )
    body = pl.when(is_whole).then("whole").otherwise(pl.col("whole").str.slice(offset, pl.col("end") - pl.col("start")))
    made = pl.concat_str(pl.col("prefix").fill_null(""), body.fill_null(""))
    return (
        both.with_columns(text=pl.coalesce("text", made) if "text" in both.columns else made)
        .select(*SUPPLIED)
        .sort("query_id", "position")
    )


def passages(given: pl.DataFrame) -> Iterator[tuple[str, list[Passage]]]:
    """(query_id, its passages): each named by its position, so that a chunk given twice is two passages.

    Args:
        given: rows of `supplied`.
    """
    for (query_id,), group in given.group_by(["query_id"], maintain_order=True):
        rows = group.select("position", "text", "language").iter_rows()
        yield str(query_id), [Passage(str(position), text, language) for position, text, language in rows]
