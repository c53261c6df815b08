"""Declaration of the retrieval room."""

from rag_eval_pipeline.stages.retrieval.tables import ExactRuns, Runs
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="retrieval",
    phase="retrieve",
    description="Searches every lane (BM25, dense, imported, own class) for every query, inside the query's scope.",
    reads=(
        "documents", "chunks", "embeddings", "query_embeddings", "index_files", "prepared_queries", "applied_filters", "scopes",
    ),
    inputs=("output:runs", "output:runs_before_rerank"),
    imports=lambda config: any(lane.kind == "import" for lane in config.lanes.values()),
    writes=(Runs, ExactRuns),
    measures=("ranked_runs", "evidence_units", "evidence_pieces"),
    libraries=("bm25s", "PyStemmer", "numpy", "faiss-cpu"),
    kinds=("bm25", "faiss", "polars"),
)  # fmt: skip
