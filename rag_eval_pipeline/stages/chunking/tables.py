"""Tables of the chunking room: the pieces that are indexed."""

from rag_eval_pipeline.warehouse.table import Table, integer, string, strings, table


@table("chunks", "One row a chunk: a range of its document's masked text.")
class Chunks(Table):
    chunk_id = string("Chunk: <doc_id>::<ordinal as it was cut>, or the imported id", key=True)
    doc_id = string("Document")
    ordinal = integer("Position in the document, from 0")
    start = integer("First code point in the masked text; NULL where an imported chunk could not be placed", null=True)
    end = integer("One past the last code point", null=True)
    text = string("The chunk's own text", privacy="masked")
    prefix = string("Text written before it by the pipeline; holds no evidence", privacy="masked")
    section = strings("Headings above it, outermost first", privacy="masked")
    language = string(
        "Language of the part of its document that most of it comes from; chooses the analyser", null=True
    )
    page = integer("Page on which it starts", null=True)
    tokens = integer("Length in the splitter's tokens", unit="tokens")
    status = string("ok | unplaced | error | timeout | out_of_memory | crashed (one empty row for the document)")
