"""Turn chunks into vectors, batch by batch, remembered by text and model; or take the vectors that a user brings.

Here: what text of a chunk is encoded, and which vectors belong to which chunk. The encoder itself is `models/encoder`;
queries are encoded in `querying`; the index is made in `indexing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from rag_eval_pipeline.models.encoder import Encoder, load_encoder
from rag_eval_pipeline.models.encoder import identity as model_identity
from rag_eval_pipeline.models.vectors import imported_vectors, vector_column
from rag_eval_pipeline.stages.embedding.tables import Embeddings
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.memo import digest
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

SLAB = 4096
"""Chunks whose texts are tokenised and encoded together."""


READABLE = ("ok", "unplaced")
"""Statuses of chunks that have a text; a document that failed has one row without."""


class EmbeddingConfig(BaseModel):
    """Section `embedding` of corpus.yaml.

    Attributes:
        model: `bundled`, the path of a local folder, or a name on the Hugging Face hub.
        max_tokens: word pieces that the encoder sees, special tokens and prompt included; null is the model's own limit.
        document_prompt: put before each chunk, as the model's training asks ("passage: ").
        query_prompt: put before each query ("query: ").
        enabled: set by the graph: whether some lane searches vectors.
        imported: take outputs/embeddings.parquet instead of encoding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: str = "bundled"
    max_tokens: int | None = Field(None, ge=3)
    document_prompt: str = ""
    query_prompt: str = ""
    enabled: bool = True
    imported: Switch = Field(False, alias="import")


CONFIG = EmbeddingConfig


def identity(config: EmbeddingConfig) -> dict[str, Any]:
    """What decides the vectors beside config and text: the model's checksum, threads and device."""
    return model_identity(config.model) if config.enabled and not config.imported else {}


def run(frames: Mapping[str, pl.DataFrame], config: EmbeddingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Vectors of all chunks; no rows where no lane needs them.

    Raises:
        ValueError: imported vectors are absent, differ in model or dimension, or miss chunks.
        ModelError: the model cannot be used.
    """
    chunks = frames["chunks"].filter(pl.col("status").is_in(READABLE))
    if not config.enabled:
        return {"embeddings": conform(Embeddings, [])}
    made = _imported(frames, chunks) if config.imported else encoded(chunks, config, runtime)
    return {"embeddings": conform(Embeddings, made)}


def encoded(chunks: pl.DataFrame, config: EmbeddingConfig, runtime: Runtime) -> pl.DataFrame:
    """One vector of each text, as far as the encoder sees it.

    Args:
        chunks: chunk_id, prefix, text; an id may stand there several times.
        config: model, limit and prompt.
        runtime: what was encoded before is remembered by prefix and text.

    Returns:
        Columns of `embeddings`, one row a row, in their order; window 0.
    """
    if chunks.is_empty():
        return conform(Embeddings, [])
    encoder = load_encoder(config.model, config.max_tokens)
    prefixes, texts = chunks["prefix"].fill_null("").to_list(), chunks["text"].to_list()
    made_by = [encoder.checksum, encoder.max_tokens, config.document_prompt]
    keys = [digest([*made_by, prefix, text]) for prefix, text in zip(prefixes, texts, strict=True)]
    payloads = runtime.cached("embedding", keys, _compute(encoder, prefixes, texts, config.document_prompt))
    counts = np.array([np.frombuffer(payload, dtype=np.int64, count=3) for payload in payloads])
    vectors = np.stack([np.frombuffer(payload, dtype=np.float32, offset=24) for payload in payloads])
    return pl.DataFrame(
        {
            "chunk_id": chunks["chunk_id"],
            "vector": vector_column(vectors),
            "window": [0] * len(chunks),
            "tokens": counts[:, 0],
            "encoded_tokens": counts[:, 1],
            "encoded_start": [0] * len(chunks),
            "encoded_end": counts[:, 2],
        }
    ).with_columns(model=pl.lit(encoder.name))


def _compute(
    encoder: Encoder, prefixes: list[str], texts: list[str], prompt: str
) -> Callable[[list[int]], Iterator[tuple[int, bytes]]]:
    """How missing vectors are made: counts (three int64) and the vector (float32) as bytes."""

    def compute(missing: list[int]) -> Iterator[tuple[int, bytes]]:
        # Longest first: memory peaks at once, not after an hour; neighbours in length share a batch.
        ordered = sorted(missing, key=lambda i: (-len(prefixes[i]) - len(texts[i]), i))
        for start in range(0, len(ordered), SLAB):
            part = ordered[start : start + SLAB]
            heads, own = [prefixes[i] for i in part], [texts[i] for i in part]
            pieces = encoder.tokens(own, prompt, heads)
            counts = np.stack(pieces, axis=1)
            for positions, vectors in encoder.stream([h + t for h, t in zip(heads, own, strict=True)], prompt):
                for position, vector in zip(positions, vectors, strict=True):
                    yield part[position], counts[position].tobytes() + vector.tobytes()

    return compute


def _imported(frames: Mapping[str, pl.DataFrame], chunks: pl.DataFrame) -> pl.DataFrame:
    given = imported_vectors(frames.get("output:embeddings"), chunks["chunk_id"], "embeddings", "chunk")
    # What another encoder saw is not known; the user's vectors are taken to stand for the whole chunk.
    sizes = chunks.select("chunk_id", "tokens", encoded_tokens="tokens", encoded_end=pl.col("text").str.len_chars())
    return (
        given.rename({"id": "chunk_id"})
        .join(sizes, on="chunk_id", how="left")
        .with_columns(pl.col("encoded_end").cast(pl.Int64), window=pl.lit(0), encoded_start=pl.lit(0))
    )
