"""Print a plain-text corpus: its documents as PDF, as scanned pages or as HTML, so that what a parser can spoil can be planted.

Long documents are cut at blank lines, short ones of one title are joined; what was printed is kept as transcript, so gold
stays exact. Half of the documents that could be asked about are left without a question: decoys need pages and documents
without evidence. Faults are planted by `injector`, into the printed corpus as into any other.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from random import Random
from typing import Any

import yaml

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.version import CorpusVersion, load_version

SHELVES = ("history", "nature", "people")
"""Values of the tag that each printed document gets; the correct filter of its queries names it."""
PAGE, MARGIN, SIZE, LEADING = (420.0, 420.0), 40.0, 11.0, 15.0
"""A small page, in points, so that a document of some thousand characters has several."""
WIDTH = 68
"""Characters a printed line."""
MEDIA = {"pdf": ".pdf", "scan": ".pdf", "html": ".html"}
EVIDENCE_SHARE = 0.7
"""Documents that keep their queries."""


class RenderError(ValueError):
    """A corpus can't be printed; the message says what to do."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a source document."""

    doc_id: str
    start: int
    end: int


@dataclass
class Printed:
    """A document to be printed.

    Attributes:
        name: doc_id.
        title: heading.
        text: all of it; paragraphs are parted by blank lines.
        pieces: where its stretches came from, with the offset at which each begins.
        shelf: its tag.
    """

    name: str
    title: str
    text: str
    pieces: list[tuple[Piece, int]]
    shelf: str


def render(
    corpora: Path,
    source: Key,
    target: Key,
    medium: str,
    *,
    chars: int = 5000,
    documents: int | None = None,
    queries: int = 6,
    dpi: int = 150,
    seed: int = 0,
) -> tuple[int, int]:
    """Write a printed version; returns how many documents and queries it has.

    Args:
        corpora: folder of corpora.
        source: a version whose documents have reference texts.
        target: a new corpus and version.
        medium: pdf | scan | html.
        chars: about so many characters a document.
        documents: most documents; None: all.
        queries: most queries a document.
        dpi: of scanned pages.
        seed: of the choice of documents and queries.

    Raises:
        RenderError: an unknown medium, a number below 1, no reference texts, or no library that writes PDFs.
        FileExistsError: the target is there.
    """
    if medium not in MEDIA:
        raise RenderError(f"medium {medium!r} is none of {', '.join(MEDIA)}")
    for name, number in {"chars": chars, "documents": documents, "queries": queries, "dpi": dpi}.items():
        if number is not None and number < 1:
            raise RenderError(f"{name}: found {number}; a corpus is printed with at least 1")
    layout = Layout(corpora, target)
    if layout.version.exists():
        raise FileExistsError(f"{target.subject} is there already; choose another name")
    version = load_version(corpora, source)
    printed = _printed(version, chars, documents, Random(seed))
    if not printed:
        raise RenderError(
            f"{source.subject} has no reference texts; only text documents and transcripts can be printed"
        )
    asked, evidence = _gold(version, printed, queries, Random(seed + 1))
    folder = layout.corpus.parent / f".{target.corpus}-{target.version}.{uuid.uuid4().hex}.tmp"
    try:
        _write(folder / target.version, printed, asked, evidence, medium, dpi)
        layout.corpus.mkdir(parents=True, exist_ok=True)
        (folder / target.version).rename(layout.version)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not (layout.corpus / "corpus.yaml").exists():
        languages = sorted({row["language"] for row in asked if row.get("language")})
        (layout.corpus / "corpus.yaml").write_text(yaml.safe_dump(_settings(languages or ["en"])), "utf-8")
    return len(printed), len(asked)


def _settings(languages: Sequence[str]) -> dict[str, Any]:
    """Every stage on, so that every kind of fault can act."""
    return {
        "languages": list(languages),
        "pipeline": {
            "pii": {"entities": ["EMAIL_ADDRESS", "IBAN_CODE"]},
            "chunking": {"size": 128, "overlap": 16},
            "filtering": {"extractor": "gold", "mode": "hard"},
            "reranking": {"reranker": "lexical", "depth": 30},
        },
    }


