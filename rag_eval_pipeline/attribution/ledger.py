"""The evidence ledger: for each unit what every stage still held, and the stage that lost it first.

Here: the order of the tests and the rules of first loss (ATTRIBUTION, definitions 5 and 6). What an output holds is said
by the rooms' `trace` doors; what losses cost by `waterfall`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from rag_eval_pipeline.attribution.order import STAGES, UP_TO_FILTERING, RetrieverInfo, shown, unseen
from rag_eval_pipeline.attribution.tables import EvidenceFate, EvidenceLedger, LossWaterfall
from rag_eval_pipeline.attribution.texts import text_tests
from rag_eval_pipeline.attribution.waterfall import unit_slices, waterfall
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import UNIT, holds_together, with_document_ranks
from rag_eval_pipeline.stages.context import evidence as context
from rag_eval_pipeline.stages.embedding import evidence as embedding
from rag_eval_pipeline.stages.filtering import evidence as filtering
from rag_eval_pipeline.stages.fusion import evidence as fusion
from rag_eval_pipeline.stages.indexing import evidence as indexing
from rag_eval_pipeline.stages.reranking import evidence as reranking
from rag_eval_pipeline.stages.retrieval import evidence as retrieval
from rag_eval_pipeline.warehouse.table import conform, polars_schema

PAIR = [*UNIT, "retriever"]
LIST = {
    "query_id": pl.String,
    "retriever": pl.String,
    "rank": pl.Int64,
    "chunk_id": pl.String,
    "doc_id": pl.String,
    "score": pl.Float64,
}
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
    parts = Parts(frames, units, pieces, settings)
    hidden = unseen(frames)
    ks = list(settings.evaluate.cuts)
    fate = _fates(lists, flags, parts, hidden, ks, settings)
    stages = {name: shown(name, info, hidden) for name, info in retrievers.items()}
    slices = unit_slices(units, queries, frames.get("documents"), settings.evaluate.slices)
    table = waterfall(fate, slices, stages, hidden, lists.stale)
    text_rows = text_rows.filter(~pl.col("stage").is_in(hidden))
    rows = pl.concat([_typed(part) for part in (text_rows, *parts.rows(hidden), *lists.rows(hidden))])
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
        "detail": pl.lit("{}"),
    }
    schema = polars_schema(EvidenceLedger)
    missing = [value.alias(name) for name, value in blank.items() if name not in rows.columns]
    return rows.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


class Parts:
    """The tests on chunks: together, alone, admitted, encoded."""

    def __init__(
        self, frames: Mapping[str, pl.DataFrame], units: pl.DataFrame, pieces: pl.DataFrame, settings: Settings
    ) -> None:
        self._frames, self._units, self._pieces = frames, units, pieces
        self._config = settings.ledger

    def _held(self, pieces: pl.DataFrame, name: str) -> pl.DataFrame:
        return holds_together(pieces, self._units, self._config.hold).rename({"held": name})

    @cached_property
    def admitted(self) -> pl.DataFrame:
        """Pieces that the applied predicate admits."""
        if not {"applied_filters", "scopes"} <= self._frames.keys():
            return self._pieces
        return filtering.trace(self._units, {"evidence_pieces": self._pieces}, self._frames, self._config)

    @cached_property
    def encoded(self) -> pl.DataFrame:
        """Admitted pieces as far as the encoder saw them."""
        if not {"embeddings", "chunks"} <= self._frames.keys():
            return self.admitted
        before = {"evidence_pieces": self.admitted, "chunks": self._frames["chunks"]}
        return embedding.trace(self._units, before, self._frames, self._config)

    @cached_property
    def tests(self) -> pl.DataFrame:
        """Per unit: chunking, alone, filtering, embedding; `chunk_cause`, and the filter's producer and scope."""
        chunked = self._held(self._pieces, "chunking").rename({"whole": "alone"})
        admitted = self._held(self.admitted, "filtering").drop("whole")
        encoded = self._held(self.encoded, "embedding").drop("whole")
        return (
            chunked.join(admitted, on=UNIT, maintain_order="left")
            .join(self._causes, on=UNIT, maintain_order="left")
            .join(encoded, on=UNIT, maintain_order="left")
            .join(self._producers, on="query_id", how="left", maintain_order="left")
        )

    @property
    def _causes(self) -> pl.DataFrame:
        """Why chunks, together, don't hold a unit: its characters are there but a token is `cut`, or they were `dropped`."""
        none = pl.lit([], dtype=pl.List(pl.Int64))
        units = self._units.with_columns(none.alias("critical_from"), none.alias("critical_to"))
        there = holds_together(self._pieces, units, self._config.hold)
        cause = pl.when("held").then(pl.lit("cut")).otherwise(pl.lit("dropped"))
        return there.select(*UNIT, cause.alias("chunk_cause"))

    @cached_property
    def _producers(self) -> pl.DataFrame:
        schema = {"query_id": pl.String, "producer": pl.String, "scope_id": pl.String}
        if "applied_filters" not in self._frames:
            return pl.DataFrame(schema=schema)
        return self._frames["applied_filters"].select(list(schema))

    def rows(self, hidden: tuple[str, ...]) -> list[pl.DataFrame]:
        """The ledger's rows of chunking, filtering and embedding."""
        places = (
            self._pieces.with_columns(pl.col("positions").list.min().alias("first"))
            .sort([*UNIT, "carrier", "first", "chunk_id"])
            .group_by(UNIT, maintain_order=True)
            .agg(
                pl.col("chunk_id").unique(maintain_order=True).alias("chunk_ids"),
                pl.col("first").drop_nulls().alias("starts"),
                pl.col("whole").sum().alias("whole_chunks"),
            )
        )
        tests = self.tests.join(places, on=UNIT, how="left", maintain_order="left")
        split = pl.when(~pl.col("chunking")).then(pl.lit("lost")).when("alone").then(pl.lit("held"))
        result = [
            tests.select(
                *UNIT,
                pl.lit("chunking").alias("stage"),
                pl.col("chunking").alias("held"),
                split.otherwise(pl.lit("degraded")).alias("state"),
                pl.struct("chunk_ids", "starts", "whole_chunks").struct.json_encode().alias("detail"),
            ),
            tests.select(
                *UNIT,
                pl.lit("filtering").alias("stage"),
                pl.col("filtering").alias("held"),
                _held_or_lost("filtering"),
                pl.struct("producer", "scope_id").struct.json_encode().alias("detail"),
            ),
            tests.join(self._encoded_share, on=UNIT, how="left", maintain_order="left").select(
                *UNIT,
                pl.lit("embedding").alias("stage"),
                pl.col("embedding").alias("held"),
                _held_or_lost("embedding"),
                pl.struct("encoded_tokens", "tokens").struct.json_encode().alias("detail"),
            ),
        ]
        return [rows for rows in result if rows["stage"].first() not in hidden]

    @property
    def _encoded_share(self) -> pl.DataFrame:
        """Word pieces seen, and all, of the chunks that hold some of the unit."""
        table = self._frames.get("embeddings")
        columns = {"chunk_id": pl.String, "encoded_tokens": pl.Int64, "tokens": pl.Int64}
        known = table.select(list(columns)) if table is not None else pl.DataFrame(schema=columns)
        found = self.admitted.select(*UNIT, "chunk_id").unique().join(known, on="chunk_id")
        return found.group_by(UNIT).agg(pl.col("encoded_tokens").sum(), pl.col("tokens").sum())


