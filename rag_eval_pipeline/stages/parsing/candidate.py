"""What a candidate parser is: an entry of `pipeline.parsing.candidates`, as settings laid over the section's own.

Here: names, and what an entry may set. Not here: what it shares with entries of other rooms (`stages.candidates`); running
candidates and judging them (`comparison`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.stages.candidates import Candidate
from rag_eval_pipeline.stages.parsing.engines import ENGINES

OCR = ("tesseract", "rapidocr")
PICTURES = frozenset({"pdf", "image"})
BUILT_IN = "pypdfium2"


def known_parser(value: str) -> str:
    """A parser's name, checked.

    Raises:
        ValueError: nobody has that name.
    """
    if value != BUILT_IN and value not in ENGINES and not is_import_path(value):
        raise ValueError(
            f"unknown parser {value!r}; use {', '.join((BUILT_IN, *ENGINES))} or an import path package.module:Class"
        )
    return value


class ParserCandidate(Candidate):
    """A parser to compare with the chosen one.

    In corpus.yaml either a mapping, or a name alone: a parser, `tesseract` or `rapidocr`, each with `@<dpi>` if wanted, or
    `import:<name>` for outputs/parsed/<name>.jsonl.

    Attributes:
        name: by which tables call it.
        imported: name of a file below outputs/parsed/, without `.jsonl` (`import` in corpus.yaml).
        parser: as in `parsing`.
        ocr: as in `parsing`.
        ocr_languages: as in `parsing`.
        dpi: as in `parsing`.
        seconds: as in `parsing`.
        memory_mb: as in `parsing`.
    """

    OUTPUTS: ClassVar[str] = "parsed"

    parser: str | None = None
    ocr: Literal["auto", "tesseract", "rapidocr", "none"] | None = None
    ocr_languages: tuple[str, ...] | None = None
    dpi: int | None = Field(None, ge=72, le=1200)
    seconds: float | None = Field(None, gt=0)
    memory_mb: int | None = Field(None, ge=256)

    @classmethod
    def of_name(cls, name: str) -> dict[str, Any]:
        """A parser or an OCR engine, with its dpi."""
        what, _, dpi = name.partition("@")
        given: dict[str, Any] = {"ocr" if what in OCR else "parser": what}
        return {**given, "dpi": dpi} if dpi else given

    @field_validator("parser")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else known_parser(value)

    @property
    def media(self) -> frozenset[str] | None:
        """Formats that it reads in its own way; None: all. The others are read as without it, and aren't compared."""
        if self.parser in ENGINES:
            return ENGINES[self.parser].media
        return PICTURES if self.parser is None and self.imported is None else None
