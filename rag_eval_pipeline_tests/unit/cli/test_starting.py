"""`init` says what it understood, what is missing, what the release rules need, and the next command; or what is wrong, writing nothing."""

import pytest
from typer.testing import CliRunner

from rag_eval_pipeline.cli import app, machine, starting  # noqa: F401 - they register; one command alone has no name
from rag_eval_pipeline.corpus.faults import CorpusError


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.setenv("RAG_EVAL_DATA", str(tmp_path / "data"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "leave.txt").write_text("Five days may be carried over.\n", "utf-8")
    (tmp_path / "docs" / "deck.pptx").write_bytes(b"slides")
    (tmp_path / "q.csv").write_bytes(
        "Pregunta;Respuesta;Documento;Autor\n¿Cuántos días?;Five;leave;Ana\n¿Quién?;;;\n".encode("cp1252")
    )
    return lambda *words: CliRunner().invoke(app, ["init", "my", *(word.replace("@", str(tmp_path)) for word in words)])


def test_all_that_a_newcomer_needs_to_know_is_printed(call):
    result = call("--documents", "@/docs", "--questions", "@/q.csv", "--language", "es")
    said = " ".join(result.output.split())
    assert result.exit_code == 0
    for words in (
        "documents 2 (1 pptx, 1 txt; 0 kB)",
        "questions 2 of 2 rows (q.csv: cp1252, semicolon)",
        "Pregunta → question, Respuesta → answer, Documento → document; not used: Autor",
        "1 questions with an answer, 1 with a document, 0 quotes with a place",
        "1 files of kinds that no reader knows (.pptx)",
        "quotes: 1 questions have none",
        "labels: 1 questions have neither answer, document nor quote",
        "an encoder for es: the bundled one is English, so they rest on bm25 alone until pipeline.embedding.model names",
        "1. recall@10 evidence max_drop 0.05: needs about 248 labelled questions",
        "there are 1, so the gate will rather say inconclusive",
        "rag-eval label my@v1",
        "rag-eval run my@v1",
    ):
        assert words in said, words


def test_a_wrong_row_is_refused_and_nothing_is_written(call, tmp_path):
    (tmp_path / "q.csv").write_text("question,document\nA?,nowhere.pdf\n", "utf-8")
    result = call("--documents", "@/docs", "--questions", "@/q.csv")
    assert isinstance(result.exception, CorpusError)
    assert str(result.exception).startswith("q.csv:2: document: found 'nowhere.pdf', which is no document")
    assert list((tmp_path / "data" / "corpora").iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [("--questions", "@/q.csv"), ("--documents", "@/docs", "--column", "question"), ("--documents", "@/docs", "--column", "qestion=Q")],
)  # fmt: skip
def test_a_wrong_command_line_is_wrong_usage(call, words):
    assert call(*words).exit_code == 64


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("question=Pregunta", "question=Respuesta"), "question is 'Pregunta' already; name one column a role"),
        (("question=Pregunta", "answer=pregunta "), "'pregunta' is the question already; name one role a column"),
    ],
)
def test_a_role_given_twice_or_a_column_given_to_two_roles_is_wrong_usage(call, tmp_path, given, said):
    result = call(
        "--documents", "@/docs", "--questions", "@/q.csv", *(word for item in given for word in ("--column", item))
    )
    assert result.exit_code == 64
    assert said in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "data" / "corpora" / "my").exists()


def test_without_documents_the_folders_are_made_to_be_filled(call, tmp_path):
    assert call().exit_code == 0
    made = tmp_path / "data" / "corpora" / "my"
    assert (made / "corpus.yaml").is_file()
    assert (made / "pipelines" / "smoke.yaml").is_file()
    assert (made / "v1" / "documents").is_dir()
