"""Where the project's data lives: one folder with corpora, the store, the memo, and the database for people."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """Paths below one data folder. The store alone may stand elsewhere, on any fsspec URL."""

    root: Path
    store: str

    @classmethod
    def find(cls) -> Home:
        """RAG_EVAL_DATA, else `data/` in the current folder; RAG_EVAL_STORE, else `warehouse/` below it."""
        root = Path(os.environ.get("RAG_EVAL_DATA", "data")).absolute()
        return cls(root, os.environ.get("RAG_EVAL_STORE", str(root / "warehouse")))

    @property
    def corpora(self) -> Path:
        """What users hand us."""
        return self.root / "corpora"

    @property
    def manifests(self) -> Path:
        """Manifests and marks; always local or mounted."""
        return self.root / "warehouse"

    @property
    def memo(self) -> Path:
        """Computed values by content."""
        return self.root / "memo"

    @property
    def replies(self) -> Path:
        """What endpoints replied, kept for ever: it was paid for."""
        return self.root / "replies"

    @property
    def hashes(self) -> Path:
        """Hashes of files by path, size and time: an unchanged file is hashed once."""
        return self.root / "memo" / "file_hashes.json"

    @property
    def database(self) -> Path:
        """The DuckDB file for people."""
        return self.root / "rag_eval.duckdb"

    @property
    def reports(self) -> Path:
        """One HTML file an evaluation."""
        return self.root / "reports"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME."""
        return self.root / "dagster_home"
