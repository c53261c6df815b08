import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.models.ann import build_index, exact_search, load_index, score, search


def unit(count: int, dimension: int = 16, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def oracle(vectors: np.ndarray, query: np.ndarray, k: int, allowed: set[int]) -> list[int]:
    scores = [np.float32((vector.astype(np.float64) * query.astype(np.float64)).sum()) for vector in vectors]
    return sorted(allowed, key=lambda i: (-scores[i], i))[:k]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 99), st.booleans(), st.data())
def test_exact_search_is_a_full_sort_by_score_then_position(count, k, seed, copies, data):
    vectors = unit(count, 8, seed)
    if copies:  # ties on purpose
        vectors = vectors[np.random.default_rng(seed).integers(0, max(1, count // 3), count)]
    allowed = data.draw(st.sets(st.integers(0, count - 1)))
    queries = unit(3, 8, seed + 1)
    found, scores = exact_search(vectors, queries, k, np.array(sorted(allowed), dtype=np.int64))
    for query, ids, values in zip(queries, found, scores, strict=True):
        assert ids.tolist() == oracle(vectors, query, k, allowed)
        assert values.tolist() == score(vectors[ids], query).tolist()


def test_exact_search_is_the_same_in_blocks_of_any_size(monkeypatch):
    vectors, queries = unit(500), unit(40, seed=1)
    whole = exact_search(vectors, queries, 10)
    monkeypatch.setattr("rag_eval_pipeline.models.ann.BLOCK", 700)
    blocked = exact_search(vectors, queries, 10)
    for one, other in zip((*whole[0], *whole[1]), (*blocked[0], *blocked[1]), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_the_same_vectors_give_the_same_bytes(kind):
    params = {"kind": kind, "seed": 3, "nlist": 8}
    assert build_index(unit(400), params) == build_index(unit(400), params)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_another_seed_gives_another_index(kind):
    assert build_index(unit(400), {"kind": kind, "seed": 3}) != build_index(unit(400), {"kind": kind, "seed": 4})


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_search_parameters_are_stored_with_the_index(kind):
    index = load_index(build_index(unit(300), {"kind": kind, "ef_search": 77, "nlist": 9, "nprobe": 5}))
    assert index.kind == kind
    assert index.size == 300
    assert np.array_equal(index.vectors, unit(300))
    if kind == "hnsw":
        assert index.handle.hnsw.efSearch == 77
    if kind == "ivf":
        assert (index.handle.nlist, index.handle.nprobe) == (9, 5)


@settings(max_examples=60)
@given(
    st.sampled_from(["flat", "hnsw", "ivf"]), st.integers(1, 80), st.integers(1, 90), st.integers(0, 9), st.booleans(),
    st.data(),
)  # fmt: skip
def test_found_positions_are_distinct_allowed_and_in_the_exact_order(kind, count, k, seed, copies, data):
    vectors = unit(count, 8, seed)
    if copies:
        vectors = vectors[np.random.default_rng(seed).integers(0, max(1, count // 3), count)]
    allowed = data.draw(st.none() | st.sets(st.integers(0, count - 1)))
    index = load_index(build_index(vectors, {"kind": kind, "m": 4, "nlist": 5, "nprobe": 2}))
    queries = unit(4, 8, seed + 1)
    mask = None if allowed is None else np.isin(np.arange(count), sorted(allowed))
    found, scores = search(index, queries, k, mask)
    for query, ids, values in zip(queries, found, scores, strict=True):
        admitted = set(range(count)) if allowed is None else allowed
        assert len(ids) <= min(k, len(admitted))
        assert len(set(ids.tolist())) == len(ids)
        assert set(ids.tolist()) <= admitted
        assert ids.tolist() == oracle(vectors, query, len(ids), set(ids.tolist()))
        assert np.array_equal(values, score(vectors[ids], query))


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_index_that_explores_everything_equals_exact_search(kind):
    vectors, queries = unit(300), unit(20, seed=1)
    params = {"kind": kind, "ef_construction": 300, "ef_search": 300, "nlist": 6, "nprobe": 6}
    index = load_index(build_index(vectors, params))
    mask = np.arange(300) % 3 == 0
    for allowed in (None, mask):
        found, exact = search(index, queries, 10, allowed), exact_search(vectors, queries, 10, allowed)
        for one, other in zip((*found[0], *found[1]), (*exact[0], *exact[1]), strict=True):
            assert np.array_equal(one, other)


def test_a_starved_index_gives_fewer_than_k():
    # Two far clusters: the filter admits only the one that the query does not explore.
    near, far = unit(200, seed=1) * 0.05, unit(200, seed=2) * 0.05
    near[:, 0] += 1
    far[:, 0] -= 1
    vectors = np.concatenate([near, far]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = load_index(build_index(vectors, {"kind": "ivf", "nlist": 8, "nprobe": 1}))
    found, _ = search(index, vectors[:1], 10, np.arange(400) >= 200)
    assert len(found[0]) == 0
    exact, _ = exact_search(vectors, vectors[:1], 10, np.arange(400) >= 200)
    assert len(exact[0]) == 10


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_an_empty_index_and_an_empty_scope_find_nothing(kind):
    empty = load_index(build_index(np.zeros((0, 16), np.float32), {"kind": kind}))
    assert [len(ids) for ids in search(empty, unit(2), 5)[0]] == [0, 0]
    full = load_index(build_index(unit(50), {"kind": kind}))
    assert [len(ids) for ids in search(full, unit(2), 5, np.zeros(50, bool))[0]] == [0, 0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "lsh"}, "use one of flat, hnsw, ivf"),
        ({"efsearch": 3}, "known are"),
    ],
)
def test_unknown_kinds_and_parameters_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        build_index(unit(5), change)


def test_wrong_shapes_are_refused_with_what_to_do():
    index = load_index(build_index(unit(5), {"kind": "flat"}))
    with pytest.raises(ValueError, match="same model"):
        search(index, unit(1, 8), 3)
    with pytest.raises(ValueError, match="k must be at least 1"):
        search(index, unit(1), 0)
    with pytest.raises(ValueError, match="mask has shape"):
        search(index, unit(1), 1, np.ones(4, bool))
    broken = unit(3)
    broken[1, 1] = np.nan
    with pytest.raises(ValueError, match="1 rows hold NaN"):
        build_index(broken)
