"""Which evidence an answer used: what it cites, or what supports its claims, holds the evidence.

Here: the ledger's test of answering, and why it failed. Not here: who judges claims (the judging room).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, held_by_ranges, joined_ranges

VERIFIER = "lexical"
"""Whose verdicts say which passages support a claim; where it was not asked, the first by name."""
NO_ANSWER, REFUSED, EMPTY, IGNORED = "no_answer", "refused", "empty", "ignored"


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Per unit whether the answer to its query used it.

    A chunk is used where a citation resolves to it, or a supported claim stands on it. A unit is used where the chunks that are
    used hold it, as far as the context gave them. What refuses, is empty or failed used nothing.

    Args:
        units: evidence_units.
        before: `evidence_pieces`, `contexts`, `chunks`.
        after: `answers`, `answer_citations`, and `claim_verdicts` where claims were verified.
        config: hold.

    Returns:
        query_id, evidence_id, held, why: `no_answer`, `refused`, `empty` or `ignored` where it was not used, else NULL.
    """
    said = after["answers"].filter(pl.col("sample") == 1)
    given = _used_ranges(used(after), before["contexts"], before["chunks"])
    held = held_by_ranges(units, before["evidence_pieces"], given, config.hold)
    return (
        held.join(said.select("query_id", why=_why()), on="query_id", how="left", maintain_order="left")
        .with_columns(why=pl.when("held").then(None).otherwise(pl.col("why").fill_null(NO_ANSWER)))
        .select(*UNIT, "held", "why")
    )


def _why() -> pl.Expr:
    return (
        pl.when(pl.col("outcome").is_null()).then(pl.lit(NO_ANSWER))
        .when(pl.col("outcome") == "refused").then(pl.lit(REFUSED))
        .when(pl.col("outcome") == "empty").then(pl.lit(EMPTY))
        .otherwise(pl.lit(IGNORED))
    )  # fmt: skip


def deciding(verifiers: Iterable[str]) -> str | None:
    """Which of these says on what a claim stands; None where there is none."""
    names = sorted(verifiers)
    return VERIFIER if VERIFIER in names else next(iter(names), None)


def used(after: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """query_id, position: pieces of the context that the measured answers stand on.

    Args:
        after: `answers`, `answer_citations`, and `claim_verdicts` where claims were verified.
    """
    answers = after["answers"].filter((pl.col("sample") == 1) & pl.col("outcome").is_in(["answered", "hedged"]))
    mine = answers.select("answer_id", "query_id")
    cited = after["answer_citations"].filter(pl.col("status") == "resolved").select("answer_id", "passages")
    parts = [cited.join(mine, on="answer_id").select("query_id", position="passages")]
    verdicts = after.get("claim_verdicts")
    if verdicts is not None and verdicts.height:
        chosen = deciding(verdicts["verifier"].unique())
        held = verdicts.filter((pl.col("verifier") == chosen) & (pl.col("label") == "supported"))
        supporting = held.select("answer_id", position=pl.col("passages").cast(pl.List(pl.Int64), strict=False))
        parts.append(supporting.join(mine, on="answer_id").select("query_id", "position"))
    return pl.concat(parts).explode("position").drop_nulls().unique().sort("query_id", "position")


def _used_ranges(places: pl.DataFrame, contexts: pl.DataFrame, chunks: pl.DataFrame) -> pl.DataFrame:
    """query_id, doc_id, start, end: what of the used chunks the context gave, by whichever piece.

    A piece leaves out what an earlier one gave; who stands on the piece stands on the whole chunk, which the reader had.
    """
    used_pieces = contexts.join(places, on=["query_id", "position"], how="semi")
    spans = chunks.select("chunk_id", chunk_start="start", chunk_end="end")
    wide = used_pieces.join(spans, on="chunk_id", how="left")
    whole = wide.filter(pl.col("start").is_not_null()).select(
        "query_id",
        "doc_id",
        first=pl.min_horizontal("start", "chunk_start"),
        last=pl.max_horizontal("end", "chunk_end"),
    )
    known = contexts.join(places.select("query_id").unique(), on="query_id", how="semi")
    inside = whole.join(joined_ranges(known), on=["query_id", "doc_id"]).select(
        "query_id", "doc_id", start=pl.max_horizontal("first", "low"), end=pl.min_horizontal("last", "high")
    )
    nowhere = wide.filter(pl.col("start").is_null()).select("query_id", "doc_id", "start", "end")
    return pl.concat([inside.filter(pl.col("start") < pl.col("end")), nowhere])
