"""Make a twin: a new version beside the healthy one, with outputs that carry the faults and settings that take them.

The healthy version, its tables and the memo are only read. The twin runs through `rag-eval run` like any version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import yaml

from rag_eval_pipeline.corpus.configuration import lay_over
from rag_eval_pipeline.corpus.keys import DEFAULT, Key, check_name
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.versions import bump_version
from rag_eval_pipeline.experiments.injector.chain import STAGE_OF, layer_of, propagate
from rag_eval_pipeline.experiments.injector.edits import STARVED, Planned, Spoil, Tag
from rag_eval_pipeline.experiments.injector.plan import PAIR_RATE, FaultsError, Plan, plan_singles
from rag_eval_pipeline.experiments.injector.sites import units_of
from rag_eval_pipeline.experiments.injector.state import TABLES, State
from rag_eval_pipeline.experiments.manifest import Plant, TwinInfo, folder_of, write_manifest
from rag_eval_pipeline.experiments.matrix import BY_NAME, default_faults
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home

HARMFUL = "rag_eval_pipeline.experiments.injector.reranker:Harmful"
SETTINGS = "corpus.yaml"
"""A version's own settings, laid over the corpus's."""


class UnfitError(ValueError):
    """Nothing can be planted here; the message says why."""


@dataclass(frozen=True)
class Twin:
    """What was made: the key to run, the manifest, the plants, and what was left out."""

    key: Key
    manifest: Path
    plants: tuple[Plant, ...]
    info: TwinInfo


def inject(
    home: Home,
    healthy: Key,
    frame: Callable[[str], pl.DataFrame],
    evaluation_id: str,
    target: str,
    *,
    seed: int,
    faults: Mapping[str, Mapping[str, float]] | None = None,
    pairs: bool = False,
) -> Twin:
    """Make a faulty twin of an evaluated version.

    Args:
        home: where data lives.
        healthy: key of the evaluation.
        frame: its tables by name.
        evaluation_id: its id, for the manifest.
        target: `VERSION[#pipeline]` of the twin.
        seed: of all choices.
        faults: kinds with their rates; None: every kind that acts on single documents or queries.
        pairs: plant two kinds on each unit instead of one; two more twins have only the first, and only the second.

    Raises:
        UnfitError: no evidence that is a quote, or nothing could be planted.
        FileExistsError: there is such a version or pipeline.
    """
    made = _target(healthy, target)
    if made.pipeline != DEFAULT and (home.corpora / made.corpus / "pipelines" / f"{made.pipeline}.yaml").exists():
        raise FileExistsError(f"pipeline {made.pipeline} of {made.corpus} is there already; choose another name")
    alone = _alone(made) if pairs else ()
    for key in (made, *alone):  # before anything is written: a half of the twins would be of no use
        if Layout(home.corpora, key).version.exists():
            raise FileExistsError(f"{key.subject} is there already; choose another name by --as")
    state = _state(home, healthy, frame)
    wanted = dict(faults) if faults is not None else default_faults()
    left_out = _impossible(state, wanted)
    local = {name: asked for name, asked in wanted.items() if not BY_NAME[name].whole and name not in left_out}
    whole = [name for name in wanted if BY_NAME[name].whole and name not in left_out]
    rng = Random(seed)
    if pairs:
        plan = Plan(state, rng)
        plan.add_pairs(plan.wanted({"rate": PAIR_RATE}), sorted(local))
    else:
        plan = plan_singles(state, local, rng)
    left_out |= plan.left_out
    if not plan.faults and not whole:
        reasons = "; ".join(f"{kind}: {why}" for kind, why in sorted(left_out.items()))
        raise UnfitError(f"nothing could be planted into {healthy.text}: {reasons or 'no kind was asked for'}")
    plants = _plants(state, plan.faults, whole, pairs)
    _write(home, state, made, plan.faults, whole)
    for key, half in zip(alone, (plan.faults[0::2], plan.faults[1::2]), strict=False):
        _write(home, state, key, half, [])
    info = TwinInfo(
        made.text, healthy.text, evaluation_id, seed, {name: dict(asked) for name, asked in wanted.items()},
        tuple(key.text for key in alone), left_out,
    )  # fmt: skip
    path = write_manifest(folder_of(home.root, made), info, plants)
    return Twin(made, path, tuple(plants), info)


def _target(healthy: Key, target: str) -> Key:
    version, sign, pipeline = target.partition("#")
    check_name(version, "version")
    return Key(healthy.corpus, version, check_name(pipeline, "pipeline") if sign else DEFAULT)


def _alone(made: Key) -> tuple[Key, Key]:
    return Key(made.corpus, f"{made.version}.first"), Key(made.corpus, f"{made.version}.second")


def _state(home: Home, healthy: Key, frame: Callable[[str], pl.DataFrame]) -> State:
    subject = Subject.open(home, healthy, workers=0)
    gold, split = subject.version.gold, subject.version.settings.evaluate.split
    seen = frame("evidence_units").filter(~pl.col("eligible")).select("query_id", "evidence_id")
    units = units_of(gold.evidence, gold.queries, split, set(seen.iter_rows()))
    if not units:
        raise UnfitError(
            f"{healthy.text} has no evidence with a quote in split {split!r}: faults are planted on quotes; add evidence.jsonl"
        )
    return State(subject, {name: frame(name) for name in TABLES}, units)


def _impossible(state: State, wanted: Mapping[str, Any]) -> dict[str, str]:
    """Kinds that can't act under this pipeline, with the reason."""
    configs, found = state.subject.configs, {}
    imports = {name: configs[name].imported for name in ("parsing", "cleaning", "chunking", "embedding")}
    lists = any(lane.kind == "import" for lane in configs["retrieval"].lanes.values())
    text = {name for name in wanted if BY_NAME[name].layer in {"parsed", "cleaned", "dedup", "pii_spans", "chunks"}}
    for name in text:
        layer = BY_NAME[name].layer
        if lists:
            found[name] = "the lists are imported, so nothing that is planted before them shows in them"
        elif imports["embedding"] or (imports["chunking"] and layer != "chunks"):
            found[name] = "chunks or vectors are imported, so they would not follow the text"
        elif imports["cleaning"] and layer == "parsed":
            found[name] = "clean texts are imported, so they would not follow the parsed ones"
    if "over_redaction" in wanted and not configs["pii"].enabled:
        found["over_redaction"] = "the stage pii is off"
    if not configs["embedding"].enabled:
        found |= {name: "no lane is dense" for name in ("over_long_chunk", "starved_index") if name in wanted}
    elif "starved_index" in wanted and configs["indexing"].kind == "flat":
        found["starved_index"] = "the index is exact"
    reranking = configs["reranking"]
    if "harmful_reranker" in wanted and (reranking.reranker == "import" or reranking.options):
        found["harmful_reranker"] = "an imported reranker, or one with options, is not wrapped"
    if "wrong_tag" in wanted and "hard" not in state.frames["applied_filters"]["mode"].to_list():
        found["wrong_tag"] = "no hard filter is applied"
    return {name: why for name, why in found.items() if name in wanted}


