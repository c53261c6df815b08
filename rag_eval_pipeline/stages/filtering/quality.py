"""What the applied filters wrongly kept out, how near they are to the right ones, and whether anybody was shown what is not theirs.

The denominator is gold as labelled ∩ what the caller may see, fixed before any filter: recomputing gold after the filter would
call every exclusion right. What an exclusion cost in recall is the ledger's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.predicates import Matcher, visible
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.filters import false_exclusion
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.stages.filtering.transform import FilteringConfig
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

RATE, PRECISION, RECALL = "filter_false_exclusion_rate", "predicate_precision", "predicate_recall"
VIOLATIONS = "entitlement_violations"
LISTS = ("runs", "fused_runs", "ranked_runs", "contexts")
"""Tables whose items a caller is given."""
MEASURED = ((RATE, "query"), (RATE, "document"), (PRECISION, "document"), (RECALL, "document"))
"""Metric and unit of each query's rows about its filter."""

METRICS: tuple[Metric, ...] = (
    Metric(
        RATE,
        "Eligible gold kept out by the applied predicate: by query all of it (1 or 0), by document the share",
        "lower",
    ),
    Metric(
        PRECISION, "Of the documents that the applied predicate admits, the share that the correct one does", "higher"
    ),
    Metric(RECALL, "Of the documents that the correct predicate admits, the share that the applied one does", "higher"),
    Metric(VIOLATIONS, "Items of a list that its caller may not see", "lower", high=float("inf"), unit="items"),
)

Value = tuple[float | None, str, float | None, float | None]
"""Value, status, numerator, denominator."""


def measure(
    frames: Mapping[str, pl.DataFrame], gold: Gold, config: FilteringConfig, settings: Settings
) -> pl.DataFrame:
    """Rows of every query of the split, and of every such query × list for entitlement.

    NULL: `no_gold` (nothing labelled), `no_eligible_gold` (the caller may see none of it), `gold_absent` (it is not in this
    version), `not_applicable` (no extractor), `empty_admitted` and `empty_correct` (a ratio of nothing).
    """
    documents = frames["documents"].sort("doc_id")
    rows = [*_filter_rows(documents, frames["applied_filters"], gold, config, settings)]
    for name in LISTS:
        if name in frames:
            found = entitlement_violations(documents, gold.queries, gold.principals, frames[name])
            rows.extend(_violation_rows(name, found, gold.measured(settings.evaluate.split)["query_id"]))
    return measurements(rows)


def entitlement_violations(
    documents: pl.DataFrame, queries: pl.DataFrame, principals: pl.DataFrame, runs: pl.DataFrame
) -> pl.DataFrame:
    """Items outside their caller's set, by list.

    An item whose document is not in `documents` is outside the set of every named principal: nobody can say that they may
    see it. A query without principal sees all.

    Args:
        documents: the documents table.
        queries: query_id, principal.
        principals: principals.jsonl.
        runs: any table with query_id, retriever, doc_id.

    Returns:
        query_id, retriever, items, violations, doc_ids (the documents concerned, sorted): one row a list with items.

    Raises:
        ValueError: a list of an unknown query, or an unknown principal.
    """
    items = runs.select("query_id", "retriever", "doc_id").join(
        queries.select("query_id", "principal", known=pl.lit(True)), on="query_id", how="left"
    )
    if unknown := items.filter(pl.col("known").is_null())["query_id"].unique().sort().to_list():
        raise ValueError(
            f"lists of {len(unknown)} queries that queries.jsonl has not, first {unknown[:5]}: make the lists again"
        )
    hidden = _hidden(items.filter(pl.col("principal").is_not_null()), documents, principals)
    judged = items.join(hidden, on=["principal", "doc_id"], how="left").with_columns(pl.col("hidden").fill_null(False))
    return (
        judged.group_by("query_id", "retriever")
        .agg(
            items=pl.len().cast(pl.Int64),
            violations=pl.col("hidden").sum().cast(pl.Int64),
            doc_ids=pl.col("doc_id").filter("hidden").unique().sort(),
        )
        .sort("query_id", "retriever")
    )


def _hidden(items: pl.DataFrame, documents: pl.DataFrame, principals: pl.DataFrame) -> pl.DataFrame:
    """Pairs (principal, doc_id) among the items that the principal may not see."""
    schema = {"principal": pl.String, "doc_id": pl.String, "hidden": pl.Boolean}
    parts = [pl.DataFrame(schema=schema)]
    pairs = items.select("principal", "doc_id").unique().sort("principal", "doc_id")
    for part in pairs.partition_by("principal", maintain_order=True):
        principal = part["principal"][0]
        known = documents.join(part.select("doc_id"), on="doc_id", how="semi")
        seen = known.filter(visible(known, principal, principals)).select("doc_id")
        parts.append(part.join(seen, on="doc_id", how="anti").with_columns(hidden=pl.lit(True)))
    return pl.concat(parts)


