"""What the reranking room does: the final list of every retriever, with the first items re-ordered where a reranker is on.

Finding items belongs in `retrieval`. Whether the new order is better: `quality`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.measures.lists import LIST, place, renumber
from rag_eval_pipeline.models.folders import folder_checksum
from rag_eval_pipeline.stages.reranking.lexical import LexicalReranker
from rag_eval_pipeline.stages.reranking.tables import RankedRuns
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform, polars_schema

Frames = Mapping[str, pl.DataFrame]
BUILT_IN = ("lexical", "import", "cross_encoder")
Score = Callable[[str, str | None, list[tuple[str, str | None]]], Sequence[float]]
"""(query, its language, passages with their languages) -> one score a passage, higher is better."""


class Reranker(Protocol):
    """A user's own reranker: `reranker: package.module:Class`, made with `options` as keyword arguments."""

    def rerank(self, query: str, passages: list[str]) -> Sequence[float]:
        """One finite score a passage, higher is better; equal scores keep the order before."""


class RerankingConfig(BaseModel):
    """Section `reranking`; `reranking: null` is a config without a reranker."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    reranker: str | None = Field(
        None, description="lexical | import | cross_encoder | package.module:Class; null: none"
    )
    lanes: tuple[str, ...] | None = Field(
        default=None, description="Retrievers that are reranked; in corpus.yaml null means the served one"
    )
    depth: int = Field(default=50, ge=1, description="Items that the reranker sees")
    model: str | None = Field(default=None, description="Folder of a cross-encoder")
    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of an own class")

    @model_validator(mode="after")
    def _known(self) -> RerankingConfig:
        if self.reranker is not None and self.reranker not in BUILT_IN and not is_import_path(self.reranker):
            raise ValueError(
                f"reranker {self.reranker!r} is none of {', '.join(BUILT_IN)}, and no import path package.module:Class"
            )
        if self.reranker == "cross_encoder" and not self.model:
            raise ValueError(
                "reranker cross_encoder needs `model`: the folder of a sentence-transformers cross-encoder"
            )
        return self


CONFIG = RerankingConfig


def identity(config: RerankingConfig) -> dict[str, Any]:
    """Checksum of the cross-encoder that is read from disk."""
    return {"model": folder_checksum(str(config.model))} if config.reranker == "cross_encoder" else {}


def run(frames: Frames, config: RerankingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """All retrievers' final lists. Those without a reranker pass through."""
    before = lists_before(frames)
    chosen = reranked(before, config)
    untouched = before.filter(~pl.col("retriever").is_in(chosen)).with_columns(
        rank_before="rank", input_size=pl.lit(None, pl.Int64)
    )
    parts = [untouched.select(list(polars_schema(RankedRuns)))]
    if chosen and config.reranker == "import":
        parts += [_imported(name, before.filter(pl.col("retriever") == name), frames) for name in chosen]
    elif chosen:
        score = scorer(frames["chunks"], config)
        lists = before.filter(pl.col("retriever").is_in(chosen))
        parts.append(
            rerank(lists, frames, config.depth, score, lambda done, total: runtime.progress("reranking", done, total))
        )
    return {"ranked_runs": conform(RankedRuns, pl.concat(parts))}


def lists_before(frames: Frames) -> pl.DataFrame:
    """The lists that the stage is given, lanes and fused ones."""
    return pl.concat([frames["runs"], frames["fused_runs"]]).join(
        frames["prepared_queries"].select("query_id"), on="query_id", how="semi"
    )


def reranked(before: pl.DataFrame, config: RerankingConfig) -> list[str]:
    """Retrievers that a reranker re-orders."""
    if config.reranker is None:
        return []
    there = before["retriever"].unique().sort().to_list()
    return there if config.lanes is None else sorted(config.lanes)


def scorer(chunks: pl.DataFrame, config: RerankingConfig) -> Score:
    """The reranker of the config, as a function. Models are loaded here."""
    if config.reranker == "lexical":
        return LexicalReranker(chunks).scores
    if config.reranker == "cross_encoder":
        return _cross_encoder(str(config.model))
    own = load(str(config.reranker))(**config.options)
    if hasattr(own, "bind"):  # one that wraps another reranker needs what that one is made of
        return own.bind(chunks)
    return lambda query, _, passages: own.rerank(query, [text for text, _ in passages])


def _cross_encoder(model: str) -> Score:
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(model, local_files_only=True, device="cpu")

    def scores(query: str, _: str | None, passages: list[tuple[str, str | None]]) -> list[float]:
        # One query's pairs are one batch, whatever else is asked: its scores depend on nothing but its candidates.
        pairs = [(query, text) for text, _ in passages]
        return [float(value) for value in encoder.predict(pairs, batch_size=len(pairs), show_progress_bar=False)]

    return scores


