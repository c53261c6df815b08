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
        _contiguous(text, positions, places, low, high)
        and not _foreign(_left_of(text, int(positions[low])), _beside(padded, places[low] + shift, -1))
        and not _foreign(
            text[_cluster_end(text, int(positions[high - 1])) :][:1], _beside(padded, places[high - 1] + shift, 1)
        )
        for low, high in ranges
    ]


def _contiguous(text: str, positions: np.ndarray, places: list[int], low: int, high: int) -> bool:
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
        pl.max_horizontal(pl.lit(1, pl.Int64), (hold * pl.col("n_chars") - 1e-9).ceil().cast(pl.Int64)).alias("needed"),
        pl.col("critical_from").list.len().cast(pl.Int64).alias("n_tokens"),
    )


def holds_together(pieces: pl.DataFrame, units: pl.DataFrame, hold: float, by: Sequence[str] = ()) -> pl.DataFrame:
    """Per unit whether `pieces`, taken together, hold it: `held`, and `whole` where one chunk alone does.

    Pieces of one carrier add up, pieces of two carriers never do.

    Args:
        pieces: as for `hold_rank`; with the columns of `by`, each of whose values is a set of its own.
        units: as for `hold_rank`.
        hold: share of the quote's non-space characters.
        by: further columns of `pieces`, such as the retriever that found them.

    Returns:
        query_id, evidence_id, held, whole: a row for every unit. With `by`, a row for what is held alone.
    """
    group = [*UNIT, *by]
    parts = pieces.select(*group, "carrier", "chunk_id", "chars", "tokens", "whole").join(
        unit_needs(units, hold), on=UNIT
    )
    whole = parts.filter("whole").select(group).unique()
    partial = parts.filter(~pl.col("whole")).join(whole, on=group, how="anti").with_columns(rank=pl.lit(0, pl.Int64))
    together = _first_together(partial, [*group, "carrier"]).select(group).unique()
    held = pl.concat([whole.with_columns(whole=pl.lit(True)), together.with_columns(whole=pl.lit(False))])
    held = held.with_columns(held=pl.lit(True))
    if by:
        return held.select(*group, "held", "whole").sort(group)
    flags = units.select(UNIT).join(held, on=UNIT, how="left", maintain_order="left")
    return flags.select(*UNIT, pl.col("held").fill_null(False), pl.col("whole").fill_null(False))


