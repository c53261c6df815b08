"""Read pdf: the text layer in the order in which the producer wrote it, ruled tables, scanned pages by OCR.

Characters and their boxes come from pdfium, ruled tables from pdfplumber (only on pages that have ruling lines: it is slow).
What lines and tables of a page become is the same whoever found them (`layout`); other engines stand in `engines`.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.engine.worker import part_done
from rag_eval_pipeline.stages.parsing.layout import Line, Page, write
from rag_eval_pipeline.stages.parsing.reading import Cell, Grid, Reading
from rag_eval_pipeline.stages.parsing.scans import is_scan, with_scans_read

HEAD = 1024
"""Bytes at the start of a file in which its mark must stand."""
END_MARK = 4096
"""Bytes at the end of a file in which its end mark must stand."""
RULES = 3
"""A page with fewer drawn paths has no ruled table."""

PagesOf = Callable[[Any, Path, Reading], Iterator[Page]]
"""(pdfium's document, its file, what is being filled) -> its pages in order; remarks go to the reading."""


def read_pdf(path: Path, config: Any) -> Reading:
    """Text, blocks and tables of all pages.

    Raises:
        Refusal: encrypted, truncated, broken, or too many pages.
    """
    return read_pages(path, config, "pypdfium2", _pages)


def read_pages(path: Path, config: Any, name: str, pages_of: PagesOf) -> Reading:
    """A pdf whose lines and tables one engine finds; refusals, blocks, running headers and OCR are those of every engine.

    Raises:
        Refusal: encrypted, truncated, broken, or too many pages.
    """
    document = open_pdf(path)
    try:
        count = len(document)
        if count > config.max_pages:
            raise Refusal("too_large", f"{count} pages; pipeline.parsing.max_pages is {config.max_pages}")
        reading = Reading(name, pages=count)
        pages = []
        for page in pages_of(document, path, reading):
            pages.append(page)
            part_done()
        write(with_scans_read(pages, document, reading, config), reading)
    finally:
        document.close()
    return reading


def open_pdf(path: Path) -> Any:
    """The file as pdfium's document.

    Raises:
        Refusal: encrypted, truncated or broken.
    """
    import pypdfium2

    with path.open("rb") as stream:
        if b"%PDF-" not in stream.read(HEAD):
            raise Refusal("error", "no pdf (it has no %PDF mark): hand it in under its own format")
        stream.seek(max(path.stat().st_size - END_MARK, 0))
        truncated = b"%%EOF" not in stream.read()
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error):
            raise Refusal("encrypted", "the pdf needs a password: hand in a copy without one") from error
        reason = (
            "the pdf is truncated (it has no end mark)" if truncated else "the pdf is broken (pdfium cannot open it)"
        )
        raise Refusal("error", f"{reason}: hand in a whole copy") from error
    if truncated:  # pdfium repairs what is there; that would lose the rest in silence
        document.close()
        raise Refusal("error", "the pdf is truncated (it has no end mark): hand in a whole copy")
    return document


def _pages(document: Any, path: Path, reading: Reading) -> Iterator[Page]:
    import pypdfium2.raw as pdfium

    for number in range(1, len(document) + 1):
        page = _page(document, number)
        kinds = Counter(entry.type for entry in page.get_objects(max_depth=3))
        tables: list[tuple[tuple[float, float, float, float], Grid]] = []
        if kinds[pdfium.FPDF_PAGEOBJ_PATH] >= RULES and page.get_rotation() == 0:
            try:
                tables = _tables(path, number)
            except MemoryError:
                raise
            except Exception as error:  # its text is read all the same
                reading.remarks.append(f"tables of page {number} were not found ({type(error).__name__})")
        found = Page(number, page.get_height(), _items(page, tables))
        found.scanned = is_scan(found, kinds[pdfium.FPDF_PAGEOBJ_IMAGE])
        page.close()
        yield found


