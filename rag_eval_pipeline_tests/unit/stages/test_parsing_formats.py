import csv
import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html as lxml_html

from rag_eval_pipeline.stages.parsing.markup import decode_html
from rag_eval_pipeline.stages.parsing.reading import Cell, Grid, Reading, join_lines
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, one
from rag_eval_pipeline.stages.source.transform import media_of
from rag_eval_pipeline_tests.unit.stages import documents as made

CONFIG = ParsingConfig(ocr="none")


def parse(path, config=CONFIG):
    """The room's rows for one file, checked for what must always hold."""
    rows = one({"file": str(path), "media": media_of(path.name, path.read_bytes()[:4096])}, config)
    (parsed,) = rows["parsed"]
    text = parsed["text"]
    assert "\r" not in text
    for number, block in enumerate(rows["blocks"]):
        assert block["block"] == number
        assert 0 <= block["start"] < block["end"] <= len(text)
        inside = text[block["start"] : block["end"]]
        assert inside == inside.strip("\n"), "blocks begin and end with what they hold"
    for before, after in zip(rows["blocks"], rows["blocks"][1:], strict=False):
        assert before["end"] <= after["start"], "blocks stand in reading order and don't overlap"
    for table in rows["parsed_tables"]:
        (root,) = lxml_html.fragments_fromstring(table["html"])
        assert {node.tag for node in root.iter()} <= {"table", "thead", "tbody", "tfoot", "tr", "td", "th"}
    return parsed, rows["blocks"], rows["parsed_tables"]


def texts(parsed, blocks):
    return [(block["kind"], parsed["text"][block["start"] : block["end"]]) for block in blocks]


# Plain text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_text_is_decoded_whatever_its_encoding(tmp_path, encoding):
    words = "El año pasado costó más. ¿Cuánto?\r\n\r\nSecond paragraph,\r\nsecond line.\r\n"
    (tmp_path / "a.txt").write_bytes(words.encode(encoding))
    parsed, blocks, _ = parse(tmp_path / "a.txt")
    assert parsed["text"] == words.replace("\r\n", "\n")
    assert texts(parsed, blocks) == [
        ("paragraph", "El año pasado costó más. ¿Cuánto?"),
        ("paragraph", "Second paragraph,\nsecond line."),
    ]


def test_white_space_alone_is_empty(tmp_path):
    (tmp_path / "a.txt").write_text(" \n\n\t ")
    assert parse(tmp_path / "a.txt")[0]["status"] == "empty"


@given(st.text())
def test_any_text_is_read(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode("utf-8", "replace"))
    parse(path)
    path = path.with_suffix(".md")
    path.write_bytes(text.encode("utf-8", "replace"))
    parse(path)


def test_markdown_keeps_its_text_and_marks_blocks_in_it(tmp_path):
    (tmp_path / "a.md").write_text(made.MARKDOWN, "utf-8")
    parsed, blocks, tables = parse(tmp_path / "a.md")
    assert parsed["text"] == made.MARKDOWN
    assert texts(parsed, blocks) == [
        ("heading", "# Leave policy"),
        ("paragraph", "Employees receive **23** days.\nThey don't carry over."),
        ("list_item", "- First point"),
        ("list_item", "- Segundo punto"),
        ("list_item", "  1. Más"),
        ("code", "```python\ncode = 1\n```"),
        ("table", "| Model | Price |\n| --- | --- |\n| Río 200 | 45,00 € |\n| Niño & Co | `<9>` |"),
        ("heading", "Setext\n------"),
    ]
    assert [block["level"] for block in blocks] == [1, None, 1, 1, 2, None, None, 2]
    assert tables[0]["html"] == (
        "<table><thead><tr><th>Model</th><th>Price</th></tr></thead><tbody><tr><td>Río 200</td><td>45,00 €</td></tr>"
        "<tr><td>Niño &amp; Co</td><td>&lt;9&gt;</td></tr></tbody></table>"
    )


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_keeps_its_text_and_becomes_a_table(tmp_path, delimiter):
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([*made.ROWS, ['says "no"', "two\nlines"]])
    (tmp_path / "a.csv").write_bytes(stream.getvalue().encode("cp1252"))
    parsed, blocks, tables = parse(tmp_path / "a.csv")
    assert parsed["text"] == stream.getvalue().replace("\r\n", "\n")
    assert [block["kind"] for block in blocks] == ["table"]
    assert tables[0]["html"] == (
        "<table><tr><th>Model</th><th>Price</th></tr><tr><td>Río 200</td><td>45,00 €</td></tr>"
        '<tr><td>Niño &amp; Co</td><td>&lt;9&gt;</td></tr><tr><td>says "no"</td><td>two lines</td></tr></table>'
    )


