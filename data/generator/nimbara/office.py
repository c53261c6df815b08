"""Render docx files whose bytes are the same on every run."""

from __future__ import annotations

import io
import zipfile
from datetime import UTC, datetime

import docx

from nimbara.sources import Document, plain

_EPOCH = (1980, 1, 1, 0, 0, 0)


def render(document: Document) -> bytes:
    """The docx file."""
    file = docx.Document()
    properties = file.core_properties
    moment = datetime.fromisoformat(document.published).replace(tzinfo=UTC)
    properties.title, properties.author = plain(document.title), "Nimbara"
    properties.created = properties.modified = moment
    properties.last_modified_by, properties.revision = "Nimbara", 1
    for block in document.blocks:
        if block.kind == "heading":
            file.add_heading(plain(block.text), level=block.level or 1)
        elif block.kind == "list_item":
            file.add_paragraph(plain(block.text), style="List Number" if block.number else "List Bullet")
        elif block.kind == "table":
            table = file.add_table(rows=0, cols=len(block.rows[0]), style="Table Grid")
            for row in block.rows:
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    cell.text = plain(text)
        else:
            file.add_paragraph(plain(block.text))
    buffer = io.BytesIO()
    file.save(buffer)
    return _pinned(buffer.getvalue())


def _pinned(data: bytes) -> bytes:
    """The same archive with sorted members and fixed dates."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        names = sorted(old.namelist(), key=lambda name: (name != "[Content_Types].xml", name))
        for name in names:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            new.writestr(info, old.read(name), compresslevel=9)
    return buffer.getvalue()
