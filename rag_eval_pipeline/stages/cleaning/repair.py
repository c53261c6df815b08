"""What cleaning should have kept: labelled main text; without a label, the blocks in which gold evidence stands.

Not here: text that the parser misread (the parsing room's repair), and what a loss costs (attribution).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.stages.cleaning.tables import Cleaned
from rag_eval_pipeline.stages.cleaning.transform import kept, main_lines, one, solid, strip_invisible
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.offsets import OffsetMap, Segment
from rag_eval_pipeline.warehouse.table import conform

Row = dict[str, Any]
FINE = frozenset({"ok", "empty"})
LEFT = 0.5
"""A block of which less is left in a text that somebody wrote anew is not there."""
_LINE_END = re.compile(r"\s*\n")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: Any
) -> dict[str, pl.DataFrame]:
    """Labelled main text kept and labelled boilerplate removed; documents without a label keep their evidence's blocks.

    - With a `main_text` label the clean text is made anew from parsed text and label, by the stage's own rules on Unicode
      and invisible characters, so it does not depend on what the cleaner did. Of a cleaner that rewrites text (an import, a
      user's own class) it is made anew only where that cleaner kept something else than main text.
    - Without one, a block in which a carrier that the clean text doesn't hold lost characters is put back, whole. Of a document that the cleaner failed on,
      all is kept if it has evidence.

    Args:
        before: `parsed`, `blocks`.
        after: `cleaned`.
        truth: main_text and references of gold; `anchors`, layer parsed.
        config: `unicode`, `invisible`, and whether texts are rewritten.
    """
    gold = truth.gold
    labels = {row["doc_id"]: row for row in gold.main_text.iter_rows(named=True)}
    references = dict(
        gold.references.filter(pl.col("doc_id").is_in(sorted(labels))).select("doc_id", "text").iter_rows()
    )
    carriers = _carriers(truth.anchors)
    parsed = before["parsed"].select("doc_id", pl.col("text").alias("parsed"))
    touched = pl.col("doc_id").is_in(sorted({*labels, *carriers}))
    todo = after["cleaned"].filter(touched).join(parsed, on="doc_id", maintain_order="left")
    unlabelled = todo.filter(~pl.col("doc_id").is_in(sorted(labels)))["doc_id"]
    blocks = _blocks(before["blocks"], unlabelled)
    rows: list[Row] = []
    for row in todo.iter_rows(named=True):
        doc_id, source = row["doc_id"], row.pop("parsed")
        wanted = _main(labels.get(doc_id), references.get(doc_id), source)
        if wanted is not None:
            repaired = _made(row, source, wanted, config)
        else:
            repaired = _restored(row, source, carriers.get(doc_id, ()), blocks.get(doc_id, []), config)
        if repaired != row:
            rows.append(repaired)
    if not rows:
        return dict(after)
    cleaned = after["cleaned"]
    others = cleaned.filter(~pl.col("doc_id").is_in([row["doc_id"] for row in rows]))
    return {
        **after,
        "cleaned": conform(Cleaned, pl.concat([others, pl.DataFrame(rows, schema=cleaned.schema, orient="row")])),
    }


def _carriers(anchors: pl.DataFrame) -> dict[str, list[np.ndarray]]:
    """Places in the parsed text of the carriers that the clean text doesn't hold, by document.

    An empty array for a unit that is the document.
    """
    key = ["query_id", "evidence_id", "carrier"]
    lost = anchors.filter((pl.col("layer") == "clean") & ~pl.col("held")).select(key)
    there = anchors.filter((pl.col("layer") == "parsed") & pl.col("present")).join(lost, on=key, how="semi").sort(key)
    found: dict[str, list[np.ndarray]] = {}
    for doc_id, positions, held in there.select("doc_id", "positions", "held").iter_rows():
        places = np.asarray(positions, dtype=np.int64)
        places = places[places >= 0]
        if len(places) or held:
            found.setdefault(doc_id, []).append(places)
    return found


def _blocks(blocks: pl.DataFrame, wanted: pl.Series) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    chosen = blocks.filter(pl.col("doc_id").is_in(wanted.implode())).sort("doc_id", "start", "end")
    for doc_id, start, end in chosen.select("doc_id", "start", "end").iter_rows():
        found.setdefault(doc_id, []).append((start, end))
    return found


# With a label ----------------------------------------------------------------------------------------------------------


def _main(label: Mapping[str, Any] | None, reference: str | None, parsed: str) -> np.ndarray | None:
    """Mask of the parsed text's characters that are main text, white space included; None without a usable label."""
    if label is None or not parsed:
        return None
    if label["text"] is not None:
        mask = np.zeros(len(parsed), dtype=bool)
        for start, end in main_lines(parsed, label["text"]):
            mask[start:end] = True
        return mask
    if reference is None:
        return None
    boilerplate = np.zeros(len(reference), dtype=bool)
    for span in label["boilerplate"] or ():
        boilerplate[span["start"] : span["end"]] = True
    known, main = np.zeros(len(parsed), dtype=bool), np.zeros(len(parsed), dtype=bool)
    for segment in derive(parsed, reference).segments:
        known[segment.out_start : segment.out_end] = True
        main[segment.out_start : segment.out_end] = ~boilerplate[segment.src_start : segment.src_end]
    return _with_space(parsed, _decided(parsed, known, main))


def _decided(text: str, known: np.ndarray, main: np.ndarray) -> np.ndarray:
    """Characters that the reference has not (misread ones) go with their line: boilerplate only if all else of it is."""
    decided = main | ~known
    visible = solid(text)
    for match in re.finditer(r"[^\n]+", text):
        line = slice(*match.span())
        judged = visible[line] & known[line]
        if judged.any() and not main[line][judged].any():
            decided[line] = False
    return decided


def _with_space(text: str, main: np.ndarray) -> np.ndarray:
    """White space up to the last line end goes with what stands before it, the rest with what follows.

    So whole lines keep their line ends and indentation, as the stage's own line by line choice has them.
    """
    mask = main.copy()
    for match in re.finditer(r"\s+", text):
        start, end = match.span()
        before = bool(main[start - 1]) if start else None
        after = bool(main[end]) if end < len(text) else None
        cut = start + match.group().rfind("\n") + 1 if "\n" in match.group() else end
        first = after if before is None else before
        mask[start:cut] = bool(first)
        mask[cut:end] = bool(first if after is None else after)
    return mask


def _made(row: Row, parsed: str, wanted: np.ndarray, config: Any) -> Row:
    """The clean text made anew of what is wanted."""
    if _rewrites(config):
        visible = solid(parsed) & ~_invisible(parsed)
        if row["status"] in FINE and not (visible & (kept(OffsetMap(row["offsets"]), len(parsed)) != wanted)).any():
            return row
    clean = _cleaned(parsed, _runs(~wanted), config)
    return row | clean


def _rewrites(config: Any) -> bool:
    """Whether the clean text is somebody else's, and only aligned with the parsed text."""
    return config.imported or is_import_path(config.html)


def _cleaned(text: str, cut: Sequence[tuple[int, int]], config: Any) -> Row:
    """What the stage makes of a text without some ranges of it."""
    hints = [{"start": start, "end": end} for start, end in cut]
    item = {"text": text, "html": None, "boilerplate": hints, "clean": None}
    [made] = one(item, config.model_copy(update={"html": "blocks", "imported": False}))["cleaned"]
    return {name: made[name] for name in ("text", "offsets", "removed_chars", "status", "error")}


def _invisible(text: str) -> np.ndarray:
    """Mask of the characters that the stage strips whatever the label says."""
    _, offsets = strip_invisible(text)
    return ~kept(offsets, len(text))


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


# Without a label -------------------------------------------------------------------------------------------------------


def _restored(
    row: Row, parsed: str, carriers: Sequence[np.ndarray], blocks: Sequence[tuple[int, int]], config: Any
) -> Row:
    """The clean text with the blocks put back in which a carrier lost characters."""
    whole = row["status"] not in FINE or any(not len(places) for places in carriers)
    if not row["text"].strip() and whole and parsed.strip():
        # The stage failed, or the unit is the document: no block of it is nearer than another.
        return row | _cleaned(parsed, [], config)
    gone = ~(kept(OffsetMap(row["offsets"]), len(parsed)) | _invisible(parsed))
    lost = [place for places in carriers for place in places.tolist() if gone[place]]
    text, segments = row["text"], OffsetMap(row["offsets"]).segments
    # From the last one on, so that places before it stay.
    for start, end in reversed(_around(sorted(set(lost)), blocks, parsed)):
        text, segments = _with_block(text, segments, parsed, start, end, config)
    if text == row["text"]:
        return row
    offsets = OffsetMap(segments)
    removed = int((solid(parsed) & ~kept(offsets, len(parsed))).sum())
    return row | {"text": text, "offsets": offsets.rows(), "removed_chars": removed, "status": "ok", "error": None}


def _around(lost: Sequence[int], blocks: Sequence[tuple[int, int]], parsed: str) -> list[tuple[int, int]]:
    """Blocks in which lost characters stand, in order and disjoint; the paragraph of a character that no block has."""
    found: list[tuple[int, int]] = []
    candidates = [*blocks, *(match.span() for match in _PARAGRAPH.finditer(parsed))] if lost else []
    for place in lost:
        if not any(start <= place < end for start, end in found):
            found.append(next((start, end) for start, end in candidates if start <= place < end))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _with_block(
    text: str, segments: Sequence[Segment], parsed: str, start: int, end: int, config: Any
) -> tuple[str, list[Segment]]:
    """A clean text in which a block of the parsed text stands whole, in the place of what was left of it."""
    offsets = OffsetMap(segments)
    there = kept(offsets, len(parsed))
    place = offsets.forward_range(start, end)
    if place is None or (_rewrites(config) and there[start:end].sum() < LEFT * (end - start)):
        # Alignment of a text that somebody wrote anew gives a block that is not there single words of its neighbours.
        segments = _without(segments, start, end)
        low = max((s.out_end for s in segments if s.src_end <= start), default=0)
        while 0 < low < len(text) and not (text[low - 1].isspace() or text[low].isspace()):
            low += 1
        place = (low, low)
        # A block that was cut whole took its line end along.
        space = _LINE_END.match(parsed, end)
        end = space.end() if space and not there[end : space.end()].any() else end
    low, high = place
    made = _cleaned(parsed[start:end], [], config)
    new = [Segment(**row) for row in made["offsets"]]
    left = "" if low == 0 or text[low - 1].isspace() or low < high else "\n"
    right = "" if high == len(text) or text[high].isspace() or low < high or made["text"][-1:].isspace() else "\n"
    piece = f"{left}{made['text']}{right}"
    shift = low + len(left)
    inserted = [
        s._replace(
            out_start=s.out_start + shift, out_end=s.out_end + shift,
            src_start=s.src_start + start, src_end=s.src_end + start,
        )
        for s in new
    ]  # fmt: skip
    later = len(piece) - (high - low)
    behind = [
        s._replace(out_start=s.out_start + later, out_end=s.out_end + later) for s in _cut(segments, high, len(text))
    ]
    return text[:low] + piece + text[high:], [*_cut(segments, 0, low), *inserted, *behind]


def _without(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Segments without what they have of the source [start, end)."""
    found: list[Segment] = []
    for s in segments:
        if s.src_end <= start or s.src_start >= end:
            found.append(s)
        elif s.exact:
            shift = s.out_start - s.src_start
            parts = ((s.src_start, start), (end, s.src_end))
            found += [Segment(low + shift, high + shift, low, high) for low, high in parts if low < high]
    return found


def _cut(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Segments of the output [start, end); an inexact one that reaches beyond it has no place in it."""
    found = []
    for s in segments:
        low, high = max(s.out_start, start), min(s.out_end, end)
        if low >= high or (not s.exact and (low, high) != (s.out_start, s.out_end)):
            continue
        if s.exact:
            s = Segment(low, high, s.src_start + low - s.out_start, s.src_end - (s.out_end - high))
        found.append(s)
    return found
