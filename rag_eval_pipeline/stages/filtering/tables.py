"""Tables of the filtering room: what each query may see."""

from rag_eval_pipeline.warehouse.table import Table, boolean, number, string, strings, table


@table("applied_filters", "One row a query: the predicate that was applied, and the scope that it admits.")
class AppliedFilters(Table):
    query_id = string("Query", key=True)
    scope_id = string("Documents that the lists may hold (entitlement, and the predicate where hard)")
    preferred_scope_id = string("Documents that a soft predicate boosts", null=True)
    predicate = string("Applied predicate, JSON", null=True)
    mode = string("none | hard | soft")
    boost = number("Added to the score of preferred documents, as a share of the list's score range")
    producer = string("entitlement | gold | rules | import | <user class>")


@table("scopes", "One row a distinct set of documents that some query's filter admits.")
class Scopes(Table):
    scope_id = string("Scope", key=True)
    everything = boolean("Admits all kept documents; doc_ids is then empty")
    doc_ids = strings("Documents admitted")
