"""Tables of the context room: what the answerer is given."""

from rag_eval_pipeline.warehouse.table import Table, integer, string, table


@table("contexts", "One row a piece of the assembled context of the served retriever.")
class Contexts(Table):
    query_id = string("Query", key=True)
    position = integer("Place in the context, from 1", key=True)
    retriever = string("Retriever that served it")
    chunk_id = string("Chunk")
    doc_id = string("Document")
    start = integer("First code point in the masked text", null=True)
    end = integer("One past the last code point; less than the chunk's where it was cut", null=True)
    text = string(
        "As it was given, where it was imported as a text; NULL: the range of the chunk", privacy="masked", null=True
    )
    tokens = integer("Tokens of the budget that it takes", unit="tokens")
