"""What labelling is still to find: quotes without a place, and questions of which only the answer or a document is known.

A hidden file beside the gold, `.to_label.jsonl`: no measure reads it. What is proposed belongs to `release.labelling`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.jsonl import objects

PENDING = ".to_label.jsonl"


@dataclass(frozen=True)
class Wanted:
    """A piece of evidence that is wanted.

    Attributes:
        query_id: of the question.
        documents: where it may stand; empty: anywhere.
        quote: as somebody wrote it, if anybody did; it stands in no document as it is, or nobody knows in which.
        line: where the user's own sheet says so.
    """

    query_id: str
    documents: tuple[str, ...] = ()
    quote: str | None = None
    line: int | None = None


def write_pending(path: Path, wanted: Iterable[Wanted]) -> None:
    """Replace the file."""
    rows = ({"query_id": w.query_id, "documents": list(w.documents), "quote": w.quote, "line": w.line} for w in wanted)
    replace_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_pending(path: Path, file: str, faults: Faults) -> list[Wanted]:
    """What is wanted; none where there is no file."""
    if not path.is_file():
        return []
    found = []
    for number, value in objects(path, file, faults):
        if not _sound(value):
            faults.add(
                file,
                number,
                "",
                "another form",
                "query_id, documents, quote, line",
                "remove the line: it is only a reminder",
            )
            continue
        found.append(Wanted(value["query_id"], tuple(value["documents"]), value["quote"], value["line"]))
    return found


def _sound(value: dict[str, Any]) -> bool:
    return (
        set(value) == {"query_id", "documents", "quote", "line"}
        and isinstance(value["query_id"], str)
        and isinstance(value["documents"], list)
        and all(isinstance(doc, str) for doc in value["documents"])
        and isinstance(value["quote"], str | None)
        and isinstance(value["line"], int | None)
    )


def replace_file(path: Path, text: str) -> None:
    """Write a file beside its place, have it on disk, and rename it there: a killed write leaves the old one."""
    beside = path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}.tmp")
    with beside.open("w", encoding="utf-8", newline="") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