def _held_or_lost(test: str) -> pl.Expr:
    return pl.when(pl.col(test)).then(pl.lit("held")).otherwise(pl.lit("lost")).alias("state")


class Lists:
    """Hold ranks of all lists: real, exact, final; and the search test."""

    def __init__(
        self,
        frames: Mapping[str, pl.DataFrame],
        retrievers: Mapping[str, RetrieverInfo],
        units: pl.DataFrame,
        pieces: pl.DataFrame,
        settings: Settings,
    ) -> None:
        self._frames, self.retrievers, self.units = frames, retrievers, units
        self._pieces, self._settings = pieces, settings

    def _table(self, *names: str) -> pl.DataFrame:
        found = [
            self._frames[name].select(pl.col(c).cast(t) for c, t in LIST.items())
            for name in names
            if name in self._frames
        ]
        lists = pl.concat([pl.DataFrame(schema=LIST), *found])
        return lists.join(self.units.select("query_id").unique(), on="query_id", how="semi")

    @cached_property
    def real(self) -> pl.DataFrame:
        """Lists before reranking."""
        if "runs" not in self._frames:
            return self.final
        return self._table("runs", "fused_runs")

    @cached_property
    def exact(self) -> pl.DataFrame:
        """The same lists over exact lanes; a retriever without such a list is exact already."""
        exact = self._table("exact_runs", "exact_fused_runs")
        return pl.concat([exact, self.real.join(exact.select("retriever").unique(), on="retriever", how="anti")])

    @cached_property
    def final(self) -> pl.DataFrame:
        """Lists as they are served."""
        if "ranked_runs" in self._frames:
            return self._table("ranked_runs")
        return self._table("runs", "fused_runs")

    def _ranks(self, lists: pl.DataFrame) -> pl.DataFrame:
        before = {"evidence_pieces": self._pieces}
        return retrieval.trace(self.units, before, {"runs": lists}, self._settings.ledger)

    @cached_property
    def real_ranks(self) -> pl.DataFrame:
        """Hold ranks before reranking."""
        return self._ranks(self.real)

    @cached_property
    def exact_ranks(self) -> pl.DataFrame:
        """Hold ranks over exact lanes."""
        return self._ranks(self.exact)

    @cached_property
    def final_ranks(self) -> pl.DataFrame:
        """Hold ranks in what is served."""
        return self._ranks(self.final)

    @cached_property
    def lane_ranks(self) -> pl.DataFrame:
        """Best rank among a fused list's lanes, under the fused list's name; with the ranks by lane."""
        links = pl.DataFrame(
            [(name, lane) for name, info in self.retrievers.items() if info.is_fused(name) for lane in info.lanes],
            schema={"retriever": pl.String, "lane": pl.String},
            orient="row",
        )
        return (
            self.real_ranks.rename({"retriever": "lane"})
            .join(links, on="lane")
            .sort([*PAIR, "lane"])
            .group_by(PAIR, maintain_order=True)
            .agg(
                pl.col("hold_rank").min(),
                pl.col("item_rank").min(),
                pl.struct("lane", "hold_rank").alias("lanes"),
            )
        )

    @cached_property
    def found(self) -> pl.DataFrame:
        """The `search` test: query_id, evidence_id, retriever, held."""
        parts = []
        for name, info in sorted(self.retrievers.items()):
            lanes = [self._cut(lane) for lane in info.sources(name)]
            held = retrieval.found(
                self.units, {"evidence_pieces": self._pieces}, {"runs": pl.concat(lanes)}, self._settings.ledger
            )
            parts.append(held.with_columns(retriever=pl.lit(name)))
        return pl.concat(
            [pl.DataFrame(schema=_schema(PAIR) | {"held": pl.Boolean}), *(p.select(*PAIR, "held") for p in parts)]
        )

    def _cut(self, lane: str) -> pl.DataFrame:
        items = self.exact.filter(pl.col("retriever") == lane)
        info = self.retrievers.get(lane)
        if info is None or info.depth is None:
            return items
        if info.depth_unit == "documents":
            return with_document_ranks(items).filter(pl.col("document_rank") <= info.depth).select(list(LIST))
        return items.filter(pl.col("rank") <= info.depth)

    @cached_property
    def sizes(self) -> pl.DataFrame:
        """The reranker's input size by query and retriever: n. No row where none follows."""
        schema: dict[str, Any] = {"query_id": pl.String, "retriever": pl.String, "n": pl.Int64}
        reranked = [name for name, info in self.retrievers.items() if info.reranked]
        if "ranked_runs" not in self._frames or not reranked:
            return pl.DataFrame(schema=schema)
        return (
            self._frames["ranked_runs"]
            .filter(pl.col("retriever").is_in(reranked) & pl.col("input_size").is_not_null())
            .group_by("query_id", "retriever")
            .agg(pl.col("input_size").max().alias("n"))
            .cast(schema)  # type: ignore[arg-type]
        )

    @cached_property
    def stale(self) -> dict[str, int]:
        """Listed items by retriever whose chunk is not a current one: their document was removed after indexing."""
        current = self._frames.get("chunks")
        if current is None:
            return {}
        current = current.select("chunk_id")
        if "dedup" in self._frames:
            removed = self._frames["dedup"].filter(~pl.col("kept")).select("doc_id")
            current = self._frames["chunks"].join(removed, on="doc_id", how="anti").select("chunk_id")
        counts = self.final.join(current, on="chunk_id", how="anti").group_by("retriever").len()
        return {name: int(count) for name, count in counts.iter_rows()}

    @cached_property
    def context(self) -> pl.DataFrame:
        """Whether the assembled context holds a unit: query_id, evidence_id, retriever, context_held."""
        schema = _schema(PAIR) | {"context_held": pl.Boolean}
        contexts = self._frames.get("contexts")
        if contexts is None or contexts.is_empty():
            return pl.DataFrame(schema=schema)
        held = context.trace(self.units, {"evidence_pieces": self._pieces}, self._frames, self._settings.ledger)
        served = contexts.select("retriever").unique()
        return held.join(served, how="cross").rename({"held": "context_held"}).select(list(schema))

    def rows(self, hidden: tuple[str, ...]) -> list[pl.DataFrame]:
        """The ledger's rows of search to rank, and of the context."""
        names = sorted(self.retrievers)
        every = self.units.select(UNIT).join(
            pl.DataFrame({"retriever": names}, schema=_schema(["retriever"])), how="cross"
        )
        scored = self.final.select("query_id", "retriever", pl.col("rank").alias("item_rank"), "score")
        exact = self.exact_ranks.select(*PAIR, pl.col("hold_rank").alias("exact_rank"))
        real = self.real_ranks.select(*PAIR, pl.col("hold_rank").alias("real_rank"))
        lanes = self.lane_ranks.select(*PAIR, "lanes")
        final = self.final_ranks.join(scored, on=["query_id", "retriever", "item_rank"], how="left")
        wide = every
        for part in (
            self.found, exact, real, lanes, final.select(*PAIR, "hold_rank", "score"), self.context,
        ):  # fmt: skip
            wide = wide.join(part, on=PAIR, how="left", maintain_order="left")
        specs = {
            "search": (pl.col("held"), "exact_rank", ["exact_rank"]),
            "indexing": (pl.col("real_rank").is_not_null(), "real_rank", ["exact_rank", "real_rank"]),
            "fusion": (pl.col("real_rank").is_not_null(), "real_rank", ["real_rank", "lanes"]),
            "reranking": (pl.col("hold_rank").is_not_null(), "hold_rank", ["real_rank", "hold_rank"]),
            "rank": (pl.col("hold_rank").is_not_null(), "hold_rank", ["hold_rank", "score"]),
            "context": (pl.col("context_held"), None, []),
        }
        result = []
        for stage, (held, rank, details) in specs.items():
            having = [
                name
                for name, info in self.retrievers.items()
                if stage == "context" or stage in shown(name, info, hidden)
            ]
            rows = wide.filter(pl.col("retriever").is_in(having) & held.is_not_null())
            state = pl.when(held).then(pl.lit("held")).otherwise(pl.lit("lost")).alias("state")
            place = pl.col(rank) if rank else pl.lit(None, dtype=pl.Int64)
            detail = pl.struct(details).struct.json_encode() if details else pl.lit("{}")
            result.append(
                rows.select(
                    *PAIR,
                    pl.lit(stage).alias("stage"),
                    held.alias("held"),
                    state,
                    place.alias("hold_rank"),
                    detail.alias("detail"),
                )
            )
        return result


