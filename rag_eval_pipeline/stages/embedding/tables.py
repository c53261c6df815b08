"""Tables of the embedding room: a vector a chunk."""

from rag_eval_pipeline.warehouse.table import Table, integer, string, table, vector


@table("embeddings", "One row a chunk: its vector, and how much of it the encoder saw. Empty without a dense lane.")
class Embeddings(Table):
    chunk_id = string("Chunk", key=True)
    vector = vector("Unit length")
    tokens = integer("Word pieces of the chunk", unit="tokens")
    encoded_tokens = integer("Word pieces that the encoder saw", unit="tokens")
    encoded_end = integer("Code points of the chunk's text that the encoder saw")
    model = string("Model that made it")
