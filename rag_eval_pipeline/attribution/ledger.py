"""The evidence ledger: for each unit what every stage still held, and the stage that lost it first.

Here: the order of the tests and the rules of first loss (ATTRIBUTION, definitions 5 and 6). What an output holds is said
by the rooms' `trace` doors; what losses cost by `waterfall`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from rag_eval_pipeline.attribution.lists import PAIR, QUERY, Lists, names
from rag_eval_pipeline.attribution.order import STAGES, UP_TO_FILTERING, RetrieverInfo, leaves, shown, unseen
from rag_eval_pipeline.attribution.parts import Parts
from rag_eval_pipeline.attribution.tables import EvidenceFate, EvidenceLedger, LossWaterfall
from rag_eval_pipeline.attribution.texts import text_tests
from rag_eval_pipeline.attribution.waterfall import unit_slices, waterfall
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import UNIT
from rag_eval_pipeline.stages.fusion import evidence as fusion
from rag_eval_pipeline.stages.indexing import evidence as indexing
from rag_eval_pipeline.stages.reranking import evidence as reranking
from rag_eval_pipeline.warehouse.table import conform, polars_schema

TOO_LOW = ("search", "fusion", "rank")
"""Where a unit that no single chunk holds was lost because it was cut."""


class Ledger(NamedTuple):
    """Frames of `evidence_ledger`, `evidence_fate`, `loss_waterfall`."""

    ledger: pl.DataFrame
    fate: pl.DataFrame
    waterfall: pl.DataFrame


def build_ledger(
    frames: Mapping[str, pl.DataFrame],
    units: pl.DataFrame,
    anchors: pl.DataFrame,
    pieces: pl.DataFrame,
    settings: Settings,
    retrievers: Mapping[str, RetrieverInfo],
    queries: pl.DataFrame,
) -> Ledger:
    """Follow every unit through every stage.

    Args:
        frames: stage tables by name, those that there are; a stage whose tables are absent has no row and is named in
            `unseen_stages`.
        units: evidence_units.
        anchors: evidence_anchors.
        pieces: evidence_pieces.
        settings: `ledger` (hold) and `evaluate` (k, serve_k, slices).
        retrievers: every lane and fused list that is measured.
        queries: gold queries, for slices.
    """
    lists = Lists(frames, retrievers, units, pieces, settings)
    flags, text_rows = text_tests(units, anchors, frames)
    parts = Parts(frames, units, pieces, settings.ledger)
    hidden = unseen(frames)
    ks = list(settings.evaluate.cuts)
    fate = _fates(lists, flags, parts, hidden, ks, settings)
    stages = {name: shown(name, info, hidden) for name, info in retrievers.items()}
    slices = unit_slices(units, queries, frames.get("documents"), settings.evaluate.slices)
    table = waterfall(fate, slices, stages, hidden, lists.stale)
    text_rows = text_rows.filter(~pl.col("stage").is_in(hidden))
    intact = parts.tests.select(*UNIT, intact="chunking_intact")
    rows = pl.concat([_typed(part) for part in (text_rows, *parts.rows(hidden), *lists.rows(hidden, intact))])
    wanted = list(polars_schema(LossWaterfall))
    return Ledger(
        conform(EvidenceLedger, rows),
        conform(EvidenceFate, fate.select(list(polars_schema(EvidenceFate)))),
        conform(LossWaterfall, table.select(wanted)),
    )


def _typed(rows: pl.DataFrame) -> pl.DataFrame:
    blank = {
        "retriever": pl.lit(""),
        "similarity": pl.lit(None, dtype=pl.Float64),
        "hold_rank": pl.lit(None, dtype=pl.Int64),
        "rescued": pl.lit(False),
        "detail": pl.lit("{}"),
    }
    schema = polars_schema(EvidenceLedger)
    missing = [value.alias(name) for name, value in blank.items() if name not in rows.columns]
    return rows.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _fates(
    lists: Lists, flags: pl.DataFrame, parts: Parts, hidden: tuple[str, ...], ks: list[int], settings: Settings
) -> pl.DataFrame:
    tested = _tested(lists, flags, parts, ks, settings).with_columns(
        pl.when(_applies(stage, lists.retrievers, hidden)).then(pl.col(stage)).otherwise(True).alias(stage)
        for stage in STAGES
    )
    failing = pl.coalesce(*[pl.when(~pl.col(stage)).then(pl.lit(stage)) for stage in STAGES], pl.lit("served"))
    too_low = pl.col("failing").is_in(TOO_LOW)
    cut_seen, parsing_seen = "chunking" not in hidden, "parsing" not in hidden
    judged = (
        tested.with_columns(pl.when("served").then(pl.lit("served")).otherwise(failing).alias("failing"))
        .with_columns((too_low & ~pl.col("chunking_alone") & pl.lit(cut_seen)).alias("cut"))
        .with_columns(((too_low | pl.col("cut")) & pl.col("scattered") & pl.lit(parsing_seen)).alias("reading_order"))
        .with_columns(
            pl.when(~pl.col("eligible"))
            .then(pl.lit("ineligible"))
            .when("reading_order")
            .then(pl.lit("parsing"))
            .when("cut")
            .then(pl.lit("chunking"))
            .otherwise("failing")
            .alias("first_loss_stage")
        )
    )
    failed_early = pl.any_horizontal(~pl.col(stage) for stage in UP_TO_FILTERING)
    detail = pl.struct("rank_before", "rank_after", "exact_rank", "n", "score_at_k").struct.json_encode()
    return judged.with_columns(
        pl.col("rank_after").alias("rank"),
        _cause(lists.retrievers).alias("cause"),
        (pl.col("served") & pl.col("eligible") & failed_early).alias("impossible"),
        detail.alias("detail"),
        (
            pl.col("served") & pl.col("copied").fill_null(False) & ~(pl.col("own_rank") <= pl.col("k")).fill_null(False)
        ).alias("rescued"),
        *(
            pl.when(pl.col("k") == settings.evaluate.serve_k).then(name).alias(name)
            for name in ("context_held", "answer_used", "answer_cause")
        ),
    )


def _applies(stage: str, retrievers: Mapping[str, RetrieverInfo], hidden: tuple[str, ...]) -> pl.Expr:
    return pl.col("retriever").is_in([name for name, info in retrievers.items() if stage in shown(name, info, hidden)])


def _tested(lists: Lists, flags: pl.DataFrame, parts: Parts, ks: list[int], settings: Settings) -> pl.DataFrame:
    """One row a unit, retriever and k, with a Boolean for every stage: the tests apart from first-loss rules."""
    every = pl.DataFrame({"retriever": sorted(lists.retrievers)}, schema=names(["retriever"]))
    cuts = pl.DataFrame({"k": ks}, schema={"k": pl.Int64})
    rows = (
        lists.units.select(*UNIT, "eligible")
        .join(flags, on=UNIT, maintain_order="left")
        .join(parts.tests, on=UNIT, maintain_order="left")
        .join(every, how="cross")
        .join(lists.found.rename({"held": "search"}), on=PAIR, how="left", maintain_order="left")
        .join(lists.sizes, on=QUERY, how="left", maintain_order="left")
        .join(lists.context, on=PAIR, how="left", maintain_order="left")
        .join(lists.answer, on=PAIR, how="left", maintain_order="left")
        .join(lists.copied, on=PAIR, how="left", maintain_order="left")
        .join(cuts, how="cross")
    )
    asked = rows.select(*PAIR, "k", "n")
    config = settings.ledger
    real, exact, final = ({"ranks": ranks} for ranks in (lists.real_ranks, lists.exact_ranks, lists.final_ranks))
    index = indexing.trace(asked, exact, real, config).rename({"passed": "indexing"})
    fused = fusion.trace(asked, {"ranks": lists.lane_ranks}, real, config).rename({"passed": "fusion"})
    reranked = reranking.trace(asked, real, final, config).rename({"passed": "reranking"})
    last = lists.final.select("query_id", "retriever", pl.col("rank").alias("k"), pl.col("score").alias("score_at_k"))
    wide = rows.with_columns(index["indexing"], fused["fusion"], reranked["reranking"])
    for ranks, name in (
        (lists.final_ranks, "rank_after"),
        (lists.real_ranks, "rank_before"),
        (lists.exact_ranks, "exact_rank"),
    ):
        wide = wide.join(
            ranks.select(*PAIR, pl.col("hold_rank").alias(name)), on=PAIR, how="left", maintain_order="left"
        )
    served = (pl.col("rank_after") <= pl.col("k")).fill_null(False)
    return (
        wide.join(last, on=["query_id", "retriever", "k"], how="left", maintain_order="left")
        .with_columns(served.alias("served"))
        .with_columns(pl.col("served").alias("rank"), pl.col("search").fill_null(False))
    )


def _cause(retrievers: Mapping[str, RetrieverInfo]) -> pl.Expr:
    sparse = [
        name
        for name, info in retrievers.items()
        if any(not retrievers[lane].dense for lane in leaves(name, retrievers) if lane in retrievers)
    ]
    truncated = pl.when(pl.col("retriever").is_in(sparse)).then(pl.lit("possible")).otherwise(pl.lit("truncated"))
    causes: dict[str, pl.Expr] = {
        "source": pl.lit("missing_document"),
        "unanchored": pl.lit("unanchored"),
        "parsing": pl.col("parsing_cause"),
        "cleaning": pl.col("cleaning_cause"),
        "dedup": pl.lit("merged"),
        "pii": pl.col("pii_cause"),
        "chunking": pl.col("chunk_cause"),
        "filtering": pl.col("producer"),
        "embedding": truncated,
        "search": pl.lit("not_found"),
        "indexing": pl.lit("approximate"),
        "fusion": pl.lit("fused_out"),
        "reranking": pl.lit("demoted"),
        "rank": pl.lit("below_k"),
    }
    by_stage = pl.coalesce(pl.when(pl.col("first_loss_stage") == stage).then(cause) for stage, cause in causes.items())
    return (
        pl.when((pl.col("first_loss_stage") == "parsing") & pl.col("reading_order"))
        .then(pl.lit("reading_order"))
        .when((pl.col("first_loss_stage") == "chunking") & pl.col("cut"))
        .then(pl.lit("cut"))
        .otherwise(by_stage)
    )
