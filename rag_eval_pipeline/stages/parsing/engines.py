"""Parsers of others, for `parser` and `candidates`: which formats each reads, which package it needs, and how it is asked.

Here: lines, tables and elements as those packages give them. Not here: what becomes of a page's lines (`layout`), the formats
that a package does not read (the house's own readers), and which parser a user chooses (`comparison`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.stages.parsing.layout import Line, Page
from rag_eval_pipeline.stages.parsing.pdf import grid_of, open_pdf, read_pages
from rag_eval_pipeline.stages.parsing.reading import Cell, Grid, Reading, clean
from rag_eval_pipeline.stages.parsing.scans import is_scan
from rag_eval_pipeline.text.entities import EXTRA_MODEL, EXTRA_MODELS
from rag_eval_pipeline.warehouse.fingerprint import library_versions


@dataclass(frozen=True)
class Engine:
    """A parser of somebody else's.

    Attributes:
        package: what is imported.
        distributions: whose versions decide what is read.
        extra: of this project, that installs it; None where it is always there.
        media: formats that it reads.
        read: (file, config) -> what was read.
        warm: loads what is slow to load, outside of the documents' time limit.
        needs: further packages without which it reads nothing.
    """

    package: str
    distributions: tuple[str, ...]
    extra: str | None
    media: frozenset[str]
    read: Callable[[Path, Any], Reading]
    warm: Callable[[], object]
    needs: tuple[str, ...] = ()


def installed(name: str) -> bool:
    """Whether all that an engine needs is installed."""
    return all(find_spec(package) is not None for package in (ENGINES[name].package, *ENGINES[name].needs))


def check(name: str, wanted_by: str) -> None:
    """An engine's packages are installed.

    Raises:
        ValueError: they are not; the message names the extra.
    """
    if not installed(name):
        raise ValueError(
            f"{wanted_by} is {name}, which is not installed: pip install 'rag_eval_pipeline[{ENGINES[name].extra}]', or name another"
        )


def identity(name: str) -> dict[str, str]:
    """Versions that decide what an engine reads."""
    return library_versions(ENGINES[name].distributions)


# pdfplumber ------------------------------------------------------------------------------------------------------------


def _read_pdfplumber(path: Path, config: Any) -> Reading:
    return read_pages(path, config, "pdfplumber", _pages_by_pdfplumber)


def _pages_by_pdfplumber(document: Any, path: Path, reading: Reading) -> Iterator[Page]:
    import pdfplumber

    with pdfplumber.open(path) as opened:
        for number, page in enumerate(opened.pages, start=1):
            found = Page(number, float(page.height))
            found.items = _by_place(*_of_pdfplumber(page))
            found.scanned = is_scan(found, len(page.images))
            page.close()
            yield found


def _of_pdfplumber(page: Any) -> tuple[list[Line], list[tuple[float, Grid]]]:
    """Lines outside tables, and tables with their upper edge; both in points from the page's lower edge."""
    top_of_page = float(page.bbox[3])
    tables = [(table, grid) for table in page.find_tables() if (grid := grid_of(table.extract()))]
    boxes = [table.bbox for table, _ in tables]

    def outside(thing: Any) -> bool:
        if "x0" not in thing or "top" not in thing:
            return True
        x, y = (thing["x0"] + thing["x1"]) / 2, (thing["top"] + thing["bottom"]) / 2
        return not any(left <= x <= right and top <= y <= bottom for left, top, right, bottom in boxes)

    lines = [
        Line(
            line["text"],
            float(line["x0"]),
            top_of_page - float(line["bottom"]),
            float(line["x1"]),
            top_of_page - float(line["top"]),
            _is_bold(line["chars"][0]["fontname"] if line.get("chars") else ""),
        )
        for line in page.filter(outside).extract_text_lines(strip=True)
        if line["text"].strip()
    ]
    return lines, [(top_of_page - float(table.bbox[1]), grid) for table, grid in tables]


def _is_bold(font: str) -> bool:
    return any(mark in font.lower() for mark in ("bold", "black"))


def _by_place(lines: list[Line], tables: list[tuple[float, Grid]]) -> list[Line | Grid]:
    """Lines in the engine's order; each table before the first line that begins below its upper edge."""
    items: list[Line | Grid] = []
    waiting = sorted(tables, key=lambda table: -table[0])
    for line in lines:
        while waiting and line.top < waiting[0][0]:
            items.append(waiting.pop(0)[1])
        items.append(line)
    return [*items, *(grid for _, grid in waiting)]


# PyMuPDF ---------------------------------------------------------------------------------------------------------------


def _read_pymupdf(path: Path, config: Any) -> Reading:
    return read_pages(path, config, "pymupdf", _pages_by_pymupdf)


