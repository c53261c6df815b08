"""Tables of the source room: what documents a corpus version holds."""

from rag_eval_pipeline.warehouse.table import Table, integer, string, strings, table


@table("documents", "One row a document of the corpus version, with its metadata and whether its file could be read.")
class Documents(Table):
    doc_id = string("Identity of the document in the corpus", key=True)
    path = string("Path below documents/, with /")
    media = string("pdf | html | docx | md | txt | csv | image | other")
    doc_class = string("Class for slices, from documents.jsonl or else the medium")
    language = string("Declared language (BCP 47)", null=True)
    locale = string("Declared locale", null=True)
    title = string("Declared title", privacy="masked", null=True)
    tenant = string("Owner; NULL is visible to all tenants", null=True)
    acl = strings("Principals and groups that may see it; empty: all of the tenant")
    published_at = string("ISO 8601", null=True)
    committed_at = string("ISO 8601, when the source system committed it", null=True)
    supersedes = string("doc_id of the document that this one replaces", null=True)
    metadata = string("Further metadata, a JSON object", privacy="source")
    bytes = integer("Size of the file", unit="bytes")
    content_hash = string("sha256 of the file's bytes")
    status = string("ok | empty | unreadable | unsupported | too_large")
    error = string("Why the status is not ok, without content", null=True)
