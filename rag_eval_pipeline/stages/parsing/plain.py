"""Read txt, md and csv: the text stays as the file has it, blocks are offsets into it."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.stages.parsing.reading import Cell, Grid, Reading, clean, refuse_binary

_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")
_NUMBER = re.compile(r"^[\s$€£%+-]*\d[\d.,\s]*[\s$€£%]*$")


def read_txt(path: Path, config: Any) -> Reading:
    """Paragraphs are parted by blank lines."""
    reading = Reading.verbatim("text", _decoded(path))
    for match in _PARAGRAPH.finditer(reading.text):
        reading.mark("paragraph", match.start(), match.end())
    return reading


def read_md(path: Path, config: Any) -> Reading:
    """Markdown as it was written; headings, list items, tables and code are marked in it."""
    reading = Reading.verbatim("markdown-it", _decoded(path))
    text = reading.text
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    tokens = _markdown().parse(text)
    depth = 0
    for index, token in enumerate(tokens):
        if token.type in {"bullet_list_open", "ordered_list_open"}:
            depth += 1
        elif token.type in {"bullet_list_close", "ordered_list_close"}:
            depth -= 1
        kind = _MARKDOWN.get(token.type)
        if kind is None or token.map is None:
            continue
        if kind == "paragraph" and depth:
            kind = "list_item"
        start, end = starts[token.map[0]], starts[token.map[1]] if token.map[1] < len(starts) else len(text)
        while end > start and text[end - 1].isspace():
            end -= 1
        if end == start:
            continue
        level = int(token.tag[1]) if kind == "heading" else depth if kind == "list_item" else None
        reading.mark(kind, start, end, level)
        if kind == "table":
            reading.keep_table(_grid(tokens[index:]).html, (start, end))
    return reading


_MARKDOWN = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "html_block": "other",
}


def _grid(tokens: list[Any]) -> Grid:
    """The table that begins at the first token."""
    rows: list[list[Cell]] = []
    sections: list[str] = []
    section, header = "", False
    for token in tokens:
        match token.type:
            case "table_close":
                break
            case "thead_open" | "tbody_open":
                section = token.tag
            case "tr_open":
                rows.append([])
                sections.append(section)
            case "th_open" | "td_open":
                header = token.tag == "th"
            case "inline" if rows:
                rows[-1].append(Cell("".join(_shown(token)), header))
    return Grid(rows, sections)


def _shown(token: Any) -> Iterator[str]:
    """What a reader of an inline token sees."""
    for child in token.children or ():
        if child.type in {"text", "code_inline"}:
            yield child.content
        elif child.type in {"softbreak", "hardbreak"}:
            yield " "


def read_csv(path: Path, config: Any) -> Reading:
    """The file's text is one block; its rows are the table."""
    reading = Reading.verbatim("csv", _decoded(path))
    text = reading.text
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start < end:
        reading.mark("table", start, end)
        reading.keep_table(_csv_grid(text).html, (start, end))
    return reading


def _csv_grid(text: str) -> Grid:
    csv.field_size_limit(sys.maxsize)
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)) if any(row)]
    head = bool(rows) and len(rows) > 1 and all(cell.strip() and not _NUMBER.match(cell) for cell in rows[0])
    head = head and len(set(rows[0])) == len(rows[0])
    return Grid([[Cell(cell, header=head and not number) for cell in row] for number, row in enumerate(rows)])


def _delimiter(text: str) -> str:
    """The candidate by which the first rows fall into most cells, all rows into equally many; a comma where none does."""
    head = text[:65536]

    def rank(candidate: str) -> tuple[bool, int]:
        rows = islice(csv.reader(io.StringIO(head, newline=""), delimiter=candidate), 20)
        widths = [len(row) for row in rows if any(row)]
        return len(set(widths)) == 1 and widths[0] > 1, min(widths, default=0)

    return max(",;\t|", key=rank)


@lru_cache(maxsize=1)
def _markdown() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")


def _decoded(path: Path) -> str:
    """The file's text.

    Raises:
        Refusal: it is none.
    """
    text = decode(path.read_bytes())[0]
    refuse_binary(text)
    return clean(text)
