"""Ranking measures against trec_eval, against brute force over tie orders, and on the published cases."""

import itertools
import math
import random
import time

import numpy as np
import polars as pl
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures.ranking import MEASURES, rank_measures, trec_table

RUN = {"query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64}
QRELS = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Int64}


def run_frame(lists):
    """{query: [id, …] | {id: score}} as a run."""
    rows = []
    for query, items in lists.items():
        scored = items.items() if isinstance(items, dict) else [(item, None) for item in items]
        rows += [(query, item, rank, score) for rank, (item, score) in enumerate(scored, 1)]
    return pl.DataFrame(rows, schema=RUN, orient="row")


def qrels_frame(gold):
    """{query: [id, …] | {id: grade}} as judgments."""
    rows = []
    for query, items in gold.items():
        graded = items.items() if isinstance(items, dict) else [(item, 1) for item in items]
        rows += [(query, item, grade) for item, grade in graded]
    return pl.DataFrame(rows, schema=QRELS, orient="row")


def values(frame, column="value"):
    return {(r["query_id"], r["metric"], r["k"]): r[column] for r in frame.iter_rows(named=True)}


IDS = [f"d{i}" for i in range(12)] + ["é", "z", "文書", "D1"]
# Few distinct values make ties; 0.1 + 1e-12 and 16777217 collapse to their neighbours in float32 only.
SCORES = st.sampled_from([0.0, -0.0, 0.1, 0.1 + 1e-12, 0.5, 1.0, 16777216.0, 16777217.0, -3.0]) | st.floats(-1e3, 1e3)
runs = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "q4"]), st.dictionaries(st.sampled_from(IDS), SCORES, min_size=1, max_size=14)
)
golds = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "q5"]),
    st.dictionaries(st.sampled_from(IDS), st.integers(-2, 3), min_size=1, max_size=14),
)
KS = (1, 2, 3, 5, 10, 20)


def compare_with_trec_eval(run, gold, rel_level):
    names = {f"{m}.{','.join(map(str, KS))}" for m in ("recall", "P", "ndcg_cut", "map_cut", "success")}
    names |= {"recip_rank", "ndcg", "map", "bpref"}
    # pytrec_eval reads past its arrays (segmentation fault) where all grades of a query are negative
    sound = {query: grades for query, grades in gold.items() if max(grades.values()) >= 0}
    theirs = pytrec_eval.RelevanceEvaluator(sound, names, relevance_level=rel_level).evaluate(run)
    wanted = [*MEASURES, "ndcg@all", *(f"ap@{k}" for k in KS)]
    ours = values(rank_measures(run_frame(run), qrels_frame(gold), wanted, KS, "trec", rel_level, as_trec=True))
    at_k = {"recall": "recall", "P": "precision", "ndcg_cut": "ndcg", "map_cut": "ap", "success": "hit"}
    pairs = {f"{theirs_name}_{k}": (our_name, k) for theirs_name, our_name in at_k.items() for k in KS}
    pairs |= {"recip_rank": ("rr", 0), "ndcg": ("ndcg", 0), "map": ("ap", 0), "bpref": ("bpref", 0)}
    assert set(theirs) == set(run) & set(sound)
    for query, found in theirs.items():
        for their_name, (our_name, k) in pairs.items():
            assert abs(found[their_name] - ours[query, our_name, k]) <= 1e-9, (query, their_name)


@given(run=runs, gold=golds, rel_level=st.integers(1, 2))
def test_equals_trec_eval_on_generated_runs(run, gold, rel_level):
    if run and gold:
        compare_with_trec_eval(run, gold, rel_level)


def drawn(rng, queries, low, high, value):
    """{query: {id: value}} over a random choice of queries and ids."""
    asked = [query for query in queries if rng.random() < 0.8] or queries[:1]
    return {query: {item: value() for item in rng.sample(IDS, rng.randint(low, high))} for query in asked}


@pytest.mark.full
@pytest.mark.parametrize("rel_level", [1, 2])
def test_equals_trec_eval_on_ten_thousand_generated_runs(rel_level):
    """Five thousand runs a level, a hundred side by side in one frame: a run's queries carry its number."""
    rng = random.Random(rel_level)
    ties = [0.0, -0.0, 0.1, 0.1 + 1e-12, 0.5, 1.0, 16777216.0, 16777217.0, -3.0]

    def score():
        return rng.choice(ties) if rng.random() < 0.7 else rng.uniform(-1e3, 1e3)

    for _ in range(50):
        run, gold = {}, {}
        for number in range(100):
            run |= drawn(rng, [f"{number}-{q}" for q in ("q1", "q2", "q3", "q4")], 1, 14, score)
            gold |= drawn(rng, [f"{number}-{q}" for q in ("q1", "q2", "q3", "q5")], 1, 14, lambda: rng.randint(-2, 3))
        compare_with_trec_eval(run, gold, rel_level)


