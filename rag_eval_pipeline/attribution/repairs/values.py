"""What an outcome is worth: which units each retriever serves at k, and evidence recall by query.

Here: the value of a coalition, v(S), from lists and pieces as the retrieval room reads them; and the ceiling that any order of
the candidates allows. Not here: how an outcome came about (`runner`), how values are shared out (`shapley`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.repairs.runner import Asked, Coalition, Outcome
from rag_eval_pipeline.measures.evidence import UNIT
from rag_eval_pipeline.stages.retrieval.holding import first_held

MANY = 20_000
"""Choices of chunks for the units of a query above which its ceiling is a bound, not the best choice."""
FEW_PIECES = 8
"""Pieces of a split unit up to which all sets of them are tried."""


@dataclass(frozen=True)
class Asking:
    """Who asks for what: eligible units in order, and their queries.

    Attributes:
        units: evidence_units.
        retrievers: names, in order.
        hold: share of a quote's characters that holds it.
    """

    units: pl.DataFrame
    retrievers: tuple[str, ...]
    hold: float

    @cached_property
    def eligible(self) -> pl.DataFrame:
        """Eligible units by query: query_id, evidence_id."""
        return self.units.filter("eligible").select(UNIT).sort(UNIT)

    @cached_property
    def queries(self) -> list[str]:
        """Queries with an eligible unit, in order."""
        return self.eligible["query_id"].unique(maintain_order=True).to_list()

    @cached_property
    def query_of(self) -> np.ndarray:
        """Position in `queries` of each eligible unit."""
        place = {query: index for index, query in enumerate(self.queries)}
        return np.array([place[query] for query in self.eligible["query_id"]], dtype=np.int64)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Eligible units of each query."""
        return np.bincount(self.query_of, minlength=len(self.queries)).astype(np.float64)

    def places(self, outcome: Outcome) -> np.ndarray:
        """Retrievers × units: the place at which the final list first holds a unit; infinite where it never does."""
        lists = outcome.frames["ranked_runs"].select("query_id", "retriever", "rank", "chunk_id", "doc_id", "score")
        lists = lists.filter(pl.col("query_id").is_in(self.queries))
        found = first_held(lists, outcome.truth.pieces, self.units, self.hold).select("retriever", *UNIT, "place")
        places = np.full((len(self.retrievers), self.eligible.height), np.inf)
        for row, name in enumerate(self.retrievers):
            mine = found.filter(pl.col("retriever") == name)
            places[row] = (
                self.eligible.join(mine, on=UNIT, how="left", maintain_order="left")["place"]
                .cast(pl.Float64)
                .fill_null(np.inf)
                .to_numpy()
            )
        return places

    def recall(self, served: np.ndarray) -> np.ndarray:
        """Retrievers × queries: the share of each query's eligible units that is served.

        Args:
            served: retrievers × units, Booleans.
        """
        counts = np.zeros((served.shape[0], len(self.queries)))
        np.add.at(counts.T, self.query_of, served.T.astype(np.float64))
        return counts / self.sizes


@dataclass
class Values:
    """Outcomes by coalition and cut-off, as far as they were run."""

    asking: Asking
    served: dict[Asked, np.ndarray] = field(default_factory=dict)
    """Retrievers × eligible units, Booleans."""

    def note(self, outcome: Outcome) -> None:
        """Remember what the coalitions of an outcome serve."""
        places = self.asking.places(outcome)
        by_cut: dict[int, np.ndarray] = {}
        for coalition, k in outcome.asked:
            by_cut.setdefault(k, places <= k)
            self.served[coalition, k] = by_cut[k]

    def missing(self, coalitions: Iterable[Coalition], ks: Sequence[int]) -> list[Asked]:
        """What is not known yet."""
        return [(coalition, k) for coalition in coalitions for k in ks if (coalition, k) not in self.served]

    def by_query(self, coalition: Coalition, k: int) -> np.ndarray:
        """Retrievers × queries: evidence recall at k."""
        return self.asking.recall(self.served[coalition, k])

    def mean(self, coalition: Coalition, k: int) -> np.ndarray:
        """v(S): mean evidence recall at k, by retriever. Summed exactly, so that equal outcomes have equal values."""
        rows = self.by_query(coalition, k)
        return np.array([math.fsum(row) / len(row) if len(row) else 0.0 for row in rows])


# --- the ceiling of any order ----------------------------------------------------------------------------------------


