"""One answer as its answerer said it, and its rows: outcome, claims, and citations as far as they resolve.

Here: what all answerers share. Not here: who answers (`extractive`, `importing`, `endpoint`), what an answer is worth (`quality`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import regex

from rag_eval_pipeline.text.claims import Claim, as_claims, split_claims
from rag_eval_pipeline.text.refusals import outcome

OK = "ok"
_NUMBER = regex.compile(
    r"^\W*(?:(?:passage|source|doc(?:ument)?|pasaje|fuente|documento)\W*)?(\d{1,6})\W*$", regex.IGNORECASE
)


@dataclass(frozen=True)
class Source:
    """A passage that an answer was given.

    Attributes:
        position: place in the context, from 1.
        chunk_id: its chunk; empty where an imported text could not be placed.
        doc_id: its document; likewise.
        text: what it says.
        language: BCP 47; None where it is not known.
    """

    position: int
    chunk_id: str
    doc_id: str
    text: str
    language: str | None = None


@dataclass(frozen=True)
class Cited:
    """One citation as it was made.

    Attributes:
        id: what was cited, as written.
        kind: `chunk`, `document` or `passage` where the answerer says what it is; None: to be found out.
        claim_id: claim that it belongs to; None: the whole answer.
    """

    id: str
    kind: str | None = None
    claim_id: str | None = None


@dataclass(frozen=True)
class Said:
    """An answer.

    Attributes:
        text: what was said; empty where status is no `ok`.
        claims: as the answerer or its file gives them; None: they are cut by rule.
        origin: of those claims.
        citations: as made.
        refused: as stated; None: told by the words.
        confidence: in [0, 1].
        status: `ok`, or why there is no answer.
        model: that made it.
        input_tokens: read.
        output_tokens: written.
        cost: price.
        first_token_s: seconds.
        total_s: seconds.
    """

    text: str
    claims: tuple[Claim, ...] | None = None
    origin: str = "answerer"
    citations: tuple[Cited, ...] = ()
    refused: bool | None = None
    confidence: float | None = None
    status: str = OK
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None


@dataclass
class Rows:
    """Rows of the room's three tables."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    answer_claims: list[dict[str, Any]] = field(default_factory=list)
    answer_citations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Known:
    """Ids that exist in the corpus, given or not."""

    chunks: Collection[str] = frozenset()
    documents: Collection[str] = frozenset()


def add(
    rows: Rows,
    said: Said,
    answer_id: str,
    query_id: str,
    sources: Sequence[Source],
    known: Known,
    *,
    sample: int,
    language: str | None,
    answerer: str,
) -> None:
    """Add an answer's rows.

    A stated refusal counts; else the words decide. A refusal and an empty answer claim nothing. Citation marks in the text are
    citations too: of the claim that they stand in or behind.

    Raises:
        ClaimError: given claims can't be judged.
    """
    told = outcome(said.text, language) if said.status == OK else None
    if said.refused is not None and told is not None:
        told = "refused" if said.refused else ("answered" if told == "refused" else told)
    rows.answers.append(
        {
            "answer_id": answer_id, "query_id": query_id, "sample": sample, "answer": said.text, "language": language,
            "outcome": told, "refused": None if told is None else told == "refused",
            "refusal_origin": None if told is None else "stated" if said.refused is not None else "detected",
            "confidence": said.confidence, "answerer": answerer, "model": said.model, "status": said.status,
            "input_tokens": said.input_tokens, "output_tokens": said.output_tokens, "cost": said.cost,
            "first_token_s": said.first_token_s, "total_s": said.total_s,
        }
    )  # fmt: skip
    ids = {name for s in sources for name in (s.chunk_id, s.doc_id, str(s.position)) if name} | set(known.documents)
    marked = split_claims(said.text, language, ids) if told in ("answered", "hedged") else []
    if told not in ("answered", "hedged"):
        claims, origin = [], said.origin
    elif said.claims is None:
        claims, origin = marked, "split"
    else:
        claims, origin = as_claims(said.claims, said.text), said.origin
    for position, claim in enumerate(claims, 1):
        rows.answer_claims.append(
            {"answer_id": answer_id, "claim_id": claim.claim_id, "position": position, "text": claim.text,
             "start": claim.start, "end": claim.end, "origin": origin}
        )  # fmt: skip
    for position, cited in enumerate(_citations(said, claims, marked), 1):
        place = {"answer_id": answer_id, "position": position, "claim_id": cited.claim_id, "cited": cited.id}
        rows.answer_citations.append({**place, **resolve(cited, sources, known)})


