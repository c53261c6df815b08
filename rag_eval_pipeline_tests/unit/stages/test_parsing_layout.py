"""What lines of a page become where OCR found them: headings by their size, lists, running headers, whichever way the page lies; and
which pages are scans at all."""

from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.engine.limits import Limits
from rag_eval_pipeline.engine.pool import map_items
from rag_eval_pipeline.stages.parsing import engines, ocr
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, one
from rag_eval_pipeline_tests.unit.stages import documents as made

needs_tesseract = pytest.mark.skipif(ocr.tesseract() is None, reason="tesseract is not installed")
BODY = 34
PAGE = [
    ("Informe de la visita", 60),
    ("La visita empezó a las ocho y duró toda la mañana, con lluvia y", BODY),
    ("con mucho barro en el camino de la presa.", BODY),
    ("Trabajos hechos", 42),
    ("- Limpiar la rejilla del canal", BODY),
    ("- Cambiar el sensor de nivel", BODY),
    ("The gateway stood in water, since nobody had opened the drain of", BODY),
    ("the cabinet since the last winter.", BODY),
]
BLOCKS = [
    ("heading", 1, "Informe de la visita"),
    ("paragraph", None, "La visita empezó a las ocho"),
    ("heading", 2, "Trabajos hechos"),
    ("list_item", 1, "- Limpiar la rejilla"),
    ("list_item", 1, "- Cambiar el sensor"),
    ("paragraph", None, "The gateway stood in water"),
]