def read_trec(shared, run_file, qrels_file):
    folder = shared("data", "trec_eval")
    run = [line.split() for line in (folder / run_file).read_text().splitlines()]
    qrels = [line.split() for line in (folder / qrels_file).read_text().splitlines()]
    run_table = pl.DataFrame([(r[0], r[2], int(r[3]), float(r[4])) for r in run], schema=RUN, orient="row")
    qrels_table = pl.DataFrame([(r[0], r[2], int(r[3])) for r in qrels], schema=QRELS, orient="row")
    return folder, run_table, qrels_table


@pytest.mark.parametrize("printed", ["out.test.a", "out.test.aq"])
def test_reproduces_the_printed_output_of_trec_eval(shared, printed):
    folder, run, qrels = read_trec(shared, "results.test", "qrels.test")
    ours = {(r["measure"], r["query_id"]): r["value"] for r in trec_table(run, qrels).iter_rows(named=True)}
    compared = set()
    for line in (folder / printed).read_text().splitlines():
        measure, query, value = line.split()
        if (measure, query) not in ours:
            continue
        compared.add((measure, query))
        assert float(value) == pytest.approx(ours[measure, query], abs=5.1e-5), (measure, query)
    ks = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
    names = {f"{m}_{k}" for m in ("P", "recall", "ndcg_cut", "map_cut") for k in ks}
    names |= {"map", "ndcg", "bpref", "recip_rank", "num_ret", "num_rel", "num_rel_ret"}
    names |= {"success_1", "success_5", "success_10"}
    queries = {"all"} | (set(run["query_id"]) if printed == "out.test.aq" else set())
    assert compared >= {(name, query) for name in names for query in queries} | {("num_q", "all")}


def test_worked_example_at_five(worked):
    case = worked["ranking_at_5"]
    frame = rank_measures(run_frame(case["runs"]), qrels_frame(case["gold"]), ["recall", "rr@5", "ndcg"], [5])
    mean = dict(frame.group_by("metric").agg(pl.col("value").mean()).iter_rows())
    assert mean["recall"] == case["recall"]
    assert mean["rr"] == case["mrr"]
    assert round(mean["ndcg"], 3) == case["ndcg_3_digits"]


def test_recall_and_hit_of_the_leave_policy_case(worked):
    case = worked["leave_policy"]
    frame = rank_measures(
        run_frame({"q": case["retrieved"]}), qrels_frame({"q": case["relevant"]}), ["recall", "hit"], [2]
    )
    assert values(frame) == {("q", "hit", 2): case["hit_at_2"], ("q", "recall", 2): case["recall_at_2"]}


# --- bands over ties ---------------------------------------------------------------------------------------------------


def brute(order, grades, measure, k):
    """The measure of one order, written from its definition."""
    relevant = {item for item, grade in grades.items() if grade >= 1}
    top = order[:k] if k else order
    hits = [item in relevant for item in top]
    if measure == "recall":
        return sum(hits) / len(relevant)
    if measure == "hit":
        return float(any(hits))
    if measure == "precision":
        return sum(hits) / k
    if measure == "rr":
        return max((1 / place for place, hit in enumerate(hits, 1) if hit), default=0.0)
    if measure == "ap":
        return sum(sum(hits[:place]) / place for place, hit in enumerate(hits, 1) if hit) / len(relevant)
    if measure == "judged":
        return sum(item in grades for item in top) / len(top)
    if measure == "ndcg":
        gains = [max(grades.get(item, 0), 0) for item in top]
        ideal = sorted((max(g, 0) for g in grades.values()), reverse=True)[:k]
        return dcg(gains) / dcg(ideal)
    others = {item for item, grade in grades.items() if 0 <= grade < 1}
    total, before = 0.0, 0
    for item in order:
        before += item in others
        if item in relevant:
            total += 1 - min(before, len(relevant)) / min(len(others), len(relevant)) if before else 1.0
    return total / len(relevant)


def dcg(gains):
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))


