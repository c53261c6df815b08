"""Near-duplicates: similar texts and only those, one survivor a cluster, every removal with its edge."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.dedup.quality import measure
from rag_eval_pipeline.stages.dedup.transform import (
    CONFIG,
    WINDOW,
    candidates,
    clusters_of,
    jaccard,
    run,
    shingles_of,
    signature_of,
)
from rag_eval_pipeline.warehouse.runtime import Runtime

BASE = "The warranty covers defects of material and workmanship for twenty-four months from delivery to the customer. "
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["", " \n", "我喜欢健身", "我喜欢普洱茶", "مرحبا", "a", "ab", "same text here", "Same  TEXT here"]
        ),
        st.builds(
            lambda cut, end: BASE[:cut] + end, st.integers(90, len(BASE)), st.sampled_from(["", "!", " Página 2", "第"])
        ),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    ),
    max_size=9,
)


def frames(texts, **columns):
    ids = [f"d{i:02}" for i in range(len(texts))] if isinstance(texts, list) else list(texts)
    values = texts if isinstance(texts, list) else list(texts.values())
    named = {
        name: [columns.get(name, {}).get(doc_id) for doc_id in ids]
        for name in ("published_at", "committed_at", "supersedes")
    }
    return {
        "cleaned": pl.DataFrame({"doc_id": ids, "text": values}, schema={"doc_id": pl.String, "text": pl.String}),
        "documents": pl.DataFrame({"doc_id": ids, **named}, schema=dict.fromkeys(("doc_id", *named), pl.String)),
    }


def dedup(texts, config=None, **columns):
    made = run(frames(texts, **columns), CONFIG(**(config or {})), Runtime.plain())
    return made["dedup"], made["dedup_edges"]


def check_books(table, edges):
    """Each cluster keeps exactly one, which is its members' survivor; each removal has its edge to it."""
    for _, cluster in table.group_by("cluster_id"):
        kept = cluster.filter("kept")["doc_id"].to_list()
        assert len(kept) == 1
        assert set(cluster["survivor"]) == set(kept)
        assert cluster["cluster_id"][0] == min(cluster["doc_id"])
    known = {(row["doc_a"], row["doc_b"]): row["removed"] for row in edges.iter_rows(named=True)}
    for row in table.filter(~pl.col("kept")).iter_rows(named=True):
        assert known[tuple(sorted((row["doc_id"], row["survivor"])))] == row["doc_id"]
    assert edges.select("doc_a", "doc_b").is_unique().all()
    assert (edges["doc_a"] < edges["doc_b"]).all()


@given(TEXTS, st.sampled_from(["newest", "longest", "first"]), st.sampled_from(["exact", "minhash", "none"]))
@settings(max_examples=60)
def test_every_cluster_keeps_exactly_one_and_every_removal_its_edge(texts, keep, verify):
    table, edges = dedup(texts, {"keep": keep, "verify": verify})
    assert table["doc_id"].to_list() == [f"d{i:02}" for i in range(len(texts))]
    check_books(table, edges)


@given(TEXTS)
@settings(max_examples=60)
def test_exact_verification_equals_all_pairs(texts):
    """Oracle: Jaccard of the shingle sets of every pair. LSH may miss a pair near the threshold, never add one."""
    table, edges = dedup(texts)
    sets = [shingles_of(text, 5) for text in texts]
    near = {(i, j) for i, j in combinations(range(len(texts)), 2) if jaccard(sets[i], sets[j]) >= 0.8}
    far = {(i, j) for i, j in near if jaccard(sets[i], sets[j]) < 0.9}
    found = {
        (int(a[1:]), int(b[1:])): s for a, b, s in edges.select("doc_a", "doc_b", "similarity").iter_rows() if s >= 0.8
    }
    assert set(found) <= near
    assert near - far <= set(found)
    for (i, j), similarity in found.items():
        assert similarity == pytest.approx(jaccard(sets[i], sets[j]))
    for cluster in clusters_of(near - far):
        assert table["cluster_id"].gather(cluster).n_unique() == 1


