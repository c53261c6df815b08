"""Read pdf: the text layer in the order in which the producer wrote it, ruled tables, scanned pages by OCR.

Characters and their boxes come from pdfium, ruled tables from pdfplumber (only on pages that have ruling lines: it is slow).
What lines and tables of a page become is the same whoever found them; other engines stand in `engines`.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.stages.parsing import ocr
from rag_eval_pipeline.stages.parsing.reading import SOFT_HYPHENS, Cell, Grid, Reading, join_lines

HEAD = 1024
"""Bytes at the start of a file in which its mark must stand."""
END_MARK = 4096
"""Bytes at the end of a file in which its end mark must stand."""
RULES = 3
"""A page with fewer drawn paths has no ruled table."""
SCANNED_BELOW = 10
"""A page with fewer visible characters and a picture is a scan."""
LARGER = 1.15
"""A line this much higher than the body's text is a heading."""
MARGIN = 0.08
"""Share of the page's height, above and below, in which running headers and footers stand."""
_BULLET = re.compile(r"^\s*(?:[•◦▪●‣∙·■□–—*-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])(?:\s+|$)")
_BULLET_ALONE = re.compile(r"^\s*[•◦▪●‣∙■□]\s*$")


@dataclass
class Line:
    """A line of text and where it stands, in points from the page's lower left corner."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    bold: bool = False

    @property
    def height(self) -> float:
        """Height of its characters."""
        return self.top - self.bottom


@dataclass
class Page:
    """Lines and tables of a page, in order; or a picture of it."""

    number: int
    height: float
    items: list[Line | Grid] = field(default_factory=list)
    scanned: bool = False

    @property
    def lines(self) -> list[Line]:
        """Its lines, without tables."""
        return [item for item in self.items if isinstance(item, Line)]


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
        pages = list(pages_of(document, path, reading))
        _write(pages, document, reading, config)
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


def is_scan(page: Page, pictures: int) -> bool:
    """A page with hardly a visible character and a picture."""
    return pictures > 0 and sum(len("".join(line.text.split())) for line in page.lines) < SCANNED_BELOW


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


def _write(pages: list[Page], document: Any, reading: Reading, config: Any) -> None:
    heights: Counter[float] = Counter()
    for page in pages:
        for line in page.lines:
            heights[round(line.height, 1)] += len(line.text)
    body = _weighted_median(heights)
    larger = sorted({height for height in heights if body and height > LARGER * body}, reverse=True)
    furniture = _running(pages)
    for page in pages:
        if page.scanned:
            _scan(page, document, reading, config)
            continue
        for group in _groups(page, furniture):
            if isinstance(group, Grid):
                reading.add_table(group, page.number)
                continue
            kind, level = _kind(group, page, furniture, body, larger)
            reading.add(kind, _tidy(join_lines([line.text for line in group])), level, page.number)


def _tidy(text: str) -> str:
    return re.sub(f"[{SOFT_HYPHENS}]", "", text)


def _scan(page: Page, document: Any, reading: Reading, config: Any) -> None:
    """Read a page that is only a picture."""
    if ocr.engine(config.ocr) == "none":
        reading.remarks.append(f"page {page.number} is a scan, and pipeline.parsing.ocr is none")
        return
    source = document[page.number - 1]
    width, height = source.get_size()
    scale = config.dpi / 72
    if width * height * scale * scale > config.max_pixels:
        scale = (config.max_pixels / (width * height)) ** 0.5
    image = source.render(scale=scale, grayscale=True).to_pil()
    source.close()
    ocr.add_picture(reading, image, config, page.number, scale * 72)
    if (name := ocr.engine(config.ocr)) not in reading.parser:
        reading.parser += f"+{name}"


def _weighted_median(heights: Counter[float]) -> float:
    half, seen = sum(heights.values()) / 2, 0
    for height in sorted(heights):
        seen += heights[height]
        if seen >= half:
            return height
    return 0.0


def _running(pages: Sequence[Page]) -> set[str]:
    """Texts (digits aside) that stand in the margins of at least three pages, and of half of all."""
    seen: defaultdict[str, set[int]] = defaultdict(set)
    for page in pages:
        for line in page.lines:
            if _in_margin(line, page):
                seen[_pattern(line.text)].add(page.number)
    return {text for text, numbers in seen.items() if len(numbers) >= max(3, len(pages) / 2)}


def _in_margin(line: Line, page: Page) -> bool:
    return line.bottom < MARGIN * page.height or line.top > (1 - MARGIN) * page.height


def _pattern(text: str) -> str:
    return re.sub(r"\d+", "#", " ".join(text.split()))


def _groups(page: Page, furniture: set[str]) -> Iterator[list[Line] | Grid]:
    """Lines that make one block."""
    group: list[Line] = []
    for item in page.items:
        if isinstance(item, Grid):
            if group:
                yield group
            group = []
            yield item
            continue
        if group and not _continues(group, item, page, furniture):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _continues(group: list[Line], line: Line, page: Page, furniture: set[str]) -> bool:
    """Whether a line goes on with the block before it: near below, of the same height and weight, no list mark."""
    last = group[-1]
    if _BULLET_ALONE.match(last.text) and len(group) == 1:
        return abs(last.bottom - line.bottom) < last.height
    if _BULLET.match(line.text) or last.bold != line.bold:
        return False
    if any(_in_margin(part, page) and _pattern(part.text) in furniture for part in (last, line)):
        return False
    height = max(last.height, line.height, 0.1)
    near = -0.8 * height < last.bottom - line.top < 0.5 * height and line.top < last.top + 0.2 * height
    alike = abs(last.height - line.height) <= 0.12 * height
    return near and alike and line.left < last.right and last.left < line.right


def _kind(
    group: list[Line], page: Page, furniture: set[str], body: float, larger: list[float]
) -> tuple[str, int | None]:
    first = group[0]
    text = " ".join(line.text for line in group)
    if _in_margin(first, page) and _pattern(first.text) in furniture:
        return "boilerplate", None
    height = round(first.height, 1)
    short = len(text) <= 200 and len(group) <= 3
    if short and height in larger:
        return "heading", min(larger.index(height) + 1, 6)
    if short and len(group) <= 2 and all(line.bold for line in group) and not text.rstrip().endswith((".", ",", ";")):
        return "heading", min(len(larger) + 1, 6)
    return ("list_item", 1) if _BULLET.match(first.text) else ("paragraph", None)
