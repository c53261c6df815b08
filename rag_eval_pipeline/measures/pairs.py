"""Scores of duplicate detection: pairs against labelled pairs, and clusters against clusters (B³).

Here: counts and ratios over ids. Not here: how pairs are found or which document survives (the dedup room).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class PairScores:
    """Predicted pairs against labels. Ratios are None where their denominator is 0.

    Attributes:
        tp: predicted and labelled duplicate.
        fp: predicted and labelled non-duplicate.
        fn: labelled duplicate, not predicted.
        tn: labelled non-duplicate, not predicted.
        unjudged: predicted without a label; in no ratio.
        false_merges: labelled non-duplicates in one cluster.
        missed_merges: labelled duplicates in different clusters.
    """

    tp: int
    fp: int
    fn: int
    tn: int
    unjudged: int
    false_merges: int
    missed_merges: int

    @property
    def precision(self) -> float | None:
        """Share of judged predicted pairs that are duplicates."""
        return ratio(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float | None:
        """Share of labelled duplicates that were predicted."""
        return ratio(self.tp, self.tp + self.fn)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of both, as 2tp / (2tp + fp + fn)."""
        return ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def false_merge_rate(self) -> float | None:
        """Labelled non-duplicates in one cluster / labelled non-duplicates."""
        return ratio(self.false_merges, self.fp + self.tn)

    @property
    def missed_merge_rate(self) -> float | None:
        """Labelled duplicates apart / labelled duplicates."""
        return ratio(self.missed_merges, self.tp + self.fn)


@dataclass(frozen=True)
class BCubed:
    """B³ of a clustering; None over no items."""

    precision: float | None
    recall: float | None
    f1: float | None
    items: int
    largest: int


def ratio(numerator: float, denominator: float) -> float | None:
    """Numerator / denominator, None over 0."""
    return numerator / denominator if denominator else None


def pair_scores(
    labelled: Iterable[tuple[Hashable, Hashable, bool]],
    predicted: Iterable[tuple[Hashable, Hashable]],
    clusters: Mapping[Hashable, Hashable] | None = None,
) -> PairScores:
    """Score predicted pairs against labelled ones; a pair has no direction.

    Args:
        labelled: (a, b, duplicate).
        predicted: (a, b).
        clusters: item -> cluster; an item that is absent stands alone. By default the chains of predicted pairs.

    Raises:
        ValueError: a pair of an item with itself, or two labels that contradict each other.
    """
    labels: dict[frozenset, bool] = {}
    for a, b, duplicate in labelled:
        pair = _pair(a, b)
        if labels.setdefault(pair, bool(duplicate)) != bool(duplicate):
            raise ValueError(f"pair {a!r}, {b!r} is labelled both duplicate and not; keep one label")
    found = {_pair(a, b) for a, b in predicted}
    cluster_of = connected(tuple(pair) for pair in found) if clusters is None else clusters
    together = {pair for pair in labels if _together(pair, cluster_of)}
    duplicates = {pair for pair, duplicate in labels.items() if duplicate}
    others = labels.keys() - duplicates
    return PairScores(
        tp=len(found & duplicates),
        fp=len(found & others),
        fn=len(duplicates - found),
        tn=len(others - found),
        unjudged=len(found - labels.keys()),
        false_merges=len(together & others),
        missed_merges=len(duplicates - together),
    )


def b_cubed(gold: Mapping[Hashable, Hashable], predicted: Mapping[Hashable, Hashable]) -> BCubed:
    """B³ (Bagga and Baldwin 1998): per item the share of its cluster that is right, averaged over items.

    Args:
        gold: item -> cluster.
        predicted: item -> cluster, for the same items.

    Raises:
        ValueError: the items differ.
    """
    if odd := gold.keys() ^ predicted.keys():
        first = min(odd, key=str)
        raise ValueError(f"{len(odd)} items are in one clustering only, {first!r} first; give both for the same items")
    if not gold:
        return BCubed(None, None, None, 0, 0)
    joint = Counter((gold[item], predicted[item]) for item in gold)
    gold_size, predicted_size = Counter(gold.values()), Counter(predicted.values())
    precision = sum(n * n / predicted_size[p] for (_, p), n in joint.items()) / len(gold)
    recall = sum(n * n / gold_size[g] for (g, _), n in joint.items()) / len(gold)
    f1 = 2 * precision * recall / (precision + recall)
    return BCubed(precision, recall, f1, len(gold), max(predicted_size.values()))


def connected(pairs: Iterable[tuple[Item, ...]]) -> dict[Item, Item]:
    """Item -> representative of its chain of pairs."""
    parent: dict[Item, Item] = {}

    def root(item: Item) -> Item:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for a, b in pairs:
        parent[root(a)] = root(b)
    return {item: root(item) for item in list(parent)}


def _pair(a: Hashable, b: Hashable) -> frozenset:
    if a == b:
        raise ValueError(f"pair of {a!r} with itself; a pair names two items")
    return frozenset((a, b))


def _together(pair: frozenset, cluster_of: Mapping[Hashable, Hashable]) -> bool:
    a, b = pair
    return a in cluster_of and b in cluster_of and cluster_of[a] == cluster_of[b]
