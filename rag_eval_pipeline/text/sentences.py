"""Sentence spans by rule: punctuation, abbreviations (en, es), decimals, initials, lists and blank lines.

Here: where sentences start and end. Not here: any judgement on chunk edges (the chunking room's measures).
"""

# ruff: noqa: SIM905  (word tables read better as one text)

from __future__ import annotations

import itertools

import regex

from rag_eval_pipeline.text.languages import primary

_COMMON = "etc vs cf al ed eds vol vols fig figs pp p art arts cap aprox approx tel ext"
ABBREVIATIONS = {
    "en": frozenset(
        (
            f"{_COMMON} mr mrs ms mx dr prof rev hon gen col lt sgt capt st mt ave blvd rd dept est inc ltd co corp llc jr sr "
            "no nos eq sec ch ref e.g i.e eg ie a.m p.m u.s u.k u.n ph.d jan feb mar apr jun jul aug sep sept oct nov dec"
        ).split()
    ),
    "es": frozenset(
        (
            f"{_COMMON} sr sra srta sres sras dr dra drs d dña dn ud uds vd vds lic ing arq prof profa excmo excma ilmo gral "
            "núm nro n.º n.ª no pág págs párr inc av avda avd c pza dpto depto admón ee.uu ss s.a s.l s.a.u s.l.u p.ej ej a.m "
            "p.m a.c d.c ene feb mar abr jun jul ago sept oct nov dic"
        ).split()
    ),
}
# These also end sentences: a capital after them starts a new one.
_MAY_END = frozenset("etc al inc ltd co corp llc jr a.m p.m s.a s.l s.a.u s.l.u ee.uu u.s u.k ext".split())
_ONLY_BEFORE_NUMBER = frozenset("no nos núm nro ext p pp fig sec ch art mar c".split())

_BLANK_LINE = regex.compile(r"\n[^\S\n]*(?:\n\s*)+|\f\s*")
_ITEM = regex.compile(r"\n\s*(?=(?:[-*+•‣◦▪–—]|\(?\d{1,3}[.)]|\(?\p{L}[.)])[^\S\n]+\S)")
_END = regex.compile(r"(?:[.!?…‽؟۔।]+[\"'”’»)\]]*(?=\s)|[。！？｡]+[」』”’）]*)")
_LAST_WORD = regex.compile(r"[\p{L}\p{M}\p{N}.º]+$")
_MARKER = regex.compile(r"\(?(?:\d{1,3}|\p{L})[.)]$")
_OPENS = regex.compile(r"\s*[\"'“‘«(\[¿¡—–-]*\s*")


def sentences(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Sentence spans (start, end) in code points, in order, without the white space around them.

    Every non-space character lies in exactly one span. An unknown language uses all abbreviation tables.
    """
    known = ABBREVIATIONS.get(primary(language))
    abbreviations = known if known is not None else frozenset().union(*ABBREVIATIONS.values())
    spans = []
    for start, end in _blocks(text):
        spans += _split_block(text, start, end, abbreviations)
    return spans


def _blocks(text: str) -> list[tuple[int, int]]:
    """Ranges between blank lines and before list items: no sentence crosses them."""
    edges = {0, len(text)}
    edges.update(match.end() for match in _BLANK_LINE.finditer(text))
    edges.update(match.end() for match in _ITEM.finditer(text))
    ordered = sorted(edges)
    return list(itertools.pairwise(ordered))


def _split_block(text: str, start: int, end: int, abbreviations: frozenset[str]) -> list[tuple[int, int]]:
    spans, begin = [], start
    for match in _END.finditer(text, start, end):
        if _ends_sentence(text, begin, match.start(), match.group(), match.end(), end, abbreviations):
            spans.append((begin, match.end()))
            begin = match.end()
    spans.append((begin, end))
    stripped = (trimmed(text, low, high) for low, high in spans)
    return [(low, high) for low, high in stripped if low < high]


def _ends_sentence(
    text: str, begin: int, dot: int, mark: str, after: int, end: int, abbreviations: frozenset[str]
) -> bool:
    if not mark.startswith(".") or mark.startswith(".."):
        return mark[0] not in "….!?" or not _lower_follows(text, after, end)
    head = text[begin:dot].lstrip()
    if _MARKER.fullmatch(head + "."):
        return False
    word = _LAST_WORD.search(head)
    last = word.group().strip(".").lower() if word else ""
    if _lower_follows(text, after, end):
        return False
    if last in abbreviations:
        if last in _MAY_END:
            return True
        return last in _ONLY_BEFORE_NUMBER and not _digit_follows(text, after, end)
    initial = bool(word) and len(last) == 1 and last.isalpha() and word.group()[-1].isupper()
    return not initial


def _lower_follows(text: str, after: int, end: int) -> bool:
    opening = _OPENS.match(text, after, end)
    position = opening.end() if opening else after
    return position < end and text[position].islower()


def _digit_follows(text: str, after: int, end: int) -> bool:
    following = text[after:end].lstrip()[:1]
    return following.isdigit()


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the white space at its edges."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))
