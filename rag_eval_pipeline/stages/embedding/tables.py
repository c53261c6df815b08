"""Tables of the embedding room: a vector a chunk, or several where it was encoded in windows."""

from rag_eval_pipeline.warehouse.table import Table, integer, string, table, vector


@table("embeddings", "One row a vector, one a chunk: how much of it the encoder saw. Empty without a dense lane.")
class Embeddings(Table):
    chunk_id = string("Chunk", key=True)
    window = integer("0; further windows of an over-long chunk, which only a repair makes, count from 1", key=True)
    vector = vector("Unit length")
    tokens = integer("Word pieces of the chunk", unit="tokens")
    encoded_tokens = integer("Word pieces that the encoder saw", unit="tokens")
    encoded_start = integer("First code point of the chunk's text that the encoder saw")
    encoded_end = integer("One past the last code point of the chunk's text that the encoder saw")
    model = string("Model that made it")
