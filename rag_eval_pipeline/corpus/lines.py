"""One pydantic model per JSON Lines file of a corpus: required fields, types and defaults of one line.

How lines are read belongs in `jsonl`; what holds between files belongs in `checks`; columns belong in `gold.SCHEMAS`.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from rag_eval_pipeline.corpus.predicates import PredicateError, instant, validate_predicate
from rag_eval_pipeline.text.claims import Claim, ClaimError, check_claims
from rag_eval_pipeline.text.verdicts import WORDS, label_of


def _id(value: str) -> str:
    if not value.strip():
        raise ValueError("an id that is not blank")
    return unicodedata.normalize("NFC", value)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("a text that is not blank")
    return value


Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f\x{2028}\x{2029}]+$"),
    AfterValidator(_id),
]
"""An id, in NFC as doc_ids are, so that files written on different systems agree."""
LONGEST_QUERY = 1_000_000
LONGEST_QUOTE = 100_000
Language = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$")]
Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
Offset = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Texts = list[Annotated[str, StringConstraints(min_length=1)]]
Split = Literal["dev", "calibration", "test", "monitor"]


def _iso(value: str | None) -> str | None:
    if value is not None:
        try:
            instant(value)
        except ValueError:
            raise ValueError("an ISO 8601 date or time") from None
    return value


class Line(BaseModel):
    """One line of a file. `KEY` are the fields that name an item; `TABLE` its frame, where the file isn't called so."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)
    KEY: ClassVar[tuple[str, ...]] = ()


class Range(Line):
    """Code points [start, end) of a text, at least one."""

    start: Offset
    end: Offset

    @model_validator(mode="after")
    def _forward(self) -> Range:
        if self.end <= self.start:
            raise ValueError("end after start")
        return self


class Span(Range):
    """A range of a document's reference text, and what it is."""

    type: Id


class UntypedSpan(Span):
    """A span of boilerplate; what kind is optional."""

    type: Id | None = None  # type: ignore[assignment]


class LanguageSpan(Range):
    """A range of a document's reference text that is in one language."""

    language: Language


class Block(Line):
    """One block of a document's structure."""

    kind: Id
    level: Whole | None = None
    text: str


class DocumentLine(Line):
    """documents.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    path: Id | None = None
    doc_class: Id | None = None
    language: Language | None = None
    locale: Id | None = None
    title: str | None = None
    tenant: Id | None = None
    acl: list[Id] = Field(default_factory=list)
    published_at: str | None = None
    committed_at: str | None = None
    supersedes: Id | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    _dates = field_validator("published_at", "committed_at")(_iso)


class QueryLine(Line):
    """queries.jsonl."""

    KEY = ("query_id",)
    query_id: Id
    text: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_QUERY), AfterValidator(_not_blank)]
    split: Split = "test"
    answerable: bool = True
    intent: Id | None = None
    language: Language | None = None
    principal: Id | None = None
    tags: list[Id] = Field(default_factory=list)
    filter: dict[str, Any] | None = None
    cluster_id: Id | None = None

    @field_validator("filter")
    @classmethod
    def _predicate(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            try:
                validate_predicate(value)
            except PredicateError as error:
                raise ValueError(f"a predicate; {error}") from None
        return value


class PrincipalLine(Line):
    """principals.jsonl."""

    KEY = ("principal",)
    principal: Id
    tenant: Id | None = None
    groups: list[Id] = Field(default_factory=list)


class EvidenceLine(Line):
    """evidence.jsonl. `occurrence` counts from 1."""

    KEY = ("query_id", "evidence_id")
    query_id: Id
    evidence_id: Id
    doc_id: Id
    quote: Annotated[str, StringConstraints(max_length=LONGEST_QUOTE)] | None = None
    start: Offset | None = None
    end: Offset | None = None
    occurrence: Annotated[int, Field(ge=1, le=2**53)] | None = None
    critical: Texts | None = None
    grade: Whole = 1
    hop: Whole | None = None
    acl: list[Id] | None = None

    @model_validator(mode="after")
    def _anchored(self) -> EvidenceLine:
        if self.quote is None and self.start is None:
            raise ValueError("quote or start and end; judgments of whole documents belong in qrels.tsv")
        if self.quote is not None and not self.quote.strip():
            raise ValueError("a quote that is not blank")
        if self.end is not None and self.start is None:
            raise ValueError("start beside end")
        if self.quote is None and self.end is None:
            raise ValueError("end beside start, or a quote")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("end after start")
        if self.start is not None and self.occurrence is not None:
            raise ValueError("start or occurrence, not both")
        if self.quote is None and self.occurrence is not None:
            raise ValueError("a quote beside occurrence")
        return self


class ClaimLine(Line):
    """claims.jsonl."""

    KEY = ("query_id", "claim_id")
    query_id: Id
    claim_id: Id
    text: Annotated[str, StringConstraints(min_length=1)]
    supported_by: list[Id] = Field(default_factory=list)
    vital: bool = True


class AnswersGoldLine(Line):
    """answers_gold.jsonl."""

    KEY = ("query_id",)
    query_id: Id
    answers: Annotated[Texts, Field(min_length=1)]


class VerdictLine(Line):
    """verdicts.jsonl."""

    KEY = ("answer_id", "claim", "annotator")
    answer_id: Id
    claim: Annotated[str, StringConstraints(min_length=1)]
    verdict: Id
    annotator: Id | None = None
    time: str | None = None

    _dates = field_validator("time")(_iso)

    @field_validator("verdict")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            label_of(value)
        except ValueError:
            raise ValueError(f"one of {', '.join(sorted(WORDS))}") from None
        return value


class StructureLine(Line):
    """structure.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    blocks: list[Block]