def _pages_by_pymupdf(document: Any, path: Path, reading: Reading) -> Iterator[Page]:
    from typing import cast

    import pymupdf

    module = cast(Any, pymupdf)
    module.no_recommend_layout = True
    with module.open(path) as opened:
        for number, page in enumerate(opened, start=1):
            height = float(page.rect.height)
            tables = [
                (t.bbox, grid) for t in page.find_tables().tables if (grid := grid_of(_cells_of_pymupdf(page, t)))
            ]
            lines = list(_lines_of_pymupdf(page, height, [box for box, _ in tables]))
            found = Page(number, height)
            found.items = _by_place(lines, [(height - box[1], grid) for box, grid in tables])
            found.scanned = is_scan(found, len(page.get_images()))
            yield found


def _cells_of_pymupdf(page: Any, table: Any) -> list[list[str]]:
    """Texts by cell; its own `extract` drops the spaces between words that were set one by one."""
    return [[page.get_text("text", clip=cell).strip() if cell else "" for cell in row.cells] for row in table.rows]


def _lines_of_pymupdf(page: Any, height: float, boxes: list[Any]) -> Iterator[Line]:
    for block in page.get_text("dict")["blocks"]:
        for line in block.get("lines", ()):
            text = "".join(span["text"] for span in line["spans"]).strip()
            left, top, right, bottom = line["bbox"]
            x, y = (left + right) / 2, (top + bottom) / 2
            if text and not any(b[0] <= x <= b[2] and b[1] <= y <= b[3] for b in boxes):
                first = line["spans"][0]
                bold = bool(first["flags"] & 16) or _is_bold(first["font"])
                yield Line(text, left, height - bottom, right, height - top, bold)


# Elements: docling and unstructured ------------------------------------------------------------------------------------

KINDS_OF_DOCLING = {
    "title": "heading", "section_header": "heading", "list_item": "list_item", "code": "code", "caption": "caption",
    "page_header": "boilerplate", "page_footer": "boilerplate",
}  # fmt: skip
LISTS_OF_DOCLING = frozenset({"list", "ordered_list"})
KINDS_OF_UNSTRUCTURED = {
    "Title": "heading", "ListItem": "list_item", "CodeSnippet": "code", "FigureCaption": "caption",
    "Header": "boilerplate", "Footer": "boilerplate", "PageNumber": "boilerplate",
}  # fmt: skip


def _read_docling(path: Path, config: Any) -> Reading:
    try:
        document = _docling().convert(str(path), max_num_pages=config.max_pages).document
    except Exception as error:
        if _of_the_hub(error):
            raise Refusal(
                "error",
                "docling's models are not there and their hub is not reached: run docling-tools models download where it is, and "
                "set DOCLING_ARTIFACTS_PATH to the folder",
            ) from error
        raise
    reading = Reading("docling", pages=len(document.pages) or None)
    for items in _whole_items(document):
        item = items[0]
        page = item.prov[0].page_no if getattr(item, "prov", None) else None
        if _label(item) == "table":
            reading.add_table(_grid_of_docling(item), page)
        elif text := " ".join(part.text for part in items if getattr(part, "text", "")):
            kind, level = _kind_of_docling(item, document, _is_html(path))
            reading.add(kind, text, level, page)
    return reading


def _whole_items(document: Any) -> Iterator[list[Any]]:
    """Items in reading order; one that docling cut where its style changes comes in its parts, a table without its cells'."""
    parts: list[Any] = []
    for item, _ in document.iterate_items():
        if any(_label(one) == "table" for one in _above(item, document)):
            continue
        if parts and not (_is_part(item, document) and item.parent == parts[0].parent):
            yield parts
            parts = []
        parts.append(item)
    if parts:
        yield parts


def _is_part(item: Any, document: Any) -> bool:
    return any(_label(above) == "inline" for above in _above(item, document)[:1])


def _kind_of_docling(item: Any, document: Any, html: bool) -> tuple[str, int | None]:
    """Block and level of an item, or of what it is a part of; an item of a list lies as deep as there are lists around it."""
    above = _above(item, document)
    # What stands below a heading hangs on it too; a cut item is empty itself.
    cut = _is_part(item, document) and getattr(above[1], "text", None) == ""
    whole = above[1] if cut else item
    label, level = _label(whole), getattr(whole, "level", None)
    kind = KINDS_OF_DOCLING.get(label, "paragraph")
    if kind == "list_item":
        return kind, max(sum(_label(one) in LISTS_OF_DOCLING for one in above), 1)
    if label == "title":
        return kind, 1
    if kind == "heading" and level is not None and html:
        level += 1  # h1 is the title, and levels are counted below it
    return kind, level if kind == "heading" else None


