"""The tests of the text stages: source to pii, from anchors alone. Lists and blame stand in `ledger`.

One row a unit, with a Boolean a stage and what the ledger says of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.evidence import UNIT

TEXT_STAGES = ("source", "unanchored", "parsing", "cleaning", "dedup", "pii")
FOUND = {"exact", "aligned", "scattered"}

FLAGS: dict[str, Any] = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    **dict.fromkeys(TEXT_STAGES, pl.Boolean),
    "scattered": pl.Boolean,
    **{f"{stage}_cause": pl.String for stage in ("parsing", "cleaning", "pii")},
}
ROWS: dict[str, Any] = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    "stage": pl.String,
    "held": pl.Boolean,
    "state": pl.String,
    "similarity": pl.Float64,
    "detail": pl.String,
}

Carrier = dict[str, Any]


def text_tests(
    units: pl.DataFrame, anchors: pl.DataFrame, frames: Mapping[str, pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Per unit the tests source to pii (columns of `FLAGS`), and the ledger's rows of these stages.

    Args:
        units: evidence_units.
        anchors: evidence_anchors.
        frames: `dedup_edges`, `pii_spans`, `cleaned` and `documents` are read for details, where they are there.
    """
    carriers = _carriers(anchors)
    detail = _Details(frames)
    flags, rows = [], []
    for unit in units.iter_rows(named=True):
        mine = carriers.get((unit["query_id"], unit["evidence_id"]), [])
        tests = _tests(unit, mine)
        flags.append({"query_id": unit["query_id"], "evidence_id": unit["evidence_id"]} | tests)
        rows += [_row(unit, stage, tests, mine, detail) for stage in TEXT_STAGES]
    return pl.DataFrame(flags, schema=FLAGS, orient="row"), pl.DataFrame(rows, schema=ROWS, orient="row")


def _carriers(anchors: pl.DataFrame) -> dict[tuple[str, str], list[Carrier]]:
    """Carriers by unit; each with its anchors by layer."""
    found: dict[tuple[str, str], dict[int, Carrier]] = {}
    for row in anchors.sort([*UNIT, "carrier"]).iter_rows(named=True):
        unit = found.setdefault((row["query_id"], row["evidence_id"]), {})
        shared = {name: row[name] for name in ("carrier", "doc_id", "own", "present", "kept", "survivor", "counts")}
        unit.setdefault(row["carrier"], shared)[row["layer"]] = row
    return {key: list(by_number.values()) for key, by_number in found.items()}


def _tests(unit: dict[str, Any], carriers: list[Carrier]) -> dict[str, Any]:
    present = [c for c in carriers if c["present"]]
    counted = [c for c in present if c["counts"]]
    kept = [c for c in present if c["kept"]]
    read = [c for c in counted if c["parsed"]["held"] or c["clean"]["held"]]
    cleaned_kept = [c for c in kept if c["clean"]["held"]]
    spread = [c["parsed"]["spread"] if c["parsed"]["held"] else c["clean"]["spread"] for c in read]
    policy = bool(cleaned_kept) and all(c["masked"]["status"] == "policy" for c in cleaned_kept)
    return {
        "source": bool(present),
        "unanchored": unit["anchored"],
        "parsing": bool(read),
        "cleaning": any(c["clean"]["held"] for c in counted),
        "dedup": bool(cleaned_kept),
        "pii": any(c["masked"]["held"] for c in kept),
        "scattered": bool(spread) and all(spread),
        "parsing_cause": _cause(counted, "parsed"),
        "cleaning_cause": _cause([c for c in counted if c["parsed"]["held"]] or counted, "clean"),
        "pii_cause": "policy" if policy else _cause(cleaned_kept, "masked"),
    }


def _best(carriers: list[Carrier], layer: str) -> Carrier | None:
    """The carrier that has most of the unit in a text; the first of equals."""
    return max(carriers, key=lambda c: (c[layer]["held"], _there(c[layer]), -c["carrier"]), default=None)


def _there(anchor: dict[str, Any]) -> int:
    return sum(1 for position in anchor["positions"] if position >= 0)


def _cause(carriers: list[Carrier], layer: str) -> str:
    best = _best(carriers, layer)
    if best is None:
        return "absent"
    anchor = best[layer]
    if anchor["status"] not in FOUND | {"ok", "changed", "masked", "restored", "policy"}:
        return str(anchor["status"])  # the room failed on the document
    if layer == "parsed" and anchor["status"] == "changed":
        return "missing"
    return "token" if anchor["broken"] and _there(anchor) else "characters"


def _row(
    unit: dict[str, Any], stage: str, tests: dict[str, Any], carriers: list[Carrier], detail: _Details
) -> dict[str, Any]:
    best = _best([c for c in carriers if c["present"] and c["counts"]], "parsed")
    return {
        "query_id": unit["query_id"],
        "evidence_id": unit["evidence_id"],
        "stage": stage,
        "held": tests[stage],
        "state": _state(unit, stage, tests, carriers),
        "similarity": best["parsed"]["similarity"] if best else None,
        "detail": json.dumps(detail.of(stage, unit, carriers), sort_keys=True),
    }


