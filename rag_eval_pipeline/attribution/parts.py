"""The ledger's tests on chunks: together, alone, admitted, encoded. Lists stand in `lists`, blame in `ledger`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import polars as pl

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import UNIT, holds_together
from rag_eval_pipeline.stages.embedding import evidence as embedding
from rag_eval_pipeline.stages.filtering import evidence as filtering


def own_pieces(pieces: pl.DataFrame, units: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What copies can rescue: units with a piece in another document than gold names, and the other pieces of these.

    Returns:
        query_id, evidence_id of units that some copy has a piece of; and their pieces in the document that gold names.
    """
    told = pieces.join(units.select(*UNIT, pl.col("doc_id").alias("labelled")), on=UNIT)
    copied = told.filter(pl.col("doc_id") != pl.col("labelled")).select(UNIT).unique()
    own = told.filter(pl.col("doc_id") == pl.col("labelled")).join(copied, on=UNIT, how="semi")
    return copied, own.drop("labelled")


class Parts:
    """What chunks hold, alone and together, and how much of it filters and encoder let through."""

    def __init__(
        self, frames: Mapping[str, pl.DataFrame], units: pl.DataFrame, pieces: pl.DataFrame, config: Ledger
    ) -> None:
        self._frames, self._units, self._pieces, self._config = frames, units, pieces, config

    def _held(self, pieces: pl.DataFrame, name: str) -> pl.DataFrame:
        """Per unit whether the pieces hold it, under `name`.

        Beside it `_alone` (one chunk does), `_intact` (one has every character) and `_rescued` (only a copy's pieces do).
        """
        held = holds_together(pieces, self._units, self._config.hold)
        sizes = self._units.select(*UNIT, "n_chars")
        whole = pieces.filter("whole").join(sizes, on=UNIT).filter(pl.col("chars").list.len() >= pl.col("n_chars"))
        copied, own = own_pieces(pieces, self._units)
        by_own = holds_together(own, copied.join(self._units, on=UNIT), self._config.hold).filter("held").select(UNIT)
        only = copied.join(by_own, on=UNIT, how="anti").with_columns(only=pl.lit(True))
        intact = whole.select(UNIT).unique().with_columns(intact=pl.lit(True))
        return (
            held.join(intact, on=UNIT, how="left", maintain_order="left")
            .join(only, on=UNIT, how="left", maintain_order="left")
            .select(
                *UNIT,
                pl.col("held").alias(name),
                pl.col("whole").alias(f"{name}_alone"),
                pl.col("intact").fill_null(False).alias(f"{name}_intact"),
                (pl.col("held") & pl.col("only").fill_null(False)).alias(f"{name}_rescued"),
            )
        )

    @cached_property
    def admitted(self) -> pl.DataFrame:
        """Pieces that the applied predicate admits."""
        if not {"applied_filters", "scopes"} <= self._frames.keys():
            return self._pieces
        return filtering.trace(self._units, {"evidence_pieces": self._pieces}, self._frames, self._config)

    @cached_property
    def encoded(self) -> pl.DataFrame:
        """Admitted pieces as far as the encoder saw them."""
        if not {"embeddings", "chunks"} <= self._frames.keys():
            return self.admitted
        before = {"evidence_pieces": self.admitted, "chunks": self._frames["chunks"]}
        return embedding.trace(self._units, before, self._frames, self._config)

    @cached_property
    def tests(self) -> pl.DataFrame:
        """Per unit: chunking, filtering, embedding, with `_alone`, `_intact` and `_rescued`; `chunk_cause`; the producer."""
        return (
            self._held(self._pieces, "chunking")
            .join(self._held(self.admitted, "filtering"), on=UNIT, maintain_order="left")
            .join(self._held(self.encoded, "embedding"), on=UNIT, maintain_order="left")
            .join(self._causes, on=UNIT, maintain_order="left")
            .join(self._filters, on="query_id", how="left", maintain_order="left")
        )

    @property
    def _causes(self) -> pl.DataFrame:
        """Why chunks, together, don't hold a unit: its characters are there but a token is `cut`, or they were `dropped`."""
        none = pl.lit([], dtype=pl.List(pl.Int64))
        units = self._units.with_columns(none.alias("critical_from"), none.alias("critical_to"))
        there = holds_together(self._pieces, units, self._config.hold)
        cause = pl.when("held").then(pl.lit("cut")).otherwise(pl.lit("dropped"))
        return there.select(*UNIT, cause.alias("chunk_cause"))

    @cached_property
    def _filters(self) -> pl.DataFrame:
        """By query: who made the applied predicate, the predicate, how it was applied, and the scope."""
        schema = dict.fromkeys(("query_id", "producer", "predicate", "mode", "scope_id"), pl.String)
        table = self._frames.get("applied_filters")
        if table is None:
            return pl.DataFrame(schema=schema)
        return table.select((pl.col(n) if n in table.columns else pl.lit(None, t)).alias(n) for n, t in schema.items())

    def rows(self, hidden: tuple[str, ...]) -> list[pl.DataFrame]:
        """The ledger's rows of chunking, filtering and embedding."""
        tests = (
            self.tests.join(self._places, on=UNIT, how="left", maintain_order="left")
            .join(self._cuts, on=UNIT, how="left", maintain_order="left")
            .join(self._encoded_share, on=UNIT, how="left", maintain_order="left")
        )
        details = {
            "chunking": ["chunk_ids", "starts", "whole_chunks", "cuts"],
            "filtering": ["producer", "predicate", "mode", "scope_id"],
            "embedding": ["encoded_tokens", "tokens", "chunks"],
        }
        return [
            tests.select(
                *UNIT,
                pl.lit(stage).alias("stage"),
                pl.col(stage).alias("held"),
                _state(stage),
                pl.col(f"{stage}_rescued").alias("rescued"),
                pl.struct(names).struct.json_encode().alias("detail"),
            )
            for stage, names in details.items()
            if stage not in hidden
        ]

    @property
    def _places(self) -> pl.DataFrame:
        """Chunks that have something of a unit, in the order of its text; where each one's part begins."""
        return (
            self._pieces.with_columns(pl.col("positions").list.min().alias("first"))
            .sort([*UNIT, "carrier", "first", "chunk_id"])
            .group_by(UNIT, maintain_order=True)
            .agg(
                pl.col("chunk_id").unique(maintain_order=True).alias("chunk_ids"),
                pl.col("first").drop_nulls().alias("starts"),
                pl.col("whole").sum().alias("whole_chunks"),
            )
        )

    @property
    def _cuts(self) -> pl.DataFrame:
        """Edges of chunks (offsets in the masked text) that go through the unit's first carrier with any piece."""
        chunks = self._frames.get("chunks")
        if chunks is None:
            return self._units.select(UNIT).with_columns(cuts=pl.lit([], dtype=pl.List(pl.Int64)))
        carrier = pl.col("carrier") == pl.col("carrier").min().over(UNIT)
        span = self._pieces.filter(carrier, pl.col("positions").list.len() > 0).with_columns(
            low=pl.col("positions").list.min().min().over(UNIT), high=pl.col("positions").list.max().max().over(UNIT)
        )
        edges = span.join(chunks.select("chunk_id", "start", "end"), on="chunk_id").select(
            *UNIT, "low", "high", edge=pl.concat_list("start", "end")
        )
        inside = edges.explode("edge").filter((pl.col("low") < pl.col("edge")) & (pl.col("edge") <= pl.col("high")))
        return inside.group_by(UNIT).agg(pl.col("edge").unique().sort().alias("cuts"))

    @property
    def _encoded_share(self) -> pl.DataFrame:
        """Word pieces seen, and all, of the chunks that hold some of the unit: together, and by chunk."""
        table = self._frames.get("embeddings")
        columns = {"chunk_id": pl.String, "encoded_tokens": pl.Int64, "tokens": pl.Int64}
        known = table.select(list(columns)) if table is not None else pl.DataFrame(schema=columns)
        found = self.admitted.select(*UNIT, "chunk_id").unique()
        # Windows of a chunk may share tokens: never more are seen than it has.
        seen = pl.min_horizontal(pl.col("encoded_tokens").sum(), pl.col("tokens").max())
        known = (
            known.join(found, on="chunk_id", how="semi")
            .group_by("chunk_id")
            .agg(seen.alias("encoded_tokens"), pl.col("tokens").max())
        )
        return (
            found.join(known, on="chunk_id")
            .sort([*UNIT, "chunk_id"])
            .group_by(UNIT, maintain_order=True)
            .agg(
                pl.col("encoded_tokens").sum(),
                pl.col("tokens").sum(),
                pl.struct("chunk_id", "encoded_tokens", "tokens").alias("chunks"),
            )
        )


def _state(stage: str) -> pl.Expr:
    held = pl.when(f"{stage}_intact").then(pl.lit("held")).otherwise(pl.lit("degraded"))
    return pl.when(stage).then(held).otherwise(pl.lit("lost")).alias("state")
