"""Names of languages (BCP 47). Which language a text is in is detected in the rooms enriching and querying."""

from __future__ import annotations


def primary(language: str | None) -> str:
    """`es` of `es-MX` and `ES_mx`; empty where the language is undetermined (`und`) or not said."""
    tag = (language or "").replace("_", "-").partition("-")[0].lower()
    return "" if tag == "und" else tag
