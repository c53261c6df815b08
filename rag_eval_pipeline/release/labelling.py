"""Passages that may answer a question, cut out of the texts as they are and ranked: what a person then accepts as evidence.

Here: which texts, which passages, in what order, and where a given quote stands. What is asked and what becomes of the answer
belongs to `labelled`; keys and colours to the command line. Nobody's judgement is made here: a candidate is a proposal.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.configuration import load_settings
from rag_eval_pipeline.corpus.documents import load_documents
from rag_eval_pipeline.corpus.faults import Faults, suggestion
from rag_eval_pipeline.corpus.fingerprints import FileHasher
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.outputs import load_outputs
from rag_eval_pipeline.corpus.references import load_references
from rag_eval_pipeline.corpus.version import CorpusVersion
from rag_eval_pipeline.stages.graph import BY_NAME, walk
from rag_eval_pipeline.stages.retrieval.lexical import Analysers, Bm25
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.text.alignment import locate, occurrences
from rag_eval_pipeline.text.critical import critical_tokens
from rag_eval_pipeline.text.normalise import normalise
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.warehouse.home import Home

LONGEST = 600
"""Characters of a passage: a quote that says more than what answers is lost for the wrong reasons."""
SHORTEST = 15
SHOWN = 5
ANSWER_WEIGHT, SAYS_IT, SAYS_NUMBERS = 2.0, 6.0, 3.0
"""What the answer's terms count beside the question's; what a passage gains that says the answer word for word, or all its numbers."""
FOLDED = "nfc+ws+casefold"
NEAR_DOCUMENTS = 8
"""Documents in which a quote of unknown place is aligned, best first."""


@dataclass(frozen=True)
class Candidate:
    """A passage that may answer.

    Attributes:
        doc_id: its document.
        start: first code point in the text that it was cut from.
        end: one past the last one.
        text: the quote.
        page: page, where the document has pages.
        score: by which candidates are ordered.
        confidence: share of what the answer (else the question) says that the passage says, weighted by rarity; or how similar it is
            to the quote that somebody wrote.
        terms: parts of the text that speak for it, as (start, end) in `text`.
    """

    doc_id: str
    start: int
    end: int
    text: str
    page: int | None
    score: float
    confidence: float
    terms: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Ask:
    """What is looked for.

    Attributes:
        question: its text.
        answers: what is expected, if known.
        documents: where to look; empty: everywhere.
        quote: what somebody wrote down as the passage, if anybody did.
        language: of the question.
    """

    question: str
    answers: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    quote: str | None = None
    language: str | None = None


@dataclass(frozen=True)
class Texts:
    """Texts that quotes are cut from.

    Attributes:
        references: doc_id → its reference text: quotes must stand in it word for word.
        parsed: doc_id → what the parser read, for documents without a reference text.
        pages: doc_id → (start, end, page) of parsed blocks.
        unread: doc_id → status of documents without any text.
        form: how quotes and texts are compared.
        min_similarity: least similarity at which a quote has a place in a parsed text.
    """

    references: Mapping[str, str]
    parsed: Mapping[str, str]
    pages: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    form: str = "nfc+ws"
    min_similarity: float = 0.6

    @cached_property
    def all(self) -> dict[str, str]:
        """Every text, sorted by document."""
        return dict(sorted({**self.parsed, **self.references}.items()))

    def page(self, doc_id: str, start: int) -> int | None:
        """The page on which a place of a parsed text is."""
        return next((page for low, high, page in self.pages.get(doc_id, ()) if low <= start < high), None)

    def holds(self, doc_id: str, quote: str) -> bool:
        """Whether a quote has its place in a document: in a reference text exactly, in a parsed one nearly."""
        text = self.all.get(doc_id)
        if text is None:
            return False
        if normalise(quote, self.form) in normalise(text, self.form):
            return True
        return doc_id in self.parsed and locate(quote, text, self.form, self.min_similarity) is not None

    def times(self, doc_id: str, quote: str) -> int:
        """How often a quote stands in a document, word for word."""
        return len(occurrences(quote, self.all.get(doc_id, ""), self.form))


def load_texts(
    home: Home, layout: Layout, wanted: Collection[str] | None, progress: Callable[[str, int, int], None]
) -> Texts:
    """Reference texts of a version, and parsed texts of those documents that have none and are wanted.

    Parsing goes through the memo: a later run finds it done. Nothing is frozen, and gold is not looked at.

    Args:
        home: where data lives.
        layout: of the version.
        wanted: documents that are asked about; None: all.
        progress: called with (stage, done, total).

    Raises:
        CorpusError: documents or settings are refused.
    """
    faults = Faults()
    settings, marks = load_settings(layout, faults)
    with FileHasher(home.hashes) as hasher:
        files = load_documents(layout, hasher, faults)
        outputs, _ = load_outputs(
            layout, set(), set(files["doc_id"]), hasher, Faults()
        )  # runs and answers are not asked for here
    references, _ = load_references(layout, files, faults)
    faults.refuse()
    texts = dict(references.iter_rows())
    unread = files.filter(pl.col("doc_id").is_in(sorted(texts)).not_())
    if wanted is not None:
        unread = unread.filter(pl.col("doc_id").is_in(sorted(wanted)))
    if unread.is_empty():
        return Texts(texts, {}, form=settings.ledger.normalise, min_similarity=settings.ledger.min_similarity)
    version = CorpusVersion(layout.key, layout.version, settings, unread, Gold(), outputs, "", marks=marks)
    subject = Subject(home, version, progress=progress)
    stages = [BY_NAME["source"], BY_NAME["parsing"]]
    known = walk(stages, subject.outside(), subject.configs, subject.runtime())
    return _with_parsed(
        texts, known["parsed"], known["blocks"], settings.ledger.normalise, settings.ledger.min_similarity
    )


def _with_parsed(texts: dict[str, str], parsed: pl.DataFrame, blocks: pl.DataFrame, form: str, least: float) -> Texts:
    read = parsed.filter(pl.col("text").str.strip_chars() != "")
    pages: dict[str, list[tuple[int, int, int]]] = {}
    for doc_id, start, end, page in blocks.drop_nulls("page").select("doc_id", "start", "end", "page").iter_rows():
        pages.setdefault(doc_id, []).append((start, end, page))
    unread = parsed.join(read.select("doc_id"), on="doc_id", how="anti")
    return Texts(
        texts, dict(read.select("doc_id", "text").iter_rows()), pages,
        dict(unread.select("doc_id", "status").iter_rows()), form, least,
    )  # fmt: skip


class Finder:
    """Ranks passages of texts. Passages are one or two sentences of one paragraph; long ones are cut at their lines."""

    def __init__(self, texts: Texts, language: str | None = None) -> None:
        self.texts = texts
        rows = [(doc, start, end) for doc, text in texts.all.items() for start, end in passages(text, language)]
        self.passages = pl.DataFrame(
            rows, schema={"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64}, orient="row"
        )
        said = [texts.all[doc][start:end] for doc, start, end in rows]
        frame = pl.DataFrame(
            {"prefix": [""] * len(said), "text": said, "language": [language] * len(said)},
            schema={"prefix": pl.String, "text": pl.String, "language": pl.String},
        )
        self._analysers = Analysers("auto", "auto", [language])
        self._bm25 = Bm25(frame, k1=1.2, b=0.75, stemming="auto", stop_words="auto")
        self._terms = [frozenset(self._analysers.tokens(text, language)) for text in said]
        self._said = [normalise(text, FOLDED) for text in said]
        counts = Counter(term for terms in self._terms for term in terms)
        self._idf = {term: math.log(1 + (len(said) - n + 0.5) / (n + 0.5)) for term, n in counts.items()}
        self._rarest = math.log(1 + (len(said) + 0.5) / 0.5)
        self._language = language

    def find(self, ask: Ask, limit: int = SHOWN) -> list[Candidate]:
        """The best passages, best first; none overlaps a better one by half."""
        placed = list(self._placed(ask)) if ask.quote else []
        ranked = sorted(placed, key=lambda c: (-c.score, c.doc_id, c.start)) + list(self._ranked(ask))
        kept: list[Candidate] = []
        for candidate in ranked:
            if all(not _overlap(candidate, other) for other in kept):
                kept.append(candidate)
                if len(kept) == limit:
                    break
        return kept

    def _ranked(self, ask: Ask) -> Iterator[Candidate]:
        if self.passages.is_empty():
            return
        answer = " ".join(ask.answers) or (ask.quote or "")
        score = self._bm25.scores(ask.question, self._language).astype(np.float64)
        if answer:
            score = score + ANSWER_WEIGHT * self._bm25.scores(answer, self._language)
        allowed = (
            np.ones(len(score), dtype=bool)
            if not ask.documents
            else self.passages["doc_id"].is_in(list(ask.documents)).to_numpy()
        )
        score = np.where(allowed, score, -np.inf)
        likely = [int(i) for i in np.argsort(-score, kind="stable")[:200] if score[i] > 0]
        answers = self._said_by(ask.answers)
        weighed = {i: float(score[i]) + self._bonus(i, answers) for i in likely}
        for i in sorted(likely, key=lambda i: (-weighed[i], i)):
            doc_id, start, end = self.passages.row(i)
            text = self.texts.all[doc_id][start:end]
            confidence = self._coverage(self._terms[i], answer or ask.question)
            yield Candidate(
                doc_id, start, end, text, self.texts.page(doc_id, start), weighed[i], confidence, self._marks(text, ask)
            )  # fmt: skip

    def _said_by(self, answers: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Each answer as it is looked for: word for word, and its numbers, dates and negations."""
        folded = [normalise(answer, FOLDED).strip(" .") for answer in answers]
        tokens = [[normalise(t.text, FOLDED) for t in critical_tokens(answer, self._language)] for answer in answers]
        return list(zip(folded, tokens, strict=True))

    def _bonus(self, i: int, answers: list[tuple[str, list[str]]]) -> float:
        """Word for word counts most, then all numbers, dates and negations of the answer."""
        best = 0.0
        for said, tokens in answers:
            if said and said in self._said[i]:
                best = max(best, SAYS_IT)
            elif tokens and all(token in self._said[i] for token in tokens):
                best = max(best, SAYS_NUMBERS)
        return best

    def _coverage(self, terms: Collection[str], wanted: str) -> float:
        """Share of the wanted terms that are there, rare ones counting more; a term that no passage has is the rarest."""
        weights = {term: self._idf.get(term, self._rarest) for term in self._analysers.tokens(wanted, self._language)}
        whole = sum(weights.values())
        return sum(w for term, w in weights.items() if term in terms) / whole if whole else 0.0

    def _marks(self, text: str, ask: Ask) -> tuple[tuple[int, int], ...]:
        """Words of a passage that question or answer have, too."""
        wanted = set(self._analysers.tokens(" ".join((ask.question, *ask.answers, ask.quote or "")), self._language))
        found, start = [], None
        for i, sign in enumerate([*text, " "]):
            if sign.isalnum() or (
                start is not None and sign in "'’-.,%" and i + 1 < len(text) and text[i + 1].isalnum()
            ):
                start = i if start is None else start
            elif start is not None:
                if set(self._analysers.tokens(text[start:i], self._language)) & wanted:
                    found.append((start, i))
                start = None
        return tuple(found)

    def _placed(self, ask: Ask) -> Iterator[Candidate]:
        """Where a given quote stands or nearly stands, by document."""
        assert ask.quote is not None
        least = self.texts.min_similarity
        for doc_id in ask.documents or self._near(ask.quote):
            text = self.texts.all.get(doc_id)
            if text is None or (place := locate(ask.quote, text, self.texts.form, least)) is None:
                continue
            exact = doc_id in self.texts.references
            start, end = (
                _whole_words(text, place.start, place.end) if place.similarity < 1 else (place.start, place.end)
            )
            # Where there is no reference, what a person wrote is truer than what the parser read.
            said = text[start:end] if exact else ask.quote
            found = Candidate(
                doc_id, start, end, said, self.texts.page(doc_id, start), 1_000 * place.similarity, place.similarity
            )
            yield replace(found, terms=self._marks(said, ask))

    def _near(self, quote: str) -> list[str]:
        score = self._bm25.scores(quote, self._language)
        best = self.passages.with_columns(score=pl.Series(score)).group_by("doc_id").agg(pl.col("score").max())
        return (
            best.filter(pl.col("score") > 0)
            .sort(["score", "doc_id"], descending=[True, False])["doc_id"]
            .head(NEAR_DOCUMENTS)
            .to_list()
        )


