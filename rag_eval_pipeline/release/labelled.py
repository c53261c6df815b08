"""Labelling as work that can stop at any time: what is still to label, and each decision kept on disk before the next is asked.

How candidates are found stands in `labelling`. Files are replaced whole, under a lock, from what they hold at that moment, so that
neither a kill nor a second person at work loses a label. Lines of others stay as they are, byte for byte.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from rag_eval_pipeline.corpus.configuration import load_settings
from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.jsonl import objects
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.labels import Labels, load_labels
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.lines import LONGEST_QUOTE, EvidenceLine
from rag_eval_pipeline.corpus.pending import PENDING, Wanted, read_pending, replace_file, write_pending
from rag_eval_pipeline.corpus.questions import UNCLOSED, Documents
from rag_eval_pipeline.release.labelling import SHOWN, Ask, Candidate, Finder, Texts, anchored, load_texts
from rag_eval_pipeline.stages.querying.transform import detect
from rag_eval_pipeline.warehouse.home import Home

JOURNAL = ".labelled.jsonl"
"""Every decision, appended; nothing reads it but `skipped`. It is the record of who labelled what."""


@dataclass(frozen=True)
class Task:
    """One piece of evidence to label.

    Attributes:
        query_id: of the question.
        kind: `propose` (only an answer or a document is known), `place` (a quote whose document is not known, or that stands nowhere
            as it is), `mend` (a line of evidence.jsonl without a place).
        ask: what to look for.
        evidence_id: of the line to mend.
    """

    query_id: str
    kind: str
    ask: Ask
    evidence_id: str | None = None

    @property
    def name(self) -> tuple[str, str | None, str | None]:
        """What tells tasks apart."""
        return self.query_id, self.evidence_id, self.ask.quote


@dataclass
class Work:
    """What is to label of one version.

    Attributes:
        layout: of the version.
        texts: that quotes are cut from.
        documents: ids of all documents.
        tasks: in the order of the questions.
        languages: of the corpus.
        by: who decides, for the journal.
        done: labelled in this session, in order: (task, evidence_id).
    """

    layout: Layout
    texts: Texts
    documents: tuple[str, ...]
    tasks: list[Task]
    languages: tuple[str, ...] = ()
    by: str = "person"
    done: list[tuple[Task, str]] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        home: Home,
        key: str | Key,
        progress: Callable[[str, int, int], None],
        again: bool = False,
        everything: bool = False,
    ) -> Work:
        """Look what is to do, and read the texts that it needs.

        Args:
            home: where data lives.
            key: `<corpus>@<version>`.
            progress: called with (stage, done, total).
            again: ask what was skipped before, too.
            everything: read the texts of all documents, not only of those that the tasks need.

        Raises:
            CorpusError: gold, documents or settings are refused; a quote without a place is no fault here.
        """
        layout, faults = Layout(home.corpora, Key.parse(key)), Faults()
        if not layout.documents.is_dir():
            faults.add(
                layout.name(layout.documents),
                None,
                "",
                "no such folder",
                "a version with documents",
                "labels are cut from their texts",
            )
            faults.refuse()
        labels = load_labels(layout, faults)
        pending = [
            wanted
            for folder in layout.golds
            for wanted in read_pending(folder / PENDING, layout.name(folder / PENDING), faults)
        ]
        settings, _ = load_settings(layout, faults)
        faults.refuse()
        named = None if everything else _named(labels, pending)
        texts = load_texts(home, layout, named, progress)
        documents = tuple(sorted(_documents(layout)))
        tasks = list(_tasks(labels, pending, texts))
        if not again:
            skipped = _skipped(layout)
            tasks = [task for task in tasks if task.name not in skipped]
        return cls(layout, texts, documents, tasks, settings.languages)

    def accept(self, task: Task, doc_id: str, quote: str, start: int | None = None) -> str:
        """Keep a quote as evidence; returns its evidence_id. On disk when this returns.

        Args:
            task: what was asked.
            doc_id: document of the quote.
            quote: as it will stand in evidence.jsonl.
            start: where it was cut from a reference text, which says which of several places is meant.
        """
        row: dict[str, Any] = {"doc_id": doc_id, "quote": quote}
        if start is not None and doc_id in self.texts.references and self.texts.times(doc_id, quote) > 1:
            row["start"] = start
        with self._lock():
            evidence_id = self._mend(task, row) if task.kind == "mend" else self._append(task, row)
            self._fulfilled(task)
            self._note(task, "accepted", evidence_id, doc_id, quote)
        self.done.append((task, evidence_id))
        return evidence_id

    def skip(self, task: Task) -> None:
        """Remember that a question was skipped, so that it is not asked again."""
        with self._lock():
            self._note(task, "skipped")

    def undo(self) -> Task | None:
        """Take the last label of this session back, if it was a new line; returns its task, which is to do again."""
        if not self.done or self.done[-1][0].kind == "mend":
            return None
        task, evidence_id = self.done.pop()
        with self._lock():
            path = self._file(task.query_id)
            lines = [line for line in _lines(path) if not _is(line, task.query_id, evidence_id)]
            replace_file(path, "".join(lines))
            if task.ask.quote is not None:
                where = path.parent / PENDING
                write_pending(
                    where,
                    [
                        *read_pending(where, where.name, Faults()),
                        Wanted(task.query_id, task.ask.documents, task.ask.quote),
                    ],
                )
            self._note(task, "undone", evidence_id)
        return task

    def _lock(self) -> AbstractContextManager[Any]:
        folder = self.layout.golds[0]
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / ".label.lock", timeout=60)

    def _file(self, query_id: str) -> Path:
        """evidence.jsonl beside the queries.jsonl that has the question: the version's own gold lies over the shared one."""
        for folder in reversed(self.layout.golds):
            path = folder / "queries.jsonl"
            if path.is_file() and any(
                value.get("query_id") == query_id for _, value in objects(path, path.name, Faults())
            ):
                return folder / "evidence.jsonl"
        return self.layout.golds[0] / "evidence.jsonl"

    def _append(self, task: Task, row: Mapping[str, Any]) -> str:
        path = self._file(task.query_id)
        evidence_id = self._free_id(task.query_id)
        line = {"query_id": task.query_id, "evidence_id": evidence_id, **row}
        EvidenceLine.model_validate(line)
        text = "".join(_lines(path))
        replace_file(path, text + json.dumps(line, ensure_ascii=False) + "\n")
        return evidence_id

    def _mend(self, task: Task, row: Mapping[str, Any]) -> str:
        """Replace quote, document and place of a line; what else it says stays."""
        assert task.evidence_id is not None
        for folder in reversed(self.layout.golds):
            path = folder / "evidence.jsonl"
            lines = _lines(path)
            at = next((i for i, line in enumerate(lines) if _is(line, task.query_id, task.evidence_id)), None)
            if at is None:
                continue
            old = {
                k: v
                for k, v in json.loads(lines[at].removeprefix("\ufeff")).items()
                if k not in {"start", "end", "occurrence"}
            }
            if old.get("critical"):
                old["critical"] = [token for token in old["critical"] if token in row["quote"]] or None
            line = {k: v for k, v in {**old, **row}.items() if v is not None}
            EvidenceLine.model_validate(line)
            lines[at] = json.dumps(line, ensure_ascii=False) + "\n"
            replace_file(path, "".join(lines))
            return task.evidence_id
        raise LookupError(f"evidence {task.evidence_id} of {task.query_id} is gone meanwhile; start again")

    def _free_id(self, query_id: str) -> str:
        taken = set()
        for folder in self.layout.golds:
            for line in _lines(folder / "evidence.jsonl"):
                if (value := _value(line)) and value.get("query_id") == query_id:
                    taken.add(str(value.get("evidence_id", value.get("id"))))
        return next(f"e{n}" for n in range(1, len(taken) + 2) if f"e{n}" not in taken)

    def _fulfilled(self, task: Task) -> None:
        """Take what was wanted off the list."""
        for folder in self.layout.golds:
            path = folder / PENDING
            if path.is_file():
                left = [
                    w
                    for w in read_pending(path, path.name, Faults())
                    if (w.query_id, w.quote) != (task.query_id, task.ask.quote)
                ]
                write_pending(path, left)

    def _note(
        self,
        task: Task,
        action: str,
        evidence_id: str | None = None,
        doc_id: str | None = None,
        quote: str | None = None,
    ) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"), "by": self.by, "action": action, "query_id": task.query_id,
            "kind": task.kind, "evidence_id": evidence_id or task.evidence_id, "doc_id": doc_id, "quote": quote, "asked": task.ask.quote,
        }  # fmt: skip
        with (self.layout.golds[0] / JOURNAL).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def _lines(path: Path) -> list[str]:
    """Lines of a file as they are, each with its end."""
    if not path.is_file():
        return []
    text = path.read_bytes().decode("utf-8")
    lines = (
        text.splitlines(keepends=True)
        if "\x0b" not in text and "\x0c" not in text
        else [f"{line}\n" for line in text.split("\n") if line]
    )
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += "\n"
    return lines


