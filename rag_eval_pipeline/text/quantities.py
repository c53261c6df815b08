"""Numbers, dates and codes as values: "1,000 USD", "1.000 dólares" and "a thousand dollars" compared by what they say.

Here: values with their possible readings, units, and whether one text states what another does. Not here: where such tokens
are (`critical`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import regex

from rag_eval_pipeline.text.critical import critical_tokens
from rag_eval_pipeline.text.languages import primary

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan enero ene", "february feb febrero", "march mar marzo", "april apr abril abr", "may mayo",
            "june jun junio", "july jul julio", "august aug agosto ago", "september sept sep septiembre setiembre",
            "october oct octubre", "november nov noviembre", "december dec diciembre dic",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_UNITS = (
    (r"%|per\s?cent|por\s+ciento", "%"),
    (r"percentage\s+points?|puntos\s+porcentuales|pp", "pp"),
    (r"US\$|\$|usd|dollars?|dólar(?:es)?", "usd"),
    (r"€|eur|euros?", "eur"),
    (r"£|gbp|pounds?|libras?", "gbp"),
    (r"¥|jpy|yen", "jpy"),
    (r"(?:working|business)\s+days?|d[ií]as?\s+(?:h[aá]biles|laborables)", "working day"),
    (r"(?:calendar\s+)?days?|d[ií]as?(?:\s+(?:naturales|corridos))?", "day"),
    (r"weeks?|semanas?", "week"),
    (r"months?|mes(?:es)?", "month"),
    (r"years?|años?", "year"),
    (r"quarters?|trimestres?", "quarter"),
    (r"hours?|horas?|hrs?|h", "hour"),
    (r"minutes?|minutos?|mins?", "minute"),
    (r"seconds?|segundos?|secs?|s", "second"),
    (r"people|personas?|employees|empleados?", "person"),
    (r"pages?|páginas?", "page"),
    (r"times|veces|x", "times"),
    (r"points?|puntos?", "point"),
    (r"items?|unidades|units?", "item"),
    (r"inch(?:es)?|pulgadas", "inch"),
    (r"µg|μg", "µg"),
    (r"µm|μm", "µm"),
    (r"m²|m2", "m2"),
    (r"m³|m3", "m3"),
    (r"l|litros?|lit(?:er|re)s?", "l"),
)
_UNIT_PATTERNS = tuple((regex.compile(rf"(?i){pattern}"), name) for pattern, name in _UNITS)
_ORDINAL = regex.compile(r"(?i)^(?:st|nd|rd|th|er|ero|ro|do|to|vo|º|ª|°)$")
_MAGNITUDES = {
    **dict.fromkeys(("thousand", "mil", "k"), 3),
    **dict.fromkeys(("million", "millón", "millones", "m", "mn"), 6),
    **dict.fromkeys(("billion", "bn"), 9),
    **dict.fromkeys(("trillion", "billón", "billones"), 12),
    "hundred": 2,
}
_VALUE = regex.compile(r"\d(?:[\d.,'’\u00a0\u202f ]*\d)?")
_SMALL = {
    word: number
    for start, words in (
        (2, "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"),
        (2, "dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho diecinueve veinte"),
        (21, "veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve"),
    )
    for number, word in enumerate(words.split(), start)
}  # fmt: skip
_TENS = {
    word: tens
    for words in ("twenty thirty forty fifty sixty seventy eighty ninety", "- treinta cuarenta cincuenta sesenta setenta ochenta noventa")
    for tens, word in zip(range(20, 100, 10), words.split(), strict=True)
    if word != "-"
}  # fmt: skip
_ONES = {"one": 1, "uno": 1, "un": 1, "una": 1} | {word: n for word, n in _SMALL.items() if n < 10}
_WORD_NUMBER = regex.compile(
    rf"(?i)(?<![\p{{L}}\p{{N}}])(?:(?P<tens>{'|'.join(_TENS)})(?:(?:[-‐‑\s]|\s+y\s+)(?P<ones>{'|'.join(_ONES)}))?"
    rf"|(?P<small>{'|'.join(sorted(_SMALL, key=len, reverse=True))})"
    r"|(?P<one>one|una?|a)(?=\s+(?:day|week|month|year|hour|minute|d[ií]a|semana|mes|año|hora|minuto|hundred|thousand|million|billion|millón|billón)\b)"
    r"|(?P<cien>cien))(?![\p{L}\p{N}])"
)


@dataclass(frozen=True)
class Quantity:
    """A number, date or code of a text.

    Attributes:
        kind: `number`, `date`, `code`.
        readings: what it can mean: decimals; dates as year-month-day with `?` for what is not said; the code itself.
        unit: its unit's one name; empty where it has none.
    """

    kind: str
    readings: frozenset[str]
    unit: str = ""


def quantities(text: str, language: str | None = None) -> list[Quantity]:
    """Numbers, dates and codes of a text, left to right; numbers in words (en, es) are read where they are unambiguous.

    "1.000" is a thousand in Spanish, one in English, and either without a language.
    """
    return read(text, language)[0]


def read(text: str, language: str | None = None) -> tuple[list[Quantity], bool]:
    """`quantities` of a text, and whether it denies anything, read in one go."""
    found, denies = [], False
    for token in critical_tokens(_in_digits(text), language):
        denies |= token.kind == "negation"
        if token.kind == "date":
            found.append(_date(token.text))
        elif token.kind == "code":
            found.append(Quantity("code", frozenset({_plain(token.text)})))
        elif token.kind == "number":
            found.append(_number(token.text, language))
    return found, denies


def states(quantity: Quantity, there: Sequence[Quantity]) -> bool:
    """Whether one of `there` says it: a common reading, and no other unit. A date may say more, and names its year."""
    return any(_agrees(quantity, other) for other in there)


def rivals(quantity: Quantity, there: Sequence[Quantity]) -> bool:
    """Whether one of `there` says another value of the same kind and unit, so that both can't be meant."""
    return bool(quantity.unit or quantity.kind == "date") and any(
        other.kind == quantity.kind and other.unit == quantity.unit and not _agrees(quantity, other) for other in there
    )