# Texts -----------------------------------------------------------------------------------------------------------------


def _printed(version: CorpusVersion, chars: int, most: int | None, rng: Random) -> list[Printed]:
    titles = dict(version.files.select("doc_id", "title").iter_rows())
    texts = dict(version.gold.references.sort("doc_id").iter_rows())
    groups: dict[str, list[Piece]] = {}
    for doc_id, text in texts.items():
        for piece in _pieces(doc_id, text, chars):
            title = titles.get(doc_id)
            name = f"{title or doc_id}"
            size = sum(p.end - p.start for p in groups.get(name, ()))
            while groups.get(name) and size + piece.end - piece.start > chars * 1.2:
                name += "'"
                size = sum(p.end - p.start for p in groups.get(name, ()))
            groups.setdefault(name, []).append(piece)
    chosen = sorted(groups)
    if most is not None and most < len(chosen):
        chosen = sorted(rng.sample(chosen, most))
    found = []
    for number, name in enumerate(chosen):
        title = name.rstrip("'")
        text, pieces = f"{title}\n\n", []
        for piece in groups[name]:
            pieces.append((piece, len(text)))
            text += texts[piece.doc_id][piece.start : piece.end].strip("\n") + "\n\n"
        found.append(Printed(f"d{number:03d}", title, text.rstrip() + "\n", pieces, SHELVES[number % len(SHELVES)]))
    return found


def _pieces(doc_id: str, text: str, chars: int) -> list[Piece]:
    """Stretches of about `chars` characters that end at blank lines; without leading line ends."""
    pieces, start = [], 0
    while start < len(text):
        while start < len(text) and text[start] == "\n":
            start += 1
        end = len(text)
        if len(text) - start > chars * 1.3:
            breaks = (text.rfind("\n\n", start + 1, start + chars), text.rfind("\n", start + 1, start + chars))
            end = next((at for at in breaks if at > start), text.find("\n", start + chars))
            end = len(text) if end < 0 else end
        if text[start:end].strip():
            pieces.append(Piece(doc_id, start, end))
        start = end
    return pieces


