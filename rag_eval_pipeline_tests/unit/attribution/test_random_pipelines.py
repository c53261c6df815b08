"""On random small pipelines the books balance, ranks equal a walk, and first loss equals the definition taken literally."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import polars as pl
import pytest

from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.attribution.order import AFTER, STAGES
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.attribution.waterfall import check_books, ranking_recall, unit_slices
from rag_eval_pipeline.measures.evidence import UNIT, hold_rank, served
from rag_eval_pipeline_tests.unit.attribution.literal import Literal
from rag_eval_pipeline_tests.unit.attribution.world import make_world, make_worlds
from rag_eval_pipeline_tests.walking import served_at

SIZE = 50
"""Pipelines in one run; each run has its own cut-offs, depths and hold."""
GROUP = ["retriever", "k", "slice_name", "slice_value"]


def brute_recall(world, evidence, k):
    """Evidence recall by retriever and slice, from lists walked item by item."""
    slices = unit_slices(
        evidence.units, world.gold.queries, world.frames["documents"], world.settings.evaluate.slices
    ).rows()
    rows = served_at(evidence.pieces, world.frames["ranked_runs"], evidence.units, k, world.settings.ledger.hold)
    flags = {row[:3]: row[3] for row in rows.iter_rows()}
    eligible = {row[:2]: row[2] for row in evidence.units.select(*UNIT, "eligible").iter_rows()}
    shares: dict = {}
    for query, unit, name, value in slices:
        if not eligible[query, unit]:
            continue
        for retriever in world.retrievers:
            group = shares.setdefault((retriever, k, name, value), {})
            group.setdefault(query, []).append(flags.get((query, unit, retriever), False))
    return {group: mean(mean(values) for values in by_query.values()) for group, by_query in shares.items()}


def used_units(world, evidence) -> dict:
    """Units of each query that its answer stands on, by sets of characters, and why not."""
    chunks = {row["chunk_id"]: (row["start"], row["end"]) for row in world.frames["chunks"].iter_rows(named=True)}
    given: dict = {}
    for row in world.frames["contexts"].iter_rows(named=True):
        given.setdefault(row["query_id"], {})[row["position"]] = row
    said = {row["query_id"]: row for row in world.frames["answers"].filter(sample=1).iter_rows(named=True)}
    stands: dict = {}
    for row in world.frames["answer_citations"].filter(status="resolved").iter_rows(named=True):
        stands.setdefault(row["answer_id"], set()).update(row["passages"])
    for row in world.frames["claim_verdicts"].filter(verifier="lexical", label="supported").iter_rows(named=True):
        stands.setdefault(row["answer_id"], set()).update(int(place) for place in row["passages"])
    found = {}
    for unit in evidence.units.iter_rows(named=True):
        query, answer = unit["query_id"], said.get(unit["query_id"])
        outcome = answer["outcome"] if answer else None
        seen: dict = {}
        for row in given.get(query, {}).values():
            seen.setdefault(row["doc_id"], set()).update(range(row["start"], row["end"]))
        places: dict = {}
        for place in stands.get(query, ()) if outcome in ("answered", "hedged") else ():
            row = given[query][place]
            mine = places.setdefault(row["doc_id"], set())
            mine.update(seen[row["doc_id"]] & set(range(*chunks[row["chunk_id"]])))
        mine = evidence.pieces.filter(query_id=query, evidence_id=unit["evidence_id"]).to_dicts()
        held = any(
            stands_on(unit, [p for p in mine if p["carrier"] == c], places, world) for c in {p["carrier"] for p in mine}
        )
        why = {None: "no_answer", "refused": "refused", "empty": "empty"}.get(outcome, "ignored")
        found[query, unit["evidence_id"]] = (held, None if held else why)
    return found


def stands_on(unit, pieces, places, world) -> bool:
    """Whether one carrier's characters in `places` (document -> offsets) hold a unit."""
    if unit["kind"] == "document":
        return any(piece["doc_id"] in places for piece in pieces)
    chars, tokens = set(), set()
    for piece in pieces:
        there = places.get(piece["doc_id"], set())
        at = {c: p for c, p in zip(piece["chars"], piece["positions"], strict=True) if p in there}
        chars |= set(at)
        for token in piece["tokens"]:
            wanted = [at.get(c) for c in range(unit["critical_from"][token], unit["critical_to"][token])]
            if None not in wanted and set(range(min(wanted), max(wanted) + 1)) <= there:
                tokens.add(token)
    needed = max(world.settings.ledger.hold * unit["n_chars"] - 1e-9, 1)
    return len(chars) >= needed and len(tokens) == len(unit["critical_from"])


