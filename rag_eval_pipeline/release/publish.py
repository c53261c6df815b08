"""Publish all evaluations into the DuckDB file, through a redactor over every labelled and predicted personal string."""

from __future__ import annotations

from dataclasses import replace

from rag_eval_pipeline.release.evaluated import kinds, schemas
from rag_eval_pipeline.release.redaction import TERMS
from rag_eval_pipeline.warehouse import publish as database
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Manifest, Manifests
from rag_eval_pipeline.warehouse.redact import Redactor
from rag_eval_pipeline.warehouse.store import Store, Stored


def publish(home: Home) -> database.Published:
    """Bring `rag_eval.duckdb` up to the manifests."""
    manifests = Manifests(home.manifests)
    evaluations = [_showable(manifest) for manifest in manifests.all()]
    shown = {name: schema for name, schema in schemas().items() if name != TERMS}
    accepted = {corpus: manifests.accepted(corpus) for corpus in {m.key.partition("@")[0] for m in evaluations}}
    there = {manifest.evaluation_id for manifest in evaluations if manifest.tables}
    comparisons = [c for c in manifests.comparisons() if {c.evaluation_before, c.evaluation_id} <= there]
    return database.publish(
        home.database,
        evaluations,
        accepted,
        shown,
        Store(home.store),
        lambda subject: redactor(home, subject),
        comparisons=comparisons,
        always={name: kind for name, kind in kinds().items() if name in shown},
        gates=[gate for gate in manifests.gates() if gate["evaluation_id"] in {m.evaluation_id for m in evaluations}],
    )


def _showable(manifest: Manifest) -> Manifest:
    """A run that stopped before its personal strings were collected is listed, but none of its texts can be redacted."""
    return manifest if TERMS in manifest.tables else replace(manifest, tables={})


def redactor(home: Home, subject: str) -> Redactor:
    """Over the strings of every evaluation of a subject: a label removed later still hides what it hid."""
    store = Store(home.store)
    terms: set[str] = set()
    for manifest in Manifests(home.manifests).all():
        entry = manifest.tables.get(TERMS)
        if manifest.key.partition("#")[0] == subject and entry:
            stored = Stored(TERMS, store.path_of(entry["path"]), entry["content_hash"], entry["rows"])
            terms.update(store.read(stored)["term"].to_list())
    return Redactor(terms)
