"""Which documents dedup should have kept: clusters by label, and no merge that takes evidence from somebody.

Not here: how pairs are found (`transform`), how well (`quality`), and what a wrong merge costs (attribution).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.predicates import visible
from rag_eval_pipeline.stages.dedup.shingles import jaccard, shingles_of
from rag_eval_pipeline.stages.dedup.tables import Dedup, DedupEdges
from rag_eval_pipeline.stages.dedup.transform import _preference, _survivors, clusters_of, edge
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.table import conform

Pair = tuple[str, str]
ROUNDS = 10
"""Passes until nothing changes: a split may make another document the survivor. Two are enough but in odd cases."""


class Unit(NamedTuple):
    """Documents whose clean text holds a unit, the labelled place first."""

    carriers: tuple[str, ...]


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: Any
) -> dict[str, pl.DataFrame]:
    """Clusters made anew from the labels, and merges undone that took evidence or a reader's only copy.

    1. Labelled duplicates are together; documents of two labelled groups are not, whatever led from one to the other. A
       document that no label speaks of stays where it is, with the group that it is most similar to. A labelled cluster's
       survivor is chosen by `keep`.
    2. A document that some principal may see, and whose survivor they may not, leaves the cluster with those like it.
    3. A document whose merge, by no label, took the last clean text that holds a unit, leaves it with its labelled group.

    An empty document is nobody's duplicate. Where dedup is off, it stays off.

    Args:
        before: `cleaned`, `documents`.
        after: `dedup`, `dedup_edges`.
        truth: duplicates and principals of gold; `anchors`, layer clean.
        config: `enabled`, `keep`, `shingle`.
    """
    if not config.enabled:
        return dict(after)
    frames = dict(after)
    house = _House(before, truth, config)
    for _ in range(ROUNDS):
        latest = _pass(house, frames)
        if latest is None:
            break
        frames = latest
    return frames


class _House:
    """What does not change from one pass to the next. Documents are row numbers of `cleaned`, by doc_id."""

    def __init__(self, before: Mapping[str, pl.DataFrame], truth: Truth, config: Any) -> None:
        self.cleaned = before["cleaned"].select("doc_id", "text").sort("doc_id")
        self.ids: list[str] = self.cleaned["doc_id"].to_list()
        self.row = {doc_id: row for row, doc_id in enumerate(self.ids)}
        self.config = config
        self.documents = before["documents"]
        self.full = self.cleaned.select(pl.col("text").str.strip_chars() != "")["text"].to_list()
        labels = [
            (self.row[a], self.row[b], duplicate)
            for a, b, duplicate in truth.gold.duplicates.sort("doc_a", "doc_b").iter_rows()
            if a in self.row and b in self.row and self.full[self.row[a]] and self.full[self.row[b]]
        ]
        self.same = [(min(a, b), max(a, b)) for a, b, duplicate in labels if duplicate and a != b]
        self.group: dict[int, int] = {row: row for a, b, _ in labels for row in (a, b)}
        for members in clusters_of(self.same):
            self.group.update(dict.fromkeys(members, members[0]))
        self.seen = self._seen(truth.gold.principals)
        self.units = self._units(truth.anchors)
        self._ranks: list[tuple[Any, ...]] | None = None

    @property
    def preference(self) -> list[tuple[Any, ...]]:
        """The stage's sort keys for survivors; made where a cluster changes."""
        if self._ranks is None:
            self._ranks = _preference(self.cleaned, self.documents, self.config.keep)
        return self._ranks

    def _seen(self, principals: pl.DataFrame) -> np.ndarray:
        """Which document (row) each distinct kind of principal (column) may see."""
        columns = set()
        for principal in principals["principal"].unique().sort():
            frame = self.documents.select("doc_id", visible(self.documents, principal, principals).alias("seen"))
            admitted = set(frame.filter("seen")["doc_id"])
            columns.add(tuple(doc_id in admitted for doc_id in self.ids))
        return np.array(sorted(columns), dtype=bool).T if columns else np.zeros((len(self.ids), 0), dtype=bool)

    def _units(self, anchors: pl.DataFrame) -> list[Unit]:
        held = anchors.filter((pl.col("layer") == "clean") & pl.col("held") & pl.col("present"))
        by_unit = (
            held.sort("query_id", "evidence_id", "carrier")
            .group_by("query_id", "evidence_id", maintain_order=True)
            .agg(pl.col("doc_id").unique(maintain_order=True))
        )
        return [Unit(tuple(doc for doc in docs if doc in self.row)) for docs in by_unit["doc_id"]]

    def survivor(self, members: Sequence[int]) -> int:
        """The stage's own choice among some documents."""
        if len(members) == 1:
            return members[0]
        return _survivors([members], self.preference)[members[0]]


def _pass(house: _House, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame] | None:
    """One pass; None where nothing changes."""
    old = {
        house.row[doc_id]: house.row[kept] for doc_id, kept in frames["dedup"].select("doc_id", "survivor").iter_rows()
    }
    edges = {
        (house.row[row["doc_a"]], house.row[row["doc_b"]]): row
        for row in frames["dedup_edges"].iter_rows(named=True)
        if row["doc_a"] in house.row and row["doc_b"] in house.row
    }
    new = dict(old)
    was = _members(old)
    for members in _clusters(house, old, edges):
        own = was.get(old[members[0]]) == members
        new.update(_chosen(house, members, old[members[0]] if own else None))
    for unit in house.units:
        _undo(house, unit, new)
    if new == old:
        return None
    return _tables(house, frames, old, new, edges)


