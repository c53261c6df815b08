"""Decode the bytes of a text file, the same way for reference texts and for parsers.

Which files are text, and what their text means, belongs to the callers.
"""

from __future__ import annotations

import codecs
import string
from pathlib import PurePosixPath

TEXT_SUFFIXES = frozenset({".txt", ".text", ".md", ".markdown", ".csv"})
"""Files whose decoded content is their reference text, where there is no transcript."""
WESTERN = 0.3
"""Below this share of high bytes among letters a text is taken for a Western single-byte one."""
FEW = 12
"""So few high bytes give a statistical guess nothing to stand on: taken for Western too."""
_ASCII_LETTERS = string.ascii_letters.encode()
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def is_text(path: str) -> bool:
    """Whether a path's file is its own reference text (txt, md, csv)."""
    return PurePosixPath(path).suffix.lower() in TEXT_SUFFIXES


def decode(data: bytes) -> tuple[str, str]:
    """Text of a file (no BOM, LF line ends, otherwise as it is) and the encoding in which it was read.

    UTF-8, a Unicode BOM, cp1252 for text that is mostly ASCII, else charset-normalizer's guess. Total: never raises.
    """
    text, encoding = _decode(data)
    return text.replace("\r\n", "\n").replace("\r", "\n"), encoding


def _decode(data: bytes) -> tuple[str, str]:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, errors="replace").removeprefix("\ufeff"), encoding
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        pass
    # Statistical guesses take short Western text for Central European; the share of high bytes tells them apart.
    if b"\0" not in data and _is_western(data):
        try:
            return data.decode("cp1252"), "cp1252"
        except UnicodeDecodeError:
            return data.decode("latin-1"), "latin-1"
    return _guess(data)


def _is_western(data: bytes) -> bool:
    high = len(data.translate(None, bytes(range(0x80))))
    letters = high + len(data) - len(data.translate(None, _ASCII_LETTERS))
    return high < FEW or high / letters < WESTERN


def _guess(data: bytes) -> tuple[str, str]:
    from charset_normalizer import from_bytes

    best = from_bytes(data).best()
    return (str(best).removeprefix("\ufeff"), best.encoding) if best else (data.decode("latin-1"), "latin-1")
