"""What the parser should have read: the reference text, in blocks. Which stage lost what, and at what price, attribution says.

A document without a reference text stays as it is. Of one whose content is right, white space apart, only the structure is
looked at: without a `structure` label it stays too.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rag_eval_pipeline.stages.parsing.page import complete
from rag_eval_pipeline.stages.parsing.reading import clean
from rag_eval_pipeline.stages.parsing.tables import Blocks, Parsed, ParsedTables
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.text.alignment import occurrences
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.table import Table, conform

VERBATIM = frozenset({"txt", "md", "csv"})
"""Media whose text is the file's own, outer white space and all; other readers write none."""
MOVED = 0.5
"""A block of whose characters less is in place is looked for elsewhere in the reference text."""
_LINE = re.compile(r"[^\s](?:[^\n]*[^\s])?")


class Piece(NamedTuple):
    """A block of the repaired text."""

    start: int
    end: int
    kind: str
    level: int | None
    page: int | None


def repair(
    before: Mapping[str, pl.DataFrame], after: Mapping[str, pl.DataFrame], truth: Truth, config: Any
) -> dict[str, pl.DataFrame]:
    """The reference text in the place of what was read; kinds, levels and pages of blocks stay.

    Where `gold.structure` has the document's blocks, kinds and levels are theirs, and the text is the reference's to the last
    space: so the repaired text does not depend on what the parser read. Else a block goes where its characters stand in the
    reference, and parts of it that no block covers become paragraphs. A document that failed is `ok`.

    Args:
        before: `documents` (media), optional.
        after: `parsed`, `blocks`, `parsed_tables`.
        truth: references, structure and main_text of gold are used.
        config: nothing is read.
    """
    gold = truth.gold
    structure = {row[0]: row[1] or [] for row in gold.structure.select("doc_id", "blocks").iter_rows()}
    labelled = gold.main_text.filter(pl.col("boilerplate").is_not_null())
    furniture = dict(labelled.select("doc_id", "boilerplate").iter_rows())
    media = dict(before["documents"].select("doc_id", "media").iter_rows()) if "documents" in before else {}
    references = gold.references.select("doc_id", pl.col("text").alias("reference"))
    # Columnar: most documents of a corpus of text files are as they should be, and none of them is looked at again.
    todo = (
        after["parsed"]
        .join(references, on="doc_id", maintain_order="left")
        .filter(pl.col("doc_id").is_in(sorted(structure)) | (pl.col("text") != pl.col("reference")))
    )
    blocks, tables = (_by_document(after[name], todo["doc_id"]) for name in ("blocks", "parsed_tables"))
    changed: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in todo.iter_rows(named=True):
        doc_id, reference = row["doc_id"], row.pop("reference")
        document = _Document(
            row, reference, media.get(doc_id) in VERBATIM, structure.get(doc_id), furniture.get(doc_id),
            blocks.get(doc_id, []), tables.get(doc_id, []),
        )  # fmt: skip
        if (repaired := document.repaired()) is not None:
            changed[doc_id] = repaired
    if not changed:
        return dict(after)
    return {
        name: _replaced(schema, after[name], {doc_id: rows[name] for doc_id, rows in changed.items()})
        for name, schema in (("parsed", Parsed), ("blocks", Blocks), ("parsed_tables", ParsedTables))
    }


def _by_document(frame: pl.DataFrame, wanted: pl.Series) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in frame.filter(pl.col("doc_id").is_in(wanted.implode())).iter_rows(named=True):
        found.setdefault(row["doc_id"], []).append(row)
    return found


