"""Declaration of the parsing stage."""

from rag_eval_pipeline.stages.parsing.tables import Blocks, Parsed, ParsedTables
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="parsing",
    phase="ingest",
    description="Reads text, blocks and tables from every document, each in a worker with limits on time and memory.",
    reads=("documents",),
    inputs=("output:parsed",),
    writes=(Parsed, Blocks, ParsedTables),
    libraries=(
        "pypdfium2", "pdfplumber", "pdfminer.six", "python-docx", "lxml", "markdown-it-py", "pillow", "rapidocr",
        "onnxruntime", "charset-normalizer",
    ),
    kinds=("polars", "python"),
    expects=("documents", "doc_id"),
)  # fmt: skip
