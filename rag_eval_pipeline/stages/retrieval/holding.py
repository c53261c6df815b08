"""At which rank a list's first items hold a piece of evidence, by this room's own walk.

The ledger has its own way to the same figure, on purpose: the books check compares the two. So nothing of attribution is
used here, nor `measures.evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.budget import Passage, fill
from rag_eval_pipeline.measures.lists import LIST, documents_seen, tie_groups

UNIT = ("query_id", "evidence_id")
PLACES = ("place", "best", "worst")


def with_places(lists: pl.DataFrame) -> pl.DataFrame:
    """Add to each item its place counted in chunks and in documents: as given, and first and last that ties allow."""
    seen = tie_groups(documents_seen(lists))
    group = [*LIST, "tie"]
    before = pl.col("doc_rank").min().over(group) - pl.col("first_of_document").first().over(group).cast(pl.Int64)
    placed = seen.with_columns(
        chunk_place=pl.col("rank"),
        chunk_best=pl.col("rank").min().over(group),
        chunk_worst=pl.col("rank").max().over(group),
        document_place=pl.col("doc_rank"),
        document_best=pl.min_horizontal("doc_rank", before + 1),
        document_worst=pl.col("doc_rank").max().over(group),
    )
    # A document stands where its first chunk does, and so do its later ones.
    by_document = pl.col([f"document_{place}" for place in PLACES])
    return placed.with_columns(by_document.min().over([*LIST, "doc_id"]))


def needs(units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """Eligible units and what holds them: characters and critical tokens."""
    characters = pl.col("n_chars").map_elements(lambda n: max(1, math.ceil(hold * n - 1e-9)), return_dtype=pl.Int64)
    return units.filter("eligible").select(
        *UNIT, "kind", need_chars=characters, need_tokens=pl.col("critical_from").list.len().cast(pl.Int64)
    )


def first_held(lists: pl.DataFrame, pieces: pl.DataFrame, units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """Where each list first holds each unit; no row where it never does.

    Args:
        lists: a run (query_id, retriever, rank, chunk_id, doc_id, score).
        pieces: evidence_pieces.
        units: evidence_units.
        hold: share of the quote's characters.

    Returns:
        retriever, query_id, evidence_id, place, best, worst. Places count documents for document units, else chunks. Best
        and worst bound what orders within ties allow, unit by unit.
    """
    found = (
        pieces.join(needs(units, hold), on=UNIT)
        .join(
            with_places(lists).select("retriever", "query_id", "chunk_id", r"^(chunk|document)_(place|best|worst)$"),
            on=["query_id", "chunk_id"],
        )
        .with_columns(_own(place) for place in PLACES)
        .with_columns(alone=_alone())
        .select("retriever", *UNIT, "carrier", "chars", "tokens", "need_chars", "need_tokens", "alone", *PLACES)
    )
    pair = ["retriever", *UNIT]
    alone = found.filter("alone").select(*pair, *PLACES)
    together = [_together(found, place) for place in PLACES]
    joint = together[0]
    for other in together[1:]:
        joint = joint.join(other, on=pair, how="full", coalesce=True)
    every = pl.concat([alone, joint.select(*pair, *PLACES)])
    return every.group_by(pair).agg(pl.col(place).min() for place in PLACES).sort(pair)


def _own(place: str) -> pl.Expr:
    by_document = pl.col("kind") == "document"
    return pl.when(by_document).then(pl.col(f"document_{place}")).otherwise(pl.col(f"chunk_{place}")).alias(place)


def _alone() -> pl.Expr:
    characters = pl.col("chars").list.n_unique().cast(pl.Int64) >= pl.col("need_chars")
    tokens = pl.col("tokens").list.n_unique().cast(pl.Int64) >= pl.col("need_tokens")
    return (pl.col("kind") == "document") | (characters & tokens)


def _together(found: pl.DataFrame, place: str) -> pl.DataFrame:
    """Places at which several pieces of one carrier hold a unit that none of them holds alone."""
    carrier = ["retriever", *UNIT, "carrier"]
    alone = found.filter("alone").group_by("retriever", *UNIT).agg(bar=pl.col(place).min())
    parts = (
        found.filter(~pl.col("alone"))
        .join(alone, on=["retriever", *UNIT], how="left")
        .filter(pl.col("bar").is_null() | (pl.col(place) < pl.col("bar")))
        .filter(pl.len().over(carrier) > 1)
        .sort(*carrier, place)
    )
    walks = parts.group_by(carrier, maintain_order=True).agg(
        pl.col("need_chars", "need_tokens").first(), pl.col(place, "chars", "tokens")
    )
    rows = []
    for row in walks.iter_rows(named=True):
        steps = zip(row[place], row["chars"], row["tokens"], strict=True)
        at = _walk(steps, row["need_chars"], row["need_tokens"])
        if at is not None:
            rows.append((row["retriever"], row["query_id"], row["evidence_id"], at))
    schema = {"retriever": pl.String, "query_id": pl.String, "evidence_id": pl.String, place: pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row").group_by("retriever", *UNIT).agg(pl.col(place).min())


def _walk(parts: Iterable[tuple[int, list[int], list[int]]], need_chars: int, need_tokens: int) -> int | None:
    chars: set[int] = set()
    tokens: set[int] = set()
    for place, more, whole in parts:
        chars.update(more)
        tokens.update(whole)
        if len(chars) >= need_chars and len(tokens) >= need_tokens:
            return place
    return None


# --- within a token budget -------------------------------------------------------------------------------------------


def held_within(
    lists: pl.DataFrame,
    pieces: pl.DataFrame,
    units: pl.DataFrame,
    chunks: pl.DataFrame,
    budgets: Iterable[int],
    spans: Callable[[str], list[tuple[int, int]]],
    hold: float,
) -> pl.DataFrame:
    """How many eligible units of a query each list holds within its first tokens.

    Returns:
        retriever, query_id, budget, held: a row for every list of a query that has eligible units.
    """
    wanted = units.filter("eligible").join(needs(units, hold), on=[*UNIT, "kind"])
    of_query = _by_query(wanted, pieces)
    passages = _Passages(chunks, lists, spans)
    rows = [
        (retriever, query, budget, sum(_holds(unit, taken) for unit in of_query[query]))
        for (query, retriever), ids in _ids(lists.filter(pl.col("query_id").is_in(list(of_query))))
        for budget in budgets
        for taken in [passages.within(ids, budget)]
    ]
    schema = {"retriever": pl.String, "query_id": pl.String, "budget": pl.Int64, "held": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _ids(lists: pl.DataFrame) -> Iterator[tuple[tuple[str, str], list[str]]]:
    grouped = lists.sort(*LIST, "rank").group_by(LIST, maintain_order=True).agg("chunk_id")
    for query, retriever, ids in grouped.iter_rows():
        yield (query, retriever), ids


def _by_query(units: pl.DataFrame, pieces: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Units of each query, each with its pieces by carrier."""
    result: dict[str, list[dict[str, Any]]] = {}
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for unit in units.iter_rows(named=True):
        unit["carriers"] = {}
        known[unit["query_id"], unit["evidence_id"]] = unit
        result.setdefault(unit["query_id"], []).append(unit)
    for piece in pieces.join(units.select(UNIT), on=UNIT, how="semi").iter_rows(named=True):
        carriers = known[piece["query_id"], piece["evidence_id"]]["carriers"]
        carriers.setdefault(piece["carrier"], []).append(piece)
    return result


