import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures.lists import ListError
from rag_eval_pipeline.models.ann import build_index
from rag_eval_pipeline.stages.retrieval.lexical import Bm25
from rag_eval_pipeline.stages.retrieval.scopes import top
from rag_eval_pipeline.stages.retrieval.stage import STAGE
from rag_eval_pipeline.stages.retrieval.transform import ImportLane, RetrievalConfig, run, run_lane
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.sizes import examples
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import (
    chunks,
    documents,
    everything,
    output,
    prepared,
    scopes,
)

WORDS = ("mars", "moon", "rover", "dust", "ice")


def lanes(**configs):
    return RetrievalConfig.model_validate({"lanes": configs})


def search(frames, **configs):
    return run(frames, lanes(**configs), Runtime.plain())


def ids(table, retriever="bm25", query="q1"):
    rows = table.filter((pl.col("retriever") == retriever) & (pl.col("query_id") == query)).sort("rank")
    return rows["chunk_id"].to_list()


def lexical_frames(texts, query="mars"):
    made = chunks(*((f"d{number}::0", text) for number, text in enumerate(texts)))
    return {"chunks": made, "prepared_queries": prepared(q1=query), **everything("q1")}


# --- bm25 ---


def literal_bm25(texts, query, k1, b):
    """Lucene's formula, word by word."""
    bags = [Counter(text.split()) for text in texts]
    mean = sum(map(Counter.total, bags)) / len(bags)
    scores = []
    for bag in bags:
        score = 0.0
        for word in query.split():
            df = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
            tf = bag[word]
            score += idf * tf / (tf + k1 * (1 - b + b * bag.total() / mean)) if tf else 0.0
        scores.append(score)
    return scores


@examples(60, 500)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=12),
    query=st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join),
    k1=st.sampled_from([0.0, 0.9, 1.2, 2.0]),
    b=st.sampled_from([0.0, 0.4, 0.75, 1.0]),
)
def test_bm25_scores_equal_the_formula(texts, query, k1, b):
    made = chunks(*((f"d{number:02}::0", text) for number, text in enumerate(texts)))
    index = Bm25(made, k1=k1, b=b, stemming="none", stop_words="none")
    if any(text for text in texts):
        np.testing.assert_allclose(index.scores(query, "en"), literal_bm25(texts, query, k1, b), rtol=1e-6)
    else:
        assert not index.scores(query, "en").any()


def test_a_chunk_without_a_common_term_is_not_in_the_list():
    found = search(lexical_frames(["mars is red", "the moon", ""]), bm25={"kind": "bm25"})
    assert ids(found["runs"]) == ["d0::0"]
    assert found["exact_runs"].is_empty()


def test_a_query_of_stop_words_gives_an_empty_list():
    assert search(lexical_frames(["mars is red"], query="the of"), bm25={"kind": "bm25"})["runs"].is_empty()


def test_equal_scores_stand_by_chunk_id_also_across_the_depth():
    found = search(lexical_frames(["mars"] * 12), bm25={"kind": "bm25", "depth": 5})["runs"]
    assert ids(found) == sorted(f"d{number}::0" for number in range(12))[:5]
    assert found["rank"].to_list() == [1, 2, 3, 4, 5]
    assert found["score"].n_unique() == 1


def test_each_language_is_stemmed_in_its_own_way():
    english, spanish = chunks(("e::0", "holidays"), language="en"), chunks(("s::0", "las vacaciones"), language="es")
    frames = {"chunks": pl.concat([english, spanish]), **everything("q1", "q2", "q3")}
    queries = pl.concat([prepared("en", q1="holiday"), prepared("es-MX", q2="vacación"), prepared(None, q3="holiday")])
    found = search({**frames, "prepared_queries": queries}, bm25={"kind": "bm25"})["runs"]
    assert ids(found, query="q1") == ["e::0"]
    assert ids(found, query="q2") == ["s::0"]
    assert ids(found, query="q3") == ["e::0"]


