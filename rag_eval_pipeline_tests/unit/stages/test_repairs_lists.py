import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.predicates import Matcher, visible
from rag_eval_pipeline.corpus.settings import Ledger, Settings
from rag_eval_pipeline.measures.lists import RUN, empty
from rag_eval_pipeline.models.ann import load_index
from rag_eval_pipeline.models.encoder import Encoder, load_encoder
from rag_eval_pipeline.models.vectors import vector_column, vector_matrix
from rag_eval_pipeline.stages.embedding import evidence as embedding_evidence
from rag_eval_pipeline.stages.embedding import repair as embedding
from rag_eval_pipeline.stages.embedding import transform as encoding
from rag_eval_pipeline.stages.embedding.tables import Embeddings
from rag_eval_pipeline.stages.embedding.transform import EmbeddingConfig
from rag_eval_pipeline.stages.filtering import transform as filters
from rag_eval_pipeline.stages.filtering.repair import repair as repair_filters
from rag_eval_pipeline.stages.filtering.transform import FilteringConfig
from rag_eval_pipeline.stages.fusion import transform as fusing
from rag_eval_pipeline.stages.fusion.repair import repair as repair_fusion
from rag_eval_pipeline.stages.fusion.transform import FusionConfig
from rag_eval_pipeline.stages.indexing import quality as index_quality
from rag_eval_pipeline.stages.indexing import transform as index_transform
from rag_eval_pipeline.stages.indexing.repair import repair as repair_index
from rag_eval_pipeline.stages.indexing.transform import IndexingConfig
from rag_eval_pipeline.stages.reranking import transform as reranking
from rag_eval_pipeline.stages.reranking.repair import repair as repair_ranking
from rag_eval_pipeline.stages.reranking.tables import RankedRuns
from rag_eval_pipeline.stages.reranking.transform import RerankingConfig
from rag_eval_pipeline.stages.retrieval import transform as retrieval
from rag_eval_pipeline.stages.retrieval.transform import RetrievalConfig
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform
from rag_eval_pipeline_tests.sizes import examples
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import chunks, documents, everything, prepared
from rag_eval_pipeline_tests.unit.stages.truths import anchor, piece, truth, unit

PLAIN = Runtime.plain()


# Windows ---------------------------------------------------------------------------------------------------------------


def encoded(texts, prefixes=None, **config):
    frame = chunks(*((f"d{number}::0", text) for number, text in enumerate(texts)))
    if prefixes:
        frame = frame.with_columns(prefix=pl.Series(prefixes))
    frames, config = {"chunks": frame}, EmbeddingConfig(**config)
    return frames, encoding.run(frames, config, PLAIN), config


@pytest.fixture
def quick_vectors(monkeypatch):
    """Vectors by word pieces alone, so that many windows cost little: where to cut asks the tokenizer only."""

    def forward(self, batch, size):
        rows = [np.random.default_rng(piece.ids).normal(size=self.dimension).astype(np.float32) for _, piece in batch]
        return [position for position, _ in batch], np.stack([row / np.linalg.norm(row) for row in rows])

    monkeypatch.setattr(Encoder, "_forward", forward)


