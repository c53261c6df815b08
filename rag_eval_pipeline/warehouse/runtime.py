"""What a stage's transform may use of the world: workers with limits, the memo, progress. No stage logic here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from rag_eval_pipeline.engine.limits import Limits
from rag_eval_pipeline.engine.pool import Failure, map_items
from rag_eval_pipeline.warehouse.memo import Memo, digest
from rag_eval_pipeline.warehouse.table import Table, conform, name_of, polars_schema

Rows = dict[str, list[dict[str, Any]]]
BATCH = 64
"""Results written to the memo at a time: what a kill can lose."""


def _silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Runtime:
    """One stage run's surroundings.

    Attributes:
        files: the version's documents/ folder.
        workers: worker processes; 0 runs in this process, without limits.
        limits: time and memory a document.
        memo: where computed values are kept; None keeps nothing.
        fingerprints: stage -> hash of its code and config; part of every memo key.
        progress: called with (stage, done, total).
        replies: folder of what endpoints replied (`judging.replies`); None keeps nothing.
    """

    files: Path
    workers: int = 2
    limits: Limits = field(default_factory=Limits)
    memo: Memo | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = _silent
    reused: dict[str, list[int]] = field(default_factory=dict)
    replies: Path | None = None

    @classmethod
    def plain(cls, files: Path = Path()) -> Runtime:
        """No memo, no worker processes: for tests and repairs."""
        return cls(files=files, workers=0)

    def map(
        self,
        stage: str,
        one: Callable[[dict[str, Any], Any], Rows],
        items: pl.DataFrame,
        config: Any,
        *,
        reads: Sequence[str],
        writes: Sequence[type[Table]],
        failed: Callable[[dict[str, Any], str, str], Rows],
        identity: str = "doc_id",
        limits: Limits | None = None,
    ) -> dict[str, pl.DataFrame]:
        """Run `one(item, config)` for every row of `items`; equal inputs are computed once.

        Args:
            stage: the stage's name; progress and memo are kept by it.
            one: module-level function; returns rows by table, without the identity column.
            items: one row an item.
            config: passed on; its content is part of the stage's fingerprint.
            reads: columns that decide the result; further columns may serve (a path), but must not change it.
            writes: tables that `one` fills.
            failed: rows for an item whose worker failed (status, error).
            identity: column that names the item.
            limits: other limits than the run's.

        Returns:
            Every table of `writes`, conformed. A failure is remembered within the run only, so the next run tries again.
        """
        rows = items.to_dicts()
        keys = [digest([row[name] for name in reads]) for row in rows]
        first: dict[str, dict[str, Any]] = {}
        for key, row in zip(keys, rows, strict=True):
            first.setdefault(key, row)
        results = self._recall(stage, first)
        total, missing = len(first), [key for key in first if key not in results]
        self._count(stage, total - len(missing), len(missing))
        self.progress(stage, total - len(missing), total)
        pending: dict[str, bytes] = {}
        work = map_items(
            one, (first[key] for key in missing), config, limits=limits or self.limits, workers=self.workers
        )
        for done, (index, outcome) in enumerate(work, 1):
            key = missing[index]
            if isinstance(outcome, Failure):
                results[key] = failed(first[key], outcome.status, outcome.error)
            else:
                results[key] = outcome
                pending[key] = json.dumps(outcome, ensure_ascii=False).encode("utf-8", "surrogatepass")
            if len(pending) >= BATCH:
                self._remember(stage, pending)
                pending = {}
            self.progress(stage, total - len(missing) + done, total)
        self._remember(stage, pending)
        self._merge(stage)
        return {name_of(table): _gather(table, identity, keys, rows, results) for table in writes}

    def cached(
        self, stage: str, keys: Sequence[str], compute: Callable[[list[int]], Iterator[tuple[int, bytes]]]
    ) -> list[bytes]:
        """Payloads for `keys`; `compute` gets the first position of each missing key and yields (position, payload)."""
        positions: dict[str, int] = {}
        for index, key in enumerate(keys):
            positions.setdefault(key, index)
        found = self.memo.get_many(stage, self._fingerprint(stage), list(positions)) if self.memo else {}
        missing = [index for key, index in positions.items() if key not in found]
        self._count(stage, len(found), len(missing))
        self.progress(stage, len(found), len(positions))
        pending: dict[str, bytes] = {}
        for done, (index, payload) in enumerate(compute(missing) if missing else (), 1):
            found[keys[index]] = pending[keys[index]] = payload
            if len(pending) >= BATCH:
                self._remember(stage, pending)
                pending = {}
            self.progress(stage, len(positions) - len(missing) + done, len(positions))
        self._remember(stage, pending)
        self._merge(stage)
        return [found[key] for key in keys]

    def _fingerprint(self, stage: str) -> str:
        return self.fingerprints.get(stage, "none")

    def _count(self, stage: str, reused: int, computed: int) -> None:
        counts = self.reused.setdefault(stage, [0, 0])
        counts[0] += reused
        counts[1] += computed

    def _recall(self, stage: str, first: Mapping[str, Any]) -> dict[str, Rows]:
        if self.memo is None:
            return {}
        found = self.memo.get_many(stage, self._fingerprint(stage), list(first))
        return {key: json.loads(payload.decode("utf-8", "surrogatepass")) for key, payload in found.items()}

    def _remember(self, stage: str, entries: Mapping[str, bytes]) -> None:
        if self.memo is not None:
            self.memo.put_many(stage, self._fingerprint(stage), entries)

    def _merge(self, stage: str) -> None:
        if self.memo is not None:
            self.memo.merge(stage, self._fingerprint(stage))


def _gather(
    table: type[Table], identity: str, keys: Sequence[str], rows: Sequence[dict[str, Any]], results: Mapping[str, Rows]
) -> pl.DataFrame:
    """All rows of one table, each with the identity of its item."""
    schema = polars_schema(table)
    columns: dict[str, list[Any]] = {name: [] for name in schema}
    for key, row in zip(keys, rows, strict=True):
        for result in results[key].get(name_of(table), ()):
            if unknown := set(result) - set(schema):
                raise ValueError(f"{name_of(table)}: unknown columns {sorted(unknown)}")
            for name, values in columns.items():
                values.append(row[identity] if name == identity else result.get(name))
    return conform(table, pl.DataFrame(columns, schema=schema))
