"""Documents and questions with character spans, as in chunking_evaluation: each span is a piece of evidence.

questions.jsonl: question, references[{content, start_index, end_index}], corpus_id; other common names are understood.
Offsets are code points of the decoded file with LF line ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.decoding import decode, is_text
from rag_eval_pipeline.corpus.importers.reading import find, json_lines, take
from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError

DOCUMENT = ("doc_id", "corpus_id", "document", "document_id")


def read(source: Path, writer: CorpusWriter, *, documents: str | None = None, questions: str | None = None) -> None:
    """Read a set into `writer`. Files are relative to `source`."""
    folder = find(source, documents, ("corpora", "documents", "docs"), "documents")
    asked = find(source, questions, ("questions.jsonl", "queries.jsonl"), "questions")
    texts: dict[str, str] = {}
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not is_text(path.name):
            continue
        if not path.resolve().is_relative_to(root):
            raise ImportFailedError(f"{path.relative_to(folder)} is a link that leaves the set: copy the file there")
        name = path.relative_to(folder).as_posix().removesuffix(path.suffix)
        texts[name] = decode(path.read_bytes())[0]
        writer.add_document(name, texts[name])
    for number, (place, row) in enumerate(json_lines(asked), 1):
        _question(number, place, row, texts, writer)


def _question(number: int, place: str, row: dict[str, Any], texts: dict[str, str], writer: CorpusWriter) -> None:
    query = writer.add_query(
        take(row, ("query_id", "id", "_id"), place, default=f"q{number:05d}"),
        take(row, ("question", "query", "text"), place),
        answerable=bool(spans := _spans(row, place)),
    )
    for position, span in enumerate(spans, 1):
        doc = take({**row, **span}, DOCUMENT, place)
        if doc not in texts:
            writer.note("spans name documents that the set lacks and gave no evidence")
            continue
        _evidence(query, position, doc, texts[doc], span, place, writer)


def _spans(row: dict[str, Any], place: str) -> list[dict[str, Any]]:
    given: Any = next((row[name] for name in ("references", "spans", "evidence") if name in row), [])
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise ImportFailedError(f"{place}: references is text that is no JSON: write a list") from None
    if not isinstance(given, list) or not all(isinstance(span, dict) for span in given):
        raise ImportFailedError(f"{place}: references is no list of objects {{content, start_index, end_index}}")
    return given


def _evidence(
    query: str, position: int, doc: str, text: str, span: dict[str, Any], place: str, writer: CorpusWriter
) -> None:
    content = next((span[name] for name in ("content", "quote", "text") if isinstance(span.get(name), str)), None)
    start = next((span[name] for name in ("start_index", "start") if isinstance(span.get(name), int)), None)
    end = next((span[name] for name in ("end_index", "end") if isinstance(span.get(name), int)), None)
    if start is None or end is None:
        if content is None:
            raise ImportFailedError(f"{place}: span {position} has neither offsets nor content")
        start, end = -1, -1
    inside = text[start:end] if 0 <= start < end <= len(text) else None
    if inside is None or (content is not None and inside != content):
        if content is None or (at := text.find(content)) < 0 or not content:
            writer.note("spans do not stand where the set says and gave no evidence")
            return
        writer.note("spans were moved to where their content stands")
        start, end, inside = at, at + len(content), content
    if not inside.strip():
        writer.note("spans of white space gave no evidence")
        return
    writer.add_evidence(
        query_id=query, evidence_id=f"e{position}", doc_id=writer.doc_id(doc), quote=inside, start=start, end=end
    )