# Files -----------------------------------------------------------------------------------------------------------------


def _write(home: Home, state: State, key: Key, faults: Sequence[Planned], whole: Sequence[str]) -> None:
    """The twin's folder: a copy of the healthy one, with edited tags, outputs, and the settings that take them."""
    _, outputs = propagate(state, faults)
    healthy = state.subject.key
    bump_version(home.corpora, healthy, key.version)
    layout = Layout(home.corpora, key)
    tags = [(fault.doc_id, edit) for fault in _all(faults) for edit in fault.edits if isinstance(edit, Tag)]
    if tags:
        _write_tags(layout, state, [(str(doc_id), tag) for doc_id, tag in tags])
    for name, frame in outputs.items():
        layout.outputs.mkdir(exist_ok=True)
        rows = [{k: v for k, v in row.items() if v is not None} for row in frame.iter_rows(named=True)]
        _write_lines(layout.outputs / f"{name}.jsonl", rows)
    settings = _settings(home, state, faults, whole, outputs)
    folder = layout.version if key.pipeline == DEFAULT else layout.corpus / "pipelines"
    folder.mkdir(exist_ok=True)
    name = SETTINGS if key.pipeline == DEFAULT else f"{key.pipeline}.yaml"
    (folder / name).write_text(yaml.safe_dump(settings, allow_unicode=True, sort_keys=True), "utf-8")


