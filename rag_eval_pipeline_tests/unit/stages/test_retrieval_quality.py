from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.evidence import hold_rank
from rag_eval_pipeline.measures.lists import RUN, empty
from rag_eval_pipeline.stages.retrieval.holding import first_held, held_within
from rag_eval_pipeline.stages.retrieval.quality import METRICS, measure
from rag_eval_pipeline.stages.retrieval.transform import RetrievalConfig
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.measurement import ROW
from rag_eval_pipeline_tests.sizes import examples
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import (
    chunks,
    documents,
    gold,
    lists,
    pieces,
    prepared,
    ranked,
    units,
)
from rag_eval_pipeline_tests.walking import served_at

OWN = {"lane": {"kind": "bm25"}}
GIVEN = {"lane": {"kind": "import", "run": "lane"}}


def table(
    runs, labels, *, given_units=None, given_pieces=None, lanes=OWN, made=None, docs=None, evaluate=None, pipeline=None
):
    asked = labels.queries["query_id"].to_list()
    frames = {
        "ranked_runs": ranked(empty(), runs),
        "evidence_units": units() if given_units is None else given_units,
        "evidence_pieces": pieces() if given_pieces is None else given_pieces,
        "chunks": chunks(("d1::0", "text")) if made is None else made,
        "documents": documents() if docs is None else docs,
        "prepared_queries": prepared(**dict.fromkeys(asked, "text")),
    }
    section = {"k": [1, 2, 5, 10], "tokenizer": "words", "budgets": [4, 100]} | (evaluate or {})
    whole = Settings.model_validate({"evaluate": section, "pipeline": pipeline or {}})
    return measure(frames, labels, RetrievalConfig.model_validate({"lanes": lanes}), whole)


def row(found, metric, unit, k=0, query="q1", retriever="lane"):
    rows = found.filter(
        (pl.col("metric") == metric) & (pl.col("unit") == unit) & (pl.col("k") == k) & (pl.col("item_id") == query)
        & (pl.col("retriever") == retriever)
    )  # fmt: skip
    assert rows.height == 1, rows
    return rows.row(0, named=True)


# --- accounting ---


def test_every_query_and_retriever_has_every_measure():
    found = table(
        lists(q1=["d1"]), gold(["q1", "q2"], [("q1", "d1", 1)]), lanes=OWN | {"silent": {"kind": "dense"}},
        pipeline={"retrieval": {"fused": {"kind": "rrf", "lanes": ["lane", "silent"]}}},
    )  # fmt: skip
    assert dict(found.schema) == ROW
    counts = found.group_by("retriever", "item_id").len()["len"]
    assert counts.n_unique() == 1
    assert counts.len() == 6
    assert set(found["metric"]) == {metric.name for metric in METRICS}
    assert found.select("retriever", "metric", "unit", "k", "params", "item_id").is_duplicated().sum() == 0
    assert row(found, "recall", "document", 5, retriever="silent")["value"] == 0.0
    assert found.filter(pl.col("value").is_null() & (pl.col("status") == "scored")).is_empty()


def test_only_the_split_under_evaluation_is_expected():
    labels = gold(["q1", "q2"], [("q1", "d1", 1)])
    found = table(lists(q1=["d1"], q2=["d1"]), labels, evaluate={"split": "dev"})
    assert found.is_empty()


# --- known wrong ---


def test_an_empty_list_is_a_scored_zero(known_wrong):
    case = known_wrong["empty-retrieval-is-zero"]
    found = table(empty(), gold(["q1"], [("q1", item, 1) for item in case["input"]["gold"]]))
    got = row(found, "recall", "document", 5)
    assert (got["value"], got["status"]) == (case["right"]["recall@5"], case["right"]["status"])


