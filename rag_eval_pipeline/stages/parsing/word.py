"""Read docx: paragraphs and tables in the body's order, headings and lists by style, footnotes at the end.

Insertions are read, deletions are not: the text as it stands with all changes accepted. Page headers and footers are left
out: they are not part of the body.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.stages.parsing.reading import Cell, Grid, Reading

MAX_UNPACKED = 512 * 2**20
"""Bytes that all parts together may declare."""
MAX_PART = 128 * 2**20
"""Bytes that one XML part may declare: a tree takes several times as much memory."""
MAX_RATIO = 200
"""How much smaller than its content a part of more than `RATIO_FROM` bytes may be packed."""
RATIO_FROM = 8 * 2**20
_OLE = b"\xd0\xcf\x11\xe0"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_FOOTNOTES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"


def read_docx(path: Path, config: Any) -> Reading:
    """Text, blocks and tables of the body.

    Raises:
        Refusal: encrypted, a zip bomb, or no Word file.
    """
    guard(path)
    import docx
    from docx.opc.exceptions import PackageNotFoundError

    try:
        document = docx.Document(str(path))
    except (PackageNotFoundError, KeyError, ValueError, zipfile.BadZipFile, etree.XMLSyntaxError) as error:
        raise Refusal("error", f"{type(error).__name__}: not a whole Word document") from error
    body = getattr(document.element, "body", None)
    if body is None:
        raise Refusal("error", "not a whole Word document (it has no body)")
    if document.element.getroottree().docinfo.internalDTD is not None:  # what its entities stand for would be lost
        raise Refusal("error", "the Word file declares entities, which its format forbids: save it anew in Word")
    reading = Reading("python-docx")
    styles = _Styles(document)
    for element in _body(body):
        if element.tag == f"{_W}p":
            kind, level = styles.kind(element)
            reading.add(kind, _text(element), level)
        else:
            _table(element, reading)
    for text in _footnotes(document):
        reading.add("other", text)
    return reading


def guard(path: Path) -> None:
    """Look at the declared sizes before anything is unpacked (zipfile never unpacks more than is declared).

    Raises:
        Refusal: encrypted, no zip file, or declared sizes beyond bounds.
    """
    with path.open("rb") as stream:
        if stream.read(4) == _OLE:
            encrypted = "EncryptedPackage".encode("utf-16-le") in stream.read()
            if encrypted:
                raise Refusal("encrypted", "the Word file needs a password: hand in a copy without one")
            raise Refusal("error", "an old .doc under the name .docx: save it as .docx")
    try:
        with zipfile.ZipFile(path) as package:
            parts = package.infolist()
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise Refusal("error", f"{type(error).__name__}: not a whole zip file") from error
    if any(part.flag_bits & 1 for part in parts):
        raise Refusal("encrypted", "the file is an encrypted zip: hand in a copy without a password")
    unpacked = sum(part.file_size for part in parts)
    if unpacked > MAX_UNPACKED:
        raise Refusal("too_large", f"unpacks to {unpacked} bytes (a zip bomb?); the bound is {MAX_UNPACKED}")
    for part in parts:
        ratio = part.file_size / max(part.compress_size, 1)
        if part.file_size > RATIO_FROM and ratio > MAX_RATIO:
            raise Refusal("too_large", f"a part is packed {ratio:.0f} : 1 (a zip bomb?); the bound is {MAX_RATIO}")
        if part.filename.endswith((".xml", ".rels")) and part.file_size > MAX_PART:
            raise Refusal("too_large", f"a part unpacks to {part.file_size} bytes; the bound is {MAX_PART}")


def _body(element: Any) -> Iterator[Any]:
    """Paragraphs and tables, also those inside content controls and tracked insertions."""
    for child in element:
        if child.tag in {f"{_W}p", f"{_W}tbl"}:
            yield child
        elif child.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml", f"{_W}smartTag"}:
            yield from _body(child)


def _text(element: Any) -> str:
    """Text of a paragraph (or of all paragraphs in an element), without deletions and without second renderings."""
    pieces: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end"))
    for event, node in walk:
        if event == "end":
            if node.tag == f"{_W}p" and node is not element:
                pieces.append("\n")
        elif node.tag in {f"{_W}del", f"{_W}moveFrom", _FALLBACK}:
            walk.skip_subtree()
        elif node.tag == f"{_W}t":
            pieces.append(node.text or "")
        elif node.tag in _SIGNS and node.getparent().tag == f"{_W}r":
            pieces.append(_SIGNS[node.tag])
    return "".join(pieces).strip("\n")


_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "\u2011"}


class _Styles:
    """What a paragraph is, from its style and numbering."""

    def __init__(self, document: Any) -> None:
        self.by_id = {style.style_id: style for style in document.styles if style.type == 1}
        default = document.styles.default(1)
        self.default = default.style_id if default is not None else None

    def kind(self, paragraph: Any) -> tuple[str, int | None]:
        properties = paragraph.find(f"{_W}pPr")
        style_id, outline, numbered = self.default, None, None
        if properties is not None:
            style_id = _value(properties.find(f"{_W}pStyle")) or style_id
            outline = _number(_value(properties.find(f"{_W}outlineLvl")))
            numbered = _list_level(properties)
        seen: set[str | None] = set()
        while style_id in self.by_id and style_id not in seen:
            seen.add(style_id)
            style = self.by_id[style_id]
            name = (style.name or "").lower()
            if match := re.fullmatch(r"heading ([1-9])", name):
                return "heading", int(match[1])
            if name == "title":
                return "heading", 1
            if name == "caption":
                return "caption", None
            if numbered is None and (match := re.fullmatch(r"list (?:bullet|number)(?: ([1-9]))?", name)):
                numbered = int(match[1] or 1)  # the built-in styles number each level as a list of its own
            inherited = style.element.find(f"{_W}pPr")
            if inherited is not None:
                outline = outline if outline is not None else _number(_value(inherited.find(f"{_W}outlineLvl")))
                numbered = numbered if numbered is not None else _list_level(inherited)
            style_id = style.base_style.style_id if style.base_style is not None else None
        if outline is not None and 0 <= outline <= 8:
            return "heading", outline + 1
        return ("list_item", numbered) if numbered else ("paragraph", None)


def _value(element: Any) -> str | None:
    return element.get(f"{_W}val") if element is not None else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _list_level(properties: Any) -> int | None:
    """Level of a numbered or bulleted paragraph from 1; 0 where numbering is switched off; None where nothing is said."""
    numbering = properties.find(f"{_W}numPr")
    if numbering is None:
        return None
    if _value(numbering.find(f"{_W}numId")) == "0":
        return 0
    return (_number(_value(numbering.find(f"{_W}ilvl"))) or 0) + 1


def _table(table: Any, reading: Reading) -> None:
    """A table with its merged cells; tables inside cells become lines of the cell."""
    grid: list[list[dict[str, Any]]] = []
    heads: list[bool] = []
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is not table:
            continue
        heads.append(row.find(f"{_W}trPr/{_W}tblHeader") is not None)
        column, cells = 0, []
        for cell in row.iter(f"{_W}tc"):
            if next(cell.iterancestors(f"{_W}tr")) is not row:
                continue
            properties = cell.find(f"{_W}tcPr")
            span = _number(_value(properties.find(f"{_W}gridSpan"))) if properties is not None else None
            merge = properties.find(f"{_W}vMerge") if properties is not None else None
            goes_on = merge is not None and _value(merge) != "restart"
            above = next((c for c in grid[-1] if c["column"] == column), None) if goes_on and grid else None
            if above is not None:
                origin = above["origin"]
                origin["rowspan"] += 1
                cells.append({"column": column, "origin": origin})
            else:
                fresh: dict[str, Any] = {"column": column, "text": _text(cell), "colspan": span or 1, "rowspan": 1}
                fresh["origin"] = fresh
                cells.append(fresh)
            column += span or 1
        grid.append(cells)
    rows = [
        [Cell(c["text"], head, c["colspan"], c["rowspan"]) for c in cells if c["origin"] is c]
        for cells, head in zip(grid, heads, strict=True)
    ]
    reading.add_table(Grid(rows))


def _footnotes(document: Any) -> Iterator[str]:
    for relation in document.part.rels.values():
        if relation.reltype == _FOOTNOTES and not relation.is_external:
            parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
            root = etree.fromstring(relation.target_part.blob, parser)
            for note in root.iter(f"{_W}footnote"):
                if note.get(f"{_W}type") in {None, "normal"}:
                    yield _text(note)
