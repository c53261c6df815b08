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

        def _parse_and_verify(self, candidate: str, offset: int) -> Any:
            if sum(map(str.isdecimal, candidate)) < LEAST:
                return None
            if not candidate.startswith(("+", "\uff0b")):
                return super()._parse_and_verify(candidate, offset)
            place = (candidate, offset)
            if place not in self.known:
                self.known[place] = super()._parse_and_verify(candidate, offset)
            return self.known[place]

    class Phones(PhoneRecognizer):
        """Presidio parses each finding again to name its country in an explanation that nobody reads here."""

        def analyze(self, text: str, entities: list[str], nlp_artifacts: Any = None) -> list[Any]:
            if not _SIX.search(text):
                return []
            found, known = [], {}  # type: ignore[var-annotated]
            for region in self.supported_regions:
                matcher = Matcher(text, region, leniency=LENIENCY)
                matcher.known = known
                found += [
                    self._get_recognizer_result(match, text, region, None)  # type: ignore[no-untyped-call]
                    for match in matcher
                    if match.raw_string.startswith("+") or not of_goods(text, match.start)
                ]
            return list(EntityRecognizer.remove_duplicates(found))

    return Phones(supported_language=language, supported_regions=regions, context=context, name="PhoneRecognizer")


def of_goods(text: str, start: int) -> bool:
    """Whether the last announcing word before a place speaks of goods, not of a phone; a line break or full stop ends it."""
    before = text[max(text.rfind("\n", 0, start) + 1, start - REACH) : start]
    before = re.split(r"[.!?]\s+(?=[A-ZÁÉÍÓÚÑ])", before)[-1]
    return last(GOODS, before) > last(PHONES, before)
