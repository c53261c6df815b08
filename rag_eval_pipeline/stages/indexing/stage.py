"""Declaration of the indexing room."""

from rag_eval_pipeline.stages.indexing.tables import IndexFiles
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="indexing",
    phase="index",
    description="Builds the vector index: flat (exact), HNSW or IVF.",
    reads=("embeddings",),
    writes=(IndexFiles,),
    measures=("chunks", "query_embeddings", "applied_filters", "scopes"),
    libraries=("faiss-cpu",),
    kinds=("faiss",),
)
