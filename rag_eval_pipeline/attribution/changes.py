"""What two evaluations differ in, by the hashes of their manifests: config, code, model, inputs, gold, measuring.

Here: which stage changed in which part, and which rooms could have acted on a loss. Not here: what became of the units
(`regressions`), and how the hashes are made (`stages.subject`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from rag_eval_pipeline.attribution.order import NEEDS
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.graph import BY_NAME, PRODUCER, STAGES, configure
from rag_eval_pipeline.warehouse.manifests import Manifest

PARTS = ("config", "code", "model", "inputs")
"""`inputs` are queries, principals and the user's own outputs; the version's files are counted as documents."""

FILES = "input:files"
EVERYTHING = ("cut", "reading_order")
"""Causes that look at the served list, whatever stage they blame."""


@dataclass(frozen=True)
class Changes:
    """What differs between two evaluations.

    Attributes:
        stages: stage -> part of `PARTS` -> whether it changed; None where a manifest doesn't say.
        gold: the labels differ.
        documents: the documents, or what is declared of them, differ.
        measuring: which of `evaluate`, `ledger` and `code` (of measures and ledger) differ; None where not known.
    """

    stages: dict[str, dict[str, bool | None]]
    gold: bool
    documents: bool
    measuring: tuple[str, ...] | None

    def changed(self, part: str, rooms: frozenset[str] | None = None) -> bool | None:
        """Whether a part changed in any of the rooms (all, if None); None where nothing changed that is known."""
        found = [parts[part] for name, parts in self.stages.items() if rooms is None or name in rooms]
        if any(found):
            return True
        return None if None in found else False

    def named(self, rooms: frozenset[str] | None = None) -> list[str]:
        """`stage: part, part` of every stage that changed; `unknown` where a manifest doesn't say."""
        lines = []
        for name, parts in self.stages.items():
            if rooms is not None and name not in rooms:
                continue
            what = [part for part in PARTS if parts[part]]
            if not what and None in parts.values():
                what = ["unknown"]
            if what:
                lines.append(f"{name}: {', '.join(what)}")
        return lines

    def record(self) -> dict[str, Any]:
        """For the comparison's manifest."""
        return asdict(self)


def changes_between(before: Manifest, now: Manifest) -> Changes:
    """Compare two manifests.

    A manifest from before there were parts tells config only, through corpus.yaml as it was evaluated; code and model are
    then unknown (None) for stages whose id differs. Stages with one id are the same in everything.
    """
    order = [stage.name for stage in STAGES]
    known = sorted(before.ids.keys() | now.ids.keys(), key=lambda n: (order.index(n) if n in order else len(order), n))
    told = bool(before.parts and now.parts)
    guessed = {} if told else _config_changes(before, now)
    stages = {name: _stage(name, before, now, told, guessed) for name in known}
    measuring = None
    if before.measuring and now.measuring:
        names = sorted(before.measuring.keys() | now.measuring.keys())
        measuring = tuple(name for name in names if before.measuring.get(name) != now.measuring.get(name))
    return Changes(
        stages=stages,
        gold=before.gold_hash != now.gold_hash,
        documents=before.documents_hash != now.documents_hash,
        measuring=measuring,
    )


def _stage(
    name: str, before: Manifest, now: Manifest, told: bool, guessed: Mapping[str, bool]
) -> dict[str, bool | None]:
    if before.ids.get(name) == now.ids.get(name):
        return dict.fromkeys(PARTS, False)
    if name not in before.ids or name not in now.ids:  # a stage that only one of them has
        return {"config": False, "code": True, "model": False, "inputs": False}
    if not told:
        return {"config": guessed.get(name), "code": None, "model": None, "inputs": None}
    old, new = before.parts.get(name, {}), now.parts.get(name, {})
    inputs = sorted(part for part in old.keys() | new.keys() if part.startswith("input:") and part != FILES)
    changed: dict[str, bool | None] = {part: old.get(part) != new.get(part) for part in PARTS if part != "inputs"}
    changed["inputs"] = any(old.get(part, "") != new.get(part, "") for part in inputs)
    return changed


def _config_changes(before: Manifest, now: Manifest) -> dict[str, bool]:
    """Stage -> whether its config, or one that it shares, differs."""
    old, new = (configure(Settings(**manifest.config)) for manifest in (before, now))
    same = {name: old[name] == new[name] for name in BY_NAME}
    return {stage.name: not all(same[name] for name in (stage.name, *stage.shares)) for stage in STAGES}


@cache
def acting(stage: str, cause: str | None) -> frozenset[str]:
    """The rooms whose output a ledger's test looks at, with all that these are made of: only they can have caused a loss.

    Args:
        stage: first_loss_stage.
        cause: its cause; a cut unit and one out of reading order depend on the whole pipeline.
    """
    tables: tuple[str, ...] = NEEDS.get(stage, ())
    if stage in {"parsing", "cleaning"}:
        tables = ("parsed", "cleaned", "dedup")  # restored by cleaning; and a carrier counts by what dedup kept
    if stage == "filtering":
        tables = (*tables, "chunks")
    if stage == "embedding":
        tables = (*tables, "scopes")
    if not tables or cause in EVERYTHING:
        tables = ("ranked_runs",)
    found: set[str] = set()
    queue = list(tables)
    while queue:
        room = PRODUCER[queue.pop()]
        if room.name not in found:
            found.add(room.name)
            queue.extend(room.reads)
    return frozenset(found)
