"""Declaration of the context room."""

from rag_eval_pipeline.stages.context.tables import Contexts
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="context",
    phase="answer",
    description="Fills the token budget with the first items of the served retriever: what the answerer is given.",
    reads=("ranked_runs", "chunks", "prepared_queries"),
    inputs=("output:contexts",),
    writes=(Contexts,),
    measures=("evidence_units", "evidence_pieces"),
    libraries=("tokenizers",),
)
