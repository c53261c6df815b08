"""The manifest of a twin: what was planted where, one JSON object a line, and how the twin was made. Outside of the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rag_eval_pipeline.attribution.order import STAGES
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.experiments.matrix import BY_NAME

PLANTS, TWIN = "plants.jsonl", "twin.json"


@dataclass(frozen=True)
class Plant:
    """One planted fault, or one decoy.

    Attributes:
        plant_id: unique in the manifest.
        kind: of `matrix.KINDS`.
        stage: the stage that must be blamed.
        doc_id: document that was edited; None for faults of a query or of the whole corpus.
        span: code points [start, end) in the text of `layer` before the edit; None where it has no place.
        touched: [query_id, evidence_id] of the units whose evidence it acts on; empty for decoys.
        decoy: the same edit beside the evidence.
        pair_id: both plants of a pair have the same; None for singles.
        layer: text that span counts in, or file or setting that was changed.
        retrievers: those on which it can act; None: all.
        documents: every document whose rows were edited.
        query_id: query whose order a reranker spoils.
        decoy_of: the plant that a decoy stands beside.
        whole: acts on the whole corpus; counts once.
        note: what was done, without text of a document.
    """

    plant_id: str
    kind: str
    stage: str
    doc_id: str | None = None
    span: tuple[int, int] | None = None
    touched: tuple[tuple[str, str], ...] = ()
    decoy: bool = False
    pair_id: str | None = None
    layer: str = ""
    retrievers: tuple[str, ...] | None = None
    documents: tuple[str, ...] = ()
    query_id: str | None = None
    decoy_of: str | None = None
    whole: bool = False
    note: str = ""


@dataclass(frozen=True)
class TwinInfo:
    """How a twin was made.

    Attributes:
        twin: key to run and score.
        healthy: key that it is a twin of.
        evaluation_id: the healthy evaluation whose tables were read.
        seed: of all choices.
        faults: what was asked for.
        alone: for pairs: keys of the twins with only the first, and only the second plant of each pair.
        left_out: kind -> why fewer were planted than asked for.
    """

    twin: str
    healthy: str
    evaluation_id: str
    seed: int
    faults: dict[str, Any] = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)


def folder_of(data: Path, key: Key) -> Path:
    """Where a twin's manifest lies: `<data>/experiments/<corpus>/<version>[#<pipeline>]`."""
    return data / "experiments" / key.corpus / key.text.partition("@")[2]


def write_manifest(folder: Path, info: TwinInfo, plants: Iterable[Plant]) -> Path:
    """Write both files; returns the path of the plants."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TWIN).write_text(json.dumps(asdict(info), indent=2, ensure_ascii=False) + "\n", "utf-8")
    lines = (json.dumps(asdict(plant), ensure_ascii=False) + "\n" for plant in plants)
    (folder / PLANTS).write_text("".join(lines), "utf-8")
    return folder / PLANTS


def read_plants(path: Path) -> list[Plant]:
    """Plants of a manifest.

    Raises:
        FileNotFoundError: it is not there; the message says how to make one.
        ValueError: a line is no plant.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: the manifest of a twin is written by `rag-eval inject`; give another by --manifest"
        )
    plants = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: no UTF-8; the manifest of a twin is written by `rag-eval inject`") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                plants.append(_plant(json.loads(line)))
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                why = "unknown kind or stage" if isinstance(error, LookupError) else "not the fields of one"
                raise ValueError(
                    f"{path}:{number}: no plant ({why}); plants are written by `rag-eval inject`: make the twin again, or take "
                    "the line out"
                ) from None
    return plants


def read_info(folder: Path) -> TwinInfo | None:
    """How the twin of a manifest's folder was made; None where that is not told.

    Raises:
        ValueError: the file is there and tells of no twin.
    """
    path = folder / TWIN
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text("utf-8"))
        return TwinInfo(**{**value, "alone": tuple(value.get("alone", ()))})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: tells of no twin ({type(error).__name__}); it is written by `rag-eval inject`: make the twin again, or "
            "take the file away to score without it"
        ) from None


def _plant(value: dict[str, Any]) -> Plant:
    value = dict(value)
    if value.get("kind") not in BY_NAME or value.get("stage") not in STAGES:
        raise LookupError("unknown kind or stage")
    value["touched"] = tuple((str(query), str(evidence)) for query, evidence in value.get("touched") or ())
    value["span"] = tuple(value["span"]) if value.get("span") else None
    value["retrievers"] = tuple(value["retrievers"]) if value.get("retrievers") is not None else None
    value["documents"] = tuple(value.get("documents") or ())
    return Plant(**value)
