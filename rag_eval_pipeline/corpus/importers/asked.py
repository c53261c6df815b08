"""What traces and evaluation sets say of one question, in one form; and a corpus version, or outputs of one that is there, made of it.

How a tool writes it down belongs in its module (`ragas`, `langsmith`, `phoenix`).
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rag_eval_pipeline.corpus.documents import load_documents
from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError, plain
from rag_eval_pipeline.corpus.keys import Key, slug
from rag_eval_pipeline.corpus.labels import load_labels
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.pending import replace_file
from rag_eval_pipeline.corpus.questions import Documents

RUN = "imported"
LONGEST_ID = 200
SHORTEST = 12
"""Characters of a reference context from which on it is looked for inside of others."""


@dataclass(frozen=True)
class Passage:
    """A piece that was retrieved, or given to the answerer.

    Attributes:
        text: its text, where the tool kept it.
        chunk_id: its id in the user's system.
        doc_id: its document, by id, name or path.
        score: higher is better.
    """

    text: str | None = None
    chunk_id: str | None = None
    doc_id: str | None = None
    score: float | None = None

    @property
    def id(self) -> str:
        """The system's own id; else one of its document and text."""
        if self.chunk_id:
            return self.chunk_id
        told = f"{self.doc_id or ''}\0{self.text or ''}"
        return f"c-{hashlib.sha256(told.encode('utf-8', 'replace')).hexdigest()[:12]}"


@dataclass(frozen=True)
class Asked:
    """One question and what became of it.

    Attributes:
        place: file and line, for messages.
        question: as it was asked.
        name: id of the sample or trace.
        answer: what was said.
        retrieved: the ranking, best first; None where the tool kept none.
        given: what the answerer was given, in order; None where it is not known.
        references: expected answers.
        needed: texts of reference contexts.
        needed_ids: ids of reference contexts.
        usage: tokens, as answers.jsonl keeps it.
        timings: seconds, likewise.
        time: when, so that the newest of several traces of a question counts.
    """

    place: str
    question: str
    name: str | None = None
    answer: str | None = None
    retrieved: tuple[Passage, ...] | None = None
    given: tuple[Passage, ...] | None = None
    references: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    needed_ids: tuple[str, ...] = ()
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    time: str = ""


def fold(text: str) -> str:
    """How questions are compared."""
    return " ".join(plain(text).casefold().split())


def fit(name: str) -> str:
    """A tool's id as ours may be: one line, no control characters or halves of pairs; a long one ends in digits of its hash."""
    kept = "".join(" " if unicodedata.category(c) in {"Cc", "Zl", "Zp"} else c for c in plain(name))
    line = " ".join(kept.split())
    return line if len(line) <= LONGEST_ID else f"{line[:80]}-{hashlib.sha256(line.encode()).hexdigest()[:8]}"


def newest(asked: Iterable[Asked], writer: Notes) -> list[Asked]:
    """One a question: the newest, in the order in which questions first came."""
    kept: dict[str, Asked] = {}
    for one in asked:
        key = fold(one.question)
        if key in kept:
            writer.note("older traces of questions that were asked again were left out")
            if one.time < kept[key].time:
                continue
        kept[key] = one
    return list(kept.values())


class Notes(Protocol):
    """What counts notes: the writer of a version, or of outputs."""

    def note(self, what: str, count: int = 1) -> None:
        """Count something that the user should know."""


