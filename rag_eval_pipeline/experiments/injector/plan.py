"""Choose what is planted where: kinds at their rates, one plant a document and a unit, so that each loss has one culprit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any

from rag_eval_pipeline.experiments.injector.chain import propagate
from rag_eval_pipeline.experiments.injector.edits import PLANNERS, Planned, Spoil
from rag_eval_pipeline.experiments.injector.sites import Unit
from rag_eval_pipeline.experiments.injector.state import State
from rag_eval_pipeline.experiments.matrix import BY_NAME, KINDS, PAIRS

BY_QUERY = frozenset({"harmful_reranker"})
"""Kinds that take a query's units and no document."""
PAIR_RATE = 0.25
"""Pairs a document with evidence."""


class FaultsError(ValueError):
    """A faults file names what is no kind, or a rate that is none."""


def read_faults(value: Any) -> dict[str, dict[str, float]]:
    """Kinds with their rates, from a faults file.

    Raises:
        FaultsError: an unknown kind or key, or a number out of range; the message says what is known.
    """
    given = value.get("faults") if isinstance(value, Mapping) else None
    if not isinstance(given, Mapping) or set(value) - {"faults"}:
        raise FaultsError("a faults file is `faults: {kind: {rate: 0.1}}`; kinds: " + ", ".join(BY_NAME))
    faults: dict[str, dict[str, float]] = {}
    for name, asked in given.items():
        if name not in BY_NAME:
            raise FaultsError(f"no kind {name!r}; known are: {', '.join(BY_NAME)}")
        asked = asked or {}
        if not isinstance(asked, Mapping) or set(asked) - {"rate", "count"} or len(asked) > 1:
            raise FaultsError(f"{name}: write {{rate: 0.1}} or {{count: 3}}")
        for key, number in asked.items():
            fits = isinstance(number, int if key == "count" else int | float) and not isinstance(number, bool)
            if not fits or not number >= 0 or (key == "rate" and number > 1):
                raise FaultsError(
                    f"{name}.{key}: found {number!r}; a rate is between 0 and 1, a count is a whole number of 0 or more"
                )
        faults[str(name)] = dict(asked)
    return faults


