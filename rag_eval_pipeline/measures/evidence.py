"""When a text, a set of chunks or a list holds a piece of gold evidence, and at which rank.

Here: the definition of *holds* on arrays and frames (ATTRIBUTION, definitions 3 and 4). Not here: where the evidence
stands in a document (the rooms' `evidence` modules) and which stage is to blame (attribution).

A unit is (query_id, evidence_id). A *piece* is what one chunk has of one carrier of a unit: `chars`, indexes of the
quote's non-space characters; `tokens`, indexes of the critical tokens that stand whole in that chunk; `whole`, true
where the chunk alone holds the unit.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

UNIT = ["query_id", "evidence_id"]

HOLD_RANKS: dict[str, Any] = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    "retriever": pl.String,
    "hold_rank": pl.Int64,
    "item_rank": pl.Int64,
}
"""Columns of `hold_rank`: only pairs that hold have a row."""

SPREAD = 1.5
"""Characters that stand over more than this many times the quote's length are scattered."""


def needed_chars(n_chars: int, hold: float) -> int:
    """Non-space characters that an output must have to hold a quote of `n_chars` of them; at least one."""
    return max(1, math.ceil(hold * n_chars - 1e-9))


def holds(positions: np.ndarray, tokens: Iterable[bool], needed: int) -> bool:
    """Whether one text holds a quote: enough characters have a position, and every critical token is intact."""
    return int((positions >= 0).sum()) >= needed and all(tokens)


def visible_indexes(quote: str) -> list[int]:
    """Offsets of the non-space characters of a normalised quote: index i of `chars` is the i-th of these."""
    return [index for index, character in enumerate(quote) if not character.isspace()]


def tokens_intact(
    text: str,
    positions: np.ndarray,
    quote: str,
    ranges: Iterable[tuple[int, int]],
    before: str = "",
    after: str = "",
) -> list[bool]:
    """Which critical tokens of a quote survive in `text`.

    A token survives iff all its characters are there, contiguous (white space between two of them only where the quote
    has it), and no foreign letter or digit touches it: "18" is not in "1 8", "1.8" or "118". A neighbour is foreign
    unless the same character stands directly beside the token in the source.

    Args:
        text: the output.
        positions: for each non-space character of the quote its offset in `text`, −1 where it is gone.
        quote: the normalised quote.
        ranges: each token as a range of indexes of the quote's non-space characters.
        before: character that stands directly before the quote in its source; empty where none does or it is unknown.
        after: character that stands directly after it.
    """
    places = visible_indexes(quote)
    if len(places) != len(positions):
        raise ValueError(f"{len(positions)} positions for a quote of {len(places)} non-space characters")
    padded = before + quote + after
    shift = len(before)
    return [
        _contiguous(text, positions, quote, places, low, high)
        and not _foreign(_left_of(text, int(positions[low])), _beside(padded, places[low] + shift, -1))
        and not _foreign(
            text[_cluster_end(text, int(positions[high - 1])) :][:1], _beside(padded, places[high - 1] + shift, 1)
        )
        for low, high in ranges
    ]


def _contiguous(text: str, positions: np.ndarray, quote: str, places: list[int], low: int, high: int) -> bool:
    if high <= low or (positions[low:high] < 0).any():
        return False
    for index in range(low, high - 1):
        here, following = int(positions[index]), int(positions[index + 1])
        if here == following:  # one character of the text became two on normalisation
            continue
        if following < here:
            return False
        rest = unicodedata.normalize("NFC", text[here:following])[1:]
        spaced = places[index + 1] > places[index] + 1
        if rest and not (spaced and rest.isspace()):
            return False
    return True


def _cluster_end(text: str, start: int) -> int:
    """One past the character at `start` with the combining marks that belong to it."""
    end = start + 1
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return end


def _left_of(text: str, position: int) -> str:
    start = position - 1
    while start > 0 and unicodedata.combining(text[start]):
        start -= 1
    return unicodedata.normalize("NFC", text[start:position])[:1] if start >= 0 else ""


def _beside(quote: str, place: int, step: int) -> str:
    index = place + step
    return quote[index] if 0 <= index < len(quote) and not quote[index].isspace() else ""


def _foreign(neighbour: str, expected: str) -> bool:
    return neighbour.isalnum() and neighbour.casefold() != expected.casefold()