@given(TEXTS)
@settings(max_examples=40)
def test_empty_documents_are_kept_and_nobodys_duplicate(texts):
    table, edges = dedup(texts)
    empty = {f"d{i:02}" for i, text in enumerate(texts) if not text.strip()}
    rows = table.filter(pl.col("doc_id").is_in(sorted(empty)))
    assert rows["kept"].all()
    assert set(rows["status"]) <= {"empty"}
    assert not empty & {*edges["doc_a"], *edges["doc_b"]}


def test_known_wrong_short_texts_in_any_script(known_wrong):
    texts = known_wrong["short-texts-are-not-duplicates"]["input"]["texts"]
    for verify in ("exact", "minhash"):
        table, edges = dedup(texts, {"verify": verify})
        assert edges.is_empty()
        assert table["kept"].all()


def test_known_wrong_every_cluster_keeps_one(known_wrong):
    case = known_wrong["every-cluster-keeps-one"]
    for keep in ("newest", "longest", "first"):
        table, _ = dedup(case["input"]["texts"], {"keep": keep})
        assert table["kept"].sum() == case["right"]["survivors"]


def test_worked_minhash_example(worked):
    case = worked["minhash_5_128_0.8"]
    texts = {name: case[name] for name in ("d1", "d2", "d3")}
    for verify in ("exact", "minhash", "none"):
        table, _ = dedup(texts, {"verify": verify})
        cluster = table.filter(cluster_id="d1")["doc_id"].to_list()
        assert cluster == case["near_duplicates_of_d1"]


@given(
    st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=60),
    st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=60),
)
def test_the_signature_is_datasketchs_and_does_not_depend_on_order(a, b):
    from datasketch import MinHash

    bulk = MinHash.bulk(
        [[gram.encode("utf-8", "surrogatepass") for gram in grams] for grams in (a, b)], num_perm=64, scheme="affine32"
    )
    for grams, sketch in zip((a, b), bulk, strict=True):
        assert (signature_of(sorted(grams), 64, 1) == sketch.hashvalues).all()
        assert (signature_of(sorted(grams, reverse=True), 64, 1) == sketch.hashvalues).all()


def test_candidates_are_those_of_minhash_lsh():
    from datasketch import MinHash, MinHashLSH

    rng = np.random.default_rng(3)
    bases = [[f"g{n}" for n in rng.integers(0, 500, 80)] for _ in range(8)]
    sets = [
        set(base[: 80 - drop]) | {f"own{i}{n}" for n in range(drop)}
        for i, base in enumerate(bases)
        for drop in (0, 4, 9, 20)
    ]
    index = MinHashLSH(threshold=0.8, num_perm=128, weights=(0.02, 0.98))
    sketches = MinHash.bulk([[gram.encode() for gram in grams] for grams in sets], num_perm=128, scheme="affine32")
    for number, sketch in enumerate(sketches):
        index.insert(number, sketch)
    expected = {(i, j) for i, sketch in enumerate(sketches) for j in index.query(sketch) if i < j}
    matrix = np.array([sketch.hashvalues for sketch in sketches], dtype=np.uint32)
    assert {tuple(pair) for pair in candidates(matrix, 0.8, verified=True).tolist()} == expected


def test_many_copies_of_one_template_stay_one_cluster_and_cheap():
    copies = 3 * WINDOW
    table, edges = dedup([BASE] * copies)
    assert table["kept"].sum() == 1
    assert len(edges) <= copies * WINDOW


def test_a_chain_is_one_cluster_and_its_far_end_has_an_edge():
    words = [f"w{i:03}" for i in range(120)]
    texts = {f"c{i}": " ".join(words[i * 6 : i * 6 + 80]) for i in range(4)}
    table, edges = dedup(texts)
    check_books(table, edges)
    assert table["cluster_id"].n_unique() == 1
    far = edges.filter(doc_a="c0", doc_b="c3").row(0, named=True)
    assert far["similarity"] < 0.8
    assert far["removed"] == "c3"


