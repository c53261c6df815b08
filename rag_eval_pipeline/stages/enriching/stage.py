"""Declaration of the enriching stage."""

from rag_eval_pipeline.stages.enriching.tables import Languages, SectionLanguages
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="enriching",
    phase="prepare",
    description="Detects the language of every document and of its parts; it chooses analysers and sentence rules downstream.",
    reads=("parsed", "blocks", "documents"),
    writes=(Languages, SectionLanguages),
    libraries=("py3langid",),
    kinds=("polars", "python"),
    expects=("parsed", "doc_id"),
)
