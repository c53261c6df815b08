"""How many of the documents can be read at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

METRICS: tuple[Metric, ...] = (
    Metric("documents_readable", "The file is there, not empty, of a known format and of a bearable size", "higher"),
)


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """One row a document: 1 where it can be read; else 0, and the status says why."""
    rows = frames["documents"].sort("doc_id").select("doc_id", "status").iter_rows()
    return measurements(
        [
            measurement(
                "documents_readable",
                "document",
                doc_id,
                float(status == "ok"),
                unit="document",
                status="scored" if status == "ok" else status,
                numerator=float(status == "ok"),
                denominator=1.0,
            )
            for doc_id, status in rows
        ]
    )