def _schema(names: list[str]) -> dict[str, type[pl.DataType]]:
    return dict.fromkeys(names, pl.String)


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
        .with_columns((too_low & ~pl.col("alone") & pl.lit(cut_seen)).alias("cut"))
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
        pl.when(pl.col("k") == settings.evaluate.serve_k).then("context_held").alias("context_held"),
    )


def _applies(stage: str, retrievers: Mapping[str, RetrieverInfo], hidden: tuple[str, ...]) -> pl.Expr:
    return pl.col("retriever").is_in([name for name, info in retrievers.items() if stage in shown(name, info, hidden)])


def _tested(lists: Lists, flags: pl.DataFrame, parts: Parts, ks: list[int], settings: Settings) -> pl.DataFrame:
    """One row a unit, retriever and k, with a Boolean for every stage: the tests apart from first-loss rules."""
    names = pl.DataFrame({"retriever": sorted(lists.retrievers)}, schema=_schema(["retriever"]))
    cuts = pl.DataFrame({"k": ks}, schema={"k": pl.Int64})
    rows = (
        lists.units.select(*UNIT, "eligible")
        .join(flags, on=UNIT, maintain_order="left")
        .join(parts.tests, on=UNIT, maintain_order="left")
        .join(names, how="cross")
        .join(lists.found.rename({"held": "search"}), on=PAIR, how="left", maintain_order="left")
        .join(lists.sizes, on=["query_id", "retriever"], how="left", maintain_order="left")
        .join(lists.context, on=PAIR, how="left", maintain_order="left")
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
        if any(not retrievers[lane].dense for lane in info.lanes if lane in retrievers)
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
