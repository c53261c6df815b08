"""Render md, txt and csv, and write reference texts. Binary formats stand in their own modules.

Every function keeps the marks of personal data, so that their offsets can be read off the result.
"""

from __future__ import annotations

from nimbara.sources import Block, Document

TEXT_FORMATS = ("md", "txt", "csv")
BULLETS = {"pdf": "• "}
"""Signs of list items that a reader of the file sees as text."""


def render(document: Document) -> str:
    """The text of an md, txt or csv file, marks included."""
    if document.media == "md":
        return _markdown(document.blocks)
    if document.media == "txt" and document.body.startswith("# "):
        return _text(document.blocks)
    return document.body


def transcript(blocks: list[Block], media: str) -> str:
    """The reference text of a rendered document, marks included: blocks parted by blank lines, cells by tabs."""
    parts: list[str] = []
    for index, block in enumerate(blocks):
        if index:
            listed = block.kind == "list_item" and blocks[index - 1].kind == "list_item"
            parts.append("\n" if listed else "\n\n")
        parts.append(block_text(block, media))
    return "".join(parts) + "\n"


def block_text(block: Block, media: str) -> str:
    """What is read of one block."""
    if block.kind == "table":
        return "\n".join("\t".join(row).rstrip("\t") for row in block.rows)
    if block.kind != "list_item" or media in {"docx", "html"}:
        return block.text
    return f"{block.number}. {block.text}" if block.number else BULLETS.get(media, "- ") + block.text


def _markdown(blocks: list[Block]) -> str:
    parts: list[str] = []
    for index, block in enumerate(blocks):
        if index:
            listed = block.kind == "list_item" and blocks[index - 1].kind == "list_item"
            parts.append("\n" if listed else "\n\n")
        if block.kind == "heading":
            parts.append("#" * (block.level or 1) + " " + block.text)
        elif block.kind == "table":
            lines = [f"| {' | '.join(row)} |" for row in block.rows]
            parts.append("\n".join([lines[0], "|" + " --- |" * len(block.rows[0]), *lines[1:]]))
        else:
            parts.append(block_text(block, "md"))
    return "".join(parts) + "\n"


def _text(blocks: list[Block]) -> str:
    parts = []
    for block in blocks:
        text = block_text(block, "txt")
        parts.append(text.upper() if block.kind == "heading" and block.level == 1 else text)
    return "\n\n".join(parts) + "\n"
