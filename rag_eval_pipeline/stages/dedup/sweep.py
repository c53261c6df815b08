"""What other numbers of hash functions and other thresholds would find, and what they would cost.

Here: a grid over the clean texts of a version, scored by the same labels as the stage. Not here: the choice in use (`transform`)
and its figures (`quality`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.measures.pairs import b_cubed, connected, pair_scores, ratio
from rag_eval_pipeline.stages.dedup.revisions import editions_of
from rag_eval_pipeline.stages.dedup.shingles import bands_of, gram_hashes, packed, signature_of
from rag_eval_pipeline.stages.dedup.transform import DedupConfig, clusters_of, near_pairs
from rag_eval_pipeline.warehouse.table import Table, conform, integer, number, string, table

GRID: tuple[tuple[int, float], ...] = tuple(
    (num_perm, threshold) for num_perm in (64, 128, 256) for threshold in (0.5, 0.6, 0.7, 0.8, 0.9)
)
"""(hash functions, threshold) that an evaluation tries."""
MOST = 2_000
"""Documents up to which an evaluation sweeps by itself; larger versions are swept on demand (`rag-eval sweep`)."""


@table(
    "dedup_sweep",
    "One row a number of hash functions and threshold: what dedup would find with them, and at what cost.",
)
class DedupSweep(Table):
    """What the sweep found."""

    num_perm = integer("Hash functions of the signature", key=True)
    threshold = number("Jaccard similarity from which two documents are near-duplicates")
    step = integer("The threshold in thousandths", key=True)
    in_use = string("yes where this is what the pipeline uses, else no")
    status = string("ok | off (dedup is off or imported) | too_large (sweep it by `rag-eval sweep KEY`)")
    bands = integer("Bands of the signature", null=True)
    band_width = integer("Hash values a band", null=True)
    pairs = integer("Pairs found", unit="pairs", null=True)
    clusters = integer("Clusters of at least two documents", unit="clusters", null=True)
    removed = integer("Documents that would be removed", unit="documents", null=True)
    largest_cluster = integer("Documents in the largest cluster", unit="documents", null=True)
    pair_precision = number("Labelled duplicates / pairs found that have a label", null=True)
    pair_recall = number("Labelled duplicates found / labelled duplicates", null=True)
    pair_f1 = number("Harmonic mean of the two", null=True)
    unjudged_pairs = integer("Pairs found that have no label", unit="pairs", null=True)
    false_merge_rate = number("Labelled non-duplicates in one cluster / labelled non-duplicates", null=True)
    missed_merge_rate = number("Labelled duplicates in different clusters / labelled duplicates", null=True)
    b_cubed_precision = number("Mean share of an item's cluster that is labelled with it", null=True)
    b_cubed_recall = number("Mean share of an item's labelled group that is in its cluster", null=True)
    b_cubed_f1 = number("Harmonic mean of the two", null=True)
    bytes = integer("Memory of signatures and pairs; verification adds at most 100 MB", unit="bytes", null=True)
    seconds = number("Time of signatures, bands and verification, one process", unit="s", null=True, volatile=True)


def sweep(
    cleaned: pl.DataFrame,
    duplicates: pl.DataFrame,
    config: DedupConfig,
    grid: Iterable[tuple[int, float]] = GRID,
    documents: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Every choice of the grid with the rest of the config as it is: the table `dedup_sweep`.

    Args:
        cleaned: doc_id, text.
        duplicates: labels (doc_a, doc_b, duplicate); pairs of other documents are left out. Without labels the scores are NULL.
        config: shingles, verification, seed, editions.
        grid: (num_perm, threshold).
        documents: for editions; None: none is declared.
    """
    chosen = sorted(set(grid))
    if not config.enabled or config.imported:
        return without(chosen, config, "off")
    cleaned = cleaned.select("doc_id", "text").sort("doc_id")
    if documents is None:
        documents = cleaned.select("doc_id", path="doc_id", supersedes=pl.lit(None, pl.String))
    editions = editions_of(cleaned["doc_id"], documents, config.revisions, cleaned["text"])
    ids = cleaned["doc_id"].to_list()
    row = {doc_id: number for number, doc_id in enumerate(ids)}
    labels = [
        (row[a], row[b], duplicate)
        for a, b, duplicate in duplicates.sort("doc_a", "doc_b").iter_rows()
        if a in row and b in row
    ]
    rows = []
    for num_perm in sorted({perm for perm, _ in chosen}):
        started = time.perf_counter()
        signatures = _signatures(cleaned["text"], config, num_perm)
        signing = time.perf_counter() - started
        for threshold in sorted(value for perm, value in chosen if perm == num_perm):
            started = time.perf_counter()
            tried = config.model_copy(update={"num_perm": num_perm, "threshold": threshold})
            pairs, similarities = near_pairs(cleaned["text"], signatures, tried)
            clusters = clusters_of(pairs, similarities, editions)
            seconds = signing + time.perf_counter() - started
            bands, width = bands_of(threshold, num_perm, config.verify != "none")
            rows.append(
                {
                    **_named(num_perm, threshold, config, "ok"),
                    "bands": bands,
                    "band_width": width,
                    **_scored(pairs, clusters, labels, len(ids)),
                    "bytes": 4 * num_perm * len(ids) + 16 * len(pairs),
                    "seconds": seconds,
                }
            )
    return conform(DedupSweep, rows)


