"""Tables of the indexing room: the vector index."""

from rag_eval_pipeline.warehouse.table import Table, binary, integer, number, string, strings, table


@table("index_files", "One row an index: its serialised form. Empty without a dense lane.")
class IndexFiles(Table):
    index_name = string("Name of the index", key=True)
    kind = string("flat | hnsw | ivf")
    params = string("Parameters, JSON")
    chunk_ids = strings("Chunk of each index position; one with windows has several")
    blob = binary("faiss.serialize_index")
    bytes = integer("Size of the serialised index", unit="bytes")
    seconds = number("Time to build", unit="s", volatile=True)
