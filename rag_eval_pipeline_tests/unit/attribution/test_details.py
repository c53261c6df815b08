"""What each row of the ledger tells beside held and lost: places, kinds, ids and scores, and never a document's text."""

from __future__ import annotations

import json
from itertools import product

import polars as pl
import pytest

from rag_eval_pipeline.attribution.order import RetrieverInfo, leaves
from rag_eval_pipeline.attribution.waterfall import is_of_queries, unit_slices
from rag_eval_pipeline_tests.unit.attribution.test_stages import END, OTHER, START, TEXT, Small
from rag_eval_pipeline_tests.unit.attribution.world import gold_frame

LANES = ("bm25", "dense", "hybrid")


@pytest.fixture
def small():
    return Small()


def row(small, stage, retriever=""):
    found = small.books.ledger.filter((pl.col("stage") == stage) & (pl.col("retriever") == retriever))
    return found.row(0, named=True)


def detail(small, stage, retriever=""):
    return json.loads(row(small, stage, retriever)["detail"])


@pytest.mark.parametrize(
    ("before", "after", "kind", "differs"),
    [
        ("18 days", "13 days", "number", "number"),
        ("18 days", "18 hours", "number", "unit"),
        ("never", "newer", "negation", "negation"),
    ],
)
def test_parsing_tells_which_critical_token_differs_and_in_what(small, before, after, kind, differs):
    small.parsed["d1"] = TEXT.replace(before, after)
    small.run()
    told = detail(small, "parsing")
    tokens = [(item["kind"], item["differs"]) for item in told["tokens_that_differ"]]
    assert tokens == [(kind, differs)]
    assert small.built.units["critical_kinds"].to_list() == [["number", "negation"]]
    assert told["tokens_that_differ"][0]["token"] == told["broken_tokens"][0]
    assert 0.9 < told["similarity"] < 1
    assert told["cer"] == pytest.approx(1 - told["similarity"])


def test_parsing_tells_the_page(small):
    small.parsed["d1"] = TEXT.replace("18", "13")
    frames = small._frames()
    small._frames = lambda: (
        frames
        | {
            "blocks": pl.DataFrame(
                {"doc_id": ["d1", "d1", "d2"], "start": [0, START + 20, 0], "page": [3, 4, 9]},
                schema_overrides={"start": pl.Int64, "page": pl.Int64},
            )
        }
    )
    told = detail(small.run(), "parsing")
    assert (told["page"], told["page_end"]) == (3, 4)


def test_an_unanchored_unit_shows_the_nearest_match_by_its_place(small):
    small.unreferenced = {"d1"}
    small.parsed["d1"] = shorter = TEXT[:START] + "Staff have some leave." + TEXT[END:]
    told = detail(small.run(), "unanchored")
    assert told["similarity"] < 0.6
    assert 0 <= told["nearest"]["start"] < told["nearest"]["end"] <= len(shorter)


def test_cleaning_tells_the_removed_span_and_the_tokens_in_it(small):
    at = TEXT.index("18")
    small.removed["d1"] = [(at, at + 2)]
    small.run()
    told = detail(small, "cleaning")
    assert told["removed"] == [[at, at + 2]]
    assert told["tokens_that_differ"] == [{"token": 0, "kind": "number", "differs": "number"}]


def test_dedup_tells_cluster_survivor_and_likeness(small):
    small.survivors["d1"] = "d2"
    frames = small._frames()
    frames["dedup"] = frames["dedup"].with_columns(cluster_id=pl.lit("d1"))
    edges = pl.DataFrame({"doc_a": ["d1"], "doc_b": ["d2"], "similarity": [0.83], "verified": ["exact"]})
    small._frames = lambda: frames | {"dedup_edges": edges}
    assert detail(small.run(), "dedup")["removed"] == [
        {"doc_id": "d1", "survivor": "d2", "similarity": 0.83, "verified": "exact", "cluster": "d1"}
    ]


def test_pii_tells_entity_type_and_span(small):
    at = TEXT.index("18")
    small.masks["d1"] = [(at, at + 2, "AGE")]
    told = detail(small.run(), "pii")
    assert told["spans"] == [{"start": at, "end": at + 2, "type": "AGE"}]
    assert told["masked"] == [[at, at + 2]]


