"""A sheet of questions in any usual form is understood alike, and every wrong cell is named by file, line and column."""

import itertools

import pytest

from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.questions import Documents, plain, read_questions

FILES = ("leave.txt", "hr/pay.md", "hr/leave.pdf", "old/pay.md", "Niños.docx")
ROWS = [
    ["¿Cuántos días, y cuándo?", 'Cinco, "como mucho"', "leave.txt", "Five days may\nbe carried over."],
    ["What is the fee?", "8 €", "hr/pay.md", ""],
]
HEADS = {"en": ["Question", "Answer", "Document", "Quote"], "es": ["Pregunta", "Respuesta", "Documento", "Cita"]}


def csv_of(rows, separator):
    def cell(text):
        quoted = any(sign in text for sign in (separator, '"', "\n"))
        return '"' + text.replace('"', '""') + '"' if quoted else text

    return "".join(separator.join(map(cell, row)) + "\r\n" for row in rows)


def read(tmp_path, text, given=None, encoding="utf-8", documents=FILES):
    path = tmp_path / "questions.csv"
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    faults = Faults()
    return read_questions(path, documents, given or {}, faults), faults


def told(faults):
    return [(fault.file, fault.line, fault.field) for fault in faults.errors]


@pytest.mark.parametrize(
    ("separator", "encoding", "language"),
    itertools.product([",", ";", "\t"], ["utf-8", "utf-8-sig", "cp1252", "utf-16"], ["en", "es"]),
)
def test_separators_encodings_and_languages_of_the_header_are_understood_alike(tmp_path, separator, encoding, language):
    sheet, faults = read(tmp_path, csv_of([HEADS[language], *ROWS], separator), encoding=encoding)
    assert not faults.errors
    first, second = sheet.questions
    assert (first.text, first.answers, first.documents) == (
        "¿Cuántos días, y cuándo?",
        ['Cinco, "como mucho"'],
        ["leave.txt"],
    )
    assert [(quote.text, quote.documents, quote.line) for quote in first.quotes] == [
        ("Five days may\nbe carried over.", ("leave.txt",), 2)
    ]
    assert (second.query_id, second.line, second.answers, second.documents, second.quotes) == (
        "q002",
        4,
        ["8 €"],
        ["hr/pay.md"],
        [],
    )
    assert set(sheet.columns.values()) == {"question", "answer", "document", "quote"}


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("leave.txt", ["leave.txt"]), ("LEAVE.TXT", ["leave.txt"]), ("hr\\leave.pdf", ["hr/leave.pdf"]), ("./hr/pay.md", ["hr/pay.md"]),
        ("C:\\docs\\hr\\leave.pdf", ["hr/leave.pdf"]), ("https://share.example/sites/hr/leave.pdf", ["hr/leave.pdf"]),
        ("leave.pdf, p. 3", ["hr/leave.pdf"]), ("leave.pdf#page=3", ["hr/leave.pdf"]), ("leave.pdf (pág. 12)", ["hr/leave.pdf"]),
        ("Nin\u0303os", ["Niños.docx"]), ("leave.txt; hr/pay.md", ["leave.txt", "hr/pay.md"]), ("leave.txt, leave.pdf", ["leave.txt", "hr/leave.pdf"]),
    ],
)  # fmt: skip
def test_a_document_is_found_by_id_name_or_path_with_or_without_a_page(cell, found):
    documents, wrong, _ = Documents(FILES).all_in(cell)
    assert (documents, wrong) == (found, None)


def test_each_bad_row_is_named_by_file_line_and_column_and_text_is_never_told(tmp_path):
    text = (
        "id,Pregunta,Documento,split,answerable,language\n1,Secret question?,nowhere.pdf,,,\n2,,leave.txt,,,\n"
        "1,Another secret?,leave.txt,,,\n3,Third secret?,pay.md,,,\n4,Fourth secret?,,tset,perhaps,not a code\n,Fifth secret?,,,,\n"
        "6,Sixth secret?,leave.txt,a,b,c,d\n"
    )
    _, faults = read(tmp_path, text)
    assert told(faults) == [
        ("questions.csv", 2, "Documento"), ("questions.csv", 3, "Pregunta"), ("questions.csv", 4, "id"), ("questions.csv", 5, "Documento"),
        ("questions.csv", 6, "language"), ("questions.csv", 6, "split"), ("questions.csv", 6, "answerable"), ("questions.csv", 7, "id"),
        ("questions.csv", 8, ""),
    ]  # fmt: skip
    messages = "\n".join(map(str, faults.errors))
    assert "secret" not in messages
    assert "may be 2 documents (hr/pay.md, old/pay.md)" in messages
    assert "did you mean 'test'?" in messages


