import numpy as np
import polars as pl
import pytest

from rag_eval_pipeline.models.encoder import ModelError
from rag_eval_pipeline.models.vectors import imported_vectors, same_model, vector_column, vector_matrix


def brought(ids, vectors, models=None) -> pl.DataFrame:
    return pl.DataFrame(
        {"id": ids, "vector": vectors, "model": models or ["m"] * len(ids)},
        schema={"id": pl.String, "vector": pl.List(pl.Float32), "model": pl.String},
    )


def load(frame, ids=("a", "b")):
    return imported_vectors(frame, pl.Series("chunk_id", list(ids), dtype=pl.String), "embeddings", "chunk")


def test_a_matrix_survives_the_column():
    matrix = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert np.array_equal(vector_matrix(vector_column(matrix)), matrix)
    assert vector_matrix(pl.Series([], dtype=pl.List(pl.Float32))).shape == (0, 0)


def test_imported_vectors_become_unit_length_and_further_ids_are_left_aside():
    found = load(brought(["b", "a", "z"], [[0, 2], [3, 4], [1, 1]])).sort("id")
    assert found["id"].to_list() == ["a", "b"]
    assert vector_matrix(found["vector"]) == pytest.approx(np.array([[0.6, 0.8], [0, 1]]))


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (None, r"outputs/embeddings\.parquet is absent"),
        (brought(["a"], [[1, 0]]), r"1 of 2 chunks have no vector, first \['b'\]"),
        (brought(["a", "b", "b"], [[1, 0]] * 3), r"twice, first \['b'\]"),
        (brought(["a", "b"], [[1, 0], [1]]), r"vectors of \[1, 2\] dimensions"),
        (brought(["a", "b"], [[1, 0], [1, 0]], ["m", "n"]), "several models"),
        (brought(["a", "b"], [[1, 0], [1, 0]], ["m", None]), "name no model"),
        (brought(["a", "b"], [[1, 0], [0, 0]]), r"zero, NaN or infinite, first \['b'\]"),
        (brought(["a", "b"], [[1, 0], [float("nan"), 0]]), r"zero, NaN or infinite, first \['b'\]"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(frame, says):
    with pytest.raises(ModelError, match=says):
        load(frame)


def test_no_items_need_no_vectors():
    assert load(brought(["z"], [[1, 0]]), ids=()).is_empty()


def test_vectors_of_two_models_are_not_compared():
    ours, theirs = brought(["a"], [[1, 0]]), brought(["q"], [[1, 0]], ["other"])
    with pytest.raises(ModelError, match="embed both with one model"):
        same_model(ours, theirs)
    with pytest.raises(ModelError, match=r"2 dimensions.*3"):
        same_model(ours, brought(["q"], [[1, 0, 0]]))
    same_model(ours, brought(["q"], [[0, 1]]))
    same_model(ours, theirs.clear())
