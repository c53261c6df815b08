"""Dates as people write them: numeric in every order, and with the month's name in English or Spanish.

A bare year is no date here: too many counts, models and prices look like one, and it names nobody. Durations, ages and times of
day are none either.
"""

from __future__ import annotations

import re

from rag_eval_pipeline.stages.pii.patterns import Rule

MONTHS = {
    "en": "january february march april may june july august september october november december",
    "es": "enero febrero marzo abril mayo junio julio agosto se(?:p)?tiembre octubre noviembre diciembre",
}
SHORT = {
    "en": "jan feb mar apr jun jul aug sept? oct nov dec",
    "es": "ene feb mar abr jun jul ago sept? oct nov dic",
}
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_MONTH = r"(?:0?[1-9]|1[0-2])"
_CAPITAL = r"(?-i:(?=[A-Z]))"
_YEAR = r"(?:1[6-9]|20|21)\d{2}"
_ALONE_BEFORE, _ALONE_AFTER = r"(?<![\w./\-])", r"(?![\w/]|[.\-]\d)"
_TIME = r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"


def _rule(shape: str, score: float) -> Rule:
    return Rule("DATE_TIME", re.compile(shape, re.IGNORECASE), score)


def _same(separators: str, *parts: str) -> str:
    """Parts joined by one separator, the same throughout."""
    first, *rest = parts
    return f"{first}(?P<sep>{separators})" + "(?P=sep)".join(rest)


def numeric() -> list[Rule]:
    """day/month/year, month/day/year and year-month-day with one separator throughout; ISO times go with their date."""
    full = "|".join(
        f"{_ALONE_BEFORE}{_same(separators, *parts).replace('sep', name)}{tail}{_ALONE_AFTER}"
        for name, separators, parts, tail in (
            ("a", r"\s?[/\-.]\s?", (_DAY, _MONTH, _YEAR), ""),
            ("b", r"[/\-.]", (_MONTH, _DAY, _YEAR), ""),
            ("c", r"[/\-.]", (_YEAR, _MONTH, _DAY), _TIME),
        )
    )
    short = f"{_ALONE_BEFORE}{_same('/', _DAY, _MONTH, '[0-9]{2}')}{_ALONE_AFTER}"
    return [_rule(full, 0.6), _rule(short, 0.5)]


def written(language: str) -> list[Rule]:
    """Day, month's name and year; month's name and year; day and month's name. `language`: en or es."""
    months, short = "|".join(MONTHS[language].split()), "|".join(SHORT[language].split())
    # "mar 2" or "may 2" is a word and a number: short names and days without a year need more around them.
    anyhow = rf"(?:{months}|(?:{short})\b\.?)"
    if language == "es":
        of, year = r"(?:\s*[\-/]\s*|\s+(?:de\s+)?)", rf"(?:\s*[\-/,]\s*|\s+(?:de\s+|del\s+(?:año\s+)?)?){_YEAR}"
        shapes = [
            (rf"(?:\d{{1,2}}|primero|1[ºo°]){of}{anyhow}{year}", 0.8),
            (rf"(?:{anyhow}){year}", 0.6),
            (rf"{_DAY}\s+de\s+(?:{months})", 0.5),
        ]
    else:
        day = rf"{_DAY}(?:st|nd|rd|th)?"
        year = rf"(?:\s*[,\-/]\s*|\s+(?:of\s+)?){_YEAR}"
        shapes = [
            (rf"{day}(?:\s+of\s+|\s*[\-/]\s*|\s+){anyhow}{year}", 0.8),
            (rf"{anyhow}\s*[\-/ ]\s*{day}{year}", 0.8),
            (rf"{anyhow}{year}", 0.6),
            # "may 2 …" is a verb and a number; without a year only the capital tells the month.
            (rf"(?:{day}(?:\s+of)?\s+{_CAPITAL}(?:{months})|{_CAPITAL}(?:{months})\s+{day})", 0.5),
        ]
    return [_rule(rf"(?<![\w])(?:{shape})(?!\w|[.,]\d)", score) for shape, score in shapes]


def rules(languages: tuple[str, ...]) -> list[Rule]:
    """All that are used for documents in these languages."""
    return numeric() + [rule for language in MONTHS if language in languages for rule in written(language)]