def _agrees(wanted: Quantity, other: Quantity) -> bool:
    if wanted.kind == other.kind == "date":
        return any(_within(a, b) for a in wanted.readings for b in other.readings)
    if wanted.kind == "number" and other.kind == "date":
        return not wanted.unit and any(date.split("-")[0] in wanted.readings for date in other.readings)
    if wanted.kind == "date" and other.kind == "number":
        return not other.unit and any(date.endswith("-?-?") and date[:-4] in other.readings for date in wanted.readings)
    same_unit = not (wanted.unit and other.unit) or wanted.unit == other.unit
    return wanted.kind == other.kind and same_unit and bool(wanted.readings & other.readings)


def _within(wanted: str, other: str) -> bool:
    return all(a in ("?", b) for a, b in zip(wanted.split("-"), other.split("-"), strict=True))


def _in_digits(text: str) -> str:
    def digits(match: regex.Match) -> str:
        if match["tens"]:
            return str(_TENS[match["tens"].lower()] + (_ONES[match["ones"].lower()] if match["ones"] else 0))
        if match["small"]:
            return str(_SMALL[match["small"].lower()])
        return "100" if match["cien"] else "1"

    return _WORD_NUMBER.sub(digits, text)


@lru_cache(maxsize=4096)
def _number(text: str, language: str | None) -> Quantity:
    if ":" in text or regex.match(r"(?i)v", text):
        return Quantity("code", frozenset({_plain(text)}))
    match = _VALUE.search(text)
    # Digits of a younger Unicode than Python's have no value here: they are a code.
    if match is None or not all(c.isdecimal() for c in match.group() if regex.match(r"\d", c)):
        return Quantity("code", frozenset({_plain(text)}))
    before, after = text[: match.start()], text[match.end() :].strip(" \t\n\u00a0-‐‑.")
    sign = -1 if regex.search(r"[-−]", before) else 1
    shift, rest = _magnitude(after)
    unit = _unit(regex.sub(r"[+\-−±\s]", "", before) or rest)
    values = _readings(regex.sub(r"['’\s\u00a0\u202f]", "", match.group()), language)
    return Quantity("number", frozenset(_canonical(value.scaleb(shift) * sign) for value in values), unit)


