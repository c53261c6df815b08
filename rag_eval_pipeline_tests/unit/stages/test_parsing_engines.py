"""Parsers of others: each reads the same document, refuses the same broken ones, and is named where it is absent."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from pydantic import ValidationError

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.measures import cer
from rag_eval_pipeline.stages.parsing import engines, ocr
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, identity, one
from rag_eval_pipeline.text.entities import EXTRA_MODEL
from rag_eval_pipeline_tests.unit.stages import documents as made

needs_tesseract = pytest.mark.skipif(ocr.tesseract() is None, reason="tesseract is not installed")
PDF = ["pdfplumber", "pymupdf"]


def read(path, parser, media="pdf", **settings):
    if engines.find_spec(engines.ENGINES[parser].package) is None:
        pytest.skip(f"{parser} is not installed")
    return one({"file": str(path), "media": media}, ParsingConfig(parser=parser, **settings))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return made.text_pdf(tmp_path_factory.mktemp("engines") / "page.pdf", pages=3, header="Nimbara handbook")


@pytest.mark.parametrize("parser", PDF)
def test_engines_read_what_the_built_in_reader_reads(page, parser):
    ours = one({"file": str(page), "media": "pdf"}, ParsingConfig())
    theirs = read(page, parser)
    parsed, reference = theirs["parsed"][0], ours["parsed"][0]
    assert (parsed["status"], parsed["parser"], parsed["pages"]) == ("ok", parser, 3)
    assert cer(reference["text"], parsed["text"]).value < 0.02
    assert made.SPANISH.split()[3] in parsed["text"]
    assert len(theirs["parsed_tables"]) == len(ours["parsed_tables"]) == 3
    for table in theirs["parsed_tables"]:
        assert "Niño &amp; Co" in table["html"]
    for block in theirs["blocks"]:
        assert 0 <= block["start"] < block["end"] <= len(parsed["text"])
    headings = [parsed["text"][b["start"] : b["end"]] for b in theirs["blocks"] if b["kind"] == "heading"]
    assert headings[:2] == ["Leave policy", "Días libres"]
    assert sum(b["kind"] == "boilerplate" for b in theirs["blocks"]) == 3, "running headers, as of any engine"


@pytest.mark.parametrize("parser", PDF)
def test_a_table_stands_once_and_where_it_is(page, parser):
    text = read(page, parser)["parsed"][0]["text"]
    assert text.count("Río 200") == 3
    assert text.index("ñandúes") < text.index("Río 200") < text.index("After the table comes this line.")


@pytest.mark.parametrize("parser", PDF)
def test_broken_documents_are_refused_as_by_the_built_in_reader(tmp_path, parser):
    good = made.text_pdf(tmp_path / "good.pdf")
    (tmp_path / "cut.pdf").write_bytes(good.read_bytes()[:900])
    made.encrypted_pdf(tmp_path / "locked.pdf")
    found = {name: read(tmp_path / f"{name}.pdf", parser)["parsed"][0]["status"] for name in ("good", "cut", "locked")}
    assert found == {"good": "ok", "cut": "error", "locked": "encrypted"}
    assert (
        read(made.text_pdf(tmp_path / "long.pdf", pages=2), parser, max_pages=1)["parsed"][0]["status"] == "too_large"
    )


@needs_tesseract
@pytest.mark.parametrize("parser", PDF)
def test_scanned_pages_are_read_by_ocr_whichever_engine_looks(tmp_path, parser):
    made.scanned_pdf(tmp_path / "scan.pdf", [made.ENGLISH])
    found = read(tmp_path / "scan.pdf", parser)["parsed"][0]
    assert found["parser"] == f"{parser}+tesseract"
    assert cer(made.ENGLISH, found["text"]).value < 0.05


@pytest.mark.parametrize("parser", ["pymupdf", "docling", "unstructured"])
def test_an_absent_package_is_refused_with_its_extra(monkeypatch, parser):
    monkeypatch.setattr(engines, "find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=rf"parser is {parser}, which is not installed.*rag_eval_pipeline\[{parser}\]"):
        identity(ParsingConfig(parser=parser))


def test_an_unknown_parser_names_those_that_there_are():
    with pytest.raises(ValidationError, match="unknown parser 'tika'; use pypdfium2, pdfplumber, pymupdf"):
        ParsingConfig(parser="tika")


def test_other_formats_are_read_by_the_house_whatever_the_engine(tmp_path):
    (tmp_path / "page.html").write_text(made.HTML, "utf-8")
    item = {"file": str(tmp_path / "page.html"), "media": "html"}
    ours, theirs = (one(item, ParsingConfig(parser=parser)) for parser in ("pypdfium2", "pdfplumber"))
    for rows in (ours, theirs):
        rows["parsed"][0]["seconds"] = None
    assert ours == theirs


# Elements: what these packages hand over, by stand-ins of the same form ----------------------------------------------


def element(category, text, page=1, depth=None, html=None):
    meta = SimpleNamespace(page_number=page, category_depth=depth, text_as_html=html)
    return SimpleNamespace(category=category, text=text, metadata=meta)


def test_elements_of_unstructured_become_blocks_and_tables(monkeypatch, tmp_path):
    auto = ModuleType("unstructured.partition.auto")
    auto.partition = lambda filename: [
        element("Title", "Leave policy", depth=0),
        element("Header", "Page 1"),
        element("NarrativeText", made.ENGLISH),
        element("ListItem", "First point", depth=1),
        element("Table", "a b", html="<table><tr><td>a</td><td>b</td></tr></table>"),
    ]
    for name in ("unstructured", "unstructured.partition"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "unstructured.partition.auto", auto)
    for name, level in (("page.html", 1), ("page.docx", 2)):
        reading = engines.ENGINES["unstructured"].read(tmp_path / name, ParsingConfig())
        kinds = [(block["kind"], block["level"]) for block in reading.blocks]
        assert kinds == [
            ("heading", 1), ("boilerplate", None), ("paragraph", None), ("list_item", level), ("table", None),
        ]  # fmt: skip
    assert reading.tables[0]["html"] == "<table><tr><td>a</td><td>b</td></tr></table>"


def test_items_of_docling_become_blocks_and_a_spanning_cell_stands_once(monkeypatch, tmp_path):
    wide = SimpleNamespace(
        text="both", start_row_offset_idx=0, start_col_offset_idx=0, col_span=2, row_span=1,
        column_header=True, row_header=False,
    )  # fmt: skip
    cells = [
        SimpleNamespace(
            text=text, start_row_offset_idx=1, start_col_offset_idx=at, col_span=1, row_span=1, column_header=False, row_header=False
        )
        for at, text in enumerate("ab")
    ]  # fmt: skip
    at_page = [SimpleNamespace(page_no=2)]
    items = [
        SimpleNamespace(label=SimpleNamespace(value="section_header"), text="Días libres", level=2, prov=at_page),
        SimpleNamespace(label="text", text=made.SPANISH, prov=at_page),
        SimpleNamespace(label="table", data=SimpleNamespace(grid=[[wide, wide], cells]), prov=at_page),
        SimpleNamespace(label="page_footer", text="2", prov=[]),
    ]
    document = SimpleNamespace(pages={1: 1, 2: 2}, iterate_items=lambda: ((item, 0) for item in items))
    converter = SimpleNamespace(convert=lambda _path, max_num_pages: SimpleNamespace(document=document))
    monkeypatch.setattr(engines, "_CONVERTER", [converter])
    reading = engines.ENGINES["docling"].read(tmp_path / "x.pdf", ParsingConfig())
    assert [(b["kind"], b["level"], b["page"]) for b in reading.blocks] == [
        ("heading", 2, 2), ("paragraph", None, 2), ("table", None, 2), ("boilerplate", None, None),
    ]  # fmt: skip
    assert reading.tables[0]["html"] == '<table><tr><th colspan="2">both</th></tr><tr><td>a</td><td>b</td></tr></table>'


def test_headings_of_a_page_that_docling_counts_below_its_title_have_the_levels_of_the_page(monkeypatch, tmp_path):
    items = [SimpleNamespace(label="title", text="h1", prov=[]), SimpleNamespace(label="section_header", text="h2", level=1, prov=[])]  # fmt: skip
    document = SimpleNamespace(pages={}, iterate_items=lambda: ((item, 0) for item in items))
    converter = SimpleNamespace(convert=lambda _path, max_num_pages: SimpleNamespace(document=document))
    monkeypatch.setattr(engines, "_CONVERTER", [converter])
    for name, levels in (("x.html", [1, 2]), ("x.docx", [1, 1])):
        reading = engines.ENGINES["docling"].read(tmp_path / name, ParsingConfig())
        assert [block["level"] for block in reading.blocks] == levels


def node(label, text=None, *children, **more):
    """An item of docling, which its children name as their parent."""
    made_of = SimpleNamespace(label=label, text=text, prov=[], children=children, parent=None, **more)
    reference = SimpleNamespace(resolve=lambda _document: made_of)
    for child in children:
        child.parent = reference
    return made_of


def walk(above):
    for child in above.children:
        if child.text is not None or child.label == "table":
            yield child, 0
        yield from walk(child)


def test_what_docling_cuts_where_the_style_changes_stands_whole_and_lists_have_their_depth(monkeypatch, tmp_path):
    def styled(*texts):
        return node("inline", None, *(node("text", text) for text in texts))

    grid = [[SimpleNamespace(
        text="x y", start_row_offset_idx=0, start_col_offset_idx=0, col_span=1, row_span=1, column_header=False, row_header=False
    )]]  # fmt: skip
    deep = node("list", None, node("list_item", "", styled("Fee:", "4.50")))
    body = node(
        "unspecified", None,
        node("title", "", styled("Fees", "2026")),
        node("section_header", "Plans", styled("The fee is", "4.50", "EUR."), styled("No", "refund."), level=1),
        node("ordered_list", None, node("list_item", "Basic", deep), node("list_item", "Pro")),
        node("table", None, styled("x", "y"), data=SimpleNamespace(grid=grid)),
    )  # fmt: skip
    document = SimpleNamespace(pages={}, iterate_items=lambda: walk(body))
    converter = SimpleNamespace(convert=lambda _path, max_num_pages: SimpleNamespace(document=document))
    monkeypatch.setattr(engines, "_CONVERTER", [converter])
    reading = engines.ENGINES["docling"].read(tmp_path / "x.html", ParsingConfig())
    assert stood(reading) == [
        ("heading", 1, "Fees 2026"),
        ("heading", 2, "Plans"),
        ("paragraph", None, "The fee is 4.50 EUR."),
        ("paragraph", None, "No refund."),
        ("list_item", 1, "Basic"),
        ("list_item", 2, "Fee: 4.50"),
        ("list_item", 1, "Pro"),
        ("table", None, "x y"),
    ]


def stood(reading):
    text = reading.text
    return [(b["kind"], b["level"], text[b["start"] : b["end"]]) for b in reading.blocks]


def test_docling_reads_a_page_and_a_document_without_any_model(tmp_path):
    (tmp_path / "x.html").write_text(
        "<h1>Fees <em>2026</em></h1><p>The fee is <b>4.50</b> EUR.</p><h2>Plans</h2><ul><li>Basic<ul><li>Fee: <b>4.50</b></li></ul></li>"
        "</ul><p>No <b>refund</b></p><table><tr><td>x <b>y</b></td></tr></table>",
        "utf-8",
    )
    found = read(tmp_path / "x.html", "docling", "html")
    text = found["parsed"][0]["text"]
    assert [(b["kind"], b["level"], text[b["start"] : b["end"]]) for b in found["blocks"]] == [
        ("heading", 1, "Fees 2026"),
        ("paragraph", None, "The fee is 4.50 EUR."),
        ("heading", 2, "Plans"),
        ("list_item", 1, "Basic"),
        ("list_item", 2, "Fee: 4.50"),
        ("paragraph", None, "No refund"),
        ("table", None, "x y"),
    ]
    item = {"file": str(made.docx(tmp_path / "x.docx")), "media": "docx"}
    ours, theirs = (one(item, ParsingConfig(parser=parser))["parsed"][0] for parser in ("pypdfium2", "docling"))
    assert theirs["text"] == ours["text"]
    assert theirs["parser"] == "docling"


def test_docling_without_its_models_is_a_refusal_that_says_what_to_do(monkeypatch, tmp_path):
    missing = type("LocalEntryNotFoundError", (OSError,), {"__module__": "huggingface_hub.errors"})

    def convert(_path, max_num_pages):
        try:
            raise missing("no models for /secret/contract.pdf")
        except OSError as error:
            raise RuntimeError("conversion failed") from error

    monkeypatch.setattr(engines, "_CONVERTER", [SimpleNamespace(convert=convert)])
    with pytest.raises(Refusal, match="docling-tools models download") as told:
        engines.ENGINES["docling"].read(tmp_path / "x.pdf", ParsingConfig())
    assert told.value.status == "error"
    assert "secret" not in str(told.value)


def test_another_failure_of_docling_stays_what_it_is(monkeypatch, tmp_path):
    def convert(_path, max_num_pages):
        raise ZeroDivisionError

    monkeypatch.setattr(engines, "_CONVERTER", [SimpleNamespace(convert=convert)])
    with pytest.raises(ZeroDivisionError):
        engines.ENGINES["docling"].read(tmp_path / "x.pdf", ParsingConfig())


def stand_in(monkeypatch, **modules):
    """Modules of unstructured by their last name."""
    for name in ("unstructured", "unstructured.partition", "unstructured.nlp"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, (package, module) in modules.items():
        monkeypatch.setitem(sys.modules, f"unstructured.{package}.{name}", module)
        setattr(sys.modules[f"unstructured.{package}"], name, module)


def test_unstructured_takes_the_model_that_is_installed_and_fetches_none(monkeypatch):
    tokenize = ModuleType("unstructured.nlp.tokenize")
    tokenize._SPACY_MODEL_NAME, loaded = "fetched_while_it_reads", []
    tokenize.sent_tokenize = lambda _text: loaded.append(tokenize._SPACY_MODEL_NAME)
    stand_in(monkeypatch, auto=("partition", ModuleType("auto")), tokenize=("nlp", tokenize))
    engines.ENGINES["unstructured"].warm()
    assert loaded == [EXTRA_MODEL], "loaded here, outside of a document's time"
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == EXTRA_MODEL else name)
    with pytest.raises(ValueError, match=r"rag_eval_pipeline\[unstructured\]"):
        identity(ParsingConfig(parser="unstructured"))


def test_a_format_that_unstructured_lacks_packages_for_is_refused_by_name(monkeypatch, tmp_path):
    def partition(filename):
        raise ImportError("partition_docx() is not available")

    auto = ModuleType("unstructured.partition.auto")
    auto.partition = partition
    stand_in(monkeypatch, auto=("partition", auto))
    with pytest.raises(Refusal, match=r"lacks packages for \.docx files") as told:
        engines.ENGINES["unstructured"].read(tmp_path / "x.docx", ParsingConfig())
    assert told.value.status == "unsupported"
