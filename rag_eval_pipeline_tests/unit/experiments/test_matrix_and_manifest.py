"""The matrix stands in the docs, faults files are read with care, and a manifest comes back as it was written."""

import re
from pathlib import Path

import pytest

from rag_eval_pipeline.attribution.order import STAGES
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.experiments.injector.edits import PLANNERS
from rag_eval_pipeline.experiments.injector.plan import FaultsError, read_faults
from rag_eval_pipeline.experiments.injector.reranker import Harmful
from rag_eval_pipeline.experiments.manifest import Plant, TwinInfo, folder_of, read_info, read_plants, write_manifest
from rag_eval_pipeline.experiments.matrix import BY_NAME, KINDS, PAIRS, default_faults

PAGE = (Path(__file__).parents[3] / "docs" / "faults.md").read_text("utf-8")


def test_there_are_twelve_kinds_and_each_names_a_stage_of_the_ledger():
    assert len(KINDS) == len(BY_NAME) == 12
    assert {kind.stage for kind in KINDS} <= set(STAGES)
    assert set(PLANNERS) == {kind.name for kind in KINDS if not kind.whole}


def test_the_matrix_of_the_docs_is_the_matrix_of_the_code():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (all|dense|reranked) \|", PAGE, re.MULTILINE)
    assert dict.fromkeys(rows).keys() == {(kind.name, kind.stage, kind.scope) for kind in KINDS}


def test_pairs_leave_reading_order_out_and_name_the_earlier_stage_first():
    for first, second in PAIRS:
        assert "reading_order" not in (first, second)
        assert BY_NAME[first].paired
        assert BY_NAME[second].paired
        assert first != second


def test_a_faults_file_gives_rates_or_counts():
    assert read_faults({"faults": {"cut_quote": {"count": 3}, "starved_index": None}}) == {
        "cut_quote": {"count": 3},
        "starved_index": {},
    }
    assert "starved_index" not in default_faults()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"faults": []},
        {"faults": {"no_such": {}}},
        {"faults": {"cut_quote": {"rate": 2}}},
        {"faults": {"cut_quote": {"count": -1}}},
        {"faults": {"cut_quote": {"count": float("inf")}}},
        {"faults": {"cut_quote": {"count": 2.7}}},
        {"faults": {"cut_quote": {"rate": float("nan")}}},
        {"faults": {"cut_quote": {"rate": True}}},
        {"faults": {"cut_quote": {"rate": 0.1, "count": 3}}},
        {"faults": {"cut_quote": {"share": 0.1}}},
        {"faults": {}, "more": 1},
    ],
)
def test_a_wrong_faults_file_is_refused(value):
    with pytest.raises(FaultsError):
        read_faults(value)


def test_a_manifest_comes_back(tmp_path):
    plants = [
        Plant("p001", "cut_quote", "chunking", "d", (3, 3), (("q1", "e1"),), layer="masked", documents=("d",)),
        Plant("p001d", "cut_quote", "chunking", "d", (9, 9), decoy=True, decoy_of="p001"),
        Plant("p002", "harmful_reranker", "reranking", retrievers=("hybrid",), query_id="q2"),
    ]
    info = TwinInfo("c@t", "c@v", "abc", 7, {"cut_quote": {"rate": 0.1}}, ("c@t.first", "c@t.second"), {"x": "y"})
    path = write_manifest(tmp_path / "m", info, plants)
    assert read_plants(path) == plants
    assert read_info(path.parent) == info


def test_a_manifest_lies_outside_of_the_corpus(tmp_path):
    assert folder_of(tmp_path, Key.parse("c@v#p")) == tmp_path / "experiments" / "c" / "v#p"


def test_a_missing_or_broken_manifest_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="rag-eval inject"):
        read_plants(tmp_path / "plants.jsonl")
    (tmp_path / "plants.jsonl").write_text('{"kind": 1}\n', "utf-8")
    with pytest.raises(ValueError, match=r"plants\.jsonl:1"):
        read_plants(tmp_path / "plants.jsonl")
    for line in (
        '{"plant_id": "a", "kind": "x", "stage": "chunking"}',
        '{"plant_id": "a", "kind": "cut_quote", "stage": null}',
    ):
        (tmp_path / "plants.jsonl").write_text(line, "utf-8")
        with pytest.raises(ValueError, match=r"plants\.jsonl:1: no plant \(unknown kind or stage\)"):
            read_plants(tmp_path / "plants.jsonl")
    (tmp_path / "plants.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="no UTF-8"):
        read_plants(tmp_path / "plants.jsonl")


@pytest.mark.parametrize("text", [b"{", b"[1]", b'{"a": 1}', b"null", b'{"alone": 5}', b"\xff\xfe"])
def test_what_tells_of_no_twin_is_refused_in_a_sentence(tmp_path, text):
    (tmp_path / "twin.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"twin\.json: tells of no twin .*make the twin again"):
        read_info(tmp_path)


def order(scores):
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def test_a_harmed_query_is_turned_around_and_others_are_left_alone():
    harmful = Harmful(harmed=["bad"], decoys=["tail"], keep=2)
    passages = ["a", "b", "c", "d"]
    assert order(harmful.rerank("bad", passages)) == [3, 2, 1, 0]
    assert order(harmful.rerank("tail", passages)) == [0, 1, 3, 2]
    assert order(harmful.rerank("other", passages)) == [0, 1, 2, 3]