def _overlap(one: Candidate, other: Candidate) -> bool:
    if one.doc_id != other.doc_id:
        return False
    common = min(one.end, other.end) - max(one.start, other.start)
    return common > 0.5 * min(one.end - one.start, other.end - other.start)


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """A place without halves of words at its edges."""
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return start, end


def passages(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Spans of one sentence, and of two that stand in one paragraph, that are neither too short nor too long."""
    single = [part for span in sentences(text, language) for part in _cut(text, *span)]
    spans = [span for span in single if span[1] - span[0] >= SHORTEST]
    for (start, middle), (following, end) in itertools.pairwise(single):
        if end - start <= LONGEST and "\n\n" not in text[middle:following] and end - start >= SHORTEST:
            spans.append((start, end))
    return sorted(set(spans))


def _cut(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A sentence, or, where it is a table or a list without stops, its lines."""
    if end - start <= LONGEST:
        return [(start, end)]
    parts, at = [], start
    for line in text[start:end].splitlines(keepends=True):
        for offset in range(0, len(line), LONGEST):
            piece = line[offset : offset + LONGEST]
            low = at + offset + len(piece) - len(piece.lstrip())
            high = at + offset + len(piece.rstrip())
            if low < high:
                parts.append((low, high))
        at += len(line)
    return parts


def anchored(texts: Texts, doc_id: str, quote: str, documents: Iterable[str]) -> str | None:
    """Why a quote has no place in a document, in words; None where it has one."""
    known = set(documents)
    if doc_id not in known:
        return f"{doc_id!r} is no document of this version; {suggestion(doc_id, known)}"
    if doc_id not in texts.all:
        return f"{doc_id!r} has no text (status {texts.unread.get(doc_id, 'not read')})"
    if texts.holds(doc_id, quote):
        return None
    near = locate(quote, texts.all[doc_id], texts.form, 0.0)
    similarity = 0.0 if near is None else near.similarity
    place = "" if near is None else f" at {near.start}–{near.end}"
    return f"a quote of {len(quote)} characters that the text of {doc_id!r} has not; nearest: similarity {similarity:.2f}{place}"