def _above(item: Any, document: Any) -> list[Any]:
    """What holds an item, the nearest first."""
    found = []
    while getattr(item, "parent", None) is not None:
        item = item.parent.resolve(document)
        found.append(item)
    return found


def _label(item: Any) -> str:
    label = getattr(item, "label", "")
    return str(getattr(label, "value", label))


def _of_the_hub(error: BaseException) -> bool:
    """Whether an error comes from fetching models."""
    chain: BaseException | None = error
    while chain is not None:
        if type(chain).__module__.partition(".")[0] == "huggingface_hub":
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _grid_of_docling(table: Any) -> Grid:
    """Its cells, each once, at the place where it begins."""
    rows: list[list[Cell]] = []
    for at_row, row in enumerate(table.data.grid):
        rows.append([])
        for at_column, cell in enumerate(row):
            if (cell.start_row_offset_idx, cell.start_col_offset_idx) == (at_row, at_column):
                header = bool(cell.column_header or cell.row_header)
                rows[-1].append(Cell(cell.text, header, cell.col_span, cell.row_span))
    return Grid(rows)


def _docling() -> Any:
    """The converter, one a process: it holds its models."""
    if not _CONVERTER:
        from docling.document_converter import DocumentConverter

        _CONVERTER.append(DocumentConverter())
    return _CONVERTER[0]


_CONVERTER: list[Any] = []


def _read_unstructured(path: Path, config: Any) -> Reading:
    from unstructured.partition.auto import partition

    pages = None
    if path.suffix.lower() == ".pdf":
        document = open_pdf(path)
        pages = len(document)
        document.close()
        if pages > config.max_pages:
            raise Refusal("too_large", f"{pages} pages; pipeline.parsing.max_pages is {config.max_pages}")
    reading = Reading("unstructured", pages=pages)
    try:
        elements = partition(filename=str(path))
    except ImportError as error:
        raise Refusal(
            "unsupported",
            f"unstructured lacks packages for {path.suffix.lower()} files: pip install 'rag_eval_pipeline[unstructured]'",
        ) from error
    for element in elements:
        meta = element.metadata
        html = getattr(meta, "text_as_html", None)
        if element.category == "Table" and html:
            span = reading.add("table", element.text, page=meta.page_number)
            reading.keep_table(clean(html), span, meta.page_number)
            continue
        kind = KINDS_OF_UNSTRUCTURED.get(element.category, "paragraph")
        depth = getattr(meta, "category_depth", None) or 0
        # Depths begin at 0, but for items of html, where they are the number of lists around.
        level = max(depth, 1) if kind == "list_item" and _is_html(path) else depth + 1
        reading.add(kind, element.text, level if kind in {"heading", "list_item"} else None, meta.page_number)
    return reading


def _is_html(path: Path) -> bool:
    return path.suffix.lower() in {".html", ".htm", ".xhtml"}


def _warm_unstructured() -> None:
    os.environ.setdefault("SCARF_NO_ANALYTICS", "true")  # else it reports to its makers that it is used
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("UNSTRUCTURED_DISABLE_NOTICE", "1")
    import unstructured.partition.auto  # noqa: F401
    from unstructured.nlp import tokenize

    # It parts sentences with a spaCy model, and would fetch and install that while it reads. A copy is as good.
    if hasattr(tokenize, "_SPACY_MODEL_NAME"):
        tokenize._SPACY_MODEL_NAME = EXTRA_MODEL
    tokenize.sent_tokenize("One.")


def _warm_pdfplumber() -> None:
    import pdfplumber  # noqa: F401


def _warm_pymupdf() -> None:
    import pymupdf  # noqa: F401


_TEXT = frozenset({"pdf", "docx", "html"})
ENGINES: dict[str, Engine] = {
    "pdfplumber": Engine(
        "pdfplumber", ("pdfplumber", "pdfminer.six"), None, frozenset({"pdf"}), _read_pdfplumber, _warm_pdfplumber
    ),
    "pymupdf": Engine("pymupdf", ("pymupdf",), "pymupdf", frozenset({"pdf"}), _read_pymupdf, _warm_pymupdf),
    "docling": Engine("docling", ("docling", "docling-core"), "docling", _TEXT | {"image"}, _read_docling, _docling),
    "unstructured": Engine(
        "unstructured",
        ("unstructured", *EXTRA_MODELS),
        "unstructured",
        _TEXT,
        _read_unstructured,
        _warm_unstructured,
        (EXTRA_MODEL,),
    ),
}
"""By the name that corpus.yaml gives them."""
