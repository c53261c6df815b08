"""The pipeline, written once: the stages in order, as data, and the runner that walks any part of it without Dagster.

Orchestration makes its assets from `STAGES`. A new stage is a new folder and one entry here. What a stage does belongs in
its room; where tables are kept belongs to `subject`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from pydantic import BaseModel, ValidationError

from rag_eval_pipeline.corpus.configuration import Marks
from rag_eval_pipeline.corpus.faults import Faults, suggestion
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.answering.stage import STAGE as ANSWERING
from rag_eval_pipeline.stages.chunking.stage import STAGE as CHUNKING
from rag_eval_pipeline.stages.cleaning.stage import STAGE as CLEANING
from rag_eval_pipeline.stages.context.stage import STAGE as CONTEXT
from rag_eval_pipeline.stages.dedup.stage import STAGE as DEDUP
from rag_eval_pipeline.stages.embedding.stage import STAGE as EMBEDDING
from rag_eval_pipeline.stages.enriching.stage import STAGE as ENRICHING
from rag_eval_pipeline.stages.filtering.stage import STAGE as FILTERING
from rag_eval_pipeline.stages.fusion.stage import STAGE as FUSION
from rag_eval_pipeline.stages.indexing.stage import STAGE as INDEXING
from rag_eval_pipeline.stages.judging.stage import STAGE as JUDGING
from rag_eval_pipeline.stages.metadata.stage import STAGE as METADATA
from rag_eval_pipeline.stages.parsing.stage import STAGE as PARSING
from rag_eval_pipeline.stages.pii.stage import STAGE as PII
from rag_eval_pipeline.stages.querying.stage import STAGE as QUERYING
from rag_eval_pipeline.stages.reranking.stage import STAGE as RERANKING
from rag_eval_pipeline.stages.retrieval.stage import STAGE as RETRIEVAL
from rag_eval_pipeline.stages.source.stage import STAGE as SOURCE
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.warehouse.runtime import Runtime

STAGES: tuple[Stage, ...] = (
    SOURCE,
    PARSING,
    ENRICHING,
    METADATA,
    CLEANING,
    DEDUP,
    PII,
    CHUNKING,
    EMBEDDING,
    INDEXING,
    QUERYING,
    FILTERING,
    RETRIEVAL,
    FUSION,
    RERANKING,
    CONTEXT,
    ANSWERING,
    JUDGING,
)
"""Every stage, each after all that it reads."""

BY_NAME: dict[str, Stage] = {stage.name: stage for stage in STAGES}
PRODUCER: dict[str, Stage] = {table: stage for stage in STAGES for table in stage.tables}
"""Which stage writes a table."""

FUSIONS = frozenset({"rrf", "convex"})
DEFAULT_LANES: dict[str, Any] = {
    "bm25": {"kind": "bm25"},
    "dense": {"kind": "dense"},
    "hybrid": {"kind": "rrf", "lanes": ["bm25", "dense"]},
}
OFF: dict[str, dict[str, Any]] = {
    "dedup": {"enabled": False},
    "pii": {"enabled": False},
    "filtering": {"extractor": None},
    "reranking": {"reranker": None},
    "answering": {"answerer": None},
    "judging": {"verifiers": []},
}
"""What `null` means for a section; elsewhere it means the defaults."""


def configure(settings: Settings, marks: Marks | None = None) -> dict[str, Any]:
    """Each stage's config, from corpus.yaml with its defaults.

    Args:
        settings: corpus.yaml with a pipeline laid over it.
        marks: where each key was written, for the faults.

    Raises:
        CorpusError: all faults of all sections at once, each with file, line and field.
    """
    marks, faults = marks or Marks(), Faults()
    sections = {name: OFF.get(name, {}) if value is None else value for name, value in settings.pipeline.items()}
    lanes = settings.pipeline.get("retrieval") or DEFAULT_LANES
    fused = {name: lane for name, lane in lanes.items() if _kind(lane) in FUSIONS}
    plain = {name: lane for name, lane in lanes.items() if name not in fused}
    serve = settings.evaluate.serve or list(fused or plain)[-1]
    reranked = (sections.get("reranking") or {}).get("lanes") or [serve]
    _check_lanes(lanes, fused, serve, reranked, marks, faults)
    dense = any(_kind(lane) == "dense" for lane in plain.values())
    sections["retrieval"] = {"lanes": plain}
    sections["fusion"] = {**sections.get("fusion", {}), "lanes": fused}
    for name in ("embedding", "indexing"):
        sections[name] = {**sections.get(name, {}), "enabled": dense}
    sections["querying"] = {**sections.get("querying", {}), "embedding": sections["embedding"]}
    for name in ("pii", "querying"):
        sections[name] = {"languages": settings.languages, **sections.get(name, {})}
    sections["reranking"] = {**sections.get("reranking", OFF["reranking"]), "lanes": reranked}
    served = {"serve": serve, "serve_k": settings.evaluate.serve_k, "tokenizer": settings.evaluate.tokenizer}
    sections["context"] = {**sections.get("context", {}), **served}
    configs: dict[str, Any] = {}
    for stage in STAGES:
        try:
            configs[stage.name] = stage.config(**sections.get(stage.name, {}))
        except ValidationError as error:
            marks.report(error, stage.config, ("pipeline", stage.name), faults)
    faults.refuse()
    return configs


def identity(stage: Stage, config: BaseModel) -> dict[str, Any]:
    """What else decides a stage's output: a model's checksum, an OCR engine's version. From `transform.identity`, if any."""
    transform = __import__(f"rag_eval_pipeline.stages.{stage.name}.transform", fromlist=["identity"])
    return dict(transform.identity(config)) if hasattr(transform, "identity") else {}


def walk(
    stages: Iterable[Stage], frames: Mapping[str, pl.DataFrame], configs: Mapping[str, Any], runtime: Runtime
) -> dict[str, pl.DataFrame]:
    """Run stages in order on frames; returns all tables, those given and those made.

    Args:
        stages: any convex part of the graph.
        frames: tables that the part reads from outside it, and outside inputs (`files`, `queries`, `output:parsed`…).
        configs: stage name -> config.
        runtime: workers, memo, files.
    """
    known = dict(frames)
    for stage in sorted(stages, key=STAGES.index):
        config = configs[stage.name]
        known.update(stage.door("transform", "run")(inputs_of(stage, known, config), config, runtime))
    return known


def inputs_of(stage: Stage, known: Mapping[str, pl.DataFrame], config: Any) -> dict[str, pl.DataFrame]:
    """The frames that a stage may see under a config: its reads and the outside inputs that are there."""
    outside = {name.partition(".")[0] for name in stage.inputs_under(config)}
    return {name: known[name] for name in (*stage.reads, *sorted(outside)) if name in known}


def _kind(lane: Any) -> str:
    return str(lane.get("kind", "")) if isinstance(lane, Mapping) else ""


def _check_lanes(
    lanes: Mapping[str, Any],
    fused: Mapping[str, Any],
    serve: str,
    reranked: Iterable[str],
    marks: Marks,
    faults: Faults,
) -> None:
    """Every lane that something names must be there."""
    named = [(("evaluate", "serve"), serve), *((("pipeline", "reranking", "lanes"), name) for name in reranked)]
    for name, lane in fused.items():
        named += [(("pipeline", "retrieval", name, "lanes"), inner) for inner in lane.get("lanes") or ()]
    for place, name in named:
        if name not in lanes:
            file, line = marks.at(place)
            faults.add(
                file, line, ".".join(place), repr(name), f"a lane of {list(lanes)}", suggestion(str(name), lanes)
            )