class Plan:
    """Faults chosen so far, and what they took: documents and units serve once."""

    def __init__(self, state: State, rng: Random) -> None:
        self.state, self.rng = state, rng
        self.faults: list[Planned] = []
        self.left_out: dict[str, str] = {}
        self._documents: set[str] = set()
        self._units: set[tuple[str, str]] = set()
        self._carriers: dict[tuple[str, str], set[str]] = {}
        for doc_id, units in state.evidence.items():
            for unit in units:
                self._carriers.setdefault(unit, set()).add(doc_id)

    def wanted(self, asked: Mapping[str, float]) -> int:
        """How many plants a rate or a count asks for."""
        if "count" in asked:
            return int(asked["count"])
        documents = sum(1 for units in self.state.evidence.values() if units)
        rate = asked.get("rate", 1.0)
        return max(1, round(rate * documents)) if rate > 0 else 0

    def add(self, kind: str, count: int) -> None:
        """Plant `count` faults of a kind, as far as there are sites."""
        made = 0
        for unit in self._shuffled():
            if made >= count:
                return
            if self._taken(unit, kind):
                continue
            planned = PLANNERS[kind](self.state, unit, self.rng)
            if planned is not None and kind == "harmful_reranker":
                planned = self._with_tail(planned)
            if planned is not None and self._fits([planned], unit):
                self._take([planned])
                self.faults.append(planned)
                made += 1
        if made < count:
            needs = BY_NAME[kind].needs
            self.left_out[kind] = f"{made} of {count} planted; " + (f"it needs {needs}" if needs else "no more sites")

    def add_pairs(self, count: int, kinds: Sequence[str]) -> list[tuple[Planned, Planned]]:
        """Plant pairs on one unit each, the kinds of PAIRS in turn."""
        chosen = [pair for pair in PAIRS if set(pair) <= set(kinds)]
        self.rng.shuffle(chosen)
        pairs: list[tuple[Planned, Planned]] = []
        barren: set[tuple[str, str]] = set()
        for names in cycle(chosen) if chosen else ():
            if len(pairs) >= count or len(barren) == len(chosen):
                break
            if names in barren:
                continue
            found = self._pair(*names)
            if found is None:
                barren.add(names)
                self.left_out["+".join(names)] = "no more sites"
            else:
                pairs.append(found)
                self.faults += found
        return pairs

    def _pair(self, first: str, second: str) -> tuple[Planned, Planned] | None:
        for unit in self._shuffled():
            if self._taken(unit, first):
                continue
            one = PLANNERS[first](self.state, unit, self.rng)
            if one is None or not self._fits([one], unit):
                continue
            after, _ = propagate(self.state, [replace(one, decoy=None)], dedup=False)
            again = next((u for u in one.reworded if u.id == unit.id), unit)
            two = PLANNERS[second](after, again, self.rng)
            if two is not None and second in BY_QUERY:
                two = self._with_tail(two)
            if two is None or not self._fits([one, two], unit):
                continue
            # Each of a pair acts on the units of both, or neither: others are left to singles.
            both = tuple(sorted(set(one.touched) & set(two.touched)))
            if unit.id not in both:
                continue
            self._take([one, two])
            return one, two
        return None

    def _shuffled(self) -> list[Unit]:
        units = [unit for unit in self.state.units if unit.eligible]
        self.rng.shuffle(units)
        return units

    def _taken(self, unit: Unit, kind: str) -> bool:
        return unit.id in self._units or (kind not in BY_QUERY and unit.doc_id in self._documents)

    def _reach(self, planned: Sequence[Planned]) -> tuple[set[str], set[tuple[str, str]]]:
        documents, units = set(), set()
        for one in (p for fault in planned for p in (fault, fault.decoy) if p):
            documents |= {*one.documents, *([one.doc_id] if one.doc_id else [])}
            units |= set(one.touched)
            if one.query_id is not None:
                units |= {u.id for u in self.state.units if u.query_id == one.query_id}
        return documents, units

    def _fits(self, planned: Sequence[Planned], unit: Unit) -> bool:
        documents, units = self._reach(planned)
        touched = all(unit.id in fault.touched for fault in planned)
        # A copy of the evidence in a document that another fault spoils would give the loss two culprits.
        copies = {d for fault in planned if fault.doc_id for u in fault.touched for d in self._carriers.get(u, ())}
        return touched and not (documents | copies) & self._documents and not units & self._units

    def _take(self, planned: Sequence[Planned]) -> None:
        documents, units = self._reach(planned)
        self._documents |= documents
        self._units |= units

    def _with_tail(self, planned: Planned) -> Planned | None:
        """A decoy for a spoiled query: another query, whose list is turned around behind the first items only."""
        texts = dict(self.state.frames["prepared_queries"].select("query_id", "text").iter_rows())
        mine = next(edit.query for edit in planned.edits)
        others = [u for u in self._shuffled() if u.id not in self._units and texts.get(u.query_id, mine) != mine]
        for unit in others:
            if all(other.id not in self._units for other in self.state.units if other.query_id == unit.query_id):
                text = texts[unit.query_id]
                decoy = Planned(
                    planned.kind, None, None, (), (Spoil(text, tail=True),), query_id=unit.query_id, note="tail only"
                )
                return replace(planned, decoy=decoy)
        return None


def plan_singles(state: State, faults: Mapping[str, Mapping[str, float]], rng: Random) -> Plan:
    """Every kind at its rate, scarce ones first. Kinds that act on the whole corpus are settings, and not chosen here."""
    plan = Plan(state, rng)
    for kind in KINDS:
        if kind.name in faults and not kind.whole:
            plan.add(kind.name, plan.wanted(faults[kind.name]))
    return plan
