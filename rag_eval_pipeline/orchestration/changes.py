"""What changed below data/corpora: cheap signatures by stat first, hashes only of what looks new. No Dagster here.

The cursor holds, by version, the signature last seen, the one last requested and how often it was requested, so that a
restart loses and doubles nothing. A look that runs out of time goes on where it stopped, within a version too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.faults import CorpusError, printable
from rag_eval_pipeline.corpus.fingerprints import FileHasher
from rag_eval_pipeline.corpus.layout import READY, list_corpora, list_versions
from rag_eval_pipeline.orchestration.automation import Watching
from rag_eval_pipeline.stages.subject import FrozenError, Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.memo import digest

FORMAT = 2
"""Of the cursor. An older one is read as none: what is evaluated already is not requested for that."""
REQUESTS = 100
"""Runs that one look requests at most."""
STEP = 500
"""Files between two looks at the clock."""
HASHED = 16
"""The same where files are read, which takes longer."""
LEFTOVER = re.compile(r".*\.(part|partial|filepart|crdownload|download|tmp|swp)|\..+\.[A-Za-z0-9]{6}")
"""Names that tools give to a file while they copy it; the second form is rsync's."""


@dataclass
class Walk:
    """How far a version's files have been looked at.

    Attributes:
        name: the version.
        chain: hash over the files so far.
        root: number of the folder that is being walked.
        after: path below it of the last file that is in `chain`.
        files: how many there were.
        leftover: a file that looks as if it was still being copied.
        done: all were looked at; `chain` is the signature.
        hashed_root: number of the folder that is being hashed.
        hashed_after: path below it of the last file that is hashed.
    """

    name: str
    chain: str = ""
    root: int = 0
    after: str = ""
    files: int = 0
    leftover: str = ""
    done: bool = False
    hashed_root: int = 0
    hashed_after: str = ""


