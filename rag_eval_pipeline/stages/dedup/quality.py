"""How well duplicates were found: labelled pairs, merges and clusters. Unlabelled pairs are counted, never judged."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.pairs import BCubed, b_cubed, connected, pair_scores
from rag_eval_pipeline.stages.dedup.revisions import declared_pairs
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

INF = float("inf")
METRICS: tuple[Metric, ...] = (
    Metric("pair_precision", "Labelled duplicates / pairs found that have a label", "higher"),
    Metric("pair_recall", "Labelled duplicates that were found / labelled duplicates", "higher"),
    Metric("pair_f1", "Harmonic mean of pair precision and recall", "higher"),
    Metric("unjudged_pairs", "Pairs found that have no label", "neither", 0, INF, "pairs"),
    Metric("false_merge_rate", "Labelled non-duplicates in one cluster / labelled non-duplicates", "lower"),
    Metric("missed_merge_rate", "Labelled duplicates in different clusters / labelled duplicates", "lower"),
    Metric("b_cubed_precision", "Mean share of an item's cluster that is labelled with it", "higher"),
    Metric("b_cubed_recall", "Mean share of an item's labelled group that is in its cluster", "higher"),
    Metric("b_cubed_f1", "Harmonic mean of B³ precision and recall", "higher"),
    Metric(
        "revision_pairs", "Pairs found alike and kept apart as editions of one document", "neither", 0, INF, "pairs"
    ),
    Metric("revision_merge_rate", "Documents joined by `supersedes` in one cluster / such pairs", "lower"),
    Metric("largest_cluster", "Documents in the largest cluster", "neither", 0, INF, "documents"),
    Metric("removed_share", "The document was removed as a near-duplicate", "neither"),
)
CORPUS = ("pair_precision", "pair_recall", "pair_f1", "b_cubed_precision", "b_cubed_recall", "b_cubed_f1")


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Judge pairs found and clusters by the labelled pairs whose documents are both in this version."""
    dedup = frames["dedup"].sort("doc_id")
    cluster = dict(dedup.select("doc_id", "cluster_id").iter_rows())
    labels = [
        (a, b, duplicate)
        for a, b, duplicate in gold.duplicates.sort("doc_a", "doc_b").iter_rows()
        if a in cluster and b in cluster
    ]
    found = _found(frames["dedup_edges"], config)
    rows = [_merge_row(a, b, duplicate, cluster[a] == cluster[b]) for a, b, duplicate in labels]
    rows += _corpus_rows(labels, found, cluster)
    rows += _revision_rows(frames, cluster)
    sizes = dedup.group_by("cluster_id").len()["len"]
    rows.append(measurement("largest_cluster", "corpus", "all", float(sizes.max() or 0), unit="document"))  # type: ignore[arg-type]
    rows += [
        measurement("removed_share", "document", doc_id, float(not kept), unit="document")
        for doc_id, kept in dedup.select("doc_id", "kept").iter_rows()
    ]
    return measurements(rows)


def _found(edges: pl.DataFrame, config: Any) -> list[tuple[str, str]]:
    """Pairs that the stage called near-duplicates; not the edges that only say whom a chain brought to a survivor."""
    near = (
        pl.col("similarity").is_null() | (pl.col("verified") == "import") | (pl.col("similarity") >= config.threshold)
    )
    return list(edges.filter(near, relation="duplicate").select("doc_a", "doc_b").iter_rows())


def _revision_rows(frames: Mapping[str, pl.DataFrame], cluster: Mapping[Hashable, str]) -> list[dict[str, Any]]:
    """Editions of one document: how many pairs were found alike and left, and whether declared ones were merged anyhow."""
    apart = frames["dedup_edges"].filter(relation="revision").height
    rows = [measurement("revision_pairs", "corpus", "all", float(apart), unit="pair")]
    pairs = [(a, b) for a, b in declared_pairs(frames["documents"]) if a in cluster and b in cluster]
    if not pairs:
        rows.append(measurement("revision_merge_rate", "corpus", "all", None, unit="pair", status="no_revisions"))
    return rows + [
        measurement("revision_merge_rate", "pair", f"{a} | {b}", float(cluster[a] == cluster[b]), unit="pair")
        for a, b in pairs
    ]


def _merge_row(a: str, b: str, duplicate: bool, together: bool) -> dict[str, Any]:
    name, wrong = ("missed_merge_rate", not together) if duplicate else ("false_merge_rate", together)
    return measurement(name, "pair", f"{a} | {b}", float(wrong), unit="pair")


def _corpus_rows(
    labels: list[tuple[str, str, bool]], found: list[tuple[str, str]], cluster: Mapping[Hashable, str]
) -> list[dict[str, Any]]:
    if not labels:
        rows = [measurement(name, "corpus", "all", None, unit="pair", status="no_gold") for name in CORPUS]
        rows.append(measurement("unjudged_pairs", "corpus", "all", float(len(found)), unit="pair"))
        return rows + _absent(labels)
    scores = pair_scores(labels, found, {**cluster})
    parts = {
        "pair_precision": (scores.tp, scores.tp + scores.fp, "no_prediction"),
        "pair_recall": (scores.tp, scores.tp + scores.fn, "no_gold"),
        "pair_f1": (2 * scores.tp, 2 * scores.tp + scores.fp + scores.fn, "no_gold"),
    }
    rows = [
        measurement(name, "corpus", "all", top / bottom, unit="pair", numerator=top, denominator=bottom)
        if bottom
        else measurement(name, "corpus", "all", None, unit="pair", status=reason)
        for name, (top, bottom, reason) in parts.items()
    ]
    rows.append(measurement("unjudged_pairs", "corpus", "all", float(scores.unjudged), unit="pair"))
    return rows + _absent(labels) + _b_cubed_rows(labels, cluster)


def _absent(labels: list[tuple[str, str, bool]]) -> list[dict[str, Any]]:
    """A merge rate without labelled pairs of its kind is missing, not 0."""
    kinds = {duplicate for _, _, duplicate in labels}
    names = {"missed_merge_rate": True, "false_merge_rate": False}
    return [
        measurement(name, "corpus", "all", None, unit="pair", status="no_gold")
        for name, kind in names.items()
        if kind not in kinds
    ]


def _b_cubed_rows(labels: list[tuple[str, str, bool]], cluster: Mapping[Hashable, str]) -> list[dict[str, Any]]:
    """B³ over the documents that some label speaks of; a document only in non-duplicate pairs is a group of its own."""
    groups = connected((a, b) for a, b, duplicate in labels if duplicate)
    judged = sorted({doc for a, b, _ in labels for doc in (a, b)})
    result: BCubed = b_cubed({doc: groups.get(doc, doc) for doc in judged}, {doc: cluster[doc] for doc in judged})
    values = {"b_cubed_precision": result.precision, "b_cubed_recall": result.recall, "b_cubed_f1": result.f1}
    return [
        measurement(name, "corpus", "all", value, unit="document", weight=float(result.items))
        for name, value in values.items()
    ]
