"""Changes of figures on handmade measurements: pairs, counts of what only one side has, and the same as one at a time."""

import numpy as np
import polars as pl
import pytest

from rag_eval_pipeline.attribution.regressions import Side
from rag_eval_pipeline.measures.paired import paired_interval, paired_randomisation
from rag_eval_pipeline.release.deltas import release_delta
from rag_eval_pipeline.release.scorecard import scorecard
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.warehouse.measurement import Measurements
from rag_eval_pipeline.warehouse.table import polars_schema

SCHEMA = polars_schema(Measurements)
METRICS = [metric for stage in STAGES if stage.has_quality for metric in stage.door("quality", "METRICS")]
BASE = dict.fromkeys(SCHEMA) | {
    "corpus_version": "c@1", "pipeline": "default", "evaluation_id": "x", "stage": "retrieval", "retriever": "hybrid",
    "metric": "recall", "unit": "evidence", "k": 10, "params": "{}", "item_type": "query", "status": "scored", "weight": 1.0,
    "answerable": True, "tags": [],
}  # fmt: skip
DRAWS = 2_000


def series(values, **fields):
    return [
        {**BASE, "item_id": item, "value": value, "status": "no_gold" if value is None else "scored", **fields}
        for item, value in values.items()
    ]


def side(rows, name, clusters=None):
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    card = scorecard(frame, METRICS, ["intent", "language"])
    return Side(
        "c@" + name, "default", name, {"retrieval_quality": frame, "scorecard": card}, clusters or {}, "r" + name
    )


def deltas(before, now, clusters=None):
    return release_delta(side(before, "a"), side(now, "b", clusters), draws=DRAWS)


def the(frame, slice_name="all", **fields):
    rows = frame.filter(
        (pl.col("slice_name") == slice_name), *(pl.col(name) == value for name, value in fields.items())
    )
    return rows.row(0, named=True)


def shares(rng, n, share):
    return {f"q{i:03}": float(hit) for i, hit in enumerate(rng.random(n) < share)}


def test_both_evaluations_and_the_rules_of_the_newer_one_are_named():
    row = the(deltas(series({"q": 1.0}), series({"q": 0.0})))
    assert (row["evaluation_before"], row["evaluation_id"], row["version_before"], row["rules_hash"]) == (
        "a",
        "b",
        "c@a",
        "rb",
    )


def test_the_change_is_over_common_items_and_the_others_are_counted():
    before = series({"both": 1.0, "gone": 0.0, "unjudged now": 1.0, "neither": None})
    now = series({"both": 0.0, "new": 1.0, "unjudged now": None, "neither": None})
    row = the(deltas(before, now))
    assert (row["before"], row["now"], row["delta"], row["n"]) == (1.0, 0.0, -1.0, 1)
    assert (row["n_only_before"], row["n_only_now"], row["status"]) == (2, 1, "paired")


def test_a_series_of_one_side_alone_is_said_to_be_so_and_a_renamed_retriever_is_two_of_them():
    found = deltas(series({"q": 1.0}, retriever="old"), series({"q": 1.0}, retriever="new"))
    old, new = the(found, retriever="old"), the(found, retriever="new")
    assert (old["status"], new["status"]) == ("only_before", "only_now")
    assert (old["n_only_before"], new["n_only_now"], old["delta"], old["p"], old["direction"]) == (
        1,
        1,
        None,
        None,
        None,
    )
    apart = the(deltas(series({"a": 1.0}), series({"b": 1.0})))
    assert apart["status"] == "nothing_shared"
    assert the(deltas(series({"a": None}), series({"a": None})))["status"] == "no_values"


@pytest.mark.parametrize("kind", ["shares", "skewed", "errors"])
@pytest.mark.parametrize("clustered", [False, True])
def test_rows_equal_intervals_and_tests_made_one_at_a_time(kind, clustered):
    rng = np.random.default_rng(5)
    fields = {} if kind != "errors" else {"stage": "parsing", "metric": "cer", "unit": "char", "retriever": "", "k": 0}
    if kind == "shares":
        before, now = shares(rng, 80, 0.9), shares(rng, 80, 0.7)
    else:
        before, now = ({f"q{i:03}": float(v) for i, v in enumerate(rng.beta(1, 3, 80))} for _ in range(2))
    clusters = {item: f"c{int(item[1:]) % 35}" for item in before} if clustered else {}
    row = the(deltas(series(before, **fields), series(now, **fields), clusters))
    bounds = {"low": None, "high": None} if kind == "errors" else {"low": 0.0, "high": 1.0}
    expected = paired_interval(now, before, clusters=clusters or None, draws=DRAWS, **bounds)
    assert (row["low"], row["high"], row["method"]) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
        expected.method,
    )
    assert row["p"] == pytest.approx(paired_randomisation(now, before, clusters or None, draws=DRAWS))
    assert row["low"] <= row["delta"] <= row["high"]


def test_a_direction_says_which_way_is_better():
    rng = np.random.default_rng(1)
    low, high = shares(rng, 200, 0.2), shares(rng, 200, 0.9)
    assert the(deltas(series(low), series(high)))["direction"] == "better"
    assert the(deltas(series(high), series(low)))["direction"] == "worse"
    assert the(deltas(series(high), series(high)))["direction"] == "inconclusive"
    errors = {"stage": "parsing", "metric": "cer", "unit": "char"}
    assert the(deltas(series(low, **errors), series(high, **errors)))["direction"] == "worse"


def test_slices_and_their_crossings_are_compared_as_the_scorecard_has_them():
    before = series({"a": 1.0}, intent="x", language="en", tags=["t", "u"]) + series(
        {"b": 1.0}, intent="y", language="en"
    )
    now = series({"a": 0.0}, intent="x", language="en", tags=["t"]) + series({"b": 1.0}, intent="x", language="en")
    found = deltas(before, now)
    assert set(found["slice_name"]) == {"all", "intent", "language", "intent×language", "answerable", "tags"}
    x = the(found, "intent", slice_value="x")
    assert (x["n"], x["n_only_now"], x["delta"]) == (1, 1, -1.0), "b moved into the slice"
    assert the(found, "intent", slice_value="y")["status"] == "only_before"
    assert the(found, "tags", slice_value="u")["status"] == "only_before"
    assert the(found, "intent×language", slice_value="x×en")["n"] == 1


def test_a_figure_of_the_whole_corpus_has_a_change_and_no_interval():
    whole = {"item_type": "corpus", "retriever": "", "k": 0}
    row = the(deltas(series({"all": 0.5}, **whole), series({"all": 0.75}, **whole)))
    assert (row["delta"], row["low"], row["p"], row["method"], row["direction"]) == (
        0.25,
        None,
        None,
        "aggregate",
        "better",
    )


def test_a_measure_that_is_no_longer_declared_is_shown_without_a_direction():
    old = side(series({"q": 1.0}), "a")
    frame = old.frames["retrieval_quality"].with_columns(pl.lit("retired").alias("metric"))
    card = old.frames["scorecard"].with_columns(pl.lit("retired").alias("metric"))
    before = Side("c@a", "default", "a", {"retrieval_quality": frame, "scorecard": card})
    row = the(release_delta(before, side(series({"q": 1.0}), "b"), draws=DRAWS), metric="retired")
    assert (row["status"], row["better"]) == ("only_before", "neither")


def test_the_same_sides_give_the_same_rows():
    rng = np.random.default_rng(2)
    before, now = (series({f"q{i}": float(v) for i, v in enumerate(rng.random(40))}) for _ in range(2))
    assert deltas(before, now).equals(deltas(before[::-1], now[::-1]))
