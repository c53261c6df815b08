import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.engine.plugins import PluginError
from rag_eval_pipeline.measures.fidelity import cer
from rag_eval_pipeline.stages.parsing import ocr, transform
from rag_eval_pipeline.stages.parsing.quality import METRICS, measure
from rag_eval_pipeline.stages.parsing.tables import Blocks, Parsed, ParsedTables
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, run
from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.stages.source.transform import SourceConfig
from rag_eval_pipeline.stages.source.transform import run as list_documents
from rag_eval_pipeline.warehouse.measurement import ROW
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform
from rag_eval_pipeline_tests.unit.stages import documents as made
from rag_eval_pipeline_tests.unit.stages.test_source import files

HERE = "rag_eval_pipeline_tests.unit.stages.parsers"
OUTPUT = {
    "doc_id": pl.String,
    "text": pl.String,
    "blocks": pl.List(
        pl.Struct({"kind": pl.String, "level": pl.Int64, "page": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    ),
    "tables": pl.List(pl.String),
}
needs_tesseract = pytest.mark.skipif(ocr.tesseract() is None, reason="tesseract is not installed")


def parse(folder, config, runtime=None, **frames):
    runtime = replace(runtime or Runtime.plain(), files=folder)
    documents = list_documents({"files": files(folder)}, SourceConfig(), runtime)["documents"]
    return run({"documents": documents, **frames}, config, runtime), documents


def statuses(tables):
    return dict(tables["parsed"].select("doc_id", "status").iter_rows())


@pytest.fixture
def broken(tmp_path):
    """A folder of good files and of every kind of broken one."""
    made.text_pdf(tmp_path / "good.pdf")
    made.docx(tmp_path / "good.docx")
    (tmp_path / "good.txt").write_text(made.SPANISH, "utf-8")
    (tmp_path / "good-latin-1.txt").write_bytes("El año pasado costó más.".encode("latin-1"))
    (tmp_path / "truncated.pdf").write_bytes((tmp_path / "good.pdf").read_bytes()[:900])
    made.encrypted_pdf(tmp_path / "encrypted.pdf")
    made.zip_bomb_docx(tmp_path / "bomb.docx")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "deep.html").write_text("<table><tr><td>" * 1_000_000)
    made.huge_png(tmp_path / "huge.png")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 100)
    (tmp_path / "slides.pptx").write_bytes(b"PK\x03\x04")
    (tmp_path / "spaces.md").write_text(" \n ")
    return tmp_path


def test_broken_files_are_status_rows_and_good_ones_are_read(broken):
    tables, documents = parse(broken, ParsingConfig(seconds=30), Runtime(files=broken, workers=2))
    assert tables["parsed"].height == documents.height
    assert statuses(tables) == {
        "good.pdf": "ok",
        "good.docx": "ok",
        "good.txt": "ok",
        "good-latin-1.txt": "ok",
        "truncated.pdf": "error",
        "encrypted.pdf": "encrypted",
        "bomb.docx": "too_large",
        "empty.txt": "empty",
        "deep.html": "error",
        "huge.png": "too_large",
        "broken.png": "error",
        "slides.pptx": "unsupported",
        "spaces.md": "empty",
    }
    bad = tables["parsed"].filter(pl.col("status") != "ok")
    assert bad["error"].null_count() == 0
    assert bad.filter(pl.col("doc_id") != "spaces.md")["text"].str.len_chars().sum() == 0
    assert set(tables["blocks"]["doc_id"]) <= {"good.pdf", "good.docx", "good.txt", "good-latin-1.txt"}


def test_tables_are_the_same_with_and_without_workers(broken):
    config = ParsingConfig()
    apart, _ = parse(broken, config, Runtime(files=broken, workers=2))
    here, _ = parse(broken, config)
    for name in ("parsed", "blocks", "parsed_tables"):
        drop = [column for column in ("seconds",) if column in apart[name].columns]
        assert apart[name].drop(drop).equals(here[name].drop(drop))


