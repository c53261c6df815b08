"""Clauses by rule: sentences, cut at semicolons and at conjunctions between two parts that each have a verb (en, es).

Here: where a part of a sentence says something of its own. Not here: which parts are claims (`claims`) or refusals (`refusals`).
"""

# ruff: noqa: SIM905  (word tables read better as one text)

from __future__ import annotations

import regex

from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.sentences import sentences

_JOINS = {
    "en": "and but while whereas although though yet however so because",
    "es": "y e pero mientras(?:\\s+que)? aunque sino\\s+que sin\\s+embargo así\\s+que porque",
}
_VERBS = {
    "en": (
        "is are was were am be been has have had does do did can could may might must shall should will would cannot "
        "isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't it's that's there's i'm i've "
        "needs applies apply costs cost pays pay takes take gets get includes include contains contain requires require "
        "starts start ends end begins begin closes close opens open remains remain lasts last covers cover shows show "
        "says say states gives give runs run works work holds hold means mean allows allow leads lead goes go rises rise "
        "falls fall grows grow makes make became becomes become left rose fell grew made gave took went ran held won"
    ).split(),
    "es": (
        "es son fue fueron era eran está están sea ser ha han había hay hubo tiene tienen debe deben puede pueden será serán "
        "cuesta cuestan paga pagan vale valen vence vencen empieza empiezan termina terminan dura duran cubre cubren "
        "incluye incluyen exige exigen requiere requieren permite permiten aplica aplican dice dicen indica indican "
        "sé tengo puedo encuentro dispongo abre abren cierra cierran sube suben baja bajan hace hacen da dan va van rige rigen"
    ).split(),
}  # fmt: skip
_ENDINGS = {
    "en": r"\p{L}{3,}ed",
    "es": r"\p{L}{2,}(?:aron|ieron|ará|arán|erá|erán|irá|irán|aba|aban|ió)|se\s+\p{L}+[ae]n?",
}
_MARKER = regex.compile(r"(?:[-*+•‣◦▪–—]|#{1,6}|\(?\d{1,3}[.)]|\(?\p{Ll}[.)]|\(?\p{Lu}\))[^\S\n]+(?=\S)")


def _languages(language: str | None) -> tuple[str, ...]:
    name = primary(language)
    return (name,) if name in _JOINS else tuple(_JOINS)


def _verb(languages: tuple[str, ...]) -> regex.Pattern:
    words = "|".join(regex.escape(word) for name in languages for word in _VERBS[name])
    endings = "|".join(_ENDINGS[name] for name in languages)
    return regex.compile(rf"(?i)(?<![\p{{L}}'’])(?:{words}|{endings})(?![\p{{L}}])")


def _cut(languages: tuple[str, ...]) -> regex.Pattern:
    joins = "|".join(word for name in languages for word in _JOINS[name].split())
    return regex.compile(rf"(?i);\s+(?:(?:{joins})\s+)?|,\s+(?:{joins}),?\s+")


_KNOWN: tuple[tuple[str, ...], ...] = (("en",), ("es",), ("en", "es"))
_VERB = {key: _verb(key) for key in _KNOWN}
_CUT = {key: _cut(key) for key in _KNOWN}


def clauses(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Spans (start, end) of clauses in code points, in order, none overlapping.

    A sentence is cut only where both sides have a verb and the right one does not start with it: "apples, and pears" stays
    whole, and so does a part that borrows the subject before it. Conjunctions, list markers and the marks of headings are in
    no span.
    """
    languages = _languages(language)
    found = []
    for start, end in sentences(text, language):
        marker = _MARKER.match(text, start, end) if _starts_line(text, start) else None
        found += _split(text, marker.end() if marker else start, end, languages)
    return found


def _starts_line(text: str, start: int) -> bool:
    return not text[text.rfind("\n", 0, start) + 1 : start].strip()


def _split(text: str, start: int, end: int, languages: tuple[str, ...]) -> list[tuple[int, int]]:
    verb, found, begin = _VERB[languages], [], start
    for match in _CUT[languages].finditer(text, start, end):
        first = verb.search(text, match.end(), end)
        if first and first.start() > match.end() and verb.search(text, begin, match.start()):
            found.append((begin, match.start()))
            begin = match.end()
    return [*found, (begin, end)]
