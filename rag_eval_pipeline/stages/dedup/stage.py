"""Declaration of the dedup stage."""

from rag_eval_pipeline.stages.dedup.tables import Dedup, DedupEdges
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="dedup",
    phase="prepare",
    description="Finds near-duplicate documents (shingles, MinHash, verified) and keeps one of each cluster.",
    reads=("cleaned", "documents"),
    inputs=("output:dedup",),
    writes=(Dedup, DedupEdges),
    libraries=("datasketch", "numpy"),
    kinds=("polars", "python"),
    expects=("cleaned", "doc_id"),
)
