"""The ledger's tests on ranked lists: hold ranks of real, exact and final lists, and the search test. Blame: `ledger`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.order import AFTER, RetrieverInfo, leaves, shown
from rag_eval_pipeline.attribution.parts import own_pieces
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import UNIT, with_document_ranks
from rag_eval_pipeline.stages.answering import evidence as answering
from rag_eval_pipeline.stages.context import evidence as context
from rag_eval_pipeline.stages.retrieval import evidence as retrieval

PAIR = [*UNIT, "retriever"]
QUERY = ["query_id", "retriever"]
LIST = {
    "query_id": pl.String,
    "retriever": pl.String,
    "rank": pl.Int64,
    "chunk_id": pl.String,
    "doc_id": pl.String,
    "score": pl.Float64,
}


def names(columns: list[str]) -> dict[str, type[pl.DataType]]:
    """A schema of text columns."""
    return dict.fromkeys(columns, pl.String)


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
        self._queries = units.select("query_id").unique()

    def _table(self, *tables: str) -> pl.DataFrame:
        found = [
            self._frames[name]
            .select(pl.col(c).cast(t) for c, t in LIST.items())
            .join(self._queries, on="query_id", how="semi")
            for name in tables
            if name in self._frames
        ]
        return pl.concat([pl.DataFrame(schema=LIST), *found])

    @cached_property
    def real(self) -> pl.DataFrame:
        """Lists before reranking."""
        return self._table("runs", "fused_runs") if "runs" in self._frames else self.final

    @cached_property
    def exact(self) -> pl.DataFrame:
        """The same lists over exact lanes; a retriever without such a list is exact already."""
        exact = self._table("exact_runs", "exact_fused_runs")
        return pl.concat([exact, self.real.join(exact.select("retriever").unique(), on="retriever", how="anti")])

    @cached_property
    def final(self) -> pl.DataFrame:
        """Lists as they are served."""
        return self._table("ranked_runs") if "ranked_runs" in self._frames else self._table("runs", "fused_runs")

    def _ranks(self, lists: pl.DataFrame, pieces: pl.DataFrame | None = None) -> pl.DataFrame:
        before = {"evidence_pieces": self._pieces if pieces is None else pieces}
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
    def copied(self) -> pl.DataFrame:
        """Units that a copy has a piece of, by retriever, with `own_rank`: where the final list holds them without copies."""
        units, own = own_pieces(self._pieces, self.units)
        ranks = self._ranks(self.final, own).select(*PAIR, pl.col("hold_rank").alias("own_rank"))
        every = units.join(self._every_retriever, how="cross")
        return every.join(ranks, on=PAIR, how="left").with_columns(copied=pl.lit(True))

    @property
    def _every_retriever(self) -> pl.DataFrame:
        return pl.DataFrame({"retriever": sorted(self.retrievers)}, schema=names(["retriever"]))

    @property
    def _links(self) -> pl.DataFrame:
        """retriever, lane: each retriever with the lanes that search for it, at any depth; itself where it searches."""
        pairs = [(name, lane) for name in sorted(self.retrievers) for lane in leaves(name, self.retrievers)]
        return pl.DataFrame(pairs, schema=names(["retriever", "lane"]), orient="row")

    @cached_property
    def lane_ranks(self) -> pl.DataFrame:
        """Best rank among the lists that a fused list is made of, under its name; with the ranks by list."""
        pairs = [(name, lane) for name, info in self.retrievers.items() if info.is_fused(name) for lane in info.lanes]
        links = pl.DataFrame(pairs, schema=names(["retriever", "lane"]), orient="row")
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
        """The `search` test: query_id, evidence_id, retriever, held; a row for every unit and retriever."""
        lanes = self._to_depth.select("query_id", "chunk_id", lane="retriever")
        held = retrieval.found(
            self.units, {"evidence_pieces": self._pieces}, {"runs": lanes, "links": self._links}, self._settings.ledger
        )
        every = self.units.select(UNIT).join(self._every_retriever, how="cross")
        return every.join(held, on=PAIR, how="left", maintain_order="left").with_columns(
            pl.col("held").fill_null(False)
        )

    @cached_property
    def _to_depth(self) -> pl.DataFrame:
        """The exact lists of lanes that search, each cut at its depth."""
        lanes = self._links["lane"].unique().sort().to_list()
        depths = {lane: info.depth for lane in lanes if (info := self.retrievers.get(lane)) and info.depth is not None}
        by_document = [lane for lane in depths if self.retrievers[lane].depth_unit == "documents"]
        depth = pl.col("retriever").replace_strict(depths, default=None, return_dtype=pl.Int64)
        items = self.exact.filter(pl.col("retriever").is_in(lanes) & ~pl.col("retriever").is_in(by_document))
        parts = [items.filter(depth.is_null() | (pl.col("rank") <= depth))]
        if by_document:
            ranked = with_document_ranks(self.exact.filter(pl.col("retriever").is_in(by_document)))
            parts.append(ranked.filter(pl.col("document_rank") <= depth).select(list(LIST)))
        return pl.concat(parts)

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
            .group_by(QUERY)
            .agg(pl.col("input_size").max().alias("n"))
            .cast(schema)  # type: ignore[arg-type]
        )

    @cached_property
    def stale(self) -> dict[str, int]:
        """Listed items by retriever whose chunk is not a current one: their document was removed after indexing."""
        current = self._frames.get("chunks")
        if current is None:
            return {}
        current = current.select("chunk_id", "doc_id")
        if "dedup" in self._frames:
            removed = self._frames["dedup"].filter(~pl.col("kept")).select("doc_id")
            current = current.join(removed, on="doc_id", how="anti")
        counts = self.final.join(current, on="chunk_id", how="anti").group_by("retriever").len()
        return {name: int(count) for name, count in counts.iter_rows()}

    @cached_property
    def context(self) -> pl.DataFrame:
        """Whether the assembled context holds a unit: query_id, evidence_id, retriever, context_held."""
        schema = names(PAIR) | {"context_held": pl.Boolean}
        contexts = self._frames.get("contexts")
        if contexts is None or contexts.is_empty():
            return pl.DataFrame(schema=schema)
        held = context.trace(self.units, {"evidence_pieces": self._pieces}, self._frames, self._settings.ledger)
        served = contexts.select("retriever").unique()
        return held.join(served, how="cross").rename({"held": "context_held"}).select(list(schema))

    @cached_property
    def answer(self) -> pl.DataFrame:
        """Whether the answer stands on a unit: query_id, evidence_id, retriever, answer_used, answer_cause.

        No row where nothing answered: no answers at all, or none of them imported.
        """
        schema = names(PAIR) | {"answer_used": pl.Boolean, "answer_cause": pl.String}
        needed = ("answers", "answer_citations", "contexts", "chunks")
        there = all(name in self._frames for name in needed)
        if not there or self._frames["answers"].filter(pl.col("status") != "missing").is_empty():
            return pl.DataFrame(schema=schema)
        before = {**self._frames, "evidence_pieces": self._pieces}
        held = answering.trace(self.units, before, self._frames, self._settings.ledger)
        served = self._frames["contexts"].select("retriever").unique()
        found = held.rename({"held": "answer_used", "why": "answer_cause"})
        return found.join(served, how="cross").select(list(schema))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def rows(self, hidden: tuple[str, ...], intact: pl.DataFrame) -> list[pl.DataFrame]:
        """The ledger's rows of search to rank, of the context and of the answer.

        Args:
            hidden: stages that can't be seen.
            intact: query_id, evidence_id, intact: some chunk has all of the unit.
        """
        wide = self._wide.join(intact, on=UNIT, how="left", maintain_order="left").with_columns(index=self._index)
        listed = pl.col("real_rank").is_not_null()
        served = pl.col("hold_rank").is_not_null()
        specs: dict[str, tuple[pl.Expr, str | None, list[str]]] = {
            "search": (pl.col("held"), "exact_rank", ["exact_rank", "exact"]),
            "indexing": (listed, "real_rank", ["exact_rank", "real_rank", "index"]),
            "fusion": (listed, "real_rank", ["real_rank", "lanes"]),
            "reranking": (served, "hold_rank", ["real_rank", "hold_rank", "n"]),
            "rank": (served, "hold_rank", ["hold_rank", "score", "score_at_k"]),
            "context": (pl.col("context_held"), None, []),
            "answering": (pl.col("answer_used"), None, ["why"]),
        }
        only_copy = pl.col("copied").fill_null(False) & pl.col("own_rank").is_null()
        result = []
        for stage, (held, rank, details) in specs.items():
            having = [
                name for name, info in self.retrievers.items() if stage in AFTER or stage in shown(name, info, hidden)
            ]
            rows = wide.filter(pl.col("retriever").is_in(having) & held.is_not_null())
            whole = pl.when("intact").then(pl.lit("held")).otherwise(pl.lit("degraded"))
            # Copies are told apart in the final list only.
            copy = (held & only_copy) if stage in {"reranking", "rank"} else pl.lit(False)
            result.append(
                rows.select(
                    *PAIR,
                    pl.lit(stage).alias("stage"),
                    held.alias("held"),
                    pl.when(held).then(whole).otherwise(pl.lit("lost")).alias("state"),
                    copy.alias("rescued"),
                    (pl.col(rank) if rank else pl.lit(None, dtype=pl.Int64)).alias("hold_rank"),
                    (pl.struct(details).struct.json_encode() if details else pl.lit("{}")).alias("detail"),
                )
            )
        return result

    @property
    def _wide(self) -> pl.DataFrame:
        """A row for every unit and retriever, with its ranks and scores in all lists."""
        scored = self.final.select("query_id", "retriever", pl.col("rank").alias("item_rank"), "score")
        final = self.final_ranks.join(scored, on=[*QUERY, "item_rank"], how="left").select(*PAIR, "hold_rank", "score")
        wide = self.units.select(UNIT).join(self._every_retriever, how="cross")
        for part in (
            self.found,
            self._by_lane,
            self.exact_ranks.select(*PAIR, exact_rank="hold_rank"),
            self.real_ranks.select(*PAIR, real_rank="hold_rank"),
            self.lane_ranks.select(*PAIR, "lanes"),
            final,
            self.context,
            self.answer.rename({"answer_cause": "why"}),
            self.copied,
        ):
            wide = wide.join(part, on=PAIR, how="left", maintain_order="left")
        for part in (self.sizes, self._scores_at_k):
            wide = wide.join(part, on=QUERY, how="left", maintain_order="left")
        return wide

    @property
    def _scores_at_k(self) -> pl.DataFrame:
        """Scores of the final list at every cut-off."""
        ks = list(self._settings.evaluate.cuts)
        at = self.final.filter(pl.col("rank").is_in(ks)).sort([*QUERY, "rank"])
        item = pl.struct(pl.col("rank").alias("k"), "score").alias("score_at_k")
        return at.group_by(QUERY, maintain_order=True).agg(item)

    @property
    def _by_lane(self) -> pl.DataFrame:
        """Where each lane's exact list has a unit: rank, score there, and rank and score of the list's last item."""
        lists = self._to_depth
        last = lists.group_by(QUERY).agg(
            pl.col("rank").max().alias("last_rank"), pl.col("score").sort_by("rank").last().alias("last_score")
        )
        scored = lists.select("query_id", "retriever", pl.col("rank").alias("item_rank"), "score")
        found = (
            self.exact_ranks.join(scored, on=[*QUERY, "item_rank"])
            .select(*PAIR, pl.col("hold_rank").alias("rank"), "score")
            .rename({"retriever": "lane"})
        )
        asked = self.units.select(UNIT).join(self._links, how="cross")
        told = (
            asked.join(found, on=[*UNIT, "lane"], how="left", maintain_order="left")
            .join(last.rename({"retriever": "lane"}), on=["query_id", "lane"], how="left", maintain_order="left")
            .sort([*PAIR, "lane"])
        )
        item = pl.struct("lane", "rank", "score", "last_rank", "last_score").alias("exact")
        return told.group_by(PAIR, maintain_order=True).agg(item)

    @property
    def _index(self) -> pl.Expr:
        """Kind and parameters of the vector index, the same for every row."""
        table = self._frames.get("index_files")
        known = {"kind", "params"} <= set(table.columns) if table is not None else False
        if table is None or not known or table.is_empty():
            return pl.lit(None, dtype=pl.Struct({"kind": pl.String, "params": pl.String}))
        row = table.select("kind", "params").row(0, named=True)
        return pl.struct(kind=pl.lit(row["kind"]), params=pl.lit(row["params"]))
