"""Mirror corpora from an fsspec URL into the corpora folder: whole versions or nothing, resumable, no path leaves its corpus.

A version appears by one rename, once all of it is here and the source did not change meanwhile. Its documents are never
touched again; labels, outputs and settings follow the source. Nothing is deleted here because it was deleted there, but
labels and settings that the mirror itself had put. How often this runs and from where belongs in `orchestration`.

State lies below `.mirror/` in the corpora folder, whose name no corpus can have.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rag_eval_pipeline.corpus.faults import printable
from rag_eval_pipeline.corpus.keys import NAME, RESERVED
from rag_eval_pipeline.corpus.layout import READY, unsafe_id

FOLDER = ".mirror"
BATCH_FILES, BATCH_BYTES = 256, 16_000_000
"""What is fetched between two looks at the clock; sources that can fetch side by side do so within it."""
BLOCK = 8_000_000
"""A larger file is fetched in blocks of so many bytes, and goes on where it stopped."""
TAGS = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "mtime", "LastModified", "last_modified", "updated")
"""Fields of fsspec's listings that change when a file does, best first."""
SHARED = ("gold", "pipelines")

Listing = dict[str, tuple[int, str]]
"""Path below a folder -> (size in bytes, tag)."""


class SourceError(Exception):
    """The source can't be read, or holds what must not be copied; the message says what to do."""


class _UnsettledError(SourceError):
    """The source changed while it was read: the next pass reads it again."""


class _TimeUpError(Exception):
    """No time is left in this pass."""


@dataclass
class Mirrored:
    """What a pass did.

    Attributes:
        placed: versions that appeared.
        followed: corpora and versions whose labels or settings were renewed.
        removed: labels and settings that went because the source has them no more.
        waits: what the next pass takes up: not quiet yet, changed meanwhile, out of time.
        refused: what a person has to mend.
    """

    placed: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """What a person is to know."""
        return [*self.waits, *self.refused]

    @property
    def changes(self) -> list[str]:
        """What came and went, in words."""
        return [
            *(f"{key} is mirrored" for key in self.placed),
            *(f"labels or settings of {key} are renewed" for key in self.followed),
            *(f"{name} is removed, as it was at the source" for name in self.removed),
        ]


@dataclass
class _State:
    """What is known of a source between passes.

    Attributes:
        seen: corpus, or corpus@version -> (signature, since when it is so).
        corpora: corpora that this source made here.
        versions: corpus@version -> signature of the documents that were placed.
        files: corpus, or corpus@version -> labels and settings that were put, by path.
        after: corpus@version at which the last pass stopped.
    """

    seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    corpora: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, Listing] = field(default_factory=dict)
    after: str = ""


def mirror(
    corpora: Path,
    url: str,
    options: Mapping[str, Any],
    *,
    quiet: float = 60,
    ready: str = "optional",
    budget: float = 30,
) -> Mirrored:
    """One pass over a source, within a budget of seconds; the next one goes on where it stopped.

    Args:
        corpora: the folder of all corpora.
        url: where they come from: `<url>/<corpus>/<version>/documents/…`, `<url>/<corpus>/gold/…`, `<url>/<corpus>/corpus.yaml`.
        options: fsspec's, such as `endpoint_url`.
        quiet: seconds for which a version's listing must stay the same before it is copied; not asked of one with `_READY`.
        ready: `required` takes only versions with `_READY`.
        budget: seconds.
    """
    root = corpora / FOLDER / hashlib.sha256(url.encode()).hexdigest()[:12]
    root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(root / "lock", timeout=0):
            return _Pass(corpora, root, url, options, quiet, ready, budget).run()
    except Timeout:
        return Mirrored(waits=[f"{url}: another process mirrors it now"])


