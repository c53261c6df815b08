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
UNPRICED: dict = {"ledger": {"repairs": "off"}}
"""Repairs run the pipeline many times over; tests that need them say so."""


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
    body = {"languages": ["en"], "pipeline": pipeline if pipeline is not None else QUICK, **UNPRICED, **settings}
    (corpora / corpus / "corpus.yaml").write_text(json.dumps(body), "utf-8")  # JSON is YAML
    return folder


FILL = "Nothing in this paragraph is asked for; it stands between the sentences that are, as texts do."


def write_mixed(corpora: Path, pipeline: dict, corpus: str = "mixed", **settings) -> Path:
    """A version that can lose evidence anywhere: two tenants, near-duplicates, correct filters, quotes over sentences and
    paragraphs, several units a query, a document that is absent, a broken file, and a query without evidence."""
    folder = corpora / corpus / "v1"
    documents = folder / "documents"
    documents.mkdir(parents=True)
    listed, queries, evidence = [], [], []
    for number, subject in enumerate(SUBJECTS):
        quote = quote_of(number, subject)
        long = f"{quote} It is paid back within {number + 2} weeks. Receipts are kept for {number + 3} years."
        body = f"# {subject.capitalize()}\n\n{FILL}\n\n{long}\n\n{FILL}\n\nRequests go to desk {number + 40}, never by post.\n\n| item | price |\n|---|---|\n| {subject} card | {number + 5}.50 EUR |\n"
        for name, text in ((f"{subject}.md", body), (f"{subject}-old.md", body.replace("by post", "by letter"))):
            (documents / name).write_text(text, "utf-8")
            red = number % 4 == 3 and "old" not in name
            listed.append(
                {"doc_id": name, "path": name, "tenant": "red" if red else "blue", "doc_class": "old" if "old" in name else "policy",
                 "published_at": "2025-01-01" if "old" in name else "2026-01-01", "metadata": {"subject": subject}}
            )  # fmt: skip
        query = {"query_id": f"q{number}", "text": f"What is the daily limit for {subject} {number}, and who takes requests?", "language": "en",
                 "principal": "ada" if number % 2 else "bob", "intent": "lookup" if number % 3 else "compare", "filter": {"subject": subject}}  # fmt: skip
        queries.append(query)
        for unit, text in enumerate((quote, long, f"Requests go to desk {number + 40}, never by post.")):
            evidence.append(
                {"query_id": f"q{number}", "evidence_id": f"e{unit}", "doc_id": f"{subject}.md", "quote": text}
            )
    (documents / "empty.md").write_bytes(b"")
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7\nno more")
    listed += [{"doc_id": name, "path": name, "tenant": "blue"} for name in ("empty.md", "broken.pdf")]
    queries.append(
        {"query_id": "q-none", "text": "Who won the cup?", "language": "en", "answerable": False, "principal": "bob"}
    )
    queries.append({"query_id": "q-gone", "text": "What did the lost policy say?", "language": "en"})
    evidence.append(
        {"query_id": "q-gone", "evidence_id": "e0", "doc_id": "lost.md", "quote": "The lost policy said 5 days."}
    )
    evidence.append(
        {"query_id": "q0", "evidence_id": "e9", "doc_id": "broken.pdf", "quote": "The broken file said 9 EUR."}
    )
    write_jsonl(folder / "documents.jsonl", listed)
    gold = corpora / corpus / "gold"
    write_jsonl(gold / "queries.jsonl", queries)
    write_jsonl(gold / "evidence.jsonl", evidence)
    write_jsonl(
        gold / "principals.jsonl", [{"principal": "ada", "tenant": "red"}, {"principal": "bob", "tenant": "blue"}]
    )
    body = {"languages": ["en"], "pipeline": pipeline, **UNPRICED, **settings}
    (corpora / corpus / "corpus.yaml").write_text(json.dumps(body), "utf-8")
    return folder
