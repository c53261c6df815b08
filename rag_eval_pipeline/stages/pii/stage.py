"""Declaration of the pii stage."""

from rag_eval_pipeline.stages.pii.tables import Masked, PiiSpans
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="pii",
    phase="prepare",
    description="Finds personal data in kept documents and masks it; every other character keeps its place.",
    reads=("cleaned", "dedup", "section_languages"),
    inputs=("output:pii_spans",),
    writes=(Masked, PiiSpans),
    libraries=("presidio-analyzer", "spacy", "phonenumbers", "tldextract"),
    kinds=("polars", "spacy"),
    measures=("parsed", "evidence_units", "evidence_anchors"),
    expects=("dedup:kept", "doc_id"),
)
