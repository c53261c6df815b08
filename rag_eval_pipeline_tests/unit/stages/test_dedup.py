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
from rag_eval_pipeline.stages.dedup.shingles import (
    DENSE,
    WINDOW,
    candidates,
    gram_hashes,
    is_dense,
    jaccard,
    packed,
    shingles_of,
    signature_of,
    unpacked,
)
from rag_eval_pipeline.stages.dedup.transform import CONFIG, clusters_of, run
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
        for name in ("published_at", "committed_at", "supersedes", "path")
    }
    named["path"] = [path or doc_id for path, doc_id in zip(named["path"], ids, strict=True)]
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
    known = {(row["doc_a"], row["doc_b"]): (row["kept"], row["removed"]) for row in edges.iter_rows(named=True)}
    for row in table.filter(~pl.col("kept")).iter_rows(named=True):
        assert known[tuple(sorted((row["doc_id"], row["survivor"])))] == (row["survivor"], row["doc_id"])
    cluster = dict(table.select("doc_id", "cluster_id").iter_rows())
    for a, b, relation, removed in edges.select("doc_a", "doc_b", "relation", "removed").iter_rows():
        assert relation == ("duplicate" if cluster[a] == cluster[b] else "revision")
        assert relation == "duplicate" or removed is None
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
    for cluster in clusters_of(sorted(near - far)):
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


@given(st.text(max_size=80), st.sampled_from([1, 2, 5, 64, 200]), st.sampled_from([None, 1, 3]))
def test_a_text_has_as_many_hashes_as_shingles_and_equal_shingles_equal_hashes(text, size, dense):
    grams, hashes = shingles_of(text, size, dense), gram_hashes(text, size, dense)
    assert len(hashes) == len(grams)
    assert (np.diff(hashes.astype(object)) > 0).all()
    again = gram_hashes(text + " " + text, size, dense)
    if len(text.split()) and min(map(len, grams)) >= max(size, dense or 0):
        assert set(hashes.tolist()) <= set(again.tolist())


@given(st.lists(st.text(max_size=40), min_size=2, max_size=2), st.sampled_from([2, 5]), st.sampled_from([None, 2]))
def test_shared_hashes_are_shared_shingles(texts, size, dense):
    sets = [shingles_of(text, size, dense) for text in texts]
    hashes = [set(gram_hashes(text, size, dense).tolist()) for text in texts]
    assert len(hashes[0] & hashes[1]) == len(sets[0] & sets[1])


@given(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=60), st.integers(1, 40), st.sampled_from([16, 128]))
def test_the_signature_is_datasketchs(values, seed, num_perm):
    from datasketch import MinHash

    hashes = np.array(sorted(values), dtype=np.uint64)
    sketch = MinHash(num_perm=num_perm, seed=seed, scheme="affine32", hashfunc=lambda value: int(value) >> 32)
    for value in hashes:
        sketch.update(value)
    made = signature_of(hashes, num_perm, seed)
    assert (made == sketch.hashvalues).all()
    assert (unpacked([packed(made)] * 2, num_perm) == made).all()


def test_a_long_text_has_the_signature_of_all_its_blocks():
    from datasketch import MinHash

    hashes = gram_hashes(" ".join(f"w{n}" for n in range(3000)), 5)
    sketch = MinHash(num_perm=32, seed=1, scheme="affine32", hashfunc=lambda value: int(value))
    sketch.update_batch(hashes >> np.uint64(32))
    assert (signature_of(hashes, 32, 1) == sketch.hashvalues).all()


def test_estimated_similarity_is_near_the_exact_one():
    rng = np.random.default_rng(5)
    words = [f"{n:x}" for n in range(400)]
    for keep in (40, 120, 200):
        a = [words[i] for i in rng.integers(0, 400, 240)]
        b = a[:keep] + [words[i] for i in rng.integers(0, 400, 240 - keep)]
        texts = (" ".join(a), " ".join(b))
        estimate = np.mean(np.equal(*(signature_of(gram_hashes(text, 5), 1024, 1) for text in texts)))
        assert estimate == pytest.approx(jaccard(*(shingles_of(text, 5) for text in texts)), abs=0.07)


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


