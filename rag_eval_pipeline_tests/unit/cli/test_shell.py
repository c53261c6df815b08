"""The SQL shell: questions over several lines, as they stand in docs/sql.md; an error ends no session."""

import pytest
from typer.testing import CliRunner

from rag_eval_pipeline.cli import app, looking  # noqa: F401 - registers the command


@pytest.fixture
def shell(tmp_path, monkeypatch):
    import duckdb

    monkeypatch.setenv("RAG_EVAL_DATA", str(tmp_path))
    with duckdb.connect(str(tmp_path / "rag_eval.duckdb")) as con:
        con.execute("CREATE TABLE chunks AS SELECT 42 AS answer, 'text' AS words")
    return lambda typed: CliRunner().invoke(app, ["sql"], input=typed)


def test_a_question_over_several_lines_ends_with_its_semicolon(shell):
    result = shell("SELECT answer\nFROM chunks\nWHERE words = 'text';\n\n")
    assert result.exit_code == 0
    assert "42" in result.output


def test_an_empty_line_ends_a_question_without_semicolon_and_then_the_session(shell):
    result = shell("SELECT answer FROM chunks\n\n\n")
    assert (result.exit_code, "42" in result.output) == (0, True)


def test_an_error_is_told_and_the_next_question_is_answered(shell):
    result = shell("SELECT nothing FROM chunks;\nDROP TABLE chunks;\nSELECT answer FROM chunks;\n")
    assert result.exit_code == 0
    assert "read-only" in result.output
    assert "42" in result.output
