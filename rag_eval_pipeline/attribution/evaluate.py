"""Attribution of a subject: which frames and retrievers the ledger is given. The ledger itself stands in `ledger`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.attribution.order import RetrieverInfo
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.attribution.waterfall import Books, ranking_recall, unit_slices
from rag_eval_pipeline.attribution.waterfall import check_books as compare
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject

TEXTS = ("documents", "parsed", "cleaned", "dedup", "pii_spans", "masked", "chunks")

KEPT_OFF = ("dedup", "pii")
"""Stages that pass everything on where they are off; others, being off, write nothing and have no row in the ledger."""


TEXT_STAGES = ("source", "parsing", "enriching", "cleaning", "dedup", "pii")
STANDS_IN: dict[str, tuple[str, ...]] = {
    "documents": (),
    "chunks": TEXT_STAGES,
    "runs": (*TEXT_STAGES, "chunking", "embedding", "indexing", "filtering", "context", "answering"),
}
"""What a version begins with: stages that then only hand on a stand-in, of which the ledger can say nothing."""


def evidence(subject: Subject) -> dict[str, pl.DataFrame]:
    """Units, where they stand in each text, and the pieces that chunks hold of them."""
    frames = {name: subject.frame(name) for name in TEXTS}
    made = build_units(subject.version.gold, frames, subject.version.settings)
    return {"evidence_units": made.units, "evidence_anchors": made.anchors, "evidence_pieces": made.pieces}


def attribute(subject: Subject) -> dict[str, pl.DataFrame]:
    """The ledger, the fate of every unit, and the waterfall."""
    there = [
        stage for stage in STAGES if getattr(subject.configs[stage.name], "enabled", True) or stage.name in KEPT_OFF
    ]
    unseen = STANDS_IN[subject.version.begin]
    frames = {name: subject.frame(name) for stage in there if stage.name not in unseen for name in stage.tables}
    ledger = build_ledger(
        frames,
        subject.kept("evidence_units"),
        subject.kept("evidence_anchors"),
        subject.kept("evidence_pieces"),
        subject.version.settings,
        retrievers(subject.configs),
        subject.version.gold.queries,
    )
    return {"evidence_ledger": ledger.ledger, "evidence_fate": ledger.fate, "loss_waterfall": ledger.waterfall}


def check_books(subject: Subject, waterfall: pl.DataFrame) -> Books:
    """Compare the waterfall with the ranking table."""
    settings, queries = subject.version.settings, subject.version.gold.queries
    units = subject.kept("evidence_units")
    documents = subject.frame("documents") if subject.version.begin == "documents" else None
    slices = unit_slices(units, queries, documents, settings.evaluate.slices)
    tables = {"retrieval_quality": subject.kept("retrieval_quality"), "ranked_runs": subject.frame("ranked_runs")}
    ranking = ranking_recall(tables, units, subject.kept("evidence_pieces"), slices, settings.ledger.hold)
    return compare(waterfall, ranking)


def retrievers(configs: Mapping[str, Any]) -> dict[str, RetrieverInfo]:
    """Every lane and fused list of a pipeline, as the ledger needs to know it."""
    reranking, fusion = configs["reranking"], configs["fusion"]
    reranked = set(reranking.lanes or ()) if reranking.reranker is not None else set()
    found = {
        name: RetrieverInfo(
            dense=lane.kind == "dense",
            depth=getattr(lane, "depth", None),
            depth_unit=getattr(lane, "depth_unit", "chunks"),
            reranked=name in reranked,
        )
        for name, lane in configs["retrieval"].lanes.items()
    }
    for name, lane in fusion.lanes.items():
        found[name] = RetrieverInfo(
            lanes=tuple(lane.lanes),
            dense=_is_dense(name, configs),
            depth=lane.depth or fusion.depth,
            depth_unit=lane.depth_unit,
            reranked=name in reranked,
        )
    return found


def _is_dense(name: str, configs: Mapping[str, Any]) -> bool:
    """Whether a lane, or at any depth one that it is made of, is dense."""
    if name in configs["fusion"].lanes:
        return any(_is_dense(inner, configs) for inner in configs["fusion"].lanes[name].lanes)
    return bool(configs["retrieval"].lanes[name].kind == "dense")