def write_version(asked: Iterable[Asked], writer: CorpusWriter, run: str = RUN) -> None:
    """A version without documents: queries, the chunks that were seen, the ranking, contexts, answers, and what was needed."""
    name = slug(run, RUN)
    rows = newest(asked, writer)
    chunks = _Chunks(writer)
    ranked = given = answered = False
    needed: list[tuple[str, Asked]] = []
    for number, one in enumerate(rows, 1):
        query = writer.add_query(fit(one.name or "") or f"q{number:04}", one.question)
        needed.append((query, one))
        if one.references:
            writer.add_answers(query, list(one.references))
        for place, passage in enumerate(one.retrieved or (), 1):
            ranked = True
            writer.add_output(f"runs/{name}.jsonl", _ranked(query, chunks.add(passage), place, passage.score))
        for place, passage in enumerate(one.given or (), 1):
            given = True
            row = {"query_id": query, "position": place, "chunk_id": chunks.add(passage)}
            writer.add_output("contexts.jsonl", row)
        if one.answer is not None:
            answered = True
            writer.add_output("answers.jsonl", _answer(query, one))
        elif one.retrieved or one.given:
            writer.note("traces have no answer")
    if not chunks.texts and not rows:
        raise ImportFailedError("no question was found: check that the file is an export of this tool")
    for query, one in needed:
        _needed(query, one, chunks, writer)
    if not chunks.texts:
        raise ImportFailedError("no retrieved or reference context was found: without any there is nothing to evaluate")
    for chunk_id, (doc_id, text) in chunks.texts.items():
        writer.add_output("chunks.jsonl", {"chunk_id": chunk_id, "doc_id": doc_id, "text": text})
    writer.settings = settings_yaml(name, ranked=ranked, given=given, answered=answered, chunks=True)


class _Chunks:
    """Chunks by id, each once; another text under a known id gets an id of its own."""

    def __init__(self, writer: CorpusWriter) -> None:
        self.writer = writer
        self.texts: dict[str, tuple[str, str]] = {}

    def add(self, passage: Passage) -> str:
        """Id of a passage's chunk."""
        text = plain(passage.text or "")
        chunk_id = fit(passage.id) or Passage(passage.text).id
        if (known := self.texts.get(chunk_id)) is not None and known[1] != text:
            if not text or not known[1]:
                self.texts[chunk_id] = (known[0], known[1] or text)
                return chunk_id
            self.writer.note("chunks have the id of another text and got one of their own")
            chunk_id = f"{chunk_id}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
        if not text:
            self.writer.note("passages have no text, only an id")
        self.texts.setdefault(chunk_id, (fit(passage.doc_id or "") or chunk_id, text))
        return chunk_id

    def holding(self, text: str) -> str | None:
        """Document of a chunk that holds a text."""
        words = fold(text)
        for doc_id, held in self.texts.values():
            folded = fold(held)
            if folded == words or (len(words) >= SHORTEST and words in folded):
                return doc_id
        return None


def _needed(query: str, one: Asked, chunks: _Chunks, writer: CorpusWriter) -> None:
    """Reference contexts as evidence, in the document whose chunk holds them; one that nothing holds is a chunk that was never found."""
    for number, text in enumerate(dict.fromkeys(one.needed), 1):
        doc_id = chunks.holding(text)
        if doc_id is None:
            writer.note("reference contexts stand in no retrieved chunk and became chunks of their own")
            doc_id = chunks.texts[chunks.add(Passage(text))][0]
        writer.add_evidence(query_id=query, evidence_id=f"e{number}", doc_id=doc_id, quote=plain(text))
    if one.needed_ids and not one.needed:
        for chunk_id in dict.fromkeys(one.needed_ids):
            writer.add_chunk_qrel(query, fit(chunk_id), 1)


def _ranked(query: str, item: str, rank: int, score: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"query_id": query, "item_id": item, "rank": rank}
    return row if score is None else {**row, "score": score}


def _answer(query: str, one: Asked) -> dict[str, Any]:
    row: dict[str, Any] = {
        "answer_id": fit(one.name or "") or f"a-{query}",
        "query_id": query,
        "answer": plain(one.answer or ""),
    }
    return {**row, **({"usage": one.usage} if one.usage else {}), **({"timings": one.timings} if one.timings else {})}


def settings_yaml(name: str, *, ranked: bool, given: bool, answered: bool, chunks: bool) -> str:
    """Settings under which imported outputs are evaluated as they are."""
    lines = ["# Written by rag-eval import: what was imported is evaluated as it is.", "pipeline:"]
    lines += ["  chunking: {import: true}"] if chunks else []
    lines += (
        [f"  retrieval: {{{name}: {{kind: import, run: {name}}}}}"]
        if ranked
        else ["  retrieval: {bm25: {kind: bm25}}"]
        if chunks
        else []
    )
    lines += ["  reranking: null"] if ranked else []
    lines += ["  context: {import: true}"] if given else []
    lines += ["  answering: {answerer: import}"] if answered else []
    lines += ["evaluate:", f"  serve: {name}"] if ranked else []
    return "\n".join(lines) + "\n"


