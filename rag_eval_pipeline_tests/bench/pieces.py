"""A large ledger's input, made at random: units, anchors and pieces over chunks, and lists of full depth. No corpus behind it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.order import RetrieverInfo
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline_tests.unit.attribution.world import LIST_COLUMNS, gold_frame

PER_DOCUMENT = 50
"""Chunks of a document."""
WIDTH = 500
"""Code points of a chunk."""
LANES = ("bm25", "dense")


class Large(NamedTuple):
    """What `build_ledger` is given."""

    frames: dict[str, pl.DataFrame]
    units: pl.DataFrame
    anchors: pl.DataFrame
    pieces: pl.DataFrame
    settings: Settings
    retrievers: dict[str, RetrieverInfo]
    queries: pl.DataFrame


def make(units: int = 10_000, chunks: int = 100_000, depth: int = 100, per_query: int = 2, seed: int = 0) -> Large:
    """Every fourth unit is split between two chunks, every tenth was changed on its way, and one in twenty has a copy."""
    rng = np.random.default_rng(seed)
    documents = chunks // PER_DOCUMENT
    n_queries = -(-units // per_query)
    settings = Settings.model_validate(
        {"evaluate": {"k": [1, 3, 5, 10], "serve_k": 10, "slices": ["intent", "language", "doc_class"]}}
    )
    queries = _queries(rng, n_queries)
    carriers = _carriers(rng, units, per_query, documents)
    retrievers = {
        "bm25": RetrieverInfo(depth=depth),
        "dense": RetrieverInfo(dense=True, depth=depth),
        "hybrid": RetrieverInfo(LANES, dense=True, depth=depth, reranked=True),
    }
    pieces = _pieces(carriers)
    frames = _texts(documents) | _lists(rng, n_queries, depth, documents, pieces)
    return Large(frames, _units(carriers), _anchors(carriers), pieces, settings, retrievers, queries)


def _names(prefix: str, numbers: np.ndarray) -> list[str]:
    return [f"{prefix}{number:06d}" for number in numbers]


def _queries(rng: np.random.Generator, n: int) -> pl.DataFrame:
    intents, languages = rng.choice(["lookup", "howto", "compare"], n), rng.choice(["en", "es"], n)
    rows = [
        {"query_id": name, "text": "?", "split": "test", "answerable": True, "intent": str(intent),
         "language": str(language), "tags": []}
        for name, intent, language in zip(_names("q", np.arange(n)), intents, languages, strict=True)
    ]  # fmt: skip
    return gold_frame("queries", rows)


def _carriers(rng: np.random.Generator, units: int, per_query: int, documents: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(units):
        n = int(rng.integers(40, 160))
        tokens = sorted(rng.choice(n - 3, int(rng.integers(0, 3)), replace=False).tolist())
        document, chunk = int(rng.integers(documents)), int(rng.integers(PER_DOCUMENT - 1))
        start = chunk * WIDTH + (WIDTH - n // 2 if number % 4 == 0 else 5)
        common = {"unit": number, "query": number // per_query, "n": n, "tokens": tokens}
        for carrier in range(2 if number % 20 == 0 else 1):
            place = {"document": (document + carrier) % documents, "start": start, "carrier": carrier}
            rows.append(common | place | {"changed": number % 10 == 1 or (number % 20 == 0 and carrier == 0)})
    return rows


def _key(row: dict[str, Any]) -> dict[str, str]:
    return {"query_id": f"q{row['query']:06d}", "evidence_id": f"e{row['unit']:06d}"}


def _units(carriers: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            _key(row)
            | {"doc_id": f"d{row['document']:06d}", "kind": "quote", "quote": "", "critical": ["0"] * len(row["tokens"]),
               "critical_kinds": ["number"] * len(row["tokens"]), "critical_from": row["tokens"],
               "critical_to": [t + 2 for t in row["tokens"]], "n_chars": row["n"], "grade": 1, "hop": row["unit"] % 2 + 1,
               "eligible": row["unit"] % 50 != 0, "present": True, "anchored": True, "split": "test", "similarity": 1.0}
            for row in carriers
            if row["carrier"] == 0
        ],
        schema_overrides={"critical": pl.List(pl.String), "critical_kinds": pl.List(pl.String),
                          "critical_from": pl.List(pl.Int64), "critical_to": pl.List(pl.Int64)},
    )  # fmt: skip


def _anchors(carriers: list[dict[str, Any]]) -> pl.DataFrame:
    rows = []
    for row in carriers:
        positions = np.arange(row["start"], row["start"] + row["n"])
        for layer in ("parsed", "clean", "masked"):
            gone = row["changed"] and layer != "parsed"
            left = np.where(np.arange(row["n"]) < row["n"] // 3, -1, positions) if gone else positions
            broken = [t for t, low in enumerate(row["tokens"]) if left[low] < 0]
            rows.append(
                _key(row)
                | {"carrier": row["carrier"], "layer": layer, "doc_id": f"d{row['document']:06d}",
                   "own": row["carrier"] == 0, "present": True, "kept": True, "survivor": f"d{row['document']:06d}",
                   "counts": True, "positions": left.tolist(), "token_ok": not broken, "broken": broken,
                   "broken_kinds": ["number"] * len(broken), "held": not gone, "similarity": 1.0, "cer": 0.0,
                   "status": "changed" if gone else "exact" if layer == "parsed" else "ok", "spread": False,
                   "low": row["start"], "high": row["start"] + row["n"]}
            )  # fmt: skip
    return pl.DataFrame(
        rows,
        schema_overrides={"broken": pl.List(pl.Int64), "broken_kinds": pl.List(pl.String), "positions": pl.List(pl.Int64)},
        infer_schema_length=None,
    )  # fmt: skip


def _pieces(carriers: list[dict[str, Any]]) -> pl.DataFrame:
    rows = []
    for row in carriers:
        positions = np.arange(row["start"], row["start"] + row["n"])
        kept = positions[row["n"] // 3 :] if row["changed"] else positions
        for chunk in sorted(set((kept // WIDTH).tolist())):
            inside = kept[kept // WIDTH == chunk]
            chars = (inside - row["start"]).tolist()
            there = set(chars)
            tokens = [t for t, low in enumerate(row["tokens"]) if {low, low + 1} <= there]
            whole = len(chars) >= 0.9 * row["n"] and len(tokens) == len(row["tokens"])
            document = f"d{row['document']:06d}"
            rows.append(
                _key(row)
                | {"carrier": row["carrier"], "chunk_id": f"{document}::{chunk:03d}", "doc_id": document, "chars": chars,
                   "positions": inside.tolist(), "tokens": tokens, "whole": whole}
            )  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"tokens": pl.List(pl.Int64)}, infer_schema_length=None)


def _texts(documents: int) -> dict[str, pl.DataFrame]:
    """Every text stage's table as far as the ledger reads it."""
    base = pl.DataFrame({"doc_id": _names("d", np.arange(documents))})
    numbers = pl.int_range(PER_DOCUMENT, dtype=pl.Int64)
    chunks = (
        base.with_columns(ordinal=pl.lit(list(range(PER_DOCUMENT))))
        .explode("ordinal")
        .with_columns(
            chunk_id=pl.col("doc_id") + "::" + pl.col("ordinal").cast(pl.String).str.zfill(3),
            start=pl.col("ordinal") * WIDTH,
            end=(pl.col("ordinal") + 1) * WIDTH,
            text=pl.lit("x"),
        )
    )
    del numbers
    classes = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("policy")).otherwise(pl.lit("sheet"))
    return {
        "documents": base.with_columns(doc_class=classes),
        "parsed": base,
        "blocks": chunks.select("doc_id", block="ordinal", page=pl.col("ordinal") + 1, start="start", end="end"),
        "cleaned": base.with_columns(cleaner=pl.lit("plain")),
        "dedup": base.with_columns(kept=True, survivor=pl.col("doc_id"), cluster_id=pl.col("doc_id")),
        "dedup_edges": pl.DataFrame(
            schema={"doc_a": pl.String, "doc_b": pl.String, "similarity": pl.Float64, "verified": pl.String}
        ),
        "masked": base,
        "pii_spans": base.with_columns(start=pl.lit(3), end=pl.lit(9), type=pl.lit("EMAIL_ADDRESS")),
        "chunks": chunks,
        "embeddings": chunks.select(
            "chunk_id", tokens=pl.lit(120), encoded_tokens=pl.lit(100), encoded_end=pl.lit(WIDTH - 40)
        ),
        "index_files": pl.DataFrame({"index_name": ["default"], "kind": ["hnsw"], "params": ["{}"]}),
    }


