"""How good every retriever's final list is: the ranking table, by unit document, chunk and evidence.

One row for every query of the split, retriever, unit, measure and k. The formulas stand in `measures.ranking`, what is
relevant in `corpus.relevance`, when a list holds evidence in `holding`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.relevance import Relevance, relevant_chunks, relevant_documents, unit_state
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.lists import documents_seen, tie_groups
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.ranking import rank_measures
from rag_eval_pipeline.stages.retrieval.holding import first_held, held_within
from rag_eval_pipeline.stages.retrieval.transform import ImportLane, RetrievalConfig
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.measurement import DEFAULTS, ROW

AT_K = ("recall", "hit", "precision", "ndcg", "judged")
WHOLE = ("rr", "ap", "bpref")

METRICS: tuple[Metric, ...] = (
    Metric("recall", "Share of what is relevant that the first k items hold", "higher"),
    Metric("hit", "Whether the first k items hold anything relevant", "higher"),
    Metric("precision", "Share of the first k items that is relevant", "higher"),
    Metric("ndcg", "Discounted gain of the first k over that of the ideal order of all gold", "higher"),
    Metric("judged", "Share of the first k items that has a judgment", "neither"),
    Metric("rr", "1 / rank of the first relevant item", "higher"),
    Metric("ap", "Mean precision at the relevant items", "higher"),
    Metric("bpref", "Preference of relevant over judged non-relevant items", "higher"),
    Metric("recall_b", "Share of the evidence that the first B tokens hold (k is B)", "higher"),
    Metric("tied_at_cutoff", "Whether a tie spans rank k, so that the order decides the figure", "neither"),
)


def measure(
    frames: Mapping[str, pl.DataFrame], gold: Gold, config: RetrievalConfig, settings: Settings
) -> pl.DataFrame:
    """The ranking table, columns of `ROW`.

    Status: `scored`; `missing_run` (0: an imported run lacks the query); NULL with `no_gold`, `no_relevant` (judged, nothing
    relevant) or `ineligible` (all gold is out of the caller's sight).
    """
    queries = gold.measured(settings.evaluate.split).select("query_id", "principal")
    lists = frames["ranked_runs"].join(queries.select("query_id"), on="query_id", how="semi")
    expected = _expected(queries, lists, frames, config, settings)
    units = frames["evidence_units"].join(queries.select("query_id"), on="query_id", how="semi")
    pieces = frames["evidence_pieces"].join(queries.select("query_id"), on="query_id", how="semi")
    documents = relevant_documents(gold, units, frames["documents"], queries)
    chunks = relevant_chunks(gold, units, pieces, frames["chunks"], queries)
    state = unit_state(units, queries)
    tables = [
        _ranking("document", _by_document(lists), documents, expected, settings),
        _ranking("chunk", _items(lists, "chunk_id", "rank"), chunks, expected, settings),
        _evidence(lists, pieces, units, expected.join(state, on="query_id"), settings),
        _budgets(lists, pieces, units, frames["chunks"], expected.join(state, on="query_id"), settings),
    ]
    return pl.concat(tables).sort("retriever", "unit", "metric", "k", "item_id")


# --- what is expected ------------------------------------------------------------------------------------------------


def _expected(
    queries: pl.DataFrame,
    lists: pl.DataFrame,
    frames: Mapping[str, pl.DataFrame],
    config: RetrievalConfig,
    settings: Settings,
) -> pl.DataFrame:
    """retriever, query_id, missing: every query with every lane, also a lane that found nothing at all."""
    section = settings.pipeline.get("retrieval") or {}
    names = sorted({*config.lanes, *section, *lists["retriever"].unique()})
    lanes = pl.DataFrame({"retriever": names, "given": [_is_given(name, config, section) for name in names]},
                         schema={"retriever": pl.String, "given": pl.Boolean})  # fmt: skip
    asked = frames["prepared_queries"].select("query_id", asked=pl.lit(True))
    there = lists.select("retriever", "query_id", listed=pl.lit(True)).unique()
    return (
        lanes.join(queries.select("query_id"), how="cross")
        .join(asked, on="query_id", how="left")
        .join(there, on=["retriever", "query_id"], how="left")
        # Our own search that finds nothing made an empty list; a run from outside without the query has no list.
        .with_columns(missing=pl.col("listed").is_null() & (pl.col("given") | pl.col("asked").is_null()))
        .select("retriever", "query_id", "missing")
    )


def _is_given(
    name: str, config: RetrievalConfig, section: Mapping[str, Any], seen: frozenset[str] = frozenset()
) -> bool:
    """Whether a lane's lists come from outside alone: an imported run, or a fusion of such."""
    if name in config.lanes:
        return isinstance(config.lanes[name], ImportLane)
    parts = (section.get(name) or {}).get("lanes", ())
    return bool(parts) and name not in seen and all(_is_given(part, config, section, seen | {name}) for part in parts)


# --- documents and chunks --------------------------------------------------------------------------------------------


def _items(lists: pl.DataFrame, item: str, rank: str) -> pl.DataFrame:
    """A run of `measures.ranking`. Scores are made from the order of ties: a reranked list's own are of two scales."""
    return tie_groups(lists).select(
        "retriever", "query_id", item_id=item, rank=rank, score=-pl.col("tie").cast(pl.Float64)
    )


def _by_document(lists: pl.DataFrame) -> pl.DataFrame:
    seen = documents_seen(tie_groups(lists)).filter("first_of_document")
    return seen.select(
        "retriever", "query_id", item_id="doc_id", rank="doc_rank", score=-pl.col("tie").cast(pl.Float64)
    )


def _ranking(unit: str, run: pl.DataFrame, gold: Relevance, expected: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    evaluate = settings.evaluate
    judged = expected.join(gold.state, on="query_id")
    if judged.is_empty():
        return pl.DataFrame(schema=ROW)
    grid = pl.DataFrame(
        [*((name, k) for name in AT_K for k in evaluate.cuts), *((name, 0) for name in WHOLE)],
        schema={"metric": pl.String, "k": pl.Int64}, orient="row",
    )  # fmt: skip
    parts = [_scored(run, gold, part, settings) for part in judged.partition_by("retriever", maintain_order=True)]
    on = ["retriever", "query_id", "metric", "k"]
    rows = judged.join(grid, how="cross").join(pl.concat(parts), on=on, how="left")
    # Judged queries of which nothing is among the judgments of this unit: no chunk holds a whole unit.
    blank = pl.col("status").is_null() | (pl.col("status") == "no_gold")
    status = (
        pl.when(pl.col("state") != "judged").then("state").when(blank).then(pl.lit("no_relevant")).otherwise("status")
    )
    rows = rows.with_columns(status=status)
    return _rows(rows, unit, {"gold": gold.source, "tie_policy": evaluate.tie_policy}).vstack(
        _tied(rows.filter(pl.col("metric") == "recall"), unit, gold.source, evaluate.tie_policy)
    )


def _scored(run: pl.DataFrame, gold: Relevance, judged: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """All ranking measures of one retriever for its judged queries."""
    evaluate = settings.evaluate
    asked = judged.filter(pl.col("state") == "judged")
    retriever = judged["retriever"][0]
    mine = run.filter(pl.col("retriever") == retriever).join(asked, on="query_id", how="semi").drop("retriever")
    answered = asked.filter(~pl.col("missing")).join(mine, on="query_id", how="anti")
    values = rank_measures(
        mine,
        gold.qrels,
        measures=[*AT_K, *WHOLE],
        ks=evaluate.cuts,
        tie_policy=evaluate.tie_policy,
        rel_level=evaluate.rel_level,
        empty=answered["query_id"].to_list(),
        queries=asked["query_id"].to_list(),
        name=retriever,
    )
    return values.drop("judged", "retrieved").with_columns(retriever=pl.lit(retriever))


def _tied(rows: pl.DataFrame, unit: str, source: str, tie_policy: str) -> pl.DataFrame:
    tied = pl.when(pl.col("value").is_not_null()).then(pl.col("tied_at_cutoff").fill_null(False).cast(pl.Float64))
    rows = rows.with_columns(
        value=tied,
        metric=pl.lit("tied_at_cutoff"),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
    )
    return _rows(rows, unit, {"gold": source, "tie_policy": tie_policy})


# --- evidence --------------------------------------------------------------------------------------------------------


def _evidence(
    lists: pl.DataFrame, pieces: pl.DataFrame, units: pl.DataFrame, judged: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    ranks = first_held(lists, pieces, units, settings.ledger.hold)
    expected = judged.join(_sizes(units), on="query_id", how="left")
    list_key = ["retriever", "query_id"]
    parts = []
    for k in settings.evaluate.cuts:
        held = ranks.group_by(list_key).agg(
            ((pl.col(place) <= k).sum()).cast(pl.Float64).alias(name)
            for place, name in (("place", "numerator"), ("worst", "fewest"), ("best", "most"))
        )
        counted = expected.join(held, on=list_key, how="left").with_columns(
            pl.col("numerator", "fewest", "most").fill_null(0.0), k=pl.lit(k, pl.Int64)
        )
        parts.append(_shares(counted, "recall"))
        parts.append(_any(counted))
    first = ranks.group_by(list_key).agg(pl.col("place", "best", "worst").min())
    parts.append(_reciprocal(expected.join(first, on=list_key, how="left")))
    return pl.concat([_rows(part, "evidence", {}) for part in parts])


def _sizes(units: pl.DataFrame) -> pl.DataFrame:
    return units.filter("eligible").group_by("query_id").agg(denominator=pl.len().cast(pl.Float64))


def _evidence_status(rows: pl.DataFrame) -> pl.DataFrame:
    """Blank the value where there is no evidence to find; say why."""
    status = (
        pl.when(pl.col("state") != "judged")
        .then("state")
        .when("missing")
        .then(pl.lit("missing_run"))
        .otherwise(pl.lit("scored"))
    )
    names = [name for name in ("value", "numerator", "denominator", "low", "high") if name in rows.columns]
    judged = pl.col("state") == "judged"
    return rows.with_columns(status.alias("status"), *(pl.when(judged).then(name).alias(name) for name in names))


def _shares(counted: pl.DataFrame, metric: str) -> pl.DataFrame:
    size = pl.col("denominator")
    rows = counted.with_columns(
        metric=pl.lit(metric), value=pl.col("numerator") / size, low=pl.col("fewest") / size, high=pl.col("most") / size
    )
    return _evidence_status(rows)


def _any(counted: pl.DataFrame) -> pl.DataFrame:
    rows = counted.with_columns(
        ((pl.col(source) > 0).cast(pl.Float64)).alias(name)
        for source, name in (("numerator", "value"), ("fewest", "low"), ("most", "high"))
    ).with_columns(metric=pl.lit("hit"))
    return _evidence_status(rows.drop("numerator", "denominator"))


def _reciprocal(first: pl.DataFrame) -> pl.DataFrame:
    rows = first.with_columns(
        (1.0 / pl.col(source)).fill_null(0.0).alias(name)
        for source, name in (("place", "value"), ("worst", "low"), ("best", "high"))
    ).with_columns(metric=pl.lit("rr"), k=pl.lit(0, pl.Int64))
    return _evidence_status(rows.drop("denominator"))


def _budgets(
    lists: pl.DataFrame,
    pieces: pl.DataFrame,
    units: pl.DataFrame,
    chunks: pl.DataFrame,
    judged: pl.DataFrame,
    settings: Settings,
) -> pl.DataFrame:
    evaluate = settings.evaluate
    spans = get_tokenizer(evaluate.tokenizer).spans
    held = held_within(lists, pieces, units, chunks, evaluate.budgets, spans, settings.ledger.hold)
    budgets = pl.DataFrame({"k": list(evaluate.budgets)}, schema={"k": pl.Int64})
    counted = (
        judged.join(budgets, how="cross")
        .join(_sizes(units), on="query_id", how="left")
        .join(held, left_on=["retriever", "query_id", "k"], right_on=["retriever", "query_id", "budget"], how="left")
        .with_columns(numerator=pl.col("held").fill_null(0).cast(pl.Float64))
    )
    rows = counted.with_columns(metric=pl.lit("recall_b"), value=pl.col("numerator") / pl.col("denominator"))
    return _rows(_evidence_status(rows), "evidence", {"tokenizer": evaluate.tokenizer})


def _rows(rows: pl.DataFrame, unit: str, params: Mapping[str, Any]) -> pl.DataFrame:
    """Columns of `ROW`, in order."""
    constant: dict[str, Any] = {
        **DEFAULTS, "unit": unit, "params": json.dumps(params, sort_keys=True), "item_type": "query",
    }  # fmt: skip
    rows = rows.with_columns(item_id="query_id")
    return rows.select(_column(rows.columns, name, dtype, constant) for name, dtype in ROW.items())


def _column(columns: Iterable[str], name: str, dtype: Any, constant: Mapping[str, Any]) -> pl.Expr:
    source = pl.col(name) if name in columns else pl.lit(constant.get(name))
    return source.cast(dtype).alias(name)
