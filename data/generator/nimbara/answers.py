"""Recorded answers of the first version: what a system said to each question, with the faults of content/answers.yaml in them.

An answer says what gold says and cites the documents of its evidence; to a question that nothing answers it refuses. Usage, times and
confidence are made up from the question's number, so that they are there to be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from nimbara.sources import CONTENT

Row = dict[str, Any]
REFUSALS = {
    "en": "The provided context does not contain the answer.",
    "es": "El contexto proporcionado no contiene la respuesta.",
}
REPEATED = 12
"""Every so many answerable questions were asked a second time."""


def plan() -> dict[str, Any]:
    """content/answers.yaml."""
    return yaml.safe_load((CONTENT / "answers.yaml").read_text("utf-8"))


def recorded(labels: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Lines of outputs/answers.jsonl, by question.

    Args:
        labels: gold of the version: queries, claims, evidence.
    """
    claims: dict[str, list[str]] = {}
    for row in labels["claims"]:
        claims.setdefault(row["query_id"], []).append(row["text"])
    cited: dict[str, list[str]] = {}
    for row in labels["evidence"]:
        documents = cited.setdefault(row["query_id"], [])
        if row["doc_id"] not in documents:
            documents.append(row["doc_id"])
    planted = {each["question"]: each for fault in plan()["faults"] for each in fault["answers"]}
    rows = []
    for number, query in enumerate(labels["queries"]):
        query_id = query["query_id"]
        refuses = not query["answerable"]
        says = REFUSALS[query["language"]] if refuses else " ".join(_sentence(text) for text in claims[query_id])
        cites = [] if refuses else cited[query_id]
        change = planted.pop(query["text"], {})
        row = _row(f"a-{query_id}", query_id, change.get("says", says), change.get("cites", cites), number)
        rows.append(row)
        if number % REPEATED == 0 and not refuses:
            rows.append({**row, "answer_id": f"a-{query_id}-again"})
    if planted:
        raise ValueError(f"answers.yaml: no such questions: {sorted(planted)}")
    return rows


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _row(answer_id: str, query_id: str, says: str, cites: Sequence[str], number: int) -> Row:
    words = len(says.split())
    return {
        "answer_id": answer_id, "query_id": query_id, "answer": says, "citations": list(cites),
        "confidence": round(0.55 + 0.05 * (number % 9), 2), "model": "recorded",
        "usage": {"input_tokens": 1200 + 7 * (number % 40), "output_tokens": round(1.3 * words), "cost": round(0.0004 + 0.00001 * words, 6)},
        "timings": {"first_token_s": round(0.3 + 0.01 * (number % 20), 2), "total_s": round(0.5 + 0.03 * words, 2)},
    }  # fmt: skip


def manifest(version: str, labels: Mapping[str, Sequence[Row]]) -> list[Row]:
    """What is wrong in which answers, and what each measure must say of them."""
    ids = {row["text"]: row["query_id"] for row in labels["queries"]}
    found = plan()
    return [
        {
            "fault": fault["fault"],
            "key": f"nimbara@{version}#{found['pipeline']}",
            "queries": [ids[each["question"]] for each in fault["answers"]],
            "metrics": fault["metrics"],
            "why": fault["why"],
        }
        for fault in found["faults"]
    ]
