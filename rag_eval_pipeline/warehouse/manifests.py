"""Manifests: which stored tables make one evaluation. No manifest, no evaluation: half a run is invisible.

Files of JSON, each written to a temporary name and renamed. What a manifest means to people belongs to `release` and
`publish`.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rag_eval_pipeline.engine.kills import reached


@dataclass(frozen=True)
class Manifest:
    """One evaluation of a key: the tables that it stands on, by store path and content hash.

    Attributes:
        key: corpus@version[#pipeline].
        evaluation_id: what decides every figure.
        status: `complete`, or `failed` where a blocking check stopped the run.
        tables: table name -> {path, content_hash, rows, id, kind}.
        ids: stage -> pipeline_id.
        config: corpus.yaml with the pipeline laid over it, as evaluated.
        stopped_at: asset at which a failed run stopped.
    """

    key: str
    evaluation_id: str
    status: Literal["complete", "failed"]
    tables: dict[str, dict[str, Any]]
    ids: dict[str, str]
    config: dict[str, Any]
    gold_hash: str
    documents_hash: str
    started: str
    git_revision: str = ""
    stopped_at: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


class Manifests:
    """Manifests and acceptance marks below `<root>`, always a local or mounted folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, manifest: Manifest) -> Path:
        """Make the evaluation visible. A complete manifest is never replaced by a failed one."""
        path = self._path(manifest.key, manifest.evaluation_id)
        if manifest.status == "failed" and path.is_file() and self._read(path).status == "complete":
            return path
        _replace(path, asdict(manifest), "manifest")
        return path

    def all(self) -> list[Manifest]:
        """Every evaluation, by key and start."""
        found = [self._read(path) for path in self.root.glob("_evaluations/*/*.json")]
        return sorted(found, key=lambda m: (m.key, m.started, m.evaluation_id))

    def of(self, key: str) -> list[Manifest]:
        """The evaluations of one key, oldest first."""
        return [m for m in self.all() if m.key == key]

    def find(self, key: str, evaluation_id: str) -> Manifest | None:
        """One evaluation; `evaluation_id` may be a unique beginning of it."""
        matches = [m for m in self.of(key) if m.evaluation_id.startswith(evaluation_id)]
        return matches[0] if len(matches) == 1 else None

    def latest(self, key: str) -> Manifest | None:
        """The newest complete evaluation of a key."""
        complete = [m for m in self.of(key) if m.status == "complete"]
        return complete[-1] if complete else None

    def accept(self, key: str, evaluation_id: str) -> None:
        """Mark an evaluation as the accepted baseline of its corpus."""
        corpus = key.partition("@")[0]
        mark = {"key": key, "evaluation_id": evaluation_id, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        _replace(self.root / "_accepted" / f"{corpus}.json", mark)

    def accepted(self, corpus: str) -> tuple[str, str] | None:
        """(key, evaluation_id) of the accepted baseline."""
        path = self.root / "_accepted" / f"{corpus}.json"
        if not path.is_file():
            return None
        mark = json.loads(path.read_text("utf-8"))
        return mark["key"], mark["evaluation_id"]

    def freeze(self, subject: str, documents_hash: str) -> str:
        """Record the documents that a subject first ran with; returns the recorded hash."""
        path = self.root / "_subjects" / f"{subject}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
        temporary.write_text(json.dumps({"documents_hash": documents_hash}), "utf-8")
        try:
            path.hardlink_to(temporary)  # fails where it exists: the first run decides, also between processes
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        return str(json.loads(path.read_text("utf-8"))["documents_hash"])

    def frozen(self, subject: str) -> str | None:
        """The documents hash that a subject first ran with, if it ran."""
        path = self.root / "_subjects" / f"{subject}.json"
        return str(json.loads(path.read_text("utf-8"))["documents_hash"]) if path.is_file() else None

    def _path(self, key: str, evaluation_id: str) -> Path:
        return self.root / "_evaluations" / key / f"{evaluation_id}.json"

    def _read(self, path: Path) -> Manifest:
        return Manifest(**json.loads(path.read_text("utf-8")))


def _replace(path: Path, value: dict[str, Any], what: str = "mark") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True, default=str), "utf-8")
    reached(f"{what}:temporary")
    temporary.replace(path)
