"""Make queries ready to be searched: their language, and their vectors by the model that embedded the chunks.

Here: what is searched for a query. Which documents it may find is decided in `filtering`; chunks are encoded in `embedding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from rag_eval_pipeline.models.encoder import Encoder, load_encoder
from rag_eval_pipeline.models.encoder import identity as model_identity
from rag_eval_pipeline.models.vectors import imported_vectors, vector_column
from rag_eval_pipeline.stages.querying.stage import STAGE
from rag_eval_pipeline.stages.querying.tables import PreparedQueries, QueryEmbeddings
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.memo import digest
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform


class QueryEncoder(BaseModel):
    """How queries are encoded: the section `embedding`, as the graph copies it, so that both sides use one model.

    Attributes:
        model: as in `embedding`.
        max_tokens: as in `embedding`.
        query_prompt: put before each query.
        document_prompt: of no effect here.
        enabled: whether some lane searches vectors.
        imported: whether the chunks' vectors were imported; the queries' must be then, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: str = "bundled"
    max_tokens: int | None = Field(None, ge=3)
    query_prompt: str = ""
    document_prompt: str = Field("", exclude=True)
    enabled: bool = True
    imported: Switch = Field(False, alias="import")


class QueryingConfig(BaseModel):
    """Section `querying` of corpus.yaml.

    Attributes:
        rewrite: `none` searches the text as it was asked.
        languages: languages among which an undeclared one is detected; empty: any.
        embedding: set by the graph from the section `embedding`.
        imported: take outputs/query_embeddings.parquet instead of encoding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    rewrite: Literal["none"] = "none"
    languages: tuple[str, ...] = ("en", "es")
    embedding: QueryEncoder = Field(default_factory=lambda: QueryEncoder.model_validate({}))
    imported: Switch = Field(False, alias="import")


CONFIG = QueryingConfig


def identity(config: QueryingConfig) -> dict[str, Any]:
    """What decides the vectors beside config and text: the model's checksum, threads and device."""
    return model_identity(config.embedding.model) if config.embedding.enabled and not STAGE.imports(config) else {}


def run(frames: Mapping[str, pl.DataFrame], config: QueryingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """The queries as they are searched, and their vectors where a lane needs them.

    Raises:
        ValueError: imported vectors are absent, differ in model or dimension, or miss queries.
        ModelError: the model cannot be used.
    """
    queries = frames.get("queries")
    prepared = conform(PreparedQueries, [] if queries is None else _prepared(queries, config))
    return {"prepared_queries": prepared, "query_embeddings": _vectors(frames, prepared, config, runtime)}


def _prepared(queries: pl.DataFrame, config: QueryingConfig) -> pl.DataFrame:
    declared = zip(queries["text"].to_list(), queries["language"].to_list(), strict=True)
    languages = [language or detect(text, config.languages) for text, language in declared]
    return queries.select("query_id", "text", pl.Series("language", languages, dtype=pl.String), "principal")


def detect(text: str, languages: tuple[str, ...]) -> str | None:
    """The most likely of `languages`; None where the text has no letter to tell by.

    A language that the detector does not know can be declared, but not detected.
    """
    if not any(character.isalpha() for character in text):
        return None
    identifier, names = _identifier(languages)
    found = str(identifier.classify(text)[0])
    return names.get(found, found)


@lru_cache(maxsize=8)
def _identifier(languages: tuple[str, ...]) -> tuple[Any, dict[str, str]]:
    """A detector restricted to `languages`, and their names as the corpus writes them (es-MX for es)."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = set(identifier.nb_classes)
    names: dict[str, str] = {}
    for language in languages:
        base = primary(language)
        if base in known:
            names.setdefault(base, language)
    if names:
        identifier.set_languages(sorted(names))
    return identifier, names


def _vectors(
    frames: Mapping[str, pl.DataFrame], prepared: pl.DataFrame, config: QueryingConfig, runtime: Runtime
) -> pl.DataFrame:
    if not config.embedding.enabled or prepared.is_empty():
        return conform(QueryEmbeddings, [])
    if STAGE.imports(config):
        given = imported_vectors(
            frames.get("output:query_embeddings"), prepared["query_id"], "query_embeddings", "query"
        )
        return conform(QueryEmbeddings, given.rename({"id": "query_id"}))
    encoder = load_encoder(config.embedding.model, config.embedding.max_tokens)
    vectors = _encode(encoder, prepared["text"].to_list(), config.embedding.query_prompt, runtime)
    made = prepared.select("query_id", vector_column(vectors).alias("vector"), pl.lit(encoder.name).alias("model"))
    return conform(QueryEmbeddings, made)


def _encode(encoder: Encoder, texts: list[str], prompt: str, runtime: Runtime) -> np.ndarray:
    keys = [digest([encoder.checksum, encoder.max_tokens, prompt, text]) for text in texts]

    def compute(missing: list[int]) -> Any:
        for positions, vectors in encoder.stream([texts[i] for i in missing], prompt):
            for position, vector in zip(positions, vectors, strict=True):
                yield missing[position], vector.tobytes()

    payloads = runtime.cached("querying", keys, compute)
    return np.stack([np.frombuffer(payload, dtype=np.float32) for payload in payloads])
