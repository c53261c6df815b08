"""BEIR folders (corpus.jsonl, queries.jsonl, qrels/<split>.tsv) and sets laid out otherwise, such as allenai's SciFact.

A document is title, space, text, as in the published BM25 figures. Queries without a judgment in the split are left out.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from rag_eval_pipeline.corpus.importers.reading import find, json_lines, take, text_lines
from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError
from rag_eval_pipeline.corpus.labels import split_columns

IDS = ("_id", "id", "doc_id", "docid", "docno")
TEXTS = ("text", "contents", "abstract", "body")
QUERY_IDS = ("_id", "query_id", "id", "qid")
QUERY_TEXTS = ("text", "query", "question", "claim", "title")


def read(
    source: Path,
    writer: CorpusWriter,
    *,
    split: str = "test",
    corpus_file: str | None = None,
    queries_file: str | None = None,
    qrels_file: str | None = None,
) -> None:
    """Stream a set into `writer`. Files are relative to `source`."""
    corpus = find(source, corpus_file, ("corpus.jsonl", "corpus.jsonl.gz"), "corpus-file")
    queries = find(source, queries_file, ("queries.jsonl", "queries.jsonl.gz"), "queries-file")
    qrels = find(source, qrels_file, (f"qrels/{split}.tsv", f"qrels/{split}.tsv.gz"), "qrels-file")
    documents(corpus, writer)
    judged = judgments(qrels)
    add_queries(queries, judged, writer)
    add_judgments(judged, writer)


def documents(path: Path, writer: CorpusWriter) -> None:
    """Documents of a JSON Lines file."""
    for place, row in json_lines(path):
        title = take(row, ("title",), place, default="")
        body = take(row, TEXTS, place)
        writer.add_document(take(row, IDS, place), f"{title} {body}".strip() if title else body, title=_one_line(title))


def _one_line(title: str) -> str | None:
    return " ".join(title.split()) or None


def judgments(path: Path) -> dict[str, dict[str, int]]:
    """Grades by query and document; three columns (a header is skipped) or TREC's four.

    Raises:
        ImportFailedError: a line has another form, or a pair is judged twice with different grades.
    """
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for number, text in text_lines(path):
        cells = split_columns(text)
        if len(cells) not in (3, 4):
            raise ImportFailedError(f"{path.name}:{number}: {len(cells)} columns, expected 3 or TREC's 4")
        query, doc, grade = cells[0], cells[-2], cells[-1]
        try:
            value = int(grade)
        except ValueError:
            if number == 1:
                continue
            raise ImportFailedError(f"{path.name}:{number}: the grade is no whole number") from None
        if found[query].setdefault(doc, value) != value:
            raise ImportFailedError(f"{path.name}:{number}: query {query!r}, document {doc!r} has two grades: keep one")
    return found


def add_queries(path: Path, judged: dict[str, dict[str, int]], writer: CorpusWriter) -> None:
    """Queries of a JSON Lines file that have a judgment."""
    added: set[str] = set()
    for place, row in json_lines(path):
        query_id = take(row, QUERY_IDS, place)
        if query_id not in judged:
            writer.note("queries without a judgment in this split were left out")
            continue
        writer.add_query(query_id, take(row, QUERY_TEXTS, place))
        added.add(query_id)
    drop_unknown(judged, added, writer)


def drop_unknown(judged: dict[str, dict[str, int]], added: set[str], writer: CorpusWriter) -> None:
    """Judgments of queries whose text the set lacks can't be evaluated."""
    if missing := [query for query in judged if query not in added]:
        writer.note("judged queries have no text in the set and were left out", len(missing))
        for query in missing:
            del judged[query]
    if not judged:
        raise ImportFailedError("no query has both a text and a judgment: check --split and the files' query ids")


def add_judgments(judged: dict[str, dict[str, int]], writer: CorpusWriter) -> None:
    """Judgments, those of documents that the set lacks too: a lost source is a finding."""
    for query, grades in judged.items():
        for doc, grade in grades.items():
            if not writer.has_document(doc):
                writer.note("judgments name documents that the set lacks")
            writer.add_qrel(query, writer.doc_id(doc), grade)
