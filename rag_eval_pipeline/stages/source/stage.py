"""Declaration of the source stage."""

from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="source",
    phase="ingest",
    description="Lists the documents of the corpus version, what kind of file each is, and whether it can be read.",
    reads=(),
    inputs=("files",),
    writes=(Documents,),
    kinds=("polars", "file"),
    expects=("files", "doc_id"),
)
