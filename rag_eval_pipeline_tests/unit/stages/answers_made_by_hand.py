"""Frames of a small world for the tests of the answering room: contexts, chunks, queries, evidence, answers and verdicts."""

import json

import polars as pl

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.outputs import OUTPUTS
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.lexical import LexicalVerifier
from rag_eval_pipeline.judging.supplied import passages, supplied
from rag_eval_pipeline.judging.verifiers import ask
from rag_eval_pipeline.stages.answering.quality import measure
from rag_eval_pipeline.stages.answering.transform import AnsweringConfig, run
from rag_eval_pipeline.stages.context.tables import Contexts
from rag_eval_pipeline.stages.judging.tables import ClaimVerdicts
from rag_eval_pipeline.text.claims import Claim
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import UNITS, chunks, lists, pieces, prepared, ranked

LEAVE = "Up to five unused days may be carried over. They must be taken by 31 March."
FEES = "The card fee is 8 EUR. It is paid on Fridays."


def contexts(*rows):
    """Rows of (query, chunk_id, start, end), numbered by query."""
    count: dict = {}
    made = []
    for query, chunk_id, start, end in rows:
        count[query] = count.get(query, 0) + 1
        made.append(
            {"query_id": query, "position": count[query], "retriever": "lane", "chunk_id": chunk_id,
             "doc_id": chunk_id.partition("::")[0], "start": start, "end": end, "tokens": 5}
        )  # fmt: skip
    return conform(Contexts, made)


def world(**queries):
    """Frames in which each query is given the leave policy and the fees, one chunk each."""
    given = chunks(("leave::0", LEAVE), ("fees::0", FEES))
    rows = [(q, name, 0, len(text)) for q in queries for name, text in (("leave::0", LEAVE), ("fees::0", FEES))]
    return {
        "chunks": given,
        "contexts": contexts(*rows),
        "prepared_queries": prepared(**queries),
        "ranked_runs": ranked(lists(**{query: ["leave::0", "fees::0"] for query in queries})),
    }


def answers(*lines):
    """outputs/answers.jsonl as it is loaded."""
    full = []
    for number, line in enumerate(lines):
        row = dict.fromkeys(OUTPUTS["answers"]) | {"answer_id": f"a{number}", "claims": [], "citations": []} | line
        for name, key in (("claims", "text"), ("citations", "id")):
            keys = {str: key, int: "position"}
            row[name] = [json.dumps({keys[type(each)]: each} if type(each) in keys else each) for each in row[name]]
        for name in ("usage", "timings"):
            row[name] = None if row[name] is None else json.dumps(row[name])
        full.append(row)
    return pl.DataFrame(full, schema=OUTPUTS["answers"], orient="row")


def room(frames, runtime=None, **section):
    """The room's tables."""
    made = run(frames, AnsweringConfig.model_validate(section), runtime or Runtime.plain())
    return frames | made


def verdicts(frames):
    """`claim_verdicts` of the lexical verifier."""
    given = dict(passages(supplied(frames["contexts"], frames["chunks"])))
    query_of = dict(frames["answers"].select("answer_id", "query_id").iter_rows())
    rows = []
    for (answer_id,), mine in frames["answer_claims"].group_by(["answer_id"], maintain_order=True):
        claims = [Claim(*row) for row in mine.select("claim_id", "text").iter_rows()]
        for verdict in ask(LexicalVerifier("en"), claims, given.get(query_of[answer_id], [])):
            rows.append(
                {"answer_id": answer_id, "claim_id": verdict.claim_id, "verifier": "lexical", "label": verdict.label,
                 "status": verdict.status, "score": verdict.score, "reason": verdict.reason, "passages": list(verdict.passages)}
            )  # fmt: skip
    return conform(ClaimVerdicts, rows)


def units(*rows):
    """Units from (query, evidence_id, document, length), with a hop where a fifth is given."""
    base = {"kind": "quote", "critical_from": [], "critical_to": [], "grade": 1, "eligible": True}
    made = [
        base | {"query_id": q, "evidence_id": e, "doc_id": d, "n_chars": n, "hop": (hop[0] if hop else None)}
        for q, e, d, n, *hop in rows
    ]
    return pl.DataFrame(made, schema={**UNITS, "hop": pl.Int64})


def whole(query, evidence_id, chunk_id, text, quote):
    """The piece of a quote that stands whole in a chunk."""
    at = text.index(quote)
    places = [at + offset for offset, character in enumerate(quote) if not character.isspace()]
    return {
        "query_id": query,
        "evidence_id": evidence_id,
        "chunk_id": chunk_id,
        "chars": list(range(len(places))),
        "positions": places,
    }


def with_evidence(frames, **evidence):
    """Evidence e1 of each query: a quote of the leave policy or the fees; None: no unit."""
    rows, parts = [], []
    for query, quote in evidence.items():
        if quote is None:
            continue
        chunk, text = ("leave::0", LEAVE) if quote in LEAVE else ("fees::0", FEES)
        rows.append((query, "e1", chunk.partition("::")[0], len("".join(quote.split()))))
        parts.append(whole(query, "e1", chunk, text, quote))
    return frames | {"evidence_units": units(*rows), "evidence_pieces": pieces(*parts) if parts else pieces().clear()}


def gold(queries, claims=(), right=None):
    """Gold from query → answerable, (query, claim_id, text, supported_by, vital), and query → answers."""

    def frame(name, rows):
        return pl.DataFrame([{c: row.get(c) for c in SCHEMAS[name]} for row in rows], schema=SCHEMAS[name])

    return Gold(
        queries=frame(
            "queries",
            [
                {"query_id": q, "text": q, "split": "test", "answerable": ok, "language": "en"}
                for q, ok in queries.items()
            ],
        ),
        claims=frame("claims", [dict(zip(SCHEMAS["claims"], row, strict=True)) for row in claims]),
        answers_gold=frame("answers_gold", [{"query_id": q, "answers": a} for q, a in (right or {}).items()]),
    )


def measured(frames, labels, settings=None, **section):
    """(metric, query) → (value, status), of rows without a cut-off; of several verifiers or outcomes the params too."""
    config = AnsweringConfig.model_validate(section or {"answerer": "import"})
    table = measure(frames, labels, config, settings or Settings())
    found = {}
    for row in table.filter(pl.col("k") == 0).iter_rows(named=True):
        params = json.loads(row["params"])
        key = (row["metric"], row["item_id"])
        told = {k: v for k, v in params.items() if k not in ("verifier", "assigner", "bins")}
        found[(*key, *told.values()) if told else key] = (row["value"], row["status"])
    return found