class _Pass:
    """One pass, with its source, clock and state."""

    def __init__(
        self, corpora: Path, root: Path, url: str, options: Mapping[str, Any], quiet: float, ready: str, budget: float
    ) -> None:
        self.corpora, self.root, self.url, self.options = corpora, root, url, options
        self.quiet, self.ready = quiet, ready
        self.deadline = time.monotonic() + budget
        self.done, self.shared = Mirrored(), dict[str, Listing]()
        self.state = self._load()

    def run(self) -> Mirrored:
        try:
            self._open()
            found = [(name, version) for name in self._folders(self.base) for version in self._versions(name)]
        except SourceError as error:
            self.done.refused.append(str(error))
            return self.done
        start = next((i for i, (name, version) in enumerate(found) if f"{name}@{version}" > self.state.after), 0)
        try:
            for name, version in found[start:] + found[:start]:
                self._in_time()
                self._attempt(f"{name}@{version}", self._look_at, name, version)
                self.state.after = f"{name}@{version}"
            self.state.after = ""
        except _TimeUpError as error:
            self.done.waits.append(f"{str(error) or 'time is up'}; the next pass goes on there")
        self._save()
        return self.done

    def _versions(self, name: str) -> list[str]:
        return [version for version in self._folders(f"{self.base}/{name}") if version not in RESERVED]

    # One version -------------------------------------------------------------------------------------------------------

    def _look_at(self, name: str, version: str) -> None:
        key, target = f"{name}@{version}", self.corpora / name / version
        if not self._is_ours(name):
            raise SourceError(f"not mirrored: a corpus {name} is here already and came from elsewhere; rename one")
        if target.is_dir() and key not in self.state.versions:
            raise SourceError(
                "not mirrored: a version of this name is here already and came from elsewhere; rename one"
            )
        listing = self._version(name, version)
        if not any(path.startswith(("documents/", "outputs/")) for path in listing):
            return
        shared, ready = self._shared(name), READY in listing
        # Both clocks run from the first look on, so neither `settled` is left out.
        if not all([self._settled(key, listing, ready), self._settled(name, shared, ready)]):
            return
        if not target.is_dir():
            self._fetch(key, f"{self.base}/{name}/{version}", listing, self.root / "stages" / name / version)
        self._follow(name, self.corpora / name, f"{self.base}/{name}", shared, lambda: self._list_shared(name))
        if target.is_dir():
            self._follow_version(name, version, listing)
        else:
            self._place(name, version, listing)

    def _attempt(self, key: str, step: Callable[..., None], *arguments: Any) -> None:
        """One step; what forbids it is a note, and the other versions go on."""
        try:
            step(*arguments)
        except _UnsettledError as error:
            self.done.waits.append(f"{key}: {error}")
        except SourceError as error:
            self.done.refused.append(f"{key}: {error}")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self.done.refused.append(f"{key} can't be written ({reason}); make room or give permission")

    def _is_ours(self, name: str) -> bool:
        if name in self.state.corpora:
            return True
        if (self.corpora / name).exists():
            return False
        self.state.corpora.append(name)
        self._save()  # before the folder is made, so that a kill between the two leaves no corpus that nobody owns
        return True

    def _settled(self, key: str, listing: Listing, ready: bool) -> bool:
        """Whether a listing is as it was for long enough; notes what is waited for."""
        now, signature = time.time(), _signature(listing)
        before, since = self.state.seen.get(key, ("", now))
        since = min(since, now) if before == signature else now
        self.state.seen[key] = (signature, since)
        if ready:
            return True
        if self.ready == "required" and "@" in key:
            self.done.waits.append(f"{key} waits for its file {READY} at the source")
            return False
        if before != signature or now - since < self.quiet:
            self.done.waits.append(f"{key} changed at the source; waiting until it is quiet for {self.quiet:g} s")
            return False
        return True

    def _place(self, name: str, version: str, listing: Listing) -> None:
        """Look again whether the source is still what was copied aside, and let the version appear by one rename."""
        key, stage = f"{name}@{version}", self.root / "stages" / name / version
        self._same_still(key, listing, self._version(name, version))
        (self.corpora / name).mkdir(parents=True, exist_ok=True)
        self.state.versions[key] = _signature(_part(listing, frozen=True))
        self.state.files[key] = _part(listing, frozen=False)
        self._save()  # before the rename: a version that is here and not in the state would be nobody's
        stage.rename(self.corpora / name / version)
        _listing_file(stage).unlink(missing_ok=True)
        self.done.placed.append(key)

    def _follow_version(self, name: str, version: str, listing: Listing) -> None:
        key, folder = f"{name}@{version}", f"{self.base}/{name}/{version}"
        if self.state.versions[key] != _signature(_part(listing, frozen=True)):
            self.done.refused.append(
                f"the documents of {key} changed at the source after they were mirrored; they are left as they are here: "
                "hand in the new ones as a new version"
            )
        labels = _part(listing, frozen=False)
        self._follow(
            key,
            self.corpora / name / version,
            folder,
            labels,
            lambda: _part(self._version(name, version), frozen=False),
        )

    def _follow(self, key: str, folder: Path, source: str, listing: Listing, again: Callable[[], Listing]) -> None:
        """Make labels and settings here what they are at the source: fetched aside first, then renamed file by file."""
        known = self.state.files.get(key, {})
        changed = {path: entry for path, entry in listing.items() if known.get(path) != entry}
        gone = [path for path in known if path not in listing]
        if not changed and not gone:
            return
        for path in (*changed, *gone):
            self._inside(folder, path)
        stage = self.root / "labels" / key
        self._fetch(key, source, changed, stage)
        self._same_still(key, listing, again())
        for path in gone:
            (folder / path).unlink(missing_ok=True)
        for path in changed:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (stage / path).replace(folder / path)
        self.state.files[key] = dict(listing)
        self._save()
        shutil.rmtree(stage, ignore_errors=True)
        _listing_file(stage).unlink(missing_ok=True)
        self.done.followed.append(key)
        self.done.removed += [f"{printable(path)} of {key}" for path in gone]

    def _inside(self, folder: Path, path: str) -> None:
        """Refuse to write through a link that someone put into the corpus."""
        home = self.corpora.resolve()
        if not (folder / path).parent.resolve().is_relative_to(home / folder.relative_to(self.corpora).parts[0]):
            raise SourceError(f"{printable(path)} would leave the corpus through a link that is here; remove the link")

    def _same_still(self, key: str, before: Listing, now: Listing) -> None:
        if _signature(before) != _signature(now):
            self.state.seen.pop(key, None)
            raise _UnsettledError("changed at the source while it was copied; it is copied again once it is quiet")

    # Listings ----------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        import fsspec
        from fsspec.core import url_to_fs

        try:
            fsspec.get_filesystem_class(self.url.partition("://")[0])
        except ImportError:
            extra = "the extra [s3]" if self.url.startswith("s3") else "fsspec's package for it"
            raise SourceError(f"{self.url} needs a package that is not installed: install {extra}") from None
        except ValueError:
            raise SourceError(
                f"{self.url}: fsspec knows no such kind of URL; expected s3://, gs://, abfs://, file://, …"
            ) from None
        options = {"skip_instance_cache": True, "use_listings_cache": False, **self.options}
        self.fs, self.base = self._ask("opened", lambda: url_to_fs(self.url, **options))
        self.base = self.base.rstrip("/")
        self.local = "file" in ((self.fs.protocol,) if isinstance(self.fs.protocol, str) else self.fs.protocol)

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """A call to the source. Its errors are told by class alone: their messages may hold addresses and credentials."""
        try:
            return call()
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) and error.errno else None
            raise SourceError(
                f"{self.url} can't be {what} ({reason or type(error).__name__}); see its address, options and rights"
            ) from error

    def _folders(self, folder: str) -> list[str]:
        """Names of folders that are allowed, sorted; others are told."""
        entries = self._ask("listed", lambda: self.fs.ls(folder, detail=True))
        names = sorted({e["name"].rstrip("/").rpartition("/")[2] for e in entries if e["type"] == "directory"})
        for name in names:
            if not NAME.fullmatch(name) and not name.startswith("."):
                self.done.refused.append(
                    f"{printable(name[:100])} at the source is no name of a corpus or version (rule: ^{NAME.pattern}$)"
                )
        return [name for name in names if NAME.fullmatch(name)]

    def _version(self, name: str, version: str) -> Listing:
        return self._listing(f"{self.base}/{name}/{version}")

    def _shared(self, name: str) -> Listing:
        """Labels and settings of all versions of a corpus, listed once a pass."""
        if name not in self.shared:
            self.shared[name] = self._list_shared(name)
        return self.shared[name]

    def _list_shared(self, name: str) -> Listing:
        found: Listing = {}
        entries = self._ask("listed", lambda: self.fs.ls(f"{self.base}/{name}", detail=True))
        kinds = {entry["name"].rstrip("/").rpartition("/")[2]: entry for entry in entries}
        for folder in SHARED:
            if kinds.get(folder, {}).get("type") == "directory":
                below = self._listing(f"{self.base}/{name}/{folder}")
                found |= {f"{folder}/{path}": entry for path, entry in below.items()}
        if kinds.get("corpus.yaml", {}).get("type") == "file":
            found["corpus.yaml"] = _entry(kinds["corpus.yaml"])
        return found

    def _listing(self, folder: str) -> Listing:
        """Files below a folder of the source.

        Raises:
            SourceError: one of them has a path that can't be a file of a corpus.
        """
        found = self._ask("listed", lambda: self.fs.find(folder, detail=True))
        listing: Listing = {}
        for name, info in found.items():
            path = name[len(folder) + 1 :] if name.startswith(f"{folder}/") else ""
            if info["type"] == "directory" or name.rstrip("/") == folder or (name.endswith("/") and not info["size"]):
                continue  # a folder, or the empty object that stands for one
            if why := self._refused(path, name, info):
                shown = printable((path or name)[:200])
                raise SourceError(
                    f"{folder.removeprefix(self.base + '/')}: {shown} is {why}; rename or remove it at the source"
                )
            listing[path] = _entry(info)
        for path in listing:
            if any(str(parent) in listing for parent in Path(path).parents):
                raise SourceError(
                    f"{folder.removeprefix(self.base + '/')}: {printable(path[:200])} lies below a file; rename one of them"
                )
        return listing

    def _refused(self, path: str, name: str, info: Mapping[str, Any]) -> str:
        """Why a path of the source can't be one of a corpus, or nothing."""
        if not path:
            return "outside its folder"
        if why := unsafe_id(path):
            return why.replace("an id", "a path")
        parts = path.split("/")
        if "" in parts:
            return "a path with an empty segment"
        if any(len(part.encode()) > 255 for part in parts):
            return "a path with a name longer than 255 bytes"
        if info.get("islink") or info["type"] != "file":
            return "a link or no file"
        if self.local and not Path(name).resolve().is_relative_to(Path(self.base).resolve()):
            return "a file that lies elsewhere"
        return ""

    # Copying -----------------------------------------------------------------------------------------------------------

    def _fetch(self, key: str, folder: str, listing: Listing, stage: Path) -> None:
        """Bring the stage up to the listing; what is there and unchanged stays.

        The clock is asked after each batch, so that a pass gets on even where listing took all its time.
        """
        _renew(stage, listing)
        missing = {path: entry for path, entry in listing.items() if not (stage / path).exists()}
        needed, free = sum(size for size, _ in missing.values()), shutil.disk_usage(self.root).free
        if needed > free:
            raise SourceError(f"needs {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free here; make room")
        done = len(listing) - len(missing)
        parts = self.root / "parts"
        parts.mkdir(exist_ok=True)
        for batch in _batches(missing):
            pairs = {path: parts / _part_name(key, path, entry) for path, entry in batch.items()}
            self._get(key, folder, batch, pairs)
            for path, part in pairs.items():
                if part.stat().st_size != batch[path][0]:
                    part.unlink()
                    raise _UnsettledError(
                        f"{printable(path[:200])} has another size than its listing says; it is copied again in the next pass"
                    )
                (stage / path).parent.mkdir(parents=True, exist_ok=True)
                part.replace(stage / path)
            done += len(batch)
            if done < len(listing):
                self._in_time(f"{done} of {len(listing)} files of {key} are copied")
        stage.mkdir(parents=True, exist_ok=True)

    def _get(self, key: str, folder: str, batch: Listing, pairs: Mapping[str, Path]) -> None:
        (path, (size, _)), *more = batch.items()
        if not more and size > BLOCK:
            self._get_blocks(key, f"{folder}/{path}", size, pairs[path])
            return
        sources, targets = [f"{folder}/{path}" for path in pairs], [str(part) for part in pairs.values()]
        self._ask("read", lambda: self.fs.get(sources, targets))

    def _get_blocks(self, key: str, source: str, size: int, part: Path) -> None:
        have = part.stat().st_size if part.exists() else 0
        with part.open("ab") as stream:
            while have < size:
                block = self._block(source, have, min(have + BLOCK, size))
                if not block:
                    raise _UnsettledError(
                        "a file became shorter while it was copied; it is copied again once it is quiet"
                    )
                stream.write(block)
                have += len(block)
                if have < size:
                    self._in_time(f"{have / 1e6:.0f} of {size / 1e6:.0f} MB of a file of {key} are copied")

    def _block(self, source: str, start: int, end: int) -> bytes:
        return bytes(self._ask("read", lambda: self.fs.cat_file(source, start=start, end=end)))

    def _in_time(self, told: str = "") -> None:
        if time.monotonic() > self.deadline:
            raise _TimeUpError(told)

    # State -------------------------------------------------------------------------------------------------------------

    def _load(self) -> _State:
        path = self.root / "state.json"
        if not path.is_file():
            return _State()
        found = json.loads(path.read_text("utf-8"))
        found["seen"] = {key: (str(s), float(t)) for key, (s, t) in found["seen"].items()}
        found["files"] = {key: _read_listing(listing) for key, listing in found["files"].items()}
        return _State(**found)

    def _save(self) -> None:
        _write(self.root / "state.json", vars(self.state))


