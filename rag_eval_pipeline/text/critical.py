"""Critical tokens: the numbers, dates, codes and negations of a quote that must survive unchanged (tables: en, es).

Here: what is critical in a text, and what kind of thing differs where one did not survive. Not here: whether it survived
(attribution), and named entities (`entities`).
"""

# ruff: noqa: SIM905  (word tables read better as one text)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import regex

from rag_eval_pipeline.text.alignment import occurrences
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.tokens import UNSPACED

Kind = Literal["number", "date", "code", "negation", "entity", "listed"]

NEGATIONS = {
    "en": (
        "no", "not", "never", "without", "cannot", "nor", "neither", "none", "nobody", "nothing", "nowhere", "unless",
        "except", "excluding", "dont", "cant", "wont",
    ),
    "es": (
        "no", "nunca", "jamás", "sin", "ni", "tampoco", "ningún", "ninguno", "ninguna", "ningunos", "ningunas", "nadie",
        "nada", "salvo", "excepto", "excluido", "excluida",
    ),
}  # fmt: skip

_MONTHS = (
    "january february march april june july august september october november december may "
    "jan feb mar apr jun jul aug sept sep oct nov dec "
    "enero febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre diciembre "
    "ene abr ago dic"
).split()
# No unit that is also a common word after a number ("8 in", "2025 ha", "3 a 5").
_UNITS = (
    "% ‰ € $ £ ¥ ₹ °C °F ° º ª "
    "usd eur gbp jpy chf cad aud mxn ars clp cop pen brl cny inr dollars? euros? pesos? pounds? libras? dólar(?:es)? cents? "
    "céntimos? centavos? soles yen "
    "percent per\\s+cent por\\s+ciento percentage\\s+points? puntos\\s+porcentuales puntos? points? bps pp "
    "(?:working\\s+|business\\s+|calendar\\s+)?days? "
    "d[ií]as?(?:\\s+(?:h[aá]biles|naturales|laborables|corridos))? "
    "weeks? semanas? months? mes(?:es)? years? años? quarters? trimestres? hours? horas? hrs? minutes? minutos? mins? "
    "seconds? segundos? secs? ms s h "
    "kg mg µg μg g km cm mm nm µm μm m ml cl dl l lb lbs oz ft inch inches pulgadas miles hectares hectáreas m² m³ m2 m3 km² km/h mph "
    "[kmgt]i?b bytes? bits? [kmgt]?hz kwh wh [km]?w v kv mv mah kj kcal kpa mpa psi "
    "pages? páginas? times veces personas? people employees empleados? items? unidades units? x"
).split(" ")
_MAGNITUDES = "thousand million billion trillion hundred dozen mil mill(?:ón|ones) billón billones bn mn k m".split()


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted((regex.sub(r"\s+", r"\\s+", word) for word in words), key=len, reverse=True))


@lru_cache(maxsize=8)
def _pattern(language: str | None) -> regex.Pattern:
    letter = rf"[\p{{L}}\p{{M}}--[{UNSPACED}]]"
    alnum = rf"[\p{{L}}\p{{M}}\p{{Nd}}--[{UNSPACED}]]"
    word_end = rf"(?!{alnum})"
    month = rf"(?:{_either(_MONTHS)})\.?"
    year = r"(?:\d{4}|'\d{2})(?!\d)"
    day = r"\d{1,2}(?:\s*(?:st|nd|rd|th|ero|er|º|ª|ro))?"
    clock_time = r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    date = "|".join(
        (
            rf"(?:\d{{4}}-\d{{1,2}}-\d{{1,2}}|\d{{4}}/\d{{1,2}}/\d{{1,2}}|\d{{4}}\.\d{{1,2}}\.\d{{1,2}}){clock_time}(?!\d)",
            r"(?:\d{1,2}-\d{1,2}-|\d{1,2}/\d{1,2}/|\d{1,2}\.\d{1,2}\.)(?:\d{4}|\d{2})(?!\d|[.,]\d)",
            rf"{day}\s+(?:de\s+|of\s+)?{month}(?:,?\s+(?:del?\s+)?{year})?{word_end}",
            rf"{month}\s+{day}{word_end}(?:,?\s+{year}{word_end})?",
            rf"{month},?\s+(?:del?\s+|of\s+)?{year}{word_end}",
            r"\d{4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日",
        )
    )
    iban = rf"[A-Z]{{2}}\d{{2}}(?:[ ]?[A-Z0-9]{{4}}){{2,7}}(?:[ ]?[A-Z0-9]{{1,3}})?{word_end}"
    magnitude = rf"(?:\s*(?:{_either(_MAGNITUDES)}){word_end}(?:\s+(?:de|of)(?=\s))?)"
    unit = rf"(?:[\s\-‐‑]*(?:(?:[%‰€$£¥₹°])|(?:{_either(_UNITS)}){word_end}))"
    grouped = r"\d{1,3}(?:[.,'’\u00a0\u202f ]\d{3})+(?!\d)"
    value = rf"(?:{grouped}|\d+)(?:[.,]\d+)*"
    ordinal = rf"(?:\s*(?:º|ª|°)|(?:st|nd|rd|th|er|ero|ro|do|to|vo){word_end})"
    currency = r"(?:(?:US\$|[€$£¥₹])\s*|(?:USD|EUR|GBP|JPY|CHF|MXN|CAD|AUD|COP|CLP|ARS|BRL)\s+)"
    clock = r"\d{1,2}:\d{2}(?::\d{2})?(?:\s*[ap]\.?\s?m\b\.?)?"
    version = rf"v(?:ersi[oó]n)?\.?\s?\d+(?:\.\d+)*{word_end}"
    sign = r"(?:(?<![\p{L}\p{M}\p{N}])[+\-−±])"
    number = (
        rf"{sign}?{currency}?{sign}?(?:{clock}|{value}(?:{ordinal}{unit}?|{magnitude}?{unit}|{magnitude})?)(?!{alnum})"
    )
    body = rf"{alnum}+(?:[-‐‑_/]{alnum}+|\.(?=\d){alnum}+)*"
    within = rf"(?:{alnum}|[-‐‑_/](?={alnum})|\.(?=\d))*?"
    code = rf"(?={within}\d)(?={within}{letter}){body}"
    negations = _negations(language)
    numero = r"(?!no\.\s*\d)"  # "No. 17" counts, it does not deny
    negation = rf"{numero}(?:{_either(negations)}|{letter}+n['’]t){word_end}" if negations else r"(?!)"
    start = rf"(?<!{alnum})"
    return regex.compile(
        rf"(?V1)(?i){start}(?:(?P<date>{date})|(?P<code>(?-i:{iban}))|(?P<number>{version}|{number})|(?P<code>{code})"
        rf"|(?P<negation>{negation}))|(?P<number>{sign}?\d+)"
    )


