"""Read html: all visible text in reading order, as a browser would show it. What of it is main text, cleaning decides."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lxml import etree
from lxml import html as lxml_html

from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.stages.parsing.reading import Cell, Grid, Reading, clean, refuse_binary

UNSEEN = frozenset(
    [
        "script",
        "style",
        "template",
        "noscript",
        "head",
        "title",
        "svg",
        "iframe",
        "object",
        "canvas",
        "audio",
        "video",
        "select",
        "datalist",
        "textarea",
    ]
)
BLOCK = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "menu",
        "nav",
        "ol",
        "optgroup",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
HEADINGS = {f"h{level}": level for level in range(1, 7)}
FURNITURE_ROLES = frozenset({"navigation", "banner", "contentinfo", "complementary", "search", "alertdialog"})
_FURNITURE = re.compile(
    r"(?:^|[\s_-])(?:(?:cookies?|consent|gdpr)[\s_-]?(?:banner|bar|notice|popup|modal|overlay|dialog|consent|message|wall)"
    r"|breadcrumbs?|sidebar|(?:site|page)-(?:header|footer)|skip-link)(?:$|[\s_-])",
    re.IGNORECASE,
)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE)
_DECLARATIONS = re.compile(r"^(?:\s*<\?xml[^>]*(?:>|$))+")
"""lxml refuses a text that still names its encoding, be it twice or without its end."""
_SPACE = re.compile(r"[ \t\n\r\f\v]+")


def read_html(path: Path, config: Any) -> Reading:
    """Visible text by blocks, data tables, and the decoded page itself."""
    page = decode_html(path.read_bytes())
    refuse_binary(page)
    page = clean(page)
    reading = Reading("lxml", html=page)
    root = _tree(page)
    if root is not None:
        _Walk(reading).over(root)
    return reading


def decode_html(data: bytes) -> str:
    """UTF-8 where it is valid, else the declared charset, else the guess for any text file."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        declared = _CHARSET.search(data[:4096])
    if declared and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            # Browsers read Latin-1 as cp1252, its superset.
            name = codecs.lookup(declared[1].decode("ascii")).name
            return data.decode("cp1252" if name == "iso8859-1" else name, errors="replace")
        except (LookupError, UnicodeError):
            pass  # an unknown or impossible charset: guess as for any text file
    return decode(data)[0]


def _tree(page: str) -> Any:
    """The parsed page; None where it holds nothing.

    Raises:
        Refusal: it is nested too deep, or otherwise beyond the parser's limits: the rest would be lost in silence.
    """
    parser = lxml_html.HTMLParser(huge_tree=False, no_network=True)
    try:
        root = lxml_html.document_fromstring(_DECLARATIONS.sub("", page), parser=parser)
    except etree.ParserError:
        root = None
    if any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        raise Refusal("error", "the page is beyond the parser's limits (elements nested 255 deep, texts of 10 MB)")
    return root


@dataclass
class _Open:
    """An element that is being walked."""

    furniture: bool
    main: bool
    heading: int | None
    lists: int
    item: bool
    pre: bool
    caption: bool


