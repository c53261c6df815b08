"""What a reader fills while it reads a document: text, blocks as offsets into it, tables. Formats belong in the readers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from rag_eval_pipeline.engine.limits import Refusal

Rows = dict[str, list[dict[str, Any]]]
MAX_BLOCKS = 250_000
"""Blocks of one document; every later stage holds them all in memory."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    header: bool = False
    colspan: int = 1
    rowspan: int = 1


@dataclass(frozen=True)
class Grid:
    """A table: rows of cells, and for each row the section (`thead`, `tbody`, `tfoot` or none) that it stands in."""

    rows: Sequence[Sequence[Cell]]
    sections: Sequence[str] = ()

    @property
    def text(self) -> str:
        """Cells parted by tabs, rows by line ends: white space only, so that comparing texts sees no invented signs."""
        return "\n".join("\t".join(" ".join(cell.text.split()) for cell in row) for row in self.rows).strip("\n")

    @property
    def html(self) -> str:
        """Only table, tr, th, td and spans; everything else is escaped."""
        parts, section = ["<table>"], ""
        for number, row in enumerate(self.rows):
            wanted = self.sections[number] if self.sections else ""
            if wanted != section:
                parts += [f"</{section}>" if section else "", f"<{wanted}>" if wanted else ""]
                section = wanted
            parts.append("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>")
        parts += [f"</{section}>" if section else "", "</table>"]
        return clean("".join(parts))


def _cell(cell: Cell) -> str:
    tag = "th" if cell.header else "td"
    spans = f' colspan="{cell.colspan}"' if cell.colspan > 1 else ""
    spans += f' rowspan="{cell.rowspan}"' if cell.rowspan > 1 else ""
    return f"<{tag}{spans}>{escape(' '.join(cell.text.split()), quote=False)}</{tag}>"


def refuse_binary(text: str) -> None:
    """Bytes of no text, decoded all the same, are one tenth control characters and more.

    NUL doesn't count: it stands between the letters of UTF-16 without a mark, and is left out.

    Raises:
        Refusal: this is such a text.
    """
    if len(_CONTROLS.findall(text)) > BINARY * len(text):
        raise Refusal("error", "binary data under the name of a text file: hand it in under its own format")


BINARY = 0.1
"""Terminal logs, full of colour codes, stay below."""
_CONTROLS = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """LF line ends, no NUL, no lone surrogates: what every later stage and file format can hold."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return _SURROGATE.sub("\ufffd", text)


@dataclass
class Reading:
    """A document as far as it has been read."""

    parser: str
    pages: int | None = None
    html: str | None = None
    remarks: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _length: int = 0

    @classmethod
    def verbatim(cls, parser: str, text: str) -> Reading:
        """A document whose text is the file's own; blocks are marked in it afterwards."""
        reading = cls(parser)
        reading._parts, reading._length = [text], len(text)
        return reading

    @property
    def text(self) -> str:
        """All that was read."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def mark(self, kind: str, start: int, end: int, level: int | None = None, page: int | None = None) -> None:
        """A block over text that is already there.

        Raises:
            Refusal: there are too many.
        """
        if len(self.blocks) >= MAX_BLOCKS:
            raise Refusal("too_large", f"more than {MAX_BLOCKS} paragraphs: split the document")
        self.blocks.append(
            {"block": len(self.blocks), "kind": kind, "level": level, "page": page, "start": start, "end": end}
        )

    def add(self, kind: str, text: str, level: int | None = None, page: int | None = None) -> tuple[int, int] | None:
        """Write a block behind what is there; returns its offsets, None where there is nothing to write."""
        text = clean(text).strip("\n ")
        if not text.strip():
            return None
        if self._length:
            listed = kind == "list_item" and bool(self.blocks) and self.blocks[-1]["kind"] == "list_item"
            gap = "\n" if listed else "\n\n"
            self._parts.append(gap)
            self._length += len(gap)
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        self.mark(kind, start, self._length, level, page)
        return start, self._length

    def add_table(self, grid: Grid, page: int | None = None) -> None:
        """Write a table's text as a block, and keep its HTML."""
        span = self.add("table", grid.text, page=page)
        self.keep_table(grid.html, span, page)

    def keep_table(self, html: str, span: tuple[int, int] | None = None, page: int | None = None) -> None:
        """Keep the HTML of a table whose text, if it has any, stands at `span`."""
        start, end = span if span else (None, None)
        self.tables.append({"table_no": len(self.tables), "html": html, "page": page, "start": start, "end": end})

    def rows(self, seconds: float | None = None) -> Rows:
        """Rows of the room's tables, without doc_id."""
        text = self.text
        parsed = {
            "text": text,
            "status": "ok" if text.strip() else "empty",
            "error": "; ".join(self.remarks) or (None if text.strip() else "no text was found"),
            "parser": self.parser,
            "pages": self.pages,
            "seconds": seconds,
            "html": self.html,
        }
        return {"parsed": [parsed], "blocks": self.blocks, "parsed_tables": self.tables}


def join_lines(lines: Sequence[str]) -> str:
    """Lines of one paragraph as running text; a word that was hyphenated at a line end is put together again."""
    joined = ""
    for line in lines:
        line = line.strip()
        if not joined:
            joined = line
        elif (_HYPHENATED.search(joined) and line[:1].islower()) or joined[-1] in SOFT_HYPHENS:
            joined = joined[:-1] + line
        else:
            joined += " " + line
    return joined


SOFT_HYPHENS = "\u00ad\u0002\ufffe"
"""How a soft hyphen at a line end comes out of a PDF."""
_HYPHENATED = re.compile(r"[^\W\d_]{2}[-\u2010]$")