@examples(8, 1_000)
@given(
    texts=st.lists(
        st.lists(
            st.sampled_from(["moon", "extraordinarily", "18.5", "EUR", "漢字", "word.\n", "x" * 30, "—"]), max_size=30
        ).map(" ".join),
        min_size=1,
        max_size=3,
    ),
    limit=st.integers(3, 14),
    prompt=st.sampled_from(["", "passage: "]),
    prefix=st.sampled_from(["", "", "From the handbook, page seven, on travel and on leave: "]),
)
def test_windows_together_see_all_and_score_no_worse_than_the_truncated_vector(
    quick_vectors, texts, limit, prompt, prefix
):
    frames, before, config = encoded(texts, [prefix] * len(texts), max_tokens=limit, document_prompt=prompt)
    made = embedding.repair(frames, before, truth(), config)
    rows, old = made["embeddings"], before["embeddings"]
    assert rows.equals(conform(Embeddings, rows))
    assert rows.filter(pl.col("window") == 0).equals(old)
    assert embedding.repair(frames, made, truth(), config)["embeddings"] is rows
    queries = load_encoder().encode(["moon landing", "18.5 EUR"])
    room = limit > 2 + (2 if prompt else 0)  # two special tokens, two of the prompt
    for name, text in frames["chunks"].select("chunk_id", "text").iter_rows():
        mine = rows.filter(pl.col("chunk_id") == name).sort("window")
        assert mine["window"].to_list() == list(range(mine.height))
        assert mine["tokens"].n_unique() == 1
        seen = set()
        for low, high in mine.select("encoded_start", "encoded_end").iter_rows():
            seen |= set(range(low, high))
        if room:
            assert seen == set(range(len(text)))
        scores = vector_matrix(mine["vector"]) @ queries.T
        assert (scores.max(axis=0) >= scores[0]).all()


def test_the_last_window_is_about_as_long_as_the_others_and_cuts_no_word():
    text = " ".join(["rover"] * 40)
    frames, before, config = encoded([text], max_tokens=12)
    made = embedding.repair(frames, before, truth(), config)["embeddings"]
    assert made["encoded_tokens"].to_list()[:-1] == [10] * (made.height - 1)
    assert made["encoded_tokens"][-1] >= 8
    assert all(not text[max(0, start - 1) : start + 1].isalnum() for start in made["encoded_start"] if start)


def test_without_an_over_long_chunk_no_model_is_loaded(monkeypatch):
    frames, before, config = encoded(["short", "", "also short"])

    def refuse(*_):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(embedding, "load_encoder", refuse)
    assert embedding.repair(frames, before, truth(), config)["embeddings"] is before["embeddings"]
    off = {"embeddings": before["embeddings"].clear()}
    assert embedding.repair(frames, off, truth(), EmbeddingConfig(enabled=False))["embeddings"] is off["embeddings"]


def test_imported_vectors_stand_for_the_whole_chunk_and_stay():
    frames = {"chunks": chunks(("d::0", "moon " * 900))}
    frames["output:embeddings"] = pl.DataFrame({"id": ["d::0"], "vector": [[3.0, 4.0]], "model": ["theirs"]})
    config = EmbeddingConfig(**{"import": True})
    before = encoding.run(frames, config, PLAIN)
    assert before["embeddings"]["window"].to_list() == [0]
    assert embedding.repair(frames, before, truth(), config)["embeddings"] is before["embeddings"]


def test_the_ledger_sees_what_any_window_saw():
    text = "one two three four five six seven eight nine ten"
    frames, before, config = encoded([text], max_tokens=6)
    made = embedding.repair(frames, before, truth(), config)
    place = text.index("nine")
    gold = truth([unit("q", "e", doc="d0", n_chars=4, tokens=[(0, 4)])])
    pieces = pl.DataFrame([piece("q", "e", "d0::0", doc="d0", chars=range(4), tokens=[0])]).with_columns(
        positions=pl.lit(list(range(place, place + 4)))
    )
    given = {"evidence_pieces": pieces, "chunks": frames["chunks"]}
    assert embedding_evidence.trace(gold.units, given, before, Ledger()).is_empty()
    assert embedding_evidence.trace(gold.units, given, made, Ledger())["whole"].to_list() == [True]


# A chunk of several vectors ----------------------------------------------------------------------------------------------