@given(
    scores=st.dictionaries(st.sampled_from(IDS[:6]), st.sampled_from([1.0, 2.0]), min_size=1, max_size=6),
    grades=st.dictionaries(st.sampled_from(IDS[:8]), st.integers(-1, 3), min_size=1, max_size=8),
    policy=st.sampled_from(["run", "trec", "id"]),
    k=st.integers(1, 7),
)
def test_band_is_exactly_the_range_over_all_tie_orders(scores, grades, policy, k):
    scores = dict(sorted(scores.items(), key=lambda pair: -pair[1]))
    wanted = ["recall", "hit", "precision", "rr", "ndcg", "ap", "bpref", "judged", f"rr@{k}", f"ap@{k}"]
    frame = rank_measures(run_frame({"q": scores}), qrels_frame({"q": grades}), wanted, [k], policy)
    groups = [[i for i, s in scores.items() if s == score] for score in (2.0, 1.0)]
    orders = [
        a + b
        for a in map(list, itertools.permutations(groups[0]))
        for b in map(list, itertools.permutations(groups[1]))
    ]
    for row in frame.iter_rows(named=True):
        if row["value"] is None:
            assert row["low"] is None
            assert row["high"] is None
            continue
        over = [brute(order, grades, row["metric"], row["k"]) for order in orders]
        assert row["low"] == pytest.approx(min(over), abs=1e-12), row
        assert row["high"] == pytest.approx(max(over), abs=1e-12), row
        assert row["low"] <= row["value"] <= row["high"]
        if row["k"]:
            n = len(groups[0])
            assert row["tied_at_cutoff"] == (0 < k < n or n < k < len(scores))


def test_three_way_tie_has_one_rule_and_the_band_of_all_orders(known_wrong):
    case = known_wrong["three-way-tie"]
    frame = rank_measures(
        run_frame({"q": case["input"]["scores"]}), qrels_frame({"q": case["input"]["gold"]}), ["rr", "hit"], [1], "trec"
    )
    rr, hit = frame.filter(metric="rr").row(0, named=True), frame.filter(metric="hit").row(0, named=True)
    right = case["right"]
    assert (rr["value"], rr["low"], rr["high"]) == (right["rr_trec"], right["rr_min"], right["rr_max"])
    assert hit["tied_at_cutoff"] is right["tied_at_cutoff"]
    assert rr["tied_at_cutoff"]


def test_policies_order_ties_as_named():
    run, gold = run_frame({"q": {"b": 1.0, "a": 1.0, "c": 1.0}}), qrels_frame({"q": ["a"]})
    found = {p: rank_measures(run, gold, ["rr"], [1], p)["value"][0] for p in ("run", "trec", "id")}
    assert found == {"run": 1 / 2, "trec": 1 / 3, "id": 1.0}


def test_scores_that_float32_cannot_tell_apart_tie_under_trec_only():
    run, gold = run_frame({"q": {"a": 1.0 + 1e-12, "b": 1.0}}), qrels_frame({"q": ["a"]})
    trec, by_id = (rank_measures(run, gold, ["rr"], [1], policy).row(0, named=True) for policy in ("trec", "id"))
    assert (trec["value"], trec["tied_at_cutoff"]) == (0.5, True)
    assert (by_id["value"], by_id["tied_at_cutoff"]) == (1.0, False)


# --- statuses ------------------------------------------------------------------------------------------------------------


def test_missing_queries_score_zero_and_are_named(known_wrong):
    case = known_wrong["missing-queries-count"]
    frame = rank_measures(run_frame(case["input"]["run"]), qrels_frame(case["input"]["gold"]), ["ndcg"], [10])
    assert frame["value"].mean() == pytest.approx(case["right"]["ndcg@10"], abs=1e-15)
    assert dict(frame["status"].value_counts().iter_rows()) == case["right"]["n_by_status"]


def test_an_empty_list_is_a_scored_zero(known_wrong):
    case = known_wrong["empty-retrieval-is-zero"]
    frame = rank_measures(run_frame({}), qrels_frame({"q": case["input"]["gold"]}), empty=["q"], ks=[5])
    rows = frame.filter(pl.col("metric") != "judged")
    assert set(rows["value"]) == {case["right"]["recall@5"]}
    assert set(rows["status"]) == {case["right"]["status"]}
    judged = frame.filter(metric="judged").row(0, named=True)
    assert (judged["value"], judged["status"]) == (None, "empty_run")


