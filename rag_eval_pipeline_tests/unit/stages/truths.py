"""What gold says, made by hand: units at places of masked texts, for tests of repairs."""

import polars as pl

from rag_eval_pipeline.attribution.tables import EvidenceAnchors, EvidencePieces, EvidenceUnits
from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.table import conform, polars_schema


def rows_of(table, rows):
    """A table with these columns; the others are empty or False, as their type allows."""
    blank = {pl.String: "", pl.Int64: 0, pl.Boolean: False, pl.Float64: 0.0}
    empty = {
        name: None if column.nullable else blank.get(column.dtype.base_type(), [])
        for name, column in table.columns().items()
    }
    return conform(table, [empty | row for row in rows])


def unit(query, evidence, *, doc="d", n_chars=0, tokens=(), eligible=True, split="test", kind="quote"):
    low, high = [a for a, _ in tokens], [b for _, b in tokens]
    return {
        "query_id": query, "evidence_id": evidence, "doc_id": doc, "kind": kind, "n_chars": n_chars, "eligible": eligible,
        "critical": ["?"] * len(low), "critical_from": low, "critical_to": high, "grade": 1, "present": True, "anchored": True,
        "split": split,
    }  # fmt: skip


def anchor(query, evidence, text, start, end, *, doc="d", carrier=0, kept=True, held=True, layer="masked"):
    places = [place for place in range(start, end) if not text[place].isspace()]
    return {
        "query_id": query, "evidence_id": evidence, "carrier": carrier, "layer": layer, "doc_id": doc, "own": True,
        "present": True, "kept": kept, "survivor": doc, "counts": True, "positions": places, "token_ok": True, "held": held,
        "status": "exact",
    }  # fmt: skip


def piece(query, evidence, chunk, *, doc="d", carrier=0, chars=(), tokens=(), whole=True):
    return {
        "query_id": query, "evidence_id": evidence, "carrier": carrier, "chunk_id": chunk, "doc_id": doc, "chars": list(chars),
        "positions": list(chars), "tokens": list(tokens), "whole": whole,
    }  # fmt: skip


def truth(units=(), anchors=(), pieces=(), *, dev_units=(), dev_pieces=(), queries=(), k=None, **settings):
    asked = [{column: row.get(column) for column in SCHEMAS["queries"]} | {"split": "test"} for row in queries]
    gold = Gold(queries=pl.DataFrame(asked, schema=SCHEMAS["queries"], orient="row"))
    return Truth(
        gold,
        Settings.model_validate(settings),
        rows_of(EvidenceUnits, units),
        rows_of(EvidenceAnchors, anchors),
        rows_of(EvidencePieces, pieces),
        rows_of(EvidenceUnits, dev_units),
        rows_of(EvidencePieces, dev_pieces),
        k,
    )


def empty(table):
    return pl.DataFrame(schema=polars_schema(table))