def test_rows_of_one_question_are_one_question_with_all_their_quotes(tmp_path):
    text = "question,answer,document,quote\nHow many?,five,leave.txt,Five days.\nhow  many?,5,hr/pay.md,It is five.\n"
    sheet, faults = read(tmp_path, text)
    (question,) = sheet.questions
    assert not faults.errors
    assert (question.answers, question.documents) == (["five", "5"], ["leave.txt", "hr/pay.md"])
    assert [(quote.text, quote.documents) for quote in question.quotes] == [
        ("Five days.", ("leave.txt",)),
        ("It is five.", ("hr/pay.md",)),
    ]


def test_numbered_columns_belong_together(tmp_path):
    text = "question;quote 1;document 1;quote_2;document_2\nHow?;One.;leave.txt;Two.;hr/pay.md\n"
    sheet, _ = read(tmp_path, text)
    assert [(quote.text, quote.documents) for quote in sheet.questions[0].quotes] == [
        ("One.", ("leave.txt",)),
        ("Two.", ("hr/pay.md",)),
    ]


def test_columns_may_be_told_and_ambiguous_or_absent_ones_are_refused(tmp_path):
    sheet, faults = read(tmp_path, "Frage 1,Text B,Autor\nWie?,So.,X\n", {"question": "frage 1", "answer": "Text B"})
    assert not faults.errors
    assert (sheet.questions[0].text, sheet.questions[0].answers, sheet.unused) == ("Wie?", ["So."], ("Autor",))
    for text, given, says in (
        ("a,b\n1,2\n", {}, "--column question=NAME"),
        ("question,query\n1,2\n", {}, "2 columns that may be it ('question', 'query')"),
        ("question\nx\n", {"answer": "respons"}, "0 columns called 'respons'"),
    ):
        sheet, faults = read(tmp_path, text, given)
        assert sheet is None
        assert says in str(faults.errors[0])
        assert faults.errors[0].line == 1


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04rest", b"question\n", b'question\n"never closed\n', b"\n\n"])
def test_what_is_no_sheet_of_questions_is_refused_with_a_sentence(tmp_path, data):
    sheet, faults = read(tmp_path, data)
    assert faults.errors or (sheet is not None and sheet.questions)


@pytest.mark.parametrize("rest", ["", 'Third?;"c";;\n'])
def test_a_quote_that_nobody_closed_does_not_swallow_the_rows_below(tmp_path, rest):
    sheet, faults = read(tmp_path, 'question;answer;document;quote\nFirst?;a;;\n"Second?;b;;\nAnd this?;b;;\n' + rest)
    assert sheet is None
    assert told(faults) == [("questions.csv", 3, "")]


def test_a_nul_sign_is_named_by_its_line_as_of_utf_16_without_a_mark(tmp_path):
    for text, line in (("question\nFirst?\nSec\0ond?\n", 3), ("question\nFirst?\n".encode("utf-16-le"), 1)):
        sheet, faults = read(tmp_path, text)
        assert (sheet, told(faults)) == (None, [("questions.csv", line, "")])


def test_a_header_as_long_as_the_sheet_may_be_is_read(tmp_path):
    sheet, faults = read(tmp_path, "question;" + "y" * 200_000 + "\nFirst?;1\n")
    assert not faults.errors
    assert [question.text for question in sheet.questions] == ["First?"]


@pytest.mark.parametrize("cell", ["/" * 300_000 + "z", "z" + ", " * 150_000 + "z", "p" + " " * 300_000 + "x"])
def test_a_cell_longer_than_any_path_is_refused_and_not_searched_for_ever(tmp_path, cell):
    _, faults = read(tmp_path, f"question\tdocument\nFirst?\t{cell}\n")
    assert told(faults) == [("questions.csv", 2, "document")]


def test_names_are_compared_without_accents_case_and_punctuation():
    assert plain("  ¿Categoría_de  Pregunta? ") == "categoria de pregunta"
