"""A deterministic extractor: values of configured document fields, or configured phrases, found literally in the query.

Literally: after NFC and casefold, between word boundaries, the longest first, so that "en" is not found inside "en-GB". It
understands no negation ("not the French one") and no synonyms but those that are configured. A field whose values the query
names is filtered on; several values of a field mean any of them, several fields mean all.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
import regex

from rag_eval_pipeline.corpus.predicates import FIELDS

Phrases = Mapping[str, Mapping[str, tuple[str, ...]]]


class Rules:
    """Finds in a query the values of fields.

    Args:
        fields: field -> value -> phrases that mean it. A field without values takes those of the documents, each its own
            phrase; a value without phrases is its own phrase.
        documents: the documents table; needed for fields without values.
    """

    def __init__(self, fields: Phrases, documents: pl.DataFrame) -> None:
        self._finders = {field: _Finder(_meanings(field, fields[field], documents)) for field in sorted(fields)}

    def extract(self, text: str) -> dict[str, Any] | None:
        """The predicate that a query states; None where it states none."""
        folded = _fold(text)
        parts = []
        for field, finder in self._finders.items():
            values = finder.values(folded)
            if values:
                parts.append({field: values[0] if len(values) == 1 else {"in": values}})
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else {"and": parts}


class _Finder:
    """Values of one field by phrase, found by one expression, longest phrase first."""

    def __init__(self, meanings: Mapping[str, list[Any]]) -> None:
        self._meanings = meanings
        options = "|".join(regex.escape(phrase) for phrase in sorted(meanings, key=lambda p: (-len(p), p)))
        self._pattern = regex.compile(rf"(?<!\w)(?:{options})(?!\w)") if meanings else None

    def values(self, folded: str) -> list[Any]:
        if self._pattern is None:
            return []
        found: dict[str, Any] = {}
        for match in self._pattern.finditer(folded):
            for value in self._meanings[match.group()]:
                found[json.dumps(value)] = value
        return sorted(found.values(), key=lambda value: (_word(value), isinstance(value, str)))


def _meanings(field: str, values: Mapping[str, tuple[str, ...]], documents: pl.DataFrame) -> dict[str, list[Any]]:
    """Folded phrase -> values that it may mean."""
    meanings: dict[str, list[Any]] = {}
    listed = list(_known(field, documents))
    named: Iterator[tuple[Any, tuple[str, ...]]] = (
        ((_typed(value, listed), phrases or (value,)) for value, phrases in values.items())
        if values
        else ((value, (_word(value),)) for value in listed)
    )
    for value, phrases in named:
        for phrase in phrases:
            folded = _fold(phrase).strip()
            if folded and value not in meanings.setdefault(folded, []):
                meanings[folded].append(value)
    return meanings


def _known(field: str, documents: pl.DataFrame) -> Iterator[Any]:
    """Distinct values of a field in the documents: text, numbers; items of lists."""
    values: Iterator[Any]
    if field in FIELDS and field in documents.columns:
        values = iter(documents[field].to_list())
    else:
        key = field.removeprefix("metadata.")
        values = (json.loads(text or "{}").get(key) for text in documents["metadata"].to_list())
    seen: dict[str, Any] = {}
    for value in values:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str | int | float) and not isinstance(item, bool):
                seen[json.dumps(item)] = item
    yield from (seen[name] for name in sorted(seen))


def _typed(value: str, listed: list[Any]) -> Any:
    """The documents' own value that is written so: a configured key is text, but the field may hold numbers."""
    return next((item for item in listed if _word(item) == value), value)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
