"""Read a finished evaluation through its manifest: what the command line and reports show, whatever changed since."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.release.publish import redactor
from rag_eval_pipeline.stages.graph import configure
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Manifest, Manifests
from rag_eval_pipeline.warehouse.redact import Redactor
from rag_eval_pipeline.warehouse.store import Store, Stored


class NoEvaluationError(LookupError):
    """There is no evaluation to read; the message says how to make one."""


@dataclass
class Evaluation:
    """One evaluation's tables, by the manifest's own paths."""

    home: Home
    manifest: Manifest
    _frames: dict[str, pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def latest(cls, home: Home, key: str) -> Evaluation:
        """The newest complete evaluation of a key.

        Raises:
            NoEvaluationError: there is none.
        """
        manifest = Manifests(home.manifests).latest(key)
        if manifest is None:
            known = sorted({m.key for m in Manifests(home.manifests).all()})
            raise NoEvaluationError(
                f"{key} has no complete evaluation; make one by `rag-eval run {key}`. Evaluated are: {', '.join(known) or 'none yet'}"
            )
        return cls(home, manifest)

    @classmethod
    def of(cls, home: Home, key: str, evaluation_id: str) -> Evaluation:
        """One evaluation of a key.

        Raises:
            NoEvaluationError: it has no manifest.
        """
        manifest = Manifests(home.manifests).find(key, evaluation_id)
        if manifest is None:
            raise NoEvaluationError(
                f"there is no manifest of evaluation {evaluation_id} of {key}; `rag-eval evaluations` lists those that there are"
            )
        return cls(home, manifest)

    def frame(self, name: str) -> pl.DataFrame:
        """A table of the evaluation.

        Raises:
            NoEvaluationError: it was made before there was such a table, or stopped before it.
        """
        if name not in self._frames:
            if name not in self.manifest.tables:
                raise NoEvaluationError(
                    f"evaluation {self.manifest.evaluation_id} has no table {name}; make it by `rag-eval run {self.manifest.key}`"
                )
            entry = self.manifest.tables[name]
            store = Store(self.home.store)
            self._frames[name] = store.read(
                Stored(name, store.path_of(entry["path"]), entry["content_hash"], entry["rows"])
            )
        return self._frames[name]

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """All tables."""
        return {name: self.frame(name) for name in self.manifest.tables}

    @cached_property
    def redactor(self) -> Redactor:
        """Hides every personal string of the subject."""
        return redactor(self.home, self.manifest.key.partition("#")[0])

    @property
    def served(self) -> str:
        """The retriever that the pipeline serves."""
        return str(configure(self._settings)["context"].serve)

    @property
    def serve_k(self) -> int:
        """How many items it serves."""
        return self._settings.evaluate.serve_k

    @property
    def _settings(self) -> Settings:
        return Settings(**self.manifest.config)
