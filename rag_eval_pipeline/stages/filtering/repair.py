"""Which documents each query should have been allowed to find. What a predicate admits is `transform`'s and `corpus/predicates`'s."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.predicates import Matcher
from rag_eval_pipeline.measures.evidence import UNIT, holds_together
from rag_eval_pipeline.stages.filtering.evidence import trace
from rag_eval_pipeline.stages.filtering.tables import AppliedFilters, Scopes
from rag_eval_pipeline.stages.filtering.transform import (
    NO_PRINCIPALS,
    Asked,
    Callers,
    FilteringConfig,
    ScopeTable,
    applied,
    kept_documents,
)
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.table import conform

Frames = Mapping[str, pl.DataFrame]


def repair(before: Frames, after: Frames, truth: Truth, config: FilteringConfig) -> dict[str, pl.DataFrame]:
    """Each query's labelled predicate; entitlement alone where that, or without a label the applied one, excludes a unit.

    A query whose scope is right already keeps its row, whoever produced it. A predicate excludes a unit if the chunks hold
    it and those that it admits do not; where no chunks hold it, if it admits no kept document that could carry it.
    Entitlement is never widened: what the caller may not see stays out.

    Args:
        before: `documents`, `dedup`, `prepared_queries`, and `principals` where there are any.
        after: `applied_filters`, `scopes`.
        truth: `gold.queries.filter`, units with their pieces and anchors, and those of split dev.
        config: mode and boost.
    """
    maker = _Maker(before, config)
    labelled = {
        query_id: Asked(json.loads(text), "gold")
        for query_id, text in truth.gold.queries.select("query_id", "filter").drop_nulls("filter").iter_rows()
    }
    given, kept_scopes = after["applied_filters"], _admitted(after["scopes"])
    rows = {row["query_id"]: row for row in given.iter_rows(named=True)}
    right = {query_id: maker.row(query_id, labelled[query_id]) for query_id in rows if query_id in labelled}
    unlabelled = {query_id: row for query_id, row in rows.items() if query_id not in right}
    excluded = _excluding(truth, right, maker.scopes) | _excluding(truth, unlabelled, after["scopes"])
    right |= {query_id: maker.row(query_id, None) for query_id in rows if query_id in excluded}
    made_scopes = _admitted(maker.scopes)
    changed = {
        query_id: row
        for query_id, row in right.items()
        if _meaning(row, made_scopes) != _meaning(rows[query_id], kept_scopes)
    }
    if not changed:
        return dict(after)
    result = conform(AppliedFilters, [changed.get(query_id, row) for query_id, row in rows.items()])
    return {**after, "applied_filters": result, "scopes": _used(result, after["scopes"], maker.scopes)}


class _Maker:
    """Rows of `applied_filters`, made as the transform makes them."""

    def __init__(self, before: Frames, config: FilteringConfig) -> None:
        kept = kept_documents(before)
        self._table, self._matcher, self._config = ScopeTable(kept), Matcher(kept), config
        self._callers = Callers(kept, before.get("principals", NO_PRINCIPALS))
        self._principals = dict(before["prepared_queries"].select("query_id", "principal").iter_rows())

    def row(self, query_id: str, asked: Asked | None) -> dict[str, Any]:
        """A query's row under a predicate, or under entitlement alone."""
        seen = self._callers(self._principals[query_id])
        return applied(query_id, asked, seen, self._matcher, self._table, self._config)

    @property
    def scopes(self) -> pl.DataFrame:
        """The scopes of the rows made so far."""
        return conform(Scopes, self._table.rows())


def _excluding(truth: Truth, rows: Mapping[str, dict[str, Any]], scopes: pl.DataFrame) -> set[str]:
    """Queries whose scope excludes an eligible unit."""
    filters = conform(AppliedFilters, list(rows.values()))
    tables = {"applied_filters": filters, "scopes": scopes}
    units = pl.concat([truth.units, truth.dev_units]).filter("eligible").join(filters, on="query_id", how="semi")
    pieces = pl.concat([truth.pieces, truth.dev_pieces]).join(units, on=UNIT, how="semi")
    hold = truth.settings.ledger.hold
    held = holds_together(pieces, units, hold).filter("held").select(UNIT)
    admitted = trace(units, {"evidence_pieces": pieces}, tables, truth.settings.ledger)
    still = holds_together(admitted, units, hold).filter("held").select(UNIT)
    cut_off = held.join(still, on=UNIT, how="anti")
    carriers = (
        truth.anchors.filter("present", "kept")
        .join(units, on=UNIT, how="semi")
        .join(held, on=UNIT, how="anti")
        .select(*UNIT, "doc_id")
        .unique()
    )
    reached = trace(units, {"evidence_pieces": carriers}, tables, truth.settings.ledger)
    return {*cut_off["query_id"], *carriers.join(reached, on=UNIT, how="anti")["query_id"]}


def _admitted(scopes: pl.DataFrame) -> dict[str, tuple[str, ...] | None]:
    """Documents of each scope; None where it admits all."""
    return {
        row["scope_id"]: None if row["everything"] else tuple(sorted(row["doc_ids"]))
        for row in scopes.iter_rows(named=True)
    }


def _meaning(row: Mapping[str, Any], scopes: Mapping[str, tuple[str, ...] | None]) -> tuple[Any, ...]:
    """What a row does: documents admitted, documents preferred, and how much."""
    if row["preferred_scope_id"] is None:
        return scopes[row["scope_id"]], False, None, 0.0
    return scopes[row["scope_id"]], True, scopes[row["preferred_scope_id"]], row["boost"]


def _used(filters: pl.DataFrame, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The scopes that rows name."""
    named = pl.concat([filters["scope_id"], filters["preferred_scope_id"].drop_nulls()]).unique()
    both = pl.concat([new, old]).unique("scope_id", keep="first", maintain_order=True)
    return conform(Scopes, both.filter(pl.col("scope_id").is_in(named.implode())))
