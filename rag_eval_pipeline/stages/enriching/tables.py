"""Tables of the enriching room: what was found out about a document."""

from rag_eval_pipeline.warehouse.table import Table, number, string, table


@table("languages", "One row a document: its language, as used downstream, as detected and as declared.")
class Languages(Table):
    doc_id = string("Document", key=True)
    language = string("Language that later stages use (BCP 47 primary subtag), or und")
    score = number("Confidence of the detector", null=True)
    status = string(
        "ok | empty | short (too little text to trust the detector) | error | timeout | out_of_memory | crashed"
    )
    detected = string("What the detector said, or und", null=True)
    declared = string("What documents.jsonl declares, primary subtag", null=True)
