"""What the context room does: the served retriever's first items, within a token budget, nothing twice.

Which items come first belongs in `reranking`; what an answer makes of them in `answering`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from rag_eval_pipeline.measures.budget import Passage, fill
from rag_eval_pipeline.stages.context.tables import Contexts
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

Frames = Mapping[str, pl.DataFrame]


class ContextConfig(BaseModel):
    """Section `context`, with what it obeys of section `evaluate` (serve, serve_k, tokenizer)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    budget_tokens: int = Field(default=1500, ge=1)
    serve: str | None = Field(default=None, description="Served retriever; null: the only one there is")
    serve_k: int = Field(default=10, ge=1, description="Items that may go in")
    tokenizer: str = "bundled"
    merge_overlap: bool = Field(default=True, description="Leave out source ranges that are in already")
    imported: Switch = Field(default=False, alias="import", description="Take outputs/contexts.jsonl")


CONFIG = ContextConfig


def run(frames: Frames, config: ContextConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """The contexts of all queries."""
    rows = _imported(frames, config) if config.imported else list(_filled(frames, config, runtime))
    return {"contexts": conform(Contexts, rows)}


def served(ranked: pl.DataFrame, config: ContextConfig) -> str:
    """Name of the served retriever.

    Raises:
        ValueError: none is named, and there are several.
    """
    if config.serve is not None:
        return config.serve
    names = ranked["retriever"].unique().sort().to_list()
    if len(names) > 1:
        raise ValueError(f"which retriever is served? set `evaluate: {{serve: …}}` to one of {', '.join(names)}")
    return names[0] if names else ""


def _spans(tokenizer: str) -> Any:
    """Token spans, kept for the chunks that many queries get."""
    return lru_cache(maxsize=4096)(get_tokenizer(tokenizer).spans)


def _filled(frames: Frames, config: ContextConfig, runtime: Runtime) -> Iterator[dict[str, Any]]:
    ranked = frames["ranked_runs"]
    serve = served(ranked, config)
    first = ranked.filter((pl.col("retriever") == serve) & (pl.col("rank") <= config.serve_k))
    texts = frames["chunks"].select("chunk_id", "start", "end", "text", "prefix")
    # An item of a removed document has no text any more: nothing of it can be given.
    items = first.join(texts, on="chunk_id", how="inner").sort("query_id", "rank")
    spans = _spans(config.tokenizer)
    groups = items.partition_by("query_id", maintain_order=True)
    for done, group in enumerate(groups, 1):
        passages = (
            Passage(*row) for row in group.select("chunk_id", "doc_id", "start", "end", "text", "prefix").iter_rows()
        )
        taken, _ = fill(passages, config.budget_tokens, spans, merge=config.merge_overlap, can_cut_unplaced=False)
        given = [entry for entry in taken if entry.tokens]
        for position, entry in enumerate(given, 1):
            yield {
                "query_id": group["query_id"][0],
                "position": position,
                "retriever": serve,
                "chunk_id": entry.passage.chunk_id,
                "doc_id": entry.passage.doc_id,
                "start": entry.start,
                "end": entry.end,
                "tokens": entry.tokens,
            }
        runtime.progress("context", done, len(groups))


# --- from outside ----------------------------------------------------------------------------------------------------


def _imported(frames: Frames, config: ContextConfig) -> list[dict[str, Any]]:
    """Contexts that the user's own system assembled: chunk ids, texts, or both."""
    given = frames.get("output:contexts")
    if given is None:
        raise ValueError(
            "context is imported, but outputs/contexts.jsonl is absent; add it or set `context: {import: false}`"
        )
    asked = given.join(frames["prepared_queries"].select("query_id"), on="query_id", how="semi").sort(
        "query_id", "position"
    )
    chunks = {row["chunk_id"]: row for row in frames["chunks"].iter_rows(named=True)}
    listed = _listed(frames["ranked_runs"])
    serve, spans = served(frames["ranked_runs"], config), _spans(config.tokenizer)
    rows = []
    for query_id, position, chunk_id, text in asked.select("query_id", "position", "chunk_id", "text").iter_rows():
        if chunk_id is not None and chunk_id not in chunks:
            raise ValueError(
                f"outputs/contexts.jsonl, query {query_id}, position {position}: unknown chunk {chunk_id!r}; give an id of "
                "`chunks`, or leave it out and give the text"
            )
        candidates = [chunk_id] if chunk_id is not None else [*listed.get(query_id, ()), *chunks]
        rows.append(
            {
                "query_id": query_id,
                "position": position,
                "retriever": serve,
                "text": text,
                **_placed(text, candidates, chunks, spans),
            }
        )
    return rows


def _listed(ranked: pl.DataFrame) -> dict[str, list[str]]:
    best = ranked.sort("query_id", "rank", "retriever").unique(
        ["query_id", "chunk_id"], keep="first", maintain_order=True
    )
    return dict(best.group_by("query_id", maintain_order=True).agg("chunk_id").iter_rows())


def _placed(
    text: str | None, candidates: list[str], chunks: Mapping[str, dict[str, Any]], spans: Any
) -> dict[str, Any]:
    """Where a supplied text stands: in the first candidate that has it. Found nowhere, it costs tokens and holds nothing."""
    if text is None:
        chunk = chunks[candidates[0]]
        cost = len(spans(chunk["prefix"])) + len(spans(chunk["text"]))
        return {**_of(chunk), "start": chunk["start"], "end": chunk["end"], "tokens": cost}
    cost = len(spans(text))
    body = text.strip()
    for chunk_id in candidates:
        chunk = chunks[chunk_id]
        if chunk["start"] is None or not body:
            continue
        if (at := chunk["text"].find(body)) >= 0:
            return {**_of(chunk), "start": chunk["start"] + at, "end": chunk["start"] + at + len(body), "tokens": cost}
        if chunk["text"].strip() and chunk["text"].strip() in body:
            return {**_of(chunk), "start": chunk["start"], "end": chunk["end"], "tokens": cost}
    named = len(candidates) == 1
    empty = {"chunk_id": candidates[0] if named else "", "doc_id": chunks[candidates[0]]["doc_id"] if named else ""}
    return {**empty, "start": None, "end": None, "tokens": cost}


def _of(chunk: Mapping[str, Any]) -> dict[str, Any]:
    return {"chunk_id": chunk["chunk_id"], "doc_id": chunk["doc_id"]}