def windowed(counts, per_document, dimensions, seed, asked=3):
    """Chunks with so many vectors each, and queries."""
    random = np.random.default_rng(seed)

    def rows(count):
        matrix = random.integers(-2, 3, size=(count, dimensions)).astype(np.float32)  # small whole numbers: many ties
        matrix[:, 0] += 3
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)

    names = [f"d{number // per_document:02}::{number % per_document}" for number in range(len(counts))]
    keys = [(name, window) for name, count in zip(names, counts, strict=True) for window in range(count)]
    queries = [f"q{number}" for number in range(asked)]
    return {
        "chunks": chunks(*((name, "text") for name in names)),
        "documents": documents(*sorted({name[:3] for name in names})),
        "embeddings": pl.DataFrame(
            {"chunk_id": [k for k, _ in keys], "window": [w for _, w in keys], "vector": vector_column(rows(len(keys))), "model": "m"}
        ),
        "query_embeddings": pl.DataFrame({"query_id": queries, "vector": vector_column(rows(asked)), "model": "m"}),
        "prepared_queries": prepared(**dict.fromkeys(queries, "text")),
        **everything(*queries),
    }  # fmt: skip


def best_scores(frames, query):
    """chunk_id -> its best vector's score as float32, by a loop."""
    asked = np.array(
        frames["query_embeddings"].filter(pl.col("query_id") == query)["vector"][0].to_list(), dtype=np.float64
    )
    best = {}
    for name, vector in frames["embeddings"].select("chunk_id", "vector").iter_rows():
        value = np.float32((np.array(vector, dtype=np.float64) * asked).sum())
        best[name] = max(best.get(name, value), value)
    return best


