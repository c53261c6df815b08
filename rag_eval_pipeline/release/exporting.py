"""An evaluation in the formats of other tools: RAGAS, TREC, BEIR, and its tables as Parquet or CSV.

What leaves is what may be published: masked text, once more through the redactor; source text where `publish.source_text` says so.
How such formats are read belongs to `corpus.importers`.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from rag_eval_pipeline.corpus.faults import suggestion
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.release.reading import Evaluation

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

Written = dict[str, int]
"""File below the folder → rows."""
FORMATS = ("ragas", "trec", "beir", "parquet", "csv")
FORMULA = r"^\s*[=+\-@＝＋－＠]|^[\t\r\n]"
"""Text that a spreadsheet takes for a formula, or that may hide the beginning of one (OWASP, CSV injection)."""
NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
"""Text that is a plain number: no formula, whatever its sign."""


class ExportError(ValueError):
    """Something can't be exported; the message says what to do."""


def export_evaluation(format: str, evaluation: Evaluation, folder: Path, tables: Collection[str] = ()) -> Written:
    """Write an evaluation into a folder, whole or not at all.

    Args:
        format: ragas | trec | beir | parquet | csv.
        evaluation: what to export.
        folder: made where it is absent; must be empty.
        tables: parquet, csv: only these; all that are published where none is named.

    Returns:
        File below the folder → rows.

    Raises:
        ExportError: the folder is not empty, a table is unknown, or gold has changed since the evaluation.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} is there and not empty: name another folder by --to")
    if tables and format not in ("parquet", "csv"):
        raise ExportError(f"--table goes with parquet and csv; {format} has files of its own")
    beside = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp"
    beside.mkdir(parents=True)
    try:
        written = (
            _tables(evaluation, beside, format, tables)
            if format in ("parquet", "csv")
            else WRITERS[format](_Export(evaluation), beside)
        )
        if folder.exists():
            folder.rmdir()
        beside.replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return written


def _tables(evaluation: Evaluation, folder: Path, format: str, only: Collection[str]) -> Written:
    """Tables as they stand in the published database."""
    import duckdb

    publish(evaluation.home)
    written: Written = {}
    with duckdb.connect(str(evaluation.home.database), read_only=True) as con:
        there = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()} & set(
            evaluation.manifest.tables
        )
        if unknown := sorted(set(only) - there):
            raise ExportError(f"there is no published table {unknown[0]!r}: {suggestion(unknown[0], there)}")
        for name in sorted(set(only) or there):
            entry = evaluation.manifest.tables[name]
            rows = con.sql(
                f'SELECT * FROM "{name}" WHERE corpus_version = $1 AND {entry["kind"]} = $2',  # noqa: S608 - both names are our own
                params=[evaluation.manifest.key.partition("#")[0], entry["id"]],
            )
            path = folder / f"{name}.{format}"
            if format == "parquet":
                rows.write_parquet(str(path))
            else:
                _without_formulas(rows).write_csv(str(path))
            written[path.name] = int(entry["rows"])
    return written


def _without_formulas(rows: DuckDBPyRelation) -> DuckDBPyRelation:
    """Rows as a spreadsheet may open them: a text that it would compute gets a single quote before it, and stays a text."""
    texts = [name for name, kind in zip(rows.columns, rows.types, strict=True) if kind == "VARCHAR"]
    guarded = ", ".join(
        f"""CASE WHEN regexp_matches("{name}", '{FORMULA}') AND NOT regexp_full_match("{name}", '{NUMBER}')
        THEN '''' || "{name}" ELSE "{name}" END AS "{name}" """
        for name in texts
    )
    return rows.project(f"* REPLACE ({guarded})") if texts else rows


@dataclass
class _Export:
    """What the formats share: gold of the evaluation, and texts as they may be shown."""

    evaluation: Evaluation

    @cached_property
    def gold(self) -> Gold:
        """Labels, which must still be those that were evaluated."""
        gold = load_version(self.evaluation.home.corpora, self.evaluation.manifest.key).gold
        if gold.hash != self.evaluation.manifest.gold_hash:
            raise ExportError(
                f"gold of {self.evaluation.manifest.key} changed since evaluation {self.evaluation.manifest.evaluation_id}: run it again "
                "(nothing is computed twice), then export"
            )
        return gold

    @cached_property
    def queries(self) -> pl.DataFrame:
        """Measured queries: query_id, text as it may be shown."""
        split = self.evaluation.manifest.config.get("evaluate", {}).get("split", "test")
        asked = self.gold.measured(split).select("query_id", "text").sort("query_id")
        return asked.with_columns(self.shown(asked["text"]))

    @property
    def open(self) -> bool:
        """Whether source text may leave."""
        return bool(self.evaluation.manifest.config.get("publish", {}).get("source_text", False))

    def shown(self, texts: pl.Series) -> pl.Series:
        """Texts as they may be shown."""
        return texts if self.open else self.evaluation.redactor.column(texts)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Masked text of every kept document."""
        return dict(self.evaluation.frame("masked").select("doc_id", "text").iter_rows())

    def documents(self) -> Iterator[tuple[str, str, str]]:
        """(doc_id, title, text) as they may be shown."""
        table = "parsed" if self.open else "masked"
        frame = self.evaluation.frame(table).select("doc_id", "text").join(
            self.evaluation.frame("documents").select("doc_id", "title"), on="doc_id", how="left", maintain_order="left"
        )  # fmt: skip
        for part in frame.iter_slices(256):
            titles = self.shown(part["title"].fill_null("")).to_list()
            yield from zip(
                part["doc_id"].to_list(), titles, self.shown(part["text"].fill_null("")).to_list(), strict=True
            )

    def judgments(self) -> pl.DataFrame:
        """query_id, doc_id, grade: those given; for a query without any, the documents of its evidence."""
        given = self.gold.qrels.select("query_id", "doc_id", "grade")
        evidence = self.gold.evidence.join(given, on="query_id", how="anti")
        derived = evidence.group_by("query_id", "doc_id").agg(pl.col("grade").max())
        rows = pl.concat([given, derived]).join(self.queries.select("query_id"), on="query_id", how="semi")
        return rows.sort("query_id", "doc_id")


def _beir(export: _Export, folder: Path) -> Written:
    documents = ({"_id": doc, "title": title, "text": text} for doc, title, text in export.documents())
    queries = ({"_id": query, "text": text, "metadata": {}} for query, text in export.queries.iter_rows())
    rows = [f"{query}\t{doc}\t{grade}" for query, doc, grade in export.judgments().iter_rows()]
    return {
        "corpus.jsonl": _jsonl(folder / "corpus.jsonl", documents),
        "queries.jsonl": _jsonl(folder / "queries.jsonl", queries),
        "qrels/test.tsv": _lines(folder / "qrels" / "test.tsv", rows, head="query-id\tcorpus-id\tscore"),
    }


def _trec(export: _Export, folder: Path) -> Written:
    """Docs as JSON Lines, topics, qrels, and two run files a retriever: documents by their best chunk, and chunks.

    trec_eval parts lines by white space, so white space in ids is written as in URLs. Its order is by score, so scores count down.
    """
    documents = ({"_id": _token(doc), "title": title, "text": text} for doc, title, text in export.documents())
    topics = [f"{_token(query)}\t{_one_line(text)}" for query, text in export.queries.iter_rows()]
    qrels = [f"{_token(query)} 0 {_token(doc)} {grade}" for query, doc, grade in export.judgments().iter_rows()]
    written = {
        "corpus.jsonl": _jsonl(folder / "corpus.jsonl", documents),
        "topics.tsv": _lines(folder / "topics.tsv", topics),
        "qrels.txt": _lines(folder / "qrels.txt", qrels),
    }
    runs = export.evaluation.frame("ranked_runs").join(export.queries.select("query_id"), on="query_id", how="semi")
    for (retriever,), rows in sorted(runs.group_by(["retriever"]), key=lambda part: str(part[0])):
        ordered = rows.sort("query_id", "rank")
        by_document = ordered.unique(["query_id", "doc_id"], keep="first", maintain_order=True)
        for name, frame, column in ((retriever, by_document, "doc_id"), (f"{retriever}.chunks", ordered, "chunk_id")):
            file = f"runs/{_token(str(name)).replace('/', '%2F')}.trec"
            written[file] = _lines(folder / file, list(_run(frame.drop_nulls(column), column, str(retriever))))
    return written


def _run(frame: pl.DataFrame, column: str, tag: str) -> Iterator[str]:
    for (query,), rows in frame.group_by(["query_id"], maintain_order=True):
        for place, item in enumerate(rows[column], 1):
            yield f"{_token(str(query))} Q0 {_token(item)} {place} {rows.height + 1 - place} {_token(tag)}"


def _ragas(export: _Export, folder: Path) -> Written:
    """One sample a query, with RAGAS's names of its fields; what is not known is left out, as RAGAS does."""
    contexts = _by_query(_context_texts(export), "query_id")
    references = _by_query(_references(export), "query_id")
    answers = dict(export.gold.answers_gold.select("query_id", pl.col("answers").list.first()).iter_rows())
    responses = _responses(export)
    rows = []
    for query, text in export.queries.iter_rows():
        given, needed = contexts.get(query, []), references.get(query, [])
        answer = answers.get(query)
        row = {
            "user_input": text,
            "retrieved_contexts": [row["text"] for row in given],
            "retrieved_context_ids": [row["chunk_id"] for row in given],
            "reference_contexts": [row["quote"] for row in needed] or None,
            "response": responses.get(query),
            "reference": None if answer is None else export.shown(pl.Series([answer]))[0],
        }
        rows.append({name: value for name, value in row.items() if value is not None})
    return {"dataset.jsonl": _jsonl(folder / "dataset.jsonl", rows)}


def _context_texts(export: _Export) -> pl.DataFrame:
    """query_id, chunk_id, text of what was given, in order; imported texts as they were, else the range of the chunk."""
    contexts = export.evaluation.frame("contexts").sort("query_id", "position")
    told = contexts["text"].to_list() if "text" in contexts.columns else [None] * contexts.height
    texts = [
        text if text is not None else export.texts.get(doc, "")[slice(start, end)]
        for text, doc, start, end in zip(told, contexts["doc_id"], contexts["start"], contexts["end"], strict=True)
    ]
    shown = export.shown(pl.Series("text", texts, dtype=pl.String))
    return contexts.select("query_id", "chunk_id").with_columns(shown)


def _references(export: _Export) -> pl.DataFrame:
    """query_id, quote: what each query needs; as the ledger has it, normalised and masked, where text may not leave as it is."""
    if export.open:
        return (
            export.gold.evidence.filter(pl.col("quote").is_not_null())
            .sort("query_id", "evidence_id")
            .select("query_id", "quote")
        )
    units = export.evaluation.frame("evidence_units").filter(pl.col("kind") == "quote").sort("query_id", "evidence_id")
    return units.select("query_id", "quote").with_columns(export.shown(units["quote"]))


def _responses(export: _Export) -> dict[str, str]:
    """query_id → its first answer, where something answered."""
    if "answers" not in export.evaluation.manifest.tables:
        return {}
    answers = export.evaluation.frame("answers").filter((pl.col("sample") == 1) & (pl.col("status") == "ok"))
    return dict(zip(answers["query_id"], export.shown(answers["answer"]), strict=True))


def _by_query(frame: pl.DataFrame, column: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(row[column], []).append(row)
    return found


WRITERS: Mapping[str, Callable[[_Export, Path], Written]] = {"beir": _beir, "trec": _trec, "ragas": _ragas}


def _token(name: str) -> str:
    """An id without white space."""
    return re.sub(r"[\s%]", lambda match: quote(match[0]), name) if re.search(r"\s", name) else name


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    return _lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def _lines(path: Path, lines: Iterable[str], head: str | None = None) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as stream:
        if head is not None:
            stream.write(head + "\n")
        for line in lines:
            stream.write(line + "\n")
            count += 1
    return count
