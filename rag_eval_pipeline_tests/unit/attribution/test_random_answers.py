"""On random small pipelines with answers the stage `answering`, and the split of what is not supported, equal a literal reading.

The reading starts from the anchors, walks characters one by one, and shares no code with the rooms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.stages.answering.quality import measure
from rag_eval_pipeline.stages.answering.transform import AnsweringConfig
from rag_eval_pipeline_tests.unit.attribution.literal import Literal
from rag_eval_pipeline_tests.unit.attribution.world import make_worlds

SIZE = 25
"""Pipelines in one run."""
METRICS = ("evidence_used", "unsupported_evidence_absent", "unsupported_evidence_ignored")


class Reading(Literal):
    """What each answer had and stood on, by characters."""

    def __init__(self, world, units, anchors):
        super().__init__(world, units, anchors)
        frames = world.frames
        self.given, self.claims, self.stands = {}, {}, {}
        for row in frames["contexts"].iter_rows(named=True):
            self.given.setdefault(row["query_id"], {})[row["position"]] = row
        self.said = {row["query_id"]: row for row in frames["answers"].iter_rows(named=True) if row["sample"] == 1}
        for row in frames["answer_claims"].iter_rows(named=True):
            self.claims.setdefault(row["answer_id"], []).append(row["claim_id"])
        verdicts = frames["claim_verdicts"].to_dicts()
        self.labels = {(row["answer_id"], row["claim_id"], row["verifier"]): row["label"] for row in verdicts}
        self.verifiers = sorted({row["verifier"] for row in verdicts})
        decides = "lexical" if "lexical" in self.verifiers else self.verifiers[0]
        self.decides = decides
        for row in frames["answer_citations"].iter_rows(named=True):
            if row["status"] == "resolved":
                self.stands.setdefault(row["answer_id"], set()).update(row["passages"])
        for row in verdicts:
            if row["verifier"] == decides and row["label"] == "supported":
                self.stands.setdefault(row["answer_id"], set()).update(int(place) for place in row["passages"])

    def outcome(self, query):
        return self.said[query]["outcome"] if query in self.said else None

    def characters(self, query):
        """Document -> offsets of its masked text that the context gave."""
        found: dict = {}
        for row in self.given.get(query, {}).values():
            found.setdefault(row["doc_id"], set()).update(range(row["start"], row["end"]))
        return found

    def available(self, unit):
        """Whether the context had the unit."""
        return self.held(unit, self.characters(unit["query_id"]))

    def used(self, unit):
        """Whether the answer stood on it: the chunks that it names, as far as the context gave their characters."""
        query = unit["query_id"]
        if self.outcome(query) not in ("answered", "hedged"):
            return False
        given, found = self.characters(query), {}
        for place in self.stands.get(self.said[query]["answer_id"], ()):
            piece = self.given[query][place]
            chunk = self.chunks[piece["chunk_id"]]
            mine = {at for at in range(chunk["start"], chunk["end"]) if at in given[piece["doc_id"]]}
            found.setdefault(piece["doc_id"], set()).update(mine)
        return self.held(unit, found)

    def why(self, unit):
        if self.used(unit):
            return None
        return {None: "no_answer", "refused": "refused", "empty": "empty"}.get(
            self.outcome(unit["query_id"]), "ignored"
        )

    def held(self, unit, there):
        """Whether one carrier's characters are there: enough of them, and each critical token whole, in one chunk."""
        for carrier in self.carriers[unit["query_id"], unit["evidence_id"]].values():
            anchor = carrier["masked"]
            seen = there.get(anchor["doc_id"])
            if seen is None or not anchor["present"] or not anchor["kept"]:
                continue
            if unit["kind"] == "document":
                return True
            places = anchor["positions"]
            count = sum(place in seen for place in places if place >= 0)
            if count and count >= self.hold * unit["n_chars"] - 1e-9 and self.tokens(unit, anchor, seen):
                return True
        return False

    def tokens(self, unit, anchor, seen):
        mine = [
            self.chunks[c] for c in self.by_document.get(anchor["doc_id"], []) if self.chunks[c]["start"] is not None
        ]
        for token, (low, high) in enumerate(zip(unit["critical_from"], unit["critical_to"], strict=True)):
            places = anchor["positions"][low:high]
            if token in anchor["broken"] or min(places) < 0 or not set(range(min(places), max(places) + 1)) <= seen:
                return False
            if not any(chunk["start"] <= min(places) and max(places) < chunk["end"] for chunk in mine):
                return False
        return True

    # --- by query

    def units_of(self, query):
        return [unit for unit in self.units if unit["query_id"] == query]

    def evidence_there(self, query, answerable):
        """Whether the answer had what it needed: one unit, of numbered hops one of each; None where nobody labelled any."""
        if not answerable:
            return False
        mine = [unit for unit in self.units_of(query) if unit["eligible"]]
        if not mine:
            return None
        hops = {unit["hop"] for unit in mine}
        return all(any(self.available(unit) for unit in mine if unit["hop"] == hop) for hop in hops)

    def measured(self, query, answerable):
        """(metric, verifier) -> (value, status)."""
        mine = self.units_of(query)
        eligible = [unit for unit in mine if unit["eligible"]]
        there = [unit for unit in eligible if self.available(unit)]
        share = sum(self.used(unit) for unit in there) / len(there) if there else None
        reason = "scored" if there else "evidence_absent" if eligible else "ineligible" if mine else "no_gold"
        found = {("evidence_used", self.decides): (share, reason)}
        for verifier in self.verifiers:
            absent, ignored = self.split(query, answerable, verifier)
            found["unsupported_evidence_absent", verifier] = absent
            found["unsupported_evidence_ignored", verifier] = ignored
        return found

    def split(self, query, answerable, verifier):
        """Claims that are not supported, where the evidence was absent, and where it was ignored."""
        outcome = self.outcome(query)
        if outcome not in ("answered", "hedged"):
            return ((None, outcome or "no_answer"),) * 2
        claims = self.claims.get(self.said[query]["answer_id"], [])
        labels = [self.labels[self.said[query]["answer_id"], claim, verifier] for claim in claims]
        there = self.evidence_there(query, answerable)
        for failed, status in ((not claims, "no_claims"), (None in labels, "judge_error"), (there is None, "no_gold")):
            if failed:
                return ((None, status),) * 2
        share = sum(label != "supported" for label in labels) / len(labels)
        return (0.0 if there else share, "scored"), (share if there else 0.0, "scored")


