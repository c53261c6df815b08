"""The smoke subset stands for all slices, is drawn by hash, and hardly moves when the set grows."""

import json
from collections import Counter

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.subsets import choose

VALUES = st.tuples(st.sampled_from("xyz"), st.sampled_from("ab"))
NAMES = st.text("abcdefgh0123456789", min_size=1, max_size=6)
FACTS = st.dictionaries(NAMES, VALUES, max_size=80)


def corpus_of(corpora, count=40, **evaluate):
    queries = [
        {"query_id": f"q{i}", "text": f"Question {i}?", "language": "es" if i % 10 == 0 else "en", "intent": "rare" if i == 7 else "lookup"}
        for i in range(count)
    ]  # fmt: skip
    queries += [{"query_id": f"d{i}", "text": f"Tuning {i}?", "split": "dev"} for i in range(3)]
    corpora.lines("gold/queries.jsonl", *queries)
    corpora.lines("gold/qrels.tsv")
    corpora.put("gold/qrels.tsv", "".join(f"q{i}\t0\tleave.txt\t1\n" for i in range(count)))
    corpora.lines(
        "v1/outputs/runs/mine.jsonl", *({"query_id": q["query_id"], "item_id": "leave.txt", "rank": 1} for q in queries)
    )
    corpora.put("corpus.yaml", json.dumps({"evaluate": {"k": [1], "serve_k": 1}}))
    corpora.put("pipelines/smoke.yaml", json.dumps({"evaluate": {"subset": "smoke", **evaluate}}))


def measured(version):
    return set(version.gold.measured("test")["query_id"])


@given(FACTS, st.integers(5, 30), st.integers(0, 3))
def test_as_many_as_asked_for_are_chosen_and_every_value_of_every_slice_is_there(facts, size, seed):
    chosen = choose(facts, size, seed)
    assert len(chosen) == min(size, len(facts)) == len(set(chosen))
    for place in range(2):
        assert {facts[q][place] for q in chosen} == {values[place] for values in facts.values()}
    assert choose(dict(reversed(facts.items())), size, seed) == chosen


@given(FACTS, st.integers(5, 30), NAMES, VALUES)
def test_one_more_query_moves_few_others(facts, size, new, values):
    """At most one place a slice, of which it may be the first, and one of the shares."""
    before = set(choose({q: s for q, s in facts.items() if q != new}, size))
    now = set(choose({**{q: s for q, s in facts.items() if q != new}, new: values}, size))
    assert len(before - now) <= 3
    assert len(now - before - {new}) <= 2


@settings(max_examples=25)
@given(st.integers(100, 400), st.integers(20, 60))
def test_combinations_have_their_share_to_within_one_place(count, size):
    facts = {f"q{i}": ("rare" if i % 10 == 0 else "common",) for i in range(count)}
    found = Counter(facts[q][0] for q in choose(facts, size))
    share = size * sum(value == ("rare",) for value in facts.values()) / count
    assert abs(found["rare"] - share) <= 1


def test_another_seed_draws_others():
    facts = {f"q{i}": ("all",) for i in range(200)}
    assert choose(facts, 20, 0) != choose(facts, 20, 1)


def test_a_subset_restricts_gold_and_outputs_to_the_chosen_queries_and_keeps_other_splits(corpora):
    corpus_of(corpora, subset_size=8)
    whole, smoke = corpora.load(), corpora.load("c@v1#smoke")
    chosen = measured(smoke)
    assert len(chosen) == 8
    assert "q7" in chosen, "the only query of its intent"
    assert chosen < measured(whole)
    assert set(smoke.gold.queries["language"].drop_nulls()) == {"en", "es"}
    dev = {"d0", "d1", "d2"}
    assert set(smoke.gold.queries["query_id"]) == chosen | dev
    assert set(smoke.gold.qrels["query_id"]) == chosen
    assert set(smoke.outputs["runs"]["query_id"]) == chosen | dev
    assert smoke.gold.hash != whole.gold.hash


def test_a_new_query_outside_of_the_subset_leaves_its_gold_as_it_was(corpora):
    corpus_of(corpora, count=40, subset_size=8)
    before = corpora.load("c@v1#smoke")
    for more in range(41, 60):
        corpus_of(corpora, count=more, subset_size=8)
        now = corpora.load("c@v1#smoke")
        if measured(now) == measured(before):
            assert now.gold.hash == before.gold.hash
            assert now.gold.queries.equals(before.gold.queries)
            return
    raise AssertionError("twenty more queries moved the subset each time")


def test_answers_of_queries_that_are_left_out_are_no_fault(corpora):
    corpus_of(corpora, subset_size=2)
    corpora.lines(
        "v1/outputs/answers.jsonl", *({"answer_id": f"a{i}", "query_id": f"q{i}", "answer": "8 USD"} for i in range(40))
    )
    smoke = corpora.load("c@v1#smoke")
    assert set(smoke.outputs["answers"]["query_id"]) == measured(smoke)
    assert smoke.outputs["answers"].schema["claims"] == pl.List(pl.String)
