"""How much of the chunks the encoder saw, and whether its vectors can be searched. Retrieval quality is measured in `retrieval`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.models.vectors import vector_matrix
from rag_eval_pipeline.stages.embedding.transform import EmbeddingConfig
from rag_eval_pipeline.warehouse.measurement import ROW

UNIT_TOLERANCE = 1e-3

METRICS: tuple[Metric, ...] = (
    Metric("truncated_tokens", "Share of a document's chunk tokens that the encoder did not see", "lower"),
    Metric("truncated_chunks", "Share of a document's chunks of which the encoder did not see all", "lower"),
    Metric("invalid_vectors", "Share of a document's vectors that are not finite or not of unit length", "lower"),
)


def measure(
    frames: Mapping[str, pl.DataFrame], gold: Gold, config: EmbeddingConfig, settings: Settings
) -> pl.DataFrame:
    """One row a kept document and metric: NULL `no_chunks` where it has none, `no_tokens` where its chunks are empty.

    No rows where no lane needs vectors. Of imported vectors nobody knows what their encoder saw: `unknown_encoder`.
    """
    if not config.enabled:
        return pl.DataFrame(schema=ROW)
    counts = _counts(frames)
    parts = [_rows(counts, *names) for names in (
        ("truncated_tokens", "token", "unseen", "tokens"),
        ("truncated_chunks", "chunk", "truncated", "chunks"),
        ("invalid_vectors", "vector", "invalid", "vectors"),
    )]  # fmt: skip
    rows = pl.concat(parts)
    if not config.imported:
        return rows
    unknown = pl.col("metric").str.starts_with("truncated") & (pl.col("status") == "scored")
    nothing = [pl.when(~unknown).then(name).alias(name) for name in ("value", "numerator", "denominator")]
    return rows.with_columns(
        *nothing, pl.when(unknown).then(pl.lit("unknown_encoder")).otherwise("status").alias("status")
    )


def _counts(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Per expected document: tokens, unseen tokens, chunks, truncated chunks, vectors, invalid vectors."""
    embeddings = frames["embeddings"]
    matrix = vector_matrix(embeddings["vector"])
    with np.errstate(all="ignore"):
        norms = np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1))
    valid = np.isfinite(norms) & (np.abs(norms - 1) <= UNIT_TOLERANCE)
    # Windows may share tokens, so a chunk's are never counted beyond those that it has.
    unseen = (pl.col("tokens").max() - pl.col("encoded_tokens").sum()).clip(lower_bound=0)
    by_chunk = (
        embeddings.with_columns(invalid=~pl.Series(valid, dtype=pl.Boolean))
        .group_by("chunk_id")
        .agg(pl.col("tokens").max(), unseen.alias("unseen"), pl.col("invalid").sum(), vectors=pl.len())
        .with_columns(truncated=pl.col("unseen") > 0)
    )
    found = frames["chunks"].select("chunk_id", "doc_id").join(by_chunk, on="chunk_id")
    counts = found.group_by("doc_id").agg(
        pl.len().alias("chunks"), pl.col("tokens", "unseen", "invalid", "vectors", "truncated").sum()
    )
    return _expected(frames, found).join(counts, on="doc_id", how="left").sort("doc_id")


def _expected(frames: Mapping[str, pl.DataFrame], found: pl.DataFrame) -> pl.DataFrame:
    """Documents that went on to chunking; without that table, those that have chunks."""
    if "dedup" in frames:
        return frames["dedup"].filter("kept").select("doc_id")
    return found.select("doc_id").unique()


def _rows(counts: pl.DataFrame, metric: str, unit: str, numerator: str, denominator: str) -> pl.DataFrame:
    over, under = pl.col(numerator).cast(pl.Float64), pl.col(denominator).cast(pl.Float64)
    missing = pl.col("chunks").is_null()
    scored = ~missing & (under > 0)
    row = {
        "retriever": pl.lit(""), "metric": pl.lit(metric), "unit": pl.lit(unit), "k": pl.lit(0), "params": pl.lit("{}"),
        "item_type": pl.lit("document"), "item_id": pl.col("doc_id"),
        "value": pl.when(scored).then(over / under),
        "status": pl.when(scored).then(pl.lit("scored")).when(missing).then(pl.lit("no_chunks")).otherwise(pl.lit("no_tokens")),
        "weight": pl.lit(1.0), "numerator": pl.when(scored).then(over), "denominator": pl.when(scored).then(under),
        "low": pl.lit(None), "high": pl.lit(None),
    }  # fmt: skip
    return counts.select(row[name].cast(dtype).alias(name) for name, dtype in ROW.items())