class _Passages:
    """Chunks as passages, their tokens counted once."""

    def __init__(
        self, chunks: pl.DataFrame, lists: pl.DataFrame, spans: Callable[[str], list[tuple[int, int]]]
    ) -> None:
        used = chunks.join(lists.select("chunk_id").unique(), on="chunk_id", how="semi")
        columns = ("chunk_id", "doc_id", "start", "end", "text", "prefix")
        self._of = {row[0]: Passage(*row) for row in used.select(columns).iter_rows()}
        self._known: dict[str, list[tuple[int, int]]] = {}
        self._spans = spans

    def within(self, ids: list[str], budget: int) -> dict[str, int | None]:
        """chunk_id -> None where all of it is in, else one past its last code point that is."""
        # A stale item has no text, so it costs nothing and holds nothing.
        taken, _ = fill((self._of[chunk] for chunk in ids if chunk in self._of), budget, self._once)
        return {entry.passage.chunk_id: entry.end if entry.is_cut else None for entry in taken}

    def _once(self, text: str) -> list[tuple[int, int]]:
        if text not in self._known:
            self._known[text] = self._spans(text)
        return self._known[text]


def _holds(unit: dict[str, Any], taken: dict[str, int | None]) -> bool:
    if unit["kind"] == "document":
        return any(piece["chunk_id"] in taken for pieces in unit["carriers"].values() for piece in pieces)
    for pieces in unit["carriers"].values():
        parts = [
            (0, *_visible(piece, taken[piece["chunk_id"]], unit)) for piece in pieces if piece["chunk_id"] in taken
        ]
        if _walk(parts, unit["need_chars"], unit["need_tokens"]) is not None:
            return True
    return False


def _visible(piece: dict[str, Any], end: int | None, unit: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Characters and critical tokens of a piece that stand before the cut."""
    if end is None:
        return piece["chars"], piece["tokens"]
    chars = [char for char, position in zip(piece["chars"], piece["positions"], strict=True) if position < end]
    kept = set(chars)
    tokens = [
        token
        for token in piece["tokens"]
        if kept.issuperset(range(unit["critical_from"][token], unit["critical_to"][token]))
    ]
    return chars, tokens