def _page(document: Any, number: int) -> Any:
    import pypdfium2

    try:
        return document[number - 1]
    except pypdfium2.PdfiumError as error:  # a loop in the page tree, or a count that its pages belie
        raise Refusal(
            "error", f"the pdf is broken: page {number} of {len(document)} cannot be read; hand in a whole copy"
        ) from error


def _items(page: Any, tables: Sequence[tuple[tuple[float, float, float, float], Grid]]) -> list[Line | Grid]:
    """Lines and tables in the order of the page's text; a table stands where its first character stands."""
    import pypdfium2.raw as pdfium

    textpage = page.get_textpage()
    raw, box = textpage.raw, pdfium.FS_RECTF()
    items: list[Line | Grid] = []
    placed: set[int] = set()
    characters: list[str] = []
    boxes: list[tuple[float, float, float, float]] = []
    first = -1

    def end_line() -> None:
        text = "".join(characters).strip(" ")
        if text.strip() and boxes:
            left, right = min(b[0] for b in boxes), max(b[2] for b in boxes)
            bottom, top = median(b[1] for b in boxes), median(b[3] for b in boxes)
            items.append(Line(text, left, bottom, right, top, _is_bold(raw, first)))
        characters.clear()
        boxes.clear()

    for index in range(pdfium.FPDFText_CountChars(raw)):
        code = pdfium.FPDFText_GetUnicode(raw, index)
        if code in (10, 13):
            end_line()
            continue
        if code == 0 or code > 0x10FFFF:
            continue
        character = chr(code)
        if not character.isspace():
            pdfium.FPDFText_GetLooseCharBox(raw, index, ctypes.byref(box))
            table = _holding(tables, (box.left + box.right) / 2, (box.bottom + box.top) / 2)
            if table is not None:
                if table not in placed:
                    end_line()
                    placed.add(table)
                    items.append(tables[table][1])
                continue
            if not boxes:
                first = index
            boxes.append((box.left, box.bottom, box.right, box.top))
        characters.append(character)
    end_line()
    items += [grid for number, (_, grid) in enumerate(tables) if number not in placed]
    textpage.close()
    return _with_surrogates(items)


def _with_surrogates(items: list[Line | Grid]) -> list[Line | Grid]:
    """Some producers write characters beyond the basic plane as two halves."""
    for item in items:
        if isinstance(item, Line) and any("\ud800" <= character <= "\udfff" for character in item.text):
            item.text = item.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return items


def _holding(tables: Sequence[tuple[tuple[float, float, float, float], Grid]], x: float, y: float) -> int | None:
    for number, ((left, bottom, right, top), _) in enumerate(tables):
        if left - 1 <= x <= right + 1 and bottom - 1 <= y <= top + 1:
            return number
    return None


def _is_bold(textpage: Any, index: int) -> bool:
    import pypdfium2.raw as pdfium

    buffer, flags = ctypes.create_string_buffer(128), ctypes.c_int()
    length = pdfium.FPDFText_GetFontInfo(textpage, index, buffer, 128, ctypes.byref(flags))
    name = buffer.value.decode("utf-8", "replace").lower() if 0 < length <= 128 else ""
    return "bold" in name or "black" in name or pdfium.FPDFText_GetFontWeight(textpage, index) >= 600


def _tables(path: Path, number: int) -> list[tuple[tuple[float, float, float, float], Grid]]:
    """Ruled tables of a page with their boxes, in pdfium's coordinates."""
    import pdfplumber

    found = []
    with pdfplumber.open(path, pages=[number]) as document:
        page = document.pages[0]
        height = page.mediabox[3]
        for table in page.find_tables():
            if grid := grid_of(table.extract()):
                left, top, right, bottom = table.bbox
                found.append(((left, height - bottom, right, height - top), grid))
    return found


def grid_of(rows: Sequence[Sequence[str | None]]) -> Grid | None:
    """What an engine took for a table; None where it is none: one row, one column, or no text at all."""
    filled = [[cell or "" for cell in row] for row in rows]
    if len(filled) < 2 or max(map(len, filled)) < 2 or not any(cell.strip() for row in filled for cell in row):
        return None
    return Grid([[Cell(cell) for cell in row] for row in filled])
