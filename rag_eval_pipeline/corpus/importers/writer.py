"""Write a corpus folder beside its place and rename it there: half an import is never visible.

What is written comes from the formats' modules; here are ids made safe, texts made exact, and the swap.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import unicodedata
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rag_eval_pipeline.corpus.documents import same
from rag_eval_pipeline.corpus.importers.presets import corpus_yaml, preset_yamls
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.layout import Layout, unsafe_id

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


class ImportFailedError(ValueError):
    """A set can't be imported; the message says what to do next."""


def plain(text: str) -> str:
    """A text as it reads back from a .txt file: no BOM, LF line ends, no half surrogate pairs."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", text)


def moved(text: str, offset: int) -> int:
    """Where a code point of `text` stands in `plain(text)`."""
    if offset > 0 and text[offset - 1 : offset + 1] == "\r\n":
        return len(plain(text[: offset - 1]))
    return len(plain(text[:offset]))


def safe_name(name: str) -> str:
    """An id as part of a file name: letters, digits, `._-`; altered or long ones end in eight digits of their hash."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[:80]
    return (
        kept if kept == name else f"{kept or 'doc'}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    )


class CorpusWriter:
    """One import in progress: streams documents, gold and outputs into a folder beside its place. A context manager.

    Leaving it without an error renames the folder to `<corpora>/<corpus>/<version>`; with one, nothing is left.
    """

    def __init__(
        self,
        corpora: Path,
        corpus: str,
        version: str,
        *,
        language: str | None = None,
        split: str = "test",
        preset: str = "default",
        ks: tuple[int, ...] = (1, 3, 5, 10),
        overwrite: bool = False,
    ) -> None:
        self.layout = Layout(corpora, Key(corpus, version))
        if self.layout.version.exists() and not overwrite:
            raise ImportFailedError(f"{self.layout.key} exists: choose another --version, or pass --overwrite")
        self.language, self.split, self.preset, self.ks = language, split, preset, ks
        self.documents, self.queries, self.units, self.outputs = 0, 0, 0, 0
        self.settings: str | None = None
        self.notes: Counter[str] = Counter()
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()
        self._paths: set[str] = set()
        self._query_ids: set[str] = set()
        self._streams: dict[str, TextIO] = {}
        corpora.mkdir(parents=True, exist_ok=True)
        # A leading dot keeps it out of every listing; a killed import leaves one such folder and nothing else.
        self._folder = corpora / f".import-{corpus}-{version}-{os.getpid()}"
        shutil.rmtree(self._folder, ignore_errors=True)
        self._version = self._folder / version
        (self._version / "documents").mkdir(parents=True)

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams.values():
            stream.close()
        try:
            if kind is None:
                self._publish()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def note(self, what: str, count: int = 1) -> None:
        """Count something that the user should know."""
        self.notes[what] += count

    @property
    def warnings(self) -> list[str]:
        """What was noted, with counts."""
        return [f"{count:,} {what}" for what, count in sorted(self.notes.items())]

    def has_document(self, source_id: str) -> bool:
        """Whether a document of this id was added."""
        return source_id in self._ids

    def doc_id(self, source_id: str) -> str:
        """The corpus's id of a document of the set; for one that the set lacks, the id that it would have."""
        return self._ids.get(source_id) or self._safe_id(source_id)

    def _safe_id(self, source_id: str) -> str:
        name = unicodedata.normalize("NFC", source_id)
        if unsafe_id(name) or len(name) > 200:
            return safe_name(source_id)
        return name

    def add_document(self, source_id: str, text: str, **fields: Any) -> str:
        """Write one document as .txt with its line in documents.jsonl; returns its doc_id.

        Raises:
            ImportFailedError: the set has this id already.
        """
        if source_id in self._ids:
            raise ImportFailedError(f"document {source_id!r} stands twice in the set: remove one of them")
        doc_id = self._safe_id(source_id)
        if same(doc_id) in self._taken:
            doc_id = f"{doc_id}-{hashlib.sha256(source_id.encode('utf-8', 'replace')).hexdigest()[:8]}"
        if doc_id != source_id:
            self.note("documents got another id, which is safe as a path (metadata.source_id has the set's)")
            fields["metadata"] = {**fields.get("metadata", {}), "source_id": plain(source_id)}
        self._ids[source_id] = doc_id
        self._taken.add(same(doc_id))
        path = self._path(doc_id)
        body = plain(text)
        if not body.strip():
            self.note("documents are empty")
        (self._version / "documents" / path).write_text(body, "utf-8", newline="")
        line = {"doc_id": doc_id, "path": path, **({"language": self.language} if self.language else {}), **fields}
        self._write("documents.jsonl", {name: value for name, value in line.items() if value not in (None, {}, "")})
        self.documents += 1
        return doc_id

    def _path(self, doc_id: str) -> str:
        name = safe_name(doc_id)
        if same(name) in self._paths:
            name = f"{name}-{hashlib.sha256(doc_id.encode()).hexdigest()[:8]}"
        self._paths.add(same(name))
        return f"{name}.txt"

    def add_query(self, source_id: str, text: str, **fields: Any) -> str:
        """Write one query; returns its id.

        Raises:
            ImportFailedError: the set has this id already, or the query has no text.
        """
        query_id = _CONTROL.sub(" ", plain(source_id)).strip()
        if not query_id or query_id in self._query_ids:
            raise ImportFailedError(f"query id {source_id!r} is empty or stands twice in the set: make ids unique")
        if not text.strip():
            raise ImportFailedError(f"query {source_id!r} has no text: remove it from the set")
        self._query_ids.add(query_id)
        line = {"query_id": query_id, "text": plain(text), "split": self.split}
        if self.language:
            line["language"] = self.language
        self._write(
            "gold/queries.jsonl", {**line, **{name: value for name, value in fields.items() if value is not None}}
        )
        self.queries += 1
        return query_id

    def add_evidence(self, **fields: Any) -> None:
        """Write one line of evidence.jsonl."""
        self._write("gold/evidence.jsonl", {name: value for name, value in fields.items() if value is not None})
        self.units += 1

    def add_answers(self, query_id: str, answers: list[str]) -> None:
        """Write one line of answers_gold.jsonl."""
        self._write("gold/answers_gold.jsonl", {"query_id": query_id, "answers": [plain(answer) for answer in answers]})

    def add_qrel(self, query_id: str, doc_id: str, grade: int, *, unit: bool = True) -> None:
        """Write one judgment. `unit`: it is the gold itself, not beside quotes that are."""
        stream = self._stream("gold/qrels.tsv", "query-id\tcorpus-id\tscore\n")
        stream.write(f"{query_id}\t{doc_id}\t{grade}\n")
        self.units += unit and grade > 0

    def add_chunk_qrel(self, query_id: str, chunk_id: str, grade: int) -> None:
        """Write one judgment of a chunk."""
        stream = self._stream("gold/chunk_qrels.tsv", "query_id\tchunk_id\tgrade\n")
        stream.write(f"{query_id}\t{chunk_id}\t{grade}\n")
        self.units += grade > 0

    def add_output(self, name: str, row: dict[str, Any]) -> None:
        """Write one line of outputs/<name>: what the user's own system produced."""
        self._write(f"outputs/{name}", row)
        self.outputs += 1

    def add_run_line(self, run: str, query_id: str, doc_id: str, rank: str, score: str, tag: str) -> None:
        """Write one line of a run file."""
        self._stream(f"outputs/runs/{run}.trec").write(f"{query_id}\tQ0\t{doc_id}\t{rank}\t{score}\t{tag}\n")

    def _write(self, name: str, row: dict[str, Any]) -> None:
        self._stream(name).write(json.dumps(row, ensure_ascii=False) + "\n")

    def _stream(self, name: str, head: str = "") -> TextIO:
        if name not in self._streams:
            path = self._version / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._streams[name] = path.open("w", encoding="utf-8", newline="")
            self._streams[name].write(head)
        return self._streams[name]

    def _publish(self) -> None:
        if not self.documents and not self.outputs:
            raise ImportFailedError("the set has no documents: check the paths of its files")
        settings = self.settings or corpus_yaml(self.preset, self.language, self.ks)
        (self._folder / "corpus.yaml").write_text(settings, "utf-8")
        (self._folder / "pipelines").mkdir()
        for name, text in ({} if self.settings else preset_yamls(self.preset)).items():
            (self._folder / "pipelines" / f"{name}.yaml").write_text(text, "utf-8")
        if not self.layout.corpus.exists():
            self._folder.replace(self.layout.corpus)
            return
        if not (self.layout.corpus / "corpus.yaml").exists():
            (self._folder / "corpus.yaml").replace(self.layout.corpus / "corpus.yaml")
        else:
            self.note("corpus.yaml was there and stays as it is: see that its languages fit this version")
        old = self._folder / ".old"
        replaced = self.layout.version.exists()
        if replaced:
            self.layout.version.replace(old)
        try:
            self._version.replace(self.layout.version)
        except OSError:
            if replaced:
                old.replace(self.layout.version)
            raise