@dataclass
class Cursor:
    """What the looks before this one found.

    Attributes:
        seen: version -> (signature last seen, when it was first seen, in seconds since the epoch).
        requested: version -> signature last requested.
        states: version -> documents and evaluation last requested: a file that was only touched requests nothing.
        counts: version -> how often it was requested, also of versions that are gone: the same state is a new request each time
            that it comes back.
        after: version at which the last look stopped; the next one begins behind it.
        walk: a version that was not looked at as a whole.
    """

    seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    requested: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    after: str = ""
    walk: Walk | None = None

    @classmethod
    def load(cls, text: str | None) -> Cursor:
        """From the sensor's cursor; empty at the first tick."""
        found = json.loads(text) if text else {}
        if found.pop("format", None) != FORMAT:
            return cls()
        walk = found.pop("walk")
        seen = {name: (str(signature), float(since)) for name, (signature, since) in found.pop("seen").items()}
        return cls(seen=seen, walk=Walk(**walk) if walk else None, **found)

    def dump(self) -> str:
        """To the sensor's cursor."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)


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


class TimeUpError(Exception):
    """A look ran out of time; what it knows stands in the cursor."""


def look(home: Home, cursor: Cursor, watching: Watching | None = None) -> Tick:
    """Look at every version once, from where the last tick stopped; updates `cursor`.

    A version is requested once nothing of it changed for a while (nobody is copying into it any more), or at once where it
    has a `_READY` file.

    Args:
        home: where the corpora lie.
        cursor: what earlier looks found; changed in place.
        watching: how long a version must be quiet, and how long a look may take.
    """
    return _Look(home, cursor, watching or Watching()).run()


class _Look:
    """One look, with its clock."""

    def __init__(self, home: Home, cursor: Cursor, watching: Watching) -> None:
        self.home, self.cursor, self.watching, self.tick = home, cursor, watching, Tick()
        self.deadline = time.monotonic() + watching.budget

    def run(self) -> Tick:
        subjects = sorted(_subjects(self.home))
        self._forget({name for name, _ in subjects})
        start = next((i for i, (name, _) in enumerate(subjects) if name > self.cursor.after), 0)
        for name, folder in subjects[start:] + subjects[:start]:
            try:
                self._in_time()
                self._look_at(name, folder)
            except TimeUpError as error:
                self.tick.notes.append(f"{str(error) or 'time is up'}; the next tick goes on at {name}")
                return self.tick
            except OSError as error:  # gone or closed while we looked: the next tick sees what is there then
                self.tick.notes.append(f"{name} can't be read ({error.strerror or type(error).__name__})")
                self.cursor.walk = None
            self.cursor.after = name
            if len(self.tick.requests) >= REQUESTS:
                self.tick.notes.append(f"{REQUESTS} runs are requested; the next tick goes on behind {name}")
                return self.tick
        self.cursor.after = ""
        return self.tick

    def _forget(self, names: set[str]) -> None:
        """Versions that are gone, and a walk in one of them. Their counts stay: they may come back."""
        for gone in set(self.cursor.requested) - names:
            self.tick.notes.append(f"{gone} is gone; what was evaluated of it stays")
        for known in (self.cursor.seen, self.cursor.requested, self.cursor.states):
            for gone in set(known) - names:
                del known[gone]
        if self.cursor.walk and self.cursor.walk.name not in names:
            self.cursor.walk = None

    def _in_time(self, told: str = "") -> None:
        if time.monotonic() > self.deadline:
            raise TimeUpError(told)

    def _look_at(self, name: str, folder: Path) -> None:
        walk = self._walked(name, folder)
        signature = walk.chain[:16]
        if self.cursor.requested.get(name) == signature:
            self.cursor.walk = None
            return
        now = time.time()
        before, since = self.cursor.seen.get(name, ("", now))
        again = before == signature
        since = min(since, now) if again else now  # a clock that was put back must not make anybody wait for long
        self.cursor.seen[name] = (signature, since)
        if why := self._why_wait(folder, walk, again, now - since):
            self.cursor.walk = None
            self.tick.notes.append(f"{name} {why}")
            return
        self.cursor.walk = walk
        self._hash(walk, folder)
        self._decide(name, signature)
        self.cursor.walk = None

    def _why_wait(self, folder: Path, walk: Walk, again: bool, quiet: float) -> str:
        """Why a version is not taken yet, or nothing."""
        if (folder / READY).exists():
            return ""
        if self.watching.ready == "required":
            return f"waits for its file {READY} (automation.yaml: sensor.ready is required)"
        if not again or quiet < self.watching.quiet:
            return f"changed; waiting until it is quiet for {self.watching.quiet:g} s (or has {READY})"
        if walk.leftover:
            return f"waits: {walk.leftover} looks like a file that is being copied; rename or remove it, or add {READY}"
        return ""

    def _decide(self, name: str, signature: str) -> None:
        try:
            subject = Subject.open(self.home, name)
        except (CorpusError, FrozenError) as error:
            self.tick.notes.append(f"{name}: {error}")
            return
        self.cursor.requested[name] = signature
        # Gold, pipeline and measures are in the evaluation_id.
        state = digest([subject.version.documents_hash, subject.evaluation_id])[:16]
        before, self.cursor.states[name] = self.cursor.states.get(name), state
        if _is_current(subject):
            self.tick.notes.append(f"{name} is evaluated already, as it is")
            return
        if before == state:
            self.tick.notes.append(f"{name} was touched, and is as it was when its run was requested")
            return
        # Dagster runs a run key once and never again, so a state that comes back (a label edited and taken back) needs a
        # number, which only the stored cursor raises.
        count = self.cursor.counts[name] = self.cursor.counts.get(name, 0) + 1
        self.tick.requests.append(Request(name, f"{name}:{state}:{count}"))

    def _walked(self, name: str, folder: Path) -> Walk:
        """The version's files as one hash of paths, sizes and times: its own, the shared gold and corpus.yaml."""
        walk = self.cursor.walk
        if walk is None or walk.name != name:
            walk = self.cursor.walk = Walk(name)
        roots = (folder, folder.parent / "gold", folder.parent / "corpus.yaml")
        while not walk.done:
            for path, entry in _files(roots[walk.root], walk.after):
                if path == READY and walk.root == 0:
                    continue
                stat = entry.stat(follow_symlinks=False)
                line = f"{walk.chain}\0{walk.root}\0{path}\0{stat.st_size}\0{stat.st_mtime_ns}"
                walk.chain = hashlib.sha256(line.encode("utf-8", "surrogateescape")).hexdigest()
                walk.after, walk.files = path, walk.files + 1
                if not walk.leftover and LEFTOVER.fullmatch(os.path.basename(path)):  # noqa: PTH119 - of 100,000 files
                    walk.leftover = printable(path)
                if walk.files % STEP == 0:
                    self._in_time(f"{walk.files} files of {name} were looked at")
            walk.root, walk.after = walk.root + 1, ""
            walk.done = walk.root == len(roots)
        walk.chain = walk.chain or "nothing"
        return walk

    def _hash(self, walk: Walk, folder: Path) -> None:
        """Hash what is not hashed yet, in as many ticks as it takes: opening the version then reads no document."""
        names = ("documents", "outputs")
        with FileHasher(self.home.hashes) as hasher:
            while walk.hashed_root < len(names):
                root = folder / names[walk.hashed_root]
                for count, (path, entry) in enumerate(_files(root, walk.hashed_after), 1):
                    if entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):  # opening the version names it
                            hasher(root / path)
                    walk.hashed_after = path
                    if count % HASHED == 0:
                        self._in_time(f"{root.name} of {walk.name} are hashed up to {printable(path)}")
                walk.hashed_root, walk.hashed_after = walk.hashed_root + 1, ""
        self._in_time(f"{walk.name} is hashed")


def _is_current(subject: Subject) -> bool:
    """Whether the newest complete evaluation is of exactly this state: a command made it, say."""
    manifest = subject.manifests.latest(subject.key.text)
    return manifest is not None and manifest.evaluation_id == subject.evaluation_id


def _subjects(home: Home) -> Iterator[tuple[str, Path]]:
    for corpus in list_corpora(home.corpora):
        for version in list_versions(home.corpora, corpus):
            yield f"{corpus}@{version}", home.corpora / corpus / version


def _files(root: Path, after: str) -> Iterator[tuple[str, Any]]:
    """Entries below a folder (or the file itself) as (path below it, entry), sorted by the parts of the path, behind `after`."""
    if root.is_file():
        if not after:
            yield root.name, root
        return
    if root.is_dir():
        yield from _below(str(root), "", tuple(after.split("/")) if after else ())


def _below(folder: str, prefix: str, after: tuple[str, ...]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        inside = after[1:] if after and entry.name == after[0] else ()
        if after and (entry.name < after[0] or (entry.name == after[0] and not inside)):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, f"{prefix}{entry.name}/", inside)
        else:
            yield prefix + entry.name, entry
