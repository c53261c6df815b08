"""What the lines of a document's pages become: paragraphs, headings by size and weight, list items, running headers and footers.

Here: lines with their places and sizes, whoever found them. Not here: finding them in a pdf (`pdf`, `engines`) or in a picture (`ocr`).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag_eval_pipeline.stages.parsing.reading import SOFT_HYPHENS, Grid, Reading, join_lines

LARGER = 1.15
"""A line this much higher than the body's text is a heading."""
MARGIN = 0.08
"""Share of the page's height, above and below, in which running headers and footers stand."""
_BULLET = re.compile(r"^\s*(?:[•◦▪●‣∙·■□–—*-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])(?:\s+|$)")
_BULLET_ALONE = re.compile(r"^\s*[•◦▪●‣∙■□]\s*$")


@dataclass
class Line:
    """A line of text and where it stands, in points from the page's lower left corner.

    Attributes:
        text: what it says.
        left: edge.
        bottom: edge.
        right: edge.
        top: edge.
        bold: its weight.
        paragraph: number in the page, where who found the line tells paragraphs apart.
    """

    text: str
    left: float
    bottom: float
    right: float
    top: float
    bold: bool = False
    paragraph: int | None = None

    @property
    def height(self) -> float:
        """Height of its characters."""
        return self.top - self.bottom


@dataclass
class Page:
    """Lines and tables of a page, in order; of a scanned one, what was read from its picture."""

    number: int
    height: float
    items: list[Line | Grid] = field(default_factory=list)
    scanned: bool = False

    @property
    def lines(self) -> list[Line]:
        """Its lines, without tables."""
        return [item for item in self.items if isinstance(item, Line)]


def write(pages: Sequence[Page], reading: Reading) -> None:
    """Write what the pages say, block by block."""
    furniture = _running(pages)
    sizes = {scanned: _sizes([page for page in pages if page.scanned == scanned]) for scanned in (False, True)}
    for page in pages:
        for group in _groups(page, furniture):
            if isinstance(group, Grid):
                reading.add_table(group, page.number)
                continue
            kind, level = _kind(group, page, furniture, sizes[page.scanned])
            reading.add(kind, _tidy(join_lines([line.text for line in group])), level, page.number)


def _sizes(pages: Sequence[Page]) -> list[float]:
    """Heights of lines that are larger than most of the text, the largest first."""
    heights: Counter[float] = Counter()
    for page in pages:
        for line in page.lines:
            heights[round(line.height, 1)] += len(line.text)
    body = _weighted_median(heights)
    # OCR's heights are even, so that what is higher at all is larger.
    least = body if all(page.scanned for page in pages) else LARGER * body
    return sorted({height for height in heights if body and height > least}, reverse=True)


def _tidy(text: str) -> str:
    return re.sub(f"[{SOFT_HYPHENS}]", "", text)


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
    if line.paragraph is not None:
        return line.paragraph == last.paragraph and math.isclose(line.height, last.height, abs_tol=0.05)
    height = max(last.height, line.height, 0.1)
    near = -0.8 * height < last.bottom - line.top < 0.5 * height and line.top < last.top + 0.2 * height
    alike = abs(last.height - line.height) <= 0.12 * height
    return near and alike and line.left < last.right and last.left < line.right


def _kind(group: list[Line], page: Page, furniture: set[str], larger: list[float]) -> tuple[str, int | None]:
    first = group[0]
    text = " ".join(line.text for line in group)
    if _in_margin(first, page) and _pattern(first.text) in furniture:
        return "boilerplate", None
    height = round(first.height, 1)
    short = len(text) <= 200 and len(group) <= 3
    sentence = text.rstrip().endswith((".", ",", ";"))
    if short and height in larger and not (page.scanned and sentence):
        return "heading", min(larger.index(height) + 1, 6)
    if short and len(group) <= 2 and all(line.bold for line in group) and not sentence:
        return "heading", min(len(larger) + 1, 6)
    return ("list_item", 1) if _BULLET.match(first.text) else ("paragraph", None)