def _replaced(
    schema: type[Table], frame: pl.DataFrame, rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> pl.DataFrame:
    """The frame with all rows of some documents replaced."""
    kept = frame.filter(~pl.col("doc_id").is_in(sorted(rows)))
    new = [{**row, "doc_id": doc_id} for doc_id in sorted(rows) for row in rows[doc_id]]
    return conform(schema, pl.concat([kept, pl.DataFrame(new, schema=frame.schema, orient="row")]))


def _content(text: str) -> str:
    """A text without its white space."""
    return "".join(unicodedata.normalize("NFC", text).split())


class _Document:
    """One document: what was read, and what it says."""

    def __init__(
        self,
        row: dict[str, Any],
        reference: str,
        verbatim: bool,
        structure: Sequence[dict[str, Any]] | None,
        furniture: Sequence[dict[str, Any]] | None,
        blocks: list[dict[str, Any]],
        tables: list[dict[str, Any]],
    ) -> None:
        self.row, self.structure, self.blocks, self.tables = row, structure, blocks, tables
        whole = clean(reference)
        self.text = whole if verbatim else whole.strip()
        shift = 0 if verbatim else len(whole) - len(whole.lstrip())
        self.furniture = (
            None if furniture is None else [(span["start"] - shift, span["end"] - shift) for span in furniture]
        )

    def repaired(self) -> dict[str, list[dict[str, Any]]] | None:
        """Rows of the three tables; None where they would be as they are."""
        read = self.row["text"]
        right = _content(read) == _content(self.text)
        if right and self.structure is None:
            return None
        places = derive(self.text, read)
        carried = _carried(self.blocks, places, self.text, read)
        pieces = carried if self.structure is None else _labelled(self.structure, self.text)
        pieces = _paged(_covered(self.text, pieces, self._kind(carried)), carried)
        blocks = [{**piece._asdict(), "block": number} for number, piece in enumerate(pieces)]
        if read == self.text and _same(blocks, self.blocks):
            return None
        found = bool(self.text.strip())
        row = self.row | {
            "text": self.text,
            "status": "ok" if found else "empty",
            "error": None if found else "no text was found",
        }
        if not right and row["html"] is not None:
            # Cleaning keeps the lines that its extractor finds in the page: what it lacks would go again.
            furniture = [(piece.start, piece.end) for piece in pieces if piece.kind == "boilerplate"]
            row["html"] = complete(row["html"], self.text, furniture)
        return {"parsed": [row], "blocks": blocks, "parsed_tables": _moved(self.tables, places)}

    def _kind(self, carried: Sequence[Piece]) -> Any:
        """Kind of a part of the text that no block covers: `boilerplate` by label or, without one, by the parser's."""
        spans = self.furniture
        if spans is None:
            spans = [(piece.start, piece.end) for piece in carried if piece.kind == "boilerplate"]
        cut = np.zeros(len(self.text) + 1, dtype=np.int64)
        for start, end in spans:
            cut[max(start, 0) + 1 : max(end, 0) + 1] = 1
        total = cut.cumsum()

        def kind(start: int, end: int) -> str:
            return "boilerplate" if 2 * (total[end] - total[start]) > end - start else "paragraph"

        return kind


def _same(new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]) -> bool:
    names = ("block", "kind", "level", "page", "start", "end")
    return [[row[name] for name in names] for row in new] == [[row[name] for name in names] for row in old]


def _moved(tables: Sequence[Mapping[str, Any]], places: OffsetMap) -> list[dict[str, Any]]:
    """Tables at their place in the new text; NULL where nothing of them stands there."""
    forward = _Forward(places)
    rows = []
    for table in tables:
        place = None if table["start"] is None else forward.range(table["start"], table["end"])
        start, end = place or (None, None)
        rows.append({**table, "start": start, "end": end})
    return rows


class _Forward:
    """`OffsetMap.forward_range` of a map that keeps the order, by bisection: noisy pages have thousands of segments."""

    def __init__(self, places: OffsetMap) -> None:
        self._segments = places.segments
        self._starts = [segment.src_start for segment in places.segments]
        self._ends = [segment.src_end for segment in places.segments]

    def range(self, start: int, end: int) -> tuple[int, int] | None:
        """Smallest range that holds what derives from [start, end)."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end) - 1
        if first > last or start >= end:
            return None
        low, high = self._segments[first], self._segments[last]
        return low.out_start + max(start - low.src_start, 0), high.out_end - max(high.src_end - end, 0)

    def there(self, start: int, end: int) -> int:
        """How many characters of [start, end) have a place."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return sum(min(end, s.src_end) - max(start, s.src_start) for s in self._segments[first:last])


# Blocks ----------------------------------------------------------------------------------------------------------------


