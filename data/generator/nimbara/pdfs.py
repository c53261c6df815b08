"""Render pdf files with a text layer, in one or two columns, whose bytes are the same on every run.

Two faults that real files have are made here: `garbled` (a font whose table of characters is wrong, so that the text layer
says other digits than the page shows) and `interleaved` (two columns written line by line across the page).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import reportlab
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics, ttfonts
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph, Spacer, Table, TableStyle

from nimbara.plaintext import block_text
from nimbara.sources import Block, Document, plain

FONTS = Path(reportlab.__file__).parent / "fonts"
"""reportlab carries Bitstream Vera, so that nothing depends on the machine's fonts."""
GARBLED_DIGITS = str.maketrans("0123456789", "8016295743")
MARGIN = 18 * mm


def register_fonts() -> None:
    """Make the embedded fonts known, fresh: a font remembers the characters of the documents before."""
    for name, file in (("Vera", "Vera.ttf"), ("VeraBd", "VeraBd.ttf")):
        pdfmetrics.registerFont(ttfonts.TTFont(name, str(FONTS / file)))


def render(document: Document) -> bytes:
    """The pdf file."""
    register_fonts()
    if document.style.get("layer") == "interleaved":
        return _interleaved(document)
    with _wrong_digits(document.style.get("layer") == "garbled"):
        return _flowing(document)


@contextmanager
def _wrong_digits(wanted: bool) -> Iterator[None]:
    """While open, embedded fonts say other digits than they draw."""
    right = ttfonts.makeToUnicodeCMap

    def wrong(name: str, subset: list[int]) -> str:
        return right(name, [ord(chr(code).translate(GARBLED_DIGITS)) for code in subset])

    if wanted:
        ttfonts.makeToUnicodeCMap = wrong
    try:
        yield
    finally:
        ttfonts.makeToUnicodeCMap = right


def _styles(small: bool) -> dict[str, ParagraphStyle]:
    size = 9.0 if small else 10.0
    body = ParagraphStyle("body", fontName="Vera", fontSize=size, leading=size * 1.4, spaceAfter=6)
    return {
        "body": body,
        "cell": ParagraphStyle("cell", parent=body, fontSize=size - 1, leading=size * 1.2, spaceAfter=0),
        "item": ParagraphStyle("item", parent=body, leftIndent=12, bulletIndent=0, spaceAfter=3),
        "h1": ParagraphStyle("h1", parent=body, fontName="VeraBd", fontSize=size + 6, leading=size + 10, spaceAfter=10),
        "h2": ParagraphStyle(
            "h2", parent=body, fontName="VeraBd", fontSize=size + 2, leading=size + 5, spaceBefore=8, keepWithNext=1
        ),
    }


def _flowing(document: Document) -> bytes:
    buffer = io.BytesIO()
    width = (A4[0] - 2 * MARGIN - (document.columns - 1) * 8 * mm) / document.columns
    frames = [
        Frame(MARGIN + index * (width + 8 * mm), MARGIN, width, A4[1] - 2 * MARGIN, 0, 0, 0, 0, id=f"column{index}")
        for index in range(document.columns)
    ]
    template = BaseDocTemplate(buffer, pagesize=A4, title=plain(document.title), author="Nimbara", invariant=1)
    template.addPageTemplates([PageTemplate("page", frames)])
    styles = _styles(document.columns > 1)
    template.build([part for block in document.blocks for part in _flowables(block, styles, width)])
    return buffer.getvalue()


def _flowables(block: Block, styles: dict[str, ParagraphStyle], width: float) -> list[Any]:
    if block.kind == "table":
        return [_table(block, styles["cell"], width), Spacer(1, 8)]
    text = escape(plain(block_text(block, "pdf")))
    style = styles["body"]
    if block.kind == "heading":
        style = styles["h1" if block.level == 1 else "h2"]
    elif block.kind == "list_item":
        style = styles["item"]
    return [Paragraph(text, style)]


def _table(block: Block, style: ParagraphStyle, width: float) -> Table:
    longest = [max(len(row[index]) for row in block.rows) + 4 for index in range(len(block.rows[0]))]
    widths = [width * length / sum(longest) for length in longest]
    table = Table([[Paragraph(escape(plain(cell)), style) for cell in row] for row in block.rows], colWidths=widths)
    lines = [("GRID", (0, 0), (-1, -1), 0.5, colors.grey), ("BACKGROUND", (0, 0), (-1, 0), colors.whitesmoke)]
    table.setStyle(TableStyle([*lines, ("VALIGN", (0, 0), (-1, -1), "TOP")]))
    return table


def _interleaved(document: Document) -> bytes:
    """Two columns whose lines were written from left to right over the whole page, as some exporters do."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4, invariant=1)
    canvas.setTitle(plain(document.title))
    gap, size, leading = 5 * mm, 9.0, 13.0
    width = (A4[0] - 2 * MARGIN - gap) / 2
    lines = list(_lines(document.blocks, width, size))
    rows = int((A4[1] - 2 * MARGIN) / leading)
    for first in range(0, len(lines), rows * 2):
        page = lines[first : first + rows * 2]
        half = -(-len(page) // 2)
        for row in range(half):
            for column, line in enumerate(page[row::half]):
                font, text = line
                canvas.setFont(font, size)
                canvas.drawString(MARGIN + column * (width + gap), A4[1] - MARGIN - (row + 1) * leading, text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _lines(blocks: list[Block], width: float, size: float) -> Iterator[tuple[str, str]]:
    """Lines of a column with their font."""
    for block in blocks:
        font = "VeraBd" if block.kind == "heading" else "Vera"
        for text in plain(block_text(block, "pdf")).replace("\t", "   ").split("\n"):
            line = ""
            for word in text.split(" "):
                longer = f"{line} {word}" if line else word
                if line and pdfmetrics.stringWidth(longer, font, size) > width:
                    yield font, line
                    longer = word
                line = longer
            yield font, line