def test_queries_that_a_given_run_lacks_are_named_and_count(known_wrong):
    case = known_wrong["missing-queries-count"]
    qrels = [(query, item, 1) for query, items in case["input"]["gold"].items() for item in items]
    found = table(lists(**case["input"]["run"]), gold(list(case["input"]["gold"]), qrels), lanes=GIVEN)
    rows = found.filter((pl.col("metric") == "ndcg") & (pl.col("unit") == "document") & (pl.col("k") == 10))
    assert rows["value"].mean() == pytest.approx(case["right"]["ndcg@10"])
    assert dict(rows.group_by("status").len().iter_rows()) == case["right"]["n_by_status"]


def test_a_fusion_of_given_runs_lacks_what_they_lack():
    found = table(
        lists(q1=["d1"]), gold(["q1"], [("q1", "d1", 1)]), lanes=GIVEN,
        pipeline={"retrieval": {"lane": GIVEN["lane"], "fused": {"kind": "rrf", "lanes": ["lane"]}}},
    )  # fmt: skip
    assert row(found, "recall", "document", 1, retriever="fused")["status"] == "missing_run"


def test_a_tie_has_one_rule_and_its_band(known_wrong):
    case = known_wrong["three-way-tie"]
    items = list(case["input"]["scores"])
    runs = lists(q1=items, scores=list(case["input"]["scores"].values()))
    found = table(runs, gold(["q1"], [("q1", "d1", 1)]), evaluate={"tie_policy": "trec"})
    got = row(found, "rr", "document")
    assert got["value"] == pytest.approx(case["right"]["rr_trec"])
    assert (got["low"], got["high"]) == pytest.approx((case["right"]["rr_min"], case["right"]["rr_max"]))
    assert row(found, "tied_at_cutoff", "document", 1)["value"] == 1.0
    assert row(found, "tied_at_cutoff", "document", 5)["value"] == 0.0
    assert row(table(runs, gold(["q1"], [("q1", "d1", 1)])), "rr", "document")["value"] == 1.0


def test_the_ideal_uses_all_gold(known_wrong):
    case = known_wrong["ideal-is-not-cut-to-the-run"]
    found = table(
        lists(q1=case["input"]["retrieved"]), gold(["q1"], [("q1", item, 1) for item in case["input"]["gold"]])
    )
    assert row(found, "ndcg", "document", 5)["value"] == pytest.approx(case["right"]["ndcg@5"])


def test_all_relevant_is_exactly_one(known_wrong):
    case = known_wrong["all-relevant-is-exactly-one"]
    items = [f"d{number}" for number in range(len(case["input"]["relevance"]))]
    found = table(lists(q1=items), gold(["q1"], [("q1", item, 1) for item in items]))
    assert row(found, "ap", "document")["value"] == case["right"]["ap"]


def test_the_worked_ranking_comes_out(worked):
    case = worked["ranking_at_5"]
    qrels = [(query, item, 1) for query, items in case["gold"].items() for item in items]
    found = table(lists(**case["runs"]), gold(list(case["gold"]), qrels))

    def mean(metric, k):
        rows = found.filter((pl.col("metric") == metric) & (pl.col("k") == k) & (pl.col("unit") == "document"))
        return rows["value"].mean()

    assert mean("recall", 5) == pytest.approx(case["recall"])
    assert mean("ndcg", 5) == pytest.approx(case["ndcg_3_digits"], abs=5e-4)
    assert mean("rr", 0) == pytest.approx(case["mrr"])


def test_a_wrong_filter_lowers_recall_and_gold_stays_as_labelled(worked):
    case = worked["filter"]
    seen = [doc["id"] for doc in case["docs"]]
    docs = documents(*seen, tenant=[doc["tenant"] for doc in case["docs"]])
    admitted = {
        query["query_id"]: [doc["id"] for doc in case["docs"] if query["applied_filter"].items() <= doc.items()]
        for query in case["queries"]
    }
    labels = gold(
        {query["query_id"]: "ann" for query in case["queries"]} | {"q5": "ann"},
        [(query["query_id"], query["gold"][0], 1) for query in case["queries"]] + [("q5", "d3", 1)],
        principals=[("ann", case["principal_tenant"])],
    )
    found = table(lists(**admitted), labels, docs=docs)
    rows = found.filter((pl.col("metric") == "recall") & (pl.col("k") == 10) & (pl.col("unit") == "document"))
    assert rows["value"].mean() == pytest.approx(case["recall_at_10"])
    assert row(found, "recall", "document", 10, "q5")["status"] == "ineligible"
    assert row(found, "recall", "document", 10, "q5")["value"] is None