def sheet(lines=PAGE, gap=1.3):
    """A page image: lines of text, each with the size of its letters; more room where the size changes."""
    import reportlab
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (1500, 1100), 255)
    draw, y, last = ImageDraw.Draw(image), 60.0, None
    for text, size in lines:
        y += 40 if last not in (None, size) or text.startswith("The gateway") else 0
        draw.text((80, y), text, fill=0, font=ImageFont.truetype(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf", size))  # fmt: skip
        y, last = y + gap * size, size
    return image


def blocks(path, media="image", **settings):
    found = one({"file": str(path), "media": media}, ParsingConfig(**settings))
    text = found["parsed"][0]["text"]
    assert found["parsed"][0]["status"] == "ok"
    return [(b["kind"], b["level"], text[b["start"] : b["end"]]) for b in found["blocks"]]


def begins(found, expected):
    assert [(kind, level) for kind, level, _ in found] == [(kind, level) for kind, level, _ in expected]
    for (_, _, text), (_, _, start) in zip(found, expected, strict=True):
        assert text.startswith(start)


@needs_tesseract
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_headings_and_lists_of_a_scanned_page_are_told_by_size_whichever_way_it_lies(tmp_path, turn):
    if turn and "osd=True" not in ocr.identity(ParsingConfig(ocr="tesseract")):
        pytest.skip("tesseract's osd data are not installed")
    sheet().rotate(turn, expand=True).save(tmp_path / "page.png", dpi=(200, 200))
    begins(blocks(tmp_path / "page.png", ocr="tesseract"), BLOCKS)


@needs_tesseract
def test_a_scanned_pdf_is_laid_out_as_its_pictures_are(tmp_path):
    sheet().save(tmp_path / "page.pdf", "PDF", resolution=200)
    begins(blocks(tmp_path / "page.pdf", "pdf", ocr="tesseract"), BLOCKS)


@pytest.mark.parametrize("slope", [0, 7])
def test_rapidocr_tells_a_title_and_the_order_of_lines_of_a_page_that_is_not_level(tmp_path, slope):
    sheet().rotate(slope, fillcolor=255).save(tmp_path / "page.png", dpi=(200, 200))
    (kind, level, text), *rest = blocks(tmp_path / "page.png", ocr="rapidocr")
    assert (kind, level, text) == ("heading", 1, "Informe de la visita")
    assert [text[:9] for kind, _, text in rest if kind == "list_item"] == ["- Limpiar", "- Cambiar"]
    assert rest[-1][2].startswith("The gateway stood")


def test_a_picture_as_thin_as_a_line_is_read_within_bounds(tmp_path):
    from PIL import Image

    Image.new("L", (900, 1), 255).save(tmp_path / "line.png")
    (found,) = map_items(
        one, [{"file": str(tmp_path / "line.png"), "media": "image"}], ParsingConfig(ocr="rapidocr"), limits=Limits(60, 1500), workers=1
    )  # fmt: skip
    assert found[1]["parsed"][0]["status"] == "empty"


@needs_tesseract
def test_a_running_header_of_scanned_pages_is_boilerplate_and_no_heading(tmp_path):
    texts = ["The pump runs.", "The valve is shut.", "The tank is empty."]
    pages = [sheet([(f"Nimbara manual page {number}", 50), (text, BODY)]) for number, text in enumerate(texts, 1)]
    pages[0].save(tmp_path / "book.pdf", "PDF", resolution=200, save_all=True, append_images=pages[1:])
    found = blocks(tmp_path / "book.pdf", "pdf", ocr="tesseract")
    assert [kind for kind, _, _ in found] == ["boilerplate", "paragraph"] * 3
    assert [text for kind, _, text in found if kind == "paragraph"] == texts


def upon_picture(path, image, words, visible=True):
    """A page that a picture covers, and words of its own upon it."""
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(600, 440))
    canvas.drawImage(ImageReader(image.convert("RGB")), 0, 0, 600, 440)
    text = canvas.beginText(20, 428)
    text.setFont("Helvetica", 7)
    text.setTextRenderMode(0 if visible else 3)
    for word in words:
        text.textLine(word)
    canvas.drawText(text)
    canvas.save()
    return path


STAMP = "CSV: GEN-1f3a-0b77-99c2  Documento firmado electronicamente"


@needs_tesseract
@pytest.mark.parametrize("parser", ["pypdfium2", "pdfplumber", "pymupdf"])
def test_a_stamp_upon_a_scan_does_not_hide_what_the_scan_says(tmp_path, parser):
    if parser in engines.ENGINES and not engines.installed(parser):
        pytest.skip(f"{parser} is not installed")
    path = upon_picture(tmp_path / "signed.pdf", sheet(), [STAMP])
    found = one({"file": str(path), "media": "pdf"}, ParsingConfig(parser=parser, ocr="tesseract"))
    text = found["parsed"][0]["text"]
    assert found["parsed"][0]["parser"] == f"{parser}+tesseract"
    assert "GEN-1f3a" in text, "the stamp is read, too"
    for word in ("Informe de la visita", "barro en el camino", "since the last winter"):
        assert word in text


@needs_tesseract
def test_a_stamped_scan_says_that_nobody_read_it_where_there_is_no_ocr(tmp_path):
    path = upon_picture(tmp_path / "signed.pdf", sheet(), [STAMP])
    (row,) = one({"file": str(path), "media": "pdf"}, ParsingConfig(ocr="none"))["parsed"]
    assert "page 1 is a scan" in row["error"]
    assert STAMP.split()[1] in row["text"]


@needs_tesseract
def test_a_page_whose_own_text_says_what_its_picture_says_keeps_it(tmp_path):
    path = upon_picture(tmp_path / "searchable.pdf", sheet(), [text for text, _ in PAGE], visible=False)
    (row,) = one({"file": str(path), "media": "pdf"}, ParsingConfig(ocr="tesseract"))["parsed"]
    assert row["parser"] == "pypdfium2"
    assert "La visita empezó" in row["text"]


def test_words_upon_a_photograph_or_beside_a_small_picture_are_the_pages_own(tmp_path, monkeypatch):
    import numpy as np
    from PIL import Image
    from reportlab.pdfgen.canvas import Canvas

    monkeypatch.setattr(ocr, "read_sheet", lambda *_: pytest.fail("nothing is read by OCR"))
    noise = np.random.default_rng(0).integers(0, 150, (300, 400), dtype=np.uint8)
    slide = upon_picture(tmp_path / "slide.pdf", Image.fromarray(noise), ["Our plan for the year", "Three steps"])
    small = tmp_path / "small.pdf"
    canvas = Canvas(str(small), pagesize=(600, 440))
    canvas.drawString(20, 400, "A figure of the pump stands below.")
    canvas.drawInlineImage(sheet().convert("RGB"), 20, 20, 300, 220)
    canvas.save()
    for path, words in ((slide, "Our plan for the year"), (small, "A figure of the pump")):
        (row,) = one({"file": str(path), "media": "pdf"}, ParsingConfig(ocr="auto"))["parsed"]
        assert words in row["text"]
        assert row["parser"] == "pypdfium2"


def test_a_scan_that_nobody_reads_has_no_blocks_and_says_why(tmp_path):
    made.scanned_pdf(tmp_path / "scan.pdf", [made.ENGLISH])
    found = one({"file": str(tmp_path / "scan.pdf"), "media": "pdf"}, ParsingConfig(ocr="none"))
    assert found["blocks"] == []
    assert "pipeline.parsing.ocr is none" in found["parsed"][0]["error"]


@given(st.lists(st.tuples(st.floats(5, 60), st.integers(1, 90)), min_size=1, max_size=40))
def test_sizes_within_the_error_of_most_of_the_text_become_its_size_and_larger_ones_stay_larger(lines):
    sizes = [size for size, _ in lines]
    errors = [max(0.09 * size, 2.5) for size in sizes]
    even = ocr._evened(sizes, errors, [weight for _, weight in lines])
    body = median([size for size, weight in lines for _ in range(weight)])
    for size, error, made_even in zip(sizes, errors, even, strict=True):
        assert (made_even == body) == (size - body <= error)
        assert made_even >= body
        assert size <= body or abs(made_even - size) <= max(errors)
    # The same order: nothing that was larger becomes smaller than what it was larger than.
    ordered = [value for _, value in sorted(zip(sizes, even, strict=True))]
    assert ordered == sorted(ordered)
