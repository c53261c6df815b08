"""Render scanned pages: text drawn as an image, a little crooked, with specks; as png, jpg, tiff or an image-only pdf.

`style: {scan: poor}` is the page after a bad copier: low resolution, blurred, thin.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

from PIL import Image, ImageDraw, ImageFilter, ImageFont
from reportlab.lib.units import inch
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from nimbara.pdfs import FONTS
from nimbara.plaintext import block_text
from nimbara.sources import Block, Document, plain

DPI = 150
WIDTH = 1160
MARGIN = 90
BODY, HEAD = 25, 36


def render(document: Document) -> bytes:
    """The file in the format of its extension."""
    page = _aged(_drawn(document.blocks), document)
    buffer = io.BytesIO()
    match document.media:
        case "png":
            page.point(lambda value: 255 if value > 140 else 0).convert("1").save(buffer, "PNG", optimize=True)
        case "jpg":
            page.save(buffer, "JPEG", quality=38, dpi=(DPI, DPI))
        case "tiff":
            bilevel = page.point(lambda value: 255 if value > 140 else 0).convert("1")
            bilevel.save(buffer, "TIFF", compression="group4", dpi=(DPI, DPI))
        case "pdf":
            _pdf(page.point(lambda value: 255 if value > 140 else 0).convert("1"), buffer)
    return buffer.getvalue()


def _pdf(page: Image.Image, buffer: io.BytesIO) -> None:
    size = page.width / DPI * inch, page.height / DPI * inch
    canvas = Canvas(buffer, pagesize=size, invariant=1)
    canvas.drawImage(ImageReader(page), 0, 0, *size)
    canvas.save()


def _drawn(blocks: list[Block]) -> Image.Image:
    """The clean page, as high as its text."""
    lines = list(_lines(blocks))
    height = 2 * MARGIN + sum(step for _, _, step in lines)
    page = Image.new("L", (WIDTH, height), 255)
    draw = ImageDraw.Draw(page)
    top = MARGIN
    for cells, font, step in lines:
        for left, text in cells:
            draw.text((MARGIN + left, top), text, font=font, fill=0)
        top += step
    return page


def _lines(blocks: list[Block]) -> Iterator[tuple[list[tuple[int, str]], ImageFont.FreeTypeFont, int]]:
    """Texts with their place on the line, the font, and the way to the next line."""
    width = WIDTH - 2 * MARGIN
    for block in blocks:
        level = block.level if block.kind == "heading" else None
        size = {1: HEAD, 2: BODY + 4}.get(level or 0, BODY)
        font = ImageFont.truetype(
            str(FONTS / ("VeraBd.ttf" if level else "Vera.ttf")), size, layout_engine=ImageFont.Layout.BASIC
        )
        step = int(size * 1.45)
        if block.kind == "table":
            column = width // len(block.rows[0])
            for row in block.rows:
                yield [(index * column, plain(cell)) for index, cell in enumerate(row)], font, step
        else:
            for line in _wrapped(plain(block_text(block, "scan")), font, width):
                yield [(0, line)], font, step
        yield [], font, step // 2


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and font.getlength(longer) > width:
            yield line
            longer = word
        line = longer
    yield line


def _aged(page: Image.Image, document: Document) -> Image.Image:
    """Turned by half a degree at most, with specks; much worse for a poor copy."""
    chance = random.Random(document.doc_id)
    page = page.rotate(chance.uniform(-0.4, 0.4), resample=Image.Resampling.BICUBIC, fillcolor=255)
    if document.style.get("scan") == "poor":
        small = page.resize((int(page.width * 0.28), int(page.height * 0.28)), Image.Resampling.BOX)
        page = small.filter(ImageFilter.GaussianBlur(0.4)).resize(page.size, Image.Resampling.BILINEAR)
        page = page.point(lambda value: 255 if value > 185 else 0)
    draw = ImageDraw.Draw(page)
    for _ in range(160):
        left, top = chance.randrange(page.width), chance.randrange(page.height)
        draw.point((left, top), fill=chance.choice((0, 60, 120)))
    return page