# --- units ---


def test_documents_count_once_by_first_occurrence():
    found = table(lists(q1=["a::0", "a::1", "b::0"]), gold(["q1"], [("q1", "b", 1)]))
    assert row(found, "recall", "document", 2)["value"] == 1.0
    assert row(found, "rr", "document")["value"] == 0.5


def test_chunks_are_relevant_by_whole_pieces_with_the_units_grade():
    found = table(
        lists(q1=["a::0", "a::1"]), gold(["q1", "q2"]),
        given_units=units({"query_id": "q1", "evidence_id": "u", "grade": 2}, {"query_id": "q2", "evidence_id": "u"}),
        given_pieces=pieces(
            {"query_id": "q1", "evidence_id": "u", "chunk_id": "a::1"},
            {"query_id": "q2", "evidence_id": "u", "chunk_id": "a::0", "whole": False, "chars": [1]},
        ),
    )  # fmt: skip
    assert row(found, "rr", "chunk")["value"] == 0.5
    assert row(found, "rr", "chunk", query="q2")["status"] == "no_relevant"
    assert row(found, "recall", "evidence", 5, "q2")["value"] == 0.0


def test_chunk_judgments_of_this_chunking_come_first():
    made = chunks(("a::0", "x"), ("a::1", "y"))
    known, foreign = ([("q1", chunk, 1)] for chunk in ("a::1", "old-7"))
    runs = lists(q1=["a::0", "a::1"])
    assert row(table(runs, gold(["q1"], chunk_qrels=known), made=made), "rr", "chunk")["value"] == 0.5
    assert row(table(runs, gold(["q1"], chunk_qrels=foreign), made=made), "rr", "chunk")["status"] == "no_gold"


def test_judged_but_none_relevant_is_null():
    found = table(lists(q1=["d1"]), gold(["q1"], [("q1", "d1", 0)]))
    assert row(found, "ndcg", "document", 1)["status"] == "no_relevant"
    assert row(found, "judged", "document", 1)["value"] == 1.0


def test_ineligible_evidence_is_outside_the_books():
    found = table(
        lists(q1=["d1::0"]), gold(["q1", "q2"]),
        given_units=units({"query_id": "q1", "evidence_id": "u", "eligible": False}),
    )  # fmt: skip
    assert row(found, "recall", "evidence", 1)["status"] == "ineligible"
    assert row(found, "recall_b", "evidence", 4)["status"] == "ineligible"
    assert row(found, "recall", "evidence", 1, "q2")["status"] == "no_gold"


def test_evidence_split_over_chunks_is_held_where_the_last_part_stands():
    made_units = units({"query_id": "q1", "evidence_id": "u", "critical_from": [2], "critical_to": [4]})
    parts = [
        {"chunk_id": "d1::0", "chars": [0, 1, 2, 3, 4], "tokens": [0]},
        {"chunk_id": "d1::1", "chars": [5, 6, 7, 8], "tokens": []},
        {"chunk_id": "d2::0", "chars": [5, 6, 7, 8, 9], "tokens": [], "carrier": 1},
    ]
    made_pieces = pieces(*({"query_id": "q1", "evidence_id": "u", "whole": False} | part for part in parts))
    found = table(
        lists(q1=["d1::1", "d2::0", "x", "d1::0"]), gold(["q1"]), given_units=made_units, given_pieces=made_pieces
    )
    assert row(found, "recall", "evidence", 2)["value"] == 0.0
    assert row(found, "recall", "evidence", 5)["value"] == 1.0
    assert row(found, "rr", "evidence")["value"] == 0.25


