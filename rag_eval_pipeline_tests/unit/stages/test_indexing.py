import numpy as np
import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.ann import ann_recall
from rag_eval_pipeline.models.ann import exact_search, load_index
from rag_eval_pipeline.models.vectors import vector_column
from rag_eval_pipeline.stages.indexing import quality, transform
from rag_eval_pipeline.stages.indexing.transform import IndexingConfig
from rag_eval_pipeline.warehouse.runtime import Runtime


def unit(count: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, 12)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def tables(count: int = 200, asked: int = 6) -> dict[str, pl.DataFrame]:
    names = [f"d{i // 4:03}::{i % 4}" for i in range(count)]
    return {
        "chunks": pl.DataFrame({"chunk_id": names, "doc_id": [name[:4] for name in names]}),
        "embeddings": pl.DataFrame(
            {"chunk_id": names, "window": [0] * count, "vector": vector_column(unit(count)), "model": ["m"] * count}
        ),
        "query_embeddings": pl.DataFrame(
            {
                "query_id": [f"q{i}" for i in range(asked)],
                "vector": vector_column(unit(asked, 1)),
                "model": ["m"] * asked,
            }
        ),
    }


def run(frames, **config) -> pl.DataFrame:
    return transform.run(frames, IndexingConfig(**config), Runtime.plain())["index_files"]


def measured(frames, settings: Settings | None = None, asked=(), **config) -> dict:
    asked = {*asked, *frames["query_embeddings"]["query_id"]}
    gold = Gold(queries=pl.DataFrame([{"query_id": q, "split": "test"} for q in asked], schema=SCHEMAS["queries"]))
    rows = quality.measure(
        {**frames, "index_files": run(frames, **config)}, gold, IndexingConfig(**config), settings or Settings()
    )
    return {(r["metric"], r["item_id"], r["k"]): (r["value"], r["status"]) for r in rows.iter_rows(named=True)}


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_two_builds_are_the_same_table(kind):
    frames = tables()
    one, other = run(frames, kind=kind), run({**frames, "embeddings": frames["embeddings"].reverse()}, kind=kind)
    assert one.drop("seconds").equals(other.drop("seconds"))
    assert one["bytes"][0] == len(one["blob"][0])
    assert one["chunk_ids"][0].to_list() == frames["embeddings"]["chunk_id"].to_list()


def test_the_index_answers_with_the_chunks_of_its_positions():
    frames = tables()
    file = run(frames, kind="hnsw", ef_search=200).row(0, named=True)
    index = load_index(file["blob"])
    assert np.array_equal(index.vectors, unit(200))


def test_nothing_to_index_gives_no_row():
    frames = tables()
    assert run(frames, enabled=False).is_empty()
    assert run({**frames, "embeddings": frames["embeddings"].clear()}).is_empty()


def test_parameters_that_a_kind_does_not_know_are_not_recorded():
    assert IndexingConfig(kind="flat", m=8).params() == {"kind": "flat"}
    assert set(IndexingConfig(kind="ivf").params()) == {"kind", "nlist", "nprobe", "seed"}


def test_an_exact_index_misses_nothing_at_any_depth():
    found = measured(tables(), asked=["q0"], kind="flat")
    assert {k for metric, _, k in found if metric == "ann_recall"} == {1, 3, 5, 10, 100}
    assert all(value == (1.0, "scored") for (metric, _, _), value in found.items() if metric == "ann_recall")
    assert found["index_vectors", "chunks", 0] == (200.0, "scored")


def test_a_poor_index_is_measured_as_an_oracle_counts():
    frames = tables()
    config = {"kind": "ivf", "nlist": 16, "nprobe": 1}
    found = measured(frames, **config)
    index = load_index(run(frames, **config)["blob"][0])
    exact, _ = exact_search(unit(200), unit(6, 1), 10)
    from rag_eval_pipeline.models.ann import search

    near, _ = search(index, unit(6, 1), 10)
    for i in range(6):
        assert found["ann_recall", f"q{i}", 10][0] == pytest.approx(len(set(exact[i]) & set(near[i])) / 10)
    assert min(found["ann_recall", f"q{i}", 10][0] for i in range(6)) < 1


def test_recall_is_measured_under_the_query_s_own_filter():
    frames = tables()
    filters = pl.DataFrame({"query_id": [f"q{i}" for i in range(6)], "scope_id": ["all", "two", "none"] * 2})
    scopes = pl.DataFrame(
        {"scope_id": ["all", "two", "none"], "everything": [True, False, False], "doc_ids": [[], ["d000", "d007"], []]}
    )
    frames |= {"applied_filters": filters, "scopes": scopes}
    found = measured(frames, kind="hnsw", ef_search=200)
    assert found["ann_recall", "q0", 10] == (1.0, "scored")
    assert found["ann_recall", "q1", 10] == (1.0, "scored")  # of 8 chunks that it may see
    assert found["ann_recall", "q2", 10] == (None, "nothing_admitted")
    with pytest.raises(ValueError, match="have no scope"):
        measured({**frames, "applied_filters": filters.head(2)}, kind="flat")


def test_depths_of_dense_lanes_are_measured_too():
    settings = Settings(pipeline={"retrieval": {"d": {"kind": "dense", "depth": 7}, "b": {"kind": "bm25", "depth": 9}}})
    assert {k for metric, _, k in measured(tables(), settings, kind="flat") if metric == "ann_recall"} == {
        1,
        3,
        5,
        7,
        10,
    }


def test_every_query_has_its_rows_and_no_lane_no_rows():
    frames = tables()
    assert measured(frames, asked=["lost"])["ann_recall", "lost", 10] == (None, "missing_embedding")
    assert measured(frames, asked=["lost"], enabled=False) == {}
    empty = {**frames, "embeddings": frames["embeddings"].clear()}
    assert measured(empty)["ann_recall", "q0", 10] == (None, "no_index")


def test_queries_of_another_model_are_refused():
    frames = tables()
    frames["query_embeddings"] = frames["query_embeddings"].with_columns(model=pl.lit("other"))
    with pytest.raises(ValueError, match="embed both with one model"):
        measured(frames)


def test_copies_of_one_neighbour_count_once(known_wrong):
    case = known_wrong["copies-of-one-neighbour"]
    exact, found = case["input"]["exact"], case["input"]["ann"]
    scores = [0.9 - 0.1 * i for i in range(5)]
    assert ann_recall(exact, scores, found, 5, 5) == pytest.approx(case["right"]["ann_recall@5"])


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_an_index_of_equal_vectors_gives_each_position_once(kind):
    same = np.repeat(unit(1), 30, axis=0)
    frames = tables(30)
    frames["embeddings"] = frames["embeddings"].with_columns(vector=vector_column(same))
    found = measured(frames, kind=kind, nlist=2, nprobe=2)
    # Thirty equal vectors: whichever ten are found are right, and none twice.
    assert found["ann_recall", "q0", 10] == (1.0, "scored")
