"""Reference texts and reference tables: what a document really says, as far as the user told us.

Reference text: the transcript; else, for txt, md and csv, the decoded file; else none. All gold offsets are code points in it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from rag_eval_pipeline.corpus.decoding import decode, is_text
from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.corpus.layout import Layout, walk

TEXT_LIMIT = 64 * 2**20
"""Bytes beyond which a text file is not read as a reference."""


def load_references(layout: Layout, files: pl.DataFrame, faults: Faults) -> tuple[pl.DataFrame, frozenset[str]]:
    """Reference texts by document, and the documents whose text is a transcript.

    Transcripts of documents that this version lacks are kept: evidence in them still has a text.
    """
    texts = {}
    for folder in layout.golds:
        for name, path in walk(layout, folder / "transcripts", faults):
            if (text := _transcript(layout, name, path, faults)) is not None:
                texts[_doc_id(name, ".txt")] = text
    transcripts = frozenset(texts)
    collapsed = {_collapse(doc_id): doc_id for doc_id in files["doc_id"]}
    texts = {collapsed.get(doc_id, doc_id): text for doc_id, text in texts.items()}
    documents = layout.documents
    for doc_id, path in files.select("doc_id", "path").iter_rows():
        if doc_id not in texts and is_text(path):
            source = documents / path
            if source.is_file() and source.stat().st_size > TEXT_LIMIT:
                faults.warn(
                    layout.name(source), None, "", "a text beyond 64 MB", "a smaller one", "it has no reference text"
                )
                continue
            try:
                texts[doc_id] = decode(source.read_bytes())[0]
            except OSError as error:
                faults.unreadable(layout.name(source), error)
    rows = sorted(texts.items())
    frame = (
        pl.DataFrame(rows, schema=SCHEMAS["references"], orient="row")
        if rows
        else pl.DataFrame(schema=SCHEMAS["references"])
    )
    return frame, frozenset(collapsed.get(doc_id, doc_id) for doc_id in transcripts)


def _collapse(doc_id: str) -> str:
    """A doc_id as a path has it: `https://a` lies at `https:/a`."""
    return "/".join(part for part in doc_id.split("/") if part)


def _doc_id(name: str, suffix: str) -> str:
    return unicodedata.normalize("NFC", name.removesuffix(suffix))


def _transcript(layout: Layout, name: str, path: Path, faults: Faults) -> str | None:
    file = layout.name(path)
    if not name.endswith(".txt"):
        faults.warn(file, None, "", "a file that is not .txt", "transcripts/<doc_id>.txt", "it is ignored")
        return None
    if (size := path.stat().st_size) > TEXT_LIMIT:
        faults.add(file, None, "", f"{size:,} bytes", f"at most {TEXT_LIMIT:,}", "split the document")
        return None
    data = path.read_bytes()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        faults.add(file, line, "", "bytes that aren't UTF-8", "UTF-8", "save the file as UTF-8")
        return None
    return decode(data)[0]


def load_tables(layout: Layout, faults: Faults) -> pl.DataFrame:
    """Reference tables, one row a table, numbered in each document from 0. Nested tables stay in theirs."""
    found: dict[str, list[str]] = {}
    for folder in layout.golds:
        for name, path in walk(layout, folder / "tables", faults):
            file = layout.name(path)
            if not name.endswith(".html"):
                faults.warn(file, None, "", "a file that is not .html", "tables/<doc_id>.html", "it is ignored")
                continue
            tables = split_tables(decode(path.read_bytes())[0])
            if not tables:
                faults.add(file, None, "", "no <table>", "at least one", "remove the file if the document has no table")
            found[_doc_id(name, ".html")] = tables
    rows = [(doc_id, number, html) for doc_id, tables in sorted(found.items()) for number, html in enumerate(tables)]
    return (
        pl.DataFrame(rows, schema=SCHEMAS["tables"], orient="row") if rows else pl.DataFrame(schema=SCHEMAS["tables"])
    )


def split_tables(html: str) -> list[str]:
    """The outermost tables of an HTML text, in order, each as HTML."""
    from lxml import etree
    from lxml import html as parser

    try:
        root = parser.document_fromstring(html)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return []
    outer: Iterable = (table for table in root.iter("table") if not any(True for _ in table.iterancestors("table")))
    return [parser.tostring(table, encoding="unicode", with_tail=False) for table in outer]
