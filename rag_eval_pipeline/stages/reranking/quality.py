"""What the reranker changed: ΔnDCG@k and ΔMRR a query, on identical candidates, for retrievers that have one."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.relevance import Relevance, relevant_chunks, relevant_documents
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.lists import documents_seen, renumber
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.ranking import rank_measures
from rag_eval_pipeline.stages.reranking.transform import RerankingConfig
from rag_eval_pipeline.warehouse.measurement import DEFAULTS, ROW

METRICS: tuple[Metric, ...] = (
    Metric("rerank_ndcg_uplift", "nDCG@k after reranking − before, same candidates", "higher", low=-1.0),
    Metric("rerank_rr_uplift", "Reciprocal rank after reranking − before, same candidates", "higher", low=-1.0),
    Metric(
        "rerank_p1_uplift", "Precision of the first item after reranking − before, same candidates", "higher", low=-1.0
    ),
)


def measure(
    frames: Mapping[str, pl.DataFrame], gold: Gold, config: RerankingConfig, settings: Settings
) -> pl.DataFrame:
    """One row a query of the split, reranked retriever, unit and measure.

    NULL with `no_gold`, `ineligible`, `no_relevant`, or `no_candidates` (the reranker was given nothing).
    """
    queries = gold.measured(settings.evaluate.split).select("query_id", "principal")
    ranked = frames["ranked_runs"].join(queries.select("query_id"), on="query_id", how="semi")
    seen = ranked.filter(pl.col("rank_before") <= pl.col("input_size"))
    units, pieces = frames["evidence_units"], frames["evidence_pieces"]
    judgments = {
        "document": relevant_documents(gold, units, frames["documents"], queries),
        "chunk": relevant_chunks(gold, units, pieces, frames["chunks"], queries),
    }
    expected = _retrievers(frames, config).join(queries.select("query_id"), how="cross")
    tables = [_uplift(unit, seen, relevance, expected, settings) for unit, relevance in judgments.items()]
    return pl.concat(tables).sort("retriever", "unit", "metric", "k", "item_id")


def _retrievers(frames: Mapping[str, pl.DataFrame], config: RerankingConfig) -> pl.DataFrame:
    if config.reranker is None:
        names: list[str] = []
    elif config.lanes is not None:
        names = sorted(config.lanes)
    else:
        names = pl.concat([frames["runs"]["retriever"], frames["fused_runs"]["retriever"]]).unique().sort().to_list()
    return pl.DataFrame({"retriever": names}, schema={"retriever": pl.String})


def _uplift(unit: str, seen: pl.DataFrame, gold: Relevance, expected: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    ks = list(settings.evaluate.cuts)
    item = "doc_id" if unit == "document" else "chunk_id"
    before = _scores(seen.with_columns(rank="rank_before"), item, gold, settings)
    after = _scores(seen, item, gold, settings)
    on = ["retriever", "query_id", "measure", "k"]
    both = before.join(after, on=on, suffix="_after").with_columns(delta=pl.col("value_after") - pl.col("value"))
    grid = pl.DataFrame(
        [*(("rerank_ndcg_uplift", "ndcg", k) for k in ks), ("rerank_rr_uplift", "rr", 0), ("rerank_p1_uplift", "precision", 1)],
        schema={"metric": pl.String, "measure": pl.String, "k": pl.Int64}, orient="row",
    )  # fmt: skip
    given = seen.select("retriever", "query_id", given=pl.lit(True)).unique()
    rows = (
        expected.join(gold.state, on="query_id")
        .join(grid, how="cross")
        .join(both.select(*on, value="delta"), on=on, how="left")
        .join(given, on=["retriever", "query_id"], how="left")
        .with_columns(
            status=pl.when(pl.col("state") != "judged").then("state")
            .when(pl.col("given").is_null()).then(pl.lit("no_candidates"))
            .when(pl.col("value").is_null()).then(pl.lit("no_relevant"))
            .otherwise(pl.lit("scored"))
        )
    )  # fmt: skip
    constant = {**DEFAULTS, "unit": unit, "params": json.dumps({"gold": gold.source}), "item_type": "query"}
    rows = rows.with_columns(item_id="query_id")
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(constant.get(name))).cast(dtype).alias(name)
        for name, dtype in ROW.items()
    )


def _scores(lists: pl.DataFrame, item: str, gold: Relevance, settings: Settings) -> pl.DataFrame:
    lists = renumber(lists)
    if item == "doc_id":
        lists = documents_seen(lists).filter("first_of_document").with_columns(rank="doc_rank")
    judged = lists.join(gold.qrels.select("query_id").unique(), on="query_id", how="semi")
    empty = pl.DataFrame(
        schema={"query_id": pl.String, "measure": pl.String, "k": pl.Int64, "value": pl.Float64, "retriever": pl.String}
    )
    parts = [empty]
    for (retriever,), mine in judged.group_by(["retriever"], maintain_order=True):
        run = mine.select("query_id", item_id=item, rank="rank", score=-pl.col("rank").cast(pl.Float64))
        qrels = gold.qrels.join(run.select("query_id").unique(), on="query_id", how="semi")
        ks = sorted({1, *settings.evaluate.cuts})
        scored = rank_measures(
            run, qrels, measures=["ndcg", "rr", "precision"], ks=ks, rel_level=settings.evaluate.rel_level
        )
        parts.append(
            scored.select("query_id", measure="metric", k=pl.col("k").cast(pl.Int64).fill_null(0), value="value",
                          retriever=pl.lit(retriever))
        )  # fmt: skip
    return pl.concat(parts)