@pytest.mark.parametrize(("num_perm", "threshold"), [(2, 0.8), (3, 1.0), (8, 0.9), (128, 1.0)])
def test_a_threshold_too_high_for_two_bands_finds_copies_all_the_same(num_perm, threshold):
    table, _ = dedup([BASE, BASE, BASE[::-1]], {"num_perm": num_perm, "threshold": threshold})
    assert table["kept"].to_list() == [True, False, True]


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
    assert survivor() == "a"
    merged = dedup(
        texts, {"revisions": "merge"}, published_at={"a": "2026-09-01", "b": "2026-01-01"}, supersedes={"b": "a"}
    )
    assert merged[0]["survivor"].to_list() == ["b"] * 3
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


def quality(texts, labels, config=None, **columns):
    table, edges = dedup(texts, config, **columns)
    gold = Gold(duplicates=pl.DataFrame(labels, schema=SCHEMAS["duplicates"], orient="row"))
    documents = frames(texts, **columns)["documents"]
    return measure({"dedup": table, "dedup_edges": edges, "documents": documents}, gold, CONFIG(), Settings())


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


# Editions ---------------------------------------------------------------------------------------------------------------


def partition(table):
    return sorted(map(sorted, table.group_by("cluster_id").agg("doc_id")["doc_id"].to_list()))


def test_a_declared_revision_is_kept_beside_what_it_replaces_however_alike():
    texts = {"leave-2025": BASE, "leave-2026": BASE + "!", "other": "Nothing alike at all."}
    table, edges = dedup(texts, supersedes={"leave-2026": "leave-2025"})
    assert table["kept"].all()
    row = edges.row(0, named=True)
    assert (row["relation"], row["kept"], row["removed"]) == ("revision", None, None)
    assert row["similarity"] > 0.9
    merged, _ = dedup(texts, {"revisions": "merge"}, supersedes={"leave-2026": "leave-2025"})
    assert partition(merged) == [["leave-2025", "leave-2026"], ["other"]]


def test_each_edition_keeps_its_own_copies():
    texts = {"a": BASE * 2, "a-copy": BASE * 2 + ".", "b": BASE * 2 + "twenty", "b-copy": BASE * 2 + "twenty."}
    table, edges = dedup(texts, supersedes={"b": "a"})
    assert partition(table) == [["a", "a-copy"], ["b", "b-copy"]]
    check_books(table, edges)
    assert edges.filter(relation="revision").height == 4


def test_editions_over_one_that_this_version_lacks_are_editions():
    table, _ = dedup({"v2": BASE, "v3": BASE}, supersedes={"v3": "v1", "v2": "v1"})
    assert table["kept"].all()


def test_names_that_differ_in_numbers_are_editions_where_asked_for_and_texts_differ():
    texts = {"prices-2025": BASE, "prices-2026": BASE + "!", "prices-2026-1": BASE, "scan1": ZH, "scan2": ZH}
    assert partition(dedup(texts)[0]) == [["prices-2025", "prices-2026", "prices-2026-1"], ["scan1", "scan2"]]
    table, edges = dedup(texts, {"revisions": "numbered"})
    check_books(table, edges)
    assert partition(table) == [["prices-2025", "prices-2026-1"], ["prices-2026"], ["scan1", "scan2"]]


@given(
    TEXTS, st.dictionaries(st.integers(0, 8), st.integers(0, 8), max_size=6), st.sampled_from(["declared", "numbered"])
)
@settings(max_examples=60)
def test_no_cluster_holds_two_editions_of_one_document(texts, replaced, rule):
    ids = [f"d{i:02}" for i in range(len(texts))]
    supersedes = {f"d{new:02}": f"d{old:02}" for new, old in replaced.items() if new != old and new < len(texts)}
    table, edges = dedup(texts, {"revisions": rule}, supersedes=supersedes)
    check_books(table, edges)
    chains = clusters_of([(int(a[1:]), int(b[1:])) for a, b in supersedes.items()])
    cluster = dict(table.select("doc_id", "cluster_id").iter_rows())
    for chain in chains:
        own = [cluster[ids[row]] for row in chain if row < len(ids)]
        assert len(own) == len(set(own))


