"""Measures of an answer against what it was given: support by each verifier, citations, names that stand nowhere.

Here: verdicts and citations of one answer as figures. Not here: who judges (the judging room), what gold says (`quality`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rag_eval_pipeline.measures.answers import (
    asserted_without_support,
    atomic_facts,
    faithfulness,
    supported_by_claim,
    unseen_entities,
)
from rag_eval_pipeline.measures.citations import citation_scores, context_citation_coverage, sources_shown
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.measures.shares import Share
from rag_eval_pipeline.stages.answering.views import Row, View
from rag_eval_pipeline.text.names import names
from rag_eval_pipeline.warehouse.measurement import measurement

Figure = float | Share | tuple[float, float]
Support = Callable[[str], list[str] | None]
"""Claim id -> ids that support it; None where nobody said which."""


def figure(view: View, metric: str, unit: str, compute: Callable[[], Figure], **fields: Any) -> Row:
    """One row: the value that `compute` gives (or a pair of counts, or a share), or why it gives none."""
    try:
        found = compute()
    except Unmeasured as error:
        return measurement(metric, "query", view.query_id, None, unit=unit, **{**fields, "status": error.reason})
    if isinstance(found, Share):
        if found.value is None:
            return measurement(metric, "query", view.query_id, None, unit=unit, **{**fields, "status": found.status})
        counts = {"numerator": float(found.numerator), "denominator": float(found.denominator)}
        return measurement(metric, "query", view.query_id, found.value, unit=unit, **counts, **fields)
    if isinstance(found, tuple):
        above, below = found
        return measurement(
            metric, "query", view.query_id, above / below, unit=unit, numerator=above, denominator=below, **fields
        )
    return measurement(metric, "query", view.query_id, float(found), unit=unit, **fields)


def must_assert(view: View) -> None:
    """Only what was said and is no refusal can be supported.

    Raises:
        Unmeasured: `refused`, `empty`, `no_answer`, or the answerer's failure.
    """
    if view.state != "answered":
        raise Unmeasured(view.state)


def verified(view: View, verifier: str) -> Iterator[Row]:
    """Rows of one verifier."""
    params = {"verifier": verifier}
    ids = [claim["claim_id"] for claim in view.claims]
    labels = [(name, row["label"]) for name, row in view.verdicts.get(verifier, {}).items()]

    def support() -> tuple[float, float]:
        must_assert(view)
        faithfulness(ids, labels)  # refuses what can't be counted
        held = supported_by_claim(ids, labels)
        return float(sum(held.values())), float(len(held))

    def unsupported(where: bool) -> Callable[[], tuple[float, float]]:
        def share() -> tuple[float, float]:
            held, claims = support()
            if view.available is None:
                raise Unmeasured("no_gold")
            return (claims - held if view.available is where else 0.0), claims

        return share

    def facts() -> Share:
        must_assert(view)
        return atomic_facts({c["claim_id"]: c["text"] for c in view.claims}, labels, view.text, view.language)

    def asserted() -> float:
        must_assert(view)
        return asserted_without_support(ids, labels, view.outcome)

    yield figure(view, "faithfulness", "claim", support, params=params)
    yield figure(view, "unsupported_evidence_absent", "claim", unsupported(False), params=params)
    yield figure(view, "unsupported_evidence_ignored", "claim", unsupported(True), params=params)
    yield figure(view, "atomic_facts", "claim", facts, params=params)
    yield figure(view, "asserted_without_support", "query", asserted, params=params)
    yield from _cited(view, verifier)
    yield from _flagged(view, support, params)


def _cited(view: View, verifier: str) -> Iterator[Row]:
    yield from cited(view, partial(_support, view, verifier), {"verifier": verifier})


def cited(view: View, support: Support, params: Mapping[str, str]) -> Iterator[Row]:
    """Precision and recall of an answer's citations, as somebody says what supports its claims."""

    def scores(part: str) -> Share:
        must_assert(view)
        claims, whole = citing(view, support)
        given = {*view.passages, *(_name(row) for row in view.citations if row["status"] == "resolved")}
        found: Share = getattr(citation_scores(claims, given, whole), part)
        return found

    yield figure(view, "citation_precision", "citation", partial(scores, "precision"), params=dict(params))
    yield figure(view, "citation_recall", "claim", partial(scores, "recall"), params=dict(params))


