"""Make the labels of a version: reference texts, queries with their evidence, personal data, duplicates, structure.

Labels come from the same sources as the files, never from what a pipeline read. A quote in `queries.txt` is written short
(`first words ... last words`); ` | ` stands for the border of two cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nimbara import plaintext, webpages
from nimbara.sources import CONTENT, Document, marked_spans, plain

Row = dict[str, Any]

PRINCIPALS = {
    "u": ("staff-uk", "nimbara", ["staff", "uk"]),
    "s": ("staff-us", "nimbara", ["staff", "us"]),
    "e": ("staff-es", "nimbara", ["staff", "es"]),
    "h": ("people-partner", "nimbara", ["staff", "hr"]),
    "v": ("veltio-operator", "veltio", ["veltio-ops"]),
    "l": ("veltio-counsel", "veltio", ["veltio-ops", "veltio-legal"]),
    "p": ("web-customer", "web", []),
}
"""Letter in queries.txt → principal, tenant, groups. Documents without tenant are for everybody, so also for `web`."""

FALSE_DUPLICATES = (
    ("leave-policy-uk", "leave-policy-us"),
    ("travel-policy-uk", "travel-policy-us"),
    ("parental-leave-uk", "parental-leave-us"),
    ("purchasing-policy-2025", "purchasing-policy-2026"),
    ("price-list-uk-2025", "price-list-uk-2026"),
    ("price-list-uk-2026", "price-list-us-2026"),
    ("tarifa-es-2026", "veltio-discounts"),
    ("sla-standard", "sla-veltio"),
    ("sheet-salina-c330", "ficha-salina-c330"),
    ("oncall-policy", "overtime-policy-us"),
    ("runbook-gateway-offline", "runbook-data-gap"),
)
"""Pairs that look alike and must not be merged."""

TRUE_DUPLICATES = (
    ("leave-policy-uk", "leave-policy-uk-copy"),
    ("faq-orders", "faq-orders-print"),
    ("runbook-gateway-offline", "runbook-gateway-offline-copy"),
    ("acta-comite-calidad", "acta-comite-calidad-copia"),
)
"""A document and the copy of it that somebody put elsewhere."""


@dataclass
class Query:
    """A question as it stands in queries.txt."""

    query_id: str
    text: str
    split: str
    intent: str
    principal: str
    scope: str
    evidence: list[tuple[str, str]] = field(default_factory=list)
    answer: str = ""
    claim: str = ""


@dataclass(frozen=True)
class Reference:
    """A document's reference text and what is marked in it."""

    text: str
    pii: list[Row]
    boilerplate: list[Row]


def reference(document: Document) -> Reference:
    """What the document says: the file itself for text formats, else the transcript."""
    if document.media == "html":
        return _page_reference(document)
    if document.media in plaintext.TEXT_FORMATS:
        marked = plaintext.render(document)
    else:
        marked = plaintext.transcript(document.blocks, "scan" if document.doc_class == "scan" else document.media)
    text, spans = marked_spans(marked)
    return Reference(text, spans, [])


def _page_reference(document: Document) -> Reference:
    parts: list[str] = []
    boilerplate: list[Row] = []
    length = 0
    for segment in webpages.segments(document):
        text = plain(segment.text)
        if segment.boilerplate:
            boilerplate.append({"start": length, "end": length + len(text), "type": "furniture"})
        parts.append(segment.text)
        length += len(text) + 2
    text, spans = marked_spans("\n\n".join(parts) + "\n")
    return Reference(text, spans, boilerplate)


