"""What the retrieval room does: for each lane and query, a list of chunks.

Lanes are independent: `run_lane` makes one from frames, so that each can be kept under its own fingerprint. Mixing lanes
belongs in `fusion`, re-ordering in `reranking`, and who may see what in `filtering`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.measures.lists import RUN, DepthUnit, ListError, check, cut, empty, order, place
from rag_eval_pipeline.stages.retrieval.lexical import Bm25
from rag_eval_pipeline.stages.retrieval.scopes import Scopes, boosted, top
from rag_eval_pipeline.stages.retrieval.tables import ExactRuns, Runs
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

Frames = Mapping[str, pl.DataFrame]
BLOCK = 64
"""Queries searched at a time: bounds the score matrix."""


class Searcher(Protocol):
    """A user's own lane: `{kind: package.module:Class, options: {…}}`. It is made with its options as keyword arguments."""

    def search(self, queries: pl.DataFrame, chunks: pl.DataFrame, scopes: pl.DataFrame, depth: int) -> pl.DataFrame:
        """Find chunks.

        Args:
            queries: query_id, text, language, principal.
            chunks: the table `chunks`; the indexed text is prefix + text.
            scopes: query_id, everything, doc_ids: what each query may be given. Respecting it is the searcher's duty; what
                it gives beyond is counted as an entitlement violation, not taken out.
            depth: items that a list should have.

        Returns:
            query_id, chunk_id, score: finite, higher is better; no chunk twice in a list. Ties go to the smaller chunk_id.
        """


