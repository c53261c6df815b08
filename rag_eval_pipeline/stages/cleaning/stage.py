"""Declaration of the cleaning stage."""

from rag_eval_pipeline.stages.cleaning.tables import Cleaned
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="cleaning",
    phase="prepare",
    description="Removes boilerplate and invisible characters and normalises Unicode; every character keeps its place.",
    reads=("parsed", "blocks"),
    inputs=("output:cleaned",),
    writes=(Cleaned,),
    libraries=("trafilatura", "lxml", "rapidfuzz"),
    kinds=("polars", "python"),
    expects=("parsed", "doc_id"),
)
