"""Layout: where the files of a corpus lie, which corpora and versions there are, and that no path leaves its corpus.

What stands in the files belongs in `documents`, `labels`, `references`, `outputs` and `settings`.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_eval_pipeline.corpus.faults import Faults, printable
from rag_eval_pipeline.corpus.keys import NAME, RESERVED, Key

READY = "_READY"
"""A file of this name in a version's folder says that nobody is still copying into it."""
DEPTH = 50
"""Folders below documents/, outputs/, transcripts/."""
IGNORED = frozenset({"Thumbs.db", "desktop.ini"})


@dataclass(frozen=True)
class Layout:
    """Folders and files of one corpus version."""

    corpora: Path
    key: Key

    @property
    def corpus(self) -> Path:
        """The corpus folder."""
        return self.corpora / self.key.corpus

    @property
    def version(self) -> Path:
        """The version's folder."""
        return self.corpus / self.key.version

    @property
    def documents(self) -> Path:
        """Where the documents lie; paths of documents are relative to it."""
        return self.version / "documents"

    @property
    def golds(self) -> tuple[Path, Path]:
        """Gold shared by all versions, then the version's own, which replaces it item by item."""
        return self.corpus / "gold", self.version / "gold"

    @property
    def outputs(self) -> Path:
        """What the user's own system produced."""
        return self.version / "outputs"

    def name(self, path: Path) -> str:
        """How messages name a file: below the corpora folder, with /, on one line."""
        below = path.relative_to(self.corpora).as_posix() if path.is_relative_to(self.corpora) else path.name
        return printable(below)

    def stays(self, path: Path) -> bool:
        """Whether a path, links followed, stays in the corpus."""
        return inside(path, self.corpus)


def inside(path: Path, folder: Path) -> bool:
    """Whether a path, links followed, lies in a folder. A link that leads to itself stays where it is, and is no file."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def list_corpora(corpora: Path) -> list[str]:
    """Names of all corpora in a folder, sorted."""
    if not corpora.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(corpora) if NAME.fullmatch(entry.name) and entry.is_dir())


def list_versions(corpora: Path, corpus: str) -> list[str]:
    """Names of a corpus's versions (folders that hold `documents/` or, where none are handed in, `outputs/`), sorted."""
    folder = corpora / corpus
    if not folder.is_dir():
        return []
    names = (entry.name for entry in os.scandir(folder) if NAME.fullmatch(entry.name) and entry.name not in RESERVED)
    return sorted(n for n in names if (folder / n / "documents").is_dir() or (folder / n / "outputs").is_dir())


def list_pipelines(corpora: Path, corpus: str) -> list[str]:
    """Names of a corpus's candidate pipelines, sorted; corpus.yaml's own is `default` and not among them."""
    found = (path.stem for path in (corpora / corpus / "pipelines").glob("*.yaml"))
    return sorted(name for name in found if NAME.fullmatch(name) and name != "default")


def unsafe_id(doc_id: str) -> str:
    """Why a doc_id can't be a path below a gold folder, or an empty string."""
    if not doc_id.strip():
        return "an empty id"
    if len(doc_id.encode("utf-8", "surrogatepass")) > 1024:
        return f"an id of {len(doc_id)} characters"
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in doc_id):
        return "an id with control characters"
    parts = doc_id.split("/")
    if ".." in parts or "." in parts:
        return "an id with a '.' or '..' segment"
    if doc_id.startswith("/") or doc_id.endswith("/"):
        return "an id that starts or ends with '/'"
    return "an id with a backslash" if "\\" in doc_id else ""


def walk(layout: Layout, root: Path, faults: Faults) -> Iterator[tuple[str, Path]]:
    """Files below `root` as (path below it with /, path), sorted; links that leave the corpus and odd files are faults."""
    if not root.is_dir():
        if root.exists() or root.is_symlink():
            faults.add(layout.name(root), None, "", "no folder", "a folder", "remove it, or make it a folder")
        return
    if not layout.stays(root):
        faults.add(layout.name(root), None, "", "a link that leaves the corpus", "a folder of the corpus", _COPY)
        return
    yield from _walk(layout, root, root, (os.path.realpath(root),), faults)


_COPY = "copy the files into the corpus instead"


def _walk(
    layout: Layout, root: Path, folder: Path, above: tuple[str, ...], faults: Faults
) -> Iterator[tuple[str, Path]]:
    if len(above) > DEPTH:
        faults.add(layout.name(folder), None, "", f"folders nested deeper than {DEPTH}", "fewer", "move them up")
        return
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        faults.unreadable(layout.name(folder), error)
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith(".") or entry.name in IGNORED:
            if entry.name not in {".gitkeep", ".DS_Store", ".gitignore"} | IGNORED:
                faults.warn(layout.name(path), None, "", "a hidden file", "no leading dot in its name", "it is ignored")
            continue
        if entry.is_symlink() and not _good_link(layout, path, faults):
            continue
        if entry.is_dir():
            real = os.path.realpath(path)
            if real in above:
                faults.add(layout.name(path), None, "", "a link to a folder above it", "no loop", "remove the link")
                continue
            yield from _walk(layout, root, path, (*above, real), faults)
        elif not entry.is_file():
            faults.add(layout.name(path), None, "", "neither a file nor a folder", "a file", "remove it")
        elif not _utf8(entry.name) or not _utf8(str(path.relative_to(root))):
            faults.add(layout.name(path), None, "", "a file name that isn't UTF-8", "a UTF-8 name", "rename it")
        else:
            yield path.relative_to(root).as_posix(), path


def _good_link(layout: Layout, path: Path, faults: Faults) -> bool:
    if not path.exists():
        faults.add(layout.name(path), None, "", "a link to nothing", "a file", "remove or mend the link")
        return False
    if not layout.stays(path):
        faults.add(layout.name(path), None, "", "a link that leaves the corpus", "a file of the corpus", _COPY)
        return False
    return True


def _utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