def citing(view: View, support: Support) -> tuple[list[dict[str, Any]], list[str] | None]:
    """Claims with what they cite and what supports them, and what the answer cites as a whole where no claim cites.

    Where some claims cite and the answer as a whole does too, a citation of the whole belongs to the claims that it supports; one
    that supports none belongs to nothing, and counts against precision alone.
    """
    own: dict[str | None, list[str]] = {}
    for row in view.citations:
        own.setdefault(row["claim_id"], []).append(_name(row))
    claims: list[dict[str, Any]] = [
        {"cites": own.get(c["claim_id"], []), "supported_by": support(c["claim_id"])} for c in view.claims
    ]
    whole = own.get(None, [])
    if not any(claim["cites"] for claim in claims):
        return claims, whole
    idle = []
    for each in whole:
        supported = [claim for claim in claims if each in (claim["supported_by"] or ())]
        for claim in supported:
            claim["cites"] = [*claim["cites"], each]
        if not supported:
            idle.append(each)
    if idle:
        claims.append({"cites": idle, "supported_by": [], "needs": False})
    return claims, None


def _name(citation: Row) -> str:
    """A citation as an id: its place in the context; a document's own name; what it says, where it points to nothing given."""
    if citation["status"] != "resolved":
        return f"? {citation['cited']}"
    if citation["kind"] == "document":
        return f"document {citation['doc_id']}"
    return str(citation["passages"][0])


def _support(view: View, verifier: str, claim_id: str) -> list[str] | None:
    """Ids that support a claim by its verdict; None where nobody said which."""
    verdict = view.verdicts.get(verifier, {}).get(claim_id)
    if verdict is None or verdict["label"] is None:
        return None
    if verdict["label"] != "supported":
        return []
    passages = [str(each) for each in verdict["passages"] or ()]
    return named(view, passages) if passages else None


def named(view: View, places: Sequence[str]) -> list[str]:
    """Places in the context as ids of citations: beside them the documents that were cited as such and have one of them."""
    documents = [
        _name(row)
        for row in view.citations
        if row["kind"] == "document" and {str(each) for each in row["passages"]} & set(places)
    ]
    return [*places, *documents]


def citation_facts(view: View) -> Iterator[Row]:
    """Rows of citations that need no verifier."""
    cited = [str(each) for row in view.citations for each in row["passages"]]

    def dangling() -> float:
        must_assert(view)
        return float(len({_name(row) for row in view.citations if row["status"] != "resolved"}))

    def coverage() -> float:
        must_assert(view)
        return context_citation_coverage(cited, view.passages)

    def shown() -> float:
        if view.state not in ("answered", "refused", "empty"):
            raise Unmeasured(view.state)
        return sources_shown(cited, view.passages, view.state)

    yield figure(view, "dangling_citations", "citation", dangling)
    yield figure(view, "citation_coverage", "passage", coverage)
    yield figure(view, "sources_shown", "query", shown)


def unseen(view: View) -> Sequence[str]:
    """Names of the answer that stand nowhere in its context."""
    return unseen_entities(names(view.said, view.language), list(view.passages.values()))


def unseen_flag(view: View) -> Row:
    """The row of the flag."""

    def flag() -> float:
        must_assert(view)
        return float(bool(unseen(view)))

    return figure(view, "unseen_entities", "query", flag)


def _flagged(view: View, support: Callable[[], tuple[float, float]], params: Mapping[str, Any]) -> Iterator[Row]:
    """The flag against a verifier: of the flagged answers, those with an unsupported claim; and the reverse."""

    def compared(of_flagged: bool) -> Callable[[], float]:
        def value() -> float:
            held, claims = support()
            flagged, lacking = bool(unseen(view)), held < claims
            if of_flagged and not flagged:
                raise Unmeasured("not_flagged")
            if not of_flagged and not lacking:
                raise Unmeasured("all_supported")
            return float(lacking if of_flagged else flagged)

        return value

    yield figure(view, "unseen_entities_precision", "query", compared(True), params=params)
    yield figure(view, "unseen_entities_recall", "query", compared(False), params=params)
