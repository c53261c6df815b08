"""Tables of attribution: gold evidence, where it stands in each text, and where it was lost.

Key columns are never NULL: a stage that has no retriever (the text stages, filtering, embedding) has retriever ''.
"""

from rag_eval_pipeline.warehouse.table import Table, boolean, integer, integers, number, string, strings, table


@table("evidence_units", "One row a gold passage (or document) that a query of the measured split needs.")
class EvidenceUnits(Table):
    query_id = string("Query", key=True)
    evidence_id = string("Evidence, unique in its query; the doc_id where gold judges documents", key=True)
    doc_id = string("Document that gold names")
    kind = string("quote | document")
    quote = string("The passage, normalised, labelled and predicted personal data masked", privacy="masked")
    critical = strings("Critical tokens, masked likewise", privacy="masked")
    critical_kinds = strings("Kind of each: number (with its unit) | date | code | negation | entity | listed")
    critical_from = integers("First index of each token among the quote's non-space characters")
    critical_to = integers("One past its last index")
    n_chars = integer("Non-space characters of the quote; 0 for documents")
    grade = integer("Relevance grade")
    hop = integer("Hop of a multi-hop question", null=True)
    eligible = boolean("The query's principal may see the document; fixed before the run")
    present = boolean("The document is in this version")
    anchored = boolean("Some carrier has a place: a reference text, or a parsed text similar enough")
    split = string("Split of the query")
    similarity = number("Best similarity of the quote in its own document's parsed text", null=True)


@table("evidence_pieces", "One row a chunk that has some part of a carrier of a unit.")
class EvidencePieces(Table):
    query_id = string("Query", key=True)
    evidence_id = string("Evidence", key=True)
    carrier = integer("Number of the carrier in its unit; 0 is the first labelled place", key=True)
    chunk_id = string("Chunk", key=True)
    doc_id = string("Document of the chunk")
    chars = integers("Indexes of the quote's non-space characters that the chunk has")
    positions = integers("Their offsets in the masked text, parallel to chars")
    tokens = integers("Indexes of critical tokens that stand whole in this chunk")
    whole = boolean("This chunk alone holds the unit")


@table("evidence_anchors", "One row a unit, carrier and text: where the carrier's characters stand in it.")
class EvidenceAnchors(Table):
    query_id = string("Query", key=True)
    evidence_id = string("Evidence", key=True)
    carrier = integer("Number of the carrier in its unit", key=True)
    layer = string("parsed | clean | masked", key=True)
    doc_id = string("Document of the carrier")
    own = boolean("Stands in the document that gold names")
    present = boolean("Its document is in this version")
    kept = boolean("Dedup kept its document")
    survivor = string("Document that dedup kept for it; itself where kept")
    counts = boolean("The tests of parsing and cleaning look at it")
    positions = integers("Offset of each non-space character of the quote in this text; -1 where it is gone")
    token_ok = boolean("All critical tokens are intact in this text")
    broken = integers("Indexes of critical tokens that are not")
    broken_kinds = strings("What of each differs: its kind; `unit` where a number's digits are all there")
    held = boolean("This text holds the unit through this carrier")
    similarity = number("Similarity of its place in the parsed text", null=True)
    cer = number("Edits between the quote and its place in the parsed text / length of the quote", null=True)
    low = integer("First code point of its place in this text; in the parsed text of the nearest one", null=True)
    high = integer("One past the last code point of that place", null=True)
    status = string(
        "exact | aligned | scattered | changed | unanchored | restored | masked | policy | absent | a failure"
    )
    spread = boolean("Its characters stand out of order or over more than 1.5 times their number")


@table("evidence_ledger", "One row a unit and stage (and retriever, where the stage has one): is it still held?")
class EvidenceLedger(Table):
    query_id = string("Query", key=True)
    evidence_id = string("Evidence", key=True)
    stage = string("Stage, in the order of the waterfall", key=True)
    retriever = string("Retriever; '' for stages before retrieval", key=True)
    held = boolean("The stage's output holds the unit")
    state = string("held | degraded (changed elsewhere, or split) | restored | lost | unanchored | policy")
    rescued = boolean("Held, but only by a copy: no place in the document that gold names holds it")
    similarity = number("Similarity of the best carrier in the parsed text", null=True)
    hold_rank = integer("Rank at which the list first holds it", null=True)
    detail = string("Numbers, offsets and ids, a JSON object; never source text")


@table("evidence_fate", "One row a unit, retriever and k: served, or the stage that lost it first.")
class EvidenceFate(Table):
    query_id = string("Query", key=True)
    evidence_id = string("Evidence", key=True)
    retriever = string("Retriever", key=True)
    k = integer("Cut-off", key=True)
    eligible = boolean("In the books; an ineligible unit has no loss")
    served = boolean("The first k items hold it")
    first_loss_stage = string("Stage that lost it first; served where served; ineligible outside the books")
    cause = string("What happened there", null=True)
    rank = integer("Rank at which the final list holds it", null=True)
    rescued = boolean("Served, but only by a copy in another document than gold names")
    impossible = boolean("Served although a test up to filtering failed: ledger and ranking disagree")
    context_held = boolean("The assembled context holds it; NULL where no context was made of this list", null=True)
    answer_used = boolean(
        "The answer cites it, or a claim stands on it; NULL where nothing answered from this list", null=True
    )
    answer_cause = string("Why it was not used: ignored | refused | empty | no_answer", null=True)
    detail = string("Numbers and ids, a JSON object; never source text")


@table("loss_waterfall", "One row a retriever, k, slice and stage: what the stage cost in recall.")
class LossWaterfall(Table):
    retriever = string("Retriever", key=True)
    k = integer("Cut-off", key=True)
    slice_name = string("Slice key, or all", key=True)
    slice_value = string("Slice value, or all", key=True)
    stage = string("Stage", key=True)
    position = integer("Place of the stage in the waterfall")
    ceiling_before = number("Recall that was still possible before the stage")
    ceiling_after = number("Recall that is still possible after it; below rank: what is left of recall")
    lost_units = integer("Units lost here first")
    lost_recall = number("Their share of recall: mean over queries of lost / eligible")
    n_units = integer("Eligible units in the slice")
    n_queries = integer("Queries with an eligible unit in the slice")
    n_ineligible = integer("Units outside the books: their document may not be seen by the caller")
    recall = number("Evidence recall at k by the ledger's own ranks")
    residual = number("1 - sum of losses - recall")
    impossible = integer("Served units that failed a test up to filtering")
    stale_items = integer(
        "Listed items whose chunk is not among the current ones: they keep their rank and hold nothing"
    )
    unseen_stages = strings("Stages that these inputs cannot show; their losses fall to a later stage")
    books_ok = boolean("residual is 0 within 1e-12 and impossible is 0")
