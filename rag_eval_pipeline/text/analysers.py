"""Analysers by language: text -> the terms that a sparse index matches.

Here: words, case, stop words, stems, and character pairs for scripts without spaces. Not here: weights and ranking.
"""

from __future__ import annotations

import itertools
import unicodedata
from functools import lru_cache
from typing import Any

import regex

from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.tokens import UNSPACED, WORD

_NAMES = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french",
    "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian",
    "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "nb": "norwegian", "nn": "norwegian",
    "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish",
    "ta": "tamil", "tr": "turkish", "yi": "yiddish", "zh": "chinese",
}  # fmt: skip
_UNSPACED_RUN = regex.compile(rf"(?V1)(?:[{UNSPACED}&&[\p{{L}}\p{{N}}]]\p{{M}}*)+")


class Analyser:
    """Terms of a text in one language.

    Args:
        language: BCP 47 tag or None; an unknown one is neither stemmed nor stopped.
        stemming: `auto` (Snowball where it has the language), `none`, or a language to stem as.
        stop_words: `auto` (the language's list where there is one), `none`, or a language whose list is used.
    """

    def __init__(self, language: str | None, stemming: str = "auto", stop_words: str = "auto") -> None:
        self.language = primary(language) or None
        self._stemmer = _stemmer(_choice(stemming, self.language))
        self._stop_words = _stop_words(_choice(stop_words, self.language))

    def tokens(self, text: str) -> list[str]:
        """Terms in text order. Scripts without spaces give overlapping character pairs (a single one stays itself)."""
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).replace("’", "'")
        terms: list[str] = []
        position = 0
        for run in _UNSPACED_RUN.finditer(folded):
            terms += self._words(folded[position : run.start()])
            terms += _pairs(run.group())
            position = run.end()
        return terms + self._words(folded[position:])

    def _words(self, text: str) -> list[str]:
        words = [word for word in WORD.findall(text) if word not in self._stop_words]
        return self._stemmer.stemWords(words) if self._stemmer and words else words


@lru_cache(maxsize=64)
def get_analyser(language: str | None, stemming: str = "auto", stop_words: str = "auto") -> Analyser:
    """The analyser for these settings, one instance a process."""
    return Analyser(language, stemming, stop_words)


def _pairs(run: str) -> list[str]:
    letters = [match.group() for match in WORD.finditer(run)]
    return [a + b for a, b in itertools.pairwise(letters)] or letters


def _choice(setting: str, language: str | None) -> str | None:
    if setting == "none":
        return None
    return language if setting == "auto" else primary(setting) or None


def _stemmer(language: str | None) -> Any:
    import Stemmer

    name = _NAMES.get(language or "", language or "")
    return Stemmer.Stemmer(name) if name in Stemmer.algorithms() else None


@lru_cache(maxsize=32)
def _stop_words(language: str | None) -> frozenset[str]:
    name = _NAMES.get(language or "", language or "")
    if not name:
        return frozenset()
    from bm25s import stopwords

    lists = {"english": "STOPWORDS_EN"}
    words = getattr(stopwords, lists.get(name, f"STOPWORDS_{name.upper()}"), ())
    return frozenset(unicodedata.normalize("NFC", word).casefold() for word in words)
