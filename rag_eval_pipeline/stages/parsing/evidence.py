"""Where each carrier of gold evidence stands in the parsed text, and whether the parsed text holds it.

Not here: which places can carry a unit (attribution decides that on the gold side), and blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.corpus.settings import Ledger
from rag_eval_pipeline.measures.evidence import holds, scattered, tokens_intact, visible_indexes
from rag_eval_pipeline.text.alignment import Location, locate, nearest, occurrences
from rag_eval_pipeline.text.normalise import normalise

LAYER: dict[str, Any] = {
    "positions": pl.List(pl.Int64),
    "token_ok": pl.List(pl.Boolean),
    "held": pl.Boolean,
    "similarity": pl.Float64,
    "cer": pl.Float64,
    "status": pl.String,
    "spread": pl.Boolean,
    "low": pl.Int64,
    "high": pl.Int64,
}
"""What a text room says about a carrier; cleaning and pii give the same columns."""

CONTEXT = 60
"""Characters on either side by which two occurrences of one quote are told apart."""
LEAST_CONTEXT = 0.3
LEAST_RUN = 12
"""Non-space characters of the shortest run of words that counts as found when a quote stands in pieces."""


def trace(
    units: pl.DataFrame, before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], config: Ledger
) -> pl.DataFrame:
    """Carriers anchored in the parsed text.

    A quote is looked for exactly, then by alignment, then in pieces (a scrambled reading order). Where it stands more
    than once, occurrences in the parsed text are matched, in order, with those in the reference text.

    Args:
        units: one row a unit and carrier: kind, doc_id, quote (normalised), needed, token_from, token_to, before,
            after, place (number of its occurrence in the reference text).
        before: `references` (doc_id, text); a document without one is anchored in the parsed text itself.
        after: `parsed`.
        config: min_similarity and normalise.

    Returns:
        `units` with the columns of `LAYER`. Status: exact | aligned | scattered | changed (no place is similar enough,
        but a reference says that the quote was there) | unanchored (no reference either) | absent (no parsed row) | the
        parser's own status where it failed.
    """
    references = dict(before["references"].select("doc_id", "text").iter_rows())
    parsed = {row[0]: row[1:] for row in after["parsed"].select("doc_id", "text", "status").iter_rows()}
    places: dict[tuple[str, str], list[Location | None]] = {}
    layers: list[dict[str, Any]] = [{}] * units.height
    # By document: the text is then normalised once.
    for index, row in sorted(enumerate(units.iter_rows(named=True)), key=lambda item: (item[1]["doc_id"], item[0])):
        text, status = parsed.get(row["doc_id"], ("", "absent"))
        if row["kind"] == "document" or not text.strip():
            layers[index] = _unlocated(row, text, status)
            continue
        reference = references.get(row["doc_id"])
        key = (row["doc_id"], row["quote"])
        if key not in places:
            places[key] = _places(row["quote"], reference, text, config)
        place = places[key][row["place"]] if row["place"] < len(places[key]) else None
        layers[index] = _located(row, text, place, reference is not None, config)
    return units.hstack(pl.DataFrame(layers, schema=LAYER, orient="row"))


def _unlocated(row: dict[str, Any], text: str, status: str) -> dict[str, Any]:
    whole = row["kind"] == "document"
    return {
        "positions": [-1] * len(visible_indexes(row["quote"])),
        "token_ok": [False] * len(row["token_from"]),
        "held": whole and bool(text.strip()),
        "similarity": None if not whole else float(bool(text.strip())),
        "cer": None,
        "status": "exact" if whole and text.strip() else "empty" if status == "ok" else status,
        "spread": False,
        "low": None,
        "high": None,
    }


def _located(
    row: dict[str, Any], text: str, place: Location | None, referenced: bool, config: Ledger
) -> dict[str, Any]:
    quote = row["quote"]
    status = "exact" if place is not None and place.similarity == 1 else "aligned"
    if place is None or int((place.positions >= 0).sum()) < row["needed"]:
        pieces = _in_pieces(quote, text, config)
        if pieces is not None and (place is None or (pieces.positions >= 0).sum() > (place.positions >= 0).sum()):
            place, status = pieces, "scattered"
    if place is None:
        closest = nearest(quote, text, config.normalise)
        return _unlocated(row, text, status) | {
            "similarity": max(0.0, closest.similarity),
            "cer": 1.0 - closest.similarity,
            "status": "changed" if referenced else "unanchored",
            "low": closest.start,
            "high": closest.end,
        }
    ranges = list(zip(row["token_from"], row["token_to"], strict=True))
    tokens = tokens_intact(text, place.positions, quote, ranges, row["before"], row["after"])
    return {
        "positions": place.positions.tolist(),
        "token_ok": tokens,
        "held": holds(place.positions, tokens, row["needed"]),
        "similarity": max(0.0, place.similarity),
        # Of pieces that stand apart only what is missing counts; what stands between them is no error of theirs.
        "cer": 1.0 - place.similarity,
        "status": status,
        "spread": scattered(text, place.positions),
        "low": place.start,
        "high": place.end,
    }


def _places(quote: str, reference: str | None, text: str, config: Ledger) -> list[Location | None]:
    """For each occurrence of the quote in the reference text its place in the parsed text."""
    found: list[Location] = occurrences(quote, text, config.normalise)
    expected = occurrences(quote, reference, config.normalise) if reference is not None else []
    if reference is None or not expected:
        return list(found) or [locate(quote, text, config.normalise, config.min_similarity)]
    if len(expected) == len(found) and found:
        return list(found)
    if not found and len(expected) == 1:
        return [locate(quote, text, config.normalise, config.min_similarity)]
    matched = _match(expected, found, reference, text)
    return _fill(quote, text, matched, config)


def _match(expected: Sequence[Location], found: Sequence[Location], reference: str, text: str) -> list[Location | None]:
    """Match occurrences in order so that the text around them is most alike."""
    alike = np.zeros((len(expected), len(found)))
    around = [_around(place, text) for place in found]
    for i, place in enumerate(expected):
        here = _around(place, reference)
        for j, there in enumerate(around):
            alike[i, j] = sum(Levenshtein.normalized_similarity(a, b) for a, b in zip(here, there, strict=True)) / 2
    alike[alike < LEAST_CONTEXT] = 0
    best = np.zeros((len(expected) + 1, len(found) + 1))
    for i in range(len(expected) - 1, -1, -1):
        for j in range(len(found) - 1, -1, -1):
            pair = alike[i, j] + best[i + 1, j + 1] if alike[i, j] else 0.0
            best[i, j] = max(pair, best[i + 1, j], best[i, j + 1])
    result: list[Location | None] = []
    j = 0
    for i in range(len(expected)):
        while j < len(found) and best[i, j] == best[i, j + 1]:
            j += 1
        if j < len(found) and alike[i, j] and best[i, j] == alike[i, j] + best[i + 1, j + 1]:
            result.append(found[j])
            j += 1
        else:
            result.append(None)
    return result


def _around(place: Location, text: str) -> tuple[str, str]:
    left = normalise(text[max(0, place.start - CONTEXT) : place.start])
    return left, normalise(text[place.end : place.end + CONTEXT])


def _fill(quote: str, text: str, matched: list[Location | None], config: Ledger) -> list[Location | None]:
    """Occurrences without an exact match are aligned between their matched neighbours."""
    result = list(matched)
    for index, place in enumerate(matched):
        if place is not None:
            continue
        start = max((p.end for p in result[:index] if p is not None), default=0)
        end = min((p.start for p in matched[index + 1 :] if p is not None), default=len(text))
        near = locate(quote, text[start:end], config.normalise, config.min_similarity) if start < end else None
        result[index] = near and _shifted(near, start)
    return result


def _shifted(place: Location, by: int) -> Location:
    positions = np.where(place.positions >= 0, place.positions + by, -1)
    return Location(place.start + by, place.end + by, place.similarity, positions)


def _in_pieces(quote: str, text: str, config: Ledger) -> Location | None:
    """A quote whose parts stand apart: longest runs of words first, each at the place nearest to the first one found.

    None unless a share of `min_similarity` of its non-space characters is found so.
    """
    words = quote.split()
    plain = normalise(text, config.normalise)
    firsts = np.cumsum([0, *(len(word) for word in words)])
    positions = np.full(int(firsts[-1]), -1, dtype=np.int64)
    todo = [(0, len(words))]
    anchor: int | None = None
    while todo:
        low, high = todo.pop()
        run = _longest_run(words, low, high, plain)
        if run is None:
            continue
        places = occurrences(" ".join(words[run[0] : run[1]]), text, config.normalise)
        if places:
            anchor = places[0].start if anchor is None else anchor
            place = min(places, key=lambda p: abs(p.start - (anchor or 0)))
            positions[firsts[run[0]] : firsts[run[1]]] = place.positions
        todo += [(low, run[0]), (run[1], high)]
    found = positions[positions >= 0]
    if not len(found) or len(found) < config.min_similarity * len(positions):
        return None
    return Location(int(found.min()), int(found.max()) + 1, len(found) / len(positions), positions)


def _longest_run(words: list[str], low: int, high: int, plain: str) -> tuple[int, int] | None:
    for length in range(high - low, 0, -1):
        for start in range(low, high - length + 1):
            run = words[start : start + length]
            if sum(map(len, run)) >= LEAST_RUN and " ".join(run) in plain:
                return start, start + length
    return None
