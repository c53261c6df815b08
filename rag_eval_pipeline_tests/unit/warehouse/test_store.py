"""The store is immutable, refuses a second content, and a kill leaves it whole."""

import multiprocessing
import os
import signal
import time

import polars as pl
import pytest

from rag_eval_pipeline.warehouse.store import NotReproducibleError, Store
from rag_eval_pipeline.warehouse.table import Table, TableError, number, string, table


@table("notes", "One row a note.")
class Notes(Table):
    note_id = string("Note", key=True)
    text = string("Text", privacy="source")
    seconds = number("Time", volatile=True)


def notes(*texts, seconds=0.5):
    return pl.DataFrame(
        {"note_id": [str(i) for i in range(len(texts))], "text": list(texts), "seconds": [seconds] * len(texts)}
    )


def test_what_is_written_is_found_and_read_back_in_key_order(tmp_path):
    store = Store(tmp_path)
    written = store.write(Notes, notes("a", "b").reverse(), "c@v", "id1")
    found = store.find("notes", "c@v", "id1")
    assert found == written
    assert store.read(found)["text"].to_list() == ["a", "b"]
    assert store.find("notes", "c@v", "id2") is None
    assert store.find("notes", "c@w", "id1") is None


def test_the_same_content_again_is_the_same_file(tmp_path):
    store = Store(tmp_path)
    assert store.write(Notes, notes("a"), "c@v", "id1") == store.write(Notes, notes("a"), "c@v", "id1")


def test_volatile_columns_don_t_change_the_content_hash(tmp_path):
    store = Store(tmp_path)
    first = store.write(Notes, notes("a", seconds=1.0), "c@v", "id1")
    assert store.write(Notes, notes("a", seconds=2.0), "c@v", "id1").content_hash == first.content_hash


def test_a_second_content_under_one_id_is_an_error_that_names_both_files(tmp_path):
    store = Store(tmp_path)
    first = store.write(Notes, notes("a"), "c@v", "id1")
    with pytest.raises(NotReproducibleError, match=first.path.rsplit("/", 1)[1]):
        store.write(Notes, notes("b"), "c@v", "id1")
    assert store.read(store.find("notes", "c@v", "id1"))["text"].to_list() == ["a"]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pl.DataFrame({"note_id": ["1"], "seconds": [1.0]}), "missing columns"),
        (notes("a").with_columns(extra=pl.lit(1)), "unknown columns"),
        (notes("a").with_columns(text=pl.lit(None, dtype=pl.String)), "text"),
        (pl.concat([notes("a"), notes("b")]), "note_id"),
    ],
)
def test_a_frame_that_breaks_its_declaration_is_refused_and_nothing_is_stored(tmp_path, frame, says):
    store = Store(tmp_path)
    with pytest.raises(TableError, match=says):
        store.write(Notes, frame, "c@v", "id1")
    assert store.find("notes", "c@v", "id1") is None


def test_an_object_store_url_serves_as_well_as_a_folder():
    store = Store("memory://somewhere")
    written = store.write(Notes, notes("a"), "c@v", "id1")
    assert store.read(store.find("notes", "c@v", "id1"))["text"].to_list() == ["a"]
    assert store.path_of(store.url(written)) == written.path


def _write_for_ever(root):
    store, i = Store(root), 0
    while True:
        store.write(Notes, notes(*["text" * 500] * 200), "c@v", f"id{i}")
        i += 1


def test_a_kill_at_any_moment_leaves_only_whole_tables(tmp_path):
    for pause in (0.3, 0.45, 0.6):
        process = multiprocessing.get_context("spawn").Process(target=_write_for_ever, args=(tmp_path,))
        process.start()
        while not list(tmp_path.glob("notes/*/*/part-*")):
            time.sleep(0.05)
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        for part in tmp_path.glob("notes/*/*/part-*.parquet"):
            assert pl.read_parquet(part, hive_partitioning=False).height == 200