@examples(15, 1_000)
@given(
    counts=st.lists(st.sampled_from([1, 1, 1, 2, 5, 9]), min_size=1, max_size=15),
    depth=st.integers(1, 8),
    by_document=st.booleans(),
    kind=st.sampled_from(["flat", "hnsw"]),
    hidden=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_a_chunk_counts_by_its_best_window_and_the_depth_counts_chunks(counts, depth, by_document, kind, hidden, seed):
    frames = windowed(counts, per_document=2, dimensions=4, seed=seed)
    if hidden:
        some = frames["documents"]["doc_id"].to_list()[::2]
        frames["scopes"] = pl.DataFrame(
            {"scope_id": frames["scopes"]["scope_id"], "everything": [False], "doc_ids": [some]}
        )
    index = index_transform.run(frames, IndexingConfig(kind=kind, ef_search=200), PLAIN)
    lane = {"kind": "dense", "depth": depth, "depth_unit": "documents" if by_document else "chunks"}
    found = retrieval.run({**frames, **index}, RetrievalConfig(lanes={"dense": lane}), PLAIN)
    for name in ("runs", "exact_runs") if kind == "hnsw" else ("runs",):
        for query in frames["query_embeddings"]["query_id"]:
            scores = best_scores(frames, query)
            order = sorted((n for n in scores if not hidden or n[:3] in some), key=lambda n: (-scores[n], n))
            if by_document:
                shown = list(dict.fromkeys(n[:3] for n in order))[:depth]
                last = order.index(next(n for n in order if n[:3] == shown[-1])) if len(shown) == depth else len(order)
                order = order[: last + 1]
            else:
                order = order[:depth]
            mine = found[name].filter(pl.col("query_id") == query).sort("rank")
            assert mine["chunk_id"].to_list() == order
            assert mine["rank"].to_list() == list(range(1, len(order) + 1))
            assert mine["score"].to_list() == [float(scores[n]) for n in order]


def test_the_index_s_recall_counts_distinct_chunks():
    counts = [1, 8, 1, 5, 2, 1, 1, 6, 1, 3] * 6
    frames = windowed(counts, per_document=3, dimensions=12, seed=3, asked=8)
    config = IndexingConfig(kind="ivf", nlist=12, nprobe=1)
    frames |= index_transform.run(frames, config, PLAIN)
    gold = Gold(
        queries=pl.DataFrame([{"query_id": f"q{i}", "split": "test"} for i in range(8)], schema=SCHEMAS["queries"])
    )
    rows = index_quality.measure(frames, gold, config, Settings())
    values = {(r["item_id"], r["k"]): r["value"] for r in rows.iter_rows(named=True) if r["metric"] == "ann_recall"}
    lanes = RetrievalConfig(lanes={"dense": {"kind": "dense", "depth": 10}})
    found = retrieval.run(frames, lanes, PLAIN)["runs"]
    for number in range(8):
        query, scores = f"q{number}", best_scores(frames, f"q{number}")
        bar = sorted(scores.values(), reverse=True)[9] - 1e-6
        mine = found.filter(pl.col("query_id") == query)
        # The index may know a chunk by a worse window than its best one: then that is its score.
        right = sum(score >= bar for score in mine["score"])
        assert values[query, 10] == pytest.approx(right / 10)
    assert min(values.values()) < 1


def test_exact_search_finds_what_the_index_missed():
    frames = windowed([1, 3, 1, 2] * 30, per_document=2, dimensions=12, seed=5)
    config = IndexingConfig(kind="ivf", nlist=16, nprobe=1)
    before = index_transform.run(frames, config, PLAIN)
    made = repair_index(frames, before, truth(), config)
    file = made["index_files"].row(0, named=True)
    assert file["kind"] == "flat"
    assert load_index(file["blob"]).size == frames["embeddings"].height
    assert repair_index(frames, made, truth(), config)["index_files"] is made["index_files"]
    lanes = RetrievalConfig(lanes={"dense": {"kind": "dense", "depth": 20}})
    approximate, exact = (retrieval.run({**frames, **index}, lanes, PLAIN) for index in (before, made))
    assert exact["runs"].equals(approximate["exact_runs"])
    assert not exact["runs"].equals(approximate["runs"])
    nothing = index_transform.run({**frames, "embeddings": frames["embeddings"].clear()}, config, PLAIN)
    assert repair_index(frames, nothing, truth(), config)["index_files"] is nothing["index_files"]


# Filters ---------------------------------------------------------------------------------------------------------------

DOCUMENTS = pl.DataFrame(
    {
        "doc_id": ["a", "b", "c", "d"],
        "tenant": ["red", None, "blue", None],
        "acl": [[], [], [], []],
        "doc_class": ["policy", "policy", "sheet", "sheet"],
        "metadata": ["{}"] * 4,
    },
    schema={"doc_id": pl.String, "tenant": pl.String, "acl": pl.List(pl.String), "doc_class": pl.String, "metadata": pl.String},
)  # fmt: skip
CALLERS = [{"principal": "rita", "tenant": "red", "groups": []}, {"principal": "ben", "tenant": "blue", "groups": []}]


def filter_world(queries, given, removed=(), **config):
    """`queries`: query_id, principal, filter (the correct one). `given`: predicates that the pipeline applies."""
    asked = [{column: row.get(column) for column in SCHEMAS["queries"]} | {"split": "test"} for row in queries]
    frame = pl.DataFrame(asked, schema=SCHEMAS["queries"], orient="row")
    output = {"query_id": pl.String, "predicate": pl.String, "producer": pl.String}
    rows = [(name, None if p is None else json.dumps(p), "theirs") for name, p in given.items()]
    frames = {
        "documents": DOCUMENTS,
        "dedup": DOCUMENTS.select("doc_id", kept=~pl.col("doc_id").is_in(list(removed))),
        "prepared_queries": frame.select("query_id", "text", "language", "principal"),
        "queries": frame,
        "principals": pl.DataFrame(CALLERS, schema=SCHEMAS["principals"]),
        "output:filters": pl.DataFrame(rows, schema=output, orient="row"),
    }
    config = FilteringConfig(**{"extractor": "import", **config})
    return frames, filters.run(frames, config, PLAIN), config


def admitted(made, query):
    row = made["applied_filters"].filter(pl.col("query_id") == query).row(0, named=True)
    scope = made["scopes"].filter(pl.col("scope_id") == row["scope_id"]).row(0, named=True)
    return set(DOCUMENTS["doc_id"]) if scope["everything"] else set(scope["doc_ids"])


def test_the_labelled_predicate_takes_the_place_of_a_wrong_one():
    query = {"query_id": "q", "filter": json.dumps({"doc_class": "policy"})}
    frames, before, config = filter_world([query], {"q": {"doc_class": "sheet"}})
    gold = truth([unit("q", "e", doc="a")], [], [piece("q", "e", "a::0", doc="a")], queries=[query])
    made = repair_filters(frames, before, gold, config)
    assert admitted(made, "q") == {"a", "b"}
    assert made["applied_filters"]["producer"].to_list() == ["gold"]
    assert repair_filters(frames, made, gold, config)["applied_filters"] is made["applied_filters"]


def test_a_correct_predicate_that_excludes_a_unit_gives_way_to_entitlement():
    query = {"query_id": "q", "principal": "rita", "filter": json.dumps({"doc_class": "policy"})}
    frames, before, config = filter_world([query], {"q": {"doc_class": "policy"}})
    gold = truth([unit("q", "e", doc="d")], [], [piece("q", "e", "d::0", doc="d")], queries=[query])
    made = repair_filters(frames, before, gold, config)
    assert admitted(made, "q") == {"a", "b", "d"}  # c is blue
    assert repair_filters(frames, made, gold, config)["scopes"] is made["scopes"]


def test_without_a_label_only_an_excluded_unit_is_reason_to_change():
    query = {"query_id": "q"}
    frames, before, config = filter_world([query], {"q": {"doc_class": "policy"}})
    fine = truth([unit("q", "e", doc="a")], [], [piece("q", "e", "a::0", doc="a")], queries=[query])
    assert repair_filters(frames, before, fine, config)["applied_filters"] is before["applied_filters"]
    lost = truth([unit("q", "e", doc="d")], [], [piece("q", "e", "d::0", doc="d")], queries=[query])
    assert admitted(repair_filters(frames, before, lost, config), "q") == {"a", "b", "c", "d"}
    theirs = truth([unit("q", "e", doc="d", eligible=False)], [], [piece("q", "e", "d::0", doc="d")], queries=[query])
    assert repair_filters(frames, before, theirs, config)["applied_filters"] is before["applied_filters"]


def test_a_unit_that_no_chunk_holds_yet_is_excluded_where_none_of_its_documents_is_admitted():
    query = {"query_id": "q"}
    frames, before, config = filter_world([query], {"q": {"doc_class": "policy"}})
    text = "five days"
    lost = truth(
        [unit("q", "e", doc="d", n_chars=8)], [anchor("q", "e", text, 0, 9, doc="d", held=False)], queries=[query]
    )
    assert admitted(repair_filters(frames, before, lost, config), "q") == {"a", "b", "c", "d"}
    copied = [anchor("q", "e", text, 0, 9, doc="d"), anchor("q", "e", text, 0, 9, doc="b", carrier=1)]
    fine = truth([unit("q", "e", doc="d", n_chars=8)], copied, queries=[query])
    assert repair_filters(frames, before, fine, config)["applied_filters"] is before["applied_filters"]


def test_a_soft_filter_stays_soft():
    query = {"query_id": "q", "filter": json.dumps({"doc_class": "policy"})}
    frames, before, config = filter_world([query], {"q": {"doc_class": "sheet"}}, mode="soft", boost=0.3)
    made = repair_filters(frames, before, truth(queries=[query]), config)
    row = made["applied_filters"].row(0, named=True)
    assert (row["mode"], row["boost"]) == ("soft", 0.3)
    assert made["scopes"].filter(pl.col("scope_id") == row["preferred_scope_id"])["doc_ids"].to_list() == [["a", "b"]]


PREDICATES = [None, {"doc_class": "policy"}, {"doc_class": "sheet"}, {"doc_id": {"in": ["a", "d"]}}, {"tenant": None}]


@examples(15, 2_000)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([None, "rita", "ben"]),
            st.sampled_from(PREDICATES),
            st.sampled_from(PREDICATES),
            st.lists(st.sampled_from("abcd"), max_size=3, unique=True),
        ),
        min_size=1,
        max_size=4,
    ),
    removed=st.sampled_from([(), ("d",), ("a", "b")]),
    held=st.booleans(),
    mode=st.sampled_from(["hard", "hard", "soft"]),
)
def test_after_repair_every_eligible_unit_is_admitted_and_nobody_sees_more_than_is_theirs(rows, removed, held, mode):
    queries, given, units, anchors, pieces = [], {}, [], [], []
    seen = {
        who: set(DOCUMENTS.filter(visible(DOCUMENTS, who, pl.DataFrame(CALLERS)))["doc_id"])
        for who in (None, "rita", "ben")
    }
    for number, (who, applied, correct, wanted) in enumerate(rows):
        name = f"q{number}"
        queries.append({"query_id": name, "principal": who, "filter": None if correct is None else json.dumps(correct)})
        given[name] = applied
        for doc in wanted:
            units.append(unit(name, doc, doc=doc, n_chars=4, eligible=doc in seen[who]))
            anchors.append(anchor(name, doc, "text", 0, 4, doc=doc, kept=doc not in removed))
            if held and doc not in removed:
                pieces.append(piece(name, doc, f"{doc}::0", doc=doc, chars=range(4)))
    frames, before, config = filter_world(queries, given, removed, mode=mode)
    gold = truth(units, anchors, pieces, queries=queries)
    made = repair_filters(frames, before, gold, config)
    again = repair_filters(frames, made, gold, config)
    assert all(again[name] is made[name] for name in made)
    kept = set(DOCUMENTS["doc_id"]) - set(removed)
    for number, (who, _, correct, wanted) in enumerate(rows):
        scope = admitted(made, f"q{number}") & kept
        mine = set(wanted) & kept & seen[who]
        assert mine <= scope <= seen[who]
        right = (
            set(DOCUMENTS.filter(Matcher(DOCUMENTS)(correct if correct is not None else {}))["doc_id"])
            & kept
            & seen[who]
        )
        if mode == "hard" and correct is not None:
            assert scope == (right if mine <= right else seen[who] & kept)
        if mode == "hard" and correct is None and mine <= admitted(before, f"q{number}"):
            assert scope == admitted(before, f"q{number}") & kept


