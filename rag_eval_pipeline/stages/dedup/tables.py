"""Tables of the dedup room: which documents were kept, and why others were not."""

from rag_eval_pipeline.warehouse.table import Table, boolean, number, string, table


@table("dedup", "One row a document: whether it was kept, and its cluster's survivor.")
class Dedup(Table):
    doc_id = string("Document", key=True)
    kept = boolean("Goes on to the next stage")
    cluster_id = string("Smallest doc_id of its cluster of near-duplicates")
    survivor = string("The document kept for its cluster; itself where kept")
    status = string("ok | empty (an empty document is nobody's duplicate)")


@table(
    "dedup_edges", "One row a pair found to be alike: near-duplicates, and editions of one document that stay apart."
)
class DedupEdges(Table):
    doc_a = string("Smaller doc_id of the pair", key=True)
    doc_b = string("Larger doc_id of the pair", key=True)
    similarity = number("Verified similarity", null=True)
    verified = string("exact | minhash | none | import")
    relation = string(
        "duplicate (one cluster) | revision (alike, but editions of one document, or a copy of another edition)"
    )
    kept = string("The document of the pair that the other one was removed for, if any", null=True)
    removed = string("The document of the pair that was removed, if any", null=True)
