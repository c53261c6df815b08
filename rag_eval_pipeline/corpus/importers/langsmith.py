"""Runs exported from LangSmith: one object a run as JSON Lines or in `runs`, or the Parquet of a bulk export.

A trace is a root run and what hangs below it: the root's inputs hold the question, its outputs the answer, runs of type
`retriever` the documents. Inputs and outputs may be objects or JSON text.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.importers.asked import RUN, Asked, Passage, records, said, write_version
from rag_eval_pipeline.corpus.importers.tables import read_rows
from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError

QUESTION = ("question", "query", "input", "user_input", "prompt", "messages", "chat_history", "text", "content")
ANSWER = (
    "answer",
    "output",
    "response",
    "result",
    "final_answer",
    "generation",
    "text",
    "content",
    "messages",
    "generations",
    "message",
)
TEXT = ("page_content", "text", "content", "document")
CHUNK_ID = ("chunk_id", "id", "node_id", "_id")
DOC_ID = ("document_id", "doc_id", "source", "file_name", "filename", "file_path", "file", "path", "url", "title")
SCORE = ("score", "relevance_score", "similarity", "_score")


def read(source: Path, writer: CorpusWriter, *, run: str = RUN) -> None:
    """Traces as a version without documents: what retrievers returned are the chunks."""
    write_version(traces(source), writer, run)


def traces(source: Path) -> Iterator[Asked]:
    """Traces that asked something.

    Raises:
        ImportFailedError: rows are no runs, or no trace has a question.
    """
    by_trace: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for place, row in records(read_rows(source)):
        trace = row.get("trace_id") or row.get("id") or row.get("run_id")
        if not trace or ("run_type" not in row and "inputs" not in row):
            raise ImportFailedError(
                f"{place}: no LangSmith run: expected id, trace_id, run_type, inputs, outputs; found {', '.join(list(row)[:10])}"
            )
        by_trace[str(trace)].append((place, row))
    found = [one for trace, rows in by_trace.items() if (one := _trace(trace, rows)) is not None]
    if by_trace and not found:
        raise ImportFailedError(
            f"none of {len(by_trace)} traces has a question in its root run's inputs (looked for {', '.join(QUESTION)}): export inputs and "
            "outputs with the runs"
        )
    yield from found


def _trace(trace: str, rows: list[tuple[str, dict[str, Any]]]) -> Asked | None:
    runs = sorted(
        (row for _, row in rows), key=lambda row: (str(row.get("dotted_order") or ""), str(row.get("start_time") or ""))
    )
    roots = [row for row in runs if not row.get("parent_run_id")] or runs[:1]
    root = roots[0]
    question = said(root.get("inputs"), QUESTION)
    if question is None:
        return None
    lists = [list(documents(row.get("outputs"))) for row in runs if row.get("run_type") == "retriever"]
    lists = [found for found in lists if found]
    alone = root.get("run_type") == "retriever"
    answer = None if alone or root.get("error") else said(root.get("outputs"), ANSWER)
    return Asked(
        rows[0][0], question, trace, answer,
        tuple(once(passage for found in lists for passage in found)) if lists else None,
        tuple(lists[-1]) if lists and not alone else None,
        references=tuple(filter(None, [said(root.get("reference_outputs"), ANSWER)])),
        usage=_usage(root, runs), timings=timings(root), time=str(root.get("start_time") or ""),
    )  # fmt: skip


def documents(outputs: Any) -> Iterator[Passage]:
    """What a retriever returned: `documents`, `output`, or a list; documents as dicts or as LangChain serialises them."""
    if isinstance(outputs, Mapping):
        outputs = next(
            (
                outputs[name]
                for name in ("documents", "output", "docs", "results", "context")
                if isinstance(outputs.get(name), list)
            ),
            [],
        )
    for item in outputs if isinstance(outputs, list) else []:
        if isinstance(item, list) and item and isinstance(item[0], Mapping):  # (document, score)
            score = item[1] if len(item) > 1 and isinstance(item[1], int | float) else None
            item = {**item[0], **({"score": score} if score is not None else {})}
        if isinstance(item, str):
            yield Passage(item)
        elif isinstance(item, Mapping):
            yield _passage(item["kwargs"] if isinstance(item.get("kwargs"), Mapping) else item)


def _passage(item: Mapping[str, Any]) -> Passage:
    metadata = item.get("metadata") if isinstance(item.get("metadata"), Mapping) else {}
    assert isinstance(metadata, Mapping)
    score = next(
        (found for source in (item, metadata) for name in SCORE if (found := number(source.get(name))) is not None),
        None,
    )
    text = next((item[name] for name in TEXT if isinstance(item.get(name), str)), None)
    return Passage(
        text, named(CHUNK_ID, item, metadata), named(DOC_ID, metadata, item), score
    )  # fmt: skip


def named(names: Iterable[str], *sources: Mapping[str, Any]) -> str | None:
    """The first of several names that some source has, as text."""
    return next(
        (
            str(source[name])
            for source in sources
            for name in names
            if isinstance(source.get(name), str | int) and source[name] != ""
        ),
        None,
    )


def once(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Each passage at its first place."""
    seen: set[str] = set()
    for passage in passages:
        if passage.id not in seen:
            seen.add(passage.id)
            yield passage


def _usage(root: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Tokens of the root; where it has none, of its model calls."""
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "total_cost")
    own = {name: root[name] for name in names if number(root.get(name)) is not None}
    if own:
        return own
    calls = [row for row in runs if row.get("run_type") == "llm"]
    return {
        name: sum(found)
        for name in names
        if (found := [row[name] for row in calls if number(row.get(name)) is not None])
    }


def timings(root: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds from start to end."""
    start, end = (_when(root.get(name)) for name in ("start_time", "end_time"))
    return {} if start is None or end is None else {"total": (end - start).total_seconds()}


def _when(value: Any) -> datetime | None:
    """A time; one without a zone is in UTC, as these tools write it."""
    if not isinstance(value, datetime):
        try:
            value = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError:
            return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def number(value: Any) -> float | None:
    """A finite number, or None; one beyond all floats is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
