"""What a candidate cleaner is: an entry of `pipeline.cleaning.candidates`, as settings laid over the section's own.

Here: names, and what an entry may set. Not here: what it shares with entries of other rooms (`stages.candidates`); running
candidates and judging them (`comparison`).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.stages.candidates import Candidate

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


class CleanerCandidate(Candidate):
    """A cleaner to compare with the chosen one: its name alone, `import:<name>`, or a mapping.

    Attributes:
        name: by which tables call it.
        imported: name of a file below outputs/cleaned/, without `.jsonl` (`import` in corpus.yaml).
        html: as in `cleaning`.
        favor: as in `cleaning`.
        unicode: as in `cleaning`.
        invisible: as in `cleaning`.
    """

    OUTPUTS: ClassVar[str] = "cleaned"

    html: str | None = None
    favor: Literal["balanced", "recall", "precision"] | None = None
    unicode: Literal["none", "nfc", "nfkc"] | None = None
    invisible: Literal["strip", "keep"] | None = None

    @classmethod
    def of_name(cls, name: str) -> dict[str, Any]:
        """A cleaner."""
        return {"html": name}

    @field_validator("html")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else known_cleaner(value)

    @property
    def pages_only(self) -> bool:
        """Whether it cleans html pages alone; other documents are then not compared."""
        return self.html in EXTRACTORS or (self.html is None and self.favor is not None)
