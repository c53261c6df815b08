"""On random small pipelines the books balance, ranks equal a walk, and first loss equals the definition taken literally."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import polars as pl
import pytest

from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.attribution.order import STAGES
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.attribution.waterfall import check_books, ranking_recall, unit_slices
from rag_eval_pipeline.measures.evidence import UNIT, hold_rank, served, served_at
from rag_eval_pipeline_tests.unit.attribution.literal import Literal
from rag_eval_pipeline_tests.unit.attribution.world import make_world, make_worlds

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


def check_worlds(run: int) -> Counter:
    world = make_worlds(run, range(run * SIZE, (run + 1) * SIZE))
    evidence = build_units(world.gold, world.frames, world.settings)
    books = build_ledger(world.frames, *evidence, world.settings, world.retrievers, world.gold.queries)
    where = f"run {run}"
    assert not books.fate["impossible"].any(), where

    # The books, against recall that was counted without hold ranks.
    lost = books.waterfall.filter(pl.col("stage") != "context").group_by(GROUP).agg(pl.col("lost_recall").sum())
    sums = {row[:4]: row[4] for row in lost.select(*GROUP, "lost_recall").iter_rows()}
    expected: dict = {}
    for k in {*world.settings.evaluate.k, world.settings.evaluate.serve_k}:
        expected |= brute_recall(world, evidence, k)
    assert sums.keys() == expected.keys(), where
    for group, recall in expected.items():
        assert abs(1 - sums[group] - recall) <= 1e-12, (where, group)

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
        ranking = ranking_recall(
            frames, evidence.units, evidence.pieces, world.gold.queries, slices, world.settings.ledger.hold
        )
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
