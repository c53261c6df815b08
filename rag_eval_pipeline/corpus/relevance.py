"""What is relevant to a query, as labelled and as far as the caller may see it, by unit. Fixed before any list is looked at.

How good a list is belongs in the rooms and in `measures`; where evidence stands in the text belongs in `attribution`.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.predicates import visible

QRELS = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Int64}


@dataclass(frozen=True)
class Relevance:
    """Judgments of one unit.

    Attributes:
        qrels: query_id, item_id, grade; only what the caller may see.
        state: query_id, state, one row a query: `judged`, `ineligible` (all that was labelled is out of the caller's
            sight) or `no_gold`.
        source: which labels they come from.
    """

    qrels: pl.DataFrame
    state: pl.DataFrame
    source: str


def relevant_documents(gold: Gold, units: pl.DataFrame, documents: pl.DataFrame, queries: pl.DataFrame) -> Relevance:
    """Documents by `qrels`; for a query without any, the documents of its evidence.

    Args:
        gold: the labels.
        units: evidence_units (query_id, evidence_id, doc_id, grade, eligible).
        documents: the table `documents`; a document that is absent from it counts as visible.
        queries: query_id, principal of the expected queries.
    """
    given = gold.qrels.join(queries.select("query_id"), on="query_id", how="semi")
    given = given.select("query_id", "grade", item_id="doc_id")
    sight = _hidden(documents, queries, gold.principals)
    seen = given.join(sight, on=["query_id", "item_id"], how="anti")
    evidence = units.join(queries.select("query_id"), on="query_id", how="semi").join(given, on="query_id", how="anti")
    derived = evidence.filter("eligible").group_by("query_id", item_id="doc_id").agg(pl.col("grade").max())
    labelled = pl.concat([given.select("query_id"), evidence.select("query_id")]).unique()
    qrels = pl.concat([seen.select(list(QRELS)), derived.select(list(QRELS))])
    return Relevance(_sorted(qrels), _state(queries, labelled, qrels), "qrels" if given.height else "evidence")


def relevant_chunks(
    gold: Gold, units: pl.DataFrame, pieces: pl.DataFrame, chunks: pl.DataFrame, queries: pl.DataFrame
) -> Relevance:
    """Chunks by `chunk_qrels` where all its ids are chunks of this pipeline; else the chunks that hold a whole unit alone.

    With evidence, a query whose units no single chunk holds is judged and has nothing relevant.
    """
    asked = queries.select("query_id")
    given = gold.chunk_qrels.join(asked, on="query_id", how="semi").select("query_id", "grade", item_id="chunk_id")
    known = given.join(chunks.select(item_id="chunk_id"), on="item_id", how="semi").height
    if given.height and known == given.height:
        return Relevance(_sorted(given), _state(queries, given, given), "chunk_qrels")
    labelled = units.join(asked, on="query_id", how="semi")
    eligible = labelled.filter("eligible").select("query_id", "evidence_id", "grade")
    whole = pieces.filter("whole").join(eligible, on=["query_id", "evidence_id"])
    qrels = whole.group_by("query_id", item_id="chunk_id").agg(pl.col("grade").max())
    return Relevance(_sorted(qrels), _state(queries, labelled, eligible), "evidence")


def _sorted(qrels: pl.DataFrame) -> pl.DataFrame:
    return qrels.select(list(QRELS)).cast(QRELS).sort("query_id", "item_id")  # type: ignore[arg-type]


def _state(queries: pl.DataFrame, labelled: pl.DataFrame, eligible: pl.DataFrame) -> pl.DataFrame:
    ids = queries["query_id"]
    state: pl.Expr = (
        pl.when(pl.col("query_id").is_in(eligible["query_id"].unique().implode()))
        .then(pl.lit("judged"))
        .when(pl.col("query_id").is_in(labelled["query_id"].unique().implode()))
        .then(pl.lit("ineligible"))
        .otherwise(pl.lit("no_gold"))
    )
    return ids.to_frame().select("query_id", state=state).sort("query_id")


def unit_state(units: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """query_id, state: whether a query has evidence that its caller may see."""
    return _state(queries, units, units.filter("eligible"))


def _hidden(documents: pl.DataFrame, queries: pl.DataFrame, principals: pl.DataFrame) -> pl.DataFrame:
    """query_id, item_id: documents of this version that the caller of a query may not see."""
    empty = pl.DataFrame(schema={"query_id": pl.String, "item_id": pl.String})
    parts = [empty]
    callers = queries.filter(pl.col("principal").is_not_null())
    for (principal,), asked in callers.group_by(["principal"], maintain_order=True):
        unseen = documents.filter(~visible(documents, str(principal), principals)).select(item_id="doc_id")
        parts.append(asked.select("query_id").join(unseen, how="cross"))
    return pl.concat(parts)
