"""Find what no manifest names: files of superseded runs, and what a kill left behind."""

from __future__ import annotations

import time
from pathlib import Path

from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline.warehouse.store import Store

QUIET_SECONDS = 3600
"""A younger file may belong to a run that is still going on."""


def removable(home: Home, quiet: float = QUIET_SECONDS) -> list[Path]:
    """Files of a local store that no manifest names, and temporary files, all older than `quiet` seconds."""
    store = Store(home.store)
    manifests = Manifests(home.manifests)
    tables = [*(m.tables for m in manifests.all()), *(c.tables for c in manifests.comparisons())]
    named = {store.path_of(entry["path"]) for entries in tables for entry in entries.values()}
    root = Path(home.store)
    limit = time.time() - quiet
    parts = [file for file in root.glob("*/corpus_version=*/*/part-*.parquet") if str(file) not in named]
    temporary = [*root.rglob(".*.tmp"), *home.memo.rglob(".*.tmp")]
    return sorted(file for file in (*parts, *temporary) if file.stat().st_mtime < limit)