# Fusion ----------------------------------------------------------------------------------------------------------------


def lists(**by_lane):
    """lane=[[chunks of q0], [chunks of q1], …] as a run."""
    rows = [
        {"query_id": f"q{q}", "retriever": lane, "rank": rank, "chunk_id": c, "doc_id": c[:2], "score": 1.0 / rank}
        for lane, found in by_lane.items()
        for q, ids in enumerate(found)
        for rank, c in enumerate(ids, 1)
    ]
    return pl.DataFrame(rows, schema=RUN, orient="row")


def dev(*wanted):
    """(query, chunk that holds its unit whole)."""
    units = [unit(q, f"e{i}", n_chars=1, split="dev") for i, (q, _) in enumerate(wanted)]
    return {"dev_units": units, "dev_pieces": [piece(q, f"e{i}", c) for i, (q, c) in enumerate(wanted)]}


def fused(config, frames):
    config = FusionConfig(lanes=config)
    return fusing.run(frames, config, PLAIN), config


TWO = {"mixed": {"kind": "rrf", "lanes": ["left", "right"]}}
A, B, C, D = "d1::0", "d2::0", "d3::0", "d4::0"


def test_the_best_lane_on_dev_stands_for_all_queries_under_the_fused_name():
    frames = {"runs": lists(left=[[A, B], [A, B]], right=[[C, A], [B, A]]), "exact_runs": empty()}
    before, config = fused(TWO, frames)
    made = repair_fusion(frames, before, truth(k=1, **dev(("q0", C), ("q1", B))), config)
    assert made["fused_runs"]["retriever"].unique().to_list() == ["mixed"]
    assert (
        made["fused_runs"]
        .drop("retriever")
        .equals(frames["runs"].filter(pl.col("retriever") == "right").drop("retriever"))
    )
    assert made["exact_fused_runs"].is_empty()
    assert (
        repair_fusion(frames, made, truth(k=1, **dev(("q0", C), ("q1", B))), config)["fused_runs"] is made["fused_runs"]
    )