def ceiling(outcome: Outcome, asking: Asking, ks: Sequence[int]) -> dict[int, np.ndarray]:
    """The best evidence recall that any order of the candidates could have: retrievers × queries, by k.

    The candidates are what the reranker was given, or the whole list where none follows. With more than `MANY` choices in a query
    it is a bound from above: no order can have more.

    Args:
        outcome: the pipeline as it ran.
        asking: units and retrievers.
        ks: cut-offs.
    """
    lists = outcome.frames["ranked_runs"]
    seen = pl.when(pl.col("input_size").is_null()).then(True).otherwise(pl.col("rank") <= pl.col("input_size"))
    candidates = lists.filter(seen).select("retriever", "query_id", "chunk_id", "doc_id")
    units = asking.units.filter("eligible").with_columns(
        needed=pl.max_horizontal((asking.hold * pl.col("n_chars") - 1e-9).ceil().cast(pl.Int64), 1),
        n_tokens=pl.col("critical_from").list.len().cast(pl.Int64),
    )
    parts = candidates.join(outcome.truth.pieces.drop("doc_id"), on=["query_id", "chunk_id"]).join(
        units.select(*UNIT, "kind", "needed", "n_tokens"), on=UNIT
    )
    place = {query: index for index, query in enumerate(asking.queries)}
    row = {name: index for index, name in enumerate(asking.retrievers)}
    best = {k: np.zeros((len(asking.retrievers), len(asking.queries))) for k in ks}
    for (retriever, query), mine in parts.sort("retriever", *UNIT, "carrier", "chunk_id").group_by(
        ["retriever", "query_id"], maintain_order=True
    ):
        if retriever in row and query in place:
            held = _most_held(mine.to_dicts(), ks)
            for k in ks:
                best[k][row[str(retriever)], place[str(query)]] = held[k]
    return {k: counts / asking.sizes for k, counts in best.items()}


def _most_held(parts: list[dict[str, Any]], ks: Sequence[int]) -> dict[int, int]:
    """How many units of one query the best k candidates hold."""
    by_unit: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        by_unit.setdefault(part["evidence_id"], []).append(part)
    if parts[0]["kind"] == "document":
        return {k: min(k, len(by_unit)) for k in ks}
    ways = {name: _ways(mine) for name, mine in by_unit.items() if _possible(mine)}
    choices = math.prod(1 + len(found) if found is not None else math.inf for found in ways.values())
    if choices <= MANY:
        return _chosen({name: found or [] for name, found in ways.items()}, ks)
    return _bounded([{part["chunk_id"] for part in by_unit[name]} for name in ways], ks)


def _carriers(parts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The pieces of one unit by carrier: pieces of two carriers never add up."""
    found: dict[int, list[dict[str, Any]]] = {}
    for part in parts:
        found.setdefault(part["carrier"], []).append(part)
    return list(found.values())


def _possible(parts: list[dict[str, Any]]) -> bool:
    return any(_hold(mine) for mine in _carriers(parts))


def _ways(parts: list[dict[str, Any]]) -> list[frozenset[str]] | None:
    """Sets of chunks that hold a unit and none of which can be left out; None where they are too many to try."""
    found: list[frozenset[str]] = []
    for mine in _carriers(parts):
        split = [part for part in mine if not part["whole"]]
        found += [frozenset([part["chunk_id"]]) for part in mine if part["whole"]]
        if len(split) > FEW_PIECES:
            return None
        for size in range(2, len(split) + 1):
            for some in combinations(split, size):
                chunks = frozenset(part["chunk_id"] for part in some)
                if not any(way <= chunks for way in found) and _hold(some):
                    found.append(chunks)
    return sorted(set(found), key=sorted)


def _hold(parts: Sequence[dict[str, Any]]) -> bool:
    chars = set().union(*(part["chars"] for part in parts))
    tokens = set().union(*(part["tokens"] for part in parts))
    return len(chars) >= parts[0]["needed"] and len(tokens) >= parts[0]["n_tokens"]


def _chosen(ways: dict[str, list[frozenset[str]]], ks: Sequence[int]) -> dict[int, int]:
    """The largest number of units whose chunks, one way each, are together at most k."""
    names = sorted(ways)
    best: dict[int, set[frozenset[str]]] = {0: {frozenset()}}
    for name in names:
        grown: dict[int, set[frozenset[str]]] = {count: set(sets) for count, sets in best.items()}
        for count, sets in best.items():
            grown.setdefault(count + 1, set()).update(chosen | way for chosen in sets for way in ways[name])
        best = {count: _least(sets, max(ks)) for count, sets in grown.items()}
    return {k: max(count for count, sets in best.items() if any(len(chosen) <= k for chosen in sets)) for k in ks}


def _least(sets: set[frozenset[str]], most: int) -> set[frozenset[str]]:
    """Those that no other is part of, as far as they are short enough."""
    kept: list[frozenset[str]] = []
    for one in sorted((s for s in sets if len(s) <= most), key=lambda s: (len(s), sorted(s))):
        if not any(other <= one for other in kept):
            kept.append(one)
    return set(kept)


def _bounded(places: Sequence[set[str]], ks: Sequence[int]) -> dict[int, int]:
    """No k chunks hold more units than those k that have some part of most.

    Args:
        places: for each unit that can be held, the chunks that have some part of it.
        ks: cut-offs.
    """
    counts: dict[str, int] = {}
    for chunks in places:
        for chunk in chunks:
            counts[chunk] = counts.get(chunk, 0) + 1
    ordered = sorted(counts.values(), reverse=True)
    return {k: min(len(places), sum(ordered[:k])) for k in ks}