def test_chunking_tells_chunks_and_where_the_cut_goes_through(small):
    small.cuts["d1"] = [START + 30]
    small.run()
    told = detail(small, "chunking")
    assert told["chunk_ids"] == ["d1::0", "d1::1"]
    assert told["cuts"] == [START + 30]
    assert row(small, "chunking")["state"] == "degraded"
    assert row(small, "rank", "hybrid")["state"] == "degraded"


def test_filtering_tells_predicate_and_producer(small):
    small.scope = ["d2"]
    frames = small._frames()
    filters = frames["applied_filters"].with_columns(predicate=pl.lit('{"locale": "es"}'), mode=pl.lit("hard"))
    small._frames = lambda: frames | {"applied_filters": filters}
    told = detail(small.run(), "filtering")
    assert (told["producer"], told["predicate"], told["mode"]) == ("rules", '{"locale": "es"}', "hard")


def test_embedding_tells_tokens_seen_and_all_by_chunk(small):
    told = detail(small.run(), "embedding")
    assert told["chunks"] == [{"chunk_id": "d1::0", "encoded_tokens": 9, "tokens": 9}]


def test_search_tells_each_lanes_exact_rank_and_the_score_of_its_last_item(small):
    small.lists = {"bm25": ["d2::0", "d1::0"], "dense": ["d2::0"], "hybrid": ["d2::0"]}
    lanes = {item["lane"]: item for item in detail(small.run(k=2), "search", "hybrid")["exact"]}
    assert lanes["bm25"] == {"lane": "bm25", "rank": 2, "score": 0.5, "last_rank": 2, "last_score": 0.5}
    assert lanes["dense"] == {"lane": "dense", "rank": None, "score": None, "last_rank": 1, "last_score": 1.0}


def test_indexing_tells_both_ranks_and_the_index(small):
    small.lists = {"dense": ["d2::0"], "exact": ["d1::0", "d2::0"], "bm25": [], "hybrid": ["d2::0"]}
    frames = small._frames()
    index = pl.DataFrame({"index_name": ["x"], "kind": ["hnsw"], "params": ['{"m": 4}']})
    small._frames = lambda: frames | {"index_files": index}
    told = detail(small.run(), "indexing", "dense")
    assert told == {"exact_rank": 1, "real_rank": None, "index": {"kind": "hnsw", "params": '{"m": 4}'}}


def test_fusion_and_reranking_tell_ranks_before_and_after(small):
    small.lists = {key: ["d1::0", "d2::0"] for key in LANES}
    small.reranked = ["d2::0", "d1::0"]
    small.run(k=1)
    assert detail(small, "fusion", "hybrid")["lanes"] == [
        {"lane": "bm25", "hold_rank": 1}, {"lane": "dense", "hold_rank": 1},
    ]  # fmt: skip
    assert detail(small, "reranking", "hybrid") == {"real_rank": 1, "hold_rank": 2, "n": 2}


def test_rank_tells_its_score_and_that_of_rank_k(small):
    small.lists = {key: ["d2::0", "d1::0"] for key in LANES}
    told = detail(small.run(k=1), "rank", "bm25")
    assert told == {"hold_rank": 2, "score": 0.5, "score_at_k": [{"k": 1, "score": 1.0}]}


def test_no_detail_holds_a_word_of_a_document(small):
    small.parsed["d1"] = TEXT.replace("18", "13")
    small.masks["d1"] = [(START, START + 9, "NAME")]
    small.cuts["d1"] = [START + 30]
    small.run()
    told = " ".join([*small.books.ledger["detail"], *small.books.fate["detail"]]).lower()
    words = {word.strip(".,").lower() for word in (TEXT + " " + OTHER).split() if len(word.strip(".,")) > 3}
    own = {
        "chunk",
        "places",
        "page",
        "start",
        "status",
        "score",
        "rank",
        "lane",
        "name",
        "each",
        "need",
        "call",
        "long",
    }
    assert not {word for word in words - own if f'"{word}"' in told or f" {word} " in told}


# --- copies -----------------------------------------------------------------------------------------------------------


def with_copy(small):
    small.references["d0"] = small.parsed["d0"] = TEXT
    small.duplicates = [{"doc_a": "d0", "doc_b": "d1", "duplicate": True}]
    return small


