"""TREC-style sets: documents as a folder of text files or JSON Lines, topics as TSV, qrels, and run files.

Run files become outputs/runs/<name>.trec, so that a system's own rankings are evaluated as they are.
"""

from __future__ import annotations

from pathlib import Path

from rag_eval_pipeline.corpus.decoding import decode, is_text
from rag_eval_pipeline.corpus.importers import beir
from rag_eval_pipeline.corpus.importers.reading import find, text_lines
from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError
from rag_eval_pipeline.corpus.keys import slug
from rag_eval_pipeline.corpus.labels import split_columns


def read(
    source: Path,
    writer: CorpusWriter,
    *,
    documents: str | None = None,
    topics: str | None = None,
    qrels: str | None = None,
    runs: tuple[str, ...] = (),
) -> None:
    """Stream a set into `writer`. Files are relative to `source`; `runs` are run files, named by their stem."""
    given = find(source, documents, ("docs", "documents", "corpus.jsonl", "corpus.jsonl.gz", "docs.jsonl"), "documents")
    topic_file = find(source, topics, ("topics.tsv", "queries.tsv"), "topics")
    judged = beir.judgments(find(source, qrels, ("qrels.txt", "qrels.tsv", "qrels", "qrels.test"), "qrels"))
    if given.is_dir():
        _folder(given, writer)
    else:
        beir.documents(given, writer)
    added = _topics(topic_file, judged, writer)
    beir.drop_unknown(judged, added, writer)
    beir.add_judgments(judged, writer)
    names: set[str] = set()
    for run in runs:
        name = slug(Path(run).stem, "run")
        if name in names:
            raise ImportFailedError(f"two run files are called {name!r}: rename one")
        names.add(name)
        _run(find(source, run, (), "runs"), name, added, writer)


def _folder(folder: Path, writer: CorpusWriter) -> None:
    """Text files below a folder; the id is the path without the suffix."""
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith("."):
            continue
        if not path.resolve().is_relative_to(root):
            raise ImportFailedError(f"{path.relative_to(folder)} is a link that leaves the set: copy the file there")
        if not is_text(path.name) and path.suffix:
            writer.note("files that are no txt, md or csv were left out: put those into a corpus folder yourself")
            continue
        name = path.relative_to(folder).as_posix()
        writer.add_document(name.removesuffix(path.suffix), decode(path.read_bytes())[0])


def _topics(path: Path, judged: dict[str, dict[str, int]], writer: CorpusWriter) -> set[str]:
    added: set[str] = set()
    for number, text in text_lines(path):
        query, tab, words = text.partition("\t")
        if not tab:
            raise ImportFailedError(f"{path.name}:{number}: no tab; expected query id, tab, text")
        if query not in judged:
            writer.note("topics without a judgment were left out")
            continue
        writer.add_query(query, words)
        added.add(query)
    return added


def _run(path: Path, name: str, queries: set[str], writer: CorpusWriter) -> None:
    for number, text in text_lines(path):
        cells = split_columns(text)
        if len(cells) != 6:
            raise ImportFailedError(
                f"{path.name}:{number}: {len(cells)} columns, expected query Q0 item rank score tag"
            )
        query, _, doc, rank, score, tag = cells
        if query not in queries:
            writer.note(f"lines of run {name} belong to queries without a judgment and were left out")
            continue
        writer.add_run_line(name, query, writer.doc_id(doc), rank, score, tag)