def _citations(said: Said, claims: Sequence[Claim], marked: Sequence[Claim]) -> list[Cited]:
    """Citations by claim first: those that a claim has, then marks of the text, then those of the answer as a whole.

    A citation of the whole answer that some claim has too is that claim's.
    """
    of_claims = [Cited(each, None, claim.claim_id) for claim in claims for each in claim.cites]
    if said.claims is not None:
        spans = [(claim.start, claim.end, claim.claim_id) for claim in claims]
        of_claims += [Cited(each, None, _owner(mark, spans)) for mark in marked for each in mark.cites]
    stated = {(_plain(each.id), each.claim_id): each for each in said.citations if each.claim_id is not None}
    owned: dict[tuple[str, str | None], Cited] = {(_plain(each.id), each.claim_id): each for each in of_claims}
    owned.update(stated.items())
    taken = {name for name, claim_id in owned if claim_id is not None}
    whole = {_plain(each.id): each for each in (*of_claims, *said.citations) if each.claim_id is None}
    return [
        *(each for (_, claim_id), each in owned.items() if claim_id is not None),
        *(each for name, each in whole.items() if name not in taken),
    ]


def _plain(cited: str) -> str:
    number = _NUMBER.match(cited)
    return str(int(number.group(1))) if number else cited


def _owner(mark: Claim, spans: Sequence[tuple[int | None, int | None, str]]) -> str | None:
    """The claim that has most characters of a marked clause; None where no claim has any."""
    assert mark.start is not None
    assert mark.end is not None
    shared = [
        (min(end, mark.end) - max(start, mark.start), name)
        for start, end, name in spans
        if start is not None and end is not None
    ]
    most = max(shared, key=lambda pair: pair[0], default=(0, None))
    return most[1] if most[0] > 0 else None


def resolve(cited: Cited, sources: Sequence[Source], known: Known) -> dict[str, Any]:
    """What a citation points to: a chunk that was given, a place in the context, or a document with something given.

    In this order, unless the answerer said which. What exists but was not given is `not_given`; the rest is `dangling`.
    """
    for kind in (cited.kind,) if cited.kind else ("chunk", "passage", "document"):
        found = [source for source in sources if _is(kind, cited.id, source)]
        if found:
            return {
                "kind": kind, "status": "resolved", "chunk_id": found[0].chunk_id, "doc_id": found[0].doc_id,
                "passages": [source.position for source in found],
            }  # fmt: skip
    nothing: dict[str, Any] = {"chunk_id": None, "doc_id": None, "passages": []}
    exists = {"chunk": cited.id in known.chunks, "document": cited.id in known.documents, "passage": False}
    for kind, there in exists.items():
        if there and cited.kind in (None, kind):
            return {"kind": kind, "status": "not_given", **nothing}
    kind = cited.kind or ("passage" if _NUMBER.match(cited.id) else "unknown")
    return {"kind": kind, "status": "dangling", **nothing}


def _is(kind: str, cited: str, source: Source) -> bool:
    if kind == "passage":
        return _plain(cited) == str(source.position)
    return bool(cited) and cited == (source.chunk_id if kind == "chunk" else source.doc_id)


def sources_of(rows: Sequence[Mapping[str, Any]]) -> list[Source]:
    """Sources of one query, from rows of `judging.supplied`."""
    return [Source(r["position"], r["chunk_id"], r["doc_id"], r["text"], r["language"]) for r in rows]
