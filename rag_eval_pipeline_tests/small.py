"""A small corpus made by the tests: text files, queries with quotes, two tenants. Quick to run, rich enough to lose things."""

import json
from pathlib import Path

SUBJECTS = ["travel", "leave", "security", "laptops", "invoices", "parking", "training", "visitors"]
QUICK = {
    "retrieval": {
        "bm25": {"kind": "bm25"},
        "again": {"kind": "bm25", "b": 0.3},
        "both": {"kind": "rrf", "lanes": ["bm25", "again"]},
    },
    "chunking": {"splitter": "recursive", "size": 60, "overlap": 10, "unit": "words"},
    "pii": None,
}
"""No encoder and no presidio: what a test of the house needs, not of these rooms."""


def text_of(number: int, subject: str) -> str:
    """A document with one sentence that only it has."""
    fill = " ".join(
        f"The {subject} office keeps record {i} of case {number * 31 + i} in its own folder." for i in range(12)
    )
    return f"# Policy on {subject} {number}\n\n{fill}\n\nFor {subject} {number} the limit is {number * 7 + 3} EUR per day.\n\n{fill[::-1]}\n"


def quote_of(number: int, subject: str) -> str:
    """That sentence."""
    return f"For {subject} {number} the limit is {number * 7 + 3} EUR per day."


def write_jsonl(path: Path, rows: list[dict]) -> None:
    """One object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def write_corpus(
    corpora: Path,
    corpus: str = "small",
    version: str = "v1",
    documents: int = 12,
    pipeline: dict | None = None,
    **settings,
) -> Path:
    """Write a version and its shared gold; returns the version's folder."""
    folder = corpora / corpus / version
    (folder / "documents").mkdir(parents=True)
    queries, evidence = [], []
    for number in range(documents):
        subject = SUBJECTS[number % len(SUBJECTS)]
        (folder / "documents" / f"{subject}-{number}.md").write_text(text_of(number, subject), "utf-8")
        query = {
            "query_id": f"q{number}",
            "text": f"What is the daily limit for {subject} {number}?",
            "language": "en",
            "intent": "lookup",
        }
        queries.append(query)
        evidence.append(
            {
                "query_id": f"q{number}",
                "evidence_id": "e1",
                "doc_id": f"{subject}-{number}.md",
                "quote": quote_of(number, subject),
            }
        )
    gold = corpora / corpus / "gold"
    write_jsonl(gold / "queries.jsonl", queries)
    write_jsonl(gold / "evidence.jsonl", evidence)
    body = {"languages": ["en"], "pipeline": pipeline if pipeline is not None else QUICK, **settings}
    (corpora / corpus / "corpus.yaml").write_text(json.dumps(body), "utf-8")  # JSON is YAML
    return folder