def test_the_prefix_is_searched_too():
    frames = lexical_frames(["red planet", "blue planet"], query="contract")
    frames["chunks"] = frames["chunks"].with_columns(prefix=pl.Series(["", "contract 7: "]))
    assert ids(search(frames, bm25={"kind": "bm25"})["runs"]) == ["d1::0"]


def test_depth_in_documents_over_fetches_until_so_many_are_shown():
    made = chunks(
        ("a::0", "mars mars mars"),
        ("a::1", "mars mars"),
        ("b::0", "mars dust ice"),
        ("c::0", "mars dust ice moon rover"),
    )
    frames = {"chunks": made, "prepared_queries": prepared(q1="mars"), **everything("q1")}
    assert ids(search(frames, bm25={"kind": "bm25", "depth": 2, "depth_unit": "documents"})["runs"]) == [
        "a::0",
        "a::1",
        "b::0",
    ]
    assert ids(search(frames, bm25={"kind": "bm25", "depth": 2})["runs"]) == ["a::0", "a::1"]


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=20),
    depth=st.integers(1, 8),
    by_document=st.booleans(),
    data=st.data(),
)
def test_the_best_are_those_of_a_full_sort(scores, depth, by_document, data):
    size = len(scores)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    owners = np.array(data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)))
    found = top(np.array(scores, dtype=np.float32), allowed, depth, owners if by_document else None)
    order = sorted((p for p in range(size) if allowed[p] and scores[p] > 0), key=lambda p: (-scores[p], p))
    expected = []
    for position in order:
        if (len({owners[p] for p in expected}) if by_document else len(expected)) >= depth:
            break
        expected.append(position)
    assert found.tolist() == expected


# --- scopes ---


def test_a_hard_scope_admits_its_documents_alone():
    frames = lexical_frames(["mars one", "mars two", "mars three"])
    frames["scopes"] = scopes(all=["d1", "gone"])
    assert ids(search(frames, bm25={"kind": "bm25"})["runs"]) == ["d1::0"]
    frames["scopes"] = scopes(all=[])
    assert search(frames, bm25={"kind": "bm25"})["runs"].is_empty()


def test_a_query_without_a_scope_is_refused():
    frames = lexical_frames(["mars"]) | everything("other")
    with pytest.raises(ValueError, match="query q1 has no scope"):
        search(frames, bm25={"kind": "bm25"})


def test_a_soft_filter_lifts_preferred_documents_by_a_share_of_the_score_range():
    frames = lexical_frames(["mars mars mars", "mars dust dust dust dust", "mars dust"])
    plain = search(frames, bm25={"kind": "bm25"})["runs"]
    spread = plain["score"].max() - plain["score"].min()
    frames["scopes"] = scopes(all=None, soft=["d1"])
    frames["applied_filters"] = frames["applied_filters"].with_columns(
        mode=pl.lit("soft"), preferred_scope_id=pl.lit("soft"), boost=pl.lit(2.0)
    )
    lifted = search(frames, bm25={"kind": "bm25"})["runs"]
    assert ids(plain) == ["d0::0", "d2::0", "d1::0"]
    assert ids(lifted) == ["d1::0", "d0::0", "d2::0"]
    assert lifted["score"][0] == pytest.approx(plain["score"][2] + 2 * spread)
    assert lifted["rank"].to_list() == [1, 2, 3]


# --- dense ---


