"""A reranker without a model: which of the query's rare terms a passage has, and how close together. Lists: `transform`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import polars as pl

from rag_eval_pipeline.text.analysers import get_analyser
from rag_eval_pipeline.text.languages import primary

OVERLAP = 0.7
"""Weight of the terms found; the rest is the weight of their closeness."""


KNOWN_TEXTS = 4096
"""Texts whose terms are kept: many queries get the same passages."""


class LexicalReranker:
    """score = 0.7 · overlap + 0.3 · closeness, both in [0, 1] and weighted by idf over all chunks.

    overlap: idf of the query's terms that the passage has / idf of all. closeness: for each two terms that follow each other
    in the query, 1 / the least distance of the two in the passage (0 where one is missing), weighted by their mean idf.
    Deterministic: a score depends on query, passage and the chunks' document frequencies.
    """

    def __init__(self, chunks: pl.DataFrame) -> None:
        known = Counter(name for name in map(primary, chunks["language"]) if name)
        self._default = min(known, key=lambda language: (-known[language], language)) if known else None
        self._count = chunks.height
        self._frequency: Counter[str] = Counter()
        for text, language in _texts(chunks):
            self._frequency.update(set(self._tokens(text, language)))

    def scores(self, query: str, language: str | None, passages: Iterable[tuple[str, str | None]]) -> list[float]:
        """One score a passage (text, language)."""
        terms = self._tokens(query, language)
        idf = self._idf(terms)
        return [_score(terms, self._tokens(text, spoken), idf) for text, spoken in passages]

    def _tokens(self, text: str, language: str | None) -> tuple[str, ...]:
        return _analysed(text, primary(language) or self._default)

    def _idf(self, terms: Iterable[str]) -> dict[str, float]:
        count = self._count
        return {
            term: math.log(1 + (count - self._frequency[term] + 0.5) / (self._frequency[term] + 0.5))
            for term in set(terms)
        }


@lru_cache(maxsize=KNOWN_TEXTS)
def _analysed(text: str, language: str | None) -> tuple[str, ...]:
    return tuple(get_analyser(language).tokens(text))


def _texts(chunks: pl.DataFrame) -> Iterable[tuple[str, str | None]]:
    return chunks.select(pl.col("prefix") + pl.col("text"), "language").iter_rows()


def _score(query: Sequence[str], passage: Sequence[str], idf: Mapping[str, float]) -> float:
    wanted = set(query)
    places: dict[str, list[int]] = {}
    for place, term in enumerate(passage):
        if term in wanted:
            places.setdefault(term, []).append(place)
    total = math.fsum(idf[term] for term in wanted)
    if not total:
        return 0.0
    overlap = math.fsum(idf[term] for term in places) / total
    return OVERLAP * overlap + (1 - OVERLAP) * _closeness(query, places, idf)


def _closeness(query: Sequence[str], places: Mapping[str, list[int]], idf: Mapping[str, float]) -> float:
    pairs = sorted({(a, b) for a, b in pairwise(query) if a != b})
    total = math.fsum(idf[a] + idf[b] for a, b in pairs)
    if not total:
        return 0.0
    near = ((idf[a] + idf[b]) / _distance(places[a], places[b]) for a, b in pairs if a in places and b in places)
    return math.fsum(near) / total


def _distance(first: Sequence[int], second: Sequence[int]) -> int:
    """Least distance of two sorted, disjoint lists of places."""
    i = j = 0
    least = abs(first[0] - second[0])
    while i < len(first) and j < len(second):
        least = min(least, abs(first[i] - second[j]))
        if first[i] < second[j]:
            i += 1
        else:
            j += 1
    return least