@given(run=runs, gold=golds)
def test_every_expected_query_has_one_row_per_measure_and_a_status_that_fits(run, gold):
    frame = rank_measures(run_frame(run), qrels_frame(gold), ["recall", "rr", "ndcg"], [1, 5])
    everyone = set(run) | set(gold)
    assert len(frame) == 5 * len(everyone)
    assert frame.select("query_id", "metric", "k").is_unique().all()
    for row in frame.iter_rows(named=True):
        query = row["query_id"]
        if query not in gold:
            assert (row["value"], row["status"]) == (None, "no_gold")
        elif max(gold[query].values()) < 1:
            assert (row["value"], row["status"]) == (None, "no_relevant")
        elif query not in run:
            assert (row["value"], row["low"], row["high"], row["status"]) == (0.0, 0.0, 0.0, "missing_run")
        else:
            assert row["status"] == "scored"
            assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1


def test_judged_but_none_relevant_is_null_and_zero_only_as_trec_has_it():
    run, gold = run_frame({"q": ["a"]}), qrels_frame({"q": {"a": 0}})
    strict = rank_measures(run, gold, ["recall"], [1]).row(0, named=True)
    as_trec = rank_measures(run, gold, ["recall"], [1], as_trec=True).row(0, named=True)
    assert (strict["value"], strict["status"]) == (None, "no_relevant")
    assert (as_trec["value"], as_trec["status"]) == (0.0, "no_relevant")


def test_expected_queries_can_be_given():
    frame = rank_measures(run_frame({"q1": ["a"]}), qrels_frame({"q1": ["a"]}), ["hit"], [1], queries=["q1", "q9"])
    assert frame.select("query_id", "status").rows() == [("q1", "scored"), ("q9", "no_gold")]


# --- exact ratios, ideal, graded -----------------------------------------------------------------------------------------


@given(n=st.integers(1, 60), extra=st.integers(0, 40), grade=st.integers(1, 3))
def test_a_perfect_list_is_exactly_one(n, extra, grade):
    gold = {f"g{i:02}": grade for i in range(n)}
    run = run_frame({"q": [*gold, *(f"x{i}" for i in range(extra))]})
    frame = rank_measures(
        run, qrels_frame({"q": gold}), ["ap", "ndcg", "ndcg@all", "rr", "recall", "bpref"], [n, n + extra]
    )
    assert set(frame.filter(pl.col("value").is_not_null())["value"]) == {1.0}


def test_all_relevant_is_exactly_one(known_wrong):
    case = known_wrong["all-relevant-is-exactly-one"]
    ids = [f"d{i}" for i in range(len(case["input"]["relevance"]))]
    assert rank_measures(run_frame({"q": ids}), qrels_frame({"q": ids}), ["ap"], [])["value"][0] == case["right"]["ap"]


def test_the_ideal_uses_all_gold_up_to_k(known_wrong):
    case = known_wrong["ideal-is-not-cut-to-the-run"]
    frame = rank_measures(
        run_frame({"q": case["input"]["retrieved"]}),
        qrels_frame({"q": case["input"]["gold"]}),
        ["ndcg"],
        [case["input"]["k"]],
    )
    assert frame["value"][0] == pytest.approx(case["right"]["ndcg@5"], abs=1e-15)


@given(
    order=st.permutations(IDS[:8]),
    grades=st.dictionaries(st.sampled_from(IDS[:10]), st.integers(-1, 3), min_size=1),
    k=st.integers(1, 10),
)
def test_each_measure_follows_its_definition(order, grades, k):
    frame = rank_measures(run_frame({"q": order}), qrels_frame({"q": grades}), [*MEASURES, f"rr@{k}", f"ap@{k}"], [k])
    for row in frame.filter(pl.col("value").is_not_null()).iter_rows(named=True):
        assert row["value"] == pytest.approx(brute(list(order), grades, row["metric"], row["k"]), abs=1e-12), row


# --- input errors and contracts ------------------------------------------------------------------------------------------


@given(ids=st.lists(st.sampled_from("ABC"), min_size=2, max_size=6).filter(lambda ids: len(set(ids)) < len(ids)))
def test_duplicate_ids_are_refused_naming_run_query_and_id(ids):
    twice = min(item for item in ids if ids.count(item) > 1)
    run = pl.DataFrame([("q7", item, rank, 1.0) for rank, item in enumerate(ids, 1)], schema=RUN, orient="row")
    for policy in ("run", "trec", "id"):
        with pytest.raises(ValueError, match=f"bm25: query 'q7' holds id '{twice}' more than once"):
            rank_measures(run, qrels_frame({"q7": ["A"]}), ["recall"], [3], policy, name="bm25")


