"""`doctor`: what is missing is named with how to get it, and only what is needed counts as missing."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rag_eval_pipeline.cli import app, machine, starting  # noqa: F401 - they register; one command alone has no name
from rag_eval_pipeline.release.machine import Finding, examine
from rag_eval_pipeline.stages.parsing import ocr
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline_tests.small import write_corpus


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RAG_EVAL_DATA", str(tmp_path))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Home.find()


def by_name(home) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(home)}


def with_tesseract(monkeypatch, found):
    monkeypatch.setattr(ocr, "tesseract", lambda: found)


def test_every_finding_that_is_not_ok_says_how_to_get_it(home):
    assert all(finding.get for finding in examine(home) if finding.state != "ok")


def test_languages_of_the_corpora_decide_which_ocr_data_are_needed(home, monkeypatch):
    with_tesseract(monkeypatch, ("tesseract 5", frozenset({"eng", "osd"})))
    assert by_name(home)["tesseract: es"].state == "missing"
    write_corpus(home.corpora, documents=2)  # an English corpus
    assert "tesseract: es" not in by_name(home)
    assert "tesseract-ocr-spa" not in " ".join(f.get for f in examine(home))


def test_without_tesseract_the_wheel_reads_scans_and_without_both_it_is_missing(home, monkeypatch):
    with_tesseract(monkeypatch, None)
    found = by_name(home)["tesseract"]
    assert (found.state, "apt-get install tesseract-ocr" in found.get) == ("optional", True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "rapidocr" else object())
    assert by_name(home)["tesseract"].state == "missing"


def test_a_model_that_a_corpus_names_and_is_not_there_is_missing(home):
    write_corpus(home.corpora, documents=2, pipeline={"embedding": {"model": "nobody/no-such-model"}})
    found = by_name(home)["encoder: nobody/no-such-model"]
    assert (found.state, "nobody/no-such-model" in found.get) == ("missing", True)


def test_a_locked_or_broken_database_is_told_apart_from_a_good_one(home):
    import duckdb

    home.database.parent.mkdir(parents=True, exist_ok=True)
    home.database.write_bytes(b"this is no database file at all" * 200)
    broken = by_name(home)["database"]
    assert (broken.state, "builds it anew" in broken.get) == ("missing", True)
    home.database.unlink()
    duckdb.connect(str(home.database)).close()
    assert by_name(home)["database"].state == "ok"


def test_a_database_that_another_program_writes_is_told_as_locked(home):
    home.database.parent.mkdir(parents=True, exist_ok=True)
    code = (
        f"import duckdb, sys; con = duckdb.connect({str(home.database)!r}); print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "open\n"
        found = by_name(home)["database"]
        assert (found.state, "locked by another program" in found.found) == ("missing", True)
    finally:
        other.communicate("")


def test_another_dagster_home_is_told(home, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    assert by_name(home)["DAGSTER_HOME"].state == "optional"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_missing(home):
    home.root.chmod(0o500)
    try:
        assert by_name(home)["data folder (RAG_EVAL_DATA)"].state == "missing"
    finally:
        home.root.chmod(0o700)


def test_the_exit_code_says_whether_something_needed_is_missing(home, monkeypatch):
    with_tesseract(monkeypatch, ("tesseract 5", frozenset({"eng", "spa", "osd"})))
    good = CliRunner().invoke(app, ["doctor"])
    assert (good.exit_code, "nothing that is needed is missing" in good.output) == (0, True)
    with_tesseract(monkeypatch, ("tesseract 5", frozenset()))
    bad = CliRunner().invoke(app, ["doctor"])
    assert (bad.exit_code, "2 things are missing" in bad.output) == (1, True)