def dense_frames(vectors, queries, kind="flat"):
    rows = np.array(vectors, dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    names = [f"d{number:03}::0" for number in range(len(rows))]
    asked = [f"q{number}" for number in range(len(queries))]
    vector = pl.List(pl.Float32)
    index = {"index_name": ["dense"], "kind": [kind], "chunk_ids": [names], "blob": [build_index(rows, {"kind": kind})]}
    return {
        "chunks": chunks(*((name, "text") for name in names)),
        "embeddings": pl.DataFrame({"chunk_id": names, "vector": rows.tolist()}, schema={"chunk_id": pl.String, "vector": vector}),
        "query_embeddings": pl.DataFrame({"query_id": asked, "vector": np.array(queries, dtype=np.float32).tolist()},
                                         schema={"query_id": pl.String, "vector": vector}),
        "index_files": pl.DataFrame(index),
        "prepared_queries": prepared(**dict.fromkeys(asked, "text")),
        **everything(*asked),
    }  # fmt: skip


def test_dense_lists_are_those_of_the_inner_product():
    random = np.random.default_rng(7)
    vectors, queries = random.normal(size=(40, 8)), random.normal(size=(3, 8))
    found = search(dense_frames(vectors, queries), dense={"kind": "dense", "depth": 10})
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for number, query in enumerate(queries):
        best = np.argsort(-(unit @ query))[:10]
        assert ids(found["runs"], "dense", f"q{number}") == [f"d{position:03}::0" for position in best]
    assert found["exact_runs"].is_empty()


def test_an_approximate_index_comes_with_exact_lists():
    random = np.random.default_rng(3)
    vectors, queries = random.normal(size=(60, 8)), random.normal(size=(2, 8))
    flat = search(dense_frames(vectors, queries), dense={"kind": "dense", "depth": 5})
    near = search(dense_frames(vectors, queries, "hnsw"), dense={"kind": "dense", "depth": 5})
    assert near["exact_runs"].equals(flat["runs"])
    assert near["runs"].height == 10


def test_dense_search_stays_in_the_scope_and_ties_go_by_id():
    frames = dense_frames([[1, 0]] * 5 + [[0, 1]], [[1, 0]])
    frames["scopes"] = scopes(all=["d001", "d003", "d005"])
    found = search(frames, dense={"kind": "dense"})["runs"]
    assert ids(found, "dense", "q0") == ["d001::0", "d003::0", "d005::0"]


def test_dense_depth_in_documents_grows_until_enough():
    frames = dense_frames([[1, 0.01 * number] for number in range(9)], [[1, 0]])
    owners = pl.when(pl.col("chunk_id") < "d006").then(pl.lit("big")).otherwise("chunk_id")
    frames["chunks"] = frames["chunks"].with_columns(doc_id=owners)
    found = search(frames, dense={"kind": "dense", "depth": 2, "depth_unit": "documents"})["runs"]
    assert ids(found, "dense", "q0") == [f"d00{number}::0" for number in range(7)]


def test_without_embeddings_a_dense_lane_is_empty():
    frames = dense_frames([[1, 0]], [[1, 0]])
    frames |= {"embeddings": frames["embeddings"].clear(), "index_files": frames["index_files"].clear()}
    assert search(frames, dense={"kind": "dense"})["runs"].is_empty()


def test_a_query_without_a_vector_is_named():
    frames = dense_frames([[1, 0]], [[1, 0]])
    frames["query_embeddings"] = frames["query_embeddings"].clear()
    with pytest.raises(ValueError, match="q0"):
        search(frames, dense={"kind": "dense"})


# --- imported ---


def import_frames(rows, made=None):
    made = chunks(("a::0", "x"), ("a::1", "y"), ("b::0", "z")) if made is None else made
    return {
        "chunks": made, "documents": documents("a", "b", "removed"), "prepared_queries": prepared(q1="x"), **everything("q1"),
        "output:runs": output("mine", rows),
    }  # fmt: skip


def imported(rows, **lane):
    return search(import_frames(rows), given={"kind": "import", "run": "mine"} | lane)["runs"]


def test_given_ranks_are_kept_and_gaps_closed():
    found = imported([("q1", "b::0", 7, 0.1), ("q1", "a::1", 3, 0.9), ("other", "zzz", 1, 1.0)])
    assert ids(found, "given") == ["a::1", "b::0"]
    assert found["rank"].to_list() == [1, 2]


def test_without_ranks_scores_decide():
    assert ids(imported([("q1", "b::0", None, 0.5), ("q1", "a::0", None, 0.9)]), "given") == ["a::0", "b::0"]
    assert ids(imported([("q1", "b::0", 1, 0.5), ("q1", "a::0", 2, 0.9)], order="score"), "given") == ["a::0", "b::0"]


def test_a_document_stands_for_its_chunks_in_order():
    assert ids(imported([("q1", "b", 1, None), ("q1", "a", 2, None)]), "given") == ["b::0", "a::0", "a::1"]


def test_a_removed_document_keeps_its_place():
    assert ids(imported([("q1", "removed", 1, 3.0), ("q1", "b", 2, 2.0)]), "given") == ["removed", "b::0"]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([("q1", "a::0", 1, 0.5), ("q1", "a::0", 2, 0.4)], "run mine, query q1: id 'a::0' stands more than once"),
        ([("q1", "zzz", 1, 0.5)], "run mine, query q1: id 'zzz' is neither"),
        ([("q1", "a::0", 1, float("nan"))], "run mine, query q1: the score of id 'a::0' is nan"),
        ([("q1", "a::0", None, None)], "run mine, query q1: id 'a::0' has neither rank nor score"),
    ],
)
def test_a_faulty_run_is_refused_by_run_query_and_id(rows, named):
    with pytest.raises(ListError, match=named):
        imported(rows)