def test_equals_are_decided_by_the_config_s_order():
    frames = {"runs": lists(right=[[A, B]], left=[[A, C]]), "exact_runs": empty()}
    before, config = fused(TWO, frames)
    made = repair_fusion(frames, before, truth(k=2, **dev(("q0", A))), config)
    assert made["fused_runs"]["chunk_id"].to_list() == [A, C]


def test_each_query_counts_once_however_many_units_it_needs():
    frames = {"runs": lists(left=[[A, B, C], [D]], right=[[D], [A]]), "exact_runs": empty()}
    before, config = fused(TWO, frames)
    wanted = dev(("q0", A), ("q0", B), ("q0", D), ("q1", A))
    made = repair_fusion(frames, before, truth(k=3, **wanted), config)
    assert made["fused_runs"].sort("query_id", "rank")["chunk_id"].to_list() == [D, A]  # 1/3 and 1 against 2/3 and 0


@pytest.mark.parametrize("gold", [{"k": 1}, dev(("q0", C)), {"k": 1, "dev_units": [unit("q0", "e", eligible=False)]}])
def test_without_dev_queries_or_k_fusion_stays(gold):
    frames = {"runs": lists(left=[[A]], right=[[C]]), "exact_runs": empty()}
    before, config = fused(TWO, frames)
    made = repair_fusion(frames, before, truth(**gold), config)
    assert made["fused_runs"] is before["fused_runs"]