def _violation_rows(table: str, found: pl.DataFrame, queries: pl.Series) -> Iterator[dict[str, Any]]:
    """One row a query and retriever of the table; a list without items violates nothing."""
    counts = {(query, lane): (value, items) for query, lane, items, value, _ in found.iter_rows()}
    lanes = found["retriever"].unique().sort().to_list() or [""]
    for lane in lanes:
        for query_id in queries.sort():
            value, items = counts.get((query_id, lane), (0, 0))
            yield measurement(
                VIOLATIONS, "query", query_id, float(value), retriever=lane, unit="item", params={"table": table},
                numerator=float(value), denominator=float(items),
            )  # fmt: skip


def _filter_rows(
    documents: pl.DataFrame, applied: pl.DataFrame, gold: Gold, config: FilteringConfig, settings: Settings
) -> Iterator[dict[str, Any]]:
    sets = _Sets(documents, gold)
    labelled = gold_documents(gold, settings.evaluate.rel_level)
    filters = {row["query_id"]: row for row in applied.iter_rows(named=True)}
    wanted = gold.measured(settings.evaluate.split).select("query_id", "principal", "filter").sort("query_id")
    for query_id, principal, correct in wanted.iter_rows():
        row = filters.get(query_id)
        if row is None:
            values: list[Value] = [(None, "missing_filter", None, None)] * len(MEASURED)
        else:
            exclusion = _exclusion(query_id, labelled.get(query_id, set()), sets, principal, row)
            values = [*exclusion, *_agreement(sets, principal, row, correct, config)]
        for (metric, unit), (value, status, numerator, denominator) in zip(MEASURED, values, strict=True):
            # Micro means of the rate by document count documents, not queries.
            weight = denominator if unit == "document" and metric == RATE and denominator else 1.0
            yield measurement(metric, "query", query_id, value, unit=unit, status=status, weight=weight,
                              numerator=numerator, denominator=denominator)  # fmt: skip


def gold_documents(gold: Gold, rel_level: int) -> dict[str, set[str]]:
    """Query -> documents that are labelled relevant, by evidence or by judgment."""
    found: dict[str, set[str]] = defaultdict(set)
    judged = gold.qrels.filter(pl.col("grade") >= rel_level)
    for frame in (gold.evidence, judged):
        for query_id, doc_id in frame.select("query_id", "doc_id").iter_rows():
            found[query_id].add(doc_id)
    return dict(found)


class _Sets:
    """Masks over the documents, each made once."""

    def __init__(self, documents: pl.DataFrame, gold: Gold) -> None:
        self.documents, self._principals = documents, gold.principals
        self.position = {doc_id: index for index, doc_id in enumerate(documents["doc_id"])}
        self._seen: dict[str | None, np.ndarray] = {}
        self._matched: dict[str | None, np.ndarray] = {None: np.ones(documents.height, dtype=bool)}
        self._matcher = Matcher(documents)

    def seen(self, principal: str | None) -> np.ndarray:
        """What a principal may see."""
        if principal not in self._seen:
            self._seen[principal] = visible(self.documents, principal, self._principals).to_numpy()
        return self._seen[principal]

    def matched(self, predicate: str | None) -> np.ndarray:
        """What a predicate, as JSON text, admits; none admits all."""
        if predicate not in self._matched:
            self._matched[predicate] = self._matcher(json.loads(predicate or "{}")).to_numpy()
        return self._matched[predicate]


def _exclusion(
    query_id: str, labelled: set[str], sets: _Sets, principal: str | None, row: Mapping[str, Any]
) -> tuple[Value, Value]:
    """By query and by document. A soft predicate excludes nothing."""
    present = [sets.position[doc_id] for doc_id in sorted(labelled) if doc_id in sets.position]
    if not present:
        absent: Value = (None, "gold_absent" if labelled else "no_gold", None, None)
        return absent, absent
    seen = sets.seen(principal)
    eligible = {str(position) for position in present if seen[position]}
    admits = sets.matched(row["predicate"] if row["mode"] == "hard" else None)
    admitted = {name for name in eligible if admits[int(name)]}
    try:
        found = false_exclusion({query_id: eligible}, {query_id: admitted})
    except Unmeasured as unmeasured:
        nothing: Value = (None, unmeasured.reason, None, None)
        return nothing, nothing
    count = float(len(eligible))
    return (found.rate, "scored", found.rate, 1.0), (found.document_rate, "scored", count - len(admitted), count)


def _agreement(
    sets: _Sets, principal: str | None, row: Mapping[str, Any], correct: str | None, config: FilteringConfig
) -> tuple[Value, Value]:
    """Precision and recall of the applied predicate against the correct one, over what the caller may see."""
    if config.extractor is None or correct is None:
        nothing: Value = (None, "not_applicable" if config.extractor is None else "no_gold", None, None)
        return nothing, nothing
    seen = sets.seen(principal)
    applied, right = seen & sets.matched(row["predicate"]), seen & sets.matched(correct)
    both = float((applied & right).sum())
    return _ratio(both, float(applied.sum()), "empty_admitted"), _ratio(both, float(right.sum()), "empty_correct")


def _ratio(numerator: float, denominator: float, empty: str) -> Value:
    if not denominator:
        return None, empty, None, None
    return numerator / denominator, "scored", numerator, denominator