def test_a_unit_that_only_a_copy_holds_is_rescued_and_says_so(small):
    with_copy(small).parsed["d1"] = TEXT.replace("18", "13")
    small.run(k=5)
    assert set(small.books.fate["first_loss_stage"]) == {"served"}
    assert small.books.fate["rescued"].all()
    assert row(small, "parsing")["rescued"]
    assert row(small, "chunking")["rescued"]
    assert row(small, "rank", "bm25")["rescued"]
    assert not row(small, "source")["rescued"]
    assert detail(small, "parsing")["doc_id"] == "d0"


def test_a_unit_that_its_own_document_holds_too_is_not_rescued(small):
    with_copy(small).run(k=5)
    assert not small.books.fate["rescued"].any()
    assert not small.books.ledger["rescued"].any()


def test_served_by_a_copy_above_k_and_by_its_own_document_below(small):
    with_copy(small).lists = {key: ["d0::0", "d2::0", "d1::0"] for key in LANES}
    assert small.run(k=1).books.fate["rescued"].all()
    assert not small.run(k=3).books.fate["rescued"].any()


# --- slices -----------------------------------------------------------------------------------------------------------


def test_slices_are_crossed_in_the_order_of_the_settings_and_hops_are_slices_of_units():
    queries = gold_frame(
        "queries",
        [
            {"query_id": "a", "text": "?", "intent": "howto", "language": "es", "tags": ["x", "y"], "answerable": True},
            {"query_id": "b", "text": "?", "intent": "howto", "language": None, "tags": [], "answerable": False},
        ],
    )
    units = pl.DataFrame(
        {"query_id": ["a", "a", "b"], "evidence_id": ["1", "2", "1"], "doc_id": ["d", "e", "d"], "hop": [1, 2, None]}
    )
    documents = pl.DataFrame({"doc_id": ["d", "e"], "doc_class": ["scan", None]})
    found = unit_slices(units, queries, documents, ("language", "intent", "tags", "doc_class", "answerable"))
    rows = {tuple(r) for r in found.iter_rows()}
    one, two, other = ("a", "1"), ("a", "2"), ("b", "1")
    expected = {(*u, "all", "all") for u in (one, two, other)}
    expected |= {(*u, "language", "es") for u in (one, two)} | {(*u, "intent", "howto") for u in (one, two, other)}
    expected |= {(*u, "tags", t) for u, t in product((one, two), "xy")}
    expected |= {(*u, "doc_class", "scan") for u in (one, other)}
    expected |= {(*u, "answerable", "true") for u in (one, two)} | {(*other, "answerable", "false")}
    expected |= {(*u, "language×intent", "es×howto") for u in (one, two)}
    expected |= {(*u, "language×tags", f"es×{t}") for u, t in product((one, two), "xy")}
    expected |= {(*one, "language×doc_class", "es×scan")} | {(*u, "language×answerable", "es×true") for u in (one, two)}
    expected |= {(*u, "intent×tags", f"howto×{t}") for u, t in product((one, two), "xy")}
    expected |= {(*u, "intent×doc_class", "howto×scan") for u in (one, other)}
    expected |= {(*u, "intent×answerable", "howto×true") for u in (one, two)} | {
        (*other, "intent×answerable", "howto×false")
    }
    expected |= {(*one, "tags×doc_class", f"{t}×scan") for t in "xy"}
    expected |= {(*u, "tags×answerable", f"{t}×true") for u, t in product((one, two), "xy")}
    expected |= {(*one, "doc_class×answerable", "scan×true"), (*other, "doc_class×answerable", "scan×false")}
    expected |= {(*one, "hop", "1"), (*two, "hop", "2")}
    assert rows == expected
    assert found.height == len(rows)
    assert is_of_queries("language×tags")
    assert not is_of_queries("intent×doc_class")
    assert not is_of_queries("hop")


def test_a_fused_list_of_fused_lists_searches_with_all_lanes_below():
    info = {
        "a": RetrieverInfo(), "b": RetrieverInfo(dense=True), "ab": RetrieverInfo(("a", "b")),
        "top": RetrieverInfo(("ab", "a")),
    }  # fmt: skip
    assert leaves("top", info) == ("a", "b")
    assert leaves("a", info) == ("a",)
