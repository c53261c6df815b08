import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.checks import check_leakage
from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.splits import make_splits, query_groups, write_splits


def gold(clusters, documents):
    queries = [{"query_id": f"q{i}", "text": "x", "split": "test", "cluster_id": c} for i, c in enumerate(clusters)]
    complete = [{name: row.get(name) for name in SCHEMAS["queries"]} for row in queries]
    qrels = [(f"q{i}", doc, 1) for i, docs in enumerate(documents) for doc in docs if i < len(clusters)]
    return Gold(
        queries=pl.DataFrame(complete, schema=SCHEMAS["queries"], orient="row"),
        qrels=pl.DataFrame(qrels, schema=SCHEMAS["qrels"], orient="row"),
    )


names = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@given(
    st.lists(st.one_of(st.none(), names), max_size=12),
    st.lists(st.sets(names, max_size=2).map(sorted), max_size=12),
    st.integers(0, 3),
)
def test_splits_never_leak_and_cover_every_query_once(clusters, documents, seed):
    labels = gold(clusters, documents)
    splits = make_splits(labels, {"dev": 0.3, "test": 0.7}, seed)
    assert splits["query_id"].to_list() == sorted(labels.queries["query_id"])
    assert splits.equals(make_splits(labels, {"test": 7, "dev": 3}, seed))
    split_queries = labels.queries.drop("split").join(splits, on="query_id").select(list(SCHEMAS["queries"]))
    faults = Faults()
    check_leakage(split_queries, labels.evidence, labels.qrels, 1, True, "queries.jsonl", faults)
    assert faults.errors == []


def test_shares_are_met_where_groups_allow():
    splits = make_splits(gold([None] * 100, []), {"dev": 0.2, "test": 0.8}, 1)
    assert splits["split"].value_counts().sort("split").rows() == [("dev", 20), ("test", 80)]
    assert not splits.equals(make_splits(gold([None] * 100, []), {"dev": 0.2, "test": 0.8}, 2))


def test_groups_join_by_document_and_cluster():
    assert query_groups(gold([None, "x", "x", None], [["a"], ["a"], ["b"], ["c"]])) == [["q0", "q1", "q2"], ["q3"]]


@pytest.mark.parametrize("shares", [{}, {"train": 1}, {"dev": 0}, {"dev": -1, "test": 2}])
def test_wrong_shares_are_refused(shares):
    with pytest.raises(ValueError, match=r"splits|shares"):
        make_splits(gold([None], []), shares)


def test_splits_are_written_into_the_file(corpora):
    path = corpora.lines("gold/queries.jsonl", {"query_id": "q1", "text": "é"}, {"id": "q9", "delete": True})
    assert write_splits(path, pl.DataFrame({"query_id": ["q1"], "split": ["dev"]})) == 1
    assert path.read_text() == '{"query_id": "q1", "text": "é", "split": "dev"}\n{"id": "q9", "delete": true}\n'
