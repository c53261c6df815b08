"""Declaration of the metadata stage."""

from rag_eval_pipeline.stages.metadata.tables import DocumentMetadata, Entities, MetadataValues, Relations
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="metadata",
    phase="prepare",
    description="Says where each document's title, author and dates stand (front matter, file properties, markup, headings, file "
    "name), and which source was believed; finds named entities and relations where a model is given.",
    reads=("documents", "parsed", "blocks"),
    writes=(DocumentMetadata, MetadataValues, Entities, Relations),
    libraries=("pypdfium2", "python-docx", "lxml", "pillow", "spacy"),
    kinds=("polars", "python"),
    expects=("documents", "doc_id"),
)
