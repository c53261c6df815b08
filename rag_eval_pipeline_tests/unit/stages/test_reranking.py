import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.lists import ListError, empty
from rag_eval_pipeline.stages.reranking.lexical import LexicalReranker, _distance
from rag_eval_pipeline.stages.reranking.quality import METRICS, measure
from rag_eval_pipeline.stages.reranking.stage import STAGE
from rag_eval_pipeline.stages.reranking.transform import RerankingConfig, identity, run
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import (
    chunks,
    documents,
    gold,
    lists,
    output,
    pieces,
    prepared,
    units,
)

TEXTS = {
    "a::0": "the moon",
    "b::0": "mars rover landed",
    "c::0": "mars",
    "d::0": "a rover on dusty mars",
    "e::0": "none",
}


def frames(*runs, fused=None, **outputs):
    return {
        "documents": documents(*"abcde", "gone"), "runs": pl.concat([empty(), *runs]), "fused_runs": empty() if fused is None else fused,
        "chunks": chunks(*TEXTS.items()), "prepared_queries": prepared(q1="mars rover", q2="moon"), **outputs,
    }  # fmt: skip


def ranked(given, **config):
    return run(given, RerankingConfig.model_validate(config), Runtime.plain())["ranked_runs"]


def ids(table, retriever="lane", query="q1"):
    rows = table.filter((pl.col("retriever") == retriever) & (pl.col("query_id") == query)).sort("rank")
    return rows["chunk_id"].to_list()


def test_without_a_reranker_all_lists_pass_through():
    runs = lists("bm25", q1=["a::0", "b::0"])
    fused = lists("hybrid", q1=["b::0"])
    found = ranked(frames(runs, fused=fused))
    assert found["retriever"].to_list() == ["bm25", "bm25", "hybrid"]
    assert found["rank_before"].equals(found["rank"].alias("rank_before"))
    assert found["input_size"].null_count() == 3
    assert found["score"].null_count() == 0


def test_the_first_items_are_reordered_and_the_others_follow():
    found = ranked(frames(lists(q1=["a::0", "c::0", "b::0", "e::0", "d::0"])), reranker="lexical", depth=3)
    assert ids(found) == ["b::0", "c::0", "a::0", "e::0", "d::0"]
    assert found["rank_before"].to_list() == [3, 2, 1, 4, 5]
    assert found["input_size"].to_list() == [3] * 5
    assert found["score"].is_null().to_list() == [False, False, False, True, True]


def test_only_the_named_lanes_are_reranked():
    found = ranked(
        frames(lists("x", q1=["a::0", "b::0"]), lists("y", q1=["a::0", "b::0"])), reranker="lexical", lanes=["y"]
    )
    assert ids(found, "x") == ["a::0", "b::0"]
    assert ids(found, "y") == ["b::0", "a::0"]
    assert found.filter(pl.col("retriever") == "x")["input_size"].null_count() == 2


def test_equal_scores_keep_the_order_before():
    found = ranked(frames(lists(q1=["e::0", "a::0"])), reranker="lexical")
    assert ids(found) == ["e::0", "a::0"]


def test_a_stale_item_goes_behind_those_that_were_read():
    found = ranked(frames(lists(q1=["gone", "a::0", "b::0"])), reranker="lexical")
    assert ids(found) == ["b::0", "a::0", "gone"]
    assert found["input_size"].to_list() == [3, 3, 3]


class Reverse:
    def __init__(self, scores=None):
        self.scores = scores

    def rerank(self, query, passages):
        return self.scores if self.scores is not None else range(len(passages))


OWN = f"{__name__}:Reverse"


def test_an_own_class_reranks():
    assert ids(ranked(frames(lists(q1=["a::0", "b::0", "c::0"])), reranker=OWN)) == ["c::0", "b::0", "a::0"]


@pytest.mark.parametrize(
    ("scores", "named"), [([1.0], "1 scores for 2 passages"), ([1.0, float("nan")], "1 scores are NaN")]
)
def test_an_own_class_that_misbehaves_is_named_without_text(scores, named):
    with pytest.raises(ValueError, match=f"retriever lane, query q1: {named}") as error:
        ranked(frames(lists(q1=["a::0", "b::0"])), reranker=OWN, options={"scores": scores})
    assert "moon" not in str(error.value)


# --- imported ---


def test_an_imported_order_comes_with_the_order_before():
    given = frames(
        lists(q1=["a::0", "b::0", "c::0"]),
        **{"output:runs": output("lane", [("q1", "c::0", 1, None), ("q1", "a::0", 2, None)])},
    )
    found = ranked(given, reranker="import")
    assert ids(found) == ["c::0", "a::0"]
    assert found["rank_before"].to_list() == [3, 1]
    assert found["input_size"].to_list() == [3, 3]
    given["output:runs_before_rerank"] = output("lane", [("q1", "a::0", 1, None), ("q1", "d::0", 2, None)])
    found = ranked(given, reranker="import")
    assert found["rank_before"].to_list() == [None, 1]
    assert found["input_size"].to_list() == [2, 2]


