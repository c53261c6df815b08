"""What reranking lost: units served at k before it and not after. Not here: its uplift on ranking measures."""

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger

PAIR = ["query_id", "evidence_id", "retriever"]


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Rows of `units` with `passed`.

    Args:
        units: query_id, evidence_id, retriever, k.
        before: `ranks`: hold ranks in the list that the reranker was given.
        after: `ranks`: hold ranks in the final list.
        config: nothing is read.
    """
    columns = [*PAIR, "hold_rank"]
    ranked = units.join(before["ranks"].select(columns), on=PAIR, how="left", maintain_order="left").join(
        after["ranks"].select(columns), on=PAIR, how="left", maintain_order="left", suffix="_final"
    )
    was = (pl.col("hold_rank") <= pl.col("k")).fill_null(False)
    now = (pl.col("hold_rank_final") <= pl.col("k")).fill_null(False)
    return ranked.with_columns((~(was & ~now)).alias("passed")).select([*units.columns, "passed"])
