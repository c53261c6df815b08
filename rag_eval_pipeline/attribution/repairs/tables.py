"""The table of repairs: what it would have given back had a stage handed on what gold says."""

from rag_eval_pipeline.warehouse.table import Table, boolean, integer, number, string, table


@table(
    "stage_repairs", "One row a retriever, k and stage: the recall that comes back when its output is repaired by gold."
)
class StageRepairs(Table):
    retriever = string("Retriever", key=True)
    k = integer("Cut-off", key=True)
    stage = string(
        "Stage; also all_repairs (every player together), reranker_ceiling (any order of the candidates), context (no budget)",
        key=True,
    )
    kind = string("stage | total | ceiling | context: only rows of kind stage are players")
    position = integer("Order of the waterfall")
    status = string(
        "ok | unchanged (the repair is what the stage handed on) | import_misfit (what was imported for another stage's "
        "output doesn't fit the repaired one)"
    )
    baseline = number("Evidence recall at k of the pipeline as it ran; of a context: as it was assembled")
    recovered_recall = number("Recall with this repair alone, minus the baseline; negative where it hurts", null=True)
    recovered_low = number("Lower limit of its 95 % interval, paired by query", null=True)
    recovered_high = number("Upper limit", null=True)
    recovered_method = string("How the interval was made", null=True)
    marginal_recall = number("Recall with all repairs, minus that with all but this one", null=True)
    marginal_low = number("Lower limit of its 95 % interval", null=True)
    marginal_high = number("Upper limit", null=True)
    marginal_method = string("How the interval was made", null=True)
    shapley = number("Its share of the total over all orders in which stages may be repaired", null=True)
    shapley_error = number("Standard error of it where orders were sampled; NULL where it is exact", null=True)
    player = boolean("Its repair changes an output in some coalition; others have a share of exactly 0")
    n_lost = integer("Eligible units that the ledger lost here first", null=True)
    n_repairable = integer(
        "Those of them that are no longer lost here once the output is repaired; where fewer, recovered_recall is a lower "
        "bound",
        null=True,
    )
    units_gained = integer("Units served with this repair alone and not without", null=True)
    units_lost = integer("Units served without it and no longer with it", null=True)
    queries_helped = integer("Queries with a higher recall", null=True)
    queries_hurt = integer("Queries with a lower recall", null=True)
    n_queries = integer("Queries with an eligible unit")
    encoder_tokens = integer(
        "Word pieces of texts that the encoder had to see for it and not for the pipeline as it ran",
        unit="tokens",
        null=True,
    )
    base_encoder_tokens = integer("Word pieces of the pipeline's own chunks", unit="tokens")
    seconds = number("Wall time of what ran again for it", unit="s", null=True, volatile=True)