def _lists(
    rng: np.random.Generator, queries: int, depth: int, documents: int, pieces: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Lists of chunks drawn at random; what is relevant is put in at a rank of its own in two of three."""
    wanted = pieces.select("query_id", "chunk_id").unique(maintain_order=True).partition_by("query_id", as_dict=True)
    names = _names("q", np.arange(queries))
    every = np.array([f"d{d:06d}::{c:03d}" for d in range(documents) for c in range(PER_DOCUMENT)])

    def lane() -> list[list[str]]:
        found = []
        for name in names:
            drawn = every[rng.choice(len(every), depth, replace=False)].tolist()
            relevant = wanted[(name,)]["chunk_id"].to_list() if (name,) in wanted else []
            drawn = [chunk for chunk in drawn if chunk not in relevant]
            for chunk in relevant:
                if rng.random() < 0.7:
                    drawn.insert(int(rng.geometric(0.15)) - 1, chunk)
            found.append(drawn[:depth])
        return found

    bm25, dense = lane(), lane()
    exact = [row if rng.random() < 0.9 else sorted(row) for row in dense]
    hybrid = [list(dict.fromkeys(x for pair in zip(a, b, strict=False) for x in pair))[:depth]
              for a, b in zip(bm25, dense, strict=True)]  # fmt: skip
    exact_hybrid = [list(dict.fromkeys(x for pair in zip(a, b, strict=False) for x in pair))[:depth]
                    for a, b in zip(bm25, exact, strict=True)]  # fmt: skip
    final = [[*rng.permutation(row[:20]).tolist(), *row[20:]] for row in hybrid]

    def frame(**lists: list[list[str]]) -> pl.DataFrame:
        parts = [
            pl.DataFrame({"query_id": names, "retriever": name, "chunk_id": rows})
            .explode("chunk_id")
            .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("query_id"))
            for name, rows in lists.items()
        ]
        return (
            pl.concat(parts)
            .with_columns(doc_id=pl.col("chunk_id").str.head(7), score=1.0 / pl.col("rank"))
            .select(list(LIST_COLUMNS))
        )

    size = pl.when(pl.col("retriever") == "hybrid").then(pl.lit(20, pl.Int64))
    filters = {"query_id": names, "scope_id": ["everything"] * queries, "producer": ["entitlement"] * queries,
               "predicate": [None] * queries, "mode": ["none"] * queries}  # fmt: skip
    return {
        "runs": frame(bm25=bm25, dense=dense),
        "exact_runs": frame(dense=exact),
        "fused_runs": frame(hybrid=hybrid),
        "exact_fused_runs": frame(hybrid=exact_hybrid),
        "ranked_runs": frame(bm25=bm25, dense=dense, hybrid=final).with_columns(rank_before="rank", input_size=size),
        "applied_filters": pl.DataFrame(filters, schema_overrides={"predicate": pl.String}),
        "scopes": pl.DataFrame({"scope_id": ["everything"], "everything": [True], "doc_ids": [[]]},
                               schema_overrides={"doc_ids": pl.List(pl.String)}),
    }  # fmt: skip
