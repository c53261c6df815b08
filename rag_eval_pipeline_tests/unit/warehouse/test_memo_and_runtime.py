"""The memo resumes; equal inputs are computed once; a failure is a row and is tried again by the next run."""

import polars as pl
import pytest

from rag_eval_pipeline.warehouse.memo import MERGE_ABOVE, Memo
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import Table, string, table

CALLS = []


@table("shouts", "One row a document.")
class Shouts(Table):
    doc_id = string("Document", key=True)
    text = string("Loud")
    status = string("ok or not")


def shout(item, config):
    CALLS.append(item["text"])
    if item["text"] == "bad":
        raise RuntimeError("no")
    return {"shouts": [{"text": item["text"].upper() + config, "status": "ok"}]}


def failed(item, status, error):
    return {"shouts": [{"text": "", "status": status}]}


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


def run(memo, texts, fingerprint="f", config="!"):
    items = pl.DataFrame(
        {"doc_id": [f"d{i}" for i in range(len(texts))], "text": texts, "path": ["anything"] * len(texts)}
    )
    runtime = Runtime(files=None, workers=0, memo=memo, fingerprints={"s": fingerprint})
    made = runtime.map("s", shout, items, config, reads=["text"], writes=[Shouts], failed=failed)
    return made["shouts"], runtime.reused["s"]


def test_a_second_run_computes_nothing_and_a_changed_document_computes_one(tmp_path):
    memo = Memo(tmp_path)
    first, _ = run(memo, ["a", "b", "c"])
    again, counts = run(memo, ["a", "b", "c"])
    assert counts == [3, 0]
    assert again.equals(first)
    _, counts = run(memo, ["a", "B", "c"])
    assert counts == [2, 1]
    assert CALLS == ["a", "b", "c", "B"]


def test_equal_documents_are_computed_once_and_each_has_its_row(tmp_path):
    frame, _ = run(Memo(tmp_path), ["a", "a", "b"])
    assert CALLS == ["a", "b"]
    assert frame["doc_id"].to_list() == ["d0", "d1", "d2"]
    assert frame["text"].to_list() == ["A!", "A!", "B!"]


def test_other_code_or_config_computes_anew(tmp_path):
    memo = Memo(tmp_path)
    run(memo, ["a"], "one")
    _, counts = run(memo, ["a"], "two")
    assert counts == [0, 1]


def test_a_failure_is_a_row_with_a_status_and_is_not_remembered(tmp_path):
    memo = Memo(tmp_path)
    frame, _ = run(memo, ["a", "bad"])
    assert dict(zip(frame["doc_id"], frame["status"], strict=True)) == {"d0": "ok", "d1": "error"}
    _, counts = run(memo, ["a", "bad"])
    assert counts == [1, 1]


def test_many_small_files_are_merged_and_stay_readable(tmp_path):
    memo = Memo(tmp_path)
    for i in range(MERGE_ABOVE + 2):
        memo.put_many("s", "f", {str(i): bytes([i])})
    memo.merge("s", "f")
    assert len(list(tmp_path.glob("s/f/*.parquet"))) == 1
    assert memo.get_many("s", "f", ["0", "7", "none"]) == {"0": b"\0", "7": b"\7"}


def test_batch_work_is_asked_only_for_what_is_missing(tmp_path):
    memo = Memo(tmp_path)
    runtime = Runtime(files=None, memo=memo, fingerprints={"s": "f"})
    asked = []

    def compute(positions):
        asked.append(positions)
        for position in positions:
            yield position, str(position).encode()

    assert runtime.cached("s", ["x", "y", "x"], compute) == [b"0", b"1", b"0"]
    assert runtime.cached("s", ["y", "z"], compute) == [b"1", b"1"]
    assert asked == [[0, 1], [1]]


def test_a_batch_that_dies_keeps_what_it_had_stored(tmp_path):
    runtime = Runtime(files=None, memo=Memo(tmp_path), fingerprints={"s": "f"})

    def dying(positions):
        for position in positions:
            if position == 100:
                raise RuntimeError("killed")
            yield position, b"v"

    keys = [f"k{i}" for i in range(150)]
    with pytest.raises(RuntimeError):
        runtime.cached("s", keys, dying)
    assert len(Memo(tmp_path).get_many("s", "f", keys)) == 64
