"""Refusals are sentences that say what to do; a write that fails leaves nothing behind."""

import polars as pl
import pytest

from rag_eval_pipeline import cli
from rag_eval_pipeline.cli.looking import print_waterfalls, served_cut
from rag_eval_pipeline.release.reading import Evaluation, NoEvaluationError
from rag_eval_pipeline.release.report import write_text
from rag_eval_pipeline.warehouse.home import Home


def told(capsys, error):
    return cli._tell(error), " ".join(capsys.readouterr().err.split())


def test_a_path_that_can_not_be_written_is_told_in_a_sentence(tmp_path, capsys):
    with pytest.raises(IsADirectoryError) as caught:
        tmp_path.write_text("x", "utf-8")
    code, said = told(capsys, caught.value)
    assert code == cli.REFUSED
    assert "can't be read or written (is a directory); name a file" in said
    assert "Errno" not in said


def test_our_own_sentence_about_a_missing_file_stays_as_it_is(capsys):
    assert told(capsys, FileNotFoundError("x.yaml is not there; make it")) == (1, "error: x.yaml is not there; make it")


def test_a_report_onto_a_folder_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "out", "page")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(IsADirectoryError) as caught:
        write_text(tmp_path / "out", "page")
    assert cli._sentence(caught.value).startswith(f"{tmp_path / 'out'} can't")


class Served(Evaluation):
    """An evaluation that serves one list at one cut."""

    served, serve_k = "hybrid", 10

    def frame(self, name):
        return pl.DataFrame({"retriever": ["hybrid"], "k": [10]})


def test_no_cut_and_no_name_are_not_what_is_served():
    evaluation = Served(None, None)
    assert served_cut(evaluation, None, None) == ("hybrid", 10)
    with pytest.raises(LookupError, match="not measured at 0"):
        served_cut(evaluation, None, 0)
    with pytest.raises(LookupError, match="no retriever ''"):
        served_cut(evaluation, "", None)


def test_an_evaluation_without_labelled_evidence_has_no_waterfall_and_is_no_error(monkeypatch, tmp_path, capsys):
    class Unlabelled(Served):
        def frame(self, name):
            return super().frame(name).clear()

    monkeypatch.setattr(Evaluation, "latest", lambda *given: Unlabelled(None, None))
    print_waterfalls(Home(tmp_path, str(tmp_path)), ["small@v1"])
    assert "small@v1: no waterfall" in capsys.readouterr().out
    with pytest.raises(LookupError, match="labelled evidence"):
        served_cut(Unlabelled(None, None), None, None)


def test_a_table_that_an_old_evaluation_has_not_is_told_in_a_sentence():
    class Old:
        evaluation_id, key, tables = "abc", "small@v1", {}

    with pytest.raises(NoEvaluationError, match="abc has no table stage_repairs; make it by `rag-eval run small@v1`"):
        Evaluation(None, Old()).frame("stage_repairs")