def _value(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line.removeprefix("\ufeff"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is(line: str, query_id: str, evidence_id: str) -> bool:
    value = _value(line)
    return value is not None and (value.get("query_id"), value.get("evidence_id")) == (query_id, evidence_id)


def _documents(layout: Layout) -> list[str]:
    from rag_eval_pipeline.corpus.documents import load_documents

    return load_documents(layout, lambda _: "", Faults())["doc_id"].to_list()


def _named(labels: Mapping[str, Labels], pending: Iterable[Wanted]) -> set[str] | None:
    """Documents whose text is needed: those of what is to do and of what may have no place; None where one is wanted anywhere."""
    found = {row["doc_id"] for row, _ in labels["evidence"] if row["quote"] is not None}
    judged = _judged(labels)
    for wanted in pending:
        if not wanted.documents:
            return None
        found |= set(wanted.documents)
    for query_id in _unlabelled(labels, pending):
        if query_id not in judged:
            return None
        found |= set(judged[query_id])
    return found


def _judged(labels: Mapping[str, Labels]) -> dict[str, list[str]]:
    judged: dict[str, list[str]] = {}
    for row, _ in labels["qrels"]:
        if row["grade"] > 0:
            judged.setdefault(row["query_id"], []).append(row["doc_id"])
    return judged


def _unlabelled(labels: Mapping[str, Labels], pending: Iterable[Wanted]) -> list[str]:
    """Answerable questions with an answer or a document, no evidence, and nothing pending."""
    there = {row["query_id"] for row, _ in labels["evidence"]} | {wanted.query_id for wanted in pending}
    known = set(_judged(labels)) | {row["query_id"] for row, _ in labels["answers_gold"]}
    return [row["query_id"] for row, _ in labels["queries"] if row["answerable"] and row["query_id"] in known - there]


def _tasks(labels: Mapping[str, Labels], pending: list[Wanted], texts: Texts) -> Iterable[Task]:
    queries = {row["query_id"]: row for row, _ in labels["queries"]}
    answers = {row["query_id"]: tuple(row["answers"]) for row, _ in labels["answers_gold"]}
    judged = _judged(labels)
    wanted = [w for w in pending if w.query_id in queries]
    wanted += [Wanted(query_id) for query_id in _unlabelled(labels, pending)]

    def ask(query_id: str, documents: Iterable[str], quote: str | None) -> Ask:
        row = queries[query_id]
        return Ask(row["text"], answers.get(query_id, ()), tuple(documents), quote, row["language"])

    made: dict[str, list[Task]] = {}
    for w in wanted:
        documents = w.documents or (tuple(judged.get(w.query_id, ())) if w.quote is None else ())
        made.setdefault(w.query_id, []).append(
            Task(w.query_id, "propose" if w.quote is None else "place", ask(w.query_id, documents, w.quote))
        )
    for row, _ in labels["evidence"]:
        quote, doc_id = row["quote"], row["doc_id"]
        if quote is None or row["query_id"] not in queries or doc_id not in texts.all or texts.holds(doc_id, quote):
            continue
        made.setdefault(row["query_id"], []).append(
            Task(row["query_id"], "mend", ask(row["query_id"], (doc_id,), quote), row["evidence_id"])
        )
    for query_id in queries:
        yield from made.get(query_id, ())


def _skipped(layout: Layout) -> set[tuple[str, str | None, str | None]]:
    path = layout.golds[0] / JOURNAL
    if not path.is_file():
        return set()
    rows = [value for _, value in objects(path, path.name, Faults())]
    return {
        (row["query_id"], row.get("evidence_id") if row.get("kind") == "mend" else None, row.get("asked"))
        for row in rows
        if row.get("action") == "skipped"
    }


class Finders:
    """A finder a language, made when a question in it is asked; an undeclared language is guessed among the corpus's."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._by: dict[str | None, Finder] = {}

    def find(self, ask: Ask, limit: int = SHOWN) -> list[Candidate]:
        """Candidates for what is asked, best first."""
        language = ask.language or detect(" ".join((ask.question, *ask.answers)), self._work.languages)
        if language not in self._by:
            self._by[language] = Finder(self._work.texts, language)
        return self._by[language].find(ask, limit)


def accept_best(work: Work, find: Callable[[Ask], list[Candidate]], least: float) -> tuple[int, list[Task]]:
    """Accept each task's first candidate where its confidence reaches `least`.

    Returns:
        How many were accepted, and the tasks that were not.
    """
    left, count = [], 0
    for task in work.tasks:
        best = next(iter(find(task.ask)), None)
        if best is None or best.confidence < least:
            left.append(task)
            continue
        work.accept(task, best.doc_id, best.text, best.start)
        count += 1
    return count, left


def accept_file(work: Work, path: Path) -> int:
    """Accept quotes of a file: JSON Lines or CSV with query_id, quote, and doc_id where the task does not say it.

    Returns:
        How many were accepted.

    Raises:
        CorpusError: a line is wrong, or its quote has no place; nothing was accepted.
    """
    faults, chosen = Faults(), []
    known = Documents(work.documents)
    tasks = {task.query_id: task for task in reversed(work.tasks)}
    queries = {row["query_id"] for row, _ in load_labels(work.layout, Faults())["queries"]}
    for line, row in _decisions(path, faults):
        query_id, quote, named = (str(row.get(name) or "").strip() for name in ("query_id", "quote", "doc_id"))
        if query_id not in queries:
            faults.add(
                path.name,
                line,
                "query_id",
                f"{query_id[:200]!r}, which is no query",
                "an id of queries.jsonl",
                faults.suggest(path.name, query_id[:200], queries),
            )
            continue
        task = tasks.get(query_id) or Task(query_id, "propose", Ask(""))
        documents = known.find(named) if named else list(task.ask.documents)
        if len(documents) != 1:
            found = f"{named[:200]!r}, which is {len(documents)} documents" if named else "no document"
            faults.add(
                path.name, line, "doc_id", found, "one document", faults.suggest(path.name, named[:200], work.documents)
            )
        elif not quote:
            faults.add(path.name, line, "quote", "an empty one", "the passage that answers")
        elif len(quote) > LONGEST_QUOTE:
            faults.add(path.name, line, "quote", f"{len(quote):,} characters", f"at most {LONGEST_QUOTE:,}")
        elif (
            documents[0] in work.texts.all
            and (why := anchored(work.texts, documents[0], quote, work.documents)) is not None
        ):
            faults.add(path.name, line, "quote", why, "a passage of the document")
        else:
            chosen.append((task, documents[0], quote))
    faults.refuse()
    for task, doc_id, quote in chosen:
        work.accept(task, doc_id, quote)
    return len(chosen)


def _decisions(path: Path, faults: Faults) -> Iterable[tuple[int, dict[str, Any]]]:
    if path.suffix.lower() in {".jsonl", ".json"}:
        yield from objects(path, path.name, faults)
        return
    text, _ = decode(path.read_bytes())
    csv.field_size_limit(max(len(text), 1))
    head = text.split("\n", 1)[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=head.count), strict=True)
    line = 2
    try:
        for row in reader:
            yield line, {str(name).strip(): value for name, value in row.items() if name is not None}
            line = reader.line_num + 1
    except csv.Error as error:
        faults.add(path.name, line, "", f"a row that can't be read ({error})", "a row of CSV", UNCLOSED)
