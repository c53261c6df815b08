"""Runs exported from LangSmith: one object a run as JSON Lines or in `runs`, or the Parquet of a bulk export.

A trace is a root run and what hangs below it: the root's inputs hold the question, its outputs the answer, runs of type
`retriever` the documents. Inputs and outputs may be objects or JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
)
from rag_eval_pipeline.corpus.importers.writer import ImportFailedError

TEXT = ("page_content", "text", "content", "document")
SCORE = ("score", "relevance_score", "similarity", "_score")


def traces(source: Path) -> Iterator[Asked]:
    """Traces that asked something.

    Raises:
        ImportFailedError: rows are no runs, or no trace has a question.
    """
    yield from read_traces(
        source,
        _run,
        _trace,
        f" in its root run's inputs (looked for {', '.join(QUESTION)}): export inputs and outputs with the runs",
    )


def _run(place: str, row: Row) -> tuple[str, Row]:
    trace = row.get("trace_id") or row.get("id") or row.get("run_id")
    if not trace or ("run_type" not in row and "inputs" not in row):
        raise ImportFailedError(
            f"{place}: no LangSmith run: expected id, trace_id, run_type, inputs, outputs; found {', '.join(list(row)[:10])}"
        )
    return str(trace), row


def _trace(place: str, trace: str, rows: list[Row]) -> Asked | None:
    runs = sorted(rows, key=lambda row: (str(row.get("dotted_order") or ""), str(row.get("start_time") or "")))
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
        place, question, trace, answer, ranking(lists), tuple(lists[-1]) if lists and not alone else None,
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