def _gold(
    version: CorpusVersion, printed: Sequence[Printed], most: int, rng: Random
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Queries whose evidence stands whole in printed documents that keep theirs, and that evidence."""
    keeping = [document for document in printed if rng.random() < EVIDENCE_SHARE] or list(printed[:1])
    texts = dict(version.gold.references.iter_rows())
    places: dict[str, list[tuple[Printed, Piece, int]]] = {}
    for document in keeping:
        for piece, at in document.pieces:
            places.setdefault(piece.doc_id, []).append((document, piece, at))
    found: dict[str, list[tuple[Printed, dict[str, Any]]]] = {}
    broken: set[str] = set()
    for row in version.gold.evidence.sort("query_id", "evidence_id").iter_rows(named=True):
        moved = _moved(_with_start(row, texts), places.get(row["doc_id"], []))
        if moved is None:
            broken.add(row["query_id"])
        else:
            found.setdefault(row["query_id"], []).append(moved)
    asked, evidence, counts = [], [], dict.fromkeys((document.name for document in printed), 0)
    queries = version.gold.queries.sort("query_id").to_dicts()
    rng.shuffle(queries)
    for query in queries:
        units = found.get(query["query_id"], [])
        home = units[0][0] if units else None
        if home is None or query["query_id"] in broken or counts[home.name] >= most:
            continue
        if any(document.shelf != home.shelf for document, _ in units):
            continue
        counts[home.name] += 1
        line = {name: query[name] for name in ("query_id", "text", "language") if query[name]}
        asked.append({**line, "filter": {"shelf": home.shelf}})
        evidence += [unit for _, unit in units]
    return sorted(asked, key=lambda row: row["query_id"]), evidence


def _with_start(row: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """An evidence line with its offsets, where its quote stands in the reference text once."""
    text = texts.get(row["doc_id"], "")
    if row["start"] is not None or not row["quote"] or text.count(row["quote"]) != 1:
        return row
    start = text.index(row["quote"])
    return {**row, "start": start, "end": start + len(row["quote"])}


def _moved(
    row: Mapping[str, Any], places: Sequence[tuple[Printed, Piece, int]]
) -> tuple[Printed, dict[str, Any]] | None:
    """An evidence line in the printed document that has all of it."""
    for document, piece, at in places:
        start = row["start"]
        if start is None or not piece.start <= start or not row["end"] <= piece.end:
            continue
        moved = at + start - piece.start
        quote = document.text[moved : moved + row["end"] - start]
        if quote != row["quote"]:
            continue
        line = {
            "query_id": row["query_id"], "evidence_id": row["evidence_id"], "doc_id": document.name, "quote": quote,
            "start": moved, "end": moved + len(quote),
        }  # fmt: skip
        return document, line if row["critical"] is None else {**line, "critical": row["critical"]}
    return None


# Files -----------------------------------------------------------------------------------------------------------------


def _write(
    folder: Path,
    printed: Sequence[Printed],
    asked: Sequence[Mapping[str, Any]],
    evidence: Sequence[Mapping[str, Any]],
    medium: str,
    dpi: int,
) -> None:
    writers: dict[str, Callable[[Printed, Path], None]] = {
        "pdf": _pdf,
        "scan": lambda document, path: _scan(document, path, dpi),
        "html": _html,
    }
    documents, gold = folder / "documents", folder / "gold"
    (gold / "transcripts").mkdir(parents=True)
    documents.mkdir(parents=True)
    lines = []
    for document in printed:
        path = documents / f"{document.name}{MEDIA[medium]}"
        writers[medium](document, path)
        (gold / "transcripts" / f"{document.name}.txt").write_text(document.text, "utf-8")
        lines.append(
            {
                "doc_id": document.name, "path": path.name, "title": document.title, "doc_class": medium,
                "metadata": {"shelf": document.shelf},
            }
        )  # fmt: skip
    for path, rows in (
        (folder / "documents.jsonl", lines),
        (gold / "queries.jsonl", asked),
        (gold / "evidence.jsonl", evidence),
    ):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def _html(document: Printed, path: Path) -> None:
    body = "\n".join(f"<p>{escape(p)}</p>" for p in document.text.split("\n\n")[1:] if p.strip())
    path.write_text(
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{escape(document.title)}</title></head>\n'
        f"<body><nav><a href='/'>Start</a> <a href='/all'>All pages</a></nav>\n<main><article><h1>{escape(document.title)}"
        f"</h1>\n{body}\n</article></main>\n<footer>Printed for a test of attribution.</footer></body></html>\n",
        "utf-8",
    )


def _pdf(document: Printed, path: Path) -> None:
    try:
        import reportlab
        from reportlab.pdfbase import pdfmetrics
        from reportlab.pdfbase.ttfonts import TTFont
        from reportlab.pdfgen.canvas import Canvas
    except ImportError:
        raise RenderError(
            "PDFs are written by reportlab, which is not installed: pip install rag_eval_pipeline[render]"
        ) from None
    pdfmetrics.registerFont(TTFont("Vera", str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))
    canvas = Canvas(str(path), pagesize=PAGE, invariant=True)
    canvas.setTitle(document.title)
    y = PAGE[1] - MARGIN
    for line in _lines(document.text):
        if y < MARGIN:
            canvas.showPage()
            y = PAGE[1] - MARGIN
        if line:
            canvas.setFont("Vera", SIZE * 0.85)
            canvas.drawString(MARGIN, y, line)
        y -= LEADING * (0.85 if line else 0.6)
    canvas.save()


def _lines(text: str) -> list[str]:
    """Printed lines: words stay whole; an empty line parts paragraphs."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            if line and len(line) + 1 + len(word) > WIDTH:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines


def _scan(document: Printed, path: Path, dpi: int) -> None:
    """The PDF's pages as grey pictures: no text layer."""
    import pypdfium2

    plain = path.with_suffix(".tmp.pdf")
    _pdf(document, plain)
    pdf = pypdfium2.PdfDocument(plain)
    try:
        pages = [page.render(scale=dpi / 72, grayscale=True).to_pil().convert("L") for page in pdf]
    finally:
        pdf.close()
        plain.unlink()
    pages[0].save(path, "PDF", resolution=dpi, save_all=True, append_images=pages[1:], quality=90)
