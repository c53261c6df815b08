"""One self-contained HTML file an evaluation: waterfall, costly documents, stories of lost queries, scorecard, provenance.

Everything in it went through the redactor; it loads nothing from anywhere. What a figure means stands in its own room.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.story import story
from rag_eval_pipeline.release.reading import Evaluation

STORIES = 40
DOCUMENTS = 15


def write_report(evaluation: Evaluation) -> Path:
    """Write `reports/<key>/<evaluation_id>.html`, whole or not at all; returns its path."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rag_eval_pipeline", "release"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    text = environment.get_template("report.html.j2").render(_content(evaluation))
    path = evaluation.home.reports / evaluation.manifest.key / f"{evaluation.manifest.evaluation_id}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
    return path


def _content(evaluation: Evaluation) -> dict[str, Any]:
    manifest, retriever = evaluation.manifest, evaluation.served
    k = evaluation.serve_k
    waterfall = evaluation.frame("loss_waterfall").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & (pl.col("slice_name") == "all")
    )
    rows = waterfall.sort("position").to_dicts()
    first = rows[0] if rows else {"recall": 0.0, "n_units": 0, "n_queries": 0, "n_ineligible": 0, "unseen_stages": []}
    lost = _lost(evaluation, retriever, k)
    queries = lost["query_id"].unique(maintain_order=True).to_list()
    score = evaluation.frame("scorecard").filter(pl.col("slice_name") == "all")
    return {
        "key": manifest.key,
        "evaluation_id": manifest.evaluation_id,
        "started": manifest.started,
        "source_text": bool(manifest.config.get("publish", {}).get("source_text")),
        "retriever": retriever,
        "k": k,
        "recall": first["recall"],
        "n_units": first["n_units"],
        "n_queries": first["n_queries"],
        "n_ineligible": first["n_ineligible"],
        "unseen": first["unseen_stages"],
        "waterfall": rows,
        "documents": _documents(lost),
        "stories": [_story(evaluation, query, lost, retriever, k) for query in queries[:STORIES]],
        "more": max(len(queries) - STORIES, 0),
        "scorecard": score.sort("stage", "metric", "retriever", "unit", "k", "params").to_dicts(),
        "provenance": [
            ("documents", manifest.documents_hash),
            ("gold", manifest.gold_hash),
            ("git revision", manifest.git_revision or "not in a checkout"),
            *sorted(manifest.versions.items()),
        ],
    }


def _lost(evaluation: Evaluation, retriever: str, k: int) -> pl.DataFrame:
    fate = evaluation.frame("evidence_fate").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & pl.col("eligible") & ~pl.col("served")
    )
    units = evaluation.frame("evidence_units").select("query_id", "evidence_id", "doc_id")
    return fate.join(units, on=["query_id", "evidence_id"]).sort("first_loss_stage", "query_id", "evidence_id")


def _documents(lost: pl.DataFrame) -> list[dict[str, Any]]:
    counted = lost.group_by("doc_id", "first_loss_stage", "cause").agg(pl.len().alias("units"))
    return counted.sort(["units", "doc_id"], descending=[True, False]).head(DOCUMENTS).to_dicts()


def _story(evaluation: Evaluation, query: str, lost: pl.DataFrame, retriever: str, k: int) -> dict[str, str]:
    units, ledger, fates = (evaluation.frame(name) for name in ("evidence_units", "evidence_ledger", "evidence_fate"))
    text = evaluation.frame("prepared_queries").filter(pl.col("query_id") == query)["text"]
    stages = lost.filter(pl.col("query_id") == query)["first_loss_stage"].unique().sort().to_list()
    asked = text[0] if text.len() else ""
    redactor = evaluation.redactor
    return {
        "title": redactor.text(f"{', '.join(stages)}: {query} – {asked}"),
        "text": redactor.text("\n".join(story(query, units, ledger, fates, retriever, k))),
    }