def test_a_query_that_the_imported_order_lacks_keeps_its_own():
    given = frames(
        lists(q1=["a::0"], q2=["b::0", "c::0"]), **{"output:runs": output("lane", [("q1", "a::0", 1, None)])}
    )
    found = ranked(given, reranker="import")
    assert ids(found, query="q2") == ["b::0", "c::0"]


def test_an_imported_order_that_is_absent_or_faulty_is_refused():
    with pytest.raises(ValueError, match=r"outputs/runs/lane.trec"):
        ranked(frames(lists(q1=["a::0"])), reranker="import")
    twice = output("lane", [("q1", "a::0", 1, None), ("q1", "a::0", 2, None)])
    with pytest.raises(ListError, match="run lane, query q1: id 'a::0'"):
        ranked(frames(lists(q1=["a::0"]), **{"output:runs": twice}), reranker="import")


# --- lexical ---


@given(
    first=st.sets(st.integers(0, 30), min_size=1, max_size=8),
    second=st.sets(st.integers(0, 30), min_size=1, max_size=8),
)
def test_the_least_distance_is_that_of_all_pairs(first, second):
    second = second - first or {31}
    assert _distance(sorted(first), sorted(second)) == min(abs(a - b) for a in first for b in second)


def test_rare_terms_count_more_and_neighbours_more_than_far_terms():
    made = chunks(("a::0", "mars mission"), ("b::0", "mars dust"), ("c::0", "rover"), ("d::0", "mars"))
    scorer = LexicalReranker(made)
    passages = [("a rover", "en"), ("on mars", "en"), ("mars rover", "en"), ("mars far away from any rover", "en")]
    rare, common, near, far = scorer.scores("mars rover", "en", passages)
    assert rare > common
    assert near == pytest.approx(1.0)
    assert near > far > rare
    assert scorer.scores("", "en", passages) == [0.0] * 4


# --- quality ---


def judged(after, **config):
    given = frames(lists(q1=["a::0", "b::0"], q2=["c::0"])) | {
        "ranked_runs": after,
        "evidence_units": units({"query_id": "q1", "evidence_id": "u", "doc_id": "b"}),
        "evidence_pieces": pieces({"query_id": "q1", "evidence_id": "u", "chunk_id": "b::0"}),
    }
    settings = Settings.model_validate({"evaluate": {"k": [1, 2], "serve_k": 2}})
    return measure(given, gold(["q1", "q2", "q3"]), RerankingConfig.model_validate(config), settings)


def test_the_uplift_is_that_of_the_same_candidates():
    after = ranked(frames(lists(q1=["a::0", "b::0"], q2=["c::0"])), reranker="lexical")
    table = judged(after, reranker="lexical")
    row = {
        (r["unit"], r["metric"], r["k"]): r["value"]
        for r in table.filter(pl.col("item_id") == "q1").iter_rows(named=True)
    }
    for unit in ("document", "chunk"):
        assert row[unit, "rerank_rr_uplift", 0] == pytest.approx(0.5)
        assert row[unit, "rerank_p1_uplift", 1] == pytest.approx(1.0)
        assert row[unit, "rerank_ndcg_uplift", 1] == pytest.approx(1.0)
        assert row[unit, "rerank_ndcg_uplift", 2] == pytest.approx(1 - 0.6309297535714575)
    assert table.height == 3 * 2 * 4
    assert set(table.filter(pl.col("item_id") != "q1")["status"]) == {"no_gold"}
    assert {metric.name for metric in METRICS} == set(table["metric"])


def test_without_a_reranker_nothing_is_expected():
    assert judged(ranked(frames(lists(q1=["a::0"])))).is_empty()


def test_a_query_without_candidates_is_null_and_says_so():
    table = judged(ranked(frames(lists(q2=["c::0"])), reranker="lexical"), reranker="lexical")
    assert set(table.filter(pl.col("item_id") == "q1")["status"]) == {"no_candidates"}
    assert table.filter(pl.col("item_id") == "q1")["value"].null_count() == 8


@pytest.mark.parametrize("config", [{"reranker": "magic"}, {"reranker": "cross_encoder"}, {"depth": 0}])
def test_a_wrong_config_is_refused(config):
    with pytest.raises(ValueError, match=r"reranker|depth"):
        RerankingConfig.model_validate(config)


def test_the_files_of_a_cross_encoder_are_part_of_the_identity(tmp_path):
    found = []
    for content in (b"one", b"two"):
        folder = tmp_path / content.decode()
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(content)
        found.append(identity(RerankingConfig(reranker="cross_encoder", model=str(folder))))
    assert found[0] != found[1]
    assert identity(RerankingConfig(reranker="lexical")) == {}


@pytest.mark.full
def test_a_cross_encoder_from_a_folder_reranks(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "mars", "rover", "moon", "the"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    shape = {
        "vocab_size": len(words),
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    transformers.BertForSequenceClassification(transformers.BertConfig(**shape, num_labels=1)).save_pretrained(tmp_path)
    given = frames(lists(q1=["a::0", "b::0", "c::0"]))
    found = ranked(given, reranker="cross_encoder", model=str(tmp_path), depth=2)
    assert sorted(ids(found)[:2]) == ["a::0", "b::0"]
    assert found.equals(ranked(given, reranker="cross_encoder", model=str(tmp_path), depth=2))
    assert STAGE.tables == ("ranked_runs",)
