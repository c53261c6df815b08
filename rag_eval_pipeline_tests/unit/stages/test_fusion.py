import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures.fusion import convex_fusion, rrf
from rag_eval_pipeline.measures.lists import RUN, empty
from rag_eval_pipeline.stages.fusion.stage import STAGE
from rag_eval_pipeline.stages.fusion.transform import FusionConfig, run
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.sizes import examples
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import lists


def fused(runs, exact=None, depth=100, **configs):
    config = FusionConfig.model_validate({"lanes": configs, "depth": depth})
    return run({"runs": runs, "exact_runs": empty() if exact is None else exact}, config, Runtime.plain())


def ids(table, retriever="hybrid", query="q1"):
    rows = table.filter((pl.col("retriever") == retriever) & (pl.col("query_id") == query)).sort("rank")
    return rows["chunk_id"].to_list()


HYBRID = {"hybrid": {"kind": "rrf", "lanes": ["bm25", "dense"]}}


def test_the_worked_fusion_comes_out(worked):
    case = worked["rrf_60"]
    runs = pl.concat([lists("dense", q1=case["dense"]), lists("bm25", q1=case["sparse"])])
    found = fused(runs, **HYBRID)["fused_runs"].head(3)
    assert found["chunk_id"].to_list() == [name for name, _ in case["fused_top3"]]
    assert found["score"].to_list() == pytest.approx([score for _, score in case["fused_top3"]], abs=5e-6)


fewer = examples(60, 1_000)
"""Every example runs the room on frames, which takes longer than a formula."""

items = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@fewer
@given(first=items, second=items, k=st.sampled_from([0, 1, 60]))
def test_rrf_equals_the_measure(first, second, k):
    runs = pl.concat([lists("bm25", q1=first), lists("dense", q1=second)])
    found = fused(runs, hybrid={"kind": "rrf", "lanes": ["bm25", "dense"], "k": k})["fused_runs"]
    expected = rrf([first, second], k=k) if k or first or second else []
    assert dict(found.select("chunk_id", "score").iter_rows()) == pytest.approx(dict(expected), rel=1e-6)
    assert ids(found) == [item for item, _ in expected]
    assert found["rank"].to_list() == list(range(1, len(expected) + 1))


scored = st.dictionaries(st.sampled_from("abcdef"), st.integers(-8, 8).map(float), max_size=6)


def run_of(retriever, scores):
    ordered = sorted(scores, key=lambda item: (-scores[item], item))
    rows = [("q1", retriever, rank, item, item, scores[item]) for rank, item in enumerate(ordered, 1)]
    return pl.DataFrame(rows, schema=RUN, orient="row")


@fewer
@given(dense=scored, sparse=scored, alpha=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_convex_equals_the_measure(dense, sparse, alpha):
    lane = {"kind": "convex", "lanes": ["dense", "bm25"], "alpha": alpha}
    found = fused(pl.concat([run_of("dense", dense), run_of("bm25", sparse)]), hybrid=lane)["fused_runs"]
    expected = dict(convex_fusion(dense, sparse, alpha))
    assert dict(found.select("chunk_id", "score").iter_rows()) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_zscore_gives_what_a_lane_lacks_its_lowest_value():
    runs = pl.concat([run_of("dense", {"a": 3.0, "b": 1.0}), run_of("bm25", {"c": 5.0})])
    lane = {"kind": "convex", "lanes": ["dense", "bm25"], "alpha": 0.5, "norm": "zscore"}
    found = dict(fused(runs, hybrid=lane)["fused_runs"].select("chunk_id", "score").iter_rows())
    assert found == pytest.approx({"a": 0.5, "b": -0.5, "c": -0.5})


def test_convex_without_scores_is_refused_with_the_way_out():
    runs = run_of("dense", {"a": 1.0}).with_columns(score=pl.lit(None, pl.Float64))
    with pytest.raises(ValueError, match=r"lane dense has none.*rrf"):
        fused(runs, hybrid={"kind": "convex", "lanes": ["dense", "bm25"]})


def test_weights_decide():
    runs = pl.concat([lists("bm25", q1=["a", "b"]), lists("dense", q1=["b", "a"])])
    lane = {"kind": "rrf", "lanes": ["bm25", "dense"], "weights": [3, 1]}
    assert ids(fused(runs, hybrid=lane)["fused_runs"]) == ["a", "b"]


def test_the_exact_table_has_only_lanes_over_an_approximate_one():
    runs = pl.concat([lists("bm25", q1=["a"]), lists("dense", q1=["b"])])
    exact = lists("dense", q1=["c", "b"])
    found = fused(
        runs, exact, plain={"kind": "rrf", "lanes": ["bm25"]}, **HYBRID, over={"kind": "rrf", "lanes": ["hybrid"]}
    )
    assert ids(found["fused_runs"]) == ["a", "b"]
    assert sorted(found["exact_fused_runs"]["retriever"].unique()) == ["hybrid", "over"]
    assert ids(found["exact_fused_runs"]) == ["a", "c", "b"]
    assert fused(runs, **HYBRID)["exact_fused_runs"].is_empty()


def test_a_circle_of_fused_lanes_is_refused():
    with pytest.raises(ValueError, match=r"circle: \['x', 'y'\]"):
        fused(empty(), x={"kind": "rrf", "lanes": ["y"]}, y={"kind": "rrf", "lanes": ["x"]})


def test_depth_counts_chunks_or_documents():
    runs = lists("bm25", q1=["a::0", "a::1", "b::0", "c::0"])
    lane = {"kind": "rrf", "lanes": ["bm25"], "depth": 2}
    assert ids(fused(runs, hybrid=lane)["fused_runs"]) == ["a::0", "a::1"]
    assert ids(fused(runs, hybrid=lane | {"depth_unit": "documents"})["fused_runs"]) == ["a::0", "a::1", "b::0"]


def test_a_query_that_one_lane_lacks_is_fused_from_the_others():
    runs = pl.concat([lists("bm25", q1=["a"]), lists("dense", q2=["b"])])
    found = fused(runs, **HYBRID)["fused_runs"]
    assert ids(found) == ["a"]
    assert ids(found, query="q2") == ["b"]
    assert not STAGE.has_quality


@pytest.mark.parametrize(
    "lane",
    [
        {"kind": "rrf", "lanes": ["a", "a"]},
        {"kind": "rrf", "lanes": ["a", "b"], "weights": [1]},
        {"kind": "convex", "lanes": ["a"]},
        {"kind": "rrf", "lanes": []},
    ],
)
def test_a_wrong_lane_is_refused(lane):
    with pytest.raises(ValueError, match="lane"):
        FusionConfig.model_validate({"lanes": {"x": lane}})
