"""Tables of the fusion room: lists made of lanes."""

from rag_eval_pipeline.warehouse.table import Table, integer, number, string, table


@table("fused_runs", "One row an item of a fused list, best first.")
class FusedRuns(Table):
    query_id = string("Query", key=True)
    retriever = string("Lane", key=True)
    rank = integer("From 1", key=True)
    chunk_id = string("Chunk")
    doc_id = string("Document")
    score = number("Score, higher is better; NULL where an imported run has none", null=True)


@table("exact_fused_runs", "The same fusion over exact lanes, where some lane's index is approximate.")
class ExactFusedRuns(Table):
    query_id = string("Query", key=True)
    retriever = string("Lane", key=True)
    rank = integer("From 1", key=True)
    chunk_id = string("Chunk")
    doc_id = string("Document")
    score = number("Score, higher is better; NULL where an imported run has none", null=True)
