"""The two versions: the first as it stands in content/, the second as content/october.yaml changes it, faults included.

A fault changes files or documents.jsonl of the second version only; what gold says stays true of what the files should say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from nimbara.gold import Query, read_queries
from nimbara.sources import CONTENT, Document, read_documents

FIRST = "2026-09"
SECOND = "2026-10"
SOURCES = (
    "policies_en.md", "policies_es.md", "products_en.md", "products_es.md", "runbooks.md", "faqs.md", "contracts.md",
    "misc.md", "scans.md", "tables.csv.md", "copies.md",
)  # fmt: skip


@dataclass(frozen=True)
class Version:
    """A version before it is written.

    Attributes:
        documents: all that it should hold.
        absent: ids whose file a fault keeps out.
        wrong_metadata: what documents.jsonl says wrongly, by id.
        quotes: (query_id, evidence_id) → the quote, where it differs from the first version's.
        answers: query_id → answer and claim, likewise.
    """

    name: str
    documents: dict[str, Document]
    absent: frozenset[str] = frozenset()
    wrong_metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    quotes: dict[tuple[str, str], str] = field(default_factory=dict)
    answers: dict[str, tuple[str, str]] = field(default_factory=dict)


def october() -> dict[str, Any]:
    """content/october.yaml."""
    return yaml.safe_load((CONTENT / "october.yaml").read_text("utf-8"))


def first() -> Version:
    """The healthy version."""
    return Version(FIRST, read_documents(*SOURCES))


def second() -> Version:
    """The version with a month of changes and faults."""
    plan = october()
    documents = {**first().documents, **read_documents(*plan["added"])}
    changes = {change["doc_id"]: change for change in [*plan["changes"], *plan["faults"]] if "doc_id" in change}
    for doc_id in plan["removed"]:
        del documents[doc_id]
    for doc_id, change in changes.items():
        documents[doc_id] = _changed(documents, doc_id, change)
    wrong = {doc_id: tags for fault in plan["faults"] for doc_id, tags in fault.get("metadata", {}).items()}
    absent = frozenset(fault["doc_id"] for fault in plan["faults"] if fault.get("absent"))
    quotes, answers = _said_otherwise(changes)
    return Version(SECOND, documents, absent, wrong, quotes, answers)


def _changed(documents: Mapping[str, Document], doc_id: str, change: Mapping[str, Any]) -> Document:
    document = documents[doc_id]
    if template := change.get("from_template"):
        document = replace(document, body=documents[template].body)
    fields = {name: change[name] for name in ("published", "style") if name in change}
    return document.edited(change.get("replace", ()), **fields)


def _said_otherwise(
    changes: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[tuple[str, str], str], dict[str, tuple[str, str]]]:
    """Quotes and answers after the same replacements, or as the change itself gives them."""
    quotes: dict[tuple[str, str], str] = {}
    answers: dict[str, tuple[str, str]] = {}
    for query in read_queries():
        answer, claim = query.answer, query.claim
        for number, (doc_id, short) in enumerate(query.evidence, 1):
            change = changes.get(doc_id)
            if change is None:
                continue
            given = change.get("quotes", {}).get(query.text)
            changed = given or _replaced(short, change)
            if changed != short:
                quotes[query.query_id, f"e{number}"] = changed
            answer, claim = _replaced(answer, change), _replaced(claim, change)
        if (answer, claim) != (query.answer, query.claim):
            answers[query.query_id] = answer, claim
    return quotes, answers


def _replaced(text: str, change: Mapping[str, Any]) -> str:
    """The replacements whose old text is there; `answers` holds those that are too short to be made in a document."""
    for old, new in [*change.get("replace", ()), *change.get("answers", ())]:
        text = text.replace(old, new)
    return text


def manifest() -> list[dict[str, Any]]:
    """What is wrong in the second version, and the units that each fault is expected to lose."""
    queries = read_queries()
    return [_entry(fault, queries) for fault in october()["faults"]]


def _entry(fault: Mapping[str, Any], queries: list[Query]) -> dict[str, Any]:
    touched = [fault["doc_id"]] if "doc_id" in fault else list(fault.get("metadata", ()))
    victims, spared = fault.get("victims"), fault.get("spared", ())
    units = [
        f"{query.query_id}/e{number}"
        for query in queries
        for number, (doc_id, _) in enumerate(query.evidence, 1)
        if (query.text in victims if victims is not None else doc_id in touched and query.text not in spared)
    ]
    return {
        "fault": fault["fault"], "stage": fault["stage"], "documents": touched, "units": units,
        "from_k": fault.get("from_k", 1), "to_k": fault.get("to_k"), "why": " ".join(fault["why"].split()),
    }  # fmt: skip
