"""What each stage cost in recall, by retriever, k and slice; and whether the books balance.

Here: sums over fates, and their comparison with the ranking table. Not here: where a unit was lost (`ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from rag_eval_pipeline.attribution.order import AFTER, STAGES
from rag_eval_pipeline.measures.evidence import UNIT
from rag_eval_pipeline.stages.retrieval.holding import first_held

TOLERANCE = 1e-12
GROUP = ["retriever", "k", "slice_name", "slice_value"]
QUERY_SLICES = ("intent", "language", "answerable", "tags")
SLICE = {"slice_name": pl.String, "slice_value": pl.String}
CROSS = "×"
"""Joins the names, and the values, of two crossed slices."""
HOP = "hop"
"""A slice of units, there wherever gold numbers the hops of its multi-hop questions."""


def unit_slices(
    units: pl.DataFrame, queries: pl.DataFrame, documents: pl.DataFrame | None, names: Sequence[str]
) -> pl.DataFrame:
    """The slices that each unit belongs to: `all`, those of its query, its document's class, their pairs, and its hop.

    Args:
        units: evidence_units.
        queries: gold queries.
        documents: the documents table, for `doc_class`; a unit whose document is absent has none.
        names: slices of `evaluate`. Two of them, in this order, make a crossed one: `intent×language`, `howto×es`.

    Returns:
        query_id, evidence_id, slice_name, slice_value. A unit without a value is in no slice of that name.
    """
    single = {
        name: found for name in dict.fromkeys(names) if (found := _slice(units, queries, documents, name)) is not None
    }
    parts = {"all": units.select(*UNIT, slice_value=pl.lit("all")), **single}
    for one, other in combinations(single, 2):
        pairs = single[one].join(single[other], on=UNIT, suffix="_other")
        value = pl.concat_str("slice_value", "slice_value_other", separator=CROSS)
        parts[f"{one}{CROSS}{other}"] = pairs.select(*UNIT, value.alias("slice_value"))
    if units["hop"].n_unique() > 1:
        parts[HOP] = units.select(*UNIT, pl.col("hop").cast(pl.String).alias("slice_value")).drop_nulls("slice_value")
    return pl.concat(
        part.select(*UNIT, pl.lit(name).alias("slice_name"), "slice_value") for name, part in parts.items()
    )


def _slice(
    units: pl.DataFrame, queries: pl.DataFrame, documents: pl.DataFrame | None, name: str
) -> pl.DataFrame | None:
    """query_id, evidence_id, slice_value of one slice; several rows a unit where it has several values (tags)."""
    if name in QUERY_SLICES:
        values = queries.select("query_id", pl.col(name).alias("slice_value"))
        if name == "tags":
            values = values.explode("slice_value").unique(maintain_order=True)
        found = units.select(UNIT).join(values, on="query_id")
    elif documents is not None and name in documents.columns:
        values = documents.select("doc_id", pl.col(name).alias("slice_value"))
        found = units.select(*UNIT, "doc_id").join(values, on="doc_id")
    else:
        return None
    return found.select(*UNIT, pl.col("slice_value").cast(pl.String)).drop_nulls("slice_value")


def is_of_queries(slice_name: str) -> bool:
    """Whether a slice keeps or leaves whole queries; any other splits the units of one query."""
    return slice_name == "all" or all(name in QUERY_SLICES for name in slice_name.split(CROSS))


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
        was made of the list at that k, and `answering` where that was answered; they are not in the sum of the books:
        recall = lost(context) + lost(answering) + used, which is the last ceiling.
    """
    cells = fate.select("retriever", "k").unique().sort("retriever", "k").with_row_index("cell")
    values = slices.select(list(SLICE)).unique().sort(list(SLICE)).with_row_index("slice")
    units = fate.select(*UNIT, "eligible").unique(UNIT).sort(UNIT).with_row_index("unit")
    members = slices.join(values, on=list(SLICE)).join(units, on=UNIT).select("unit", "slice", "query_id", "eligible")
    # A query's share of a unit is one over its units in the slice: sums run over these sizes, in whole numbers.
    inside = members.filter("eligible").with_columns(size=pl.len().over("slice", "query_id"))
    sizes = inside.group_by("slice").agg(
        pl.len().cast(pl.Int64).alias("n_units"), pl.col("query_id").n_unique().cast(pl.Int64).alias("n_queries")
    )
    outside = members.filter(~pl.col("eligible")).group_by("slice").agg(pl.len().cast(pl.Int64).alias("n_ineligible"))
    rows = (
        fate.filter("eligible")
        .join(cells, on=["retriever", "k"])
        .join(units.select("unit", *UNIT), on=UNIT)
        .select("cell", "unit", "served", "impossible", "context_held", "answer_used", _position())
        .join(inside.select("unit", "slice", "size"), on="unit")
    )
    served = _shares(rows.filter("served"), ["cell", "slice"]).rename({"share": "recall"}).drop("units")
    flags = rows.group_by("cell", "slice").agg(
        pl.col("impossible").sum().cast(pl.Int64),
        pl.col("context_held").is_not_null().any().alias("context"),
        pl.col("answer_used").is_not_null().any().alias("answering"),
    )
    totals = (
        flags.join(served, on=["cell", "slice"], how="left")
        .join(sizes, on="slice")
        .join(outside, on="slice", how="left")
        .with_columns(pl.col("recall").fill_null(0.0) / pl.col("n_queries"), pl.col("n_ineligible").fill_null(0))
        .join(cells, on="cell")
        .join(values, on="slice")
    )
    lost = (
        _shares(rows.drop_nulls("position"), ["cell", "slice", "position"])
        .rename({"units": "lost_units", "share": "lost_share"})
        .join(cells, on="cell")
        .join(values, on="slice")
    )
    return _ceilings(_skeleton(totals, shown).join(lost, on=[*GROUP, "position"], how="left"), hidden, stale)


