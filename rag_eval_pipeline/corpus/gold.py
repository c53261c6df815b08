"""Gold labels of a corpus version, as frames. Loading stands in `labels`, validation in `checks`; an absent file is empty.

Evidence as loaded: a span has its quote filled in; a quote whose `start` or `occurrence` (from 1) says which has its span,
where its document has a reference text. `critical` NULL means the defaults, an empty list none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import polars as pl

SPAN = pl.Struct({"start": pl.Int64, "end": pl.Int64, "type": pl.String})
LANGUAGE_SPAN = pl.Struct({"start": pl.Int64, "end": pl.Int64, "language": pl.String})
BLOCK = pl.Struct({"kind": pl.String, "level": pl.Int64, "text": pl.String})

SCHEMAS: dict[str, dict[str, pl.DataType | type[pl.DataType]]] = {
    "queries": {
        "query_id": pl.String,
        "text": pl.String,
        "split": pl.String,
        "answerable": pl.Boolean,
        "intent": pl.String,
        "language": pl.String,
        "principal": pl.String,
        "tags": pl.List(pl.String),
        "filter": pl.String,
        "cluster_id": pl.String,
    },
    "principals": {"principal": pl.String, "tenant": pl.String, "groups": pl.List(pl.String)},
    "evidence": {
        "query_id": pl.String,
        "evidence_id": pl.String,
        "doc_id": pl.String,
        "quote": pl.String,
        "start": pl.Int64,
        "end": pl.Int64,
        "occurrence": pl.Int64,
        "critical": pl.List(pl.String),
        "grade": pl.Int64,
        "hop": pl.Int64,
        "acl": pl.List(pl.String),
    },
    "qrels": {"query_id": pl.String, "doc_id": pl.String, "grade": pl.Int64},
    "chunk_qrels": {"query_id": pl.String, "chunk_id": pl.String, "grade": pl.Int64, "chunking": pl.String},
    "claims": {
        "query_id": pl.String,
        "claim_id": pl.String,
        "text": pl.String,
        "supported_by": pl.List(pl.String),
        "vital": pl.Boolean,
    },
    "answers_gold": {"query_id": pl.String, "answers": pl.List(pl.String)},
    "verdicts": {
        "answer_id": pl.String,
        "claim": pl.String,
        "verdict": pl.String,
        "annotator": pl.String,
        "time": pl.String,
    },
    "structure": {"doc_id": pl.String, "blocks": pl.List(BLOCK)},
    "main_text": {"doc_id": pl.String, "text": pl.String, "boilerplate": pl.List(SPAN)},
    "languages": {"doc_id": pl.String, "language": pl.String, "sections": pl.List(LANGUAGE_SPAN)},
    "duplicates": {"doc_a": pl.String, "doc_b": pl.String, "duplicate": pl.Boolean},
    "pii": {"doc_id": pl.String, "spans": pl.List(SPAN)},
    "entities": {"doc_id": pl.String, "spans": pl.List(SPAN)},
    "relations": {"doc_id": pl.String, "triples": pl.List(pl.List(pl.String))},
    "cuts": {"chunk_id": pl.String, "edge": pl.String, "reasonable": pl.Boolean, "annotator": pl.String},
    "ontology": {"node": pl.String, "parents": pl.List(pl.String)},
    "links": {"text_id": pl.String, "start": pl.Int64, "end": pl.Int64, "node": pl.String},
    "tables": {"doc_id": pl.String, "table_no": pl.Int64, "html": pl.String},
    "references": {"doc_id": pl.String, "text": pl.String},
}
"""Columns of each gold frame. `filter` is the predicate as JSON text. `references`: transcript, else the decoded txt, md or csv."""


def _empty(name: str) -> pl.DataFrame:
    return pl.DataFrame(schema=SCHEMAS[name])


@dataclass(frozen=True)
class Gold:
    """All labels of a corpus version. Absent files are empty frames; `present` names the files that are there."""

    queries: pl.DataFrame = field(default_factory=lambda: _empty("queries"))
    principals: pl.DataFrame = field(default_factory=lambda: _empty("principals"))
    evidence: pl.DataFrame = field(default_factory=lambda: _empty("evidence"))
    qrels: pl.DataFrame = field(default_factory=lambda: _empty("qrels"))
    chunk_qrels: pl.DataFrame = field(default_factory=lambda: _empty("chunk_qrels"))
    claims: pl.DataFrame = field(default_factory=lambda: _empty("claims"))
    answers_gold: pl.DataFrame = field(default_factory=lambda: _empty("answers_gold"))
    verdicts: pl.DataFrame = field(default_factory=lambda: _empty("verdicts"))
    structure: pl.DataFrame = field(default_factory=lambda: _empty("structure"))
    main_text: pl.DataFrame = field(default_factory=lambda: _empty("main_text"))
    languages: pl.DataFrame = field(default_factory=lambda: _empty("languages"))
    duplicates: pl.DataFrame = field(default_factory=lambda: _empty("duplicates"))
    pii: pl.DataFrame = field(default_factory=lambda: _empty("pii"))
    entities: pl.DataFrame = field(default_factory=lambda: _empty("entities"))
    relations: pl.DataFrame = field(default_factory=lambda: _empty("relations"))
    cuts: pl.DataFrame = field(default_factory=lambda: _empty("cuts"))
    ontology: pl.DataFrame = field(default_factory=lambda: _empty("ontology"))
    links: pl.DataFrame = field(default_factory=lambda: _empty("links"))
    tables: pl.DataFrame = field(default_factory=lambda: _empty("tables"))
    references: pl.DataFrame = field(default_factory=lambda: _empty("references"))
    present: frozenset[str] = frozenset()
    hash: str = ""

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self) if f.name in SCHEMAS):
            if (found := dict(getattr(self, name).schema)) != SCHEMAS[name]:
                raise ValueError(f"gold {name}: expected columns {SCHEMAS[name]}, found {found}")

    def measured(self, split: str) -> pl.DataFrame:
        """The queries that are measured: those of the evaluated split."""
        return self.queries.filter(pl.col("split") == split)
