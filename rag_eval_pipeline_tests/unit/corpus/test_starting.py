"""From a folder and a sheet to a corpus that validates; where anything is wrong, nothing is written."""

import json

import pytest

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.starting import start_corpus
from rag_eval_pipeline.corpus.version import load_version

LEAVE = "Leave policy.\nFive days may be carried over.\nThe fee is 8 USD.\n"
SHEET = """\
question;answer;document;quote;language;intent
How many days?;Five;leave.txt;Five days may be carried over.;en;lookup
What is the fee?;8 USD;;;en;lookup
When is pay day?;the 25th;pay.pdf;Salaries are paid on the 25th.;en;lookup
Who may ask?;anybody;leave.txt;Anybody may ask for leave.;en;who
Nothing known?;;;;en;
"""


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    (folder / "sub").mkdir(parents=True)
    (folder / "leave.txt").write_text(LEAVE, "utf-8")
    (folder / "sub" / "pay.pdf").write_bytes(b"%PDF-1.4 not read here")
    (folder / "questions.csv").write_text(SHEET, "utf-8")
    return folder


def start(tmp_path, mine, **options):
    return start_corpus(tmp_path / "corpora", Key("my", "v1"), mine, mine / "questions.csv", **options)


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_folder_and_a_sheet_become_a_corpus_that_validates(tmp_path, mine):
    started = start(tmp_path, mine, languages=("en",))
    version = load_version(tmp_path / "corpora", "my@v1")
    assert version.files["doc_id"].to_list() == ["leave.txt", "sub/pay.pdf"], "the sheet in the folder is no document"
    assert version.gold.queries.height == 5
    evidence = version.gold.evidence.select("query_id", "doc_id", "quote").rows()
    assert evidence == [
        ("q001", "leave.txt", "Five days may be carried over."), ("q003", "sub/pay.pdf", "Salaries are paid on the 25th."),
    ]  # fmt: skip
    assert version.gold.qrels.select("query_id", "doc_id").rows() == [
        ("q001", "leave.txt"),
        ("q003", "sub/pay.pdf"),
        ("q004", "leave.txt"),
    ]
    assert dict(version.gold.answers_gold.rows())["q002"] == ["8 USD"]
    assert version.settings.gates.rules[0].unit == "evidence"
    assert (started.n_evidence, started.n_judged, dict(started.kinds)) == (2, 3, {"txt": 1, "pdf": 1})
    assert load_version(tmp_path / "corpora", "my@v1#smoke").settings.evaluate.subset == "smoke"


def test_quotes_without_a_place_and_questions_without_a_quote_are_left_to_labelling(tmp_path, mine):
    started = start(tmp_path, mine)
    wanted = [(w.query_id, w.documents, w.quote, w.line) for w in started.wanted]
    assert wanted == [("q002", (), None, 3), ("q004", ("leave.txt",), "Anybody may ask for leave.", 5)]
    assert len(lines(tmp_path / "corpora/my/gold/.to_label.jsonl")) == 2


def test_a_quote_without_a_document_finds_the_only_text_that_holds_it(tmp_path, mine):
    (mine / "questions.csv").write_text(
        "question,quote\nHow many?,five days may be carried over\nFee?,The fee is 8 USD.\n", "utf-8"
    )
    start(tmp_path, mine)
    assert [row["query_id"] for row in lines(tmp_path / "corpora/my/gold/evidence.jsonl")] == ["q002"], (
        "case differs in the first"
    )


def test_nothing_is_written_where_a_row_is_wrong_and_every_row_is_named(tmp_path, mine):
    (mine / "questions.csv").write_text("question,document\nA?,leave.txt\n,leave.txt\nC?,leav.txt\n", "utf-8")
    with pytest.raises(CorpusError) as caught:
        start(tmp_path, mine)
    assert [(fault.file, fault.line) for fault in caught.value.faults] == [("questions.csv", 3), ("questions.csv", 4)]
    assert list((tmp_path / "corpora").iterdir()) == []


def test_faults_of_gold_are_told_by_the_sheets_own_lines(tmp_path, mine):
    (mine / "questions.csv").write_text("id,question\nok,A?\n" + "x" * 2000 + ",B?\n", "utf-8")
    with pytest.raises(CorpusError) as caught:
        start(tmp_path, mine)
    (fault,) = caught.value.faults
    assert (fault.file, fault.line, fault.field) == ("questions.csv", 3, "query_id")
    assert list((tmp_path / "corpora").iterdir()) == []


def test_links_that_leave_the_folder_and_empty_folders_are_refused(tmp_path, mine):
    (tmp_path / "outside.txt").write_text("x")
    (mine / "link.txt").symlink_to(tmp_path / "outside.txt")
    with pytest.raises(CorpusError, match="a link that leaves the corpus"):
        start(tmp_path, mine)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="no files"):
        start_corpus(tmp_path / "corpora", Key("my", "v1"), tmp_path / "empty", None)


def test_a_corpus_that_is_there_is_never_touched(tmp_path, mine):
    start(tmp_path, mine)
    before = (tmp_path / "corpora/my/corpus.yaml").read_text()
    with pytest.raises(FileExistsError, match="choose another name"):
        start(tmp_path, mine)
    assert (tmp_path / "corpora/my/corpus.yaml").read_text() == before


def test_documents_alone_make_a_corpus_without_rules(tmp_path, mine):
    (mine / "questions.csv").unlink()
    started = start_corpus(tmp_path / "corpora", Key("my", "v1"), mine, None)
    assert started.sheet is None
    assert load_version(tmp_path / "corpora", "my@v1").settings.gates.rules == ()