# HTML ------------------------------------------------------------------------------------------------------------------


def test_html_gives_what_a_browser_shows_in_order(tmp_path):
    (tmp_path / "a.html").write_text(made.HTML, "utf-8")
    parsed, blocks, tables = parse(tmp_path / "a.html")
    assert texts(parsed, blocks) == [
        ("boilerplate", "We use cookies"),
        ("boilerplate", "Site name"),
        ("boilerplate", "Home"),
        ("boilerplate", "Products"),
        ("heading", "Leave policy"),
        ("paragraph", "Employees receive 23 days of\npaid leave."),
        ("list_item", "First point"),
        ("list_item", "Segundo punto"),
        ("code", "code\n  stays"),
        ("caption", "Prices"),
        ("table", "Model\tPrice\nRío 200\t45,00 €\nNiño & Co <9>"),
        ("paragraph", "after the table"),
        ("boilerplate", "Imprint"),
    ]
    assert "unseen" not in parsed["text"]
    assert [block["level"] for block in blocks if block["kind"] == "list_item"] == [1, 2]
    assert tables[0]["html"] == (
        "<table><thead><tr><th>Model</th><th>Price</th></tr></thead><tbody><tr><td>Río 200</td><td>45,00 €</td></tr>"
        '<tr><td colspan="2">Niño &amp; Co &lt;9&gt;</td></tr></tbody></table>'
    )
    assert parsed["html"] == made.HTML


def test_a_layout_table_is_no_table(tmp_path):
    (tmp_path / "a.html").write_text("<table><tr><td><h1>Title</h1></td><td><nav>Menu</nav></td></tr></table>")
    parsed, blocks, tables = parse(tmp_path / "a.html")
    assert texts(parsed, blocks) == [("heading", "Title"), ("boilerplate", "Menu")]
    assert not tables


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ('<meta charset="iso-8859-1"><p>año “x”</p>'.encode("cp1252"), "año “x”"),
        ('<meta charset="koi8-r"><p>привет</p>'.encode("koi8-r"), "привет"),
        ('<meta charset="nonsense"><p>año</p>'.encode("latin-1"), "año"),
        ('<meta charset="latin-1"><p>año</p>'.encode(), "año"),
        ("<p>año</p>".encode("utf-16"), "año"),
    ],
)
def test_html_is_decoded_by_what_it_is_and_then_by_what_it_says(page, text):
    assert text in decode_html(page)


@pytest.mark.parametrize("tag", ["<table><tr><td>", "<div>", "<b>", "<ul><li>", "<svg>"])
def test_a_million_nested_elements_are_a_status_in_bounded_time(tmp_path, tag):
    (tmp_path / "deep.html").write_text("<html><body>" + f"{tag}x" * 1_000_000)
    started = time.monotonic()
    parsed, _, _ = parse(tmp_path / "deep.html")
    assert parsed["status"] in {"ok", "error"}
    assert parsed["status"] == "ok" or "nested" in parsed["error"]
    assert time.monotonic() - started < 20


