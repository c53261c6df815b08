"""What an index should find: what exact search finds. Building one belongs in `transform`."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.stages.indexing.transform import IndexingConfig, run
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.runtime import Runtime


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: IndexingConfig
) -> dict[str, pl.DataFrame]:
    """A flat index over the same vectors; one that is flat stays. Gold is not asked: exact search needs none.

    Args:
        before: `embeddings`.
        after: `index_files`.
        truth: nothing is read.
        config: the stage's own.
    """
    if after["index_files"].filter(pl.col("kind") != "flat").is_empty():
        return dict(after)
    return run(before, config.model_copy(update={"kind": "flat"}), Runtime.plain())
