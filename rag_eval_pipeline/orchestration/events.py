"""Dagster's event log in SQLite, with connections that stay open: named in dagster.yaml.

Dagster's own class opens, syncs and closes a file for every statement, which is most of the time of a small run. Files, tables
and history are the same; either class reads what the other wrote. What is logged is Dagster's and the assets' matter.
"""

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import sqlalchemy as sa
from dagster._config.config_schema import UserConfigSchema
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection, Engine

MAX_OPEN = 8
"""Files that a process keeps open: the index of all runs, and the runs that were used last."""


class _Shard(NamedTuple):
    """An open file: its engine, and which file it was when it was opened."""

    engine: Engine
    file: tuple[int, int] | None


class EventLog(SqliteEventLogStorage):
    """Keeps one connection open to each of the files used last.

    A killed process loses no event: what was committed is in the write-ahead log. A power cut may lose the last ones, since
    commits aren't synced; it leaves no damaged file.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open or make the log.

        Args:
            base_dir: folder of the files, `history/runs` below DAGSTER_HOME.
            inst_data: what dagster.yaml says, as Dagster hands it in.
        """
        self._shards: OrderedDict[str, _Shard] = OrderedDict()
        self._tables: set[str] = set()
        super().__init__(base_dir, inst_data)
        _LOGS.add(self)

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """`home`: DAGSTER_HOME."""
        return {"home": dg.StringSource}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "EventLog":
        """Below DAGSTER_HOME, where Dagster's own class has its files."""
        return cls(str(Path(config_value["home"]) / "history" / "runs"), inst_data)

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, and touch the run's file: its watchers in other processes don't see the write-ahead log."""
        super().store_event(event)
        with contextlib.suppress(FileNotFoundError):  # the run was wiped by another process: nobody watches it
            os.utime(self.path_for_shard(event.run_id))

    def has_table(self, table_name: str) -> bool:
        """Whether the index has a table. Asked for every event of an asset; what was there once stays."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    def wipe(self) -> None:
        """Remove all events."""
        with self._db_lock:
            self._close_all()
        super().wipe()

    def dispose(self) -> None:
        """Stop watching, and close all files."""
        super().dispose()
        with self._db_lock:
            self._close_all()

    @contextlib.contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock, self._engine(shard).begin() as connection:
            yield connection

    def _engine(self, shard: str) -> Engine:
        """The engine of a shard's file, opened where it isn't, or where the file isn't the one that was opened."""
        path = self.path_for_shard(shard)
        file = _file(path)
        kept = self._shards.get(shard)
        if kept and (file is None or kept.file != file):
            self._close(shard)
        if file is None:
            self._initialized_dbs.discard(shard)
        engine = self._shards[shard].engine if shard in self._shards else _connecting(self.conn_string_for_shard(shard))
        if shard not in self._initialized_dbs:
            self._initdb(engine)
            self._initialized_dbs.add(shard)
        self._shards[shard] = _Shard(engine, file or _file(path))
        self._shards.move_to_end(shard)
        self._close_oldest()
        return engine

    def _close_oldest(self) -> None:
        while len(self._shards) > MAX_OPEN:
            self._close(next(name for name in self._shards if name != INDEX_SHARD_NAME))

    def _close(self, shard: str) -> None:
        self._shards.pop(shard).engine.dispose()
        if shard == INDEX_SHARD_NAME:
            self._tables.clear()

    def _close_all(self) -> None:
        for shard in list(self._shards):
            self._close(shard)


_LOGS: weakref.WeakSet[EventLog] = weakref.WeakSet()
_FORKING = threading.Lock()
_HELD: list[EventLog] = []


def _before_fork() -> None:
    """Close all and let nobody open: in the child SQLite would take the parent's locks for its own, even of files opened anew."""
    _FORKING.acquire()
    for log in list(_LOGS):
        log._db_lock.acquire()
        _HELD.append(log)
        log._close_all()


def _after_fork() -> None:
    while _HELD:
        _HELD.pop()._db_lock.release()
    _FORKING.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _file(path: str) -> tuple[int, int] | None:
    """Which file stands at a path; None where there is none."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _connecting(url: str) -> Engine:
    """An engine that keeps one connection; more are opened, and closed again, only while a new file is set up."""
    arguments = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
    engine = sa.create_engine(url, poolclass=sa.QueuePool, pool_size=1, connect_args=arguments)

    @sa.event.listens_for(engine, "connect")
    def sync_at_checkpoints(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous=NORMAL")

    return engine