LAYER_OF = {"parsing": "parsed", "cleaning": "clean", "dedup": "clean", "pii": "masked"}


def _state(unit: dict[str, Any], stage: str, tests: dict[str, Any], carriers: list[Carrier]) -> str:
    if not tests[stage]:
        if stage == "pii" and tests["dedup"] and tests["pii_cause"] == "policy":
            return "policy"
        return "unanchored" if stage in {"unanchored", "parsing"} and not unit["anchored"] else "lost"
    if stage not in LAYER_OF:
        return "held"
    layer = LAYER_OF[stage]
    if stage == "parsing" and not any(c["parsed"]["held"] for c in carriers if c["present"] and c["counts"]):
        return "restored"
    alive = [c for c in carriers if c["present"] and (c["counts"] if stage in {"parsing", "cleaning"} else c["kept"])]
    untouched = any(c[layer]["held"] and _there(c[layer]) == len(c[layer]["positions"]) for c in alive)
    return "held" if untouched else "degraded"


class _Details:
    """What the ledger says beside held and lost: ids, offsets, counts and entity types, never text."""

    def __init__(self, frames: Mapping[str, pl.DataFrame]) -> None:
        self._spans: dict[str, list[tuple[int, int, str]]] = {}
        if "pii_spans" in frames:
            for doc_id, *span in frames["pii_spans"].select("doc_id", "start", "end", "type").iter_rows():
                self._spans.setdefault(doc_id, []).append((span[0], span[1], span[2]))
        edges = frames.get("dedup_edges")
        self._edges = (
            {frozenset(row[:2]): row[2] for row in edges.select("doc_a", "doc_b", "similarity").iter_rows()}
            if edges is not None
            else {}
        )
        cleaned = frames.get("cleaned")
        known = cleaned is not None and "cleaner" in cleaned.columns
        self._cleaners = dict(cleaned.select("doc_id", "cleaner").iter_rows()) if known and cleaned is not None else {}

    def of(self, stage: str, unit: dict[str, Any], carriers: list[Carrier]) -> dict[str, Any]:
        """Detail of one unit at one stage, ready for JSON."""
        if stage == "source":
            absent = sorted({c["doc_id"] for c in carriers if not c["present"]})
            return {"carriers": len(carriers), "missing_documents": absent}
        if stage == "dedup":
            return {"removed": [self._removal(c) for c in carriers if c["present"] and not c["kept"]]}
        layer = LAYER_OF.get(stage, "parsed")
        alive = [c for c in carriers if c["present"] and (c["kept"] if stage == "pii" else c["counts"])]
        best = _best(alive, layer)
        if best is None:
            return {}
        found = self._anchor(unit, best, layer)
        if stage == "cleaning":
            found |= {"cleaner": self._cleaners.get(best["doc_id"]), "removed": _gone(best, "parsed", "clean")}
        if stage == "pii":
            removed = _gone(best, "clean", "masked")
            found |= {"masked": removed, "types": self._types(best["doc_id"], removed)}
        return found

    @staticmethod
    def _anchor(unit: dict[str, Any], carrier: Carrier, layer: str) -> dict[str, Any]:
        anchor = carrier[layer]
        places = [p for p in anchor["positions"] if p >= 0]
        return {
            "doc_id": carrier["doc_id"],
            "carrier": carrier["carrier"],
            "status": anchor["status"],
            "chars": len(places),
            "n_chars": unit["n_chars"],
            "broken_tokens": anchor["broken"],
            "start": min(places, default=None),
            "end": max(places, default=-2) + 1 if places else None,
        }

    def _removal(self, carrier: Carrier) -> dict[str, Any]:
        similarity = self._edges.get(frozenset((carrier["doc_id"], carrier["survivor"])))
        return {"doc_id": carrier["doc_id"], "survivor": carrier["survivor"], "similarity": similarity}

    def _types(self, doc_id: str, ranges: list[list[int]]) -> list[str]:
        spans = self._spans.get(doc_id, [])
        return sorted({kind for low, high in ranges for start, end, kind in spans if start < high and low < end})


def _gone(carrier: Carrier, before: str, after: str) -> list[list[int]]:
    """Ranges, in the text before, of the quote's characters that are gone after; spaces between them are bridged."""
    ranges: list[list[int]] = []
    last = None
    for index, (old, new) in enumerate(zip(carrier[before]["positions"], carrier[after]["positions"], strict=True)):
        if old < 0 or new >= 0:
            continue
        if last == index - 1 and ranges and old >= ranges[-1][0]:
            ranges[-1][1] = old + 1
        else:
            ranges.append([old, old + 1])
        last = index
    return ranges