def _position() -> pl.Expr:
    """Place in the waterfall of the stage that lost a unit; of context or answering where these lost it after k; else NULL."""
    places = {stage: place for place, stage in enumerate(STAGES)}
    lost = pl.col("first_loss_stage").replace_strict(places, default=None, return_dtype=pl.Int64)
    after = [pl.col("context_held").eq(False), pl.col("answer_used").eq(False)]
    found = pl.coalesce(pl.when(flag).then(pl.lit(len(STAGES) + place, pl.Int64)) for place, flag in enumerate(after))
    return pl.when(~pl.col("served")).then(lost).otherwise(found).alias("position")


def _shares(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """`units`, and `share`: the sum over queries of units / units of the query in the slice."""
    counted = rows.group_by([*by, "size"]).agg(pl.len().cast(pl.Int64).alias("units")).sort([*by, "size"])
    return counted.group_by(by).agg(pl.col("units").sum(), (pl.col("units") / pl.col("size")).sum().alias("share"))


def _skeleton(totals: pl.DataFrame, shown: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    rows = [(name, stage, STAGES.index(stage)) for name, stages in shown.items() for stage in stages]
    schema = {"retriever": pl.String, "stage": pl.String, "position": pl.Int64}
    stages = pl.DataFrame(rows, schema=schema, orient="row")
    after = [
        totals.filter(name).with_columns(stage=pl.lit(name), position=pl.lit(len(STAGES) + place, pl.Int64))
        for place, name in enumerate(AFTER)
    ]
    return pl.concat([totals.join(stages, on="retriever"), *after]).drop("cell", "slice", *AFTER)


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
    in_books = pl.when(~pl.col("stage").is_in(AFTER)).then(pl.col("lost_recall")).otherwise(0.0)
    return counted.with_columns(
        (1.0 - in_books.sum().over(GROUP) - pl.col("recall")).alias("residual"),
        pl.col("retriever").replace_strict(dict(stale), default=0, return_dtype=pl.Int64).alias("stale_items"),
        pl.lit(list(hidden), dtype=pl.List(pl.String)).alias("unseen_stages"),
    ).with_columns(((pl.col("residual").abs() <= TOLERANCE) & (pl.col("impossible") == 0)).alias("books_ok"))


def ranking_recall(
    frames: Mapping[str, pl.DataFrame],
    units: pl.DataFrame,
    pieces: pl.DataFrame,
    slices: pl.DataFrame,
    hold: float,
) -> pl.DataFrame:
    """Evidence recall by retriever, k and slice as the retrieval room measured it, apart from the ledger.

    Slices of queries are means over the rows of the ranking table (`retrieval_quality`). A slice of units (`doc_class`, `hop`)
    changes a query's denominator, so it is counted anew from the retrieval room's own walk over `ranked_runs`.

    Args:
        frames: `retrieval_quality` and `ranked_runs`.
        units: evidence_units.
        pieces: evidence_pieces.
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
    names = [name for name in slices["slice_name"].unique() if is_of_queries(name)]
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
    """

    ok: bool
    worst: float
    impossible: int
    faults: pl.DataFrame

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
        table.filter(~pl.col("stage").is_in(AFTER))
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
    )