class MainTextLine(Line):
    """main_text.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    text: str | None = None
    boilerplate: list[UntypedSpan] | None = None

    @model_validator(mode="after")
    def _something(self) -> MainTextLine:
        if self.text is None and self.boilerplate is None:
            raise ValueError("text or boilerplate")
        return self


class LanguageLine(Line):
    """languages.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    language: Language
    sections: list[LanguageSpan] | None = None


class DuplicateLine(Line):
    """duplicates.jsonl. The pair has no order."""

    KEY = ("doc_a", "doc_b")
    doc_a: Id
    doc_b: Id
    duplicate: bool

    @model_validator(mode="after")
    def _two(self) -> DuplicateLine:
        if self.doc_a == self.doc_b:
            raise ValueError("two different documents")
        return self


class PiiLine(Line):
    """pii.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    spans: list[Span]


class EntityLine(Line):
    """entities.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    spans: list[Span]


class RelationLine(Line):
    """relations.jsonl. A triple is subject, relation, object."""

    KEY = ("doc_id",)
    doc_id: Id
    triples: list[Annotated[Texts, Field(min_length=3, max_length=3)]]


class CutLine(Line):
    """cuts.jsonl."""

    KEY = ("chunk_id", "edge", "annotator")
    chunk_id: Id
    edge: Id
    reasonable: bool
    annotator: Id | None = None


class NodeLine(Line):
    """ontology.jsonl."""

    KEY = ("node",)
    node: Id
    parents: list[Id] = Field(default_factory=list)


class LinkLine(Range):
    """links.jsonl. A span of a text and its node, or NIL."""

    KEY = ("text_id", "start", "end")
    text_id: Id
    node: Id


GOLD_LINES: dict[str, type[Line]] = {
    "queries": QueryLine,
    "principals": PrincipalLine,
    "evidence": EvidenceLine,
    "claims": ClaimLine,
    "answers_gold": AnswersGoldLine,
    "verdicts": VerdictLine,
    "structure": StructureLine,
    "main_text": MainTextLine,
    "languages": LanguageLine,
    "duplicates": DuplicateLine,
    "pii": PiiLine,
    "entities": EntityLine,
    "relations": RelationLine,
    "cuts": CutLine,
    "ontology": NodeLine,
    "links": LinkLine,
}
"""Gold files `<name>.jsonl` and the model of their lines."""


class ParsedBlock(Line):
    """A block of an imported parse, as offsets into its text."""

    kind: Id
    level: Whole | None = None
    page: Whole | None = None
    start: Offset
    end: Offset