def test_duplicate_ids_of_the_known_case_are_refused(known_wrong):
    case = known_wrong["duplicate-ids-give-no-gain"]["input"]
    with pytest.raises(ValueError, match="query 'q' holds id 'A'"):
        rank_measures(run_frame({"q": case["retrieved"]}), qrels_frame({"q": case["gold"]}), ["recall"], [3])


@pytest.mark.parametrize("policy", ["run", "trec", "id"])
def test_nan_scores_are_refused_naming_run_query_and_id(policy):
    run = run_frame({"q3": {"a": 1.0, "b": math.nan}})
    with pytest.raises(ValueError, match="dense: query 'q3', id 'b'"):
        rank_measures(run, qrels_frame({"q3": ["a"]}), ["recall"], [3], policy, name="dense")


def test_missing_scores_are_refused_where_the_policy_needs_them():
    run, gold = run_frame({"q": ["a", "b"]}), qrels_frame({"q": ["a"]})
    assert rank_measures(run, gold, ["rr"], [1], "run")["value"][0] == 1.0
    with pytest.raises(ValueError, match="query 'q', id 'a'"):
        rank_measures(run, gold, ["rr"], [1], "trec")


def test_duplicate_judgments_and_unknown_names_are_refused():
    run, gold = run_frame({"q": ["a"]}), qrels_frame({"q": ["a"]})
    with pytest.raises(ValueError, match="qrels: query 'q' holds id 'a'"):
        rank_measures(run, pl.concat([gold, gold]), ["rr"], [1])
    with pytest.raises(ValueError, match="unknown ranking measure 'mrr'"):
        rank_measures(run, gold, ["mrr"], [1])
    with pytest.raises(ValueError, match="unknown tie policy"):
        rank_measures(run, gold, ["rr"], [1], "lucky")


@pytest.mark.parametrize("k", [0, -1, -5])
def test_contracts_differ_where_they_say(k):
    run, gold = run_frame({"q": ["a"], "bare": ["a"]}), qrels_frame({"q": ["a"]})
    measures = ["recall", "hit", "rr@1"]
    for contract in ("strict", "zero"):
        with pytest.raises(ValueError, match="k must be positive"):
            rank_measures(run, gold, ["recall"], [k], contract=contract)
    with pytest.raises(ValueError, match="k must be positive"):
        rank_measures(run, gold, ["ndcg"], [k], contract="lenient")
    lenient = rank_measures(run, gold, ["recall", "hit"], [k], contract="lenient")
    assert set(lenient["value"]) == {0.0}
    assert set(lenient["k"]) == {k}
    bare = {
        contract: [
            values(rank_measures(run, gold, measures, [1], contract=contract))["bare", m, 1]
            for m in ("recall", "hit", "rr")
        ]
        for contract in ("strict", "zero", "lenient")
    }
    assert bare == {"strict": [None, None, None], "zero": [0.0, 0.0, 0.0], "lenient": [None, None, 0.0]}


def test_same_input_in_any_row_order_gives_the_same_frame():
    rng = np.random.default_rng(3)
    run = run_frame({f"q{i}": {f"d{j}": float(rng.integers(0, 4)) for j in range(20)} for i in range(20)})
    gold = qrels_frame({f"q{i}": {f"d{j}": int(rng.integers(-1, 3)) for j in range(15)} for i in range(20)})
    for policy in ("run", "trec", "id"):
        first = rank_measures(run, gold, tie_policy=policy)
        again = rank_measures(run.sample(fraction=1, shuffle=True, seed=1), gold.reverse(), tie_policy=policy)
        assert first.equals(again)


@pytest.mark.full
def test_ten_thousand_queries_by_a_hundred_items_take_about_a_second():
    n, depth = 10_000, 100
    rng = np.random.default_rng(0)
    run = pl.DataFrame(
        {
            "query_id": np.repeat(np.array([f"q{i}" for i in range(n)]), depth),
            "item_id": [f"d{i}" for i in (rng.integers(0, 400, n)[:, None] + np.arange(depth)).ravel()],
            "rank": np.tile(np.arange(1, depth + 1), n),
            "score": np.tile(np.linspace(1, 0, depth), n),
        }
    )
    gold = run.sample(60_000, seed=1).select("query_id", "item_id", grade=pl.lit(1))
    start = time.perf_counter()
    frame = rank_measures(run, gold, ks=(10,))
    assert len(frame) == n * len(MEASURES)
    assert time.perf_counter() - start < 5  # the bound holds on a loaded machine; see the benchmark for the real figure
