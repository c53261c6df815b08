"""The language of each chunk: that of the part of its document from which most of it comes.

Here: from parts to chunks. Not here: which part is in which language (the enriching room), and analysers (`text.analysers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl

from rag_eval_pipeline.text.offsets import OffsetMap

Part = tuple[int, int, str]


def of_sections(chunks: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Chunks of documents in several languages with the language of their part; all others as they are.

    Args:
        chunks: doc_id, start and end in the masked text, language.
        frames: `masked`, `cleaned` and, where parts were looked at, `section_languages`.
    """
    parts = _mixed(frames.get("section_languages"))
    if not parts:
        return chunks
    wanted = pl.col("doc_id").is_in(list(parts))
    maps = {
        doc_id: (OffsetMap(masked), OffsetMap(clean or []))
        for doc_id, masked, clean in frames["masked"].filter(wanted)
        .select("doc_id", "offsets")
        .join(frames["cleaned"].select("doc_id", clean="offsets"), on="doc_id", how="left")
        .iter_rows()
    }  # fmt: skip
    languages = [
        _language(parts[doc_id], maps[doc_id], start, end, given) if doc_id in maps and start is not None else given
        for doc_id, start, end, given in chunks.select("doc_id", "start", "end", "language").iter_rows()
    ]
    return chunks.with_columns(pl.Series("language", languages, dtype=chunks.schema["language"]))


def _mixed(sections: pl.DataFrame | None) -> dict[str, list[Part]]:
    """Parts of documents that have more than one language."""
    if sections is None:
        return {}
    mixed = sections.filter(pl.col("language").n_unique().over("doc_id") > 1).sort("doc_id", "start")
    found: dict[str, list[Part]] = {}
    for doc_id, start, end, language in mixed.select("doc_id", "start", "end", "language").iter_rows():
        found.setdefault(doc_id, []).append((start, end, language))
    return found


def _language(
    parts: Sequence[Part], maps: tuple[OffsetMap, OffsetMap], start: int, end: int, given: str | None
) -> str | None:
    """Where two languages have equal shares, the first in the text."""
    masked, clean = maps
    shares: Counter[str] = Counter()
    for low, high in masked.source(start, end):
        for first, last in clean.source(low, high):
            for begin, stop, language in parts:
                shares[language] += max(0, min(stop, last) - max(begin, first))
    best, share = max(shares.items(), key=lambda one: one[1], default=("und", 0))
    if not share:
        return given
    return None if best == "und" else best
