"""What is known about each document beside its text: who says so, whom to believe, and what the text names.

Fields come from documents.jsonl, front matter, properties of the file, markup, headings and the file's name; the first source of
`prefer` that says something usable is believed, and all that was said is kept. Nothing later reads it: it is here to be measured,
and to fill documents.jsonl by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.stages.metadata import naming, sources
from rag_eval_pipeline.stages.metadata.tables import DocumentMetadata, Entities, MetadataValues, Relations
from rag_eval_pipeline.text.entities import model_identity
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

Source = Literal["declared", "front_matter", "property", "markup", "heading", "file_name"]
ORDER: tuple[Source, ...] = ("declared", "front_matter", "property", "markup", "heading", "file_name")
WRITES = (DocumentMetadata, MetadataValues, Entities, Relations)
Rows = dict[str, list[dict[str, Any]]]
_OFFICE = ("microsoft word", "untitled", "document", "documento", "sin título", "python-docx", "word document")
"""What writing programs put into a title's place."""


class MetadataConfig(BaseModel):
    """Section `metadata` of corpus.yaml.

    Attributes:
        prefer: sources in the order in which they are believed; one that is left out is never believed.
        extractor: null: no entities and relations; `spacy`: by `models`; or an import path of a `Namer`.
        models: language → spaCy model (package or folder); empty: the English one of the extra `spacy-en`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    prefer: tuple[Source, ...] = ORDER
    extractor: str | None = None
    models: dict[str, str] = Field(default_factory=dict)

    @field_validator("extractor")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value != "spacy" and not is_import_path(value):
            raise ValueError(f"unknown extractor {value!r}; use null, spacy or an import path package.module:Class")
        return value

    @model_validator(mode="after")
    def _there(self) -> MetadataConfig:
        if why := naming.missing(self.extractor, self.models):
            raise ValueError(why)
        return self


CONFIG = MetadataConfig


def identity(config: MetadataConfig) -> dict[str, Any]:
    """The models that name entities; another one under the same name finds others."""
    if config.extractor != "spacy":
        return {}
    return {"models": {name: model_identity(model) for name, model in sorted(naming.models_of(config.models).items())}}


def prepare(config: MetadataConfig) -> None:
    """Load models before a worker's first document, outside of the documents' time limit."""
    if config.extractor:
        _namer(config)


def _namer(config: MetadataConfig) -> naming.Namer:
    return naming.namer_of(config.extractor or "", tuple(sorted(config.models.items())))


def run(frames: Mapping[str, pl.DataFrame], config: MetadataConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Ask every source about every document; a file that can't be read is asked no more than its name."""
    documents = frames["documents"]
    declared = documents.select(
        "doc_id", "path", "media", "content_hash", "status", "title", "published_at", "language"
    )
    items = (
        declared.join(frames["parsed"].select("doc_id", "text"), on="doc_id", how="left")
        .join(_first_headings(frames), on="doc_id", how="left")
        .with_columns(
            pl.col("text").fill_null(""),
            file=pl.lit(f"{runtime.files}/") + pl.col("path"),
        )
    )
    reads = ["content_hash", "path", "media", "status", "title", "published_at", "language", "text", "heading"]
    made = runtime.map("metadata", one, items, config, reads=reads, writes=WRITES, failed=failed)
    return {name: conform(schema, made[name]) for name, schema in _SCHEMAS.items()}


_SCHEMAS = {"document_metadata": DocumentMetadata, "metadata_values": MetadataValues, "entities": Entities, "relations": Relations}  # fmt: skip


def _first_headings(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The first heading of the highest level of each document."""
    headings = (
        frames["blocks"]
        .filter(kind="heading")
        .sort("doc_id", pl.col("level").fill_null(1), "block")
        .unique("doc_id", keep="first", maintain_order=True)
        .select("doc_id", "start", "end")
    )
    return (
        headings.join(frames["parsed"].select("doc_id", "text"), on="doc_id")
        .with_columns(heading=pl.col("text").str.slice(pl.col("start"), pl.col("end") - pl.col("start")))
        .select("doc_id", pl.col("heading").str.strip_chars(" \t\n#=*_").str.split("\n").list.first())
    )


def one(item: dict[str, Any], config: MetadataConfig) -> Rows:
    """Everything about one document."""
    said = [(name, "declared", item[name]) for name in ("title", "published_at", "language") if item[name]]
    error = None
    if item["status"] == "ok":
        try:
            said += sources.read(Path(item["file"]), item["media"])
        except Exception as failure:  # a broken property takes nothing from the other sources
            error = f"{type(failure).__name__} while properties were read"
    if item["heading"]:
        said.append(("title", "heading", item["heading"]))
    said += [(field, "file_name", value) for field, value in sources.file_name(item["path"])]
    values = _judged(said, config.prefer)
    chosen = {row["field"]: row for row in values if row["chosen"]}
    row: dict[str, Any] = {"error": error}
    for field in sources.FIELDS:
        row[field] = chosen[field]["value"] if field in chosen else None
        row[f"{field}_source"] = chosen[field]["source"] if field in chosen else None
    status = item["status"] if item["status"] != "ok" else "error" if error else "ok" if chosen else "none"
    rows: Rows = {
        "document_metadata": [row | {"status": status}],
        "metadata_values": values,
        "entities": [],
        "relations": [],
    }
    if config.extractor and item["text"].strip():
        rows |= _named(item["text"], row["language"], config)
    return rows


def failed(item: dict[str, Any], status: str, error: str) -> Rows:
    """No metadata, with the reason."""
    return {
        "document_metadata": [{"status": status, "error": error}],
        "metadata_values": [],
        "entities": [],
        "relations": [],
    }


def _judged(said: Iterable[tuple[str, str, str]], prefer: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row a field and source, the first value that a source gives; the best source of each field is chosen."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for field, source, value in said:
        usable, valid = _usable(field, value, source)
        row = {"field": field, "source": source, "value": usable, "valid": valid, "chosen": False}
        rows.setdefault((field, source), row)
    for field in sources.FIELDS:
        for source in prefer:
            row = rows.get((field, source), {})
            if row.get("valid"):
                row["chosen"] = True
                break
    return [rows[key] for key in sorted(rows)]


def _usable(field: str, value: str, source: str) -> tuple[str, bool]:
    """The value as the field wants it, and whether it is one."""
    text = " ".join(value.split())
    if field in {"published_at", "modified_at"}:
        found = sources.iso_date(text)
        return found or text, found is not None
    if field == "title" and source == "property":
        # Writing programs put a file's name or their own into this place.
        return text, bool(text) and not text.casefold().startswith(_OFFICE) and not text.casefold().endswith(
            (".doc", ".docx", ".pdf")
        )
    return text, bool(text)


def _named(text: str, language: str | None, config: MetadataConfig) -> Rows:
    given = _namer(config).name(text, language)
    spans = sorted({(int(start), int(end), str(kind)) for start, end, kind in given.get("spans", ())})
    for start, end, kind in spans:
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"{config.extractor}: span [{start}, {end}) of type {kind} in a text of {len(text)} code points"
            )
    triples = [tuple(map(str, triple)) for triple in given.get("triples", ())]
    return {
        "entities": [{"start": start, "end": end, "type": kind} for start, end, kind in spans],
        "relations": [
            {"relation_no": number, "subject": subject, "relation": relation, "object": other}
            for number, (subject, relation, other) in enumerate(triples)
        ],
    }