def rerank(
    lists: pl.DataFrame,
    frames: Frames,
    depth: int,
    score: Score,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pl.DataFrame:
    """Re-order the first `depth` items of each list; the others follow in their order, without a score of the new scale.

    Equal scores keep the order before. A chunk that is not in `chunks` (a stale index) goes behind all others that were seen.
    """
    queries = frames["prepared_queries"].select("query_id", "language", query="text")
    texts = frames["chunks"].select("chunk_id", spoken="language", text=pl.col("prefix") + pl.col("text"))
    seen = lists.filter(pl.col("rank") <= depth).sort(*LIST, "rank")
    seen = seen.join(queries, on="query_id", how="left", maintain_order="left").join(
        texts, on="chunk_id", how="left", maintain_order="left"
    )
    scored = pl.concat([seen.head(0).with_columns(new=pl.lit(None, pl.Float64)), *_scored(seen, score, progress)])
    head = scored.with_columns(
        rank_before="rank",
        input_size=pl.len().over(LIST).cast(pl.Int64),
        order=-pl.col("new").fill_null(float("-inf")),
        score="new",
    )
    sizes = head.select(*LIST, "input_size").unique()
    tail = lists.filter(pl.col("rank") > depth).join(sizes, on=list(LIST), how="left").with_columns(
        rank_before="rank", order=pl.lit(None, pl.Float64), score=pl.lit(None, pl.Float64)
    )  # fmt: skip
    columns = [*polars_schema(RankedRuns), "order"]
    both = pl.concat([head.select(columns), tail.select(columns)]).sort(*LIST, "order", "rank_before", nulls_last=True)
    return both.with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(LIST)).drop("order")


def _scored(seen: pl.DataFrame, score: Score, progress: Callable[[int, int], None]) -> Iterator[pl.DataFrame]:
    groups = seen.partition_by(*LIST, maintain_order=True)
    for done, part in enumerate(groups, 1):
        known = part.filter(pl.col("text").is_not_null())
        first = part.row(0, named=True)
        values = (
            list(score(first["query"], first["language"], list(known.select("text", "spoken").iter_rows())))
            if known.height
            else []
        )
        where = f"reranker, retriever {first['retriever']}, query {first['query_id']}"
        if len(values) != known.height:
            raise ValueError(
                f"{where}: {len(values)} scores for {known.height} passages; give one a passage, in their order"
            )
        if odd := [value for value in values if not math.isfinite(value)]:
            raise ValueError(f"{where}: {len(odd)} scores are NaN or infinite; give finite numbers")
        new = pl.DataFrame({"chunk_id": known["chunk_id"], "new": pl.Series(values, dtype=pl.Float64)})
        rounded = new.with_columns(pl.col("new").cast(pl.Float32).cast(pl.Float64))
        yield part.join(rounded, on="chunk_id", how="left", maintain_order="left")
        progress(done, len(groups))


def _imported(name: str, before: pl.DataFrame, frames: Frames) -> pl.DataFrame:
    """A list that the user's own reranker made: outputs/runs/<lane>, and what it was made of.

    The order before is outputs/runs/<lane>.before_rerank.jsonl, else this pipeline's own list. A query that the imported run
    lacks keeps its order before, without an input size.
    """
    after = _given("output:runs", name, frames)
    if after is None:
        raise ValueError(
            f"reranking imports lane {name!r}: outputs/runs/{name}.trec or .jsonl is absent or empty; its order before may "
            f"stand in outputs/runs/{name}.before_rerank.jsonl"
        )
    source = imported_before(name, before, frames)
    origin = source.select("query_id", "chunk_id", rank_before="rank")
    sizes = source.group_by("query_id").agg(input_size=pl.len().cast(pl.Int64))
    done = (
        after.with_columns(retriever=pl.lit(name))
        .join(origin, on=["query_id", "chunk_id"], how="left")
        .join(sizes, on="query_id", how="left")
        .with_columns(pl.col("input_size").fill_null(pl.len().over("query_id").cast(pl.Int64)))
    )
    kept = source.join(after.select("query_id"), on="query_id", how="anti").with_columns(
        rank_before="rank", input_size=pl.lit(None, pl.Int64)
    )
    columns = list(polars_schema(RankedRuns))
    return renumber(pl.concat([done.select(columns), kept.select(columns)]))


def imported_before(name: str, before: pl.DataFrame, frames: Frames) -> pl.DataFrame:
    """The lists that an imported reranker was given: outputs/runs/<lane>.before_rerank.jsonl, else this pipeline's own."""
    given = _given("output:runs_before_rerank", name, frames)
    return before if given is None else given.with_columns(retriever=pl.lit(name))


def _given(source: str, name: str, frames: Frames) -> pl.DataFrame | None:
    rows = frames.get(source)
    mine = rows.filter(pl.col("run") == name) if rows is not None else None
    if mine is None or mine.is_empty():
        return None
    asked = mine.join(frames["prepared_queries"].select("query_id"), on="query_id", how="semi")
    return place(asked, frames["chunks"], frames["documents"], name)