def _all(faults: Sequence[Planned]) -> list[Planned]:
    return [one for fault in faults for one in (fault, fault.decoy) if one]


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def _write_tags(layout: Layout, state: State, tags: Sequence[tuple[str, Tag]]) -> None:
    path = layout.version / "documents.jsonl"
    lines = (
        [json.loads(line) for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
        if path.is_file()
        else []
    )
    by_id = {line["doc_id"]: line for line in lines}
    for doc_id, tag in tags:
        if doc_id not in by_id:
            by_id[doc_id] = {"doc_id": doc_id, "path": state.rows("documents", doc_id)[0]["path"]}
            lines.append(by_id[doc_id])
        line = by_id[doc_id]
        metadata = tag.field.startswith("metadata.") or tag.field not in state.frames["documents"].columns
        target = line.setdefault("metadata", {}) if metadata else line
        target[tag.field.removeprefix("metadata.")] = tag.value
    _write_lines(path, lines)


def _settings(
    home: Home, state: State, faults: Sequence[Planned], whole: Sequence[str], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    """What is laid over corpus.yaml: the healthy pipeline's own layer, and the imports and wrappers of the faults."""
    healthy = state.subject.key
    base: dict[str, Any] = {}
    own = [Layout(home.corpora, healthy).version / SETTINGS]
    if healthy.pipeline != DEFAULT:
        own.append(home.corpora / healthy.corpus / "pipelines" / f"{healthy.pipeline}.yaml")
    for path in own:
        if path.is_file():
            base = lay_over(base, yaml.safe_load(path.read_text("utf-8")) or {})
    pipeline: dict[str, Any] = {STAGE_OF[name]: {"import": True} for name in outputs}
    spoils = [edit for fault in _all(faults) for edit in fault.edits if isinstance(edit, Spoil)]
    if spoils:
        pipeline["reranking"] = _reranking(state, spoils)
    if "starved_index" in whole:
        pipeline["indexing"] = dict(STARVED)
    return lay_over(base, {"pipeline": pipeline})


def _reranking(state: State, spoils: Sequence[Spoil]) -> dict[str, Any]:
    config = state.subject.configs["reranking"]
    inner = {"reranker": config.reranker, "model": config.model} if config.reranker else {}
    evaluate = state.subject.version.settings.evaluate
    options = {
        "inner": inner,
        "harmed": sorted({spoil.query for spoil in spoils if not spoil.tail}),
        "decoys": sorted({spoil.query for spoil in spoils if spoil.tail}),
        "keep": max([*evaluate.k, evaluate.serve_k]),
    }
    return {"reranker": HARMFUL, "options": options, "depth": config.depth}


# The manifest ----------------------------------------------------------------------------------------------------------


def _plants(state: State, faults: Sequence[Planned], whole: Sequence[str], pairs: bool) -> list[Plant]:
    plants: list[Plant] = []
    for number, fault in enumerate(faults):
        name = f"p{number + 1:03d}"
        pair = f"x{number // 2 + 1:03d}" if pairs else None
        plants.append(_plant(state, fault, name, pair))
        if fault.decoy is not None:
            decoy = replace(fault.decoy, kind=fault.kind)
            plants.append(replace(_plant(state, decoy, f"{name}d", pair), decoy=True, touched=(), decoy_of=name))
    for kind in whole:
        plants.append(
            Plant(
                f"w-{kind}", kind, BY_NAME[kind].stage, layer="settings", retrievers=_retrievers(state, kind), whole=True,
                note=json.dumps(STARVED, sort_keys=True),
            )
        )  # fmt: skip
    return plants


def _plant(state: State, fault: Planned, name: str, pair: str | None) -> Plant:
    kind = BY_NAME[fault.kind]
    layers = [layer for edit in fault.edits if (layer := layer_of(fault, edit))]
    documents = fault.documents or ((fault.doc_id,) if fault.doc_id else ())
    return Plant(
        name, fault.kind, kind.stage, fault.doc_id, fault.span, fault.touched, pair_id=pair,
        layer=_text_of(layers[0]) if layers else kind.layer, retrievers=_retrievers(state, fault.kind),
        documents=documents, query_id=fault.query_id, note=fault.note,
    )  # fmt: skip


def _text_of(layer: str) -> str:
    """The text that spans of an output's edits count in."""
    return {"pii_spans": "cleaned", "chunks": "masked"}.get(layer, layer)


def _retrievers(state: State, kind: str) -> tuple[str, ...] | None:
    """Those on which a kind can act; None: all."""
    configs, scope = state.subject.configs, BY_NAME[kind].scope
    if scope == "all":
        return None
    if scope == "reranked":
        return tuple(sorted(configs["reranking"].lanes or ()))
    lanes = configs["retrieval"].lanes
    dense = {name for name, lane in lanes.items() if lane.kind == "dense"}
    fused = configs["fusion"].lanes
    for _ in fused:  # a fused lane may read fused lanes
        dense |= {name for name, lane in fused.items() if dense & set(lane.lanes)}
    return tuple(sorted(dense))


__all__ = ["FaultsError", "Twin", "UnfitError", "inject"]