def test_html_entities_and_external_references_stay_inert(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    page = f'<!DOCTYPE html [<!ENTITY x SYSTEM "file://{secret}">]><p>a &x; b</p><img src="http://127.0.0.1:9/x.png">'
    (tmp_path / "a.html").write_text(page)
    parsed, _, _ = parse(tmp_path / "a.html")
    assert "top secret" not in parsed["text"]
    assert "a &x; b" in parsed["text"]


@given(st.text(alphabet="<>/abpdivtr lheu\"'=&;!-\n", max_size=200))
def test_any_markup_is_read(tmp_path_factory, page):
    path = tmp_path_factory.getbasetemp() / "any.html"
    path.write_text(page)
    parse(path)


# PDF -------------------------------------------------------------------------------------------------------------------


def test_pdf_text_layer_with_headings_paragraphs_and_a_table_in_place(tmp_path):
    parsed, blocks, tables = parse(made.text_pdf(tmp_path / "a.pdf"))
    assert parsed["pages"] == 1
    assert parsed["parser"] == "pypdfium2"
    assert [block["kind"] for block in blocks] == ["heading", "heading", "paragraph", "paragraph", "table", "paragraph"]
    found = [text for _, text in texts(parsed, blocks)]
    assert found[:2] == ["Leave policy", "Días libres"]
    assert blocks[0]["level"] < blocks[1]["level"]
    assert found[2] == " ".join([made.ENGLISH] * 4)
    assert "El año pasado la compañía pagó 1.250,50" in found[3]
    assert "por la garantía de los ñandúes." in found[3]
    assert found[4] == "Model\tPrice\nRío 200\t45,00 EUR\nNiño & Co\t<9>"
    assert found[5] == "After the table comes this line."
    assert tables[0]["html"].count("<tr>") == 3
    assert parsed["text"][tables[0]["start"] : tables[0]["end"]] == found[4]
    assert {block["page"] for block in blocks} == {1}


def test_running_headers_are_marked(tmp_path):
    path = made.text_pdf(tmp_path / "a.pdf", pages=4, table=False, header="Company handbook, page")
    parsed, blocks, _ = parse(path)
    assert [text for kind, text in texts(parsed, blocks) if kind == "boilerplate"] == [
        f"Company handbook, page {number}" for number in range(1, 5)
    ]
    assert parsed["pages"] == 4


def test_hyphenated_words_are_joined_and_compounds_are_not():
    assert join_lines(["the com-", "pany pays"]) == "the company pays"
    assert join_lines(["the compañ\u00ad", "ía"]) == "the compañía"
    assert join_lines(["Anglo-", "American"]) == "Anglo- American"
    assert join_lines(["pages 3-", "4"]) == "pages 3- 4"


def test_an_encrypted_pdf_is_encrypted(tmp_path):
    parsed, _, _ = parse(made.encrypted_pdf(tmp_path / "a.pdf"))
    assert parsed["status"] == "encrypted"
    assert parsed["text"] == ""


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
def test_a_truncated_pdf_is_an_error_that_says_so(tmp_path, share):
    whole = made.text_pdf(tmp_path / "a.pdf").read_bytes()
    (tmp_path / "a.pdf").write_bytes(whole[: int(len(whole) * share)])
    parsed, _, _ = parse(tmp_path / "a.pdf")
    assert parsed["status"] == "error"
    assert "truncated" in parsed["error"]


def test_a_pdf_of_garbage_is_an_error(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)) * 50 + b"\n%%EOF\n")
    assert parse(tmp_path / "a.pdf")[0]["status"] == "error"


def test_too_many_pages_are_too_large(tmp_path):
    path = made.text_pdf(tmp_path / "a.pdf", pages=3)
    parsed, _, _ = parse(path, CONFIG.model_copy(update={"max_pages": 2}))
    assert parsed["status"] == "too_large"
    assert "3 pages" in parsed["error"]


def test_a_scan_without_ocr_is_empty_and_says_why(tmp_path):
    parsed, _, _ = parse(made.scanned_pdf(tmp_path / "a.pdf", ["words"]))
    assert parsed["status"] == "empty"
    assert "ocr is none" in parsed["error"]


# Word ------------------------------------------------------------------------------------------------------------------


def test_docx_in_the_order_of_its_body(tmp_path):
    parsed, blocks, tables = parse(made.docx(tmp_path / "a.docx"))
    assert texts(parsed, blocks) == [
        ("heading", "Leave policy"),
        ("heading", "Días libres"),
        ("paragraph", made.ENGLISH),
        ("list_item", "First point"),
        ("list_item", "Segundo punto"),
        ("table", "Model\tPrice\nRío 200\t45,00 €\nNiño & Co\t<9>\nboth"),
        ("paragraph", made.SPANISH),
    ]
    assert [block["level"] for block in blocks] == [1, 2, None, 1, 2, None, None]
    assert tables[0]["html"] == (
        "<table><tr><td>Model</td><td>Price</td></tr><tr><td>Río 200</td><td>45,00 €</td></tr>"
        '<tr><td>Niño &amp; Co</td><td>&lt;9&gt;</td></tr><tr><td colspan="2">both</td></tr></table>'
    )


