"""What the index misses: recall of chunks against exact search for each query under its own filter, and its size.

Latency and sweeps of parameters are no measure of one evaluation and stand elsewhere; what a miss costs is the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.ann import ann_recall
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.models.ann import Found, Index, best_of_each, exact_search, load_index, over_fetch, search
from rag_eval_pipeline.models.vectors import same_model, vector_matrix
from rag_eval_pipeline.stages.indexing.transform import IndexingConfig
from rag_eval_pipeline.warehouse.measurement import ROW, measurement, measurements

DEFAULT_DEPTH = 100
BLOCK = 512
"""Queries searched at a time."""

METRICS: tuple[Metric, ...] = (
    Metric("ann_recall", "Share of the true first k that the index finds, under the query's own filter", "higher"),
    Metric("index_bytes", "Size of the serialised index", "lower", high=float("inf"), unit="bytes"),
    Metric("index_vectors", "Vectors in the index", "neither", high=float("inf"), unit="vectors"),
)


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: IndexingConfig, settings: Settings) -> pl.DataFrame:
    """`ann_recall` by query of the split and k (each of `evaluate.k`, and each depth of a dense lane), and the size of the index.

    No rows where no lane searches vectors. A query without a vector is `missing_embedding`, one whose filter admits no
    vector `nothing_admitted`, and all are `no_index` where no chunk could be indexed.
    """
    if not config.enabled:
        return pl.DataFrame(schema=ROW)
    depths = sorted({*settings.evaluate.cuts, *_depths(settings)})
    expected = gold.measured(settings.evaluate.split)["query_id"].sort()
    asked = frames["query_embeddings"].filter(pl.col("query_id").is_in(expected.implode()))
    values = dict(_recalls({**frames, "query_embeddings": asked}, depths))
    state = "no_index" if frames["index_files"].is_empty() else "missing_embedding"
    rows = []
    for query_id in expected:
        for k in depths:
            value, status = values.get((query_id, k), (None, state))
            rows.append(measurement("ann_recall", "query", query_id, value, status=status, k=k, unit="chunk"))
    return measurements([*rows, *_sizes(frames["index_files"])])


def _depths(settings: Settings) -> list[int]:
    """Depths at which dense lanes are searched."""
    lanes = (settings.pipeline.get("retrieval") or {"dense": {"kind": "dense"}}).values()
    return [int(lane.get("depth", DEFAULT_DEPTH)) for lane in lanes if lane.get("kind") == "dense"]


def _sizes(files: pl.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for name, size, ids in files.select("index_name", "bytes", "chunk_ids").iter_rows():
        rows.append(measurement("index_bytes", "corpus", name, float(size), unit="bytes"))
        rows.append(measurement("index_vectors", "corpus", name, float(len(ids)), unit="vectors"))
    return rows


def _recalls(
    frames: Mapping[str, pl.DataFrame], depths: Sequence[int]
) -> Iterator[tuple[tuple[str, int], tuple[float | None, str]]]:
    """(query, k) -> value and status, for all queries that have a vector."""
    files, queries = frames["index_files"], frames["query_embeddings"]
    if files.is_empty() or queries.is_empty():
        return
    same_model(frames["embeddings"], queries)
    file = files.row(0, named=True)
    index = load_index(file["blob"])
    chunks = pl.Series(file["chunk_ids"], dtype=pl.String).rank("dense").to_numpy()
    for block, allowed in _by_scope(frames, file["chunk_ids"]):
        admitted = len(np.unique(chunks if allowed is None else chunks[allowed]))
        for part in block.iter_slices(BLOCK):
            found, exact = _both(index, vector_matrix(part["vector"]), max(depths), allowed, chunks)
            for query_id, *lists in zip(part["query_id"], *exact, *found, strict=True):
                true_ids, true_scores, ids, scores = (list_.tolist() for list_ in lists)
                for k in depths:
                    yield (query_id, k), _recall(true_ids, true_scores, ids, scores, k, admitted)


def _both(
    index: Index, vectors: np.ndarray, depth: int, allowed: np.ndarray | None, chunks: np.ndarray
) -> tuple[Found, Found]:
    """Chunks that the index finds, and the true first ones, each by its best vector."""
    most = index.size if allowed is None else int(allowed.sum())

    def distinct(find: Callable[[int], Found]) -> Found:
        if not most:
            return find(depth)
        positions, scores = best_of_each(over_fetch(find, chunks, depth, most), chunks)
        return [chunks[row] for row in positions], scores

    found = distinct(lambda k: search(index, vectors, k, allowed))
    if index.kind == "flat":
        return found, found
    return found, distinct(lambda k: exact_search(index.vectors, vectors, k, allowed))


def _recall(
    exact_ids: list[Any], exact_scores: list[Any], ids: list[Any], scores: list[Any], k: int, admitted: int
) -> tuple[float | None, str]:
    try:
        return ann_recall(exact_ids, exact_scores, ids, k, admitted, scores), "scored"
    except Unmeasured as unmeasured:
        return None, unmeasured.reason


def _by_scope(
    frames: Mapping[str, pl.DataFrame], chunk_ids: Sequence[str]
) -> Iterator[tuple[pl.DataFrame, np.ndarray | None]]:
    """Queries grouped by what they may see, each group with a mask over the index; None where it may see all.

    Raises:
        ValueError: a query has a vector and no filter row.
    """
    queries, filters = frames["query_embeddings"], frames.get("applied_filters")
    if filters is None:
        yield queries, None
        return
    documents = pl.DataFrame({"chunk_id": chunk_ids}, schema={"chunk_id": pl.String}).join(
        frames["chunks"].select("chunk_id", "doc_id"), on="chunk_id", how="left", maintain_order="left"
    )["doc_id"]
    scoped = queries.join(filters.select("query_id", "scope_id"), on="query_id", how="left").join(
        frames["scopes"], on="scope_id", how="left"
    )
    if lost := scoped.filter(pl.col("everything").is_null())["query_id"].sort().to_list():
        raise ValueError(
            f"{len(lost)} queries have no scope, first {lost[:5]}: materialize applied_filters and scopes again"
        )
    for block in scoped.sort("scope_id", "query_id").partition_by("scope_id", maintain_order=True):
        everything, ids = block["everything"][0], block["doc_ids"][0]
        yield block, None if everything else documents.is_in(ids.to_list()).to_numpy()