def world_of(run, size):
    """Many pipelines at once; every third run without the verifier that decides by default; some queries that nothing answers."""
    world = make_worlds(run, range(run * size, (run + 1) * size))
    frames = dict(world.frames)
    if run % 3 == 2:
        frames["claim_verdicts"] = frames["claim_verdicts"].filter(pl.col("verifier") != "lexical")
    frames["chunks"] = frames["chunks"].with_columns(prefix=pl.lit(""), language=pl.lit("en"))
    queries = world.gold.queries.with_columns(answerable=pl.int_range(pl.len()) % 7 > 0)
    frames["prepared_queries"] = queries.select("query_id", "text", language=pl.lit("en"))
    return replace(world, frames=frames, gold=replace(world.gold, queries=queries))


def check_run(run, size=SIZE):
    world = world_of(run, size)
    evidence = build_units(world.gold, world.frames, world.settings)
    reading = Reading(world, evidence.units, evidence.anchors)
    seen: Counter = Counter()
    books = build_ledger(world.frames, *evidence, world.settings, world.retrievers, world.gold.queries)

    # The ledger and the fates: who stood on what, and why not.
    expected = {
        (unit["query_id"], unit["evidence_id"]): (reading.used(unit), reading.why(unit)) for unit in reading.units
    }
    stage = books.ledger.filter(stage="answering", retriever="hybrid")
    told = {row[:2]: row[2:] for row in stage.select("query_id", "evidence_id", "held", _why()).iter_rows()}
    assert told == expected, run
    fate = books.fate.filter(retriever="hybrid", k=world.settings.evaluate.serve_k)
    for row in fate.iter_rows(named=True):
        name = row["query_id"], row["evidence_id"]
        assert (row["answer_used"], row["answer_cause"]) == expected[name], (run, row)
        unit = next(unit for unit in reading.units_of(name[0]) if unit["evidence_id"] == name[1])
        assert row["context_held"] == reading.available(unit), (run, row)
    seen.update(why or "used" for _, why in expected.values())

    # The losses of the waterfall: of what was served and is in the context, what the answer does not stand on.
    lost = {
        (row["query_id"], row["evidence_id"])
        for row in fate.filter("eligible", "served", "context_held").iter_rows(named=True)
        if not expected[row["query_id"], row["evidence_id"]][0]
    }
    rows = books.waterfall.filter(
        stage="answering", retriever="hybrid", k=world.settings.evaluate.serve_k, slice_name="all"
    )
    assert rows["lost_units"].to_list() == [len(lost)], run

    # The figures by query.
    frames = {**world.frames, "evidence_units": evidence.units, "evidence_pieces": evidence.pieces}
    table = measure(frames, world.gold, AnsweringConfig(answerer="import"), world.settings)
    figures: dict = {}
    for row in table.filter(pl.col("metric").is_in(METRICS)).iter_rows(named=True):
        verifier = row["params"].split('"verifier": "')[1].split('"')[0]
        figures.setdefault(row["item_id"], {})[row["metric"], verifier] = row["value"], row["status"]
    asked = world.gold.measured(world.settings.evaluate.split)
    assert sorted(figures) == sorted(asked["query_id"]), run
    for query, answerable in asked.select("query_id", "answerable").iter_rows():
        wanted = reading.measured(query, answerable)
        assert figures[query].keys() == wanted.keys(), (run, query)
        for name, (value, status) in wanted.items():
            assert figures[query][name] == (value if value is None else pytest.approx(value, abs=1e-12), status), (
                run, query, name,
            )  # fmt: skip
            seen[name[0] if value else f"{name[0]} {status}"] += 1
    return seen


def _why():
    return pl.col("detail").str.json_path_match("$.why")


@pytest.mark.parametrize("run", [0, 2])
def test_what_answers_stand_on_and_ignore_equals_a_walk_over_characters(run):
    check_run(run)


@pytest.mark.full
def test_what_answers_stand_on_and_ignore_equals_a_walk_on_many_pipelines_and_everything_occurs():
    seen = sum((check_run(run, 50) for run in range(200, 224)), Counter())
    for name in ("used", "ignored", "refused", "empty", "no_answer", *METRICS):
        assert seen[name] > 20, (name, seen)
    for status in ("scored", "no_gold", "judge_error", "no_claims", "refused", "empty", "no_answer"):
        assert seen[f"unsupported_evidence_absent {status}"] > 20, (status, seen)
