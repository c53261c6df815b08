"""What changed below data/corpora: cheap signatures by stat first, hashes only of what looks new. No Dagster here.

The cursor holds, by version, the signature last seen and the one last requested, so that a restart loses and doubles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.corpus.layout import READY, list_corpora, list_versions
from rag_eval_pipeline.stages.subject import FrozenError, Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.memo import digest

BUDGET_SECONDS = 30.0
"""A sensor tick dies at 60 s; what is left is looked at in the next tick."""


@dataclass
class Cursor:
    """Signatures by `corpus@version`: last seen, last requested; and where the last tick stopped."""

    seen: dict[str, str] = field(default_factory=dict)
    requested: dict[str, str] = field(default_factory=dict)
    after: str = ""

    @classmethod
    def load(cls, text: str | None) -> Cursor:
        """From the sensor's cursor; empty at the first tick."""
        return cls(**json.loads(text)) if text else cls()

    def dump(self) -> str:
        """To the sensor's cursor."""
        return json.dumps(vars(self), sort_keys=True)


@dataclass(frozen=True)
class Request:
    """One run to request."""

    key: str
    run_key: str


@dataclass
class Tick:
    """What one look found."""

    requests: list[Request] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look(home: Home, cursor: Cursor, budget: float = BUDGET_SECONDS) -> Tick:
    """Look at every version once, from where the last tick stopped; updates `cursor`.

    A version is requested once its signature is the same in two ticks (nothing is being copied any more), or at once where
    it has a `_READY` file.
    """
    tick = Tick()
    deadline = time.monotonic() + budget
    subjects = sorted(_subjects(home))
    names = {name for name, _ in subjects}
    for known in (cursor.seen, cursor.requested):
        for gone in set(known) - names:
            del known[gone]
    start = next((i for i, (name, _) in enumerate(subjects) if name > cursor.after), 0)
    for name, folder in subjects[start:] + subjects[:start]:
        if time.monotonic() > deadline:
            tick.notes.append(f"time is up; the next tick goes on at {name}")
            return tick
        cursor.after = name
        _look_at(home, name, folder, cursor, tick)
    cursor.after = ""
    return tick


def _look_at(home: Home, name: str, folder: Path, cursor: Cursor, tick: Tick) -> None:
    signature = _signature(folder)
    if cursor.requested.get(name) == signature:
        return
    quiet = cursor.seen.get(name) == signature or (folder / READY).exists()
    cursor.seen[name] = signature
    if not quiet:
        tick.notes.append(f"{name} changed; waiting until it is quiet for one tick (or has {READY})")
        return
    try:
        subject = Subject.open(home, name)
    except (CorpusError, FrozenError) as error:
        tick.notes.append(f"{name}: {error}")
        return
    cursor.requested[name] = signature
    if _is_evaluated(subject):
        tick.notes.append(f"{name} is evaluated already, as it is")
        return
    # Gold, pipeline and measures are in the evaluation_id.
    run_key = digest([subject.version.documents_hash, subject.evaluation_id])
    tick.requests.append(Request(name, f"{name}:{run_key}"))


def _is_evaluated(subject: Subject) -> bool:
    """Whether a complete evaluation of exactly this state is there: a command made it, say."""
    manifest = subject.manifests.find(subject.key.text, subject.evaluation_id)
    return manifest is not None and manifest.status == "complete"


def _subjects(home: Home) -> Iterator[tuple[str, Path]]:
    for corpus in list_corpora(home.corpora):
        for version in list_versions(home.corpora, corpus):
            yield f"{corpus}@{version}", home.corpora / corpus / version


def _signature(folder: Path) -> str:
    """Hash of path, size and time of every file that decides a version: its own, the shared gold and corpus.yaml."""
    state = hashlib.sha256()
    corpus = folder.parent
    for root in (folder, corpus / "gold"):
        for path, size, changed in _stats(root):
            state.update(f"{path}\0{size}\0{changed}\n".encode("utf-8", "surrogateescape"))
    for file in (corpus / "corpus.yaml",):
        if file.is_file():
            stat = file.stat()
            state.update(f"{file.name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return state.hexdigest()


def _stats(root: Path) -> Iterator[tuple[str, int, int]]:
    if not root.is_dir():
        return
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _stats(Path(entry.path))
            else:
                stat = entry.stat(follow_symlinks=False)
                yield entry.path, stat.st_size, stat.st_mtime_ns
