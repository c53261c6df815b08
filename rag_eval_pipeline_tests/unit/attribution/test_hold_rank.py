"""Hold ranks equal a walk at every k, on pieces made at random: overlapping, partial, of several carriers."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.measures.evidence import (
    UNIT,
    hold_rank,
    holds_together,
    needed_chars,
    scattered,
    served,
    tokens_intact,
)
from rag_eval_pipeline.stages.chunking.evidence import PIECES
from rag_eval_pipeline_tests.walking import served_at

UNITS = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    "kind": pl.String,
    "n_chars": pl.Int64,
    "critical_from": pl.List(pl.Int64),
    "critical_to": pl.List(pl.Int64),
}
RUN = {"query_id": pl.String, "retriever": pl.String, "rank": pl.Int64, "chunk_id": pl.String, "doc_id": pl.String}
ITEMS = 9


def make(seed: int, hold: float):
    """Sixty units: each with pieces of one to three carriers in a list of nine chunks of four documents."""
    rng = random.Random(seed)
    units, pieces, run = [], [], []
    for number in range(60):
        query = f"q{number}"
        documents = [rng.choice("abcd") for _ in range(ITEMS)]
        chunks = [(f"{query}:{i}", documents[i]) for i in range(ITEMS)]
        run += [(query, name, rank, *item) for name in ("x", "y")
                for rank, item in enumerate(rng.sample(chunks, rng.randint(0, ITEMS)), 1)]  # fmt: skip
        if rng.random() < 0.2:
            units.append((query, "e", "document", 0, [], []))
            document = rng.choice("abcd")
            pieces += [(query, "e", 0, c, d, [], [], [], True) for c, d in chunks if d == document]
            continue
        n = rng.randint(1, 12)
        lows = sorted(rng.sample(range(n), min(n, rng.choice((0, 1, 2)))))
        units.append((query, "e", "quote", n, lows, [low + 1 for low in lows]))
        for carrier in range(rng.randint(1, 3)):
            for chunk, document in rng.sample(chunks, rng.randint(1, 7)):
                start = rng.randrange(n)
                chars = list(range(start, min(n, start + rng.randint(1, n))))
                tokens = [t for t, low in enumerate(lows) if low in chars and rng.random() < 0.9]
                whole = len(chars) >= needed_chars(n, hold) and len(tokens) == len(lows)
                pieces.append((query, "e", carrier, chunk, document, chars, chars, tokens, whole))
    return (
        pl.DataFrame(units, schema=UNITS, orient="row"),
        pl.DataFrame(pieces, schema=PIECES, orient="row"),
        pl.DataFrame(run, schema=RUN, orient="row"),
    )


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from((0.5, 0.9, 1.0)))
def test_hold_rank_equals_a_walk_at_every_k(seed, hold):
    units, pieces, run = make(seed, hold)
    ranks = hold_rank(pieces, run, units, hold)
    for k in range(1, ITEMS + 2):
        walked = served_at(pieces, run, units, k, hold)
        both = walked.join(served(ranks, k), on=[*UNIT, "retriever"], how="left")
        assert both.filter(pl.col("served") != pl.col("served_right").fill_null(False)).is_empty(), k


def test_together_is_a_list_of_all_chunks():
    units, pieces, _ = make(5, 0.9)
    every = pieces.select("query_id", "chunk_id", "doc_id").unique().sort("chunk_id")
    run = every.with_columns(retriever=pl.lit("all"), rank=pl.int_range(1, pl.len() + 1).over("query_id"))
    walked = served_at(pieces, run.select(list(RUN)), units, ITEMS, 0.9)
    held = holds_together(pieces, units, 0.9)
    assert held.join(walked, on=UNIT).filter(pl.col("held") != pl.col("served")).is_empty()


@pytest.mark.parametrize(
    ("text", "intact"),
    [
        ("get 18 days", True),
        ("get 18, days", True),
        ("get 118 days", False),
        ("get 1 8 days", False),
        ("get 1.8 days", False),
        ("get 18x days", False),
        ("get18 days", False),
    ],
)
def test_a_critical_token_survives_whole_and_untouched(text, intact):
    at = text.rindex("1")
    positions = np.array([at, text.index("8")])
    assert tokens_intact(text, positions, "18", [(0, 2)]) == [intact]


def test_a_neighbour_that_stands_beside_the_token_in_the_source_is_not_foreign():
    positions = np.array([1, 2])
    assert tokens_intact("A18", positions, "18", [(0, 2)], before="A") == [True]
    assert tokens_intact("B18", positions, "18", [(0, 2)], before="A") == [False]


def test_white_space_inside_a_token_only_where_the_source_has_it():
    assert tokens_intact("5\n  mg", np.array([0, 4, 5]), "5 mg", [(0, 3)]) == [True]
    assert tokens_intact("5mg", np.array([0, 1, 2]), "5 mg", [(0, 3)]) == [True]
    assert tokens_intact("5 mg", np.array([0, 2, 3]), "5mg", [(0, 3)]) == [False]


def test_scattered_is_out_of_order_or_over_more_than_one_and_a_half_times_the_length():
    assert not scattered("abcdef", np.arange(6))
    assert scattered("abcdef", np.array([3, 4, 5, 0, 1, 2]))
    assert not scattered("abc xxx def", np.array([0, 1, 2, 8, 9, 10]))
    assert scattered("abc xxxx def", np.array([0, 1, 2, 9, 10, 11]))