def scattered(text: str, positions: np.ndarray) -> bool:
    """Whether a quote's characters stand out of order, or over more than 1.5 × their number (spaces not counted)."""
    found = positions[positions >= 0]
    if len(found) < 2:
        return False
    if (np.diff(found) < 0).any():
        return True
    between = "".join(text[int(found[0]) : int(found[-1]) + 1].split())
    return len(unicodedata.normalize("NFC", between)) > SPREAD * len(positions)


def unit_needs(units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """Per unit what holding it takes: `needed` characters and `n_tokens` critical tokens, and its `kind`."""
    return units.select(
        *UNIT,
        "kind",
        pl.col("n_chars").map_elements(lambda n: needed_chars(n, hold), return_dtype=pl.Int64).alias("needed"),
        pl.col("critical_from").list.len().cast(pl.Int64).alias("n_tokens"),
    )


def holds_together(pieces: pl.DataFrame, units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """Per unit whether `pieces`, taken together, hold it: `held`, and `whole` where one chunk alone does.

    Pieces of one carrier add up, pieces of two carriers never do.
    """
    parts = pieces.join(unit_needs(units, hold), on=UNIT)
    whole = parts.filter("whole").select(UNIT).unique()
    partial = parts.join(whole, on=UNIT, how="anti").filter(pl.len().over([*UNIT, "carrier"]) > 1)
    walked = {
        (query, evidence)
        for (query, evidence, _), rows in _grouped(partial, [*UNIT, "carrier"])
        if _first_held([(0, row["chars"], row["tokens"]) for row in rows], rows[0]["needed"], rows[0]["n_tokens"])
        is not None
    }
    together = pl.DataFrame(sorted(walked), schema=dict.fromkeys(UNIT, pl.String), orient="row")
    return (
        units.select(UNIT)
        .join(whole.with_columns(whole=pl.lit(True)), on=UNIT, how="left", maintain_order="left")
        .join(together.with_columns(together=pl.lit(True)), on=UNIT, how="left", maintain_order="left")
        .with_columns(pl.col("whole").fill_null(False), pl.col("together").fill_null(False))
        .select(*UNIT, (pl.col("whole") | pl.col("together")).alias("held"), "whole")
    )


def hold_rank(pieces: pl.DataFrame, run: pl.DataFrame, units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """The smallest rank at which a list's first items hold a unit: served at k ⇔ hold_rank ≤ k.

    Whole pieces are found by one join. Only a unit and list where two or more partial pieces of one carrier stand
    before the first whole piece are walked item by item.

    Args:
        pieces: query_id, evidence_id, carrier, chunk_id, doc_id, chars, tokens, whole.
        run: query_id, retriever, rank (from 1), chunk_id, doc_id; one list a query and retriever.
        units: query_id, evidence_id, kind, n_chars, critical_from.
        hold: share of the quote's non-space characters.

    Returns:
        query_id, evidence_id, retriever, hold_rank, item_rank; no row where the list never holds the unit. `item_rank`
        counts items. `hold_rank` counts distinct documents for document units, else items.
    """
    items = with_document_ranks(run).select("query_id", "retriever", "chunk_id", "rank", "document_rank")
    found = pieces.join(items, on=["query_id", "chunk_id"]).join(unit_needs(units, hold), on=UNIT)
    pair = [*UNIT, "retriever"]
    whole = found.filter("whole").group_by(pair).agg(pl.col("rank").min().alias("first"))
    partial = (
        found.filter(~pl.col("whole"))
        .join(whole, on=pair, how="left")
        .filter(pl.col("first").is_null() | (pl.col("rank") < pl.col("first")))
        .filter(pl.len().over([*pair, "carrier"]) > 1)
        .sort("rank")
    )
    walked = [
        (query, evidence, retriever, rank)
        for (query, evidence, retriever, _), rows in _grouped(partial, [*pair, "carrier"])
        if (
            rank := _first_held(
                [(row["rank"], row["chars"], row["tokens"]) for row in rows], rows[0]["needed"], rows[0]["n_tokens"]
            )
        )
        is not None
    ]
    ranks = pl.concat(
        [whole, pl.DataFrame(walked, schema=dict.fromkeys(pair, pl.String) | {"first": pl.Int64}, orient="row")]
    )
    return _counted(ranks.group_by(pair).agg(pl.col("first").min().alias("item_rank")), items, units)


def _counted(ranks: pl.DataFrame, items: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    places = items.select("query_id", "retriever", pl.col("rank").alias("item_rank"), "document_rank")
    return (
        ranks.join(places, on=["query_id", "retriever", "item_rank"])
        .join(units.select(*UNIT, "kind"), on=UNIT)
        .with_columns(
            pl.when(pl.col("kind") == "document").then("document_rank").otherwise("item_rank").alias("hold_rank")
        )
        .select(list(HOLD_RANKS))
        .cast(HOLD_RANKS)  # type: ignore[arg-type]
        .sort([*UNIT, "retriever"])
    )


def with_document_ranks(run: pl.DataFrame) -> pl.DataFrame:
    """`run` with `document_rank`: the place of each item's document in the list of distinct documents."""
    group = ["query_id", "retriever"]
    return (
        run.sort([*group, "rank"])
        .with_columns(pl.col("rank").min().over([*group, "doc_id"]).alias("first_of_document"))
        .with_columns(pl.col("first_of_document").rank("dense").over(group).cast(pl.Int64).alias("document_rank"))
        .drop("first_of_document")
    )


def _grouped(frame: pl.DataFrame, keys: list[str]) -> list[tuple[tuple, list[dict]]]:
    groups: dict[tuple, list[dict]] = {}
    for row in frame.iter_rows(named=True):
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.items())


def _first_held(parts: Sequence[tuple[int, Sequence[int], Sequence[int]]], needed: int, n_tokens: int) -> int | None:
    """Rank at which parts (rank, chars, tokens), in order, together are enough; None if they never are."""
    chars: set[int] = set()
    tokens: set[int] = set()
    for rank, more, whole_tokens in parts:
        chars.update(more)
        tokens.update(whole_tokens)
        if len(chars) >= needed and len(tokens) >= n_tokens:
            return rank
    return None


def served(ranks: pl.DataFrame, k: int) -> pl.DataFrame:
    """`ranks` with `served`: the first k items (documents, for document units) hold the unit."""
    return ranks.with_columns((pl.col("hold_rank").fill_null(k + 1) <= k).alias("served"))


def served_at(pieces: pl.DataFrame, run: pl.DataFrame, units: pl.DataFrame, k: int, hold: float) -> pl.DataFrame:
    """What `hold_rank` says about one k, found by walking every list: slow, simple, and written apart from it.

    Returns:
        query_id, evidence_id, retriever, served: one row a unit and retriever of `run`.
    """
    retrievers = sorted(run["retriever"].unique().to_list())
    lists: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in run.sort("rank").iter_rows(named=True):
        lists.setdefault((row["query_id"], row["retriever"]), []).append((row["chunk_id"], row["doc_id"]))
    by_unit: dict[tuple[str, str], list[dict]] = {}
    for row in pieces.iter_rows(named=True):
        by_unit.setdefault((row["query_id"], row["evidence_id"]), []).append(row)
    rows = []
    for unit in units.iter_rows(named=True):
        query, evidence = unit["query_id"], unit["evidence_id"]
        for retriever in retrievers:
            chunks = _first_chunks(lists.get((query, retriever), []), k, unit["kind"] == "document")
            mine = [piece for piece in by_unit.get((query, evidence), []) if piece["chunk_id"] in chunks]
            rows.append((query, evidence, retriever, _any_carrier_holds(mine, unit, hold)))
    schema = {"query_id": pl.String, "evidence_id": pl.String, "retriever": pl.String, "served": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _first_chunks(items: list[tuple[str, str]], k: int, by_document: bool) -> set[str]:
    if not by_document:
        return {chunk for chunk, _ in items[:k]}
    documents: list[str] = []
    for _, document in items:
        if document not in documents:
            documents.append(document)
    return {chunk for chunk, document in items if document in documents[:k]}


def _any_carrier_holds(mine: list[dict], unit: dict, hold: float) -> bool:
    if unit["kind"] == "document":
        return bool(mine)
    for carrier in {piece["carrier"] for piece in mine}:
        chars: set[int] = set()
        tokens: set[int] = set()
        for piece in mine:
            if piece["carrier"] == carrier:
                chars |= set(piece["chars"])
                tokens |= set(piece["tokens"])
        if len(chars) >= max(hold * unit["n_chars"] - 1e-9, 1) and len(tokens) == len(unit["critical_from"]):
            return True
    return False
