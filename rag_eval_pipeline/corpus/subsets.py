"""The smoke subset: few queries that stand for all, the same ones tomorrow, and mostly the same ones when the set has grown.

What is measured on it belongs to the rooms: they see a smaller gold and know of no subset.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.settings import Evaluate

BY_QUERY = ("queries", "evidence", "qrels", "chunk_qrels", "claims", "answers_gold")
"""Gold frames that have a query_id."""


def subset(frames: Mapping[str, pl.DataFrame], evaluate: Evaluate, files: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Gold frames with the chosen queries of the measured split, and all of other splits: lanes may be tuned on those.

    Args:
        frames: gold by name.
        evaluate: `subset`, `subset_size`, `subset_seed`, `split`, `slices`.
        files: doc_id, doc_class, path of documents, for the slice doc_class.
    """
    if evaluate.subset is None:
        return dict(frames)
    measured = frames["queries"].filter(pl.col("split") == evaluate.split)
    chosen = choose(facts_of(frames, measured, evaluate.slices, files), evaluate.subset_size, evaluate.subset_seed)
    left_out = sorted(set(measured["query_id"]) - set(chosen))
    return {**frames, **{name: without(frames[name], left_out) for name in BY_QUERY}}


def without(frame: pl.DataFrame, queries: Collection[str]) -> pl.DataFrame:
    """Rows of other queries than these; a row of no query stays."""
    return frame.filter(pl.col("query_id").is_in(sorted(queries)).fill_null(False).not_())


def choose(facts: Mapping[str, tuple[str, ...]], size: int, seed: int = 0) -> list[str]:
    """Query ids: one of each value of each slice where `size` allows, then in proportion to the combinations of values.

    Among those that have a value, or a combination, the ids with the lowest hashes are taken, so they stay when others come. Places
    are shared out by Webster's divisors (Sainte-Laguë): item r of a combination of n stands at (2r + 1) / n, and the lowest are chosen.

    Args:
        facts: query id → its value of each slice.
        size: how many to choose.
        seed: other seed, other queries.

    Returns:
        Sorted query ids.
    """
    draws = {query: _draw(seed, query) for query in facts}
    ordered = sorted(facts, key=draws.__getitem__)
    first: dict[tuple[int, str], str] = {}
    combined: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for query in ordered:
        combined[facts[query]].append(query)
        for place, value in enumerate(facts[query]):
            first.setdefault((place, value), query)
    covering = set(first.values())
    placed = [
        (query not in covering, (2 * r + 1) / len(queries), draws[query], query)
        for queries in combined.values()
        for r, query in enumerate(queries)
    ]
    return sorted(query for *_, query in sorted(placed)[:size])


def _draw(seed: int, query: str) -> str:
    return hashlib.sha256(f"smoke\0{seed}\0{query}".encode("utf-8", "surrogatepass")).hexdigest()


def facts_of(
    frames: Mapping[str, pl.DataFrame], queries: pl.DataFrame, slices: Sequence[str], files: pl.DataFrame
) -> dict[str, tuple[str, ...]]:
    """Query id → its value of each slice."""
    classes = _classes(frames, files) if "doc_class" in slices else {}
    named = [name for name in slices if name != "doc_class"]
    return {
        row["query_id"]: (*(_text(row[name]) for name in named), classes.get(row["query_id"], ""))
        for row in queries.select("query_id", *named).iter_rows(named=True)
    }


def _text(value: Any) -> str:
    return "+".join(sorted(value)) if isinstance(value, list) else str(value)


def _classes(frames: Mapping[str, pl.DataFrame], files: pl.DataFrame) -> dict[str, str]:
    """Query → class of its labelled documents, where they have one in common; a document without one: its extension."""
    of = {
        doc: name or path.rpartition(".")[2].lower()
        for doc, name, path in files.select("doc_id", "doc_class", "path").iter_rows()
    }
    found: dict[str, set[str]] = defaultdict(set)
    for query, doc in _links(frames):
        if doc in of:
            found[query].add(of[doc])
    return {query: next(iter(names)) for query, names in found.items() if len(names) == 1}


def _links(frames: Mapping[str, pl.DataFrame]) -> Iterable[tuple[str, str]]:
    yield from frames["evidence"].select("query_id", "doc_id").iter_rows()
    yield from frames["qrels"].filter(pl.col("grade") > 0).select("query_id", "doc_id").iter_rows()
