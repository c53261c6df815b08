"""Declaration of the embedding room."""

from rag_eval_pipeline.stages.embedding.tables import Embeddings
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="embedding",
    phase="index",
    description="Turns each chunk into a unit vector, and records how much of it the encoder saw.",
    reads=("chunks",),
    inputs=("output:embeddings",),
    writes=(Embeddings,),
    measures=("dedup",),
    libraries=("sentence-transformers", "transformers", "tokenizers", "torch"),
    kinds=("pytorch", "huggingface"),
)
