"""Phone numbers: presidio's recogniser with the same findings, made quick, and without what is announced as a number of goods.

Not here: how findings get their context words (`transform`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rag_eval_pipeline.stages.pii.patterns import REACH, last, words

LENIENCY = 1
"""Valid numbers in any grouping: presidio's default."""
LEAST = 6
"""Digits that a number valid anywhere has at least."""
GOODS = words(
    r"(?:order|part|item|article|product|serial|batch|lot|invoice|catalogue|catalog|model|sku|stock|ticket)"
    r"[ ](?:numbers?|no\.?|nr\.?|codes?|id)",
    "sku", "ean", "p/n",
    r"(?:n[úu]meros?|n[º°o]\.?|c[óo]digos?|referencias?)[ ](?:de[ ])?(?:pedido|art[íi]culo|producto|serie|lote|factura|modelo|pieza|albar[áa]n)",
    "referencias?", r"ref\.",
)  # fmt: skip
"""What announces a number of goods."""
PHONES = words(
    "phones?", "telephone", "tel", "call", "mobile", "cell(?:phone)?", "fax", "hotline", "dial", "sms", "whatsapp",
    "tel[ée]fonos?", "tfno", "tlf", "m[óo]vil", "llam[ea]r?", "contacto", "contact",
)  # fmt: skip
"""What announces a phone number; nearer than the other, it wins."""
_SIX = re.compile(rf"(?:\d[^\w\n]{{0,4}}){{{LEAST}}}")


def recognizer(language: str, regions: Sequence[str], context: list[str]) -> Any:
    """A presidio recogniser.

    Args:
        language: of the analyser that it is registered with.
        regions: countries whose numbers are known without prefix.
        context: words that raise a finding's score.
    """
    from phonenumbers import PhoneNumberMatcher
    from presidio_analyzer import EntityRecognizer
    from presidio_analyzer.predefined_recognizers import PhoneRecognizer

    class Matcher(PhoneNumberMatcher):
        """Parses nothing that is too short, and numbers with a country's prefix once for all regions."""

        known: dict[tuple[str, int], Any]
        least: int

        def _parse_and_verify(self, candidate: str, offset: int) -> Any:
            digits = sum(map(str.isdecimal, candidate))
            if digits < (LEAST if candidate.startswith(("+", "\uff0b")) else self.least):
                return None
            if not candidate.startswith(("+", "\uff0b")):
                return super()._parse_and_verify(candidate, offset)
            place = (candidate, offset)
            if place not in self.known:
                self.known[place] = super()._parse_and_verify(candidate, offset)
            return self.known[place]

    told_apart = distinct(regions)

    class Phones(PhoneRecognizer):
        """Presidio parses each finding again to name its country in an explanation that nobody reads here."""

        def analyze(self, text: str, entities: list[str], nlp_artifacts: Any = None) -> list[Any]:
            if not _SIX.search(text):
                return []
            found, known = [], {}  # type: ignore[var-annotated]
            for region, least in told_apart:
                matcher = Matcher(text, region, leniency=LENIENCY)
                matcher.known, matcher.least = known, max(LEAST, least)
                found += [
                    self._get_recognizer_result(match, text, region, None)  # type: ignore[no-untyped-call]
                    for match in matcher
                    if match.raw_string.startswith("+") or not of_goods(text, match.start)
                ]
            return list(EntityRecognizer.remove_duplicates(found))

    return Phones(supported_language=language, supported_regions=regions, context=context, name="PhoneRecognizer")


def distinct(regions: Sequence[str]) -> list[tuple[str, int]]:
    """Regions whose numbers are not read just as another one's, and how many digits a number there has at least.

    A number without a country's prefix is read by its region's metadata alone; where those are equal, so is what is found.
    """
    from phonenumbers import PhoneMetadata

    kept: dict[tuple[Any, ...], tuple[str, int]] = {}
    for region in regions:
        data = PhoneMetadata.metadata_for_region(region, None)
        if (
            data is None or data.general_desc is None
        ):  # a region that the library does not know finds nothing of its own
            kept.setdefault((region,), (region, LEAST))
            continue
        general = data.general_desc
        prefix = (data.international_prefix, data.national_prefix_for_parsing, data.national_prefix_transform_rule)
        key = (data.country_code, *prefix, general.possible_length, general.national_number_pattern)
        kept.setdefault(key, (region, min(general.possible_length or (LEAST,))))
    return list(kept.values())


def of_goods(text: str, start: int) -> bool:
    """Whether the last announcing word before a place speaks of goods, not of a phone; a line break or full stop ends it."""
    before = text[max(text.rfind("\n", 0, start) + 1, start - REACH) : start]
    before = re.split(r"[.!?]\s+(?=[A-ZÁÉÍÓÚÑ])", before)[-1]
    return last(GOODS, before) > last(PHONES, before)
