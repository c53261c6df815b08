"""What each stage cost in recall, by retriever, k and slice; and whether the books balance.

Here: sums over fates, and their comparison with the ranking table. Not here: where a unit was lost (`ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from rag_eval_pipeline.attribution.order import AFTER, STAGES
from rag_eval_pipeline.measures.evidence import UNIT
from rag_eval_pipeline.stages.retrieval.holding import first_held

TOLERANCE = 1e-12
GROUP = ["retriever", "k", "slice_name", "slice_value"]
QUERY_SLICES = ("intent", "language", "answerable", "tags")
SLICE = {"slice_name": pl.String, "slice_value": pl.String}


def unit_slices(
    units: pl.DataFrame, queries: pl.DataFrame, documents: pl.DataFrame | None, names: Sequence[str]
) -> pl.DataFrame:
    """The slices that each unit belongs to: `all`, those of its query, and its document's class.

    Args:
        units: evidence_units.
        queries: gold queries.
        documents: the documents table, for `doc_class`; a unit whose document is absent has none.
        names: slices of `evaluate`.

    Returns:
        query_id, evidence_id, slice_name, slice_value. A unit without a value is in no slice of that name.
    """
    base = units.select(UNIT)
    parts = [base.with_columns(slice_name=pl.lit("all"), slice_value=pl.lit("all"))]
    for name in names:
        if name in QUERY_SLICES:
            values = queries.select("query_id", pl.col(name).alias("slice_value"))
            if name == "tags":
                values = values.explode("slice_value").unique(maintain_order=True)
            found = base.join(values, on="query_id")
        elif documents is not None and name in documents.columns:
            values = documents.select("doc_id", pl.col(name).alias("slice_value"))
            found = units.select(*UNIT, "doc_id").join(values, on="doc_id")
        else:
            continue
        text = pl.col("slice_value").cast(pl.String)
        parts.append(
            found.with_columns(text.alias("slice_value"), pl.lit(name).alias("slice_name"))
            .drop_nulls("slice_value")
            .select(*UNIT, "slice_name", "slice_value")
        )
    return pl.concat(parts)


def waterfall(
    fate: pl.DataFrame,
    slices: pl.DataFrame,
    shown: Mapping[str, Sequence[str]],
    hidden: Sequence[str],
    stale: Mapping[str, int],
) -> pl.DataFrame:
    """Ceilings and losses.

    Args:
        fate: evidence_fate.
        slices: from `unit_slices`.
        shown: stages with a row, by retriever.
        hidden: stages that can't be seen.
        stale: stale items by retriever.

    Returns:
        Columns of `loss_waterfall`. A slice without an eligible unit has no row. `context` follows `rank` where a context
        was made of the list at that k; it is not in the sum of the books.
    """
    sliced = fate.join(slices, on=UNIT)
    outside = sliced.filter(~pl.col("eligible")).group_by(GROUP).agg(pl.len().cast(pl.Int64).alias("n_ineligible"))
    inside = sliced.filter("eligible").with_columns((1.0 / pl.len().over([*GROUP, "query_id"])).alias("share"))
    totals = (
        inside.group_by(GROUP)
        .agg(
            pl.len().cast(pl.Int64).alias("n_units"),
            pl.col("query_id").n_unique().cast(pl.Int64).alias("n_queries"),
            pl.col("share").filter("served").sum().alias("recall"),
            pl.col("impossible").sum().cast(pl.Int64),
            pl.col("context_held").is_not_null().any().alias("has_context"),
        )
        .with_columns(pl.col("recall") / pl.col("n_queries"))
        .join(outside, on=GROUP, how="left")
        .with_columns(pl.col("n_ineligible").fill_null(0))
    )
    losses = inside.filter(~pl.col("served")).select(*GROUP, pl.col("first_loss_stage").alias("stage"), "share")
    after = inside.filter(pl.col("served") & pl.col("context_held").eq(False)).select(
        *GROUP, pl.lit(AFTER).alias("stage"), "share"
    )
    lost = (
        pl.concat([losses, after])
        .group_by([*GROUP, "stage"])
        .agg(pl.len().cast(pl.Int64).alias("lost_units"), pl.col("share").sum().alias("lost_share"))
    )
    return _ceilings(_skeleton(totals, shown).join(lost, on=[*GROUP, "stage"], how="left"), hidden, stale)


def _skeleton(totals: pl.DataFrame, shown: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    rows = [(name, stage, STAGES.index(stage)) for name, stages in shown.items() for stage in stages]
    schema = {"retriever": pl.String, "stage": pl.String, "position": pl.Int64}
    stages = pl.DataFrame(rows, schema=schema, orient="row")
    after = totals.filter("has_context").with_columns(stage=pl.lit(AFTER), position=pl.lit(len(STAGES), pl.Int64))
    return pl.concat([totals.join(stages, on="retriever"), after])


def _ceilings(rows: pl.DataFrame, hidden: Sequence[str], stale: Mapping[str, int]) -> pl.DataFrame:
    counted = (
        rows.sort([*GROUP, "position"])
        .with_columns(
            pl.col("lost_units").fill_null(0),
            (pl.col("lost_share").fill_null(0.0) / pl.col("n_queries")).alias("lost_recall"),
        )
        .with_columns((1.0 - pl.col("lost_recall").cum_sum().over(GROUP)).alias("ceiling_after"))
        .with_columns((pl.col("ceiling_after") + pl.col("lost_recall")).alias("ceiling_before"))
    )
    in_books = pl.when(pl.col("stage") != AFTER).then(pl.col("lost_recall")).otherwise(0.0)
    return counted.with_columns(
        (1.0 - in_books.sum().over(GROUP) - pl.col("recall")).alias("residual"),
        pl.col("retriever").replace_strict(dict(stale), default=0, return_dtype=pl.Int64).alias("stale_items"),
        pl.lit(list(hidden), dtype=pl.List(pl.String)).alias("unseen_stages"),
    ).with_columns(((pl.col("residual").abs() <= TOLERANCE) & (pl.col("impossible") == 0)).alias("books_ok"))


def ranking_recall(
    frames: Mapping[str, pl.DataFrame],
    units: pl.DataFrame,
    pieces: pl.DataFrame,
    queries: pl.DataFrame,
    slices: pl.DataFrame,
    hold: float,
) -> pl.DataFrame:
    """Evidence recall by retriever, k and slice as the retrieval room measured it, apart from the ledger.

    Slices of queries are means over the rows of the ranking table (`retrieval_quality`). A slice of units (`doc_class`)
    changes a query's denominator, so it is counted anew from the retrieval room's own walk over `ranked_runs`.

    Args:
        frames: `retrieval_quality` and `ranked_runs`.
        units: evidence_units.
        pieces: evidence_pieces.
        queries: gold queries.
        slices: from `unit_slices`.
        hold: share of characters that holds a quote.

    Returns:
        retriever, k, slice_name, slice_value, value.
    """
    measured = (
        frames["retrieval_quality"]
        .filter(
            (pl.col("metric") == "recall")
            & (pl.col("unit") == "evidence")
            & (pl.col("item_type") == "query")
            & pl.col("value").is_not_null()
        )
        .select("retriever", "k", pl.col("item_id").alias("query_id"), "value")
    )
    names = ["all", *QUERY_SLICES]
    of_query = slices.filter(pl.col("slice_name").is_in(names)).select("query_id", *SLICE).unique()
    by_query = measured.join(of_query, on="query_id").group_by(GROUP).agg(pl.col("value").mean())
    places = first_held(frames["ranked_runs"], pieces, units, hold).select("retriever", *UNIT, "place")
    of_unit = slices.filter(~pl.col("slice_name").is_in(names))
    asked = units.filter("eligible").select(UNIT).join(of_unit, on=UNIT)
    by_unit = (
        measured.select("retriever", "k")
        .unique()
        .join(asked, how="cross")
        .join(places, on=["retriever", *UNIT], how="left")
        .group_by([*GROUP, "query_id"])
        .agg((pl.col("place") <= pl.col("k")).fill_null(False).mean().alias("value"))
        .group_by(GROUP)
        .agg(pl.col("value").mean())
    )
    return pl.concat([by_query.select(*GROUP, "value"), by_unit.select(*GROUP, "value")]).sort(GROUP)


@dataclass(frozen=True)
class Books:
    """The outcome of the books check.

    Attributes:
        ok: every group balances, none is missing, nothing is impossible.
        worst: the largest |1 − Σ lost − recall|.
        impossible: served units that failed a test up to filtering.
        faults: groups that don't balance or have no figure in the ranking table.
        unmeasured_k: cut-offs that the ranking table doesn't have at all; they are checked against the ledger only.
    """

    ok: bool
    worst: float
    impossible: int
    faults: pl.DataFrame
    unmeasured_k: tuple[int, ...]

    def describe(self) -> str:
        """The outcome in one sentence."""
        if self.ok:
            return f"The books balance: largest residual {self.worst:.1e}, no impossible unit."
        shown = ", ".join(
            f"{row['retriever']} k={row['k']} {row['slice_name']}={row['slice_value']}: {row['why']}"
            for row in self.faults.head(5).iter_rows(named=True)
        )
        return (
            f"The books do not balance in {self.faults.height} groups ({self.impossible} impossible units): {shown}. "
            "Ledger and ranking table disagree on what was served: materialize both from the same evaluation, then look at "
            "evidence_fate of these groups."
        )


def check_books(table: pl.DataFrame, ranking: pl.DataFrame) -> Books:
    """Compare the waterfall with recall that was computed apart from it.

    Args:
        table: loss_waterfall.
        ranking: retriever, k, slice_name, slice_value, value.
    """
    sums = (
        table.filter(pl.col("stage") != AFTER)
        .group_by(GROUP)
        .agg(pl.col("lost_recall").sum().alias("lost"), pl.col("impossible").first(), pl.col("recall").first())
    )
    measured = ranking.select("k").unique()["k"].to_list()
    both = sums.join(ranking.select(*GROUP, "value"), on=GROUP, how="full", coalesce=True)
    unmeasured = sorted(set(table["k"].unique().to_list()) - set(measured))
    figure = pl.when(pl.col("k").is_in(unmeasured)).then("recall").otherwise("value")
    judged = (
        both.with_columns((1.0 - pl.col("lost") - figure).abs().alias("residual"))
        .with_columns(
            pl.when(pl.col("lost").is_null())
            .then(pl.lit("no row in the waterfall"))
            .when(pl.col("residual").is_null())
            .then(pl.lit("no figure in the ranking table"))
            .when(pl.col("impossible") > 0)
            .then(pl.lit("impossible units"))
            .when(pl.col("residual") > TOLERANCE)
            .then(pl.format("residual {}", "residual"))
            .when((pl.col("recall") - figure).abs() > TOLERANCE)
            .then(pl.lit("the waterfall shows another recall than the ranking table"))
            .alias("why")
        )
        .sort(GROUP)
    )
    faults = judged.drop_nulls("why").select(*GROUP, "residual", "why")
    worst = judged["residual"].max()
    return Books(
        faults.is_empty(),
        float(worst) if isinstance(worst, float) else 0.0,
        int(sums["impossible"].sum()),
        faults,
        tuple(unmeasured),
    )
