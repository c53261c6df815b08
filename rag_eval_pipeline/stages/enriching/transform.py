"""Which language a document is in. Only language: entities and summaries would be stages of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.stages.enriching.tables import Languages
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

UNDETERMINED = "und"


class LanguageDetector(Protocol):
    """A user's own detector, made without arguments, once a worker."""

    def detect(self, text: str) -> tuple[str, float | None]:
        """Language (BCP 47, `und` where it can't tell) and confidence in [0, 1]."""
        ...


class EnrichingConfig(BaseModel):
    """Section `enriching` of corpus.yaml.

    Attributes:
        detector: py3langid, or an import path of a `LanguageDetector`.
        languages: the only languages that can occur; null: all that the detector knows.
        prefer: which one later stages use where a document declares its language. The other stays visible.
        min_letters: under so many letters the row is flagged `short`.
        max_chars: so much of a text is looked at; languages are recognised long before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    detector: str = "py3langid"
    languages: tuple[str, ...] | None = None
    prefer: Literal["detected", "declared"] = "detected"
    min_letters: int = Field(20, ge=0)
    max_chars: int = Field(20_000, ge=1)

    @field_validator("detector")
    @classmethod
    def _known(cls, value: str) -> str:
        if value != "py3langid" and not is_import_path(value):
            raise ValueError(f"unknown detector {value!r}; use py3langid or an import path package.module:Class")
        return value

    @field_validator("languages")
    @classmethod
    def _some(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not value:
            raise ValueError("languages: name at least one, or null for all")
        return value


CONFIG = EnrichingConfig


def run(frames: Mapping[str, pl.DataFrame], config: EnrichingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Detect the language of every parsed document."""
    items = frames["parsed"].select("doc_id", pl.col("text").str.slice(0, config.max_chars))
    made = runtime.map("enriching", one, items, config, reads=["text"], writes=[Languages], failed=failed)["languages"]
    return {"languages": conform(Languages, _with_declared(made, frames.get("documents"), config.prefer))}


def _with_declared(made: pl.DataFrame, documents: pl.DataFrame | None, prefer: str) -> pl.DataFrame:
    if documents is None:
        return made
    declared = documents.select(
        "doc_id", pl.col("language").str.to_lowercase().str.extract(r"^([a-z]{2,8})").alias("declared")
    )
    known = pl.col("detected").replace(UNDETERMINED, None)
    order = ("declared", known) if prefer == "declared" else (known, "declared")
    return (
        made.drop("declared")
        .join(declared, on="doc_id", how="left")
        .with_columns(pl.coalesce(*order, pl.lit(UNDETERMINED)).alias("language"))
    )


def prepare(config: EnrichingConfig) -> None:
    """Load the detector once a worker."""
    _detector(config)


def one(item: dict[str, Any], config: EnrichingConfig) -> dict[str, list[dict[str, Any]]]:
    """The language of one text."""
    text = item["text"]
    letters = sum(character.isalpha() for character in text[: max(1000, config.min_letters * 4)])
    if not text.strip():
        return _row(UNDETERMINED, None, "empty")
    if not letters:
        return _row(UNDETERMINED, None, "short")
    language, score = _detector(config).detect(text)
    return _row(language.lower().split("-")[0], score, "ok" if letters >= config.min_letters else "short")


def failed(item: dict[str, Any], status: str, error: str) -> dict[str, list[dict[str, Any]]]:
    """An undetermined language, with the reason."""
    return _row(UNDETERMINED, None, status)


def _row(language: str, score: float | None, status: str) -> dict[str, list[dict[str, Any]]]:
    return {"languages": [{"language": language, "detected": language, "score": score, "status": status}]}


@lru_cache(maxsize=4)
def _detector(config: EnrichingConfig) -> LanguageDetector:
    if is_import_path(config.detector):
        return load(config.detector)()
    return Langid(config.languages)


class Langid:
    """py3langid with normalised probabilities, restricted to the languages that can occur."""

    def __init__(self, languages: tuple[str, ...] | None) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        unknown = sorted({name.split("-")[0] for name in languages or ()} - set(self._identifier.labels))
        if unknown:
            raise ValueError(f"pipeline.enriching.languages: py3langid does not know {unknown}; use ISO 639-1 codes")
        if languages is not None:
            self._identifier.set_languages(sorted({name.split("-")[0] for name in languages}))

    def detect(self, text: str) -> tuple[str, float | None]:
        """Most likely language and its probability."""
        language, score = self._identifier.classify(text)
        return language, float(score)
