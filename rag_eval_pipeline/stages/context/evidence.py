"""Which evidence the assembled context holds: the ranges that were given to the answerer, cut ones included."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import held_by_ranges


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Per unit whether its query's context holds it.

    Args:
        units: evidence_units.
        before: `evidence_pieces`.
        after: `contexts`.
        config: hold.

    Returns:
        query_id, evidence_id, held.
    """
    return held_by_ranges(units, before["evidence_pieces"], after["contexts"], config.hold)
