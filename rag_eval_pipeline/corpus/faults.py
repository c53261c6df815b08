"""Faults: what is wrong with a user's file, said once and in one form, and the error that carries all of them.

How a file is read and what is checked belongs in the modules that do it. A fault names places, types and lengths, never
the text of a document, query or quote.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from rapidfuzz import fuzz, process, utils

Severity = Literal["error", "warning"]
SHOWN = 20
HINTS = 50
COMPARED = 20_000
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that a message must not hold as they are."""
KEPT = 1000
"""Faults of one severity kept for one file; further ones are only counted."""


def printable(name: str) -> str:
    """A name as a message may show it: no line breaks, no signs that steer a terminal or turn the text around."""
    return "".join(
        character if unicodedata.category(character) not in UNSEEN else character.encode("unicode_escape").decode()
        for character in name
    )


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input.

    Attributes:
        file: path below the corpora folder.
        line: line from 1, or None where the file has none.
        field: field, dotted; empty where the whole line or file is meant.
        found: what is there (types, lengths, ids; no text).
        expected: what belongs there.
        hint: what to do next.
        severity: `error` refuses the version, `warning` does not.
    """

    file: str
    line: int | None
    field: str
    found: str
    expected: str
    hint: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.line is not None else "")
        subject = f" {self.field}:" if self.field else ""
        hint = f" ({self.hint})" if self.hint else ""
        return printable(f"{place}:{subject} found {self.found}; expected {self.expected}{hint}")


class CorpusError(ValueError):
    """A corpus version is refused; `faults` holds everything that is wrong with it."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        shown = [str(fault) for fault in self.faults[:SHOWN]]
        if len(self.faults) > SHOWN:
            shown.append(f"… and {len(self.faults) - SHOWN} more")
        super().__init__("\n".join(shown))


@dataclass
class Faults:
    """Collects faults, so that all of a file are reported at once."""

    items: list[Fault] = field(default_factory=list)
    _counts: dict[tuple[str, Severity], int] = field(default_factory=dict)
    _hints: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        file: str,
        line: int | None,
        field: str,
        found: str,
        expected: str,
        hint: str = "",
        severity: Severity = "error",
    ) -> None:
        """Note one fault. Beyond `KEPT` of a file they are counted only."""
        count = self._counts[file, severity] = self._counts.get((file, severity), 0) + 1
        if count <= KEPT:
            self.items.append(Fault(file, line, field, found, expected, hint, severity))

    def warn(self, file: str, line: int | None, field: str, found: str, expected: str, hint: str = "") -> None:
        """Note something that does not refuse the version."""
        self.add(file, line, field, found, expected, hint, "warning")

    def unreadable(self, file: str, error: OSError) -> None:
        """Note a file or folder that the system does not let us read, or that is gone meanwhile."""
        reason = error.strerror or type(error).__name__
        self.add(
            file, None, "", f"what can't be read ({reason})", "a readable one", "give read permission or remove it"
        )

    def suggest(self, file: str, name: str, known: Collection[str]) -> str:
        """`suggestion`, for the first few of a file and where there are not too many to compare with."""
        count = self._hints[file] = self._hints.get(file, 0) + 1
        return suggestion(name, known) if count <= HINTS and len(known) <= COMPARED else ""

    def _all(self, severity: Severity) -> Iterator[Fault]:
        yield from (fault for fault in self.items if fault.severity == severity)
        for (file, kind), count in self._counts.items():
            if kind == severity and count > KEPT:
                yield Fault(
                    file, None, "", f"{count - KEPT} further faults", "none", "repair the ones above first", kind
                )

    @property
    def errors(self) -> list[Fault]:
        """Faults that refuse the version."""
        return list(self._all("error"))

    @property
    def warnings(self) -> list[Fault]:
        """Faults that do not."""
        return list(self._all("warning"))

    def refuse(self) -> None:
        """Raise all errors noted so far.

        Raises:
            CorpusError: there is at least one.
        """
        if errors := self.errors:
            raise CorpusError(errors)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None where nothing is like it."""
    found = process.extractOne(
        name, sorted(known), scorer=fuzz.WRatio, processor=utils.default_process, score_cutoff=50
    )
    return found[0] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The hint beside an unknown name: the nearest known one, or all of them where none is near."""
    options = sorted(known)
    if (best := nearest(name, options)) is not None:
        return f"did you mean {best!r}?"
    return f"known: {', '.join(options[:30])}" if options else "none is known"


def several(names: Iterable[str], limit: int = 5) -> str:
    """`a, b, c and 7 more`: ids in a message, bounded."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(name if len(name) <= 80 else name[:77] + "…" for name in listed[:limit]) + more
