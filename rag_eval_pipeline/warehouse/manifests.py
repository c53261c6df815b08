"""Manifests: which stored tables make one evaluation, or one comparison of two. Without one, half a run is invisible.

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
        parts: stage -> part (config, code, model, input:<name>) -> hash; empty in manifests written before there were parts.
        measuring: hash of each part of how it was measured: evaluate, ledger, code; empty likewise.
        clusters: query_id -> cluster_id of gold, for intervals of a comparison; queries without a cluster are left out.
        judged: query_id -> hash of its judged documents and chunks; queries without any are left out.
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
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    measuring: dict[str, str] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    judged: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """What was computed from two evaluations, by store path and content hash.

    Attributes:
        comparison_id: hash of both evaluations and of the code that compares.
        key_before: key of the evaluation that is compared with.
        evaluation_before: its id.
        key: key of the evaluation that is compared.
        evaluation_id: its id.
        tables: table name -> {path, content_hash, rows, id, kind}.
        changes: what differs between the two, as `attribution.changes` records it.
        made: when.
    """

    comparison_id: str
    key_before: str
    evaluation_before: str
    key: str
    evaluation_id: str
    tables: dict[str, dict[str, Any]]
    changes: dict[str, Any]
    made: str


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
        if "/" in key:  # no key, and no name of a folder of ours
            return []
        found = [self._read(path) for path in (self.root / "_evaluations" / key).glob("*.json")]
        return sorted(found, key=lambda m: (m.started, m.evaluation_id))

    def find(self, key: str, evaluation_id: str) -> Manifest | None:
        """One evaluation; `evaluation_id` may be a unique beginning of it."""
        matches = [m for m in self.of(key) if m.evaluation_id.startswith(evaluation_id)]
        return matches[0] if len(matches) == 1 else None

    def latest(self, key: str) -> Manifest | None:
        """The newest complete evaluation of a key."""
        complete = [m for m in self.of(key) if m.status == "complete"]
        return complete[-1] if complete else None

    def compare(self, comparison: Comparison) -> Path:
        """Make a comparison visible, in place of an older one of the same two evaluations."""
        path = self._comparison(comparison.comparison_id)
        _replace(path, asdict(comparison), "comparison")
        pair = (comparison.evaluation_before, comparison.evaluation_id)
        for other in self.comparisons():
            if (
                other.evaluation_before,
                other.evaluation_id,
            ) == pair and other.comparison_id != comparison.comparison_id:
                self._comparison(other.comparison_id).unlink(missing_ok=True)
        return path

    def comparisons(self) -> list[Comparison]:
        """Every comparison, by the keys and ids of its two sides."""
        found = [Comparison(**json.loads(path.read_text("utf-8"))) for path in self.root.glob("_comparisons/*.json")]
        return sorted(found, key=lambda c: (c.key, c.evaluation_id, c.key_before, c.evaluation_before))

    def comparison(self, comparison_id: str) -> Comparison | None:
        """One comparison."""
        path = self._comparison(comparison_id)
        return Comparison(**json.loads(path.read_text("utf-8"))) if path.is_file() else None

    def keep_gate(self, gate_id: str, record: dict[str, Any]) -> Path:
        """Keep a release gate's verdict; the same question has one file."""
        path = self.root / "_gates" / f"{gate_id}.json"
        _replace(path, record, "gate")
        return path

    def gates(self) -> list[dict[str, Any]]:
        """Every verdict, oldest first."""
        found = [json.loads(path.read_text("utf-8")) for path in self.root.glob("_gates/*.json")]
        return sorted(found, key=lambda record: (record["made"], record["gate_id"]))

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

    def _comparison(self, comparison_id: str) -> Path:
        return self.root / "_comparisons" / f"{comparison_id}.json"

    def _read(self, path: Path) -> Manifest:
        return Manifest(**json.loads(path.read_text("utf-8")))


def _replace(path: Path, value: dict[str, Any], what: str = "mark") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True, default=str), "utf-8")
    reached(f"{what}:temporary")
    temporary.replace(path)
