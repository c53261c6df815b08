"""`mirror` says what came, went, waits and is refused, and its exit code says it to a script."""

import json

import pytest
from typer.testing import CliRunner

from rag_eval_pipeline.cli import app, corpora  # noqa: F401 - registers the command
from rag_eval_pipeline.corpus import mirror as module
from rag_eval_pipeline.orchestration.automation import AutomationError


@pytest.fixture
def source(tmp_path):
    """A folder that stands for a bucket, with one version."""
    folder = tmp_path / "bucket"
    for path, text in {"c/v1/documents/d.md": "A text.", "c/gold/pii.jsonl": "{}\n"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder


@pytest.fixture
def call(tmp_path, source, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("RAG_EVAL_DATA", str(data))

    def run(**mirror):
        settings = {"quiet": 0, "sources": [{"url": f"file://{source}"}], **mirror}
        (data / "automation.yaml").write_text(json.dumps({"mirror": settings}), "utf-8")
        return CliRunner().invoke(app, ["mirror"])

    return run


def said(result):
    return " ".join(result.output.split())


def test_what_comes_waits_and_goes_is_said_and_counted_in_the_exit_code(call, source, tmp_path):
    first = call()
    assert (first.exit_code, "waits: c@v1 changed at the source; waiting until it is quiet" in said(first)) == (2, True)
    second = call()
    assert second.exit_code == 0
    assert "done: c@v1 is mirrored" in said(second)
    assert "next: rag-eval run c@v1" in said(second)
    assert (tmp_path / "data" / "corpora" / "c" / "gold" / "pii.jsonl").is_file()
    assert "all that is there is here" in said(call())
    (source / "c" / "gold" / "pii.jsonl").unlink()
    call()
    gone = call()
    assert gone.exit_code == 0
    assert "done: labels or settings of c are renewed" in said(gone)
    assert "done: gold/pii.jsonl of c is removed, as it was at the source" in said(gone)
    assert not (tmp_path / "data" / "corpora" / "c" / "gold" / "pii.jsonl").exists()


def test_one_call_takes_the_time_that_a_version_needs(call, monkeypatch):
    """A tick has a budget of seconds; a command has none."""
    call()
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(hours)))
    assert "c@v1 is mirrored" in said(call(budget=1))


def test_a_version_that_is_ready_comes_at_once(call, source):
    (source / "c" / "v1" / "_READY").touch()
    done = call(quiet=600)
    assert (done.exit_code, "done: c@v1 is mirrored" in said(done)) == (0, True)


def test_what_is_refused_or_not_there_is_exit_code_1_and_the_rest_comes(call, source):
    (source / "My Corpus").mkdir()
    call()
    refused = call()
    assert refused.exit_code == 1
    assert "refused: My Corpus at the source is no name of a corpus" in said(refused)
    assert "done: c@v1 is mirrored" in said(refused)
    absent = call(sources=[{"url": "file:///not/there"}])
    assert (absent.exit_code, "can't be listed" in said(absent)) == (1, True)


def test_without_a_source_or_with_a_wrong_file_it_says_what_to_write(call):
    nothing = call(sources=[])
    assert isinstance(nothing.exception, LookupError)
    assert "names no mirror.sources: write there from where corpora come" in str(nothing.exception)
    wrong = call(qiet=0)
    assert isinstance(wrong.exception, AutomationError)
    assert "mirror.qiet" in str(wrong.exception)
