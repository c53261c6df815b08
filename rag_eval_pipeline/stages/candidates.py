"""What a candidate is: an entry of a section's `candidates`, as settings laid over the section's own.

Here: what the entries of all rooms share, and how they are told apart. Not here: what a room's entries may set (its
`candidate`); how candidates are run (its `comparison`); their summary (`stages.comparison`), whose statistics are no part of
what a stage computes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

CHOSEN = "chosen"
"""Name of what the pipeline goes on with, among its candidates."""
OTHER_FORMAT = "other_format"
"""Status of a document whose format a candidate leaves to the chosen one: nothing to compare."""


class Candidate(BaseModel):
    """Something to compare with the chosen one; in corpus.yaml a mapping, a name alone, or `import:<name>`.

    Attributes:
        name: by which tables call it.
        imported: name of a file below outputs/<OUTPUTS>/, without `.jsonl` (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    OUTPUTS: ClassVar[str]
    """Folder below outputs/ that its room imports from."""

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.:@+-]{0,62}$")
    imported: str | None = Field(None, alias="import", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, _, rest = value.partition(":")
        return {"name": value, **({"import": rest} if kind == "import" else cls.of_name(value))}

    @model_validator(mode="after")
    def _something(self) -> Candidate:
        given = self.model_dump(exclude={"name"}, exclude_none=True)
        if not given:
            others = [name for name in type(self).model_fields if name not in {"name", "imported"}]
            raise ValueError(f"a candidate changes nothing: give {', '.join(others)} or import")
        if self.imported and len(given) > 1:
            raise ValueError("a candidate that is imported takes no other settings")
        return self

    @classmethod
    @abstractmethod
    def of_name(cls, name: str) -> dict[str, Any]:
        """Settings that a name alone stands for."""

    @property
    def output(self) -> str | None:
        """Name of the output that it imports."""
        return f"{self.OUTPUTS}/{self.imported}" if self.imported else None

    def changes(self) -> dict[str, Any]:
        """Settings of the section that it replaces."""
        given = self.model_dump(exclude={"name", "imported"}, exclude_none=True)
        return {**given, "imported": self.imported is not None}


Section = TypeVar("Section", bound=BaseModel)
Kind = TypeVar("Kind", bound=Candidate)


def settings_of(config: Section, candidate: Candidate) -> Section:
    """The section as it would be with this candidate."""
    return config.model_copy(update={**candidate.changes(), "candidates": ()})


def distinct(candidates: tuple[Kind, ...]) -> tuple[Kind, ...]:
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


Candidates = Annotated[
    tuple[Kind, ...], BeforeValidator(lambda value: () if value is None else value), AfterValidator(distinct)
]
"""Field of a section: its candidates, of different names; null: none."""