def sweep_of(frames: Mapping[str, pl.DataFrame], gold: Gold, config: DedupConfig) -> pl.DataFrame:
    """The sweep of an evaluation: `GRID` and what is in use, up to `MOST` documents.

    Args:
        frames: `cleaned`, `documents`.
        gold: its `duplicates` are used.
        config: of the stage.
    """
    grid = sorted({*GRID, (config.num_perm, config.threshold)})
    if frames["cleaned"].height > MOST and config.enabled and not config.imported:
        return without(grid, config, "too_large")
    return sweep(frames["cleaned"], gold.duplicates, config, grid, frames["documents"])


def without(grid: Iterable[tuple[int, float]], config: DedupConfig, status: str) -> pl.DataFrame:
    """The grid with a reason instead of figures."""
    return conform(DedupSweep, [_named(num_perm, threshold, config, status) for num_perm, threshold in grid])


def _named(num_perm: int, threshold: float, config: DedupConfig, status: str) -> dict[str, object]:
    used = (num_perm, threshold) == (config.num_perm, config.threshold)
    return {
        "num_perm": num_perm,
        "threshold": threshold,
        "step": round(threshold * 1000),
        "in_use": "yes" if used else "no",
        "status": status,
    }


def _signatures(texts: pl.Series, config: DedupConfig, num_perm: int) -> pl.DataFrame:
    hashes = (gram_hashes(text, config.shingle, config.dense_shingle) for text in texts)
    made = [(len(h), packed(signature_of(h, num_perm, config.seed)) if len(h) else "") for h in hashes]
    return pl.DataFrame(made, schema={"shingles": pl.Int64, "signature": pl.String}, orient="row")


def _scored(
    pairs: Sequence[tuple[int, int]],
    clusters: Sequence[Sequence[int]],
    labels: Sequence[tuple[int, int, bool]],
    documents: int,
) -> dict[str, object]:
    """Sizes, and scores against the labels. A pair that editions keep apart is not found, as in the stage."""
    cluster = {row: members[0] for members in clusters for row in members}
    found = [(a, b) for a, b in pairs if cluster[a] == cluster[b]]
    sizes = [len(members) for members in clusters if len(members) > 1]
    scores = pair_scores(labels, found, dict(cluster.items()))
    made: dict[str, object] = {
        "pairs": len(found),
        "clusters": len(sizes),
        "removed": sum(sizes) - len(sizes),
        "largest_cluster": max(sizes, default=min(documents, 1)),
        "pair_precision": scores.precision,
        "pair_recall": scores.recall,
        "pair_f1": scores.f1,
        "unjudged_pairs": scores.unjudged,
        "false_merge_rate": ratio(scores.false_merges, scores.fp + scores.tn),
        "missed_merge_rate": ratio(scores.missed_merges, scores.tp + scores.fn),
    }
    if labels:
        groups = connected((a, b) for a, b, duplicate in labels if duplicate)
        judged = sorted({row for a, b, _ in labels for row in (a, b)})
        result = b_cubed({row: groups.get(row, row) for row in judged}, {row: cluster.get(row, row) for row in judged})
        made |= {"b_cubed_precision": result.precision, "b_cubed_recall": result.recall, "b_cubed_f1": result.f1}
    return made
