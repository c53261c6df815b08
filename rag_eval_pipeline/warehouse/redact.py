"""The redactor: the last gate before text is shown. It hides every known personal string, predicted or labelled.

Which strings are personal is decided by the pii room and the labels; masking by offsets stands there too. Here only
strings are compared, so text that took another way (a query, a title, a chunk of an imported run) is covered as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property

import polars as pl

from rag_eval_pipeline.text.normalise import normalise_with_map
from rag_eval_pipeline.warehouse.memo import digest

SHORTEST = 4
"""Shorter strings are left alone: masking every "Ana" or "10" would make the text useless and hide nothing."""

HIDDEN = "<PII>"


class Redactor:
    """Replaces known personal strings, whole tokens only, in any case and with any white space."""

    def __init__(self, terms: Iterable[str]) -> None:
        cleaned = {" ".join(unicodedata.normalize("NFC", term).split()).casefold() for term in terms}
        self.terms = sorted(term for term in cleaned if len(term) >= SHORTEST)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the strings do: published text is then published anew."""
        return digest(self.terms)

    @cached_property
    def _by_anchor(self) -> dict[str, list[str]]:
        """Terms by their longest word: the word is looked up fast in all texts, the term only where the word was found."""
        anchors: dict[str, list[str]] = {}
        for term in self.terms:
            anchors.setdefault(max(term.split(), key=len), []).append(term)
        return anchors

    def column(self, values: pl.Series) -> pl.Series:
        """A String or List[String] column without personal strings; NULL stays NULL."""
        if values.dtype == pl.List(pl.String):
            inner = values.explode(empty_as_null=False, keep_nulls=False)
            flat = dict(zip(inner.to_list(), self.column(inner).to_list(), strict=True))
            return pl.Series(
                values.name, [None if row is None else [flat[v] for v in row] for row in values], dtype=values.dtype
            )
        if not self.terms or values.is_empty():
            return values
        lowered = pl.Series(
            [None if v is None else unicodedata.normalize("NFC", v).casefold() for v in values], dtype=pl.String
        )
        found = lowered.to_frame("text").select(
            pl.col("text")
            .str.extract_many(pl.lit(pl.Series(list(self._by_anchor)).implode()), overlapping=True)
            .alias("found")
        )["found"]
        return pl.Series(
            values.name,
            [self._hide(text, set(hits)) if hits else text for text, hits in zip(values, found.to_list(), strict=True)],
            dtype=pl.String,
        )

    def text(self, value: str) -> str:
        """One text without personal strings."""
        return str(self.column(pl.Series([value], dtype=pl.String))[0])

    def within(self, texts: Iterable[str]) -> Redactor:
        """A redactor of those strings only that may stand in these texts: fast on many excerpts of them."""
        lowered = pl.DataFrame({"text": [unicodedata.normalize("NFC", text).casefold() for text in texts]})
        if not self.terms or lowered.is_empty():
            return Redactor([])
        patterns = pl.lit(pl.Series(list(self._by_anchor)).implode())
        found = lowered.select(pl.col("text").str.extract_many(patterns, overlapping=True).explode().unique())
        return Redactor(term for anchor in found["text"].drop_nulls() for term in self._by_anchor[anchor])

    def places(self, text: str) -> list[tuple[int, int]]:
        """Ranges of a text that `text()` hides, in order."""
        if not self.terms:
            return []
        composed, offsets = normalise_with_map(text, "nfc")
        ranges = []
        for match in self._pattern(self.terms).finditer(composed):
            sources = offsets.source(*match.span())
            ranges.append((min(low for low, _ in sources), max(high for _, high in sources)))
        return ranges

    def _hide(self, text: str, anchors: set[str]) -> str:
        terms = {term for anchor in anchors for term in self._by_anchor[anchor]}
        return self._pattern(terms).sub(HIDDEN, unicodedata.normalize("NFC", text))

    @staticmethod
    def _pattern(terms: Iterable[str]) -> re.Pattern[str]:
        longest = sorted(terms, key=lambda term: (-len(term), term))
        joined = "|".join(r"\s+".join(re.escape(word) for word in term.split()) for term in longest)
        return re.compile(rf"(?<!\w)(?:{joined})(?!\w)", flags=re.IGNORECASE)
