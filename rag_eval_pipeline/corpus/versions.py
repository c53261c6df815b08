"""Make a version from another one: a copy to edit, or a small one to try. Written beside and renamed, whole or not at all."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.labels import split_columns
from rag_eval_pipeline.corpus.layout import READY, Layout
from rag_eval_pipeline.corpus.version import CorpusVersion, load_version

DOCUMENT_FILES = ("transcripts", "tables")


def bump_version(corpora: Path, key: Key, new: str) -> Key:
    """Copy a version's folder to a new version.

    Raises:
        FileNotFoundError: there is no such version.
        FileExistsError: the new version is there already.
        KeyNameError: the new name is not allowed.
    """
    made = Key(key.corpus, new)
    source, target = Layout(corpora, key).version, Layout(corpora, made).version
    if not source.is_dir():
        raise FileNotFoundError(f"{key.subject} is not there: {source} is no folder")
    with _Building(target) as folder:
        shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns(READY), dirs_exist_ok=True)
    return made


def limit_version(corpora: Path, key: Key, limit: int) -> Key:
    """Make `<version>.limit<N>`: N documents, those that queries need first, and the queries that they answer.

    A limited version of that name that is there already is kept: it was made of the same documents by the same rule.

    Raises:
        CorpusError: the version is refused.
        ValueError: it has outputs/, whose files speak of all documents.
    """
    made = Key(key.corpus, f"{key.version}.limit{limit}", key.pipeline)
    layout, target = Layout(corpora, key), Layout(corpora, made).version
    if target.is_dir():
        return made
    version = load_version(corpora, key)
    answering = version.settings.pipeline.get("answering")
    imports = isinstance(answering, dict) and answering.get("answerer") == "import"
    # Answers speak of queries: those that nobody imports are left behind.
    if set(version.outputs) - (set() if imports else {"answers"}):
        raise ValueError(f"{key.subject} has outputs/ that speak of all its documents; run it without --limit")
    kept = _first_documents(version, limit)
    with _Building(target) as folder:
        _copy_documents(layout, version, kept, folder)
        _copy_gold(layout, version, kept, folder)
    return made


class _Building:
    """A hidden folder beside the target, renamed to it on success and removed on failure."""

    def __init__(self, target: Path) -> None:
        if target.exists():
            raise FileExistsError(f"{target} is there already; choose another name")
        self.target = target
        self.folder = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"

    def __enter__(self) -> Path:
        self.folder.mkdir(parents=True)
        return self.folder

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.folder.rename(self.target)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def _needs(version: CorpusVersion) -> dict[str, list[str]]:
    """Query -> documents that hold its evidence or are judged relevant."""
    needs: dict[str, list[str]] = {query: [] for query in version.gold.queries["query_id"].to_list()}
    for query, document in version.gold.evidence.select("query_id", "doc_id").iter_rows():
        needs[query].append(document)
    for query, document, grade in version.gold.qrels.select("query_id", "doc_id", "grade").iter_rows():
        if grade > 0 and query in needs:
            needs[query].append(document)
    return needs


def _first_documents(version: CorpusVersion, limit: int) -> set[str]:
    present = version.files["doc_id"].to_list()
    there = set(present)
    wanted = [document for documents in _needs(version).values() for document in documents if document in there]
    return set(list(dict.fromkeys([*wanted, *present]))[:limit])


def _copy_documents(layout: Layout, version: CorpusVersion, kept: set[str], folder: Path) -> None:
    for doc_id, path in version.files.select("doc_id", "path").iter_rows():
        if doc_id in kept:
            target = folder / "documents" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(layout.documents / path, target)
    listed = layout.version / "documents.jsonl"
    if listed.is_file():
        paths = set(version.files.filter(version.files["doc_id"].is_in(list(kept)))["path"].to_list())
        rows = [row for row in _objects(listed) if row.get("doc_id") in kept or row.get("path") in paths]
        _write(folder / "documents.jsonl", rows)


def _copy_gold(layout: Layout, version: CorpusVersion, kept: set[str], folder: Path) -> None:
    """The version's own gold about what is kept, and deletions of shared queries that lost a document."""
    needs = _needs(version)
    lost = {query for query, documents in needs.items() if set(documents) - kept}
    shared, own = layout.golds
    (folder / "gold").mkdir(parents=True)
    for file in sorted(own.glob("*.jsonl")) if own.is_dir() else []:
        _write(folder / "gold" / file.name, [row for row in _objects(file) if row.get("query_id") not in lost])
    for file in sorted(own.glob("*.tsv")) if own.is_dir() else []:
        lines = file.read_text("utf-8-sig").splitlines()
        (folder / "gold" / file.name).write_text(
            "".join(f"{line}\n" for line in lines if split_columns(line)[0] not in lost), "utf-8"
        )
    for name in DOCUMENT_FILES:
        if (own / name).is_dir():
            shutil.copytree(own / name, folder / "gold" / name)
    queries = folder / "gold" / "queries.jsonl"
    mine = {row.get("query_id") for row in _objects(queries)} if queries.is_file() else set()
    listed = shared / "queries.jsonl"
    everywhere = [row["query_id"] for row in _objects(listed)] if listed.is_file() else []
    deletions = [{"id": query, "delete": True} for query in everywhere if query in lost and query not in mine]
    if deletions:
        _write(queries, [*(_objects(queries) if queries.is_file() else []), *deletions])


def _objects(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8-sig").splitlines() if line.strip()]


def _write(file: Path, rows: Iterable[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
