"""What a candidate parser is: an entry of `pipeline.parsing.candidates`, as settings laid over the section's own.

Here: reading the entry. Not here: running candidates and judging them (`comparison`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.stages.comparison import CHOSEN
from rag_eval_pipeline.stages.parsing.engines import ENGINES

OCR = ("tesseract", "rapidocr")
PICTURES = frozenset({"pdf", "image"})
BUILT_IN = "pypdfium2"
NAME = r"^[A-Za-z0-9][\w.:@+-]{0,62}$"


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


class ParserCandidate(BaseModel):
    """A parser to compare with the chosen one.

    In corpus.yaml either a mapping, or a name alone: a parser, `tesseract` or `rapidocr`, each with `@<dpi>` if wanted, or
    `import:<name>` for outputs/parsed/<name>.jsonl.

    Attributes:
        name: by which tables call it.
        parser: as in `parsing`.
        ocr: as in `parsing`.
        ocr_languages: as in `parsing`.
        dpi: as in `parsing`.
        seconds: as in `parsing`.
        memory_mb: as in `parsing`.
        imported: name of a file below outputs/parsed/, without `.jsonl` (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=NAME)
    parser: str | None = None
    ocr: Literal["auto", "tesseract", "rapidocr", "none"] | None = None
    ocr_languages: tuple[str, ...] | None = None
    dpi: int | None = Field(None, ge=72, le=1200)
    seconds: float | None = Field(None, gt=0)
    memory_mb: int | None = Field(None, ge=256)
    imported: str | None = Field(None, alias="import", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, _, rest = value.partition(":")
        if kind == "import":
            return {"name": value, "import": rest}
        what, _, dpi = value.partition("@")
        given: dict[str, Any] = {"name": value, "ocr" if what in OCR else "parser": what}
        return {**given, "dpi": dpi} if dpi else given

    @model_validator(mode="after")
    def _something(self) -> ParserCandidate:
        given = self.model_dump(exclude={"name"}, exclude_none=True)
        if not given:
            raise ValueError("a candidate changes nothing: give parser, ocr, ocr_languages, dpi or import")
        if self.imported and len(given) > 1:
            raise ValueError("a candidate that is imported takes no other settings")
        if self.parser is not None:
            known_parser(self.parser)
        return self

    @property
    def media(self) -> frozenset[str] | None:
        """Formats that it reads in its own way; None: all. The others are read as without it, and aren't compared."""
        if self.parser in ENGINES:
            return ENGINES[self.parser].media
        return PICTURES if self.parser is None and self.imported is None else None

    def changes(self) -> dict[str, Any]:
        """Settings of `parsing` that it replaces."""
        given = self.model_dump(exclude={"name", "imported"}, exclude_none=True)
        return {**given, "imported": self.imported is not None}


def distinct(candidates: tuple[ParserCandidate, ...]) -> tuple[ParserCandidate, ...]:
    """Candidates of different names.

    Raises:
        ValueError: a name twice, or the name `chosen`.
    """
    names = [candidate.name for candidate in candidates]
    if CHOSEN in names:
        raise ValueError(f"candidates: {CHOSEN!r} is what tables call the one in use; give a `name`")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"candidates: {', '.join(twice)} more than once; give each a `name` of its own")
    return candidates
