"""Replies of endpoints on disk, keyed by prompt hash: what was paid for is never asked again.

Here: an append-only store of replies, and a journal of tries, so that a killed run knows what it may have paid. Not here: asking
(`client`), what a reply means (`llm`). Nothing of this is published; the key of an endpoint never comes here.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rag_eval_pipeline.judging.endpoint import OK, ChatReply, EndpointConfig

FILE = "replies.sqlite"
WAIT_S = 60.0
"""How long one process waits for another that writes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (
  prompt_hash TEXT PRIMARY KEY, received TEXT NOT NULL, base_url TEXT NOT NULL, asked_model TEXT NOT NULL,
  parameters TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL, model TEXT, text TEXT, logprobs BLOB,
  input_tokens INTEGER, output_tokens INTEGER, cost REAL, first_token_s REAL, total_s REAL, attempts INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tries (
  id INTEGER PRIMARY KEY, prompt_hash TEXT NOT NULL, started TEXT NOT NULL, base_url TEXT NOT NULL, asked_model TEXT NOT NULL,
  at_most REAL NOT NULL, cost REAL, outcome TEXT
);
CREATE INDEX IF NOT EXISTS tries_at ON tries (base_url, asked_model, started);
CREATE TRIGGER IF NOT EXISTS replies_stay BEFORE UPDATE ON replies BEGIN SELECT RAISE(ABORT, 'replies are append-only'); END;
CREATE TRIGGER IF NOT EXISTS replies_keep BEFORE DELETE ON replies BEGIN SELECT RAISE(ABORT, 'replies are append-only'); END;
"""
_COLUMNS = (
    "status", "text", "model", "input_tokens", "output_tokens", "cost", "first_token_s", "total_s", "attempts", "logprobs",
    "mode", "prompt_hash", "received",
)  # fmt: skip


class ReplyStoreError(RuntimeError):
    """The store can't be used; the message says what to do and quotes nothing of it."""


@dataclass(frozen=True)
class Began:
    """A try that is about to be sent. `at_most`: the most that it may cost."""

    prompt_hash: str
    started: str
    at_most: float


@dataclass(frozen=True)
class Ended:
    """How a try ended. `cost` None: not known, so it counts with the most that it may have cost. `reply`: to keep."""

    try_id: int
    outcome: str
    cost: float | None
    reply: ChatReply | None = None


class ReplyStore:
    """Replies below one folder, in one SQLite file; several processes and threads may use it at once.

    Args:
        folder: made where it is absent.

    Raises:
        ReplyStoreError: the file is no store of replies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        _ = self._connection

    @property
    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
            try:
                found.execute("PRAGMA journal_mode=WAL")
                found.execute(
                    "PRAGMA synchronous=NORMAL"
                )  # a killed process loses nothing, a power cut the last seconds
                found.executescript(_SCHEMA)
            except sqlite3.DatabaseError as error:
                found.close()
                raise ReplyStoreError(
                    f"{self.path.name} can't be opened as a store of replies ({type(error).__name__}); move it away to begin a "
                    "new one, what it holds would then be asked and paid again"
                ) from None
            self._local.connection = found
            self._open.append(found)
        return found

    def get(self, prompt_hash: str) -> ChatReply | None:
        """The stored reply, without a request_id; None where there is none."""
        select = f"SELECT {', '.join(_COLUMNS)} FROM replies WHERE prompt_hash = ?"  # noqa: S608 - our own names
        row = self._connection.execute(select, (prompt_hash,)).fetchone()
        return None if row is None else _reply(row)

    def spent(self, config: EndpointConfig, since: str) -> float:
        """What was spent at an endpoint and model since a time, by all who use this store.

        A try of unknown end (a kill, a timeout, a cut connection) counts with the most that it may have cost.
        """
        found = self._connection.execute(
            "SELECT coalesce(sum(coalesce(cost, at_most)), 0) FROM tries WHERE base_url = ? AND asked_model = ? AND started >= ?",
            (config.base_url, config.model, since),
        ).fetchone()
        return float(found[0])

    def apply(self, config: EndpointConfig, steps: Sequence[Began | Ended]) -> list[int]:
        """Write steps in one transaction; a kill after that loses none. Gives the id of each try that began, in order."""
        ids: list[int] = []
        with self._writing() as connection:
            for step in steps:
                if isinstance(step, Began):
                    made = connection.execute(
                        "INSERT INTO tries (prompt_hash, started, base_url, asked_model, at_most) VALUES (?, ?, ?, ?, ?)",
                        (step.prompt_hash, step.started, config.base_url, config.model, step.at_most),
                    )
                    ids.append(int(made.lastrowid or 0))
                    continue
                connection.execute(
                    "UPDATE tries SET outcome = ?, cost = ? WHERE id = ?", (step.outcome, step.cost, step.try_id)
                )
                if step.reply is not None:
                    row = _row(config, step.reply)
                    marks = ", ".join("?" * len(row))
                    connection.execute(
                        f"INSERT OR IGNORE INTO replies ({', '.join(row)}) VALUES ({marks})",  # noqa: S608
                        tuple(row.values()),
                    )
        return ids

    def count(self) -> int:
        """Replies that are kept."""
        return int(self._connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def unknown(self) -> int:
        """Tries of which nobody knows the end."""
        return int(self._connection.execute("SELECT count(*) FROM tries WHERE cost IS NULL").fetchone()[0])

    def hashes(self) -> Iterable[str]:
        """Every prompt hash that has a reply, sorted."""
        for (found,) in self._connection.execute("SELECT prompt_hash FROM replies ORDER BY prompt_hash"):
            yield str(found)

    def release(self) -> None:
        """Close the connection of this thread, which is about to end."""
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
            self._open.remove(found)
            del self._local.connection

    def close(self) -> None:
        """Close all connections; the store can be opened again."""
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._local = threading.local()

    def _writing(self) -> _Transaction:
        return _Transaction(self._connection)


class _Transaction:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self.connection.execute("BEGIN IMMEDIATE")
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.connection.execute("COMMIT" if kind is None else "ROLLBACK")


def _row(config: EndpointConfig, reply: ChatReply) -> dict[str, Any]:
    logs = None if reply.logprobs is None else zlib.compress(json.dumps(reply.logprobs).encode())
    return {
        "prompt_hash": reply.prompt_hash,
        "received": reply.received,
        "base_url": config.base_url,
        "asked_model": config.model,
        "parameters": json.dumps(config.parameters, sort_keys=True),
        "mode": reply.mode,
        "status": reply.status,
        "model": reply.model,
        "text": None if reply.text is None else reply.text.encode("utf-8", "replace").decode(),
        "logprobs": logs,
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "cost": reply.cost,
        "first_token_s": reply.first_token_s,
        "total_s": reply.total_s,
        "attempts": reply.attempts,
    }


def _reply(row: Sequence[Any]) -> ChatReply:
    fields = dict(zip(_COLUMNS, row, strict=True))
    packed = fields.pop("logprobs")
    logs = None
    if packed is not None:
        logs = tuple(tuple((str(t), float(p)) for t, p in token) for token in json.loads(zlib.decompress(packed)))
    return ChatReply(request_id="", logprobs=logs, stored=True, **fields)


def given_to(reply: ChatReply, request_id: str, parsed: Any) -> ChatReply:
    """A stored reply as one request's; what its text holds is read again, where it was `ok`."""
    return replace(reply, request_id=request_id, parsed=parsed if reply.status == OK else None, stored=True)
