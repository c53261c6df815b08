"""Names by their spelling: words with capitals, where a capital says something (not at the start of a sentence).

Here: a rule that needs no model. Not here: named entities found by a model (`entities`).
"""

from __future__ import annotations

from functools import lru_cache

import regex

from rag_eval_pipeline.text.analysers import get_analyser
from rag_eval_pipeline.text.critical import critical_tokens
from rag_eval_pipeline.text.sentences import ABBREVIATIONS, sentences

_WORD = regex.compile(r"[\p{L}][\p{L}\p{M}\p{N}'’-]*")
_SHORT = frozenset().union(*ABBREVIATIONS.values())
_JOINED = regex.compile(r"[ \u00a0](?:(?:de|del|la|of|the)[ \u00a0])?")


def names(text: str, language: str | None = None) -> list[str]:
    """Names of a text, in order, each once.

    A word is part of a name if it has a capital behind its first letter (IBM, iPhone), or starts with one elsewhere than at
    the start of a sentence, or before such a word there ("John Smith left"; not "The Smiths"). Neighbouring ones are one
    name. What is a number, date or code is none.
    """
    return list(_names(text, language))


@lru_cache(maxsize=16_384)
def _names(text: str, language: str | None) -> tuple[str, ...]:
    """Remembered, as passages are looked at for every answer that was given them."""
    taken = [(token.start, token.end) for token in critical_tokens(text, language)]
    found: dict[str, None] = {}
    for start, end in sentences(text, language):
        words = list(_WORD.finditer(text, start, end))
        parts = [m.span() for m in words if _named(text, m, start)]
        if len(words) > 1 and _opens(text, words[0], words[1], parts, language):
            parts = sorted({words[0].span(), *parts})
        parts = [part for part in parts if not any(low < part[1] and part[0] < high for low, high in taken)]
        for low, high in _runs(text, parts):
            found.setdefault(text[low:high])
    return tuple(found)


def _named(text: str, match: regex.Match, start: int) -> bool:
    word = match.group()
    if text[match.end() : match.end() + 1] == "." and word.lower() in _SHORT:
        return False
    if any(c.isupper() for c in word[1:]):
        return True
    return word[0].isupper() and len(word) > 1 and bool(regex.search(r"[\p{L}\p{N}]", text[start : match.start()]))


def _opens(
    text: str, first: regex.Match, second: regex.Match, parts: list[tuple[int, int]], language: str | None
) -> bool:
    """Whether a sentence's first word belongs to the name behind it."""
    near = second.span() in parts and text[first.end() : second.start()] in (" ", "\u00a0")
    said = any(get_analyser(name, "none").tokens(first.group()) for name in ((language,) if language else ("en",)))
    return near and first.group()[0].isupper() and said


def _runs(text: str, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for low, high in parts:
        if runs and _JOINED.fullmatch(text[runs[-1][1] : low]):
            runs[-1] = (runs[-1][0], high)
        else:
            runs.append((low, high))
    return runs