def test_duplicate_ids_are_refused(known_wrong):
    case = known_wrong["duplicate-ids-give-no-gain"]["input"]
    rows = [("q1", item, rank, None) for rank, item in enumerate(case["retrieved"], 1)]
    frames = import_frames(rows, chunks(("A::0", "x"), ("X::0", "y")))
    with pytest.raises(ListError, match="run mine, query q1: id 'A'"):
        search(frames, given={"kind": "import", "run": "mine"})


def test_an_absent_run_names_the_file():
    frames = import_frames([])
    with pytest.raises(ValueError, match=r"outputs/runs/mine.trec or .jsonl is absent"):
        search(frames, given={"kind": "import", "run": "mine"})
    with pytest.raises(ValueError, match=r"outputs/runs/mine.before_rerank.jsonl is absent"):
        search(frames, given={"kind": "import", "run": "mine", "before_rerank": True})


# --- own class ---


class Longest:
    """Chunks by length; `fault` makes it misbehave."""

    def __init__(self, fault=None):
        self.fault = fault

    def search(self, queries, chunks, scopes, depth):
        found = queries.select("query_id").join(
            chunks.select("chunk_id", score=pl.col("text").str.len_chars().cast(pl.Float64)), how="cross"
        )
        if self.fault == "twice":
            return pl.concat([found, found])
        if self.fault == "unknown":
            return found.with_columns(chunk_id=pl.lit("zzz") + pl.col("chunk_id"))
        return found.drop("score") if self.fault == "columns" else found


OWN = f"{__name__}:Longest"


def test_an_own_class_is_a_lane():
    found = search(lexical_frames(["aa", "aaaa", "aaa"]), own={"kind": OWN, "depth": 2})["runs"]
    assert ids(found, "own") == ["d1::0", "d2::0"]


@pytest.mark.parametrize(("fault", "named"), [("twice", "more than once"), ("unknown", "zzzd0"), ("columns", "score")])
def test_an_own_class_that_misbehaves_is_named(fault, named):
    with pytest.raises(ListError, match=named):
        search(lexical_frames(["aa"]), own={"kind": OWN, "options": {"fault": fault}})


# --- the room ---


def test_an_unknown_kind_says_what_there_is():
    with pytest.raises(ValueError, match="bm25, dense, import, rrf, convex"):
        lanes(x={"kind": "bm52"})


def test_lanes_are_independent_and_repeatable():
    frames = lexical_frames(["mars", "mars moon"])
    both = search(frames, one={"kind": "bm25"}, two={"kind": "bm25", "k1": 2.0})
    config = lanes(one={"kind": "bm25"}, two={"kind": "bm25", "k1": 2.0})
    alone = run_lane("two", config.lanes["two"], frames)["runs"]
    assert both["runs"].filter(pl.col("retriever") == "two").sort("rank").equals(alone.sort("rank"))
    assert both["runs"].equals(search(frames, one={"kind": "bm25"}, two={"kind": "bm25", "k1": 2.0})["runs"])


def test_the_stage_declares_what_it_writes():
    assert STAGE.tables == ("runs", "exact_runs")
    assert STAGE.config is RetrievalConfig
    assert isinstance(lanes(x={"kind": "import", "run": "r"}).lanes["x"], ImportLane)
