"""Tables of the retrieval room: each lane's list."""

from rag_eval_pipeline.warehouse.table import Table, integer, number, string, table


@table("runs", "One row an item of a lane's list, best first.")
class Runs(Table):
    query_id = string("Query", key=True)
    retriever = string("Lane", key=True)
    rank = integer("From 1", key=True)
    chunk_id = string("Chunk")
    doc_id = string("Document")
    score = number("Score, higher is better; NULL where an imported run has none", null=True)


@table("exact_runs", "The same lanes with exact search, for lanes whose index is approximate.")
class ExactRuns(Table):
    query_id = string("Query", key=True)
    retriever = string("Lane", key=True)
    rank = integer("From 1", key=True)
    chunk_id = string("Chunk")
    doc_id = string("Document")
    score = number("Score, higher is better; NULL where an imported run has none", null=True)
