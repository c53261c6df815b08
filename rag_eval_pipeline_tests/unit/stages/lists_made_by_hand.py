"""Small frames for the tests of the rooms that make and judge lists."""

import polars as pl

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.measures.lists import RUN
from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.warehouse.table import conform

UNITS = {
    "query_id": pl.String, "evidence_id": pl.String, "doc_id": pl.String, "kind": pl.String, "critical_from": pl.List(pl.Int64),
    "critical_to": pl.List(pl.Int64), "n_chars": pl.Int64, "grade": pl.Int64, "eligible": pl.Boolean,
}  # fmt: skip
PIECES = {
    "query_id": pl.String, "evidence_id": pl.String, "carrier": pl.Int64, "chunk_id": pl.String, "doc_id": pl.String,
    "chars": pl.List(pl.Int64), "positions": pl.List(pl.Int64), "tokens": pl.List(pl.Int64), "whole": pl.Boolean,
}  # fmt: skip
OUTPUT = {"run": pl.String, "query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64}


def chunks(*rows, language="en"):
    """Chunks from (chunk_id, text) or (chunk_id, text, start); `d1::0` is chunk 0 of d1."""
    made = []
    for row in rows:
        chunk_id, text, start = (*row, 0)[:3]
        doc_id, _, ordinal = chunk_id.partition("::")
        made.append(
            {
                "chunk_id": chunk_id,
                "doc_id": doc_id,
                "ordinal": int(ordinal or 0),
                "start": start,
                "end": start + len(text),
                "text": text,
                "prefix": "",
                "section": [],
                "language": language,
                "page": None,
                "tokens": len(text.split()),
                "status": "ok",
            }
        )
    return conform(Chunks, made)


def documents(*ids, **columns):
    base = {"doc_id": list(ids), "tenant": [None] * len(ids), "acl": [[]] * len(ids)} | columns
    return pl.DataFrame(base, schema_overrides={"doc_id": pl.String, "tenant": pl.String, "acl": pl.List(pl.String)})


def prepared(language="en", **texts):
    return pl.DataFrame(
        {"query_id": list(texts), "text": list(texts.values()), "language": [language] * len(texts), "principal": [None] * len(texts)},
        schema={"query_id": pl.String, "text": pl.String, "language": pl.String, "principal": pl.String},
    )  # fmt: skip


def everything(*queries):
    """applied_filters and scopes under which each query may see all."""
    filters = pl.DataFrame(
        {"query_id": list(queries), "scope_id": ["all"] * len(queries), "preferred_scope_id": [None] * len(queries),
         "predicate": [None] * len(queries), "mode": ["none"] * len(queries), "boost": [0.0] * len(queries),
         "producer": ["entitlement"] * len(queries)},
        schema={"query_id": pl.String, "scope_id": pl.String, "preferred_scope_id": pl.String, "predicate": pl.String,
                "mode": pl.String, "boost": pl.Float64, "producer": pl.String},
    )  # fmt: skip
    return {"applied_filters": filters, "scopes": scopes(all=None)}


def scopes(**sets):
    rows = [{"scope_id": name, "everything": ids is None, "doc_ids": ids or []} for name, ids in sets.items()]
    return pl.DataFrame(rows, schema={"scope_id": pl.String, "everything": pl.Boolean, "doc_ids": pl.List(pl.String)})


def lists(retriever="lane", scores=None, **ids):
    """A run from query=[chunk ids]; without scores they fall by 1 a rank."""
    rows = [
        (query, retriever, rank, chunk, chunk.partition("::")[0], float(scores[rank - 1] if scores else -rank))
        for query, items in ids.items()
        for rank, chunk in enumerate(items, 1)
    ]
    return pl.DataFrame(rows, schema=RUN, orient="row")


def ranked(*runs):
    return pl.concat(runs).with_columns(rank_before=pl.col("rank"), input_size=pl.lit(None, pl.Int64))


def output(run, rows):
    """outputs/runs as a frame, from (query, item, rank, score)."""
    return pl.DataFrame([(run, *row) for row in rows], schema=OUTPUT, orient="row")


def units(*rows):
    """Units from dicts; n_chars 10, no critical token, eligible, quote."""
    base = {
        "kind": "quote",
        "critical_from": [],
        "critical_to": [],
        "n_chars": 10,
        "grade": 1,
        "eligible": True,
        "doc_id": "d1",
    }
    return pl.DataFrame([base | row for row in rows], schema=UNITS)


def pieces(*rows):
    base = {"carrier": 0, "chars": list(range(10)), "positions": list(range(10)), "tokens": [], "whole": True}
    return pl.DataFrame(
        [base | {"doc_id": row["chunk_id"].partition("::")[0]} | row for row in rows], schema=PIECES
    )  # fmt: skip


def gold(queries, qrels=(), principals=(), chunk_qrels=()):
    """Gold from query ids (or query_id: principal) and (query, document, grade)."""
    callers = queries if isinstance(queries, dict) else dict.fromkeys(queries)
    asked = [
        {"query_id": query, "text": query, "split": "test", "answerable": True, "principal": who}
        for query, who in callers.items()
    ]
    return Gold(
        queries=_frame("queries", asked),
        qrels=_frame("qrels", [{"query_id": q, "doc_id": d, "grade": g} for q, d, g in qrels]),
        principals=_frame("principals", [{"principal": p, "tenant": t, "groups": []} for p, t in principals]),
        chunk_qrels=_frame("chunk_qrels", [{"query_id": q, "chunk_id": c, "grade": g} for q, c, g in chunk_qrels]),
    )


def _frame(name, rows):
    schema = SCHEMAS[name]
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema=schema)
