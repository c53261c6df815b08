"""Tables of answers made for the tests of the judging room, and the room itself in a process that may be ended.

`python -m rag_eval_pipeline_tests.unit.stages.judging_room URL FOLDER N` judges N answers and prints how many rows it made.
"""

import sys
from pathlib import Path

import polars as pl

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.endpoint import EndpointConfig
from rag_eval_pipeline.stages.answering.tables import AnswerCitations, AnswerClaims, Answers
from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.stages.context.tables import Contexts
from rag_eval_pipeline.stages.judging.transform import JudgingConfig, run
from rag_eval_pipeline.stages.querying.tables import PreparedQueries
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

FAULTS = (
    "429*1",
    "429after*1",
    "500*2",
    "cut*1",
    "invalid_json",
    "schema_violation",
    "too_few",
    "other_claims",
    "refusal",
    "empty",
)
"""Written into some answers, so that the endpoint misbehaves for them."""


def frames_of(n, fault=lambda _: "", samples=1, answer="The limit is {n} EUR."):
    """Tables of n queries, each with a document, a context of one passage, and answers of two claims that cite it: one is supported."""
    answers, claims, citations, chunks, contexts, queries = [], [], [], [], [], []
    for number in range(n):
        query, chunk = f"q{number}", f"d{number}::0"
        text = f"The limit is {number} EUR. It is paid on Friday."
        queries.append({"query_id": query, "text": f"What is limit {number}?", "language": "en"})
        chunks.append({
            "chunk_id": chunk, "doc_id": f"d{number}", "ordinal": 0, "start": 0, "end": len(text), "text": text, "prefix": "",
            "section": [], "language": "en", "tokens": 10, "status": "ok",
        })  # fmt: skip
        contexts.append({
            "query_id": query, "position": 1, "retriever": "bm25", "chunk_id": chunk, "doc_id": f"d{number}", "start": 0,
            "end": len(text), "tokens": 10,
        })  # fmt: skip
        for sample in range(1, samples + 1):
            name = query if sample == 1 else f"{query}#{sample}"
            said = f"{answer.format(n=number)} It is paid on Monday. {fault(number)}{' More.' * (sample - 1)}"
            answers.append({
                "answer_id": name, "query_id": query, "sample": sample, "answer": said, "language": "en", "outcome": "answered",
                "refused": False, "answerer": "import", "model": "gpt-4o", "status": "ok",
            })  # fmt: skip
            for place, claim in enumerate((f"The limit is {number} EUR.", f"It is paid on Monday. {fault(number)}"), 1):
                claims.append(
                    {"answer_id": name, "claim_id": f"c{place}", "position": place, "text": claim, "origin": "split"}
                )
                citations.append({
                    "answer_id": name, "position": place, "cited": chunk, "kind": "chunk", "status": "resolved", "chunk_id": chunk,
                    "doc_id": f"d{number}", "passages": [1], "claim_id": f"c{place}",
                })  # fmt: skip
    made = {
        "answers": (Answers, answers), "answer_claims": (AnswerClaims, claims),
        "answer_citations": (AnswerCitations, citations), "chunks": (Chunks, chunks),
        "contexts": (Contexts, contexts), "prepared_queries": (PreparedQueries, queries),
    }  # fmt: skip
    return {name: conform(schema, rows) for name, (schema, rows) in made.items()}


def facts_of(n, facts=2):
    """The outside input `nuggets`: facts of each query."""
    rows = [
        (f"q{number}", f"n{fact}", f"Fact {fact} of {number}.") for number in range(n) for fact in range(1, facts + 1)
    ]
    return {"nuggets": pl.DataFrame(rows, schema=["query_id", "claim_id", "text"], orient="row")}


def gold_of(n, verdicts=(), split=lambda _: "test"):
    """Gold of these queries, with people's verdicts: (answer, claim, word)."""
    queries = [
        {"query_id": f"q{i}", "text": f"What is limit {i}?", "split": split(i), "answerable": True, "language": "en"}
        for i in range(n)
    ]
    rows = [{"answer_id": a, "claim": c, "verdict": v} for a, c, v in verdicts]
    return Gold(
        queries=pl.DataFrame([{name: q.get(name) for name in SCHEMAS["queries"]} for q in queries], schema=SCHEMAS["queries"]),
        verdicts=pl.DataFrame([{name: r.get(name) for name in SCHEMAS["verdicts"]} for r in rows], schema=SCHEMAS["verdicts"]),
    )  # fmt: skip


def endpoint_config(url, **options):
    given = {
        "model": "gpt-test", "concurrency": 8, "retries": 4, "backoff_s": 0.01, "timeout_s": 10, "max_tokens": 100,
        "price_in": 1000.0, "price_out": 1000.0, "max_cost": 1_000_000.0, **options,
    }  # fmt: skip
    return EndpointConfig(base_url=url, **given)


def judge(url, folder, frames, endpoint=None, **options):
    """The room's tables."""
    given = {"verifiers": ("lexical", "llm"), "rubrics": ("answer", "refusal"), "probes": 0, **options}
    config = JudgingConfig(judge=endpoint_config(url, **(endpoint or {})), **given)
    return run(frames, config, Runtime(files=Path(), workers=0, replies=folder))


def faulty(number):
    """Every third answer has a fault of its own."""
    return f"#fault:{FAULTS[number // 3 % len(FAULTS)]} " if number % 3 == 0 else ""


SETTINGS = Settings()


if __name__ == "__main__":
    made = judge(sys.argv[1], Path(sys.argv[2]), frames_of(int(sys.argv[3]), faulty))
    print({name: frame.height for name, frame in made.items()}, flush=True)
