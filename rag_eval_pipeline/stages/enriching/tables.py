"""Tables of the enriching room: what was found out about a document."""

from rag_eval_pipeline.warehouse.table import Table, integer, number, string, table


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


@table(
    "section_languages",
    "One row a part of a parsed text that is in one language; together they cover it. One row where a document has one language.",
)
class SectionLanguages(Table):
    doc_id = string("Document", key=True)
    section = integer("Number of the part, from 0", key=True)
    start = integer("First code point in the parsed text")
    end = integer("One past the last")
    language = string("Language that chunks of this part have (BCP 47 primary subtag), or und")
    score = number("Least confidence of the detector in it", null=True)
    letters = integer("Letters that it was judged by", unit="char")
    status = string("ok | document (no part of it says enough by itself: the document's language)")
