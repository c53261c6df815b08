"""Read the sources below content/ into documents. How a document looks belongs in the renderers, labels in `gold`.

A source file holds documents, each begun by a line `@@@ <doc_id>` and a YAML line of metadata. The body is one block a line:
`# ` and `## ` headings, `- ` and `1. ` list items, `| a | b |` table rows, anything else a paragraph. `{{TYPE:text}}`
marks personal data. The body of txt and csv documents is taken as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

CONTENT = Path(__file__).parent.parent / "content"
PII = re.compile(r"\{\{([A-Z_]+):(.*?)\}\}")
_NUMBERED = re.compile(r"\d+\. ")


@dataclass(frozen=True)
class Block:
    """One block of a document.

    Attributes:
        kind: heading, paragraph, list_item or table.
        text: its text, with marks of personal data; empty for tables.
        level: of a heading.
        number: of an ordered list item; 0 for a bullet.
        rows: of a table; the first one is its head.
    """

    kind: str
    text: str = ""
    level: int | None = None
    number: int = 0
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Document:
    """A document before it is rendered."""

    doc_id: str
    path: str
    doc_class: str
    locale: str
    published: str
    body: str
    tenant: str | None = None
    acl: tuple[str, ...] = ()
    supersedes: str | None = None
    columns: int = 1
    declared_title: str | None = None
    style: dict[str, Any] = field(default_factory=dict)

    @property
    def media(self) -> str:
        """The file's extension."""
        return self.path.rsplit(".", 1)[1]

    @property
    def language(self) -> str:
        """The primary language."""
        return self.locale.split("-")[0]

    @property
    def blocks(self) -> list[Block]:
        """The body as blocks."""
        return parse_blocks(self.body)

    @property
    def title(self) -> str:
        """Title for documents.jsonl and the page."""
        return self.declared_title or plain(self.body.split("\n", 1)[0].removeprefix("# "))

    def edited(self, pairs: Sequence[Sequence[str]], **changes: Any) -> Document:
        """The document with texts replaced; each must be there."""
        return replace(self, body=replaced(self.body, pairs, self.doc_id), **changes)


def replaced(text: str, pairs: Iterable[Sequence[str]], name: str) -> str:
    """All replacements made in turn.

    Raises:
        ValueError: one of the texts is not there.
    """
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"{name}: the text to replace is not there: {old!r}")
        text = text.replace(old, new)
    return text


def plain(text: str) -> str:
    """Text without marks of personal data."""
    return PII.sub(lambda match: match[2], text)


def marked_spans(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Text without marks, and the marked spans in it."""
    parts: list[str] = []
    spans: list[dict[str, Any]] = []
    length = end = 0
    for match in PII.finditer(text):
        before = text[end : match.start()]
        start = length + len(before)
        spans.append({"start": start, "end": start + len(match[2]), "type": match[1]})
        parts += [before, match[2]]
        length, end = start + len(match[2]), match.end()
    return "".join([*parts, text[end:]]), spans


def parse_blocks(body: str) -> list[Block]:
    """Blocks of a body, one a line; neighbouring table rows are one table."""
    blocks: list[Block] = []
    for line in filter(None, (line.strip() for line in body.split("\n"))):
        if line.startswith("|"):
            row = tuple(cell.strip() for cell in line.strip("|").split("|"))
            if blocks and blocks[-1].kind == "table":
                blocks[-1] = replace(blocks[-1], rows=(*blocks[-1].rows, row))
            else:
                blocks.append(Block("table", rows=(row,)))
        elif line.startswith("#"):
            marks, text = line.split(" ", 1)
            blocks.append(Block("heading", text, len(marks)))
        elif line.startswith("- "):
            blocks.append(Block("list_item", line[2:]))
        elif match := _NUMBERED.match(line):
            blocks.append(Block("list_item", line[match.end() :], number=int(match[0][:-2])))
        else:
            blocks.append(Block("paragraph", line))
    return [_padded(block) for block in blocks]


def _padded(table: Block) -> Block:
    width = max((len(row) for row in table.rows), default=0)
    return replace(table, rows=tuple((*row, *[""] * (width - len(row))) for row in table.rows))


def read_documents(*names: str) -> dict[str, Document]:
    """Documents of some source files; a document with `copy_of` takes its body from another one."""
    raw = [entry for name in names for entry in _entries(CONTENT / name)]
    documents: dict[str, Document] = {}
    for doc_id, meta, body in raw:
        if (original := meta.pop("copy_of", None)) is not None:
            body = documents[original].body
        pairs = meta.pop("replace", [])
        if doc_id in documents:
            raise ValueError(f"two documents are called {doc_id}")
        documents[doc_id] = _document(doc_id, meta, body).edited(pairs)
    return documents


def _entries(path: Path) -> list[tuple[str, dict[str, Any], str]]:
    entries = []
    for part in path.read_text("utf-8").split("@@@ ")[1:]:
        doc_id, meta, body = part.split("\n", 2)
        entries.append((doc_id.strip(), yaml.load(meta, Loader=yaml.BaseLoader), body.strip() + "\n"))  # noqa: S506
    return entries


def _document(doc_id: str, meta: dict[str, Any], body: str) -> Document:
    return Document(
        doc_id=doc_id, path=meta["path"], doc_class=meta["class"], locale=meta["locale"], published=meta["published"],
        body=body, tenant=meta.get("tenant"), acl=tuple(meta.get("acl", ())), supersedes=meta.get("supersedes"),
        columns=int(meta.get("columns", 1)), declared_title=meta.get("title"),
    )  # fmt: skip
