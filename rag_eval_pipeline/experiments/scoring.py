"""Compare blame with plant: which lost units the ledger blames on the stage where the fault is, and on which it does not.

Read are `evidence_fate`, `evidence_units` and `chunks` of both evaluations, `evidence_ledger` for held states, and the
manifest; never how the ledger decides. A row is a unit at a retriever and a cut-off.

- Changed: served before and lost now, or lost now at an earlier stage than before. Gains are the opposite.
- Scored: changed rows that a plant touches, on a retriever where its kind can act. Right: blamed on the plant's stage.
- Beside them: `same_document` (chunks of the unit's documents changed), `ripple` (they did not: only ranks moved), gains.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.order import STAGES
from rag_eval_pipeline.experiments.manifest import Plant
from rag_eval_pipeline.experiments.matrix import BY_NAME

Frame = Callable[[str], pl.DataFrame]
UnitId = tuple[str, str]
ROW = ["query_id", "evidence_id", "retriever", "k"]
TEXT_STAGES = ("source", "unanchored", "parsing", "cleaning", "dedup", "pii")
"""Stages whose loss no rank can make: blame of a ripple on one of them is false."""
MAJORITY = 0.5
"""A fault of the whole corpus is right where more than this share of its rows is."""
PLACES = {stage: place for place, stage in enumerate((*STAGES, "served"))}


def score(
    healthy: Frame,
    twin: Frame,
    plants: Sequence[Plant],
    alone: Sequence[tuple[Frame, Sequence[Plant]]] = (),
) -> dict[str, Any]:
    """Scores of one twin.

    Args:
        healthy: tables of the healthy evaluation, by name.
        twin: tables of the twin's.
        plants: its manifest.
        alone: for pairs: the evaluations with only the first, and only the second plant of each pair, with their plants.

    Returns:
        accuracy, pair_accuracy, false_blame, decoys_moved, n_changed, n_plants, n_decoys, n_scored, by_kind, beside,
        unchanged, misses and whole. Shares are None where there is nothing to divide by.
    """
    rows = changed_rows(healthy("evidence_fate"), twin("evidence_fate"))
    faults = [plant for plant in plants if not plant.decoy]
    lost = rows.filter("lost").to_dicts()
    moved = _documents_with_other_chunks(healthy("chunks"), twin("chunks"))
    own = _documents(twin("evidence_units"), faults)
    classes = _classified(lost, faults, own, moved)
    singles = [_judged(row, row["plants"]) for row in classes["single"]]
    pairs = _pairs(classes["pair"], healthy, alone)
    whole = _whole(classes["whole"], [plant for plant in faults if plant.whole])
    false = [row for row in classes["ripple"] if row["now"] in TEXT_STAGES]
    counted = [*(row["right"] for row in singles), *(one["right"] for one in whole.values() if one["rows"])]
    decoys = [plant for plant in plants if plant.decoy]
    return {
        "accuracy": _share(counted),
        "pair_accuracy": _share([row["right"] for row in pairs if row["right"] is not None]),
        "false_blame": len(false) / len(lost) if lost else None,
        "decoys_moved": len(moved_by_decoys(healthy, twin, plants, own)),
        "n_changed": len(lost),
        "n_scored": len(singles),
        "n_pair_rows": len(pairs),
        "n_plants": len(faults),
        "n_decoys": len(decoys),
        "by_kind": _by_kind(faults, decoys, [*singles, *pairs]),
        "by_pair": _by_pair(pairs),
        "beside": {
            "same_document": len(classes["same_document"]),
            "ripple": len(classes["ripple"]),
            "gains": rows.filter("gained").height,
        },
        "whole": whole,
        "unchanged": _unchanged(faults, [*singles, *pairs], whole),
        "misses": [_told(row) for row in [*singles, *pairs] if row["right"] is False],
        "false_blamed": [_told(row) for row in false],
        "moved_units": [list(unit) for unit in moved_by_decoys(healthy, twin, plants, own)],
    }


def changed_rows(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Rows of both evaluations with the stage before and now, `lost` and `gained`. Ineligible units are left out."""
    columns = [*ROW, "first_loss_stage", "cause", "detail"]
    old = before.filter("eligible").select(*ROW, pl.col("first_loss_stage").alias("was"))
    new = after.filter("eligible").select(columns).rename({"first_loss_stage": "now"})
    place = {name: pl.col(name).replace_strict(PLACES, return_dtype=pl.Int64) for name in ("was", "now")}
    both = new.join(old, on=ROW).sort(ROW)
    return both.with_columns((place["now"] < place["was"]).alias("lost"), (place["now"] > place["was"]).alias("gained"))


