"""What a candidate cleaner is: an entry of `pipeline.cleaning.candidates`, as settings laid over the section's own.

Here: names and entries. Not here: running candidates and judging them (`comparison`).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.stages.comparison import CHOSEN

EXTRACTORS: dict[str, tuple[str, str | None]] = {
    "trafilatura": ("trafilatura", None),
    "justext": ("justext", None),
    "resiliparse": ("resiliparse", "resiliparse"),
}
"""Cleaners of html pages -> the package that is imported, and the extra that installs it where it is not always there."""
CLEANERS = (*EXTRACTORS, "blocks", "none")


def known_cleaner(value: str) -> str:
    """A cleaner's name, checked.

    Raises:
        ValueError: nobody has that name.
    """
    if value not in CLEANERS and not is_import_path(value):
        raise ValueError(f"unknown cleaner {value!r}; use {', '.join(CLEANERS)} or an import path package.module:Class")
    return value


def check(name: str) -> None:
    """A cleaner's package is installed.

    Raises:
        ValueError: it is not; the message names the extra.
    """
    package, extra = EXTRACTORS.get(name, (None, None))
    if package and find_spec(package) is None:
        raise ValueError(
            f"pipeline.cleaning.html is {name}, which is not installed: pip install 'rag_eval_pipeline[{extra}]', "
            "or name another"
        )


class CleanerCandidate(BaseModel):
    """A cleaner to compare with the chosen one: its name alone, `import:<name>`, or a mapping.

    Attributes:
        name: by which tables call it.
        html: as in `cleaning`.
        favor: as in `cleaning`.
        unicode: as in `cleaning`.
        invisible: as in `cleaning`.
        imported: name of a file below outputs/cleaned/, without `.jsonl` (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.:@+-]{0,62}$")
    html: str | None = None
    favor: Literal["balanced", "recall", "precision"] | None = None
    unicode: Literal["none", "nfc", "nfkc"] | None = None
    invisible: Literal["strip", "keep"] | None = None
    imported: str | None = Field(None, alias="import", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, _, rest = value.partition(":")
        return {"name": value, "import": rest} if kind == "import" else {"name": value, "html": value}

    @model_validator(mode="after")
    def _something(self) -> CleanerCandidate:
        given = self.model_dump(exclude={"name"}, exclude_none=True)
        if not given:
            raise ValueError("a candidate changes nothing: give html, favor, unicode, invisible or import")
        if self.imported and len(given) > 1:
            raise ValueError("a candidate that is imported takes no other settings")
        if self.html is not None:
            known_cleaner(self.html)
        return self

    @property
    def pages_only(self) -> bool:
        """Whether it cleans html pages alone; other documents are then not compared."""
        return self.html in EXTRACTORS or (self.html is None and self.favor is not None)

    def changes(self) -> dict[str, Any]:
        """Settings of `cleaning` that it replaces."""
        given = self.model_dump(exclude={"name", "imported"}, exclude_none=True)
        return {**given, "imported": self.imported is not None}


def distinct(candidates: tuple[CleanerCandidate, ...]) -> tuple[CleanerCandidate, ...]:
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
