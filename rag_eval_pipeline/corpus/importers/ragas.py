"""Datasets and results of RAGAS: JSON Lines, JSON, CSV or Parquet, with the names of versions before and after 0.2.

user_input (question), retrieved_contexts (contexts), response (answer), reference (ground_truth, ground_truths),
reference_contexts, and the ids of contexts. Columns of scores are left alone.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.importers.asked import Asked, Passage
from rag_eval_pipeline.corpus.importers.tables import read_rows
from rag_eval_pipeline.corpus.importers.writer import ImportFailedError

FIELDS = {
    "question": ("user_input", "question", "query"),
    "retrieved": ("retrieved_contexts", "contexts", "retrieved_context"),
    "ids": ("retrieved_context_ids",),
    "answer": ("response", "answer"),
    "reference": ("reference", "ground_truth", "ground_truths", "reference_answer"),
    "needed": ("reference_contexts", "ground_truth_contexts", "ground_truths_contexts"),
    "needed_ids": ("reference_context_ids",),
    "name": ("id", "sample_id", "query_id"),
}
"""What is looked for → names, newest first."""


def samples(source: Path) -> Iterator[Asked]:
    """Samples of a set.

    Raises:
        ImportFailedError: a row has no question, is a conversation, or a list has another form.
    """
    for place, row in read_rows(source):
        question = _first(row, "question")
        if isinstance(question, list):
            raise ImportFailedError(
                f"{place}: user_input is a conversation (multi-turn); only single-turn samples can be imported"
            )
        if not isinstance(question, str) or not question.strip():
            raise ImportFailedError(
                f"{place}: none of {', '.join(FIELDS['question'])} holds a question; found {', '.join(list(row)[:10])}"
            )
        texts, ids = _texts(row, "retrieved", place), _texts(row, "ids", place)
        if texts and ids and len(texts) != len(ids):
            raise ImportFailedError(
                f"{place}: {len(texts)} retrieved_contexts and {len(ids)} retrieved_context_ids; expected as many"
            )
        passages = tuple(
            Passage(texts[i] if i < len(texts) else None, ids[i] if i < len(ids) else None)
            for i in range(max(len(texts), len(ids)))
        )
        known = _first(row, "retrieved") is not None or _first(row, "ids") is not None
        answer, name = _first(row, "answer"), _first(row, "name")
        yield Asked(
            place, question, None if name is None else str(name), None if answer is None else str(answer),
            passages if known else None, passages if known else None,
            references=tuple(_texts(row, "reference", place)), needed=tuple(_texts(row, "needed", place)),
            needed_ids=tuple(_texts(row, "needed_ids", place)),
        )  # fmt: skip


def _first(row: dict[str, Any], what: str) -> Any:
    return next((row[name] for name in FIELDS[what] if row.get(name) not in (None, "")), None)


def _texts(row: dict[str, Any], what: str, place: str) -> list[str]:
    """A list of texts; in CSV it stands as Python or JSON writes it. A text alone is a list of one, for references."""
    value = _first(row, what)
    if value is None:
        return []
    if isinstance(value, str):
        value = _parsed(value) if value.lstrip()[:1] == "[" else [value]
        if value is None:
            raise ImportFailedError(
                f"{place}: {what} is a list that can't be read; expected JSON or Python's own form, whole"
            )
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        raise ImportFailedError(f"{place}: {what} is {type(value).__name__}, expected a list of texts")
    return [str(item) for item in value if str(item).strip()]


def _parsed(text: str) -> list[Any] | None:
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, list):
            return value
    return None