class ParsedLine(Line):
    """outputs/parsed.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    text: str
    blocks: list[ParsedBlock] | None = None
    tables: list[str] | None = None
    html: str | None = None

    @model_validator(mode="after")
    def _within(self) -> ParsedLine:
        if any(block.end < block.start or block.end > len(self.text) for block in self.blocks or ()):
            raise ValueError(f"blocks within the text's {len(self.text)} characters")
        return self


class CleanedLine(Line):
    """outputs/cleaned.jsonl."""

    KEY = ("doc_id",)
    doc_id: Id
    text: str


class DedupLine(Line):
    """outputs/dedup.jsonl: one removal."""

    KEY = ("removed",)
    kept: Id
    removed: Id
    similarity: Annotated[Number, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _two(self) -> DedupLine:
        if self.kept == self.removed:
            raise ValueError("two different documents")
        return self


class PiiSpanLine(Span):
    """outputs/pii_spans.jsonl: one predicted span, offsets in the clean text."""

    KEY = ("doc_id", "start", "end", "type")
    doc_id: Id
    score: Annotated[Number, Field(ge=0, le=1)] | None = None


class ChunkLine(Line):
    """outputs/chunks.jsonl."""

    KEY = ("chunk_id",)
    chunk_id: Id
    doc_id: Id
    text: str
    start: Offset | None = None
    end: Offset | None = None

    @model_validator(mode="after")
    def _forward(self) -> ChunkLine:
        if (self.start is None) != (self.end is None):
            raise ValueError("both start and end, or neither")
        if self.start is not None and self.end is not None and self.end < self.start:
            raise ValueError("end after start")
        return self


class FilterLine(Line):
    """outputs/filters.jsonl. No retriever: the predicate is applied for all of them."""

    KEY = ("query_id", "retriever")
    query_id: Id
    retriever: Id | None = None
    predicate: dict[str, Any]
    producer: Id | None = None

    @field_validator("predicate")
    @classmethod
    def _predicate(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            validate_predicate(value)
        except PredicateError as error:
            raise ValueError(f"a predicate; {error}") from None
        return value


class RunLine(Line):
    """outputs/runs/<name>.jsonl. item_id is a chunk_id or doc_id; rank from 1, else by score, ties by id."""

    KEY = ("query_id", "item_id")
    query_id: Id
    item_id: Id
    rank: Annotated[int, Field(ge=0, le=2**53)] | None = None
    score: Number | None = None

    @model_validator(mode="after")
    def _ordered(self) -> RunLine:
        if self.rank is None and self.score is None:
            raise ValueError("rank or score")
        return self


class ContextLine(Line):
    """outputs/contexts.jsonl: one piece of what the answerer was given, by position."""

    KEY = ("query_id", "position")
    query_id: Id
    position: Offset
    chunk_id: Id | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _something(self) -> ContextLine:
        if self.chunk_id is None and self.text is None:
            raise ValueError("chunk_id or text")
        return self


class AnswerClaim(Line):
    """A claim of an answer, as its file gives it. A plain string is its text."""

    claim_id: Id | None = None
    text: str
    start: Offset | None = None
    end: Offset | None = None
    citations: list[Id | int] = Field(default_factory=list)

    @model_validator(mode="after")
    def _placed(self) -> AnswerClaim:
        if (self.start is None) != (self.end is None):
            raise ValueError("both start and end, or neither")
        return self


class AnswerCitation(Line):
    """A citation of an answer. A plain string is an id of whatever kind; a number is a place in the context, from 1."""

    id: Id | None = None
    chunk_id: Id | None = None
    doc_id: Id | None = None
    position: Whole | None = None
    claim_id: Id | None = None

    @model_validator(mode="after")
    def _one(self) -> AnswerCitation:
        named = [name for name in ("id", "chunk_id", "doc_id", "position") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"one of id, chunk_id, doc_id, position; found {len(named)}")
        return self


def _as_object(name: str) -> BeforeValidator:
    """A plain item of a list as the object that it stands for."""

    def made(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"position": value}
        return {name: value} if isinstance(value, str) else value

    return BeforeValidator(made)


class AnswerLine(Line):
    """outputs/answers.jsonl."""

    KEY = ("answer_id",)
    answer_id: Id
    query_id: Id
    answer: str
    claims: list[Annotated[AnswerClaim, _as_object("text")]] = Field(default_factory=list)
    citations: list[Annotated[AnswerCitation, _as_object("id")]] = Field(default_factory=list)
    refused: bool | None = None
    confidence: Annotated[Number, Field(ge=0, le=1)] | None = None
    model: Id | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _judgeable(self) -> AnswerLine:
        if self.claims:
            given = [
                Claim(c.claim_id or f"c{n}", c.text, c.start, c.end) for n, c in enumerate(self.claims, 1)
            ]  # fmt: skip
            try:
                check_claims(given)
            except ClaimError as error:
                raise ValueError(f"claims that can be judged: {error}") from None
            if any(claim.end is not None and claim.end > len(self.answer) for claim in given):
                raise ValueError(f"claims within the answer's {len(self.answer)} characters")
        known = {c.claim_id or f"c{n}" for n, c in enumerate(self.claims, 1)}
        if self.claims and any(c.claim_id is not None and c.claim_id not in known for c in self.citations):
            raise ValueError("citations whose claim_id is one of the answer's claims")
        return self


OUTPUT_LINES: dict[str, type[Line]] = {
    "parsed": ParsedLine,
    "cleaned": CleanedLine,
    "dedup": DedupLine,
    "pii_spans": PiiSpanLine,
    "chunks": ChunkLine,
    "filters": FilterLine,
    "contexts": ContextLine,
    "answers": AnswerLine,
}
"""Output files `<name>.jsonl` and the model of their lines; runs, embeddings and traces have forms of their own."""