def test_an_approximate_lane_brings_its_exact_lists_and_another_one_none():
    frames = {"runs": lists(left=[[A, B]], right=[[C, D]]), "exact_runs": lists(right=[[D, C]])}
    before, config = fused(TWO, frames)
    right = repair_fusion(frames, before, truth(k=1, **dev(("q0", C))), config)
    assert right["exact_fused_runs"]["chunk_id"].to_list() == [D, C]
    left = repair_fusion(frames, before, truth(k=1, **dev(("q0", A))), config)
    assert left["fused_runs"]["chunk_id"].to_list() == [A, B]
    assert left["exact_fused_runs"].is_empty()


def test_a_fused_lane_is_cut_at_its_depth_and_a_fusion_of_fusions_reads_repaired_ones():
    nested = {
        "inner": {"kind": "rrf", "lanes": ["left", "right"], "depth": 1},
        "outer": {"kind": "rrf", "lanes": ["left", "inner"]},
    }
    frames = {"runs": lists(left=[[A, B]], right=[[C, D]]), "exact_runs": empty()}
    before, config = fused(nested, frames)
    made = repair_fusion(frames, before, truth(k=1, **dev(("q0", C))), config)["fused_runs"]
    assert made.select("retriever", "chunk_id").sort("retriever").rows() == [("inner", C), ("outer", C)]


