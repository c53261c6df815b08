"""Labelled sets of near-duplicates, and the sweep: read whole, each pair once, scores that add up and that the stage gives too."""

import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.dedup.quality import measure
from rag_eval_pipeline.stages.dedup.sweep import GRID, MOST, sweep, sweep_of
from rag_eval_pipeline.stages.dedup.transform import CONFIG, run
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.bench.duplicates import confused, deepmatcher, frames_of, licensee, made, scores


@pytest.fixture(scope="module")
def licences(shared):
    return licensee(shared("data", "licensee") / "fixtures")


def test_each_pair_of_licences_is_labelled_once(licences):
    assert len(licences.texts) == 40
    assert len(licences.labels) == 40 * 39 // 2
    assert sum(same for *_, same in licences.labels) == 40
    assert all(a < b for a, b, _ in licences.labels)


def test_licences_of_one_kind_are_found_and_look_alikes_are_named(licences):
    row = scores(licences, [(128, 0.8)], revisions="merge").row(0, named=True)
    assert row["pair_recall"] >= 0.9
    assert row["pair_precision"] >= 0.85
    assert row["unjudged_pairs"] == 0
    wrong = {frozenset((a, b)) for _, _, a, b, _ in confused(licences, 0.8)}
    assert frozenset(("cc-by-4.0", "cc-by-sa-4.0")) in wrong
    assert frozenset(("bsd-3-clause",)) in wrong


def test_records_of_two_shops_are_read_with_their_labels(shared):
    folder = shared("data", "deepmatcher")
    shops = deepmatcher([folder / "amz_goog_validation.csv"])
    assert (len(shops.labels), sum(same for *_, same in shops.labels)) == (2293, 234)
    songs = deepmatcher([folder / "itunes-amazon" / "validation.csv"])
    assert sum(same for *_, same in songs.labels) == 24
    low, high = (scores(songs, [(64, threshold)]).row(0, named=True) for threshold in (0.3, 0.8))
    assert low["pair_recall"] > high["pair_recall"]
    assert low["pairs"] > high["pairs"]


def test_a_file_without_labels_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("id,left_a,right_a\n1,x,y\n", "utf-8")
    with pytest.raises(ValueError, match=r"x\.csv: expected columns label"):
        deepmatcher([tmp_path / "x.csv"])
    (tmp_path / "fixtures.yml").write_text("mit: {key: mit}\n", "utf-8")
    with pytest.raises(ValueError, match=r"fixtures\.yml"):
        licensee(tmp_path)


def test_the_sweep_gives_at_each_point_what_the_stage_and_its_measures_give():
    cleaned = made(60, seed=3)
    names = cleaned["doc_id"].to_list()
    labels = [(names[8], names[9], True), (names[18], names[19], True), (names[0], names[1], False)]
    gold = Gold(duplicates=pl.DataFrame(labels, schema=SCHEMAS["duplicates"], orient="row"))
    grid = [(64, 0.5), (64, 0.95), (128, 0.8)]
    for row in sweep(cleaned, gold.duplicates, CONFIG(), grid).iter_rows(named=True):
        config = CONFIG(num_perm=row["num_perm"], threshold=row["threshold"])
        frames = frames_of(cleaned)
        frames |= run(frames, config, Runtime.plain())
        rows = measure(frames, gold, config, Settings())
        found = dict(rows.filter(item_type="corpus").select("metric", "value").iter_rows())
        for name in ("pair_precision", "pair_recall", "pair_f1", "b_cubed_f1", "largest_cluster", "unjudged_pairs"):
            assert row[name] == pytest.approx(found[name]), name
        assert row["removed"] == frames["dedup"].filter(~pl.col("kept")).height
        assert row["in_use"] == ("yes" if (row["num_perm"], row["threshold"]) == (128, 0.8) else "no")
        assert row["seconds"] > 0
        assert row["bytes"] >= 4 * row["num_perm"] * 60


def test_without_labels_or_dedup_the_sweep_has_reasons_not_zeros():
    cleaned = made(12)
    frames = frames_of(cleaned)
    rows = sweep_of(frames, Gold(), CONFIG())
    assert rows.height == len(GRID)
    assert rows["pair_f1"].null_count() == rows["b_cubed_f1"].null_count() == rows.height
    assert sweep_of(frames, Gold(), CONFIG(enabled=False))["status"].unique().to_list() == ["off"]
    many = pl.DataFrame({"doc_id": [f"{n:05}" for n in range(MOST + 1)], "text": "x"})
    assert sweep_of(frames_of(many), Gold(), CONFIG())["status"].unique().to_list() == ["too_large"]