def test_a_document_that_never_ends_is_a_timeout_and_the_others_go_on(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("loop" if number == 3 else f"fine {number}")
    started = time.monotonic()
    config = ParsingConfig(parser=f"{HERE}:Looping", seconds=1)
    tables, _ = parse(tmp_path, config, Runtime(files=tmp_path, workers=2))
    assert statuses(tables) == {f"{number}.txt": "timeout" if number == 3 else "ok" for number in range(6)}
    assert time.monotonic() - started < 30


# A user's own ----------------------------------------------------------------------------------------------------------


def test_a_users_parser_reads_every_document(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    tables, _ = parse(tmp_path, ParsingConfig(parser=f"{HERE}:Shouting"))
    assert tables["parsed"].select("text", "parser").rows() == [("WORDS", f"{HERE}:Shouting")]
    assert tables["blocks"].select("kind", "start", "end").rows() == [("heading", 0, 3)]
    assert tables["parsed_tables"]["html"].to_list() == ["<table></table>"]


@pytest.mark.parametrize(("name", "says"), [("Wrong", "3 code points"), ("Silent", "text")])
def test_a_users_parser_that_breaks_its_promise_is_an_error_row(tmp_path, name, says):
    (tmp_path / "a.txt").write_text("words")
    tables, _ = parse(tmp_path, ParsingConfig(parser=f"{HERE}:{name}"))
    assert tables["parsed"]["status"].to_list() == ["error"]
    assert says in tables["parsed"]["error"][0]


def test_an_unknown_parser_is_refused():
    with pytest.raises(ValidationError, match="import path"):
        ParsingConfig(parser="nonsense")
    with pytest.raises(PluginError):
        transform.prepare(ParsingConfig(parser="no.such.module:Class"))


def test_null_in_the_config_means_off():
    config = ParsingConfig.model_validate({"import": None, "ocr": None})
    assert (config.imported, config.ocr) == (False, "none")


# Import ----------------------------------------------------------------------------------------------------------------


def imported(rows):
    return pl.DataFrame(rows, schema=OUTPUT, orient="row")


def test_imported_texts_stand_instead_of_read_ones(tmp_path):
    for name in ("a.txt", "b.txt", "slides.pptx", "empty.txt"):
        (tmp_path / name).write_bytes(b"" if name == "empty.txt" else b"PK\x03\x04")
    block = {"kind": "heading", "level": 1, "page": 2, "start": 4, "end": 7}
    output = imported(
        [
            ("a.txt", "ab\r\ncde\r\n", [block], ["<table></table>"]),
            ("slides.pptx", "of slides", None, None),
            ("empty.txt", None, [], []),
        ]
    )
    config = ParsingConfig.model_validate({"import": True})
    tables, _ = parse(tmp_path, config, **{"output:parsed": output})
    assert statuses(tables) == {"a.txt": "ok", "b.txt": "missing", "slides.pptx": "ok", "empty.txt": "empty"}
    text = tables["parsed"].filter(pl.col("doc_id") == "a.txt")["text"][0]
    assert text == "ab\ncde\n"
    (row,) = tables["blocks"].to_dicts()
    assert text[row["start"] : row["end"]] == "cde"
    assert (row["kind"], row["level"], row["page"]) == ("heading", 1, 2)


def test_an_import_without_its_file_or_with_wrong_rows_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    config = ParsingConfig.model_validate({"import": True})
    with pytest.raises(ValueError, match=r"outputs/parsed\.jsonl is absent"):
        parse(tmp_path, config)
    with pytest.raises(ValueError, match=r"zzz\.txt"):
        parse(tmp_path, config, **{"output:parsed": imported([("zzz.txt", "x", None, None)])})
    block = {"kind": "heading", "level": 1, "page": 2, "start": 0, "end": 9}
    with pytest.raises(ValueError, match=r"a\.txt.*1 code points"):
        parse(tmp_path, config, **{"output:parsed": imported([("a.txt", "x", [block], None)])})


# OCR -------------------------------------------------------------------------------------------------------------------


PHOTOTEST = (
    "This is a lot of 12 point text to test the ocr code and see if it works on all types of file format. "
    + "The quick brown dog jumped over the lazy fox. " * 4
).strip()


def read(path, folder, **config):
    target = folder / path.name
    target.write_bytes(path.read_bytes())
    tables, _ = parse(folder, ParsingConfig(**config))
    (row,) = tables["parsed"].to_dicts()
    assert row["status"] == "ok", row["error"]
    return row


@needs_tesseract
def test_tesseract_reads_six_languages_with_their_accents(shared, tmp_path):
    row = read(shared("data", "tesseract", "eurotext.tif"), tmp_path, ocr="tesseract")
    reference = shared("data", "tesseract", "eurotext.txt").read_text("utf-8")
    assert cer(reference, row["text"]).value < 0.02


@pytest.mark.full
def test_the_wheels_engine_reads_where_tesseract_is_not_installed(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(ocr, "tesseract", lambda: None)
    row = read(shared("data", "tesseract", "phototest.tif"), tmp_path, ocr="auto")
    assert row["parser"] == "rapidocr"
    assert cer(PHOTOTEST, row["text"]).value < 0.02


@pytest.mark.full
@pytest.mark.parametrize("name", ["phototest-rotated-180.png", "phototest-rotated-L.png", "phototest-rotated-R.png"])
def test_the_wheels_engine_turns_pages_upright(shared, tmp_path, name):
    row = read(shared("data", "tesseract", name), tmp_path, ocr="rapidocr")
    assert cer(PHOTOTEST, row["text"]).value < 0.02


@pytest.mark.parametrize(
    ("tall", "labels", "turns"),
    [
        (False, ["0", "0", "0"], 0),
        (True, ["0", "0", "0"], 1),
        (False, ["180", "180", "0"], 2),
        (True, ["180", "180", "180"], 3),
        (False, ["180", "0", "0"], 0),
    ],
)
def test_most_of_the_text_says_which_way_a_page_is_turned(tall, labels, turns):
    width, height = (10, 100) if tall else (100, 10)
    box = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    upright_digit = np.array([[0, 0], [5, 0], [5, 12], [0, 12]], dtype=np.float32)
    found = SimpleNamespace(boxes=[box, box, box, *[upright_digit] * 9], txts=["some words"] * 3 + ["1"] * 9)
    engine = SimpleNamespace(
        crop_text_regions=lambda _pixels, boxes: boxes,
        text_cls=lambda crops: SimpleNamespace(cls_res=[(label, 0.99) for label in labels[: len(crops)]]),
    )
    assert ocr._quarter_turns(engine, None, found) == turns


@needs_tesseract
@pytest.mark.parametrize("name", ["phototest.tif", "phototest-rotated-180.png", "phototest-rotated-L.png"])
def test_turned_pages_read_as_upright_ones(shared, tmp_path, name):
    row = read(shared("data", "tesseract", name), tmp_path, ocr="tesseract")
    assert cer(PHOTOTEST, row["text"]).value < 0.02


@needs_tesseract
def test_sides_beyond_tesseract_are_too_large_and_scans_are_rendered_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(ocr, "LONGEST_SIDE", 1000)
    made.picture(["Two words"]).save(tmp_path / "a.png")
    made.scanned_pdf(tmp_path / "b.pdf", ["Two words"])
    tables, _ = parse(tmp_path, ParsingConfig(ocr="tesseract"))
    rows = {row["doc_id"]: row for row in tables["parsed"].to_dicts()}
    assert rows["a.png"]["status"] == "too_large"
    assert "1500 x 200 pixels; tesseract reads sides of up to 1000" in rows["a.png"]["error"]
    assert rows["b.pdf"]["text"].strip() == "Two words"


@needs_tesseract
def test_what_tesseract_cannot_read_is_told_by_its_size(tmp_path, monkeypatch):
    def failing(command, *given):
        raise subprocess.CalledProcessError(1, command)

    made.picture(["Two words"]).save(tmp_path / "a.png")
    config = ParsingConfig(ocr="tesseract")
    monkeypatch.setattr(ocr, "run_tool", failing)  # its version is known: `needs_tesseract` asked
    with pytest.raises(Refusal, match="tesseract cannot read a picture of 1500 x 200 pixels"):
        ocr.read_image(tmp_path / "a.png", config)


@needs_tesseract
def test_scanned_pdf_pages_and_every_page_of_a_tiff_are_read(tmp_path):
    lines = ["The warranty lasts two years.", "La garantía dura dos años."]
    made.scanned_pdf(tmp_path / "scan.pdf", lines)
    pages = [made.picture([line]) for line in lines]
    pages[0].save(tmp_path / "scan.tiff", save_all=True, append_images=pages[1:])
    made.picture(lines).convert("RGBA").save(tmp_path / "scan.png")
    tables, documents = parse(tmp_path, ParsingConfig(ocr="tesseract"))
    found = {row["doc_id"]: row for row in tables["parsed"].to_dicts()}
    for row in found.values():
        assert " ".join(row["text"].split()) == " ".join(lines), row["doc_id"]
    assert found["scan.pdf"]["parser"] == "pypdfium2+tesseract"
    assert found["scan.tiff"]["pages"] == 2
    assert tables["blocks"].filter(pl.col("doc_id") == "scan.tiff")["page"].to_list() == [1, 2]
    assert dict(documents.select("doc_id", "doc_class").iter_rows()) == {
        "scan.pdf": "pdf", "scan.tiff": "scan", "scan.png": "scan",
    }  # fmt: skip


def test_a_missing_engine_or_language_is_named_before_anything_runs(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setattr(ocr, "tesseract", lambda: None)
    with pytest.raises(ValueError, match="install tesseract-ocr"):
        parse(tmp_path, ParsingConfig(ocr="tesseract"))
    monkeypatch.setattr(ocr, "tesseract", lambda: ("tesseract 5", frozenset({"eng"})))
    with pytest.raises(ValueError, match="fra"):
        parse(tmp_path, ParsingConfig(ocr="tesseract", ocr_languages=("fra",)))
    assert transform.identity(ParsingConfig(ocr="auto")) == {"ocr": "tesseract 5 eng osd=False"}


# Quality ---------------------------------------------------------------------------------------------------------------


def quality(parsed, references):
    documents = pl.DataFrame(
        [(doc_id, "txt", "txt", 100) for doc_id in parsed],
        schema=["doc_id", "doc_class", "media", "bytes"],
        orient="row",
    )
    rows = [(doc_id, *found, None) for doc_id, found in parsed.items()]
    frame = pl.DataFrame(
        rows, schema={"doc_id": pl.String, "text": pl.String, "status": pl.String, "pages": pl.Int64}, orient="row"
    )
    gold = Gold(references=pl.DataFrame(list(references.items()), schema=SCHEMAS["references"], orient="row"))
    frames = {
        "documents": documents,
        "parsed": frame,
        "blocks": conform(Blocks, []),
        "parsed_tables": conform(ParsedTables, []),
    }
    rows = measure(frames, gold, ParsingConfig(), Settings())
    assert dict(rows.schema) == ROW
    assert set(rows["metric"]) == {metric.name for metric in METRICS}
    assert rows.height == (len(METRICS) + 2) * len(parsed)  # cer and wer in two forms
    return {(row["item_id"], row["metric"], row["params"]): (row["value"], row["status"]) for row in rows.to_dicts()}


USUAL, RAW, NONE = '{"form": "nfc+ws"}', '{"form": "none"}', "{}"


def test_every_document_has_every_metric_or_a_reason():
    found = quality(
        {
            "a": ("Mars has two m00ns, Phobos and Deirnos.", "ok"),
            "b": ("", "timeout"),
            "c": ("unlabelled", "ok"),
            "d": ("", "ok"),
            "e": ("x", "ok"),
        },
        {"a": "Mars has two moons, Phobos and Deimos.", "b": "some words", "d": "", "e": ""},
    )
    assert found["a", "cer", USUAL][0] == pytest.approx(4 / 38)
    assert found["a", "wer", USUAL][0] == pytest.approx(2 / 7)
    assert found["b", "cer", RAW] == (1.0, "timeout")
    assert found["b", "coverage", USUAL] == (0.0, "timeout")
    assert found["b", "length_ratio", NONE] == (0.0, "timeout")
    assert found["c", "cer", USUAL] == (None, "no_gold")
    assert found["c", "length_ratio", NONE][1] == "estimated"
    assert found["d", "cer", USUAL] == (0.0, "scored")
    assert found["e", "cer", USUAL] == (None, "empty_reference")
    assert found["e", "length_ratio", NONE] == (None, "empty_reference")


def test_an_empty_version_measures_nothing():
    frames = {
        "documents": conform(Documents, []),
        "parsed": conform(Parsed, []),
        "blocks": conform(Blocks, []),
        "parsed_tables": conform(ParsedTables, []),
    }
    assert measure(frames, Gold(), ParsingConfig(), Settings()).is_empty()