def test_the_newest_survives_dates_zones_and_superseding():
    texts = {"a": BASE, "b": BASE, "c": BASE}
    survivor = lambda **columns: dedup(texts, **columns)[0]["survivor"][0]  # noqa: E731
    assert survivor(published_at={"a": "2026-01-01", "b": "2026-03-01"}) == "b"
    assert survivor(published_at={"a": "2026-01-01T00:00:00+02:00", "b": "2025-12-31T23:30:00Z"}) == "b"
    assert survivor(committed_at={"c": "2026-01-01"}) == "c"
    assert survivor(published_at={"a": "2026-09-01", "b": "2026-01-01"}, supersedes={"b": "a"}) == "b"
    assert survivor() == "a"
    with pytest.raises(ValueError, match="ISO 8601"):
        survivor(published_at={"a": "yesterday"})


def test_the_longest_or_the_first_survives_where_asked_for():
    texts = {"a": BASE, "b": BASE + "!", "c": BASE}
    assert dedup(texts, {"keep": "longest"})[0]["survivor"][0] == "b"
    assert dedup(texts, {"keep": "first"})[0]["survivor"][0] == "a"


def test_switched_off_everything_is_kept():
    table, edges = dedup([BASE, BASE, ""], {"enabled": False})
    assert table["kept"].all()
    assert edges.is_empty()
    assert table["status"].to_list() == ["ok", "ok", "empty"]


def imported(rows, texts=("x", "y", "z")):
    given_frames = frames({name: name for name in texts})
    schema = {"kept": pl.String, "removed": pl.String, "similarity": pl.Float64}
    given_frames["output:dedup"] = pl.DataFrame(rows, schema=schema, orient="row")
    return run(given_frames, CONFIG(**{"import": True}), Runtime.plain())


def test_imported_removals_follow_chains_and_refuse_what_cannot_be():
    made = imported([("x", "y", 0.9), ("y", "z", None)])
    check = made["dedup"]
    assert check["survivor"].to_list() == ["x", "x", "x"]
    assert made["dedup_edges"]["verified"].unique().to_list() == ["import"]
    with pytest.raises(ValueError, match="keep one of them"):
        imported([("x", "y", 1.0), ("y", "x", 1.0)])
    with pytest.raises(ValueError, match="not in this version"):
        imported([("x", "nope", 1.0)])
    with pytest.raises(ValueError, match=r"outputs/dedup\.jsonl is absent"):
        run(frames({"x": "x"}), CONFIG(**{"import": True}), Runtime.plain())


def quality(texts, labels):
    table, edges = dedup(texts)
    gold = Gold(duplicates=pl.DataFrame(labels, schema=SCHEMAS["duplicates"], orient="row"))
    return measure({"dedup": table, "dedup_edges": edges}, gold, CONFIG(), Settings())


def test_quality_counts_merges_pairs_and_unjudged():
    texts = {"a": BASE, "b": BASE + "!", "c": BASE + "?", "d": "Nothing alike at all.", "e": "Something else again."}
    rows = quality(texts, [("a", "b", True), ("a", "c", False), ("d", "e", True), ("a", "gone", True)])
    value = {(r["metric"], r["item_id"]): r["value"] for r in rows.iter_rows(named=True)}
    assert value["missed_merge_rate", "a | b"] == 0.0
    assert value["missed_merge_rate", "d | e"] == 1.0
    assert value["false_merge_rate", "a | c"] == 1.0
    assert ("missed_merge_rate", "a | gone") not in value
    assert value["pair_precision", "all"] == pytest.approx(0.5)
    assert value["pair_recall", "all"] == pytest.approx(0.5)
    assert value["unjudged_pairs", "all"] == 1.0
    assert value["largest_cluster", "all"] == 3.0
    assert value["removed_share", "d"] == 0.0


def test_quality_without_labels_is_missing_not_zero():
    rows = quality({"a": BASE, "b": BASE}, [])
    for metric in ("pair_precision", "pair_recall", "b_cubed_f1", "false_merge_rate", "missed_merge_rate"):
        row = rows.filter(metric=metric).row(0, named=True)
        assert (row["value"], row["status"]) == (None, "no_gold")