def _documents_with_other_chunks(before: pl.DataFrame, after: pl.DataFrame) -> set[str]:
    columns = ["start", "end", "text"]

    def by_document(frame: pl.DataFrame) -> dict[str, list[Any]]:
        grouped: dict[str, list[Any]] = defaultdict(list)
        for doc_id, *chunk in frame.select("doc_id", *columns).sort("doc_id", *columns).iter_rows():
            grouped[doc_id].append(tuple(chunk))
        return grouped

    old, new = by_document(before), by_document(after)
    return {doc_id for doc_id in old.keys() | new.keys() if old.get(doc_id) != new.get(doc_id)}


def _documents(units: pl.DataFrame, faults: Sequence[Plant]) -> dict[UnitId, set[str]]:
    """Documents of each unit: the one that gold names, and those in which plants found it."""
    found = {(query, evidence): {doc_id} for query, evidence, doc_id in units.select(*ROW[:2], "doc_id").iter_rows()}
    for plant in faults:
        for unit in plant.touched:
            if plant.doc_id is not None and len(plant.documents) <= 1:
                found.setdefault(unit, set()).add(plant.doc_id)
    return found


def _acts(plant: Plant, retriever: str) -> bool:
    return plant.retrievers is None or retriever in plant.retrievers


def _classified(
    lost: Sequence[dict[str, Any]],
    faults: Sequence[Plant],
    own: Mapping[UnitId, set[str]],
    moved: set[str],
) -> dict[str, list[dict[str, Any]]]:
    touching: dict[UnitId, list[Plant]] = defaultdict(list)
    for plant in faults:
        for unit in plant.touched:
            touching[unit].append(plant)
    everywhere = [plant for plant in faults if plant.whole]
    classes: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("single", "pair", "whole", "same_document", "ripple")
    }
    for row in lost:
        unit = (row["query_id"], row["evidence_id"])
        plants = [plant for plant in touching.get(unit, ()) if _acts(plant, row["retriever"])]
        if plants:
            # Where one of a pair acts alone, on other units or retrievers, the loss has one culprit.
            kind = "pair" if len(plants) > 1 and plants[0].pair_id is not None else "single"
            classes[kind].append({**row, "plants": plants})
        elif any(_acts(plant, row["retriever"]) for plant in everywhere):
            classes["whole"].append({**row, "plants": everywhere})
        else:
            beside = "same_document" if own.get(unit, set()) & moved else "ripple"
            classes[beside].append({**row, "plants": []})
    return classes


def _judged(row: dict[str, Any], plants: Sequence[Plant]) -> dict[str, Any]:
    return {**row, "right": any(row["now"] == plant.stage for plant in plants)}


def _pairs(
    rows: Sequence[dict[str, Any]],
    healthy: Frame,
    alone: Sequence[tuple[Frame, Sequence[Plant]]],
) -> list[dict[str, Any]]:
    """Right: any planted stage that, planted alone, loses the unit. Where neither does, no stage is the culprit: NULL."""
    if len(alone) != 2:
        return [_judged(row, row["plants"]) for row in rows]
    culprits: dict[tuple, set[str]] = defaultdict(set)
    for frame, plants in alone:
        changed = changed_rows(healthy("evidence_fate"), frame("evidence_fate")).filter("lost")
        keys = set(changed.select(ROW).iter_rows())
        for plant in plants:
            for key in keys:
                if (key[0], key[1]) in plant.touched and _acts(plant, key[2]):
                    culprits[key].add(plant.stage)
    judged = []
    for row in rows:
        stages = culprits.get(tuple(row[name] for name in ROW), set())
        judged.append({**row, "right": row["now"] in stages if stages else None})
    return judged


def halves(plants: Sequence[Plant]) -> tuple[list[Plant], list[Plant]]:
    """The first plants of all pairs, and the second ones."""
    seen: set[str] = set()
    first: list[Plant] = []
    second: list[Plant] = []
    for plant in plants:
        if plant.decoy or plant.pair_id is None:
            continue
        (second if plant.pair_id in seen else first).append(plant)
        seen.add(plant.pair_id)
    return first, second


def _whole(rows: Sequence[dict[str, Any]], plants: Sequence[Plant]) -> dict[str, dict[str, Any]]:
    """Faults of the whole corpus: one verdict each."""
    found = {}
    for plant in plants:
        mine = [row for row in rows if _acts(plant, row["retriever"])]
        right = sum(row["now"] == plant.stage for row in mine)
        share = right / len(mine) if mine else None
        stages = Counter(row["now"] for row in mine)
        found[plant.kind] = {
            "stage": plant.stage, "rows": len(mine), "right_rows": right, "share": share,
            "right": share is not None and share > MAJORITY, "stages": dict(sorted(stages.items())),
        }  # fmt: skip
    return found