@dataclass
class IntoReport:
    """What was written beside documents that are there."""

    key: str
    pipeline: str
    files: list[str]
    n_queries: int
    warnings: list[str]


class _Outputs:
    """Output files of a version, collected; written when all is read."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.notes: dict[str, int] = {}

    def note(self, what: str, count: int = 1) -> None:
        """Count something that the user should know."""
        self.notes[what] = self.notes.get(what, 0) + count

    def add(self, name: str, row: dict[str, Any]) -> None:
        self.rows.setdefault(name, []).append(row)


def write_into(asked: Iterable[Asked], corpora: Path, key: Key, run: str, overwrite: bool) -> IntoReport:
    """Outputs of a version that has documents and queries: questions are matched by their text, documents by id, name or path.

    Raises:
        ImportFailedError: no question is one of the version's queries, or outputs are there and not to be replaced.
        CorpusError: gold is refused.
    """
    layout, faults, name = Layout(corpora, key), Faults(), slug(run, RUN)
    if not layout.version.is_dir():
        raise ImportFailedError(f"{key} is not there: leave --into out to make it of the import alone")
    labels = load_labels(layout, faults)
    ids = load_documents(layout, lambda _: "", faults)["doc_id"].to_list() if layout.documents.is_dir() else []
    faults.refuse()
    queries = {fold(row["text"]): row["query_id"] for row, _ in labels["queries"]}
    outputs = _Outputs()
    found = 0
    for one in newest(asked, outputs):
        query = queries.get(fold(one.question))
        if query is None:
            outputs.note("traces ask what is no query of this corpus and were left out")
            continue
        found += 1
        _collect(query, one, Documents(ids), name, outputs)
    if not found:
        raise ImportFailedError(
            f"no question of the import is a query of {key.corpus}: add them to gold/queries.jsonl, or leave --into out"
        )
    return _write_outputs(layout, name, outputs, found, overwrite)


def _collect(query: str, one: Asked, documents: Documents, name: str, outputs: _Outputs) -> None:
    seen: set[str] = set()
    for passage in one.retrieved or ():
        named = documents.find(passage.doc_id or passage.chunk_id or "")
        if len(named) != 1:
            outputs.note("retrieved passages name no document of this version and were left out of the ranking")
        elif named[0] not in seen:
            seen.add(named[0])
            outputs.add(f"runs/{name}.jsonl", _ranked(query, named[0], len(seen), None))
    for place, passage in enumerate((p for p in one.given or () if p.text), 1):
        outputs.add("contexts.jsonl", {"query_id": query, "position": place, "text": plain(passage.text or "")})
    if one.answer is not None:
        outputs.add("answers.jsonl", _answer(query, one))


def _write_outputs(layout: Layout, name: str, outputs: _Outputs, found: int, overwrite: bool) -> IntoReport:
    files = [layout.outputs / file for file in outputs.rows]
    if (there := [path for path in files if path.exists()]) and not overwrite:
        raise ImportFailedError(f"{layout.name(there[0])} is there: pass --overwrite to replace it")
    for file, rows in outputs.rows.items():
        path = layout.outputs / file
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    pipelines = layout.corpus / "pipelines" / f"{name}.yaml"
    pipelines.parent.mkdir(exist_ok=True)
    text = settings_yaml(
        name, ranked=f"runs/{name}.jsonl" in outputs.rows, given="contexts.jsonl" in outputs.rows,
        answered="answers.jsonl" in outputs.rows, chunks=False,
    )  # fmt: skip
    replace_file(pipelines, text)
    warnings = [f"{count:,} {what}" for what, count in sorted(outputs.notes.items())]
    return IntoReport(layout.key.subject, name, [*outputs.rows, f"../../pipelines/{name}.yaml"], found, warnings)
