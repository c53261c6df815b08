"""Answers that the user's own system gave: outputs/answers.jsonl.

Here: lines as answers. Not here: what a line may hold (corpus), how citations resolve (`said`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.stages.answering.said import Cited, Said
from rag_eval_pipeline.text.claims import Claim

MISSING = "missing"
INPUT, OUTPUT = ("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")
COST, FIRST, TOTAL = ("cost", "cost_usd", "price"), ("first_token_s", "ttft_s"), ("total_s", "latency_s")
_MS = {"first_token_s": ("first_token_ms", "ttft_ms"), "total_s": ("total_ms", "latency_ms")}


def imported(given: pl.DataFrame | None, query_ids: list[str]) -> Iterator[tuple[str, str, int, Said]]:
    """(answer_id, query_id, sample, answer) for each imported answer, by query; a query without one has a `missing` answer.

    Args:
        given: frame of outputs/answers.jsonl; answers of other queries are left out.
        query_ids: of the queries asked.

    Raises:
        ValueError: there is no such file.
    """
    if given is None:
        raise ValueError(
            "answering imports answers, but outputs/answers.jsonl is absent; add it, or set `answering: {answerer: extractive}`"
        )
    by_query: dict[str, list[dict[str, Any]]] = {}
    for row in given.iter_rows(named=True):
        by_query.setdefault(row["query_id"], []).append(row)
    taken = set(given["answer_id"])
    for query_id in query_ids:
        rows = by_query.get(query_id, [])
        for sample, row in enumerate(rows, 1):
            yield row["answer_id"], query_id, sample, _said(row)
        if not rows:
            yield _free(query_id, taken), query_id, 1, Said("", status=MISSING)


def _free(query_id: str, taken: set[str]) -> str:
    """An id for an answer that is not there: the query's, unless another answer is called so."""
    name = query_id
    while name in taken:
        name += "'"
    return name


def _said(row: Mapping[str, Any]) -> Said:
    claims = [json.loads(item) for item in row["claims"]]
    usage = json.loads(row["usage"]) if row["usage"] else {}
    timings = json.loads(row["timings"]) if row["timings"] else {}
    return Said(
        row["answer"],
        claims=tuple(_claim(item, number) for number, item in enumerate(claims, 1)) if claims else None,
        origin="given",
        citations=tuple(_cited(json.loads(item)) for item in row["citations"]),
        refused=row["refused"],
        confidence=row["confidence"],
        model=row["model"],
        input_tokens=_whole(usage, INPUT),
        output_tokens=_whole(usage, OUTPUT),
        cost=_number(usage, COST),
        first_token_s=_seconds(timings, "first_token_s", FIRST),
        total_s=_seconds(timings, "total_s", TOTAL),
    )


def _claim(item: Mapping[str, Any], number: int) -> Claim:
    cites = tuple(str(each) for each in item.get("citations", ()))
    return Claim(item.get("claim_id") or f"c{number}", item["text"], item.get("start"), item.get("end"), cites)


def _cited(item: Mapping[str, Any]) -> Cited:
    for name, kind in (("chunk_id", "chunk"), ("doc_id", "document"), ("position", "passage"), ("id", None)):
        if item.get(name) is not None:
            return Cited(str(item[name]), kind, item.get("claim_id"))
    raise ValueError("outputs/answers.jsonl: a citation names nothing; the loader lets none through")


def _number(given: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """The first of these fields that holds a number that is no truth value and not negative."""
    for name in names:
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
    return None


def _whole(given: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    value = _number(given, names)
    return None if value is None else int(value)


def _seconds(given: Mapping[str, Any], name: str, names: tuple[str, ...]) -> float | None:
    seconds = _number(given, names)
    if seconds is None and (milliseconds := _number(given, _MS[name])) is not None:
        return milliseconds / 1000
    return seconds
