"""Declaration of the reranking room."""

from rag_eval_pipeline.stages.reranking.tables import RankedRuns
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="reranking",
    phase="retrieve",
    description="Makes the final list of every retriever; re-orders the first items of those that have a reranker.",
    reads=("documents", "runs", "fused_runs", "chunks", "prepared_queries"),
    inputs=("output:runs", "output:runs_before_rerank"),
    imports=lambda config: config.reranker == "import",
    writes=(RankedRuns,),
    measures=("evidence_units", "evidence_pieces"),
    libraries=("PyStemmer", "sentence-transformers"),
)
