"""How good the assembled context is: the evidence in it, what it costs, how much it left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.relevance import unit_state
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.budget import Covered
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.stages.context.transform import ContextConfig, served
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

METRICS: tuple[Metric, ...] = (
    Metric("context_recall", "Share of the evidence that the ranges of the context hold", "higher"),
    Metric("context_tokens", "Tokens of the context", "lower", high=math.inf, unit="tokens"),
    Metric("compression", "Tokens of the first serve_k items / tokens of the context", "neither", high=math.inf),
)

Rows = list[dict[str, Any]]


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: ContextConfig, settings: Settings) -> pl.DataFrame:
    """One row a query of the split and measure, for the served retriever.

    NULL with `no_gold` or `ineligible` (recall), `empty_context` (compression); a query that was never asked is
    `missing_run` (0).
    """
    queries = gold.measured(settings.evaluate.split).select("query_id", "principal").sort("query_id")
    serve = served(frames["ranked_runs"], config)
    contexts = _by_query(frames["contexts"].sort("query_id", "position"))
    asked = set(frames["prepared_queries"]["query_id"])
    state = dict(unit_state(frames["evidence_units"], queries).iter_rows())
    units = _by_query(frames["evidence_units"].filter("eligible").join(queries, on="query_id", how="semi"))
    pieces = _by_query(frames["evidence_pieces"].join(queries, on="query_id", how="semi"))
    supplied = _supplied(frames, serve, config)
    rows: Rows = []
    for query_id in queries["query_id"]:
        common = {"retriever": serve, "status": "scored" if query_id in asked else "missing_run"}
        given = contexts.get(query_id, [])
        held = _held(units.get(query_id, []), pieces.get(query_id, []), given, settings.ledger.hold)
        rows.append(_recall(query_id, state[query_id], held, len(units.get(query_id, [])), common))
        tokens = sum(row["tokens"] for row in given)
        rows.append(measurement("context_tokens", "query", query_id, float(tokens), unit="token", **common))
        rows.append(_compression(query_id, supplied.get(query_id, 0), tokens, common))
    return measurements(rows)


def _by_query(frame: pl.DataFrame) -> dict[str, Rows]:
    result: dict[str, Rows] = {}
    for row in frame.iter_rows(named=True):
        result.setdefault(row["query_id"], []).append(row)
    return result


def _supplied(frames: Mapping[str, pl.DataFrame], serve: str, config: ContextConfig) -> dict[str, int]:
    """Tokens of each query's first serve_k items, each chunk counted once by the tokenizer."""
    first = frames["ranked_runs"].filter((pl.col("retriever") == serve) & (pl.col("rank") <= config.serve_k))
    used = frames["chunks"].join(first.select("chunk_id").unique(), on="chunk_id", how="semi")
    count = get_tokenizer(config.tokenizer).count
    sizes = [count(prefix) + count(text) for prefix, text in used.select("prefix", "text").iter_rows()]
    priced = used.select("chunk_id").with_columns(size=pl.Series(sizes, dtype=pl.Int64))
    return dict(first.join(priced, on="chunk_id").group_by("query_id").agg(pl.col("size").sum()).iter_rows())


def _recall(query_id: str, state: str, held: int, size: int, common: dict[str, Any]) -> dict[str, Any]:
    if state != "judged":
        return measurement("context_recall", "query", query_id, None, unit="evidence", **{**common, "status": state})
    return measurement(
        "context_recall",
        "query",
        query_id,
        held / size,
        unit="evidence",
        numerator=float(held),
        denominator=float(size),
        **common,
    )


def _compression(query_id: str, supplied: int, tokens: int, common: dict[str, Any]) -> dict[str, Any]:
    if not tokens:
        return measurement(
            "compression", "query", query_id, None, unit="token", **{**common, "status": "empty_context"}
        )
    return measurement(
        "compression", "query", query_id, supplied / tokens, unit="token",
        numerator=float(supplied), denominator=float(tokens), **common,
    )  # fmt: skip


def _held(units: Rows, pieces: Rows, given: Rows, hold: float) -> int:
    covered = Covered()
    for row in given:
        if row["start"] is not None:
            covered.add(row["doc_id"], row["start"], row["end"])
    # A chunk all of whose text came with others has no row, and does not count: the reader never sees it in one piece.
    chunks = {row["chunk_id"] for row in given}
    present = [piece for piece in pieces if piece["chunk_id"] in chunks]
    return sum(_holds(unit, present, covered, hold) for unit in units)


def _holds(unit: dict[str, Any], pieces: Rows, covered: Covered, hold: float) -> bool:
    mine = [piece for piece in pieces if piece["evidence_id"] == unit["evidence_id"]]
    if unit["kind"] == "document":
        return bool(mine)
    need = max(1, math.ceil(hold * unit["n_chars"] - 1e-9))
    for carrier in {piece["carrier"] for piece in mine}:
        chars: set[int] = set()
        tokens: set[int] = set()
        for piece in mine:
            if piece["carrier"] == carrier:
                inside = _inside(piece, covered)
                chars.update(inside)
                tokens.update(_intact(piece, unit, inside, covered))
        if len(chars) >= need and len(tokens) >= len(unit["critical_from"]):
            return True
    return False


def _inside(piece: dict[str, Any], covered: Covered) -> dict[int, int]:
    """Characters of the quote that stand in the context, with their places."""
    ranges = covered.ranges.get(piece["doc_id"], [])
    pairs = zip(piece["chars"], piece["positions"], strict=True)
    return {char: place for char, place in pairs if any(low <= place < high for low, high in ranges)}


def _intact(piece: dict[str, Any], unit: dict[str, Any], inside: Mapping[int, int], covered: Covered) -> Iterable[int]:
    """Critical tokens that stand whole in one stretch of the context."""
    for token in piece["tokens"]:
        wanted = range(unit["critical_from"][token], unit["critical_to"][token])
        places = [inside[char] for char in wanted if char in inside]
        if len(places) == len(wanted) and covered.holds(piece["doc_id"], min(places), max(places) + 1):
            yield token