def test_docx_text_is_that_with_all_changes_accepted(tmp_path):
    import docx
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    document = docx.Document()
    paragraph = document.add_paragraph("kept ")
    for tag, run in (("ins", "<w:t>inserted</w:t>"), ("del", "<w:delText>deleted</w:delText>")):
        xml = f'<w:{tag} {nsdecls("w")} w:id="1" w:author="a"><w:r>{run}</w:r></w:{tag}>'
        paragraph._p.append(parse_xml(xml))
    document.save(tmp_path / "a.docx")
    assert parse(tmp_path / "a.docx")[0]["text"] == "kept inserted"


def test_docx_vertical_merges_are_row_spans(tmp_path):
    import docx

    document = docx.Document()
    table = document.add_table(rows=3, cols=2)
    for number, cell in enumerate(table._cells):
        cell.text = str(number)
    table.cell(0, 0).merge(table.cell(2, 0)).text = "tall"
    document.save(tmp_path / "a.docx")
    assert parse(tmp_path / "a.docx")[2][0]["html"] == (
        '<table><tr><td rowspan="3">tall</td><td>1</td></tr><tr><td>3</td></tr><tr><td>5</td></tr></table>'
    )


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = made.zip_bomb_docx(tmp_path / "a.docx")
    assert path.stat().st_size < 3_000_000
    started = time.monotonic()
    parsed, _, _ = parse(path)
    assert parsed["status"] == "too_large"
    assert "bomb" in parsed["error"]
    assert time.monotonic() - started < 2


def test_a_zip_bomb_that_declares_a_small_size_is_not_unpacked_beyond_it(tmp_path):
    parsed, _, _ = parse(made.zip_bomb_docx(tmp_path / "a.docx", declared=1000))
    assert parsed["status"] == "error"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"PK\x03\x04 broken", "error"),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 500 + "EncryptedPackage".encode("utf-16-le"), "encrypted"),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 500, "error"),
    ],
)
def test_what_is_no_docx_has_a_status(tmp_path, data, status):
    (tmp_path / "a.docx").write_bytes(data)
    assert parse(tmp_path / "a.docx")[0]["status"] == status


def test_a_truncated_docx_is_an_error(tmp_path):
    whole = made.docx(tmp_path / "a.docx").read_bytes()
    (tmp_path / "a.docx").write_bytes(whole[: len(whole) // 2])
    assert parse(tmp_path / "a.docx")[0]["status"] == "error"


# Tables ----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.text(max_size=8), min_size=1, max_size=4), min_size=1, max_size=4))
def test_table_html_says_what_its_cells_say(rows):
    root = lxml_html.fragment_fromstring(Grid([[Cell(text) for text in row] for row in rows]).html)
    back = [[cell.text_content() for cell in row] for row in root.iter("tr")]
    printable = [
        [" ".join("".join(c for c in cell if c.isprintable() or c.isspace()).split()) for cell in row] for row in rows
    ]
    assert [[" ".join("".join(c for c in cell if c.isprintable()).split()) for cell in row] for row in back] == [
        [" ".join(cell.split()) for cell in row] for row in printable
    ]


@given(st.lists(st.tuples(st.sampled_from(["paragraph", "list_item", "heading", "code"]), st.text())))
def test_offsets_of_blocks_point_at_what_was_written(blocks):
    reading = Reading("test")
    for kind, text in blocks:
        reading.add(kind, text)
    text = reading.text
    for block in reading.blocks:
        assert text[block["start"] : block["end"]].strip()
    joined = "".join(text[block["start"] : block["end"]] for block in reading.blocks)
    assert "".join(joined.split()) == "".join(text.split())


# Real labelled files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["html", "docx", "md"])
def test_the_same_document_reads_the_same_in_every_format(shared, suffix):
    folder = shared("data", "unstructured", "language-docs")
    expected = " ".join((folder / "eng_spa_mult.txt").read_text("utf-8").split())
    assert " ".join(parse(folder / f"eng_spa_mult.{suffix}")[0]["text"].split()) == expected
