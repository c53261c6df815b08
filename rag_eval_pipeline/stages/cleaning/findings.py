"""What cleaning did wrongly and what is wrong with the text: the table `cleaning_findings`, by place, context masked.

Here: which places are listed. Not here: figures by document (`quality`), masking (`stages.excerpts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.stages.cleaning.quality import main_mask
from rag_eval_pipeline.stages.cleaning.signs import INVISIBLE, broken_encodings, compatibility, mixed_scripts
from rag_eval_pipeline.stages.cleaning.transform import kept, solid
from rag_eval_pipeline.stages.excerpts import Places, excerpt
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.table import Table, conform, integer, string, table

LARGEST = 20
"""Places of one kind that are listed of a document, the largest first."""
Found = tuple[str, str, int, int]


@table(
    "cleaning_findings",
    f"The {LARGEST} largest places of each kind in each document where main text was removed, boilerplate left in, or signs "
    "make trouble.",
)
class CleaningFindings(Table):
    """Offsets, and a few words around them with personal data masked."""

    doc_id = string("Document", key=True)
    kind = string(
        "over_removal (main text that was removed) | under_removal (boilerplate that was left in) | mixed_script | mojibake | "
        "compatibility (NFC and NFKC differ) | zero_width | soft_hyphen | byte_order_mark | direction (turns text around) | control",
        key=True,
    )
    rank = integer("1 is the largest of its kind in the document", key=True)
    layer = string("Text that the offsets are of: parsed | clean")
    start = integer("First code point")
    end = integer("One past the last")
    size = integer("Code points that are not white space", unit="char")
    in_all = integer("Places of this kind in the document, those that are not listed among them")
    context = string("The place in brackets and a few words around it, personal data masked", privacy="masked")


def cleaning_findings(frames: Mapping[str, pl.DataFrame], gold: Gold, places: pl.DataFrame | None) -> pl.DataFrame:
    """The table.

    Args:
        frames: `parsed` and `cleaned`.
        gold: main text and references are used; without a label there is no removal to judge.
        places: `pii_places`.
    """
    documents = frames["cleaned"].join(
        frames["parsed"].select("doc_id", pl.col("text").alias("parsed")), on="doc_id", how="left"
    )
    labels = {row["doc_id"]: row for row in gold.main_text.iter_rows(named=True)}
    references = dict(gold.references.select("doc_id", "text").iter_rows())
    hidden = Places(places)
    rows: list[dict[str, Any]] = []
    for row in documents.sort("doc_id").iter_rows(named=True):
        doc_id, texts = row["doc_id"], {"parsed": row["parsed"] or "", "clean": row["text"]}
        label, reference = labels.get(doc_id), references.get(doc_id)
        found = [*_removals(texts["parsed"], row["offsets"], label, reference), *_signs(texts)]
        for kind in dict.fromkeys(one[0] for one in found):
            rows += _listed(doc_id, [one for one in found if one[0] == kind], texts, hidden)
    return conform(CleaningFindings, rows)


def _removals(parsed: str, offsets: Any, label: dict[str, Any] | None, reference: str | None) -> Iterator[Found]:
    if label is None or (label["text"] is None and reference is None):
        return
    visible, main = solid(parsed), main_mask(parsed, label, reference)
    there = kept(OffsetMap(offsets), len(parsed))
    for kind, wrong in (("over_removal", main & ~there), ("under_removal", visible & ~main & there)):
        for start, end in _runs(wrong, ~visible):
            yield kind, "parsed", start, end


def _runs(marked: np.ndarray, between: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of marked characters; what stands `between` two of them (white space) joins them."""
    places = np.flatnonzero(marked)
    if not places.size:
        return
    solid_before = np.concatenate([[0], np.cumsum(~between)])
    gaps = solid_before[places[1:]] - solid_before[places[:-1] + 1]
    cuts = np.flatnonzero(gaps > 0) + 1
    for run in np.split(places, cuts):
        yield int(run[0]), int(run[-1]) + 1


def _signs(texts: Mapping[str, str]) -> Iterator[Found]:
    """Of the parsed text what cleaning may take out, of the clean text what it left."""
    for kind, pattern in INVISIBLE.items():
        for match in pattern.finditer(texts["parsed"]):
            yield kind, "parsed", match.start(), match.end()
    clean = texts["clean"]
    for kind, find in (
        ("mixed_script", mixed_scripts),
        ("mojibake", broken_encodings),
        ("compatibility", compatibility),
    ):
        for start, end in find(clean):
            yield kind, "clean", start, end


def _listed(doc_id: str, found: list[Found], texts: Mapping[str, str], hidden: Places) -> Iterator[dict[str, Any]]:
    sized = [(len("".join(texts[layer][start:end].split())), layer, start, end) for _, layer, start, end in found]
    for rank, (size, layer, start, end) in enumerate(sorted(sized, key=lambda one: (-one[0], one[2]))[:LARGEST], 1):
        yield {
            "doc_id": doc_id,
            "kind": found[0][0],
            "rank": rank,
            "layer": layer,
            "start": start,
            "end": end,
            "size": size,
            "in_all": len(found),
            "context": excerpt(texts[layer], start, end, hidden.of(doc_id, layer)),
        }