def hold_rank(pieces: pl.DataFrame, run: pl.DataFrame, units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """The smallest rank at which a list's first items hold a unit: served at k ⇔ hold_rank ≤ k.

    Whole pieces are found by one join. Only where two or more partial pieces of one carrier stand before the first whole
    piece are characters counted, and then by columns: no list is walked.

    Args:
        pieces: query_id, evidence_id, carrier, chunk_id, doc_id, chars, tokens, whole.
        run: query_id, retriever, rank (from 1), chunk_id, doc_id; one list a query and retriever.
        units: query_id, evidence_id, kind, n_chars, critical_from.
        hold: share of the quote's non-space characters.

    Returns:
        query_id, evidence_id, retriever, hold_rank, item_rank; no row where the list never holds the unit. `item_rank`
        counts items. `hold_rank` counts distinct documents for document units, else items.
    """
    needs = unit_needs(units, hold)
    found = (
        pieces.select(*UNIT, "carrier", "chunk_id", "chars", "tokens", "whole")
        .join(run.select("query_id", "retriever", "chunk_id", "rank"), on=["query_id", "chunk_id"])
        .join(needs, on=UNIT)
    )
    pair = [*UNIT, "retriever"]
    whole = found.filter("whole").group_by(pair).agg(pl.col("rank").min().alias("first"))
    partial = (
        found.filter(~pl.col("whole"))
        .join(whole, on=pair, how="left")
        .filter(pl.col("first").is_null() | (pl.col("rank") < pl.col("first")))
        .drop("first")
    )
    ranks = pl.concat(
        [whole.cast({"first": pl.Int64}), _first_together(partial, [*pair, "carrier"]).select(*pair, "first")]
    )
    first = (
        ranks.group_by(pair).agg(pl.col("first").min().alias("item_rank")).join(units.select(*UNIT, "kind"), on=UNIT)
    )
    documents = _documents_before(first.filter(pl.col("kind") == "document"), run)
    return (
        pl.concat([first.filter(pl.col("kind") != "document").with_columns(hold_rank="item_rank"), documents])
        .select(list(HOLD_RANKS))
        .cast(HOLD_RANKS)  # type: ignore[arg-type]
        .sort([*UNIT, "retriever"])
    )


def _documents_before(ranks: pl.DataFrame, run: pl.DataFrame) -> pl.DataFrame:
    """`ranks` with `hold_rank`, counted in distinct documents. Only lists of these queries are counted."""
    if ranks.is_empty():
        return ranks.with_columns(hold_rank="item_rank")
    mine = run.join(ranks.select("query_id").unique(), on="query_id", how="semi")
    places = with_document_ranks(mine).select(
        "query_id", "retriever", pl.col("rank").cast(pl.Int64).alias("item_rank"), hold_rank="document_rank"
    )
    return ranks.join(places, on=["query_id", "retriever", "item_rank"]).select([*ranks.columns, "hold_rank"])


BATCH = 2_000_000
"""Characters of partial pieces that are counted at once: it bounds memory."""


def _first_together(parts: pl.DataFrame, group: list[str]) -> pl.DataFrame:
    """Where parts that none of them hold a unit hold it together: `group` and `first`, the rank at which they do.

    A group holds at the rank where its `needed`-th distinct character appears, or its last critical token, whichever is
    later.

    Args:
        parts: columns of `group`, rank, chars, tokens, needed, n_tokens.
        group: what adds up: one carrier of a unit in one list.
    """
    keys = parts.select(group).clear().with_columns(first=pl.lit(None, pl.Int64))
    several = parts.filter(pl.len().over(group) > 1)
    if several.is_empty():
        return keys
    several = several.with_columns(pl.struct(group).rank("dense").cast(pl.UInt32).alias("__group")).sort("__group")
    weight = several["chars"].list.len().cast(pl.Int64).cum_sum() // BATCH
    batch = several.with_columns(weight.alias("__batch")).with_columns(pl.col("__batch").min().over("__group"))
    found = [_counted(part) for part in batch.partition_by("__batch")]
    names = several.select("__group", *group).unique("__group")
    return pl.concat(found).join(names, on="__group").select(*group, pl.col("first").cast(pl.Int64)).sort(group)


def _counted(parts: pl.DataFrame) -> pl.DataFrame:
    def appearing(column: str) -> pl.DataFrame:
        """Every distinct character (or token) of a group, with the rank at which it first appears."""
        return (
            parts.select("__group", "rank", pl.col(column).list.eval(pl.element().cast(pl.Int32)))
            .explode(column)
            .drop_nulls(column)
            .group_by("__group", column)
            .agg(pl.col("rank").min())
        )

    needs = parts.group_by("__group").agg(pl.col("needed").first(), pl.col("n_tokens").first())
    chars = (
        appearing("chars")
        .join(needs.select("__group", "needed"), on="__group")
        .sort("__group", "rank")
        .filter(pl.int_range(1, pl.len() + 1).over("__group") == pl.col("needed"))
        .select("__group", chars_at="rank")
    )
    tokens = (
        appearing("tokens").group_by("__group").agg(pl.len().alias("there"), pl.col("rank").max().alias("tokens_at"))
    )
    return (
        needs.join(chars, on="__group")
        .join(tokens, on="__group", how="left")
        .filter(pl.col("there").fill_null(0) >= pl.col("n_tokens"))
        .select("__group", first=pl.max_horizontal("chars_at", "tokens_at"))
    )


def inside(pieces: pl.DataFrame, ranges: pl.DataFrame, on: list[str], units: pl.DataFrame, hold: float) -> pl.DataFrame:
    """The pieces of quotes as far as they stand inside given ranges.

    Characters in no range fall away. A critical token stays where one range has all of it.

    Args:
        pieces: as for `hold_rank`, with `positions`, and the columns of `on`.
        ranges: columns of `on`, low, high (one past the last): disjoint, or overlapping.
        on: which pieces a range speaks of.
        units: query_id, evidence_id, kind, n_chars, critical_from, critical_to.
        hold: share of the quote's non-space characters.

    Returns:
        The pieces of which something is left, in their order; those of document units are not looked at.
    """
    rows = pieces.with_row_index("__row").with_columns(
        pl.col("positions").list.min().alias("__first"), pl.col("positions").list.max().alias("__last")
    )
    near = rows.select("__row", "__first", "__last", *on).join(ranges, on=on)
    covers = (pl.col("low") <= pl.col("__first")) & (pl.col("__last") < pl.col("high"))
    full = near.filter(covers).select("__row").unique()
    touched = near.filter((pl.col("low") <= pl.col("__last")) & (pl.col("__first") < pl.col("high")))
    touched = touched.join(full, on="__row", how="anti").select("__row", "low", "high")
    cut = rows.join(touched.select("__row").unique(), on="__row", how="semi").join(unit_needs(units, hold), on=UNIT)
    left = _cut_to(cut, touched, units)
    kept = rows.join(full, on="__row", how="semi").select("__row", *pieces.columns)
    return pl.concat([kept, left.select(kept.columns)]).sort("__row").drop("__row")


def _cut_to(cut: pl.DataFrame, ranges: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """Pieces that stand partly in ranges (by `__row`), cut to them."""
    hits = (
        cut.select("__row", char="chars", position="positions")
        .explode("char", "position")
        .join(ranges, on="__row")
        .filter((pl.col("low") <= pl.col("position")) & (pl.col("position") < pl.col("high")))
    )
    tokens = (
        cut.select("__row", *UNIT, pl.col("tokens").alias("token"))
        .explode("token")
        .drop_nulls("token")
        .join(units.select(*UNIT, "critical_from", "critical_to"), on=UNIT)
        .with_columns(pl.col("critical_from", "critical_to").list.get(pl.col("token")))
        .join(hits.select("__row", "char", "low"), on="__row")
        .filter((pl.col("critical_from") <= pl.col("char")) & (pl.col("char") < pl.col("critical_to")))
        .group_by("__row", "token", "low", "critical_from", "critical_to")
        .agg(pl.col("char").n_unique().alias("there"))
        .filter(pl.col("there") == pl.col("critical_to") - pl.col("critical_from"))
        .group_by("__row")
        .agg(pl.col("token").unique().sort().alias("tokens"))
    )
    chars = (
        hits.unique(["__row", "char"])
        .sort("__row", "char")
        .group_by("__row", maintain_order=True)
        .agg(pl.col("char").alias("chars"), pl.col("position").alias("positions"))
    )
    left = cut.drop("chars", "positions", "tokens").join(chars, on="__row").join(tokens, on="__row", how="left")
    none = pl.lit([], dtype=pl.List(pl.Int64))
    enough = pl.col("chars").list.len() >= pl.col("needed")
    return left.with_columns(pl.col("tokens").fill_null(none)).with_columns(
        whole=enough & (pl.col("tokens").list.len() == pl.col("n_tokens"))
    )


def held_by_ranges(units: pl.DataFrame, pieces: pl.DataFrame, given: pl.DataFrame, hold: float) -> pl.DataFrame:
    """Per unit whether ranges of documents that its query was given hold it, taken together.

    A document unit is held where anything of its document was given.

    Args:
        units: query_id, evidence_id, kind, n_chars, critical_from, critical_to.
        pieces: as for `inside`.
        given: query_id, doc_id, start, end (NULL: without a place).
        hold: share of the quote's non-space characters.

    Returns:
        query_id, evidence_id, held: a row for every unit.
    """
    seen = given.select("query_id", "doc_id").unique()
    mine = pieces.join(seen, on=["query_id", "doc_id"], how="semi", maintain_order="left")
    whole = units.filter(pl.col("kind") == "document").select(UNIT)
    quotes = mine.join(whole, on=UNIT, how="anti")
    left = inside(quotes, joined_ranges(given), ["query_id", "doc_id"], units, hold)
    both = pl.concat([mine.join(whole, on=UNIT, how="semi"), left])
    return holds_together(both, units, hold).select(*UNIT, "held")


def joined_ranges(given: pl.DataFrame) -> pl.DataFrame:
    """Ranges of each document that a query was given, joined where they touch: query_id, doc_id, low, high.

    What an earlier piece gave is left out of a later one, so a chunk's characters may stand in another piece's range.

    Args:
        given: query_id, doc_id, start, end (NULL: without a place).
    """
    key = ["query_id", "doc_id"]
    ranges = given.select(*key, low="start", high="end").drop_nulls().sort([*key, "low", "high"])
    before = pl.col("high").cum_max().shift(1).over(key)
    begins = (before.is_null() | (pl.col("low") > before)).alias("begins")
    return (
        ranges.with_columns(begins)
        .with_columns(pl.col("begins").cum_sum().over(key).alias("run"))
        .group_by([*key, "run"], maintain_order=True)
        .agg(pl.col("low").min(), pl.col("high").max())
        .select(*key, "low", "high")
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


def served(ranks: pl.DataFrame, k: int) -> pl.DataFrame:
    """`ranks` with `served`: the first k items (documents, for document units) hold the unit."""
    return ranks.with_columns((pl.col("hold_rank").fill_null(k + 1) <= k).alias("served"))
