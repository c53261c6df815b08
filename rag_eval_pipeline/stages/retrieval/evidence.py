"""The `search` and `rank` tests: at which rank each list holds a unit, and whether exact lists together hold it.

Not here: recall as a figure (the room's quality computes it apart from this, which is what the books compare).
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, hold_rank, holds_together


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Hold ranks of every unit in every list of `after["runs"]` (any table with a list's columns).

    Args:
        units: evidence_units.
        before: `evidence_pieces`.
        after: `runs`.
        config: hold.
    """
    return hold_rank(before["evidence_pieces"], after["runs"], units, config.hold)


def found(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Which units the lanes of a retriever together hold: the `search` test, given exact lists cut at depth.

    Args:
        units: evidence_units.
        before: `evidence_pieces`.
        after: `runs` (query_id, lane, chunk_id: the exact lists), `links` (retriever, lane: who searches for whom).
        config: hold.

    Returns:
        query_id, evidence_id, retriever, held: a row for what is held alone.
    """
    listed = (
        before["evidence_pieces"]
        .join(after["runs"], on=["query_id", "chunk_id"])
        .join(after["links"], on="lane")
        .unique([*UNIT, "carrier", "chunk_id", "retriever"])
    )
    return holds_together(listed, units, config.hold, by=["retriever"]).select(*UNIT, "retriever", "held")