def check_answers(world, evidence, books, where) -> None:
    """After k: recall = lost at context + lost at answering + used, against answers looked at one by one."""
    expected, k = used_units(world, evidence), world.settings.evaluate.serve_k
    fate = books.fate.filter((pl.col("k") == k) & (pl.col("retriever") == "hybrid"))
    for row in fate.iter_rows(named=True):
        told = (row["answer_used"], row["answer_cause"])
        assert told == expected[row["query_id"], row["evidence_id"]], (where, row)
    assert books.fate.filter(pl.col("k") != k)["answer_used"].is_null().all(), where
    rows = books.waterfall.filter(
        (pl.col("k") == k) & (pl.col("retriever") == "hybrid") & (pl.col("slice_name") == "all")
    )
    after = {row["stage"]: row for row in rows.iter_rows(named=True) if row["stage"] in AFTER}
    counted = fate.filter("eligible").with_columns(
        used=pl.col("served") & pl.col("context_held") & pl.col("answer_used")
    )
    used = counted.group_by("query_id").agg(pl.col("used").mean())["used"].mean()
    assert set(after) == set(AFTER), where
    lost = sum(row["lost_recall"] for row in after.values())
    assert abs(rows["recall"][0] - lost - used) <= 1e-12, where
    assert abs(after["answering"]["ceiling_after"] - used) <= 1e-12, where


def check_worlds(run: int) -> Counter:
    world = make_worlds(run, range(run * SIZE, (run + 1) * SIZE))
    evidence = build_units(world.gold, world.frames, world.settings)
    books = build_ledger(world.frames, *evidence, world.settings, world.retrievers, world.gold.queries)
    where = f"run {run}"
    assert not books.fate["impossible"].any(), where

    # The books, against recall that was counted without hold ranks.
    lost = books.waterfall.filter(~pl.col("stage").is_in(AFTER)).group_by(GROUP).agg(pl.col("lost_recall").sum())
    sums = {row[:4]: row[4] for row in lost.select(*GROUP, "lost_recall").iter_rows()}
    expected: dict = {}
    for k in {*world.settings.evaluate.k, world.settings.evaluate.serve_k}:
        expected |= brute_recall(world, evidence, k)
    assert sums.keys() == expected.keys(), where
    for group, recall in expected.items():
        assert abs(1 - sums[group] - recall) <= 1e-12, (where, group)

    check_answers(world, evidence, books, where)

    # Hold ranks, against the same.
    hold = world.settings.ledger.hold
    for table in ("ranked_runs", "runs"):
        run = world.frames[table]
        ranks = hold_rank(evidence.pieces, run, evidence.units, hold)
        for k in (1, 2, 3, 50):
            walked = served_at(evidence.pieces, run, evidence.units, k, hold)
            joined = walked.join(served(ranks, k), on=[*UNIT, "retriever"], how="left")
            differ = joined.filter(pl.col("served") != pl.col("served_right").fill_null(False))
            assert differ.is_empty(), (where, table, k)

    # First loss, against the definition taken literally.
    literal = Literal(world, evidence.units, evidence.anchors)
    units = {(unit["query_id"], unit["evidence_id"]): unit for unit in literal.units}
    for row in books.fate.iter_rows(named=True):
        unit = units[row["query_id"], row["evidence_id"]]
        stage, cause = literal.fate(unit, row["retriever"], row["k"])
        assert row["first_loss_stage"] == stage, (where, row)
        if cause is not None:
            assert row["cause"] == cause, (where, row)
        assert row["rescued"] == literal.rescued(unit, row["retriever"], row["k"]), (where, row)
    return Counter(books.fate["first_loss_stage"].to_list())


