"""BM25 over chunks that may be in several languages. Scopes, filters and lists belong in `transform`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import bm25s
import numpy as np
import polars as pl

from rag_eval_pipeline.text.analysers import get_analyser
from rag_eval_pipeline.text.languages import primary


class Analysers:
    """Analysis by language; a text without a language is analysed in the one that most chunks have."""

    def __init__(self, stemming: str, stop_words: str, languages: Iterable[str | None]) -> None:
        counts = Counter(language for language in map(primary, languages) if language)
        # Most frequent, then alphabetical: the same chunks always give the same default.
        self.default = min(counts, key=lambda language: (-counts[language], language)) if counts else None
        self._options = (stemming, stop_words)

    def tokens(self, text: str, language: str | None) -> list[str]:
        """Index terms of a text."""
        return get_analyser(primary(language) or self.default, *self._options).tokens(text)


class Bm25:
    """A BM25 index (Lucene's formula: idf = ln(1 + (N − df + 0.5)/(df + 0.5)), tf/(tf + k1·(1 − b + b·dl/avgdl))).

    Each chunk is analysed in its own language, and all share one vocabulary: a query finds a chunk of another language by
    the terms that both have. Scores are summed in float64 and rounded to float32, so equal scores are equal everywhere.
    """

    def __init__(self, chunks: pl.DataFrame, *, k1: float, b: float, stemming: str, stop_words: str) -> None:
        self._analysers = Analysers(stemming, stop_words, chunks["language"])
        self._vocabulary: dict[str, int] = {}
        self._count = chunks.height
        corpus = [
            [
                self._vocabulary.setdefault(term, len(self._vocabulary))
                for term in self._analysers.tokens(text, language)
            ]
            for text, language in chunks.select(pl.col("prefix") + pl.col("text"), "language").iter_rows()
        ]
        self._index: bm25s.BM25 | None = None
        if self._vocabulary:  # bm25s divides by the mean length, so an index without a single term is none
            self._index = bm25s.BM25(method="lucene", k1=k1, b=b, dtype="float64")
            self._index.index((corpus, dict(self._vocabulary)), show_progress=False)

    def scores(self, text: str, language: str | None) -> np.ndarray:
        """Score of every chunk, float32, in the order of the chunks; 0 where no term matches."""
        found = (self._vocabulary.get(term) for term in self._analysers.tokens(text, language))
        terms = [term for term in found if term is not None]
        if self._index is None or not terms:
            return np.zeros(self._count, dtype=np.float32)
        return np.asarray(self._index.get_scores_from_ids(terms), dtype=np.float32)
