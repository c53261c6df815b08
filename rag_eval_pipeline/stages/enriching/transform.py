"""Which language a document and its parts are in. Only language: entities and summaries would be stages of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.stages.enriching.sections import sections
from rag_eval_pipeline.stages.enriching.tables import Languages, SectionLanguages
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

UNDETERMINED = "und"
Rows = dict[str, list[dict[str, Any]]]


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
        max_chars: so much of a text is looked at for the document's language; it is recognised long before.
        sections: whether parts of a document may have languages of their own. Chunks then have that of their part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    detector: str = "py3langid"
    languages: tuple[str, ...] | None = None
    prefer: Literal["detected", "declared"] = "detected"
    min_letters: int = Field(20, ge=0)
    max_chars: int = Field(20_000, ge=1)
    sections: bool = True

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


WRITES = (Languages, SectionLanguages)
BLOCKS = pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "kind": pl.String}))


def run(frames: Mapping[str, pl.DataFrame], config: EnrichingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Detect the language of every parsed document, and of its parts."""
    items = _items(frames, config)
    made = runtime.map("enriching", one, items, config, reads=["text", "blocks"], writes=WRITES, failed=failed)
    languages = conform(Languages, _with_declared(made["languages"], frames.get("documents"), config.prefer))
    return {
        "languages": languages,
        "section_languages": conform(SectionLanguages, _as_used(made["section_languages"], languages)),
    }


def _items(frames: Mapping[str, pl.DataFrame], config: EnrichingConfig) -> pl.DataFrame:
    texts = frames["parsed"].select("doc_id", "text")
    if not config.sections:
        return texts.with_columns(pl.col("text").str.slice(0, config.max_chars), pl.lit(None, BLOCKS).alias("blocks"))
    if "blocks" not in frames:
        return texts.with_columns(pl.lit(None, BLOCKS).alias("blocks"))
    blocks = (
        frames["blocks"]
        .sort("doc_id", "block")
        .group_by("doc_id", maintain_order=True)
        .agg(pl.struct("start", "end", "kind").alias("blocks"))
        .cast({"blocks": BLOCKS})
    )
    return texts.join(blocks, on="doc_id", how="left")


def _as_used(made: pl.DataFrame, languages: pl.DataFrame) -> pl.DataFrame:
    """Parts in the document's detected language, and those that say nothing, have the language that is used for it."""
    joined = made.join(languages.select("doc_id", "detected", used="language"), on="doc_id", how="left")
    of_document = (pl.col("status") == "document") | (pl.col("language") == pl.col("detected"))
    used = joined.with_columns(pl.when(of_document).then("used").otherwise("language").alias("language"))
    return used.drop("detected", "used")


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


def one(item: dict[str, Any], config: EnrichingConfig) -> Rows:
    """The language of one text, and of its parts."""
    text = item["text"]
    head = text[: config.max_chars]
    letters = sum(character.isalpha() for character in head[: max(1000, config.min_letters * 4)])
    if not text.strip():
        return _row(UNDETERMINED, None, "empty", [])
    if not letters:
        return _row(UNDETERMINED, None, "short", [_whole(text, UNDETERMINED)])
    language, score = _detect(head, config)
    parts = [_whole(text, language)]
    if config.sections:
        found = sections(text, item["blocks"], language, lambda part: _detect(part, config))
        parts = [section._asdict() for section in found]
    return _row(language, score, "ok" if letters >= config.min_letters else "short", parts)


def _detect(text: str, config: EnrichingConfig) -> tuple[str, float | None]:
    language, score = _detector(config).detect(text)
    return primary(language) or UNDETERMINED, score


def failed(item: dict[str, Any], status: str, error: str) -> Rows:
    """An undetermined language, with the reason."""
    return _row(UNDETERMINED, None, status, [_whole(item["text"], UNDETERMINED)] if item["text"] else [])


def _whole(text: str, language: str) -> dict[str, Any]:
    return {"start": 0, "end": len(text), "language": language, "score": None, "letters": 0, "status": "document"}


def _row(language: str, score: float | None, status: str, parts: list[dict[str, Any]]) -> Rows:
    row = {"language": language, "detected": language, "score": score, "status": status}
    numbered = [{**part, "section": number} for number, part in enumerate(parts)]
    return {"languages": [row], "section_languages": numbered}


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
        unknown = sorted({primary(name) for name in languages or ()} - set(self._identifier.labels))
        if unknown:
            raise ValueError(f"pipeline.enriching.languages: py3langid does not know {unknown}; use ISO 639-1 codes")
        if languages is not None:
            self._identifier.set_languages(sorted({primary(name) for name in languages}))

    def detect(self, text: str) -> tuple[str, float | None]:
        """Most likely language and its probability."""
        language, score = self._identifier.classify(text)
        return language, float(score)
