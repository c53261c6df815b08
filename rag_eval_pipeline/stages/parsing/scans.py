"""Pages of a pdf that are pictures: which ones are, and reading them by OCR. What lines become stands in `layout`.

A scanner, an archive or a signing service often prints a line of its own upon the picture. Taken for the page's text, it would
hide all that the picture says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rag_eval_pipeline.engine.worker import part_done
from rag_eval_pipeline.stages.parsing import ocr
from rag_eval_pipeline.stages.parsing.layout import Page
from rag_eval_pipeline.stages.parsing.reading import Reading

SCANNED_BELOW = 10
"""A page with fewer visible characters and a picture is a scan."""
STAMPED_BELOW = 500
"""A page with fewer, and a picture of paper below them, may be a scan with a stamp; with more, its text is taken for its own."""
COVERED = 0.6
"""Share of the page that pictures cover, at least, where it may be a scan."""
LOOKED_AT, LOOKED_AT_PIXELS = 50, 4_000_000
"""Dots an inch at which paper and ink are told apart, and how many at most."""
PAPER, INK = 0.5, 0.003
"""Shares of the page, at least: light, and dark where no text of its own stands."""
RICHER = 2
"""A stamped page is read by OCR where that gives so many times its own characters."""


def is_scan(page: Page, pictures: int) -> bool:
    """A page with hardly a visible character and a picture."""
    return pictures > 0 and _characters(line.text for line in page.lines) < SCANNED_BELOW


def with_scans_read(pages: Sequence[Page], document: Any, reading: Reading, config: Any) -> list[Page]:
    """The pages, those that are pictures as OCR reads them; what was not read is remarked.

    Args:
        pages: with their own text.
        document: pdfium's.
        reading: takes the engine's name, and the remarks.
        config: of the stage.
    """
    wanted = [page for page in pages if page.scanned or _is_stamped(page, document)]
    if not wanted:
        return list(pages)
    if (name := ocr.engine(config.ocr)) == "none":
        reading.remarks += [f"page {page.number} is a scan, and pipeline.parsing.ocr is none" for page in wanted]
        return [Page(page.number, page.height, scanned=True) if page.scanned else page for page in pages]
    sheets = {}
    for page in wanted:
        sheet = ocr.read_sheet(*_picture(document[page.number - 1], config), config)
        part_done()
        own = _characters(line.text for line in page.lines)
        if page.scanned or _characters(line.text for line in sheet.lines) >= RICHER * own:
            sheets[page.number] = sheet
    reading.parser += f"+{name}" if sheets else ""
    read = {page.number: page for page in ocr.pages_of(sheets, config)}
    return [read.get(page.number, page) for page in pages]


def _characters(texts: Iterator[str]) -> int:
    return sum(len("".join(text.split())) for text in texts)


def _is_stamped(page: Page, document: Any) -> bool:
    """Whether there is writing in the picture below a page's few words."""
    if len(page.items) != len(page.lines) or _characters(line.text for line in page.lines) >= STAMPED_BELOW:
        return False
    source = document[page.number - 1]
    found = _covered(source) >= COVERED and _has_ink(source, page)
    source.close()
    return found


def _covered(page: Any) -> float:
    """Share of a page that its pictures cover; some scanners cut one into stripes."""
    import pypdfium2.raw as pdfium

    width, height = page.get_size()
    area = 0.0
    for picture in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = picture.get_bounds()
        area += max(min(right, width) - max(left, 0), 0) * max(min(top, height) - max(bottom, 0), 0)
    return area / (width * height) if width * height else 0.0


def _has_ink(source: Any, page: Page) -> bool:
    """Whether a page looks like paper that is written on where no text of its own stands."""
    width, height = source.get_size()
    scale = min(LOOKED_AT / 72, (LOOKED_AT_PIXELS / (width * height)) ** 0.5)
    pixels = np.array(source.render(scale=scale, grayscale=True).to_pil())
    dark = pixels < 128
    for line in page.lines:
        low, high = len(pixels) - int(line.bottom * scale) + 1, len(pixels) - int(line.top * scale) - 1
        dark[max(high, 0) : max(low, 0), max(int(line.left * scale) - 1, 0) : int(line.right * scale) + 2] = False
    return bool((pixels >= 160).mean() >= PAPER and dark.mean() >= INK)


def _picture(page: Any, config: Any) -> tuple[Any, float]:
    """A page as it looks, and its dpi."""
    width, height = page.get_size()
    scale = config.dpi / 72
    if width * height * scale * scale > config.max_pixels:
        scale = (config.max_pixels / (width * height)) ** 0.5
    scale = min(scale, (ocr.LONGEST_SIDE - 1) / max(width, height))
    image = page.render(scale=scale, grayscale=True).to_pil()
    page.close()
    return image, scale * 72