@examples(15, 1_500)
@given(data=st.data(), k=st.integers(1, 4))
def test_the_chosen_lane_is_the_best_by_a_literal_count(data, k):
    names = ["left", "right", "third"]
    some = st.lists(st.sampled_from([A, B, C, D]), max_size=4, unique=True)
    found = {name: [data.draw(some) for _ in range(3)] for name in names}
    wanted = data.draw(st.lists(st.tuples(st.sampled_from(["q0", "q1"]), st.sampled_from([A, B, C, D])), max_size=5))
    frames = {"runs": lists(**found), "exact_runs": empty()}
    before, config = fused({"mixed": {"kind": "rrf", "lanes": names}}, frames)
    gold = truth(k=k, **dev(*wanted))
    made = repair_fusion(frames, before, gold, config)
    assert repair_fusion(frames, made, gold, config)["fused_runs"] is made["fused_runs"]
    if not wanted:
        assert made["fused_runs"] is before["fused_runs"]
        return

    def recall(name):
        queries = sorted({q for q, _ in wanted})
        shares = []
        for query in queries:
            needed = [c for q, c in wanted if q == query]
            first = found[name][int(query[1])][:k]
            shares.append(sum(c in first for c in needed) / len(needed))
        return sum(shares) / len(shares)

    values = {name: recall(name) for name in names}
    best = [name for name in names if abs(values[name] - max(values.values())) < 1e-9]
    served = [
        made["fused_runs"].filter(pl.col("query_id") == f"q{q}").sort("rank")["chunk_id"].to_list() for q in range(3)
    ]
    assert served in [found[name] for name in best]


# Reranking -------------------------------------------------------------------------------------------------------------


def ranked(config, runs, **outputs):
    frames = {
        "runs": runs, "fused_runs": empty(), "documents": documents("d1", "d2", "d3", "d4"),
        "chunks": chunks((A, "mars"), (B, "mars mars"), (C, "the moon"), (D, "ice")),
        "prepared_queries": prepared(q0="mars", q1="moon"), **outputs,
    }  # fmt: skip
    config = RerankingConfig(**config)
    return frames, reranking.run(frames, config, PLAIN), config


def test_the_order_before_comes_back_with_its_scores_and_says_what_the_reranker_saw():
    runs = lists(left=[[C, A, B], [A, C]], right=[[A], [B]])
    frames, before, config = ranked({"reranker": "lexical", "lanes": ["left"], "depth": 2}, runs)
    made = repair_ranking(frames, before, truth(), config)["ranked_runs"]
    assert made.equals(conform(RankedRuns, made))
    assert made.select(list(RUN)).equals(runs.sort("query_id", "retriever", "rank").select(list(RUN)))
    assert (made["rank"] == made["rank_before"]).all()
    sizes = made.group_by("query_id", "retriever").agg(pl.col("input_size").first()).sort("query_id", "retriever")
    assert sizes["input_size"].to_list() == [2, None, 2, None]
    assert repair_ranking(frames, {"ranked_runs": made}, truth(), config)["ranked_runs"] is made


def test_a_reranker_that_moved_nothing_or_is_not_there_is_left_alone():
    for config in ({"reranker": None}, {"reranker": "lexical", "depth": 1}):
        frames, before, config = ranked(config, lists(left=[[A, B], [C]]))
        assert repair_ranking(frames, before, truth(), config)["ranked_runs"] is before["ranked_runs"]


def test_an_imported_reranker_gives_way_to_the_list_that_it_was_given():
    columns = {"run": pl.String, "query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64}

    def given(*rows):
        return pl.DataFrame([("left", *row, None) for row in rows], schema=columns, orient="row")

    after = given(("q0", D, 1), ("q0", A, 2), ("q1", C, 1))
    known = given(("q0", A, 1), ("q0", B, 2), ("q0", D, 3))
    runs = lists(left=[[C], [C]])
    outputs = {"output:runs": after, "output:runs_before_rerank": known}
    frames, before, config = ranked({"reranker": "import", "lanes": ["left"]}, runs, **outputs)
    made = repair_ranking(frames, before, truth(), config)["ranked_runs"]
    assert made.filter(pl.col("query_id") == "q0")["chunk_id"].to_list() == [A, B, D]
    assert made.filter(pl.col("query_id") == "q1")["chunk_id"].to_list() == [C]  # nobody knows its list before
    assert repair_ranking(frames, {"ranked_runs": made}, truth(), config)["ranked_runs"] is made
    frames, before, config = ranked({"reranker": "import", "lanes": ["left"]}, runs, **{"output:runs": after})
    own = repair_ranking(frames, before, truth(), config)["ranked_runs"]
    assert own["chunk_id"].to_list() == [C, C]