class _Lane(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    depth: int = Field(default=100, ge=1)
    depth_unit: DepthUnit = "chunks"


class Bm25Lane(_Lane):
    """BM25 over prefix + text, analysed by language."""

    kind: Literal["bm25"] = "bm25"
    k1: float = Field(default=1.2, ge=0)
    b: float = Field(default=0.75, ge=0, le=1)
    stemming: str = "auto"
    stop_words: str = "auto"


class DenseLane(_Lane):
    """Inner product of unit vectors, through the index that `indexing` built; a chunk counts by its best vector."""

    kind: Literal["dense"] = "dense"


class ImportLane(BaseModel):
    """A list that the user's own system made: outputs/runs/<run>.trec or .jsonl, of chunk ids or document ids.

    It is taken as it is: neither filtered nor cut, so that what it wrongly shows can be counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["import"] = "import"
    run: str
    order: Literal["rank", "score"] = "rank"
    before_rerank: bool = Field(
        default=False,
        description="Take outputs/runs/<run>.before_rerank.jsonl; `reranking: {reranker: import}` then takes <run>",
    )
    depth: int | None = Field(default=None, ge=1)
    depth_unit: DepthUnit = "chunks"


class ClassLane(_Lane):
    """A user's own class, see `Searcher`."""

    kind: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("kind")
    @classmethod
    def _is_import_path(cls, kind: str) -> str:
        if not is_import_path(kind):
            raise ValueError(
                f"kind {kind!r} is none of bm25, dense, import, rrf, convex, and no import path package.module:Class"
            )
        return kind


def _kind(lane: Any) -> str:
    kind = lane.get("kind", "") if isinstance(lane, Mapping) else lane.kind
    return kind if kind in {"bm25", "dense", "import"} else "class"


Lane = Annotated[
    Annotated[Bm25Lane, Tag("bm25")]
    | Annotated[DenseLane, Tag("dense")]
    | Annotated[ImportLane, Tag("import")]
    | Annotated[ClassLane, Tag("class")],
    Discriminator(_kind),
]


def _standard() -> dict[str, Lane]:
    return {"bm25": Bm25Lane(), "dense": DenseLane()}


class RetrievalConfig(BaseModel):
    """The lanes of section `retrieval` that search (those that fuse are `fusion`'s)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    lanes: dict[str, Lane] = Field(default_factory=_standard)


CONFIG = RetrievalConfig


def run(frames: Frames, config: RetrievalConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """All lanes, one after the other."""
    made = []
    for done, (name, lane) in enumerate(config.lanes.items()):
        runtime.progress("retrieval", done, len(config.lanes))
        made.append(run_lane(name, lane, frames))
    runtime.progress("retrieval", len(config.lanes), len(config.lanes))
    return {
        "runs": conform(Runs, pl.concat([empty(), *(lane["runs"] for lane in made)])),
        "exact_runs": conform(ExactRuns, pl.concat([empty(), *(lane["exact_runs"] for lane in made)])),
    }


def run_lane(name: str, lane: Any, frames: Frames) -> dict[str, pl.DataFrame]:
    """One lane's lists: `runs`, and `exact_runs` where its index is approximate (else without rows)."""
    makers: dict[type, Callable[[str, Any, Frames], tuple[pl.DataFrame, pl.DataFrame]]] = {
        Bm25Lane: _bm25, DenseLane: _dense, ImportLane: _imported, ClassLane: _own,
    }  # fmt: skip
    runs, exact = makers[type(lane)](name, lane, frames)
    return {"runs": _typed(runs, name), "exact_runs": _typed(exact, name)}


def _typed(lists: pl.DataFrame, name: str) -> pl.DataFrame:
    return lists.with_columns(retriever=pl.lit(name)).select(
        pl.col(column).cast(dtype) for column, dtype in RUN.items()
    )


def _filtered(lists: pl.DataFrame, frames: Frames, depth: int, unit: DepthUnit) -> pl.DataFrame:
    return cut(boosted(lists, frames["applied_filters"], frames["scopes"]), depth, unit)


# --- lexical ---------------------------------------------------------------------------------------------------------


def _bm25(name: str, lane: Bm25Lane, frames: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    chunks = frames["chunks"].sort("chunk_id")
    scopes = Scopes(chunks, frames["applied_filters"], frames["scopes"])
    index = Bm25(chunks, k1=lane.k1, b=lane.b, stemming=lane.stemming, stop_words=lane.stop_words)
    documents = scopes.documents if lane.depth_unit == "documents" else None

    def found() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        queries = frames["prepared_queries"].sort("query_id")
        for query_id, text, language in queries.select("query_id", "text", "language").iter_rows():
            scores = index.scores(text, language)
            best = top(scores, scopes.mask(scopes.of(query_id)), lane.depth, documents)
            yield query_id, best, scores[best]

    return _filtered(_lists(name, found(), chunks), frames, lane.depth, lane.depth_unit), empty()


def _lists(name: str, found: Iterator[tuple[str, np.ndarray, np.ndarray]], chunks: pl.DataFrame) -> pl.DataFrame:
    """Lists from (query, positions in chunks, scores)."""
    parts = [
        pl.DataFrame({"position": np.asarray(positions, dtype=np.int64), "score": np.asarray(scores, dtype=np.float64)})
        .with_columns(query_id=pl.lit(query_id))
        for query_id, positions, scores in found
        if len(positions)
    ]  # fmt: skip
    if not parts:
        return empty()
    items = pl.concat(parts)
    ids = chunks.select("chunk_id", "doc_id", position=pl.int_range(pl.len(), dtype=pl.Int64))
    return order(items.join(ids, on="position", how="left").with_columns(retriever=pl.lit(name))).select(list(RUN))


# --- dense -----------------------------------------------------------------------------------------------------------

Found = tuple[list[np.ndarray], list[np.ndarray]]
Search = Callable[[np.ndarray, int, np.ndarray | None], Found]
"""(query vectors, k, mask of positions) -> positions and their scores, one array a query."""


def _dense(name: str, lane: DenseLane, frames: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    from rag_eval_pipeline.models.ann import exact_search, load_index, search

    embeddings, files = frames["embeddings"], frames["index_files"]
    if embeddings.is_empty():
        return empty(), empty()
    vectors = _matrix(embeddings["vector"])

    def exactly(queries: np.ndarray, k: int, allowed: np.ndarray | None) -> Found:
        return exact_search(vectors, queries, k, allowed)

    exact = _dense_lists(name, lane, frames, embeddings["chunk_id"], exactly)
    approximate = files.filter(pl.col("kind") != "flat")
    if approximate.is_empty():
        return exact, empty()
    file = approximate.sort("index_name").row(0, named=True)
    index = load_index(file["blob"])

    def nearly(queries: np.ndarray, k: int, allowed: np.ndarray | None) -> Found:
        return search(index, queries, k, allowed)

    return _dense_lists(name, lane, frames, pl.Series(file["chunk_ids"], dtype=pl.String), nearly), exact


def _matrix(vectors: pl.Series) -> np.ndarray:
    if vectors.is_empty():
        return np.empty((0, 0), dtype=np.float32)
    width = vectors.list.len()
    if width.n_unique() != 1:
        raise ValueError(f"vectors have {sorted(width.unique())} dimensions; make them all with one model")
    return vectors.explode().to_numpy().astype(np.float32, copy=False).reshape(len(vectors), -1)


def _dense_lists(name: str, lane: DenseLane, frames: Frames, ids: pl.Series, search: Search) -> pl.DataFrame:
    chunks = ids.rename("chunk_id").to_frame().join(frames["chunks"].select("chunk_id", "doc_id"), on="chunk_id", how="left",
                                                   maintain_order="left")  # fmt: skip
    if chunks["doc_id"].null_count():
        raise ValueError("the index holds chunks that `chunks` has not; materialize embeddings and index_files again")
    scopes = Scopes(chunks, frames["applied_filters"], frames["scopes"])
    codes = chunks["chunk_id"].rank("dense").to_numpy()
    queries = frames["prepared_queries"].select("query_id").join(frames["query_embeddings"], on="query_id", how="left")
    if lacking := queries.filter(pl.col("vector").is_null())["query_id"].sort().to_list():
        raise ValueError(
            f"queries without a vector: {lacking[:5]} ({len(lacking)} in all); materialize query_embeddings again"
        )
    queries = queries.with_columns(
        scope=pl.Series([scopes.of(query) for query in queries["query_id"]], dtype=pl.String)
    )

    def found() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for block in queries.sort("scope", "query_id").partition_by("scope", maintain_order=True):
            allowed = scopes.mask(block["scope"][0])
            for part in block.iter_slices(BLOCK):
                yield from _found(part, allowed, codes, scopes.documents, lane, search)

    return _filtered(_lists(name, found(), chunks), frames, lane.depth, lane.depth_unit)


def _found(
    queries: pl.DataFrame,
    allowed: np.ndarray,
    chunks: np.ndarray,
    documents: np.ndarray,
    lane: DenseLane,
    search: Search,
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Search one block of queries of one scope; over-fetch until each list has shown `depth` chunks or documents."""
    from rag_eval_pipeline.models.ann import best_of_each, over_fetch

    admitted = int(allowed.sum())
    if not admitted:
        return
    mask = None if admitted == len(allowed) else allowed
    vectors = _matrix(queries["vector"])
    wanted = chunks if lane.depth_unit == "chunks" else documents
    found = over_fetch(lambda k: search(vectors, k, mask), wanted, lane.depth, admitted)
    for query_id, positions, scores in zip(queries["query_id"], *best_of_each(found, chunks), strict=True):
        # What was fetched beyond the depth must not be seen by a soft filter: it would depend on other queries.
        last = lane.depth if lane.depth_unit == "chunks" else len(positions)
        yield query_id, positions[:last], scores[:last]


# --- from outside ----------------------------------------------------------------------------------------------------


def _imported(name: str, lane: ImportLane, frames: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    source = "output:runs_before_rerank" if lane.before_rerank else "output:runs"
    file = f"{lane.run}.before_rerank.jsonl" if lane.before_rerank else f"{lane.run}.trec or .jsonl"
    given = frames.get(source)
    items = given.filter(pl.col("run") == lane.run) if given is not None else None
    if items is None or items.is_empty():
        raise ValueError(f"lane {name} imports run {lane.run!r}: outputs/runs/{file} is absent or empty")
    # A run may have been made for more queries than these: they are not asked here.
    asked = items.join(frames["prepared_queries"].select("query_id"), on="query_id", how="semi")
    lists = place(asked, frames["chunks"], frames["documents"], lane.run, by=lane.order).with_columns(
        retriever=pl.lit(name)
    )
    return (cut(lists, lane.depth, lane.depth_unit) if lane.depth else lists), empty()


def _own(name: str, lane: ClassLane, frames: Frames) -> tuple[pl.DataFrame, pl.DataFrame]:
    searcher = load(lane.kind)(**lane.options)
    chunks, filters = frames["chunks"], frames["applied_filters"]
    scopes = filters.select("query_id", "scope_id").join(frames["scopes"], on="scope_id", how="left").drop("scope_id")
    found = searcher.search(frames["prepared_queries"], chunks, scopes, lane.depth)
    if missing := {"query_id", "chunk_id", "score"} - set(getattr(found, "columns", ())):
        raise ListError(
            f"lane {name}: {lane.kind}.search must return a polars frame with query_id, chunk_id, score; lacks {missing}"
        )
    items = found.select("query_id", item_id="chunk_id", score="score")
    check(items, name)
    if items["score"].null_count():
        raise ListError(f"lane {name}: {lane.kind}.search returned {items['score'].null_count()} rows without a score")
    lists = items.rename({"item_id": "chunk_id"}).join(chunks.select("chunk_id", "doc_id"), on="chunk_id", how="left")
    unknown = lists.filter(pl.col("doc_id").is_null()).sort("query_id", "chunk_id")
    if unknown.height:
        row = unknown.row(0, named=True)
        raise ListError(
            f"lane {name}, query {row['query_id']}: {lane.kind}.search returned unknown chunk {row['chunk_id']!r}"
        )
    asked = lists.join(frames["prepared_queries"].select("query_id"), on="query_id", how="semi")
    return _filtered(order(asked.with_columns(retriever=pl.lit(name))), frames, lane.depth, lane.depth_unit), empty()