def test_quality_tells_revisions_apart_from_duplicates():
    texts = {"a": BASE, "b": BASE + "!", "c": BASE}
    rows = quality(texts, [("a", "b", False), ("a", "c", True)], supersedes={"b": "a"})
    value = {(r["metric"], r["item_id"]): r["value"] for r in rows.iter_rows(named=True)}
    assert value["revision_merge_rate", "a | b"] == 0.0
    assert value["revision_pairs", "all"] == 2.0
    assert (value["pair_precision", "all"], value["pair_recall", "all"]) == (1.0, 1.0)
    assert value["false_merge_rate", "a | b"] == 0.0
    merged = quality(texts, [("a", "b", False)], {"revisions": "merge"}, supersedes={"b": "a"})
    assert merged.filter(metric="revision_merge_rate", item_id="a | b")["value"][0] == 1.0
    none = quality(texts, []).filter(metric="revision_merge_rate").row(0, named=True)
    assert (none["value"], none["status"]) == (None, "no_revisions")


# Scripts ----------------------------------------------------------------------------------------------------------------

ZH = "保修涵盖自交付之日起二十四个月内的材料和工艺缺陷。客户须在发现缺陷后十四天内书面通知本公司，并保留购买凭证。"
TH = "การรับประกันครอบคลุมความบกพร่องของวัสดุและฝีมือเป็นเวลายี่สิบสี่เดือนนับจากวันที่ส่งมอบให้แก่ลูกค้า"
JA = "保証は、お客様への引き渡しから二十四か月間、材料および製造上の欠陥を対象とします。"
KO = "보증은 고객에게 인도된 날부터 스물네 달 동안 재료와 제조상의 결함을 다룹니다."


@pytest.mark.parametrize("text", [ZH, TH, JA, KO], ids=["zh", "th", "ja", "ko"])
@pytest.mark.parametrize("dense", [None, 3])
def test_texts_without_word_spaces_are_compared_like_all_others(text, dense):
    texts = {"a": text * 2, "b": text * 2 + "。", "c": text[::-1] * 2}
    table, _ = dedup(texts, {"dense_shingle": dense})
    assert partition(table) == [["a", "b"], ["c"]]


def test_a_shorter_shingle_for_dense_scripts_weighs_a_changed_character_like_a_changed_word():
    changed = ZH.replace("二十四", "三十六").replace("十四天", "三十天")
    blind = jaccard(shingles_of(ZH, 5), shingles_of(changed, 5))
    aware = jaccard(shingles_of(ZH, 5, 2), shingles_of(changed, 5, 2))
    assert blind < aware
    assert shingles_of(BASE, 5, 2) == shingles_of(BASE, 5)
    mixed = shingles_of("abcdef中文本", 5, 2)
    assert mixed == {"abcde", "bcdef", "cdef中", "def中文", "ef中文本", "中文", "文本"}


def test_dense_is_what_unicode_calls_han_kana_or_hangul():
    import unicodedata

    for code in [*range(0x20, 0x3000, 7), *range(0x3000, 0xD7A4, 13), *range(0xF900, 0xFAF0), 0x20001, 0x1F600]:
        name = unicodedata.name(chr(code), "")
        if name.startswith(
            ("CJK UNIFIED", "CJK COMPATIBILITY IDEO", "HIRAGANA LETTER", "KATAKANA LETTER", "HANGUL SYL")
        ):
            assert is_dense(np.array([code], dtype=np.uint32))[0], name
        if name.startswith(("LATIN", "GREEK", "CYRILLIC", "THAI", "ARABIC", "DEVANAGARI", "DIGIT", "HEBREW")):
            assert not is_dense(np.array([code], dtype=np.uint32))[0], name
    assert sorted(DENSE) == list(DENSE)
