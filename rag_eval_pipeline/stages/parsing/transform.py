"""Files to text, blocks and tables. One format is one module beside this one; what is main text, cleaning decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from rag_eval_pipeline.corpus.faults import several
from rag_eval_pipeline.corpus.fingerprints import sha256_file
from rag_eval_pipeline.engine.limits import Limits, Refusal
from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.stages.candidates import Candidates
from rag_eval_pipeline.stages.parsing import engines, ocr
from rag_eval_pipeline.stages.parsing.candidate import ParserCandidate, known_parser
from rag_eval_pipeline.stages.parsing.markup import read_html
from rag_eval_pipeline.stages.parsing.ocr import read_image
from rag_eval_pipeline.stages.parsing.pdf import read_pdf
from rag_eval_pipeline.stages.parsing.plain import read_csv, read_md, read_txt
from rag_eval_pipeline.stages.parsing.reading import Reading, Rows, clean
from rag_eval_pipeline.stages.parsing.tables import Blocks, Parsed, ParsedTables
from rag_eval_pipeline.stages.parsing.word import read_docx
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

READERS: dict[str, Callable[[Path, Any], Reading]] = {
    "txt": read_txt,
    "md": read_md,
    "csv": read_csv,
    "html": read_html,
    "pdf": read_pdf,
    "docx": read_docx,
    "image": read_image,
}
"""Medium (documents.media) -> reader."""
CHANGED = "changed"
"""Never a row: the stage refuses to go on."""
UNREAD = {"unreadable": "missing"}
"""Status here of documents that source could not hand on, where it has another name there."""


class Parser(Protocol):
    """A user's own parser, made without arguments, once a worker. It gets every document that source could read."""

    def parse(self, path: Path, config: ParsingConfig) -> dict[str, Any]:
        """Read one file.

        Returns:
            `text`; and, where it has them, `blocks` (list of {kind, start, end, level, page}: offsets into text, level and
            page optional) and `tables` (list of HTML).
        """
        ...


class ParsingConfig(BaseModel):
    """Section `parsing` of corpus.yaml.

    Attributes:
        parser: pypdfium2 (with its own reader for every other format); an engine of others for the formats that it reads
            (`engines`: pdfplumber, pymupdf, docling, unstructured); or an import path of a `Parser`.
        candidates: parsers to compare with this one on the same documents; they decide nothing that follows.
        ocr: engine for images and scanned pages; auto is tesseract where installed, else rapidocr.
        ocr_languages: tesseract's names; those that are not installed are passed over. The first one weighs most: with
            Spanish first, accents survive on mixed pages, and English pages read the same.
        dpi: at which scanned pdf pages are rendered.
        imported: take outputs/parsed.jsonl instead (`import` in corpus.yaml).
        seconds: time limit a document, for the other stages too; of pdf and images a page, and twenty times as much a document.
        memory_mb: memory limit a document; for the other stages too.
        max_pages: documents with more pages are refused as too_large.
        max_pixels: images with more pixels are refused as too_large; scanned pages are rendered smaller.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    parser: str = "pypdfium2"
    candidates: Candidates[ParserCandidate] = Field((), exclude=True)
    ocr: Literal["auto", "tesseract", "rapidocr", "none"] = "auto"
    ocr_languages: tuple[str, ...] = ("spa", "eng")
    dpi: int = Field(300, ge=72, le=1200)
    imported: Switch = Field(False, alias="import")
    seconds: float = Field(60.0, gt=0)
    memory_mb: int = Field(2048, ge=256)
    max_pages: int = Field(2000, ge=1)
    max_pixels: int = Field(100_000_000, ge=1)

    @field_validator("ocr", mode="before")
    @classmethod
    def _null_is_none(cls, value: Any) -> Any:
        return "none" if value is None or value is False else value

    @field_validator("parser")
    @classmethod
    def _known(cls, value: str) -> str:
        return known_parser(value)


CONFIG = ParsingConfig


def identity(config: ParsingConfig) -> dict[str, Any]:
    """The OCR engine that reads on this machine (another one, or other languages, read other texts), and another's parser.

    Raises:
        ValueError: the parser or the OCR engine is not installed.
    """
    if config.imported or is_import_path(config.parser):
        return {}
    if config.parser in engines.ENGINES:
        engines.check(config.parser, "pipeline.parsing.parser")
        return {"ocr": ocr.identity(config), "engine": engines.identity(config.parser)}
    return {"ocr": ocr.identity(config)}


def prepare(config: ParsingConfig) -> None:
    """Load models before a worker's first document, outside of the documents' time limit."""
    if is_import_path(config.parser):
        _user_parser(config.parser)
        return
    if config.parser in engines.ENGINES:
        engines.ENGINES[config.parser].warm()
    ocr.warm(config)


def run(frames: Mapping[str, pl.DataFrame], config: ParsingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Read every document of the version, or take the user's own parsed texts.

    Raises:
        ValueError: an import without outputs/parsed.jsonl or with unknown documents or offsets; an OCR engine or language
            that is not installed; documents that changed since the version was loaded.
    """
    documents = frames["documents"]
    writes = (Parsed, Blocks, ParsedTables)
    if config.imported:
        return _frames(_imported(documents, frames.get("output:parsed")))
    identity(config)  # says what is missing before the first document
    readable = documents.filter(pl.col("status") == "ok")
    items = readable.select(
        "doc_id", "media", "content_hash", (pl.lit(f"{runtime.files}/") + pl.col("path")).alias("file")
    )
    made = runtime.map(
        "parsing", one, items, config, reads=["content_hash", "media"], writes=writes, failed=failed,
        limits=Limits(config.seconds, config.memory_mb),
    )  # fmt: skip
    if len(changed := made["parsed"].filter(pl.col("status") == CHANGED)):
        raise ValueError(
            f"{len(changed)} documents changed while the version was read ({several(changed['doc_id'])}): put the old "
            "files back and run again, or keep the new ones as a new version (rag-eval bump)"
        )
    others = documents.filter(pl.col("status") != "ok").select("doc_id", "status", "error")
    unread = {doc_id: failed({}, UNREAD.get(status, status), error) for doc_id, status, error in others.iter_rows()}
    rest = _frames(unread)
    return {name: conform(schema, pl.concat([made[name], rest[name]])) for name, schema in _SCHEMAS.items()}


