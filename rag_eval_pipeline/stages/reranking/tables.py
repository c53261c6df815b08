"""Tables of the reranking room: the final list of every retriever."""

from rag_eval_pipeline.warehouse.run_list import RunList
from rag_eval_pipeline.warehouse.table import integer, table


@table("ranked_runs", "One row an item of a retriever's final list; retrievers without a reranker pass through.")
class RankedRuns(RunList):
    rank_before = integer("Rank before reranking; NULL where the reranker brought it in", null=True)
    input_size = integer("Items that the reranker saw; NULL without a reranker", null=True)
