"""What two manifests differ in: parts of stages, and which rooms can have acted on a loss."""

from dataclasses import replace

from rag_eval_pipeline.attribution.changes import acting, changes_between
from rag_eval_pipeline.warehouse.manifests import Manifest

PARTS = {"config": "c", "code": "k", "model": "m", "input:queries": "q", "input:files": "f"}
MEASURING = {"evaluate": "1", "ledger": "1", "code": "1"}


def manifest(ids, parts=None, **more):
    filled = {"config": {}, "gold_hash": "g", "documents_hash": "d", "measuring": MEASURING} | more
    return Manifest("c@1", "e", "complete", {}, ids, started="2026-01-01", parts=parts or {}, **filled)


def test_config_code_model_and_inputs_are_told_apart():
    for part, flag in (("config", "config"), ("code", "code"), ("model", "model"), ("input:queries", "inputs")):
        before = manifest({"parsing": "1"}, {"parsing": PARTS})
        now = manifest({"parsing": "2"}, {"parsing": PARTS | {part: "other"}})
        found = changes_between(before, now).stages["parsing"]
        assert [name for name, value in found.items() if value] == [flag]


def test_other_files_are_documents_and_no_input():
    before = manifest({"source": "1"}, {"source": PARTS})
    now = manifest({"source": "2"}, {"source": PARTS | {"input:files": "other"}}, documents_hash="other")
    found = changes_between(before, now)
    assert not any(found.stages["source"].values())
    assert found.documents
    assert found.named() == []


def test_an_old_manifest_tells_config_by_its_settings_and_leaves_code_and_model_unknown():
    before = manifest({"chunking": "1", "parsing": "1"}, config={"pipeline": {"chunking": {"size": 100}}})
    now = manifest({"chunking": "2", "parsing": "1"}, config={"pipeline": {"chunking": {"size": 200}}})
    found = changes_between(before, now)
    assert found.stages["chunking"] == {"config": True, "code": None, "model": None, "inputs": None}
    assert found.stages["parsing"] == {"config": False, "code": False, "model": False, "inputs": False}
    assert found.changed("config") is True
    assert found.changed("code") is None
    assert found.changed("code", frozenset({"parsing"})) is False
    same = changes_between(before, replace(now, config=before.config))
    assert same.named() == ["chunking: unknown"]


def test_a_stage_that_only_one_has_is_a_change_of_code():
    found = changes_between(manifest({"parsing": "1"}), manifest({"parsing": "1", "answering": "1"}))
    assert found.named() == ["answering: code"]


def test_measuring_is_named_by_what_differs_and_unknown_in_old_manifests():
    before = manifest({})
    assert changes_between(before, manifest({}, measuring=MEASURING | {"ledger": "2"})).measuring == ("ledger",)
    assert changes_between(before, manifest({}, measuring={})).measuring is None


def test_only_rooms_above_a_loss_can_have_caused_it():
    assert acting("source", "missing_document") == {"source"}
    assert "chunking" not in acting("parsing", "token")
    assert {"parsing", "cleaning", "dedup"} <= acting("parsing", "token")
    assert {"chunking", "filtering", "querying"} <= acting("filtering", "rules")
    assert "reranking" not in acting("search", "not_found")
    assert {"embedding", "indexing", "retrieval"} <= acting("search", "not_found")
    assert "reranking" in acting("rank", "below_k")
    assert "reranking" in acting("parsing", "reading_order")
    assert "reranking" in acting("chunking", "cut")
    assert "retrieval" not in acting("chunking", "dropped")
