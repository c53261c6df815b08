import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures.budget import Covered
from rag_eval_pipeline.measures.lists import RUN, cut, order, renumber, tie_groups
from rag_eval_pipeline_tests.sizes import measured


def run(*rows):
    made = [("q", "lane", rank, chunk, chunk[0], score) for rank, (chunk, score) in enumerate(rows, 1)]
    return pl.DataFrame(made, schema=RUN, orient="row")


def test_scores_equal_as_float32_stand_by_id():
    found = order(run(("b", 0.1 + 0.2), ("a", 0.3), ("c", 0.9)))
    assert found["chunk_id"].to_list() == ["c", "a", "b"]
    assert found["rank"].to_list() == [1, 2, 3]


def test_ranks_close_their_gaps():
    assert renumber(run(("a", 1), ("b", 1)).with_columns(rank=pl.col("rank") * 7))["rank"].to_list() == [1, 2]


def test_ties_are_neighbours_with_one_score_and_no_score_is_no_tie():
    assert tie_groups(run(("a", 2), ("b", 2), ("c", None), ("d", None), ("e", 2)))["tie"].to_list() == [1, 1, 2, 3, 4]


def test_a_depth_in_documents_ends_with_the_first_chunk_of_the_last_one():
    made = run(("a0", 9), ("a1", 8), ("b0", 7), ("b1", 6), ("c0", 5))
    assert cut(made, 2, "documents")["chunk_id"].to_list() == ["a0", "a1", "b0"]
    assert cut(made, 2)["chunk_id"].to_list() == ["a0", "a1"]
    assert cut(made, 9, "documents").height == 5


spans = st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@measured
@given(st.lists(spans, max_size=8), spans)
def test_covered_ranges_are_those_of_a_set_of_places(ranges, wanted):
    covered, places = Covered(), set()
    for low, high in ranges:
        covered.add("d", low, high)
        places |= set(range(low, high))
    gaps = covered.gaps("d", *wanted)
    assert {place for low, high in gaps for place in range(low, high)} == set(range(*wanted)) - places
    assert covered.holds("d", *wanted) == places.issuperset(range(*wanted))
    assert covered.ranges.get("d", []) == sorted(covered.ranges.get("d", []))