_SCHEMAS = {"parsed": Parsed, "blocks": Blocks, "parsed_tables": ParsedTables}


def one(item: dict[str, Any], config: ParsingConfig) -> Rows:
    """Read one document. A file that is refused gives a row with its status."""
    started = time.monotonic()
    if not Path(item["file"]).is_file():  # opening a pipe would wait forever
        raise Refusal(CHANGED, "the file is gone, or is no file any more")
    try:
        if is_import_path(config.parser):
            reading = _by_user(Path(item["file"]), config)
        else:
            reading = _reader(config.parser, item["media"])(Path(item["file"]), config)
    except Refusal as refusal:
        if refusal.status == "timeout":  # may pass the next time: a failure, not a result to remember
            raise
        _refuse_changed(item)
        return failed(item, refusal.status, refusal.message)
    except Exception:
        _refuse_changed(item)
        raise
    _refuse_changed(item)
    return reading.rows(time.monotonic() - started)


def _reader(parser: str, media: str) -> Callable[[Path, Any], Reading]:
    engine = engines.ENGINES.get(parser)
    return engine.read if engine and media in engine.media else READERS[media]


def _refuse_changed(item: dict[str, Any]) -> None:
    """What was read is remembered under the hash that the file had when the version was loaded.

    Raises:
        Refusal: it has another one now.
    """
    file, known = Path(item["file"]), item.get("content_hash")
    try:
        same = known is None or (file.is_file() and sha256_file(file) == known)
    except OSError:
        same = False
    if not same:
        raise Refusal(CHANGED, "the file changed after the version was loaded")


def failed(item: dict[str, Any], status: str, error: str | None) -> Rows:
    """No text, with the reason."""
    row = {"text": "", "status": status, "error": error, "parser": "none", "pages": None, "seconds": None, "html": None}
    return {"parsed": [row], "blocks": [], "parsed_tables": []}


def _frames(by_document: Mapping[str, Rows]) -> dict[str, pl.DataFrame]:
    return {
        name: conform(schema, [{"doc_id": doc_id, **row} for doc_id, rows in by_document.items() for row in rows[name]])
        for name, schema in _SCHEMAS.items()
    }


# A user's own ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _user_parser(path: str) -> Parser:
    return load(path)()


def _by_user(path: Path, config: ParsingConfig) -> Reading:
    answer = _user_parser(config.parser).parse(path, config)
    if not isinstance(answer, Mapping) or not isinstance(answer.get("text"), str):
        raise Refusal("error", f"{config.parser} returned no mapping with a string `text`")
    try:
        return _given(config.parser, answer)
    except ValueError as error:
        raise Refusal("error", f"{config.parser}: {error}") from error


def _imported(documents: pl.DataFrame, output: pl.DataFrame | None) -> dict[str, Rows]:
    if output is None:
        raise ValueError("pipeline.parsing.import is set but outputs/parsed.jsonl is absent; add it or remove `import`")
    if unknown := sorted(set(output["doc_id"]) - set(documents["doc_id"])):
        raise ValueError(f"outputs/parsed.jsonl: {len(unknown)} documents are not in this version, first {unknown[:3]}")
    rows: dict[str, Rows] = {}
    for row in output.iter_rows(named=True):
        try:
            reading = _given("import", row)
            reading.html = row.get("html")
            rows[row["doc_id"]] = reading.rows()
        except Refusal as refusal:
            rows[row["doc_id"]] = failed({}, refusal.status, refusal.message)
        except ValueError as error:
            raise ValueError(f"outputs/parsed.jsonl: document {row['doc_id']}: {error}") from error
    for doc_id in documents["doc_id"]:
        rows.setdefault(doc_id, failed({}, "missing", "no row in outputs/parsed.jsonl"))
    return rows


def _given(parser: str, answer: Mapping[str, Any]) -> Reading:
    """What somebody else's parser says, in our form.

    Raises:
        ValueError: a block's offsets are not in the text.
    """
    text = answer["text"] or ""
    reading = Reading.verbatim(parser, clean(text))
    length = len(text)
    places = _places(text) if reading.text != text else None
    for number, block in enumerate(answer.get("blocks") or ()):
        start, end = block.get("start"), block.get("end")
        if start is None or end is None or not 0 <= start <= end <= length:
            raise ValueError(f"block {number} has start {start} and end {end}, and its text has {length} code points")
        if places is not None:
            start, end = places[start], places[end]
        reading.mark(block.get("kind") or "paragraph", start, end, block.get("level"), block.get("page"))
    for html in answer.get("tables") or ():
        reading.keep_table(clean(html))
    return reading


def _places(text: str) -> list[int]:
    """Where each code point of `text` stands after `clean`: CRLF is one character there, NUL none."""
    places, place = [], 0
    for index, character in enumerate(text):
        places.append(place)
        dropped = character == "\0" or (character == "\r" and text[index + 1 : index + 2] == "\n")
        place += not dropped
    return [*places, place]