def _carried(blocks: Sequence[Mapping[str, Any]], places: OffsetMap, text: str, read: str) -> list[Piece]:
    """The parser's blocks at their place in the reference text, in order, without overlap.

    A block most of which is out of place (a scrambled reading order) goes where its text stands, if it stands once.
    """
    forward = _Forward(places)
    found = []
    for block in blocks:
        start, end = block["start"], block["end"]
        place = forward.range(start, end)
        if forward.there(start, end) < MOVED * (end - start):
            elsewhere = occurrences(read[start:end], text) if read[start:end].strip() else []
            place = (elsewhere[0].start, elsewhere[0].end) if len(elsewhere) == 1 else place
        if place is not None:
            found.append(Piece(*place, block["kind"], block["level"], block["page"]))
    return list(_disjoint(found, text))


def _labelled(structure: Sequence[Mapping[str, Any]], text: str) -> list[Piece]:
    """The labelled blocks at their place in the reference text.

    Alignment says where about; where the block then stands word for word, that is its place: of two equal signs ("it.", and
    the "2." that counts the next item) alignment may take the other.
    """
    joined = "\n\n".join(block["text"] or "" for block in structure)
    places = derive(joined, text)
    found: list[Piece] = []
    position = reached = 0
    for block in structure:
        wording = block["text"] or ""
        if ranges := places.source(position, position + len(wording)):
            start, end = max(ranges[0][0], reached), ranges[-1][1]
            verbatim = occurrences(wording, text[start:end]) if start < end else []
            if verbatim:
                start, end = start + verbatim[0].start, start + verbatim[0].end
            found.append(Piece(start, end, block["kind"], block["level"], None))
            reached = max(reached, end)
        position += len(wording) + 2
    return list(_disjoint(found, text))


def _disjoint(pieces: Sequence[Piece], text: str) -> Iterator[Piece]:
    """Pieces in order, trimmed; what an earlier one covers is not covered again."""
    position = 0
    for piece in sorted(pieces, key=lambda piece: (piece.start, piece.end)):
        start, end = _trimmed(text, max(piece.start, position), piece.end)
        if start < end:
            yield piece._replace(start=start, end=end)
            position = end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, start + len(part.strip()))


def _covered(text: str, pieces: Sequence[Piece], kind: Any) -> list[Piece]:
    """Blocks that cover all of the text but white space.

    What stands on the line of a block, and what has no letter or digit (bars, bullets, fences), belongs to it; other lines
    become blocks of their own, parted by blank lines.
    """
    found: list[Piece] = []
    position = 0
    for piece in [*pieces, None]:
        limit = len(text) if piece is None else piece.start
        lines = [match.span() for match in _LINE.finditer(text, position, limit)]
        if lines and piece is not None and "\n" not in text[lines[-1][1] : piece.start]:
            beside_left = len(lines) == 1 and found and "\n" not in text[position : lines[0][0]]
            if not beside_left:
                piece = piece._replace(start=lines.pop()[0])
        if lines and found and "\n" not in text[position : lines[0][0]]:
            found[-1] = found[-1]._replace(end=lines.pop(0)[1])
        for start, end in _paragraphs(text, lines):
            if any(character.isalnum() for character in text[start:end]):
                found.append(Piece(start, end, kind(start, end), None, None))
            elif found:
                found[-1] = found[-1]._replace(end=end)
            elif piece is not None:
                piece = piece._replace(start=min(start, piece.start))
            else:
                found.append(Piece(start, end, kind(start, end), None, None))
        if piece is not None:
            found.append(piece)
            position = piece.end
    return found


def _paragraphs(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Runs of lines without a blank line between them."""
    current: tuple[int, int] | None = None
    for start, end in lines:
        if current is not None and text.count("\n", current[1], start) < 2:
            current = (current[0], end)
            continue
        if current is not None:
            yield current
        current = (start, end)
    if current is not None:
        yield current


def _paged(pieces: Sequence[Piece], carried: Sequence[Piece]) -> list[Piece]:
    """Pieces on the page of the parser's block that covers most of them, else on the page of the piece before."""
    starts = [piece.start for piece in carried]
    ends = [piece.end for piece in carried]
    found: list[Piece] = []
    page: int | None = None
    for piece in pieces:
        near = carried[bisect_right(ends, piece.start) : bisect_left(starts, piece.end)]
        best = max(near, key=lambda c: min(c.end, piece.end) - max(c.start, piece.start), default=None)
        page = best.page if best is not None and best.page is not None else page
        found.append(piece._replace(page=page))
    return found
