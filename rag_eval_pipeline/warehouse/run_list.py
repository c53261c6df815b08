"""The shape of a ranked list, which every room that makes or changes lists writes."""

from __future__ import annotations

from rag_eval_pipeline.warehouse.table import Table, integer, number, string


class RunList(Table):
    """One row an item of a retriever's list for a query, best first."""

    query_id = string("Query", key=True)
    retriever = string("Lane", key=True)
    rank = integer("From 1", key=True)
    chunk_id = string("Chunk")
    doc_id = string("Document")
    score = number("Score, higher is better; NULL where an imported run has none", null=True)
