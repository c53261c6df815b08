"""Tables of the reranking room: the final list of every retriever."""

from rag_eval_pipeline.warehouse.table import Table, integer, number, string, table


@table("ranked_runs", "One row an item of a retriever's final list; retrievers without a reranker pass through.")
class RankedRuns(Table):
    query_id = string("Query", key=True)
    retriever = string("Lane", key=True)
    rank = integer("From 1", key=True)
    chunk_id = string("Chunk")
    doc_id = string("Document")
    score = number("Score, higher is better; NULL where an imported run has none", null=True)
    rank_before = integer("Rank before reranking; NULL where the reranker brought it in", null=True)
    input_size = integer("Items that the reranker saw; NULL without a reranker", null=True)
