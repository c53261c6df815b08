"""Tables of the querying room: the queries as they are searched."""

from rag_eval_pipeline.warehouse.table import Table, string, table, vector


@table("prepared_queries", "One row a query, as it is searched.")
class PreparedQueries(Table):
    query_id = string("Query", key=True)
    text = string("Text searched", privacy="masked")
    language = string("Declared or detected language", null=True)
    principal = string("Who asks; NULL sees all", null=True)


@table("query_embeddings", "One row a query: its vector. Empty without a dense lane.")
class QueryEmbeddings(Table):
    query_id = string("Query", key=True)
    vector = vector("Unit length")
    model = string("Model that made it")