def moved_by_decoys(
    healthy: Frame, twin: Frame, plants: Sequence[Plant], own: Mapping[UnitId, set[str]]
) -> list[UnitId]:
    """Units in a decoy's document, touched by no fault, that a text stage held before and does not hold now."""
    touched = {unit for plant in plants if not plant.decoy for unit in plant.touched}
    documents = {doc_id for plant in plants if plant.decoy for doc_id in (*plant.documents, plant.doc_id) if doc_id}
    held = pl.col("stage").is_in(TEXT_STAGES) & (pl.col("retriever") == "")
    columns = ["query_id", "evidence_id", "stage", "held"]
    before = healthy("evidence_ledger").filter(held).select(columns)
    after = twin("evidence_ledger").filter(held).select(columns)
    both = before.join(after, on=columns[:3], suffix="_now").filter(pl.col("held") & ~pl.col("held_now"))
    units = sorted(set(both.select(columns[:2]).iter_rows()))
    return [unit for unit in units if unit not in touched and own.get(unit, set()) & documents]


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _by_kind(
    faults: Sequence[Plant], decoys: Sequence[Plant], rows: Sequence[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    found = {}
    for kind in sorted({plant.kind for plant in faults}, key=list(BY_NAME).index):
        mine = [row for row in rows if any(plant.kind == kind for plant in row["plants"])]
        right = [row["right"] for row in mine if row["right"] is not None]
        blamed = Counter(row["now"] for row in mine)
        found[kind] = {
            "stage": BY_NAME[kind].stage,
            "n_plants": sum(plant.kind == kind for plant in faults),
            "n_decoys": sum(plant.kind == kind for plant in decoys),
            "n_changing": len({p.plant_id for row in mine for p in row["plants"] if p.kind == kind}),
            "rows": len(right),
            "right": sum(right),
            "accuracy": _share(right),
            "blamed": dict(sorted(blamed.items())),
        }
    return found


def _by_pair(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    grouped: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        grouped["+".join(sorted(plant.kind for plant in row["plants"]))].append(row["right"])
    return {
        name: {"rows": sum(r is not None for r in right), "right": sum(r is True for r in right)}
        for name, right in sorted(grouped.items())
    }


def _unchanged(
    faults: Sequence[Plant], rows: Sequence[dict[str, Any]], whole: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Faults that changed no unit they touch."""
    changing = {plant.plant_id for row in rows for plant in row["plants"]}
    changing |= {plant.plant_id for plant in faults if plant.whole and whole[plant.kind]["rows"]}
    return [
        {"plant_id": plant.plant_id, "kind": plant.kind, "doc_id": plant.doc_id}
        for plant in faults
        if plant.plant_id not in changing
    ]


def _told(row: dict[str, Any]) -> dict[str, Any]:
    told = {name: row[name] for name in (*ROW, "was", "now", "cause", "detail")}
    return told | {"plants": [{"plant_id": p.plant_id, "kind": p.kind, "stage": p.stage} for p in row["plants"]]}


def together(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores of several twins as one: rows are added up, a fault of a whole corpus counts once a twin."""
    right = rows = pair_right = pair_rows = false = changed = 0
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for one in scores:
        judged = [w["right"] for w in one["whole"].values() if w["rows"]]
        rows += one["n_scored"] + len(judged)
        right += round((one["accuracy"] or 0) * (one["n_scored"] + len(judged)))
        paired = sum(pair["rows"] for pair in one["by_pair"].values())
        pair_rows += paired
        pair_right += sum(pair["right"] for pair in one["by_pair"].values())
        false += len(one["false_blamed"])
        changed += one["n_changed"]
        for kind, counts in one["by_kind"].items():
            by_kind[kind].update({n: counts[n] for n in ("n_plants", "n_decoys", "n_changing", "rows", "right")})
        for kind, verdict in one["whole"].items():
            if verdict["rows"]:
                by_kind[kind].update(n_changing=1, rows=1, right=int(verdict["right"]))
    return {
        "accuracy": right / rows if rows else None,
        "n_scored": rows,
        "pair_accuracy": pair_right / pair_rows if pair_rows else None,
        "n_pair_rows": pair_rows,
        "false_blame": false / changed if changed else None,
        "n_changed": changed,
        "decoys_moved": sum(one["decoys_moved"] for one in scores),
        "n_plants": sum(one["n_plants"] for one in scores),
        "n_decoys": sum(one["n_decoys"] for one in scores),
        "by_kind": {kind: dict(by_kind[kind]) for kind in BY_NAME if kind in by_kind},
    }