def _clusters(
    house: _House, old: Mapping[int, int], edges: Mapping[tuple[int, int], Mapping[str, Any]]
) -> list[list[int]]:
    """Clusters of the labels, and of the stage's own pairs as far as they join no two labelled groups."""
    parent = {row: row for row in old}
    group: dict[int, int] = {}

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for row, labelled in house.group.items():
        parent[row] = labelled
        group[labelled] = labelled
    pairs = {pair for pair in edges if old[pair[0]] == old[pair[1]]}
    pairs |= {(min(row, kept), max(row, kept)) for row, kept in old.items() if row != kept}

    def alike(pair: tuple[int, int]) -> float:
        similarity = edges[pair]["similarity"] if pair in edges else None
        return -1.0 if similarity is None else similarity

    for a, b in sorted(pairs, key=lambda pair: (-alike(pair), pair)):
        low, high = sorted((root(a), root(b)))
        groups = {group[row] for row in (low, high) if row in group}
        if low == high or len(groups) > 1 or not (house.full[a] and house.full[b]):
            continue
        parent[high] = low
        if groups:
            group[low] = groups.pop()
    found: dict[int, list[int]] = {}
    for row in sorted(old):
        found.setdefault(root(row), []).append(row)
    return list(found.values())


def _chosen(house: _House, members: Sequence[int], was: int | None) -> dict[int, int]:
    """Survivor of each member: `was`, where the cluster is the stage's own and no label speaks of it; else by `keep`.

    Whom a principal may see, who may not see the survivor, is left out, and has a survivor among themselves.
    """
    labelled = len(members) > 1 and any(row in house.group for row in members)
    stays = was is not None and (house.config.imported or not labelled)
    kept = was if was is not None and stays else house.survivor(members)
    apart = [row for row in members if (house.seen[row] & ~house.seen[kept]).any()]
    survivors = {row: kept for row in members if row not in apart}
    return survivors | (_chosen(house, apart, None) if apart else {})


def _undo(house: _House, unit: Unit, survivors: dict[int, int]) -> None:
    """Give a unit back the document of its first carrier that a merge without a label took."""
    rows = [house.row[doc_id] for doc_id in unit.carriers]
    if any(survivors[row] == row for row in rows):
        return
    for row in rows:
        labelled = house.group.get(row)
        if labelled is not None and house.group.get(survivors[row]) == labelled:
            continue  # the label says that the survivor is the same
        cluster = [other for other, kept in survivors.items() if kept == survivors[row]]
        leaving = [
            other for other in cluster if other == row or (labelled is not None and house.group.get(other) == labelled)
        ]
        survivors.update(dict.fromkeys(leaving, house.survivor(sorted(leaving))))
        return


def _tables(
    house: _House,
    frames: Mapping[str, pl.DataFrame],
    old: Mapping[int, int],
    new: Mapping[int, int],
    edges: Mapping[tuple[int, int], Mapping[str, Any]],
) -> dict[str, pl.DataFrame]:
    """Both tables. Rows of clusters that did not change stay; pairs of two clusters are no pairs any more."""
    ids = house.ids
    smallest: dict[int, str] = {}
    for row, kept in new.items():
        smallest[kept] = min(ids[row], smallest.get(kept, ids[row]))
    fate = frames["dedup"].with_columns(
        survivor=pl.Series([ids[new[house.row[doc_id]]] for doc_id in frames["dedup"]["doc_id"]], dtype=pl.String),
        cluster_id=pl.Series(
            [smallest[new[house.row[doc_id]]] for doc_id in frames["dedup"]["doc_id"]], dtype=pl.String
        ),
    )
    fate = fate.with_columns((pl.col("survivor") == pl.col("doc_id")).alias("kept"))
    changed = _changed(old, new)
    pairs = {pair for pair, known in edges.items() if new[pair[0]] == new[pair[1]] or known["relation"] == "revision"}
    pairs |= {pair for pair in house.same if new[pair[0]] == new[pair[1]] and new[pair[0]] in changed}
    pairs |= {(min(row, kept), max(row, kept)) for row, kept in new.items() if row != kept and kept in changed}
    rows = [_edge(house, pair, edges.get(pair), new, new[pair[0]] in changed) for pair in sorted(pairs)]
    return {"dedup": conform(Dedup, fate), "dedup_edges": conform(DedupEdges, rows)}


def _changed(old: Mapping[int, int], new: Mapping[int, int]) -> set[int]:
    """Survivors of the clusters that are not as they were."""
    before, after = _members(old), _members(new)
    return {kept for kept, members in after.items() if before.get(kept) != members}


def _members(survivors: Mapping[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row, kept in sorted(survivors.items()):
        found.setdefault(kept, []).append(row)
    return found


def _edge(
    house: _House, pair: tuple[int, int], known: Mapping[str, Any] | None, survivors: Mapping[int, int], changed: bool
) -> dict[str, Any]:
    a, b = pair
    if known is not None and not changed and known["relation"] == "duplicate":
        return dict(known)
    if known is None:
        texts = (house.cleaned["text"][a], house.cleaned["text"][b])
        sizes = (house.config.shingle, house.config.dense_shingle)
        similarity: float | None = jaccard(*(shingles_of(text, *sizes) for text in texts))
    else:
        similarity = known["similarity"]
    return edge(house.ids, pair, similarity, "exact" if known is None else known["verified"], survivors)
