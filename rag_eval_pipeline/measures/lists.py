"""Ranked lists as frames: one total order, ranks without gaps, a depth in chunks or in documents.

Columns are those of `runs`: query_id, retriever, rank, chunk_id, doc_id, score. Making scores belongs in the rooms, and
judging lists in `ranking`.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

LIST = ("query_id", "retriever")
"""A list is one retriever's answer to one query."""
ITEM = {"chunk_id": pl.String, "doc_id": pl.String}
RUN = {"query_id": pl.String, "retriever": pl.String, "rank": pl.Int64, **ITEM, "score": pl.Float64}
"""Columns and types of a run."""

DepthUnit = Literal["chunks", "documents"]


def empty() -> pl.DataFrame:
    """A run without rows."""
    return pl.DataFrame(schema=RUN)


def renumber(frame: pl.DataFrame) -> pl.DataFrame:
    """Ranks 1, 2, 3 … by the order of the given ranks, which may have gaps."""
    ordered = frame.sort(*LIST, "rank", "chunk_id")
    return ordered.with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(LIST))


def order(frame: pl.DataFrame) -> pl.DataFrame:
    """Rank by score, best first; equal scores (as float32) by chunk_id, so that the order is total and repeatable."""
    rounded = frame.with_columns(score=pl.col("score").cast(pl.Float32).cast(pl.Float64))
    ordered = rounded.sort(*LIST, "score", "chunk_id", descending=[False, False, True, False])
    return ordered.with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(LIST))


def documents_seen(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `doc_rank`: how many distinct documents the list has shown up to and including this item."""
    ordered = frame.sort(*LIST, "rank")
    first = pl.col("doc_id").is_first_distinct().over(LIST)
    return ordered.with_columns(first_of_document=first).with_columns(
        doc_rank=pl.col("first_of_document").cast(pl.Int64).cum_sum().over(LIST)
    )


def cut(frame: pl.DataFrame, depth: int, unit: DepthUnit = "chunks") -> pl.DataFrame:
    """The first `depth` chunks, or as many as it takes to have shown `depth` documents."""
    if unit == "chunks":
        return frame.filter(pl.col("rank") <= depth)
    seen = documents_seen(frame)
    shown = (pl.col("doc_rank") < depth) | ((pl.col("doc_rank") == depth) & pl.col("first_of_document"))
    return seen.filter(shown).drop("doc_rank", "first_of_document")


def tie_groups(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `tie`: number of the group of neighbours with equal score (float32); an item without score is alone.

    Neighbours only: a reranked list's tail may hold scores of another scale, and those are no ties with its head.
    """
    score = pl.col("score").cast(pl.Float32)
    changed = (score != score.shift(1)).fill_null(True)
    return frame.sort(*LIST, "rank").with_columns(tie=changed.cast(pl.Int64).cum_sum().over(LIST))


class ListError(ValueError):
    """A list given from outside is wrong; the message names run, query and id."""


def check(items: pl.DataFrame, run: str) -> None:
    """Refuse duplicate ids in one list, and scores that are NaN or infinite.

    Args:
        items: query_id, item_id, score.
        run: its name, for the message.

    Raises:
        ListError: names run, query and id.
    """
    twice = items.filter(pl.struct("query_id", "item_id").is_duplicated())
    if twice.height:
        row = twice.sort("query_id", "item_id").row(0, named=True)
        raise ListError(
            f"run {run}, query {row['query_id']}: id {row['item_id']!r} stands more than once "
            f"({twice.height} such rows); keep its best one"
        )
    odd = items.filter(pl.col("score").cast(pl.Float64).is_finite().not_())
    if odd.height:
        row = odd.sort("query_id", "item_id").row(0, named=True)
        raise ListError(
            f"run {run}, query {row['query_id']}: the score of id {row['item_id']!r} is {row['score']}; "
            "give a finite number, or no scores at all"
        )


def place(
    items: pl.DataFrame, chunks: pl.DataFrame, documents: pl.DataFrame, run: str, by: Literal["rank", "score"] = "rank"
) -> pl.DataFrame:
    """Lists of ids given from outside as lists of chunks.

    A chunk id stands for itself; a document id for all chunks of that document, in their order, one after the other. A
    document that was removed, or has no chunk, keeps its place under its own id (a stale index): it holds nothing.

    Args:
        items: query_id, item_id, rank (nullable), score (nullable).
        chunks: chunk_id, doc_id, ordinal.
        documents: doc_id of every document in the corpus version.
        run: its name, for messages.
        by: order by the given ranks where a query's are all there (else by score), or always by score.

    Returns:
        query_id, rank, chunk_id, doc_id, score.

    Raises:
        ListError: a duplicate or unknown id, or a query that has neither ranks nor scores.
    """
    check(items, run)
    by_chunk = items.join(chunks.select("chunk_id", "doc_id"), left_on="item_id", right_on="chunk_id", how="left")
    known = by_chunk.filter(pl.col("doc_id").is_not_null()).with_columns(
        chunk_id="item_id", ordinal=pl.lit(0, pl.Int64)
    )
    rest = by_chunk.filter(pl.col("doc_id").is_null()).with_columns(doc_id="item_id")
    _refuse_unknown(rest, documents, chunks, run)
    parts = chunks.select("chunk_id", "doc_id", "ordinal")
    whole = rest.join(parts, on="doc_id", how="left").with_columns(
        chunk_id=pl.coalesce("chunk_id", "item_id"), ordinal=pl.col("ordinal").fill_null(0)
    )
    columns = ["query_id", "item_id", "chunk_id", "doc_id", "ordinal", "rank", "score"]
    both = pl.concat([known.select(columns), whole.select(columns)])
    both = _ordered(both, run, by)
    # A list may name a document and one of its chunks: the better place counts, a chunk is served once.
    return both.unique(["query_id", "chunk_id"], keep="first", maintain_order=True).select(
        "query_id",
        pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("query_id").alias("rank"),
        "chunk_id",
        "doc_id",
        pl.col("score").cast(pl.Float64),
    )


def _refuse_unknown(rest: pl.DataFrame, documents: pl.DataFrame, chunks: pl.DataFrame, run: str) -> None:
    ids = pl.concat([documents.select("doc_id"), chunks.select("doc_id")]).unique()
    unknown = rest.join(ids, on="doc_id", how="anti").sort("query_id", "item_id")
    if unknown.height:
        row = unknown.row(0, named=True)
        raise ListError(
            f"run {run}, query {row['query_id']}: id {row['item_id']!r} is neither a chunk nor a document of this version "
            f"({unknown.height} unknown ids in all); import the chunks that the run was made on, or use document ids"
        )


def _ordered(items: pl.DataFrame, run: str, by: Literal["rank", "score"]) -> pl.DataFrame:
    ranked = pl.col("rank").is_not_null().all().over("query_id") if by == "rank" else pl.lit(False)
    items = items.with_columns(by_rank=ranked)
    blind = items.filter(~pl.col("by_rank") & pl.col("score").is_null())
    if blind.height:
        row = blind.sort("query_id", "item_id").row(0, named=True)
        raise ListError(
            f"run {run}, query {row['query_id']}: id {row['item_id']!r} has neither rank nor score; give one"
        )
    score = pl.col("score").cast(pl.Float32)
    place = pl.when("by_rank").then(pl.col("rank").cast(pl.Float64)).otherwise(-score.cast(pl.Float64))
    best = score.fill_null(float("-inf"))
    return items.with_columns(place=place, best=best).sort(
        "query_id", "place", "best", "item_id", "ordinal", descending=[False, False, True, False, False]
    )