def test_a_critical_token_must_stand_whole_in_some_chunk():
    made_units = units({"query_id": "q1", "evidence_id": "u", "critical_from": [4], "critical_to": [6]})
    halves = [{"chunk_id": f"d1::{n}", "chars": list(range(5 * n, 5 * n + 5))} for n in (0, 1)]
    made_pieces = pieces(*({"query_id": "q1", "evidence_id": "u", "whole": False} | half for half in halves))
    found = table(lists(q1=["d1::0", "d1::1"]), gold(["q1"]), given_units=made_units, given_pieces=made_pieces)
    assert row(found, "recall", "evidence", 10)["value"] == 0.0


def test_the_band_of_evidence_covers_both_orders_of_a_tie():
    found = table(
        lists(q1=["x::0", "d1::0", "y::0"], scores=[1, 1, 1]), gold(["q1"]),
        given_units=units({"query_id": "q1", "evidence_id": "u"}),
        given_pieces=pieces({"query_id": "q1", "evidence_id": "u", "chunk_id": "d1::0"}),
    )  # fmt: skip
    got = row(found, "rr", "evidence")
    assert (got["low"], got["value"], got["high"]) == pytest.approx((1 / 3, 1 / 2, 1.0))
    assert (row(found, "recall", "evidence", 1)["low"], row(found, "recall", "evidence", 1)["high"]) == (0.0, 1.0)


# --- against the measures' own and the slow definition ---

NAMES = [f"d{document}::{ordinal}" for document in range(3) for ordinal in range(3)]


def case(seed, queries=150):
    """Units, pieces and lists of many queries at once: two lists each, ties, split quotes, two carriers, document units."""
    random = Random(seed)
    unit_rows, piece_rows, runs = [], [], []
    for query in (f"q{number}" for number in range(queries)):
        for number in range(random.randint(1, 3)):
            unit, parts = _unit(random, {"query_id": query, "evidence_id": f"u{number}"})
            unit_rows.append(unit)
            piece_rows += parts
        for retriever in ("one", "two"):
            items = random.sample(NAMES, random.randint(0, len(NAMES)))
            scores = sorted((random.choice([1.0, 2.0, 3.0]) for _ in items), reverse=True)
            runs.append((query, retriever, items, scores))
    rows = [
        (query, retriever, rank, item, item.partition("::")[0], score)
        for query, retriever, items, scores in runs
        for rank, (item, score) in enumerate(zip(items, scores, strict=True), 1)
    ]
    return units(*unit_rows), pieces(*piece_rows), pl.DataFrame(rows, schema=RUN, orient="row")


def _unit(random, key):
    by_quote = random.random() < 0.7
    size = random.randint(1, 12)
    tokens = random.choices(range(size), k=random.randint(0, 2)) if by_quote else []
    unit = key | {
        "kind": "quote" if by_quote else "document", "n_chars": size, "critical_from": tokens,
        "critical_to": [token + 1 for token in tokens],
    }  # fmt: skip
    parts = []
    documents = random.sample(
        ["d0", "d1", "d2"], random.randint(0, 2)
    )  # a document unit has all chunks of its carriers
    whole_documents = [name for name in NAMES if name[:2] in documents]
    for chunk in random.sample(NAMES, random.randint(0, 5)) if by_quote else whole_documents:
        chars = sorted(random.sample(range(size), random.randint(0, size))) if by_quote else []
        held = [index for index, char in enumerate(tokens) if char in chars]
        whole = not by_quote or (len(chars) >= max(1, 0.9 * size) and len(held) == len(tokens))
        parts.append(
            key | {"chunk_id": chunk, "chars": chars, "positions": chars, "tokens": held, "whole": whole,
                   "carrier": random.randint(0, 1)}
        )  # fmt: skip
    return unit, parts