@pytest.mark.parametrize("run", range(4))
def test_books_ranks_and_first_loss_agree_with_plain_walks(run):
    check_worlds(run)


@pytest.mark.full
def test_books_ranks_and_first_loss_agree_on_many_pipelines_and_every_stage_occurs():
    seen = sum((check_worlds(run) for run in range(100, 130)), Counter())
    assert {stage for stage in STAGES if not seen[stage]} == set()


def test_what_the_books_are_kept_for_occurs():
    """Split quotes, duplicates that rescue, several hops, and crossed slices of queries and of units."""
    world = make_worlds(0, range(SIZE))
    evidence = build_units(world.gold, world.frames, world.settings)
    books = build_ledger(world.frames, *evidence, world.settings, world.retrievers, world.gold.queries)
    names = set(books.waterfall["slice_name"].to_list())
    assert {"all", "hop", "tags", "answerable", "intent×doc_class", "intent×tags", "doc_class×tags"} <= names
    assert books.waterfall["books_ok"].all()
    assert books.fate["rescued"].any()
    assert evidence.units["hop"].n_unique() > 2
    assert {"reranking", "chunking", "dedup"} <= set(books.fate["first_loss_stage"].to_list())
    assert {"degraded", "held", "lost"} <= set(books.ledger.filter(pl.col("stage") == "chunking")["state"].to_list())


def test_the_retrieval_rooms_own_recall_balances_the_books():
    for seed in range(6):
        world = make_world(seed)
        evidence = build_units(world.gold, world.frames, world.settings)
        books = build_ledger(world.frames, *evidence, world.settings, world.retrievers, world.gold.queries)
        rows = []
        for k in world.settings.evaluate.k:
            walked = served_at(
                evidence.pieces, world.frames["ranked_runs"], evidence.units, k, world.settings.ledger.hold
            )
            flags = {row[:3]: row[3] for row in walked.iter_rows()}
            by_query: dict = {}
            for query, unit in evidence.units.filter("eligible").select(UNIT).iter_rows():
                for name in world.retrievers:
                    by_query.setdefault((query, name), []).append(flags.get((query, unit, name), False))
            rows += [
                {"metric": "recall", "unit": "evidence", "item_type": "query", "item_id": query, "retriever": name,
                 "k": k, "value": float(mean(values))}
                for (query, name), values in by_query.items()
            ]  # fmt: skip
        if not rows:
            continue
        slices = unit_slices(
            evidence.units, world.gold.queries, world.frames["documents"], world.settings.evaluate.slices
        )
        frames = world.frames | {"retrieval_quality": pl.DataFrame(rows)}
        ranking = ranking_recall(frames, evidence.units, evidence.pieces, slices, world.settings.ledger.hold)
        result = check_books(books.waterfall, ranking)
        assert result.ok, (seed, result.describe(), result.faults)
        wrong = ranking.with_columns(pl.col("value") + 1e-9)
        assert not check_books(books.waterfall, wrong).ok
        missing = ranking.filter(pl.col("slice_name") != "all")
        assert "no figure" in check_books(books.waterfall, missing).describe()


def test_the_same_input_gives_the_same_rows():
    for seed in (1, 2):
        runs = []
        for _ in range(2):
            world = make_world(seed)
            evidence = build_units(world.gold, world.frames, world.settings)
            runs.append(
                (
                    *evidence,
                    *build_ledger(world.frames, *evidence, world.settings, world.retrievers, world.gold.queries),
                )
            )
        assert all(a.equals(b) for a, b in zip(*runs, strict=True))
