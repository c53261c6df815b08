"""Tables of the pii room: what was found to be personal, and the masked text."""

from rag_eval_pipeline.warehouse.table import Table, integer, number, offsets, string, table


@table("pii_spans", "One row a span predicted to be personal data, as offsets into the clean text.")
class PiiSpans(Table):
    doc_id = string("Document", key=True)
    start = integer("First code point in the clean text", key=True)
    end = integer("One past the last code point", key=True)
    type = string("Entity type", key=True)
    score = number("Confidence", null=True)


@table("masked", "One row a kept document: its masked text and how it maps to the clean text.")
class Masked(Table):
    doc_id = string("Document", key=True)
    text = string("Text with predicted personal data masked", privacy="masked")
    offsets = offsets("Segments from masked text (out) to clean text (src)")
    status = string("ok | empty | error | timeout | out_of_memory | crashed")
    error = string("Why the status is not ok, without content", null=True)
