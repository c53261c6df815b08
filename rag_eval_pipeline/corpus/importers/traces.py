"""What exports of traces have in common: rows that make up a trace, the names under which tools keep things, numbers and times.

How one tool names and nests them belongs in its module (`langsmith`, `phoenix`); what becomes of a trace in `asked`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.importers.asked import Asked, Passage
from rag_eval_pipeline.corpus.importers.tables import read_rows
from rag_eval_pipeline.corpus.importers.writer import ImportFailedError

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
CHUNK_ID = ("chunk_id", "id", "node_id", "_id")
DOC_ID = ("document_id", "doc_id", "source", "file_name", "filename", "file_path", "file", "path", "url", "title")

Row = dict[str, Any]


def read_traces(
    source: Path,
    member: Callable[[str, Row], tuple[str, Row]],
    asked: Callable[[str, str, list[Row]], Asked | None],
    looked_for: str,
) -> Iterator[Asked]:
    """Traces of an export that asked something, in the order in which they begin.

    Args:
        source: a file, or a folder of them.
        member: place and row of one run or span → its trace's id, and the row as `asked` reads it.
        asked: place of the first row, id and rows of a trace → what it asked; None where it asked nothing.
        looked_for: where a question is looked for, and what to do where none is there.

    Raises:
        ImportFailedError: `member` refuses a row, or no trace has a question.
    """
    places: dict[str, str] = {}
    rows: dict[str, list[Row]] = defaultdict(list)
    for place, row in read_rows(source):
        trace, read = member(place, {name: unwrapped(value) for name, value in row.items()})
        places.setdefault(trace, place)
        rows[trace].append(read)
    found = [one for trace, place in places.items() if (one := asked(place, trace, rows[trace])) is not None]
    if rows and not found:
        raise ImportFailedError(f"none of {len(rows)} traces has a question{looked_for}")
    yield from found


def said(value: Any, keys: tuple[str, ...]) -> str | None:
    """The text of a value that tools wrap in many ways: a text, JSON of an object, an object with one of `keys`, messages."""
    if isinstance(value, str):
        stripped = value.strip()
        if stripped[:1] in "{[" and stripped:
            try:
                inner = json.loads(stripped)
            except (ValueError, RecursionError):
                return value or None
            if isinstance(inner, dict | list):
                return said(inner, keys) or value
        return value or None
    if isinstance(value, list):
        return _message(value, keys)
    if isinstance(value, dict):
        for name in keys:
            if value.get(name) not in (None, "", [], {}) and (found := said(value[name], keys)):
                return found
        texts = [inner for inner in value.values() if isinstance(inner, str) and inner.strip()]
        return texts[0] if len(value) == 1 and texts else None
    return None


def _message(messages: list[Any], keys: tuple[str, ...]) -> str | None:
    """The last message that says something; of pairs and LangChain's serialised messages, too."""
    for message in reversed(messages):
        if isinstance(message, list) and (found := _message(message, keys)):
            return found
        if isinstance(message, dict):
            inner = message.get("kwargs") if isinstance(message.get("kwargs"), dict) else message
            content = inner.get("content")  # type: ignore[union-attr]
            if isinstance(content, list):
                content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
            if isinstance(content, str) and content.strip():
                return content
    return None


def unwrapped(value: Any) -> Any:
    """An object or a list that stands as JSON text; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


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


def ranking(lists: Iterable[Iterable[Passage]]) -> tuple[Passage, ...] | None:
    """What several retrievers returned as one list, each passage at its first place; None where none returned anything."""
    first: dict[str, Passage] = {}
    for passage in (passage for found in lists for passage in found):
        first.setdefault(passage.id, passage)
    return tuple(first.values()) or None


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
