"""Evaluations: a manifest below all tables of a subject, made only when every one of them is there."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.release.evaluated import EVALUATED
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import NotMaterializedError, Subject
from rag_eval_pipeline.warehouse.fingerprint import library_versions
from rag_eval_pipeline.warehouse.manifests import Manifest
from rag_eval_pipeline.warehouse.memo import digest

LIBRARIES = (
    "rag_eval_pipeline",
    "dagster",
    "duckdb",
    "polars",
    "faiss-cpu",
    "torch",
    "sentence-transformers",
    "presidio-analyzer",
)


def complete_manifest(subject: Subject, started: str | None = None) -> Manifest:
    """The manifest of a subject all of whose tables are there.

    Raises:
        NotMaterializedError: tables are missing; all of them are named.
    """
    tables = _tables(subject)
    missing = [name for name, stored in tables.items() if stored is None]
    if missing:
        raise NotMaterializedError(
            f"evaluation of {subject.key.text} needs {len(missing)} tables that are not there: {', '.join(missing)}. "
            f"Materialize them in the UI, or run `rag-eval run {subject.key.text}`"
        )
    return _manifest(subject, "complete", tables, started)


def failed_manifest(subject: Subject, stopped_at: str, started: str | None = None) -> Manifest:
    """The manifest of a run that a blocking check or an error stopped: shown, never compared."""
    return _manifest(subject, "failed", _tables(subject), started, stopped_at)


def _tables(subject: Subject) -> dict[str, Any]:
    stages = {name: ("pipeline_id", subject.find(name)) for stage in STAGES for name in stage.tables}
    kept = {name: ("evaluation_id", subject.find_kept(name)) for step in EVALUATED for name in step.tables}
    return {name: None if stored is None else (kind, stored) for name, (kind, stored) in (stages | kept).items()}


def _manifest(
    subject: Subject, status: Any, tables: dict[str, Any], started: str | None, stopped_at: str | None = None
) -> Manifest:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(
        key=subject.key.text,
        evaluation_id=subject.evaluation_id,
        status=status,
        tables={
            name: {
                "path": subject.store.url(s),
                "content_hash": s.content_hash,
                "rows": s.rows,
                "kind": kind,
                "id": s.path.split(f"{kind}=")[1].partition("/")[0],
            }
            for name, (kind, s) in ((n, found) for n, found in tables.items() if found)
        },
        ids=subject.ids,
        config=subject.version.settings.model_dump(mode="json", by_alias=True),
        gold_hash=subject.version.gold.hash,
        documents_hash=subject.version.documents_hash,
        started=started or now,
        git_revision=_git_revision(subject.home.root),
        stopped_at=stopped_at,
        versions=library_versions(LIBRARIES),
        parts=subject.parts,
        measuring={name: digest(value) for name, value in subject.measuring.items()},
        clusters=dict(subject.version.gold.queries.select("query_id", "cluster_id").drop_nulls().iter_rows()),
        judged=_judged(subject.version.gold),
    )


def _judged(gold: Gold) -> dict[str, str]:
    """A hash of each query's judgments."""
    rows: dict[str, list[Any]] = {}
    for name, frame in (("document", gold.qrels), ("chunk", gold.chunk_qrels)):
        for query, *rest in frame.sort(frame.columns).select("query_id", pl.exclude("query_id")).iter_rows():
            rows.setdefault(query, []).append([name, *rest])
    return {query: digest(judgments)[:12] for query, judgments in sorted(rows.items())}


def _git_revision(folder: Path) -> str:
    """The user's revision, where the data lies in a checkout; empty elsewhere."""
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(folder), "rev-parse", "HEAD"],  # noqa: S607
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