def _negations(language: str | None) -> tuple[str, ...]:
    if name := primary(language):
        return NEGATIONS.get(name, ())
    return tuple(sorted({word for words in NEGATIONS.values() for word in words}))


@dataclass(frozen=True)
class CriticalToken:
    """Code points [start, end) of a text that must survive unchanged."""

    start: int
    end: int
    kind: Kind
    text: str


def critical_tokens(text: str, language: str | None = None) -> list[CriticalToken]:
    """Numbers with their units, dates, codes and negations of `text`: left to right, never overlapping.

    Every decimal digit of the text lies in some token. Negations come from the language's table; without a language from
    all tables, and none where the language has no table.
    """
    return list(_critical_tokens(text, language))


@lru_cache(maxsize=16_384)
def _critical_tokens(text: str, language: str | None) -> tuple[CriticalToken, ...]:
    """Remembered: one passage is read for every query that it is served to, and by several measures."""
    found = []
    for match in _pattern(language).finditer(text):
        kind: Kind = match.lastgroup
        found.append(CriticalToken(match.start(), match.end(), kind, match.group()))
    return tuple(found)


def differing(token: str, kind: str, there: Sequence[bool]) -> str:
    """What of a token that did not survive differs: its kind; `unit` where a number's own digits are all there.

    Args:
        token: the token's text.
        kind: its kind.
        there: for each of its non-space characters, whether the output has it.
    """
    if kind != "number":
        return kind
    characters = [character for character in token if not character.isspace()]
    digits = [index for index, character in enumerate(characters) if character.isdecimal()]
    if not digits:
        return kind
    # The sign and what stands between the digits are the number's; the rest is its unit, before it (€) or behind it.
    value = range(digits[0], digits[-1] + 1)
    signs = [index for index in range(digits[0]) if characters[index] in "+-−±"]
    is_whole = all(there[index] for index in (*signs, *value))
    return "unit" if is_whole and not all(there) else kind


def find_listed(quote: str, listed: list[str], language: str | None = None) -> list[CriticalToken]:
    """Where the strings that gold lists as critical stand in the quote, left to right, each place once.

    A string is found after NFC and white space; places where a letter or digit touches it count only if it has no others.
    A place inside a longer listed one is left out: the longer one guards it. Its kind is that of the first token of
    `critical_tokens` that it shares a character with; `listed` where there is none.

    Raises:
        ValueError: a listed string is empty or not in the quote; the message names its index.
    """
    spans: set[tuple[int, int]] = set()
    for index, item in enumerate(listed):
        places = [(place.start, place.end) for place in occurrences(item, quote)]
        if not places:
            raise ValueError(f"critical[{index}] does not occur in its quote; list substrings of the quote")
        spans.update([place for place in places if not _touched(quote, *place)] or places[:1])
    kept = [s for s in spans if not any(o != s and o[0] <= s[0] and s[1] <= o[1] for o in spans)]
    known = critical_tokens(quote, language)

    def kind_of(start: int, end: int) -> Kind:
        return next((token.kind for token in known if token.start < end and start < token.end), "listed")

    return [CriticalToken(start, end, kind_of(start, end), quote[start:end]) for start, end in sorted(kept)]


def _touched(text: str, start: int, end: int) -> bool:
    before = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
    return before or (end < len(text) and text[end].isalnum() and text[end - 1].isalnum())