class _Walk:
    """One pass over a page, without recursion."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.buffer: list[str] = []
        self.open = [_Open(False, False, None, 0, False, False, False)]

    def over(self, root: Any) -> None:
        """Walk the tree in document order."""
        walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
        for event, element in walk:
            if event in {"comment", "pi"}:
                self._text(element.tail)
            elif event == "start":
                if self._enter(element):
                    self._text(element.text)
                else:
                    walk.skip_subtree()
            else:
                self._leave(element)
        self._flush()

    def _enter(self, element: Any) -> bool:
        """Open an element; False where its content is not to be walked."""
        tag = element.tag
        if tag in BLOCK:
            self._flush()
        self.open.append(self._state(element))
        if tag in UNSEEN or _is_hidden(element):
            return False
        if tag == "table" and _is_data(element):
            self._table(element)
            return False
        if tag == "br":
            self.buffer.append("\n")
        return True

    def _leave(self, element: Any) -> None:
        if element.tag in BLOCK:
            self._flush()
        self.open.pop()
        self._text(element.tail)

    def _state(self, element: Any) -> _Open:
        tag, outer = element.tag, self.open[-1]
        main = outer.main or tag in {"main", "article"}
        is_list = tag in {"ul", "ol", "menu"}
        return _Open(
            furniture=outer.furniture or _is_furniture(element, main),
            main=main,
            heading=HEADINGS.get(tag, outer.heading),
            lists=outer.lists + is_list,
            item=(outer.item and not is_list) or tag == "li",
            pre=outer.pre or tag == "pre",
            caption=outer.caption or tag in {"caption", "figcaption"},
        )

    def _text(self, text: str | None) -> None:
        if text:
            self.buffer.append(text if self.open[-1].pre else _SPACE.sub(" ", text))

    def _flush(self) -> None:
        text = "".join(self.buffer)
        self.buffer.clear()
        here = self.open[-1]
        if not here.pre:
            text = re.sub(r" *\n *", "\n", re.sub(r"  +", " ", text))
        kind, level = _kind(here)
        self.reading.add(kind, text, level)

    def _table(self, table: Any) -> None:
        for caption in table.iterchildren("caption"):
            self.reading.add("boilerplate" if self.open[-1].furniture else "caption", _inline(caption))
        grid = _grid(table)
        if self.open[-1].furniture:
            self.reading.add("boilerplate", grid.text)
        else:
            self.reading.add_table(grid)


def _kind(here: _Open) -> tuple[str, int | None]:
    if here.furniture:
        return "boilerplate", None
    if here.heading:
        return "heading", here.heading
    if here.pre:
        return "code", None
    if here.caption:
        return "caption", None
    return ("list_item", max(here.lists, 1)) if here.item else ("paragraph", None)


def _is_hidden(element: Any) -> bool:
    return "hidden" in element.attrib or bool(_HIDDEN.search(element.get("style", "")))


def _is_furniture(element: Any, in_main: bool) -> bool:
    """Navigation, page header and footer, side columns, cookie banners. A header of an article is content."""
    if element.tag == "nav" or (element.tag in {"header", "footer", "aside"} and not in_main):
        return True
    if element.tag in {"html", "body", "main", "article"}:
        return False
    if element.get("role") in FURNITURE_ROLES:
        return True
    return any(_FURNITURE.search(element.get(name, "")) for name in ("class", "id"))


def _is_data(table: Any) -> bool:
    """A table of data rather than one that lays out a page."""
    if table.get("role") in {"presentation", "none"} or next(table.iterdescendants("table"), None) is not None:
        return False
    rows = list(table.iterdescendants("tr"))
    widest = max((sum(1 for cell in row if cell.tag in {"td", "th"}) for row in rows), default=0)
    if next(table.iterdescendants("th"), None) is not None:
        return True
    return widest >= 2 and next(table.iterdescendants(*HEADINGS, "nav", "form", "article", "section"), None) is None


def _grid(table: Any) -> Grid:
    rows, sections = [], []
    for row in table.iterdescendants("tr"):
        cells = [
            Cell(_inline(cell), cell.tag == "th", _span(cell, "colspan"), _span(cell, "rowspan"))
            for cell in row
            if cell.tag in {"td", "th"}
        ]
        if cells:
            rows.append(cells)
            parent = row.getparent().tag
            sections.append(parent if parent in {"thead", "tbody", "tfoot"} else "")
    return Grid(rows, sections)


def _span(cell: Any, name: str) -> int:
    """A span as browsers read it; what is no number is 1."""
    match = re.match(r"\s*(\d{1,4})", cell.get(name, ""))
    return min(max(int(match[1]), 1), 1000) if match else 1


def _inline(element: Any) -> str:
    """Visible text of an element on one line."""
    return " ".join("".join(_pieces(element)).split())


def _pieces(element: Any) -> Iterator[str]:
    walk = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    for event, node in walk:
        if event == "start":
            if node.tag in UNSEEN or _is_hidden(node):
                walk.skip_subtree()
                continue
            yield " " if node.tag in BLOCK or node.tag == "br" else ""
            yield node.text or ""
        elif node is not element:
            yield " " if node.tag in BLOCK else ""
            yield node.tail or ""