def _part(listing: Listing, *, frozen: bool) -> Listing:
    """The documents of a version, or the rest of it."""
    return {
        p: e
        for p, e in listing.items()
        if (p.startswith("documents/") or p == "documents.jsonl") == frozen and p != READY
    }


def _entry(info: Mapping[str, Any]) -> tuple[int, str]:
    tag = next((str(info[name]) for name in TAGS if info.get(name) is not None), "")
    return int(info["size"] or 0), tag


def _signature(listing: Listing) -> str:
    rows = sorted((path, *entry) for path, entry in listing.items() if path != READY)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def _batches(listing: Listing) -> Iterable[Listing]:
    """Files in groups; one that is fetched in blocks stands alone."""
    batch: Listing = {}
    size = 0
    for path, entry in sorted(listing.items()):
        if batch and (len(batch) >= BATCH_FILES or size + entry[0] > BATCH_BYTES or entry[0] > BLOCK):
            yield batch
            batch, size = {}, 0
        batch[path] = entry
        size += entry[0]
        if entry[0] > BLOCK:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _renew(stage: Path, listing: Listing) -> None:
    """Remove from a stage what is not as the listing has it, and say what it is to hold now."""
    record = _listing_file(stage)
    before = _read_listing(json.loads(record.read_text("utf-8"))) if record.is_file() else {}
    for path, entry in before.items():
        if listing.get(path) != entry:
            (stage / path).unlink(missing_ok=True)
    if before != listing:
        _write(record, listing)
    for folder, folders, files in os.walk(stage, topdown=False):
        if not folders and not files and Path(folder) != stage:
            Path(folder).rmdir()


def _listing_file(stage: Path) -> Path:
    return stage.with_name(f"{stage.name}.listing.json")


def _read_listing(found: Mapping[str, Any]) -> Listing:
    return {path: (int(size), str(tag)) for path, (size, tag) in found.items()}


def _part_name(key: str, path: str, entry: tuple[int, str]) -> str:
    return hashlib.sha256(json.dumps([key, path, entry]).encode()).hexdigest()[:32]


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value), "utf-8")
    temporary.replace(path)
