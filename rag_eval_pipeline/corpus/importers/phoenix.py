"""Spans exported from Arize Phoenix (OpenInference): the REST API's JSON, a spans dataframe as JSON Lines or Parquet, or OpenTelemetry's.

Attributes may be nested, or flat with dots (`retrieval.documents.0.document.content`), with or without `attributes.` before them.
A trace's root span has the question and the answer, RETRIEVER spans the ranking, RERANKER spans what was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.importers.asked import Asked, Passage
from rag_eval_pipeline.corpus.importers.traces import (
    ANSWER,
    CHUNK_ID,
    DOC_ID,
    QUESTION,
    Row,
    named,
    number,
    ranking,
    read_traces,
    said,
    timings,
    unwrapped,
)
from rag_eval_pipeline.corpus.importers.writer import ImportFailedError


def traces(source: Path) -> Iterator[Asked]:
    """Traces that asked something.

    Raises:
        ImportFailedError: rows are no spans, or no trace has a question.
    """
    yield from read_traces(source, _span, _trace, ": expected input.value on its root span or its retriever")


def _span(place: str, row: Row) -> tuple[str, Row]:
    span = nested(row)
    context = span.get("context") if isinstance(span.get("context"), dict) else {}
    trace = context.get("trace_id") or span.get("trace_id") or span.get("traceId")  # type: ignore[union-attr]
    if not trace or "attributes" not in span:
        raise ImportFailedError(
            f"{place}: no span: expected context.trace_id and attributes; found {', '.join(list(row)[:10])}"
        )
    return str(trace), span


def nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as objects, numbers among them as lists; keys without a value are left out."""
    tree: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        inner = (
            nested(value)
            if isinstance(value, Mapping)
            else [nested(v) if isinstance(v, Mapping) else v for v in value]
            if isinstance(value, list)
            else value
        )
        _put(tree, name.split("."), inner)
    return {name: _listed(value) for name, value in tree.items()}


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        below = tree.get(part)
        if not isinstance(below, dict):
            below = tree[part] = {} if below is None else {"value": below}
        tree = below
    last = path[-1]
    if isinstance(tree.get(last), dict) and isinstance(value, dict):
        for name, inner in value.items():
            _put(tree[last], [name], inner)
    elif not (isinstance(tree.get(last), dict) and not isinstance(value, dict)):
        tree[last] = value


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _listed(item) for name, item in value.items()}
    if inner and all(name.isascii() and name.isdigit() for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner


def _trace(place: str, trace: str, spans: list[Row]) -> Asked | None:
    ordered = sorted(spans, key=lambda span: str(span.get("start_time") or span.get("startTimeUnixNano") or ""))
    known = {span_id for span in ordered if (span_id := _id(span))}
    roots = [span for span in ordered if not _parent(span) or _parent(span) not in known] or ordered[:1]
    root = roots[0]
    retrievers = [span for span in ordered if _kind(span) == "RETRIEVER"]
    question = next(filter(None, (said(_value(span, "input"), QUESTION) for span in (root, *retrievers))), None)
    if question is None:
        return None
    retrieved = [list(_passages(_at(span, "retrieval", "documents"))) for span in retrievers]
    retrieved = [found for found in retrieved if found]
    reranked = [
        list(_passages(_at(span, "reranker", "output_documents"))) for span in ordered if _kind(span) == "RERANKER"
    ]
    given = next((found for found in reversed(reranked) if found), retrieved[-1] if retrieved else None)
    alone = _kind(root) in {"RETRIEVER", "EMBEDDING", "RERANKER"}
    said_by = [] if alone else [root, *reversed([span for span in ordered if _kind(span) == "LLM"])]
    answer = next(filter(None, (said(_value(span, "output"), ANSWER) for span in said_by)), None)
    return Asked(
        place, question, trace, answer, ranking(retrieved), None if given is None or alone else tuple(given),
        usage=_usage(ordered), timings=timings(root), time=str(root.get("start_time") or ""),
    )  # fmt: skip


def _id(span: Mapping[str, Any]) -> str | None:
    context = span.get("context")
    found = (context.get("span_id") if isinstance(context, dict) else None) or span.get("span_id") or span.get("spanId")
    return None if found is None else str(found)


def _parent(span: Mapping[str, Any]) -> str | None:
    found = span.get("parent_id") or span.get("parentSpanId") or span.get("parent_span_id")
    return None if not found else str(found)


def _at(span: Mapping[str, Any], *path: str) -> Any:
    value: Any = span.get("attributes")
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _kind(span: Mapping[str, Any]) -> str:
    return str(span.get("span_kind") or _at(span, "openinference", "span", "kind") or "").upper()


def _value(span: Mapping[str, Any], name: str) -> Any:
    value = _at(span, name)
    return value.get("value") if isinstance(value, dict) else value


def _passages(value: Any) -> Iterator[Passage]:
    for item in value if isinstance(value, list) else []:
        if isinstance(item, str):
            yield Passage(item)
            continue
        document = item.get("document") if isinstance(item, dict) else None
        if not isinstance(document, dict):
            continue
        told = unwrapped(document.get("metadata"))
        metadata = told if isinstance(told, dict) else {}
        yield Passage(
            document.get("content") if isinstance(document.get("content"), str) else None,
            named(CHUNK_ID, document, metadata), named(DOC_ID, metadata),
            number(document.get("score")),
        )  # fmt: skip


def _usage(spans: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens of all model calls of a trace."""
    counts = {}
    for name in ("prompt", "completion", "total"):
        found = [_at(span, "llm", "token_count", name) for span in spans if _kind(span) == "LLM"]
        numbers = [
            count
            for value in found
            if (count := number(value.get("value") if isinstance(value, dict) else value)) is not None
        ]
        if numbers:
            counts[f"{name}_tokens"] = round(sum(numbers))
    return counts
