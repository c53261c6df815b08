"""Which carriers of evidence stand in a document of this corpus version. Not here: whether their text was read."""

from collections.abc import Mapping

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Carriers with `present`: their document is in the version.

    Args:
        units: one row a unit and carrier, with doc_id.
        before: nothing is read.
        after: `documents`.
        config: nothing is read.
    """
    documents = after["documents"].select("doc_id").unique().with_columns(present=pl.lit(True))
    return units.join(documents, on="doc_id", how="left", maintain_order="left").with_columns(
        pl.col("present").fill_null(False)
    )