def _magnitude(after: str) -> tuple[int, str]:
    words = regex.match(r"(?i)(\p{L}+)\.?\s*(?:de\s+|of\s+)?(.*)", after, regex.DOTALL)
    if not words:
        return 0, after
    word = words[1].lower()
    # "5 m" is a length more often than a million: only with a currency is it one.
    if word == "m" and not _is_currency(words[2]):
        return 0, after
    if word in _MAGNITUDES:
        more, rest = _magnitude(words[2])
        return _MAGNITUDES[word] + more, rest
    return 0, after


def _is_currency(text: str) -> bool:
    return _unit(text) in {"usd", "eur", "gbp", "jpy"}


def unit_name(text: str) -> str | None:
    """The one name of a known unit ("dollars", "$" and "USD" are `usd`); None for all else."""
    return next((name for pattern, name in _UNIT_PATTERNS if pattern.fullmatch(text)), None)


def _unit(text: str) -> str:
    text = text.strip()
    if not text or _ORDINAL.match(text):
        return ""
    return unit_name(text) or regex.sub(r"\s+", " ", text.casefold())


def _readings(digits: str, language: str | None) -> list[Decimal]:
    marks = [c for c in digits if c in ".,"]
    if not marks:
        return [Decimal(digits)]
    last = marks[-1]
    if len(set(marks)) == 2:
        other = "," if last == "." else "."
        whole = digits.replace(other, "")
        return [Decimal(whole.replace(last, "." if marks.count(last) == 1 else ""))]
    whole, decimal = digits.replace(last, ""), digits.replace(last, ".", 1)
    if len(marks) > 1:
        return [Decimal(whole)]
    head, tail = digits.split(last)
    if len(tail) != 3 or not 1 <= len(head) <= 3 or head.startswith("0"):
        return [Decimal(decimal)]
    if primary(language) == "en":
        return [Decimal(whole if last == "," else decimal)]
    if primary(language) == "es":
        return [Decimal(whole if last == "." else decimal)]
    return [Decimal(whole), Decimal(decimal)]


def _canonical(value: Decimal) -> str:
    return format(value.normalize(), "f") if value else "0"


def _plain(text: str) -> str:
    return regex.sub(r"[\s\-‐‑_.]+", "", text.casefold())


@lru_cache(maxsize=4096)
def _date(text: str) -> Quantity:
    numbers = [int(n) for n in regex.findall(r"\d+", text)]
    month = next((_MONTHS[w] for w in regex.findall(r"\p{L}+", text.lower()) if w in _MONTHS), None)
    if month is not None:
        years = [n for n in numbers if n > 31] or ([2000 + numbers[-1]] if "'" in text and numbers else [])
        days = [n for n in numbers if n <= 31 and "'" not in text] or (
            [numbers[0]] if "'" in text and len(numbers) > 1 else []
        )
        return Quantity("date", frozenset({_form(years[0] if years else None, month, days[0] if days else None)}))
    if len(numbers) >= 3 and len(regex.findall(r"\d+", text)[0]) == 4:
        return Quantity("date", frozenset({_form(numbers[0], numbers[1], numbers[2])}))
    if len(numbers) == 3:
        a, b, year = numbers[0], numbers[1], numbers[2] + (2000 if numbers[2] < 100 else 0)
        forms = {_form(year, m, d) for d, m in ((a, b), (b, a)) if 1 <= m <= 12}
        return Quantity("date", frozenset(forms or {_form(year, b, a)}))
    return Quantity("code", frozenset({_plain(text)}))


def _form(year: int | None, month: int | None, day: int | None) -> str:
    return "-".join("?" if part is None else str(part) for part in (year, month, day))
