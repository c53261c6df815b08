"""The ledger at scale, on input made at random; and its hold ranks against the definition walked item by item."""

import resource

import polars as pl

from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.measures.evidence import UNIT, hold_rank, served
from rag_eval_pipeline_tests.bench import pieces
from rag_eval_pipeline_tests.bench.timing import Result, in_turn, spend
from rag_eval_pipeline_tests.walking import served_at

KS = (1, 3, 5, 10)


def large(repeats: int, units: int = 10_000, chunks: int = 100_000) -> list[Result]:
    """Ledger, fate and waterfall; what is printed as memory is the process's peak above what its input takes."""
    made = pieces.make(units, chunks)
    frames, gold, anchors, parts, settings, retrievers, queries = made
    before = _peak()
    found: list = []

    def whole() -> None:
        found[:] = [build_ledger(frames, gold, anchors, parts, settings, retrievers, queries)]

    times = [spend(whole) for _ in range(min(repeats, 3))]
    books = found[0].waterfall
    note = (
        f"{_peak() - before:,} MB above the input; {books.height:,} rows of waterfall, "
        f"largest residual {books['residual'].abs().max():.0e}, impossible {books['impossible'].sum()}"
    )
    lists = frames["ranked_runs"].height
    what = f"ledger: {units:,} units × {len(retrievers)} retrievers × {len(KS)} ks, {chunks:,} chunks, {lists:,} listed items"
    return [Result(what, "none", times, [], note), _ranks(repeats)]


def _ranks(repeats: int, units: int = 2_000) -> Result:
    """Hold ranks of one set of lists for all ks, against `served_at`, which walks them for each k."""
    made = pieces.make(units, 20_000)
    run = made.frames["ranked_runs"]
    hold = made.settings.ledger.hold

    def ours() -> list[pl.DataFrame]:
        ranks = hold_rank(made.pieces, run, made.units, hold)
        return [served(ranks, k) for k in KS]

    def theirs() -> list[pl.DataFrame]:
        return [served_at(made.pieces, run, made.units, k, hold) for k in KS]

    differ = 0
    for mine, walked in zip(ours(), theirs(), strict=True):
        both = walked.join(mine, on=[*UNIT, "retriever"], how="left")
        differ += both.filter(pl.col("served") != pl.col("served_right").fill_null(False)).height
    what = f"hold ranks: {units:,} units × 3 retrievers × {len(KS)} ks, depth 100"
    return in_turn(what, "a walk of every list", ours, theirs, f"{differ} differ", repeats)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
