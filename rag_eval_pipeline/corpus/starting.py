"""A corpus of a user's own folder of documents and sheet of questions: written whole, or not at all where anything is wrong.

How a sheet is read belongs in `questions`; which quotes still have to be found belongs to labelling (`pending`).
"""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from rag_eval_pipeline.corpus.decoding import decode, is_text
from rag_eval_pipeline.corpus.faults import CorpusError, Fault, Faults
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.layout import Layout, inside, walk
from rag_eval_pipeline.corpus.pending import PENDING, Wanted, write_pending
from rag_eval_pipeline.corpus.questions import Question, Quote, Sheet, read_questions
from rag_eval_pipeline.corpus.scaffold import init_corpus
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline.text.normalise import normalise

FORM = "nfc+ws"
"""How quotes are compared with texts, as `ledger.normalise` by default."""


@dataclass(frozen=True)
class Started:
    """What was understood of a folder and a sheet, and what is still missing.

    Attributes:
        key: `<corpus>@<version>`.
        made: files and folders of the corpus, the most important first.
        kinds: extension → documents.
        bytes: of all documents.
        sheet: the questions as read; None where there was no sheet.
        n_evidence: quotes that have their place: their document, whose text holds them where it can be read at once.
        n_judged: questions with a quote or a document.
        wanted: what labelling is to find.
        warnings: what was odd but not refused.
    """

    key: str
    made: tuple[Path, ...]
    kinds: Mapping[str, int]
    bytes: int
    sheet: Sheet | None
    n_evidence: int = 0
    n_judged: int = 0
    wanted: tuple[Wanted, ...] = ()
    warnings: tuple[Fault, ...] = ()


@dataclass
class _Gold:
    """Lines of gold files, each with the line of the sheet that it comes from."""

    lines: dict[str, list[tuple[dict[str, Any], int]]] = field(default_factory=dict)
    judged: list[tuple[str, str]] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)

    def add(self, name: str, line: int, **fields: Any) -> None:
        self.lines.setdefault(name, []).append(({k: v for k, v in fields.items() if v not in (None, [])}, line))