@examples(8, 100)
@given(st.integers(0, 2**32))
def test_held_ranks_agree_with_the_measures_and_the_slow_walk(seed):
    made_units, made_pieces, runs = case(seed)
    mine = first_held(runs, made_pieces, made_units, 0.9)
    other = hold_rank(made_pieces, runs, made_units, 0.9)
    key = ["retriever", "query_id", "evidence_id"]
    assert mine.select(*key, "place").equals(other.select(*key, place="hold_rank").sort(key))
    for k in (1, 2, 4):
        slow = served_at(made_pieces, runs, made_units, k, 0.9).filter("served").select(key).sort(key)
        assert mine.filter(pl.col("place") <= k).select(key).equals(slow)
    assert mine.filter((pl.col("best") > pl.col("place")) | (pl.col("worst") < pl.col("place"))).is_empty()


# --- recall@B ---


def within(budget, runs, made, unit, parts):
    frame = held_within(runs, parts, unit, made, [budget], get_tokenizer("words").spans, 0.9)
    return frame["held"].to_list()


def test_the_chunk_that_does_not_fit_is_cut_at_the_budget():
    text = "one two three four five"
    made = chunks(("d1::0", text))
    unit = units({"query_id": "q1", "evidence_id": "u", "n_chars": 5, "critical_from": [0], "critical_to": [5]})
    places = list(range(text.index("three"), text.index("three") + 5))
    parts = pieces(
        {
            "query_id": "q1",
            "evidence_id": "u",
            "chunk_id": "d1::0",
            "chars": list(range(5)),
            "positions": places,
            "tokens": [0],
        }
    )
    runs = lists(q1=["d1::0"])
    assert [within(budget, runs, made, unit, parts) for budget in (1, 2, 3, 4)] == [[0], [0], [1], [1]]


def test_ranges_that_were_counted_are_free():
    text = "one two three four five six seven eight"
    made = chunks(("d1::0", text[:18]), ("d1::1", text[8:], 8))
    assert made["text"].to_list() == ["one two three four", "three four five six seven eight"]
    unit = units({"query_id": "q1", "evidence_id": "u", "n_chars": 3})
    places = list(range(text.index("six"), text.index("six") + 3))
    parts = pieces({"query_id": "q1", "evidence_id": "u", "chunk_id": "d1::1", "chars": [0, 1, 2], "positions": places})
    runs = lists(q1=["d1::0", "d1::1"])
    assert within(5, runs, made, unit, parts) == [0]
    assert within(6, runs, made, unit, parts) == [1]


def test_a_prefix_costs_budget():
    made = chunks(("d1::0", "one two")).with_columns(prefix=pl.lit("said before: "))
    unit = units({"query_id": "q1", "evidence_id": "u", "n_chars": 3})
    parts = pieces(
        {"query_id": "q1", "evidence_id": "u", "chunk_id": "d1::0", "chars": [0, 1, 2], "positions": [0, 1, 2]}
    )
    assert [within(budget, lists(q1=["d1::0"]), made, unit, parts) for budget in (2, 3)] == [[0], [1]]


@examples(8, 100)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_recall_within_a_budget_never_falls_as_it_grows(seed, budget):
    made_units, made_pieces, runs = case(seed, 60)
    made = chunks(*((name, "a b c d e f", 4 * int(name[-1])) for name in NAMES))
    spans = get_tokenizer("words").spans
    found = held_within(runs, made_pieces, made_units, made, [budget, budget + 3, 10_000], spans, 0.9)
    wide = found.pivot(on="budget", index=["retriever", "query_id"], values="held")
    less, more, all_of_it = (wide[str(b)] for b in (budget, budget + 3, 10_000))
    assert (less <= more).all()
    assert (more <= all_of_it).all()
    everything = first_held(runs, made_pieces, made_units, 0.9).group_by("retriever", "query_id").agg(held=pl.len())
    joined = wide.join(everything, on=["retriever", "query_id"], how="left", maintain_order="left")
    assert joined["10000"].to_list() == joined["held"].fill_null(0).to_list()