def read_queries() -> list[Query]:
    """All questions, numbered as they stand."""
    queries: list[Query] = []
    split = "test"
    for line in (CONTENT / "queries.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            split = line[3:].strip()
        elif line.startswith("> "):
            doc_id, quote = line[2:].split(": ", 1)
            queries[-1].evidence.append((doc_id, quote))
        elif line.startswith("= "):
            answer, _, claim = line[2:].partition(" // ")
            queries[-1].answer, queries[-1].claim = answer, claim
        elif line and not line.startswith("#"):
            text, intent, principal, scope = line.split(" | ")
            queries.append(Query(f"q{len(queries) + 1:03d}", text, split, intent, principal, scope))
    return queries


def expand(quote: str, text: str, media: str, name: str) -> str:
    """The whole quote of a short form.

    Raises:
        ValueError: it isn't in the text.
    """
    if media not in plaintext.TEXT_FORMATS:
        quote = quote.replace(" | ", "\t")
    head, _, tail = quote.partition(" ... ")
    start = text.find(head)
    end = text.find(tail, start + len(head)) if tail else start
    if start < 0 or end < 0:
        raise ValueError(f"{name}: the reference text has no {quote!r}")
    return text[start : end + len(tail or head)]


def predicate(scope: str) -> Row | None:
    """The correct filter of a scope such as `en-GB+policy`."""
    place, _, doc_class = scope.partition("+")
    if place == "any":
        return None
    if "-" in place:
        where: Row = {"locale": {"in": [place, place.split("-")[0]]}}
    else:
        where = {"language": place}
    return {"and": [where, {"doc_class": doc_class}]} if doc_class else where


def labels(
    documents: Mapping[str, Document],
    known: Mapping[str, Document],
    quotes: Mapping[tuple[str, str], str],
    answers: Mapping[str, tuple[str, str]],
) -> dict[str, list[Row]]:
    """All JSON Lines files of a version.

    Args:
        documents: documents that the version should have (also those that a fault keeps out of it).
        known: documents by id in which a quote may be looked up; the same, as a rule.
        quotes: (query_id, evidence_id) → quote, where the version says it otherwise.
        answers: query_id → answer and claim, where the version says it otherwise.
    """
    references = {doc_id: reference(document) for doc_id, document in documents.items()}
    queries = read_queries()
    made: dict[str, list[Row]] = {
        "principals": [
            {"principal": name, "tenant": tenant, "groups": groups} for name, tenant, groups in PRINCIPALS.values()
        ],
        "queries": [_query(query, known) for query in queries],
        "evidence": [],
        "claims": [],
        "answers_gold": [],
    }
    for query in queries:
        answer, claim = answers.get(query.query_id, (query.answer, query.claim))
        evidence = _evidence(query, known, references, quotes)
        made["evidence"] += evidence
        made["claims"] += _claims(query, evidence, claim)
        if answer:
            made["answers_gold"].append({"query_id": query.query_id, "answers": [answer]})
    made["duplicates"] = [*_pairs(TRUE_DUPLICATES, True, documents), *_pairs(FALSE_DUPLICATES, False, documents)]
    made["languages"] = [{"doc_id": doc_id, "language": known[doc_id].language} for doc_id in documents]
    made["pii"] = [{"doc_id": doc_id, "spans": found.pii} for doc_id, found in references.items()]
    made["main_text"] = [
        {"doc_id": doc_id, "boilerplate": found.boilerplate}
        for doc_id, found in references.items()
        if found.boilerplate
    ]
    made["structure"] = [
        {"doc_id": doc_id, "blocks": structure(document)}
        for doc_id, document in documents.items()
        if document.media not in {"csv", "txt"}
    ]
    return made


def structure(document: Document) -> list[Row]:
    """Blocks in reading order; of a web page those of its article."""
    return [
        {
            "kind": block.kind,
            "level": block.level or (1 if block.kind == "list_item" else None),
            "text": plain(plaintext.block_text(block, "html")),
        }
        for block in document.blocks
    ]


def _query(query: Query, known: Mapping[str, Document]) -> Row:
    formats = {known[doc_id].media if known[doc_id].doc_class != "scan" else "scan" for doc_id, _ in query.evidence}
    visible = all(_sees(query.principal, known[doc_id]) for doc_id, _ in query.evidence)
    tags = sorted(formats) + ["several"] * (len(query.evidence) > 1) + ["not_entitled"] * (not visible)
    language = "es" if any(sign in query.text for sign in "¿áéíóúñ") else "en"
    row: Row = {
        "query_id": query.query_id, "text": query.text, "split": query.split,
        "answerable": bool(query.evidence) and visible, "intent": query.intent, "language": language,
        "principal": PRINCIPALS[query.principal][0], "tags": tags, "filter": predicate(query.scope),
    }  # fmt: skip
    if query.evidence:
        row["cluster_id"] = query.evidence[0][0]
    return {name: value for name, value in row.items() if value is not None}


def _sees(letter: str, document: Document) -> bool:
    name, tenant, groups = PRINCIPALS[letter]
    if document.tenant not in {None, tenant}:
        return False
    return not document.acl or bool({name, *groups} & set(document.acl))


def _evidence(
    query: Query,
    known: Mapping[str, Document],
    references: Mapping[str, Reference],
    quotes: Mapping[tuple[str, str], str],
) -> list[Row]:
    rows = []
    for number, (doc_id, short) in enumerate(query.evidence, 1):
        evidence_id = f"e{number}"
        short = quotes.get((query.query_id, evidence_id), short)
        text = references[doc_id].text
        quote = expand(short, text, known[doc_id].media, f"{query.query_id}/{evidence_id} in {doc_id}")
        row: Row = {
            "query_id": query.query_id, "evidence_id": evidence_id, "doc_id": doc_id, "quote": quote, "grade": 1,
            "hop": number,
        }  # fmt: skip
        if text.count(quote) > 1:
            row["occurrence"] = 1
        if known[doc_id].acl:
            row["acl"] = list(known[doc_id].acl)
        rows.append(row)
    return rows


def _claims(query: Query, evidence: Sequence[Row], claim: str) -> list[Row]:
    if claim:
        texts = [(claim, [row["evidence_id"] for row in evidence])]
    else:
        texts = [(" ".join(row["quote"].split()), [row["evidence_id"]]) for row in evidence]
    return [
        {"query_id": query.query_id, "claim_id": f"c{number}", "text": text, "supported_by": support, "vital": True}
        for number, (text, support) in enumerate(texts, 1)
    ]


def _pairs(pairs: Iterable[tuple[str, str]], duplicate: bool, documents: Mapping[str, Document]) -> list[Row]:
    return [
        {"doc_a": one, "doc_b": other, "duplicate": duplicate}
        for one, other in pairs
        if one in documents and other in documents
    ]


def transcripts(documents: Mapping[str, Document]) -> dict[str, str]:
    """Reference texts of the documents whose file isn't text."""
    return {
        doc_id: reference(document).text
        for doc_id, document in documents.items()
        if document.media not in plaintext.TEXT_FORMATS
    }


def reference_tables(documents: Mapping[str, Document]) -> dict[str, str]:
    """Reference tables of pdf, docx, html and md documents that have some."""
    found = {}
    for doc_id, document in documents.items():
        if document.media in {"csv", "txt"} or document.doc_class == "scan":
            continue
        if tables := [webpages.table(block) for block in document.blocks if block.kind == "table"]:
            found[doc_id] = "\n".join(tables) + "\n"
    return found


def repeated(rows: Iterable[Row], *fields: str) -> list[tuple]:
    """Keys that stand in several rows: a mistake of the sources."""
    counts = Counter(tuple(row[name] for name in fields) for row in rows)
    return [key for key, count in counts.items() if count > 1]