def start_corpus(
    corpora: Path,
    key: Key,
    documents: Path,
    questions: Path | None,
    *,
    columns: Mapping[str, str] | None = None,
    languages: Sequence[str] = ("en", "es"),
) -> Started:
    """Copy a folder of documents and make gold of a sheet of questions.

    Args:
        corpora: the folder of all corpora.
        key: corpus and version to make; the corpus must not be there.
        documents: any folder; subfolders are kept.
        questions: a CSV, or None.
        columns: role → column of the sheet, where its name is not known.
        languages: of documents and questions.

    Raises:
        CorpusError: rows or files that are wrong, all of them; nothing was written.
        FileExistsError: the corpus is there.
        FileNotFoundError: folder or sheet is not.
    """
    target = corpora / key.corpus
    if target.exists():
        raise FileExistsError(
            f"corpus {key.corpus} exists below {corpora}: choose another name; questions may be added to its gold/queries.jsonl"
        )
    if not documents.is_dir():
        raise FileNotFoundError(f"{documents} is no folder; --documents names the folder with your documents")
    if questions is not None and not questions.is_file():
        raise FileNotFoundError(f"{questions} is no file; --questions names a CSV with your questions")
    corpora.mkdir(parents=True, exist_ok=True)
    beside = (
        corpora / f".init-{key.corpus}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    )  # a leading dot keeps it out of listings
    try:
        started = _build(beside, key, documents, questions, columns or {}, tuple(languages))
        (beside / key.corpus).replace(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    moved = tuple(target / path.relative_to(beside / key.corpus) for path in started.made)
    return replace(started, made=moved)


def _build(
    root: Path,
    key: Key,
    documents: Path,
    questions: Path | None,
    columns: Mapping[str, str],
    languages: tuple[str, ...],
) -> Started:
    layout, faults = Layout(root, key), Faults()
    files = _documents(documents, questions, faults)
    sheet = read_questions(questions, [name for name, _ in files], columns, faults) if questions is not None else None
    faults.refuse()
    gold = _gold(sheet, dict(files), languages) if sheet is not None else _Gold()
    made = init_corpus(layout.corpus, key.version, languages, _rules(gold))
    for name, path in files:
        place = layout.documents / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    folder = layout.golds[0]
    made += _write_gold(folder, gold)
    _validated(root, key, gold, sheet.file if sheet is not None else "", faults)
    faults.refuse()
    return Started(
        key=key.subject,
        made=tuple(made),
        kinds=dict(
            Counter(PurePosixPath(name).suffix.lower().lstrip(".") or "none" for name, _ in files).most_common()
        ),
        bytes=sum(path.stat().st_size for _, path in files),
        sheet=sheet,
        n_evidence=len(gold.lines.get("evidence", [])),
        n_judged=len(
            {query for query, _ in gold.judged} | {row["query_id"] for row, _ in gold.lines.get("evidence", [])}
        ),
        wanted=tuple(gold.wanted),
        warnings=tuple(faults.warnings),
    )


def _documents(folder: Path, questions: Path | None, faults: Faults) -> list[tuple[str, Path]]:
    """Files to copy as (path below the folder, file): what a version's documents/ may hold; the sheet itself is none."""
    within = _Folder(folder)
    found = [
        (unicodedata.normalize("NFC", name), path)
        for name, path in walk(within, folder, faults)
        if questions is None or path.resolve() != questions.resolve()
    ]
    if not found and not faults.errors:
        faults.add(folder.name, None, "", "no files", "documents", "name the folder that holds them by --documents")
    return found


class _Folder(Layout):
    """A folder that is no corpus yet, as `walk` looks at it: links may not leave it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.parent, Key("folder", "v1"))
        object.__setattr__(self, "folder", folder)

    def stays(self, path: Path) -> bool:
        """Whether a path, links followed, stays in the folder."""
        return inside(path, self.folder)  # type: ignore[attr-defined]


def _gold(sheet: Sheet, files: Mapping[str, Path], languages: tuple[str, ...]) -> _Gold:
    gold = _Gold()
    texts: dict[str, str] = {}
    only = languages[0] if len(languages) == 1 else None
    for question in sheet.questions:
        gold.add(
            "queries", question.line, query_id=question.query_id, text=question.text, split=question.split,
            answerable=None if question.answerable else False, intent=question.intent, language=question.language or only,
            tags=question.tags,
        )  # fmt: skip
        if question.answers:
            gold.add("answers_gold", question.line, query_id=question.query_id, answers=question.answers)
        _label(gold, question, files, texts)
    return gold


def _label(gold: _Gold, question: Question, files: Mapping[str, Path], texts: dict[str, str]) -> None:
    """Quotes whose place is known become evidence, documents judgments; the rest is wanted."""
    placed = 0
    for quote in question.quotes:
        doc_id = _place(quote, files, texts)
        if doc_id is None:
            gold.wanted.append(Wanted(question.query_id, quote.documents, quote.text, quote.line))
            continue
        placed += 1
        gold.add(
            "evidence",
            quote.line,
            query_id=question.query_id,
            evidence_id=f"e{placed}",
            doc_id=doc_id,
            quote=quote.text,
        )
        if doc_id not in question.documents:
            question.documents.append(doc_id)
    gold.judged += [(question.query_id, doc_id) for doc_id in question.documents]
    if question.answerable and not question.quotes and (question.answers or question.documents):
        gold.wanted.append(Wanted(question.query_id, tuple(question.documents), None, question.line))


def _place(quote: Quote, files: Mapping[str, Path], texts: dict[str, str]) -> str | None:
    """The document in which a quote stands; None where no text that can be read at once holds it, or several might."""
    candidates = quote.documents or tuple(files)
    needle = normalise(quote.text, FORM)
    held = [doc for doc in candidates if is_text(doc) and needle in _text(doc, files, texts)]
    if len(held) == 1:
        return held[0]
    unread = [doc for doc in candidates if not is_text(doc)]
    return unread[0] if not held and len(unread) == len(candidates) == 1 and quote.documents else None


def _text(doc_id: str, files: Mapping[str, Path], texts: dict[str, str]) -> str:
    if doc_id not in texts:
        texts[doc_id] = normalise(decode(files[doc_id].read_bytes())[0], FORM)
    return texts[doc_id]


def _rules(gold: _Gold) -> list[str]:
    """Rules that this corpus can decide: recall of what is labelled, no worse than before."""
    unit = "evidence" if gold.lines.get("evidence") or gold.wanted else "document"
    return [f"{{metric: recall, k: 10, unit: {unit}, max_drop: 0.05}}"] if gold.lines.get("queries") else []


def _write_gold(folder: Path, gold: _Gold) -> list[Path]:
    made = []
    for name, rows in gold.lines.items():
        made.append(folder / f"{name}.jsonl")
        made[-1].write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row, _ in rows), "utf-8")
    if gold.judged:
        made.append(folder / "qrels.tsv")
        lines = [f"{query}\t{doc}\t1\n" for query, doc in gold.judged]
        made[-1].write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), "utf-8")
    if gold.wanted:
        write_pending(folder / PENDING, gold.wanted)
    return made


def _validated(root: Path, key: Key, gold: _Gold, sheet: str, faults: Faults) -> None:
    """What the loader says of the corpus as written, with the sheet's lines instead of those of gold files."""
    try:
        found: Iterable[Fault] = load_version(root, key).warnings
    except CorpusError as error:
        found = error.faults
    for fault in found:
        name = PurePosixPath(fault.file).stem
        rows = gold.lines.get(name)
        own = rows is not None and fault.line is not None and PurePosixPath(fault.file).parent.name == "gold"
        file, line = (sheet, rows[fault.line - 1][1]) if own and rows and fault.line else (fault.file, fault.line)
        faults.add(file, line, fault.field, fault.found, fault.expected, fault.hint, fault.severity)
