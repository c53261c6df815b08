"""One function a kind: where a unit's evidence is spoiled, and where the same edit is made beside it.

A planner returns a `Planned` fault with its decoy, or None where the unit is no site. Nothing is changed here; `chain` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from rag_eval_pipeline.experiments.injector.sites import Page, Place, Span, Unit, critical_spans, nearest_length
from rag_eval_pipeline.experiments.injector.state import State
from rag_eval_pipeline.text.tokens import get_tokenizer

MISREAD = {"0": "6", "1": "7", "2": "3", "3": "8", "4": "9", "5": "6", "6": "8", "7": "1", "8": "3", "9": "4"}
"""What OCR reads for a digit."""
SHORT_BLOCK, SHORT_LINE, SHORT_QUOTE = 60, 20, 30
MARGIN = 8
"""Word pieces of room where a text is to lie past the encoder's limit."""


@dataclass(frozen=True)
class Planned:
    """An edit that is to be made.

    Attributes:
        kind: of the matrix.
        doc_id: document; None for a query.
        span: code points in the text of its layer.
        touched: units whose evidence it acts on.
        edits: what `chain` does; the form depends on the layer.
        documents: documents whose rows change.
        query_id: query whose order is spoiled.
        decoy: the same edit beside the evidence.
        reworded: the unit as it reads after the edit.
        note: what is done, without text.
    """

    kind: str
    doc_id: str | None
    span: Span | None
    touched: tuple[tuple[str, str], ...]
    edits: tuple[Any, ...]
    documents: tuple[str, ...] = ()
    query_id: str | None = None
    decoy: Planned | None = None
    reworded: tuple[Unit, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class TextEdit:
    """Characters [start, end) become `text`; `moved`: it is written behind the whole text, as a block of its own."""

    start: int
    end: int
    text: str = ""
    moved: bool = False


@dataclass(frozen=True)
class Redaction:
    """A span that is masked."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class Cut:
    """A place through which no chunk may reach."""

    at: int


@dataclass(frozen=True)
class Join:
    """Chunks that become one."""

    chunk_ids: tuple[str, ...]


@dataclass(frozen=True)
class Merge:
    """A document that is removed for another."""

    kept: str
    removed: str


@dataclass(frozen=True)
class Tag:
    """A field of documents.jsonl that gets another value."""

    field: str
    value: Any


@dataclass(frozen=True)
class Spoil:
    """A query whose order is turned around; a decoy behind the first items only."""

    query: str
    tail: bool = False


# Parsing ---------------------------------------------------------------------------------------------------------------


def flip(state: State, unit: Unit, rng: Random) -> Planned | None:
    """A digit of a critical token is misread."""
    page = state.page("parsed", unit.doc_id)
    place = page.once(unit)
    if place is None:
        return None
    digits = [i for low, high in critical_spans(place, page.text) for i in range(low, high) if page.text[i] in MISREAD]
    free = [
        i for low, high in page.words() if page.free(low, high, 0) for i in range(low, high) if page.text[i] in MISREAD
    ]
    if not digits or not free:
        return None
    at = rng.choice(sorted(set(digits)))
    wrong = _digit(page.text, at)
    quote = page.text[place.start : at] + wrong.text + page.text[at + 1 : place.end]
    decoy = _digit(page.text, rng.choice(free))
    return Planned(
        "ocr_digit_flip", unit.doc_id, (at, at + 1), page.critical(at, at + 1), (wrong,),
        decoy=_beside("ocr_digit_flip", unit.doc_id, decoy), reworded=(unit.reading(quote),), note="one digit",
    )  # fmt: skip


def _digit(text: str, at: int) -> TextEdit:
    return TextEdit(at, at + 1, MISREAD[text[at]])


def _beside(kind: str, doc_id: str, edit: TextEdit, note: str = "") -> Planned:
    return Planned(kind, doc_id, (edit.start, edit.end), (), (edit,), note=note)


def drop_page(state: State, unit: Unit, rng: Random) -> Planned | None:
    """All text of the page on which the quote stands is gone."""
    page = state.page("parsed", unit.doc_id)
    place = page.once(unit)
    spans = _pages(state, unit.doc_id, len(page.text))
    if place is None or len(spans) < 3:
        return None
    mine = next((span for span in spans if span[0] <= place.start and place.end <= span[1]), None)
    others = [span for span in spans if span != mine and page.free(*span)]
    if mine is None or not others:
        return None
    beside = nearest_length(others, mine[1] - mine[0])[0]
    decoy = _beside("dropped_page", unit.doc_id, TextEdit(*beside), f"page {spans.index(beside) + 1}")
    return Planned(
        "dropped_page", unit.doc_id, mine, page.touched(*mine), (TextEdit(*mine),), decoy=decoy,
        note=f"page {spans.index(mine) + 1} of {len(spans)}",
    )  # fmt: skip


def _pages(state: State, doc_id: str, length: int) -> list[Span]:
    starts: dict[int, int] = {}
    for block in state.rows("blocks", doc_id):
        if block["page"] is not None:
            starts[block["page"]] = min(block["start"], starts.get(block["page"], length))
    ordered = sorted(starts.values())
    return list(zip(ordered, [*ordered[1:], length], strict=True)) if ordered else []


def drop_table(state: State, unit: Unit, rng: Random) -> Planned | None:
    """The table in which the quote stands is gone."""
    page = state.page("parsed", unit.doc_id)
    place = page.once(unit)
    blocks = [b for b in state.rows("blocks", unit.doc_id) if b["kind"] != "boilerplate"]
    mine = place and _around(place, [b for b in blocks if b["kind"] == "table"])
    if not place or not mine:
        return None
    free = [(b["start"], b["end"]) for b in blocks if b["kind"] != "heading" and page.free(b["start"], b["end"])]
    if not free:
        return None
    decoy = _beside("dropped_table", unit.doc_id, TextEdit(*nearest_length(free, mine[1] - mine[0])[0]), "a block")
    touched = page.touched(*mine)
    return Planned("dropped_table", unit.doc_id, mine, touched, (TextEdit(*mine),), decoy=decoy, note="a table")


def _around(place: Place, blocks: Sequence[dict[str, Any]]) -> Span | None:
    for block in blocks:
        if block["start"] <= place.start and place.end <= block["end"]:
            return block["start"], block["end"]
    return None


def reorder(state: State, unit: Unit, rng: Random) -> Planned | None:
    """The rest of a paragraph, from the middle of the quote on, is read after all else, as a column of a page may be.

    Not in html documents: their order is the file's own, and their cleaner removes what stands behind the page's foot.
    """
    if any(row["media"] == "html" for row in state.rows("documents", unit.doc_id)):
        return None
    page = state.page("parsed", unit.doc_id)
    place = page.once(unit)
    kinds = {"paragraph", "list_item", "other"}
    blocks = [
        b for b in state.rows("blocks", unit.doc_id) if b["kind"] in kinds and b["end"] - b["start"] >= SHORT_BLOCK
    ]
    mine = place and _around(place, blocks)
    if not place or not mine or mine[1] >= len(page.text.rstrip()):
        return None
    middle = _middle(page.text, place.start, place.end, critical_spans(place, page.text))
    free = [
        (b["start"], b["end"]) for b in blocks if page.free(b["start"], b["end"]) and b["end"] < len(page.text.rstrip())
    ]
    if middle is None or not free:
        return None
    beside = nearest_length(free, mine[1] - mine[0])[0]
    at = _middle(page.text, *beside, [])
    if at is None:
        return None
    decoy = TextEdit(at, beside[1], page.text[at : beside[1]], moved=True)
    moved = TextEdit(middle, mine[1], page.text[middle : mine[1]], moved=True)
    touched = page.across(middle)
    return Planned(
        "reading_order", unit.doc_id, (middle, mine[1]), touched, (moved,),
        decoy=_beside("reading_order", unit.doc_id, decoy), note="moved behind the text",
    )  # fmt: skip


def _middle(text: str, start: int, end: int, kept: Sequence[Span]) -> int | None:
    """The white space nearest to the middle of [start, end), outside of `kept`, with a quarter of it on both sides."""
    middle, quarter = (start + end) / 2, (end - start) / 4
    spaces = [start + match.end() for match in re.finditer(r"\s+", text[start:end])]
    fit = [at for at in spaces if start + quarter <= at <= end - quarter and not any(a < at < b for a, b in kept)]
    return min(fit, key=lambda at: (abs(at - middle), at), default=None)


# Cleaning --------------------------------------------------------------------------------------------------------------


def over_remove(state: State, unit: Unit, rng: Random) -> Planned | None:
    """The line that holds the quote is taken for boilerplate."""
    page = state.page("cleaned", unit.doc_id)
    place = page.once(unit)
    lines = page.lines()
    if place is None or len(lines) < 3:
        return None
    mine = [span for span in lines if span[0] < place.end and span[1] > place.start]
    span = (mine[0][0], mine[-1][1])
    free = [line for line in lines if line[1] - line[0] >= SHORT_LINE and page.free(*line)]
    if not free:
        return None
    beside = TextEdit(*_with_break(page, nearest_length(free, span[1] - span[0])[0]))
    gone = TextEdit(*_with_break(page, span))
    return Planned(
        "boilerplate_over_removal", unit.doc_id, span, page.touched(*span), (gone,),
        decoy=_beside("boilerplate_over_removal", unit.doc_id, beside, "a line"), note="a line",
    )  # fmt: skip


def _with_break(page: Page, span: Span) -> Span:
    return (span[0], span[1] + 1) if page.text[span[1] : span[1] + 1] == "\n" else span


# Dedup -----------------------------------------------------------------------------------------------------------------


def merge(state: State, unit: Unit, rng: Random) -> Planned | None:
    """The document is removed as a duplicate of another one."""
    kept = state.kept
    if unit.doc_id not in kept:
        return None
    bare = [d for d in kept if not state.evidence.get(d) and state.texts("cleaned").get(d, "").strip()]
    mine = set(state.evidence[unit.doc_id])
    others = [d for d in kept if d != unit.doc_id and state.evidence.get(d) and not mine & set(state.evidence[d])]
    if not bare or len(others) < 2:
        return None
    survivor, second = rng.sample(others, 2)
    lost = rng.choice(bare)
    decoy = Planned(
        "false_merge", lost, None, (), (Merge(second, lost),), documents=(lost, second), note=f"merged into {second}"
    )
    touched = tuple(sorted(mine | set(state.evidence[survivor])))
    return Planned(
        "false_merge", unit.doc_id, None, touched, (Merge(survivor, unit.doc_id),), documents=(unit.doc_id, survivor),
        decoy=decoy, note=f"merged into {survivor}",
    )  # fmt: skip


# PII -------------------------------------------------------------------------------------------------------------------


def over_redact(state: State, unit: Unit, rng: Random) -> Planned | None:
    """A critical token is masked as if it were personal."""
    config = state.subject.configs["pii"]
    page = state.page("cleaned", unit.doc_id)
    place = page.once(unit)
    if place is None or not config.enabled or unit.doc_id not in state.kept:
        return None
    masked = [(row["start"], row["end"]) for row in state.rows("pii_spans", unit.doc_id)]
    tokens = [span for span in critical_spans(place, page.text) if _clear(span, masked)]
    free = [word for word in page.words() if page.free(*word) and _clear(word, masked) and word[1] - word[0] > 1]
    if not tokens or not free:
        return None
    span = rng.choice(tokens)
    kind = config.entities[0]
    beside = nearest_length(free, span[1] - span[0])[0]
    decoy = Planned("over_redaction", unit.doc_id, beside, (), (Redaction(*beside, kind),))
    touched = page.critical(*span)
    return Planned(
        "over_redaction", unit.doc_id, span, touched, (Redaction(*span, kind),), decoy=decoy, note=f"masked as {kind}"
    )


def _clear(span: Span, taken: Sequence[Span]) -> bool:
    return not any(low < span[1] + 1 and high > span[0] - 1 for low, high in taken)


# Chunking and embedding ------------------------------------------------------------------------------------------------


def cut(state: State, unit: Unit, rng: Random) -> Planned | None:
    """A chunk's edge goes through the middle of the quote."""
    page = state.page("masked", unit.doc_id)
    place = page.once(unit)
    if place is None or place.end - place.start < SHORT_QUOTE:
        return None
    chunks = _chunks(state, unit.doc_id)
    at = _middle(page.text, place.start, place.end, critical_spans(place, page.text))
    beside = [
        b
        for _, b in page.words()
        if page.free(b - 1, b + 1, 2) and any(c["start"] + 20 < b < c["end"] - 20 for c in chunks)
    ]
    if at is None or not beside or not any(c["start"] < at < c["end"] for c in chunks):
        return None
    # "Beside": the edge nearest to the fault's own that goes through no quote, and not through the same spot.
    where = min((b for b in beside if abs(b - at) > SHORT_QUOTE), key=lambda b: (abs(b - at), b), default=None)
    if where is None:
        return None
    decoy = Planned("cut_quote", unit.doc_id, (where, where), (), (Cut(where),))
    touched = page.across(at)
    return Planned("cut_quote", unit.doc_id, (at, at), touched, (Cut(at),), decoy=decoy, note="an edge")


def _chunks(state: State, doc_id: str) -> list[dict[str, Any]]:
    rows = [row for row in state.rows("chunks", doc_id) if row["start"] is not None and row["status"] == "ok"]
    return sorted(rows, key=lambda row: (row["start"], row["end"]))


def over_long(state: State, unit: Unit, rng: Random) -> Planned | None:
    """Chunks are joined until the quote lies past what the encoder sees."""
    page = state.page("masked", unit.doc_id)
    place = page.once(unit)
    chunks, limit = _chunks(state, unit.doc_id), encoder_limit(state)
    if place is None or limit is None or not chunks:
        return None
    last = max((n for n, c in enumerate(chunks) if c["start"] < place.end and c["end"] > place.start), default=None)
    if last is None:
        return None
    for first in range(last - 1, -1, -1):
        seen = _visible_end(page.text, chunks[first]["start"], limit + MARGIN)
        if seen is not None and seen <= place.start:
            break
    else:
        return None
    span = (_visible_end(page.text, chunks[first]["start"], limit - MARGIN) or place.start, chunks[last]["end"])
    joined = chunks[first : last + 1]
    decoy = _long_decoy(page, chunks, first, last, limit)
    if decoy is None:
        return None
    touched = page.touched(*span)
    ids = tuple(chunk["chunk_id"] for chunk in joined)
    return Planned("over_long_chunk", unit.doc_id, span, touched, (Join(ids),), decoy=decoy, note=f"{len(ids)} chunks")


def _long_decoy(page: Page, chunks: list[dict[str, Any]], first: int, last: int, limit: int) -> Planned | None:
    """Chunks that are joined where nothing of the evidence lies past what the encoder sees."""
    count = last - first + 1
    for low in [*range(last + 1, len(chunks) - 1), *range(first - 1)]:
        for high in range(low + 1, min(low + count + 1, len(chunks))):
            if low <= first <= high or low <= last <= high:
                break
            start, end = chunks[low]["start"], chunks[high]["end"]
            seen = _visible_end(page.text, start, limit - MARGIN)
            # A chunk before or after may overlap with these; evidence there must not be cut out of its own chunk.
            if seen is not None and seen < end and page.free(seen, end, 0):
                ids = tuple(chunk["chunk_id"] for chunk in chunks[low : high + 1])
                return Planned(
                    "over_long_chunk", page.doc_id, (start, end), (), (Join(ids),), note=f"{len(ids)} chunks"
                )
    return None


def encoder_limit(state: State) -> int | None:
    """Word pieces that the encoder sees, as far as the embeddings show: the most that it saw of a chunk it did not see whole.

    None where nothing was encoded; the bundled encoder's 254 where every chunk fits.
    """
    table = state.frames.get("embeddings")
    if table is None or table.is_empty():
        return None
    config = state.subject.configs["embedding"]
    if config.imported:
        return None
    short = [seen for seen, all_ in table.select("encoded_tokens", "tokens").iter_rows() if seen < all_]
    return int(max(short)) if short else int(config.max_tokens or 256) - 2


def _visible_end(text: str, start: int, pieces: int) -> int | None:
    """Where `pieces` word pieces of text[start:] end; None where there are fewer."""
    spans = get_tokenizer("bundled").spans(text[start:])
    return start + spans[pieces - 1][1] if len(spans) >= pieces else None


# Filtering -------------------------------------------------------------------------------------------------------------


def mistag(state: State, unit: Unit, rng: Random) -> Planned | None:
    """A field that the query's hard filter asks for gets a value of another document."""
    if unit.doc_id not in state.kept:
        return None
    wanted = [leaf for leaf in _leaves(state, unit.query_id) if leaf[0] not in GOLD_SIDE]
    rng.shuffle(wanted)
    used = _used_fields(state)
    for name, accepted in wanted:
        own = field_of(state, unit.doc_id, name)
        values = sorted(
            {str(v) for d in state.kept if (v := field_of(state, d, name)) is not None and isinstance(v, str)}
        )
        wrong = [value for value in values if value not in accepted and value != own]
        decoy = _harmless_tag(state, unit.doc_id, used, rng)
        if own in accepted and wrong and decoy is not None:
            edit = Tag(name, rng.choice(wrong))
            return Planned(
                "wrong_tag", unit.doc_id, None, state.evidence[unit.doc_id], (edit,), decoy=decoy, note=f"field {name}"
            )
    return None


GOLD_SIDE = frozenset(
    {"doc_id", "path", "media", "tenant", "acl", "published_at", "committed_at", "supersedes", "bytes"}
)
"""Fields that say who may see a document, which one dedup keeps, or what it is: another value is another fault."""


def _leaves(state: State, query_id: str) -> list[tuple[str, tuple[Any, ...]]]:
    """(field, accepted values) that a query's applied hard predicate asks for, each of them needed."""
    for row in _applied(state):
        if row["query_id"] == query_id and row["mode"] == "hard" and row["predicate"]:
            return _flat(json.loads(row["predicate"]))
    return []


def _applied(state: State) -> list[dict[str, Any]]:
    return state.frames["applied_filters"].select("query_id", "mode", "predicate").to_dicts()


def _flat(predicate: dict[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
    found: list[tuple[str, tuple[Any, ...]]] = []
    for name, value in predicate.items():
        if name == "and":
            for part in value:
                found += _flat(part)
        elif name not in {"or", "not"}:
            if not isinstance(value, dict):
                found.append((name, (value,)))
            elif "eq" in value:
                found.append((name, (value["eq"],)))
            elif "in" in value:
                found.append((name, tuple(value["in"])))
    return found


def _used_fields(state: State) -> set[str]:
    """Fields that some predicate names, at any depth."""
    used: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            used.update(str(name).removeprefix("metadata.") for name in value)
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    for row in _applied(state):
        walk(json.loads(row["predicate"]) if row["predicate"] else None)
    return used


def field_of(state: State, doc_id: str, name: str) -> Any:
    """A document's value of a predicate's field."""
    row = state.rows("documents", doc_id)[0]
    if not name.startswith("metadata.") and name in row and name != "metadata":
        return row[name]
    return json.loads(row["metadata"] or "{}").get(name.removeprefix("metadata."))


def _harmless_tag(state: State, doc_id: str, used: set[str], rng: Random) -> Planned | None:
    """The same edit of a field that no predicate names: another title."""
    if "title" in used:
        return None
    titles = sorted({t for d in state.kept if d != doc_id and (t := field_of(state, d, "title"))})
    value = rng.choice(titles) if titles else "another title"
    return Planned("wrong_tag", doc_id, None, (), (Tag("title", value),), note="field title")


# Reranking -------------------------------------------------------------------------------------------------------------


def spoil(state: State, unit: Unit, rng: Random) -> Planned | None:
    """The reranker turns a query's list around."""
    texts = dict(state.frames["prepared_queries"].select("query_id", "text").iter_rows())
    text = texts.get(unit.query_id)
    if text is None:
        return None
    same = {query for query, other in texts.items() if other == text}
    touched = tuple(sorted(u.id for u in state.units if u.query_id in same))
    return Planned(
        "harmful_reranker", None, None, touched, (Spoil(text),), query_id=unit.query_id, note="order turned around"
    )


PLANNERS: dict[str, Callable[[State, Unit, Random], Planned | None]] = {
    "ocr_digit_flip": flip,
    "dropped_page": drop_page,
    "dropped_table": drop_table,
    "reading_order": reorder,
    "boilerplate_over_removal": over_remove,
    "false_merge": merge,
    "over_redaction": over_redact,
    "cut_quote": cut,
    "over_long_chunk": over_long,
    "wrong_tag": mistag,
    "harmful_reranker": spoil,
}
"""Kind -> where and how it is planted. `starved_index` is a setting."""

STARVED: dict[str, Any] = {"kind": "ivf", "nlist": 64, "nprobe": 1}
"""An index that looks into one of many cells."""

__all__ = ["PLANNERS", "STARVED", "Planned", "encoder_limit", "field_of"]
