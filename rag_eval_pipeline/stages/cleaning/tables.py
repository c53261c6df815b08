"""Tables of the cleaning room: the text without boilerplate, normalised."""

from rag_eval_pipeline.warehouse.table import Table, integer, offsets, string, table


@table("cleaned", "One row a document: its clean text and how it maps to the parsed text.")
class Cleaned(Table):
    doc_id = string("Document", key=True)
    text = string("Clean text", privacy="source")
    offsets = offsets("Segments from clean text (out) to parsed text (src)")
    removed_chars = integer("Non-space code points of the parsed text that are gone")
    cleaner = string("Cleaner that ran")
    status = string("ok | empty | error | timeout | out_of_memory | crashed")
    error = string("Why the status is not ok, without content", null=True)
