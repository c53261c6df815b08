"""A lost query's story with its texts: what the parser read, what each stage left of it, where it stood in each list.

Here: excerpts around the evidence, character by character, with personal data hidden by place and by string. Not here: the
sentences (`attribution.story`), pages and colours (`report.html.j2`, the command line).

Text is hidden where it is predicted or labelled as personal, in every layer: `pii_places` carries spans through the offset
maps, and the redactor hides the strings. Under `publish.source_text` parsed and clean texts are shown as they are.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.order import STAGES
from rag_eval_pipeline.attribution.story import UnitStory, tell
from rag_eval_pipeline.corpus.faults import suggestion
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.measures.evidence import visible_indexes
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.redaction import PLACES, pii_places
from rag_eval_pipeline.text.alignment import nearest
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.redact import HIDDEN, Redactor

CONTEXT = 90
"""Characters shown on either side."""
RUN_GAP = 160
"""Farther apart, parts of the evidence are shown in windows of their own."""
MOST_WINDOWS = 6
REACH = 3000
"""How far beside a removed passage the place where it stood is looked for."""
LONGEST_WORD = 24
"""Longer runs without a space are not one word to a reader (scripts without spaces)."""
SHORT_GAP = 3
LONGEST_SEARCH = 200_000
"""Texts longer than this are not searched for the passage most like a quote that was not found."""
LEAST_LIKE = 0.3
AROUND = 200
"""Personal strings are looked for this far beyond a window: its edge may cut one."""

LAYER_OF = {"parsing": "parsed", "unanchored": "parsed", "cleaning": "clean", "dedup": "clean", "pii": "masked"}
LAYERS = ("parsed", "clean", "masked")
TABLE_OF = {"parsed": "parsed", "clean": "cleaned", "masked": "masked"}
NAMES = {
    "parsed": "What the parser read there",
    "clean": "What cleaning left",
    "masked": "What masking left",
    "chunks": "How it was cut into chunks",
    "survivor": "What the document that was kept says instead",
    "nearest": "The passage most like it",
}


@dataclass(frozen=True)
class Part:
    """A stretch of an excerpt.

    `mark`: '' (beside the evidence) | kept (evidence) | other (stands among it and is not part of it) | gone (a note: what
    stood here is missing) | hidden (personal data, its type) | cut (an edge of a chunk) | skip (text left out).
    """

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Excerpt:
    """A passage of one text, around the evidence."""

    layer: str
    title: str
    doc_id: str
    page: int | None
    parts: tuple[Part, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """Without marks."""
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True)
class UnitPage:
    """One piece of evidence with its texts.

    Attributes:
        story: in words.
        quote: the labelled passage; what the losing stage has not is marked `gone`.
        excerpts: in the order of the pipeline.
        places: a row a retriever: rank of the evidence in its exact list, as found, as served, and of its document.
        filter: the predicate, and the document's own values of what it asks; empty where the filter did not lose it.
    """

    story: UnitStory
    quote: tuple[Part, ...]
    excerpts: tuple[Excerpt, ...]
    places: tuple[dict[str, Any], ...]
    filter: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class QueryPage:
    """A query's story."""

    query_id: str
    question: str
    language: str | None
    retriever: str
    k: int
    units: tuple[UnitPage, ...]

    @property
    def lost(self) -> tuple[UnitPage, ...]:
        """Units that were not served."""
        return tuple(
            unit for unit in self.units if any(not e.served and e.stage != "ineligible" for e in unit.story.ends)
        )


class Stories:
    """Tells queries of one evaluation, for one retriever and cut-off."""

    def __init__(self, evaluation: Evaluation, retriever: str, k: int) -> None:
        self._evaluation, self.retriever, self.k = evaluation, retriever, k
        self._raw = bool(evaluation.manifest.config.get("publish", {}).get("source_text"))
        self._texts = Texts(evaluation)

    def of(self, query_id: str) -> QueryPage:
        """The story of one query.

        Raises:
            LookupError: there is no such query, or it has no evidence in the measured split.
        """
        units, ledger, fate = (self._evaluation.frame(f"evidence_{name}") for name in ("units", "ledger", "fate"))
        queries = self._evaluation.frame("prepared_queries")
        asked = _first(queries, "query_id", query_id)
        if asked is None:
            raise LookupError(f"no query {query_id!r} in this evaluation; {suggestion(query_id, queries['query_id'])}")
        if units.filter(pl.col("query_id") == query_id).is_empty():
            raise LookupError(self._unlabelled(query_id))
        told = tell(query_id, units, ledger, fate, self.retriever, self.k)
        redactor = self._evaluation.redactor
        rows = {row["evidence_id"]: row for row in units.filter(pl.col("query_id") == query_id).iter_rows(named=True)}
        return QueryPage(
            query_id,
            redactor.text(asked.get("text") or ""),
            asked.get("language"),
            self.retriever,
            self.k,
            tuple(self._page(story, rows[story.evidence_id]) for story in told),
        )

    def _unlabelled(self, query_id: str) -> str:
        key = Key.parse(self._evaluation.manifest.key)
        where = {
            "corpus_version": key.subject, "pipeline": key.pipeline, "retriever": self.retriever, "query_id": query_id,
        }  # fmt: skip
        told = " AND ".join("{} = '{}'".format(name, value.replace("'", "''")) for name, value in where.items())
        asked = f"SELECT rank, doc_id, score FROM current_ranked_runs WHERE {told} AND rank <= {self.k} ORDER BY rank"  # noqa: S608 - shown
        return (
            f"query {query_id!r} has no labelled evidence in the measured split, so none can be lost. "
            f'What it was served: rag-eval sql "{asked}"'
        )

    def _page(self, story: UnitStory, unit: Mapping[str, Any]) -> UnitPage:
        end = story.ends[0] if story.ends else None
        lost = end.stage if end and not end.served else ""
        anchors = self._anchors.get((story.query_id, story.evidence_id), [])
        carrier = _carrier(anchors, lost)
        excerpts = tuple(self._excerpts(story, unit, carrier, lost)) if story.kind == "quote" else ()
        return UnitPage(
            story,
            tuple(_quote(unit, carrier.get(LAYER_OF.get(lost, "")))),
            excerpts,
            tuple(self._places(story, carrier)),
            tuple(self._filter(story)) if lost == "filtering" else (),
        )

    @cached_property
    def _anchors(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._evaluation.frame("evidence_anchors").sort("carrier", "layer").iter_rows(named=True):
            found.setdefault((row["query_id"], row["evidence_id"]), []).append(row)
        return found

    # Texts -------------------------------------------------------------------------------------------------------------

    def _excerpts(
        self, story: UnitStory, unit: Mapping[str, Any], carrier: Mapping[str, dict[str, Any]], lost: str
    ) -> Iterator[Excerpt]:
        """Of each text up to the stage that lost it, those in which something changed."""
        parsed = carrier.get("parsed")
        if parsed is None or not parsed["present"]:
            return
        doc_id = parsed["doc_id"]
        if not _there(parsed):
            yield from self._nearest(unit, doc_id, "parsed", "nearest")
            return
        letters = _letters(unit)
        shown: str | None = None
        last = LAYERS.index(LAYER_OF.get(lost, "masked"))
        for layer in LAYERS[: last + 1]:
            anchor = carrier.get(layer)
            if anchor is None or self._texts.row(layer, doc_id) is None:
                break
            excerpt = self._excerpt(layer, layer, doc_id, *self._passage(carrier, layer, letters))
            lost_here = LAYER_OF.get(lost) == layer and lost != "dedup"
            if layer == "parsed" or lost_here or not _same(excerpt, shown):
                yield excerpt
            shown = excerpt.text
        if lost == "dedup" and parsed["survivor"] != doc_id:
            yield from self._nearest(unit, parsed["survivor"], "clean", "survivor")
        if last == LAYERS.index("masked") and (cuts := self._cuts(doc_id)):
            excerpt = self._excerpt("masked", "chunks", doc_id, *self._passage(carrier, "masked", letters, cuts))
            if any(part.mark == "cut" for part in excerpt.parts):
                yield excerpt

    def _passage(
        self, carrier: Mapping[str, dict[str, Any]], layer: str, letters: str, cuts: Sequence[int] = ()
    ) -> tuple[list[Part], int]:
        """Of one text, and where it stands there."""
        anchor, doc_id = carrier[layer], carrier[layer]["doc_id"]
        text, hidden, redactor = (
            self._texts.text(layer, doc_id),
            self._hidden(layer, doc_id),
            self._redactor(layer, doc_id),
        )
        places = [p for p in anchor["positions"] if p >= 0]
        if places:
            return passage(text, anchor["positions"], hidden, cuts, redactor, letters), min(places)
        before = [p for p in carrier[LAYERS[LAYERS.index(layer) - 1]]["positions"] if p >= 0]
        if not before:
            return removed(text, 0, Part("nothing of it is here", "gone"), hidden, redactor), 0
        if layer == "masked" and (
            range_ := self._texts.offsets(layer, doc_id).forward_range(min(before), max(before) + 1)
        ):
            return passage(text, list(range(*range_)), hidden, cuts, redactor), range_[0]
        at = self._texts.cut_at(layer, doc_id, before)
        return removed(text, at, Part(f"{len(before)} characters were removed here", "gone"), hidden, redactor), at

    def _excerpt(self, layer: str, name: str, doc_id: str, parts: list[Part], at: int, note: str = "") -> Excerpt:
        return Excerpt(layer, NAMES[name], doc_id, self._texts.page(doc_id, layer, at), tuple(parts), note)

    def _nearest(self, unit: Mapping[str, Any], doc_id: str, layer: str, name: str) -> Iterator[Excerpt]:
        """The place of a document that is most like the quote: shown where the quote itself is not there."""
        text = self._texts.text(layer, doc_id)
        if not text.strip() or len(text) > LONGEST_SEARCH or _masked(unit):
            return
        place = nearest(unit["quote"], text)
        if place.similarity < LEAST_LIKE:
            return
        hidden, redactor = self._hidden(layer, doc_id), self._redactor(layer, doc_id)
        parts = passage(text, place.positions.tolist(), hidden, (), redactor, _letters(unit))
        yield self._excerpt(layer, name, doc_id, parts, place.start, f"similarity {place.similarity:.3f}")

    def _hidden(self, layer: str, doc_id: str) -> list[tuple[int, int, str]]:
        if layer == "masked":
            return sorted({*self._texts.masks(doc_id), *self._places_of.get((doc_id, layer), [])})
        return [] if self._raw else self._places_of.get((doc_id, layer), [])

    @cached_property
    def _places_of(self) -> dict[tuple[str, str], list[tuple[int, int, str]]]:
        found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
        for row in self._known_places().sort("doc_id", "layer", "start", "end", "type").iter_rows(named=True):
            found.setdefault((row["doc_id"], row["layer"]), []).append((row["start"], row["end"], row["type"]))
        return found

    def _known_places(self) -> pl.DataFrame:
        """`pii_places`; of an evaluation made before there was such a table, the predicted ones."""
        if PLACES in self._evaluation.manifest.tables:
            return self._evaluation.frame(PLACES)
        frames = {name: self._evaluation.frame(name) for name in ("parsed", "cleaned", "masked", "pii_spans")}
        spans = pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "type": pl.String}))
        nothing = pl.DataFrame(schema={"doc_id": pl.String, "spans": spans, "text": pl.String})
        return pii_places(frames, nothing, nothing)

    def _redactor(self, layer: str, doc_id: str) -> Redactor:
        """Of the strings that stand in the document; none where its text is shown as it is."""
        return Redactor([]) if self._raw else self._texts.redactor(layer, doc_id)

    def _cuts(self, doc_id: str) -> list[int]:
        """Edges of the document's chunks in the masked text, but its beginning."""
        chunks = self._evaluation.frame("chunks").filter((pl.col("doc_id") == doc_id) & pl.col("start").is_not_null())
        return sorted({edge for edge in (*chunks["start"], *chunks["end"]) if edge})

    # Lists -------------------------------------------------------------------------------------------------------------

    def _places(self, story: UnitStory, carrier: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        doc_ids = {anchor["doc_id"] for anchor in carrier.values()} | {story.doc_id}
        runs = self._evaluation.frame("ranked_runs")
        mine = runs.filter((pl.col("query_id") == story.query_id) & pl.col("doc_id").is_in(sorted(doc_ids)))
        best = dict(mine.group_by("retriever").agg(pl.col("rank").min()).iter_rows())
        for place in story.places:
            yield place | {"document": best.get(place["retriever"])}

    def _filter(self, story: UnitStory) -> Iterator[tuple[str, str]]:
        row = _first(self._evaluation.frame("applied_filters"), "query_id", story.query_id)
        document = _first(self._evaluation.frame("documents"), "doc_id", story.doc_id)
        if row is None or not row["predicate"]:
            return
        redactor = self._evaluation.redactor
        predicate = json.loads(row["predicate"])
        yield "the filter asked", redactor.text(said(predicate))
        for name in sorted(_fields(predicate)):
            if document is not None and name in SHOWN:
                value = document[name]
                yield f"the document's {name}", "none" if value is None else redactor.text(str(value))


SHOWN = ("language", "locale", "doc_class", "tenant", "published_at", "supersedes", "media")
"""Declared columns of a document that may be shown; others may quote its source."""


class Texts:
    """Texts, maps and pages of an evaluation's documents, read once."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._rows: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._redactors: dict[tuple[str, str], Redactor] = {}

    def row(self, layer: str, doc_id: str) -> dict[str, Any] | None:
        """The document's row of a text table; None where it has none (dropped before)."""
        key = (layer, doc_id)
        if key not in self._rows:
            self._rows[key] = _first(self._evaluation.frame(TABLE_OF[layer]), "doc_id", doc_id)
        return self._rows[key]

    def text(self, layer: str, doc_id: str) -> str:
        """The document's text in a layer, empty where there is none."""
        row = self.row(layer, doc_id)
        return str(row["text"] or "") if row else ""

    def offsets(self, layer: str, doc_id: str) -> OffsetMap:
        """From a text to the text of the layer before."""
        row = self.row(layer, doc_id)
        return OffsetMap(row["offsets"] or []) if row else OffsetMap([])

    def masks(self, doc_id: str) -> list[tuple[int, int, str]]:
        """Where the masked text has a mask, and what it says."""
        text = self.text("masked", doc_id)
        found = [s for s in self.offsets("masked", doc_id).segments if not s.exact and text[s.out_start] == "<"]
        return [(s.out_start, s.out_end, text[s.out_start : s.out_end].strip("<>")) for s in found]

    def redactor(self, layer: str, doc_id: str) -> Redactor:
        """Of the personal strings that stand in one text."""
        key = (layer, doc_id)
        if key not in self._redactors:
            self._redactors[key] = self._evaluation.redactor.within([self.text(layer, doc_id)])
        return self._redactors[key]

    def cut_at(self, layer: str, doc_id: str, before: Sequence[int]) -> int:
        """Where, in a text, a passage of the text before stood that is gone: behind what is left of its surroundings."""
        places = [p for p in before if p >= 0]
        low, high = min(places), max(places) + 1
        offsets = self.offsets(layer, doc_id)
        left = offsets.forward(np.arange(max(0, low - REACH), low))
        if (found := left[left >= 0]).size:
            return int(found[-1]) + 1
        right = offsets.forward(np.arange(high, high + REACH))
        return int(found[0]) if (found := right[right >= 0]).size else 0

    def page(self, doc_id: str, layer: str, at: int) -> int | None:
        """The page of the source file at a place of a text, where the parser knew pages."""
        place = self._parsed_place(doc_id, layer, at)
        if place is None:
            return None
        blocks = self._evaluation.frame("blocks")
        here = blocks.filter((pl.col("doc_id") == doc_id) & (pl.col("start") <= place) & (pl.col("end") > place))
        pages = here["page"].drop_nulls()
        return int(pages[0]) if pages.len() else None

    def _parsed_place(self, doc_id: str, layer: str, place: int) -> int | None:
        for name in reversed(LAYERS[1 : LAYERS.index(layer) + 1]):
            sources = self.offsets(name, doc_id).source(place, place + 1)
            if not sources:
                return None
            place = sources[0][0]
        return place


def _first(frame: pl.DataFrame, column: str, value: str) -> dict[str, Any] | None:
    found = frame.filter(pl.col(column) == value)
    return found.row(0, named=True) if found.height else None


def _there(anchor: Mapping[str, Any]) -> int:
    return sum(1 for position in anchor["positions"] if position >= 0)


def _carrier(anchors: Sequence[dict[str, Any]], lost: str) -> dict[str, dict[str, Any]]:
    """The carrier that tells most, by layer: one that lived longest; a kept one where dedup did not lose it."""
    by_number: dict[int, dict[str, dict[str, Any]]] = {}
    for anchor in anchors:
        by_number.setdefault(anchor["carrier"], {})[anchor["layer"]] = anchor

    def value(layers: Mapping[str, dict[str, Any]]) -> tuple[Any, ...]:
        first = layers["parsed"]
        alive = sum(layers[name]["held"] for name in LAYERS if name in layers)
        kept = first["kept"] if lost != "dedup" else not first["kept"]
        return (first["present"], kept, alive, _there(first), first["own"], -first["carrier"])

    known = [layers for layers in by_number.values() if "parsed" in layers]
    return max(known, key=value) if known else {}


def _masked(unit: Mapping[str, Any]) -> bool:
    """Whether some of the quote is masked: its characters then are not those of the text."""
    return len(visible_indexes(unit["quote"])) != unit["n_chars"]


def _letters(unit: Mapping[str, Any]) -> str:
    """The quote's non-space characters, where none is masked."""
    return "" if _masked(unit) else "".join(unit["quote"].split())


def _quote(unit: Mapping[str, Any], anchor: Mapping[str, Any] | None) -> Iterator[Part]:
    """The labelled passage; characters that the losing text has not are `gone`."""
    quote = unit["quote"]
    if anchor is None or _masked(unit) or not quote:
        yield Part(quote, "kept")
        return
    gone = {place for place, position in zip(visible_indexes(quote), anchor["positions"], strict=True) if position < 0}
    for word in re.finditer(r"\S+", quote):
        places = set(range(*word.span()))
        lost = places & gone
        number = any(quote[i].isdigit() for i in places)
        if len(places) <= LONGEST_WORD and lost and (number or any(quote[i].isalnum() for i in lost)):
            gone |= places
    marks = [
        "gone" if i in gone or (quote[i].isspace() and {i - 1, i + 1} <= gone) else "kept" for i in range(len(quote))
    ]
    for mark, group in itertools.groupby(range(len(quote)), key=lambda i: marks[i]):
        yield Part("".join(quote[i] for i in group), mark)


def _same(excerpt: Excerpt, shown: str | None) -> bool:
    return shown is not None and re.sub(r"\s+", " ", excerpt.text).strip() == re.sub(r"\s+", " ", shown).strip()


def _fields(predicate: Any) -> set[str]:
    """Names that a predicate asks about."""
    if isinstance(predicate, list):
        return set().union(*(_fields(part) for part in predicate))
    if not isinstance(predicate, dict):
        return set()
    names: set[str] = set()
    for name, value in predicate.items():
        names |= _fields(value) if name in {"and", "or", "not"} else {name}
    return names


def said(predicate: Any) -> str:
    """A predicate in words: `language is es and locale is one of es, es-ES`."""
    if not isinstance(predicate, dict) or not predicate:
        return json.dumps(predicate, ensure_ascii=False)
    parts = []
    for name, value in predicate.items():
        if name in {"and", "or"}:
            inner = [said(part) for part in value]
            parts.append(f" {name} ".join(f"({p})" if " or " in p or " and " in p else p for p in inner))
        elif name == "not":
            parts.append(f"not ({said(value)})")
        else:
            parts.append(f"{name} {_asked(value)}")
    return " and ".join(parts)


OPERATOR_WORDS = {"eq": "is", "gte": "at least", "gt": "more than", "lte": "at most", "lt": "less than"}


def _asked(value: Any) -> str:
    if not isinstance(value, dict):
        return f"is {value}"
    found = []
    for operator, operand in value.items():
        if operator == "in":
            found.append("is one of " + ", ".join(str(item) for item in operand))
        elif operator == "exists":
            found.append("is given" if operand else "is not given")
        elif operator == "range":
            found.append(_asked(operand))
        else:
            found.append(f"{OPERATOR_WORDS.get(operator, operator)} {operand}")
    return " and ".join(found)


def story_json(page: QueryPage, evaluation: Evaluation) -> str:
    """A story as one JSON object, personal strings hidden."""
    told = asdict(page)
    for unit in told["units"]:
        passages, unit["excerpts"] = unit["excerpts"], None
        unit |= _hidden_strings(json.loads(json.dumps(unit)), evaluation.redactor) | {"excerpts": passages}
    return json.dumps(told, ensure_ascii=False, indent=1)


def _hidden_strings(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {name: _hidden_strings(inner, redactor) for name, inner in value.items()}
    return [_hidden_strings(inner, redactor) for inner in value] if isinstance(value, list) else value


# Passages --------------------------------------------------------------------------------------------------------------


def passage(
    text: str,
    positions: Sequence[int],
    hidden: Iterable[tuple[int, int, str]] = (),
    cuts: Sequence[int] = (),
    redactor: Redactor | None = None,
    letters: str = "",
) -> list[Part]:
    """The evidence in a text, with what stands beside it. A word of which some is missing or another is marked as a whole.

    Args:
        text: the whole text.
        positions: offset of each non-space character of the evidence, -1 where it is gone.
        hidden: ranges (start, end, type) that are not shown.
        cuts: offsets at which a chunk begins or ends; those within the evidence are marked.
        redactor: hides personal strings.
        letters: the evidence's non-space characters, where they are known: lost punctuation is then told from lost letters.
    """
    hidden = sorted(hidden)
    windows = _windows(text, sorted({p for p in positions if p >= 0}))
    kept = {p for p in positions if p >= 0}
    gone = _gone(positions, text, letters)
    parts: list[Part] = []
    for number, (low, high, first, last) in enumerate(windows[:MOST_WINDOWS]):
        if number or low > 0:
            parts.append(Part(" … " if number else "… ", "skip"))
        marks = ["kept" if _is_kept(i, text, kept) else "other" if first <= i <= last else "" for i in range(low, high)]
        inside = [cut for cut in cuts if first < cut <= last]
        ranges = _all_hidden(text, low, high, hidden, redactor)
        notes = {at: n for at, n in gone.items() if not any(start - 2 <= at <= end for start, end, _ in ranges)}
        _mark_words(text, low, marks, notes)
        said = {at: Part(_missing(count), "gone") for at, count in notes.items()}
        parts += _parts(text, low, marks, ranges, said, inside)
    if windows and windows[min(len(windows), MOST_WINDOWS) - 1][1] < len(text):
        parts.append(Part(" …", "skip"))
    return _safe(parts, redactor)


def removed(
    text: str, at: int, note: Part, hidden: Iterable[tuple[int, int, str]] = (), redactor: Redactor | None = None
) -> list[Part]:
    """The place where evidence stood that is gone, with a note there."""
    low, high = _word(text, max(0, at - CONTEXT), -1), _word(text, min(len(text), at + CONTEXT), 1)
    ranges = _all_hidden(text, low, high, hidden, redactor)
    blank = [""] * (high - low)
    parts = _parts(text, low, blank, ranges, {at: note}, ())
    if not any(part.mark == "gone" for part in parts):
        parts.append(note)
    before = [Part("… ", "skip")] if low > 0 else []
    return _safe([*before, *parts, *([Part(" …", "skip")] if high < len(text) else [])], redactor)


def _windows(text: str, places: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """(start, end, first, last) of passages: runs of places that are near each other, with their surroundings."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place - runs[-1][1] <= RUN_GAP:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    found: list[tuple[int, int, int, int]] = []
    for first, last in runs:
        low = _word(text, max(0, first - CONTEXT), -1)
        high = _word(text, min(len(text), last + 1 + CONTEXT), 1)
        found.append((max(low, found[-1][1]) if found else low, high, first, last))
    return found


def _word(text: str, at: int, step: int) -> int:
    """The edge of the word at a place, at most 30 characters away."""
    for _ in range(30):
        if at <= 0 or at >= len(text) or text[at - 1].isspace() or text[at].isspace():
            break
        at += step
    return at


def _is_kept(index: int, text: str, kept: set[int]) -> bool:
    """A character of the evidence; or a space or accent between two of them."""
    if index in kept:
        return True
    if not (text[index].isspace() or unicodedata.category(text[index])[0] == "M"):
        return False
    left, right = index - 1, index + 1
    while left >= 0 and left not in kept and (text[left].isspace() or unicodedata.category(text[left])[0] == "M"):
        left -= 1
    while right < len(text) and right not in kept and text[right].isspace():
        right += 1
    return left in kept and (right in kept or not text[index].isspace())


def _gone(positions: Sequence[int], text: str, letters: str) -> dict[int, int]:
    """How many characters are missing, by place: where nothing else stands instead."""
    found: dict[int, int] = {}
    index = 0
    while index < len(positions):
        end = index
        while end < len(positions) and positions[end] < 0:
            end += 1
        if end > index and not _is_trivial(letters, index, end):
            before = positions[index - 1] if index else None
            after = positions[end] if end < len(positions) else None
            ordered = before is not None and after is not None and before < after
            if not ordered or not text[(before or 0) + 1 : after].strip():
                at = before + 1 if before is not None else after
                if at is not None:
                    found[at] = end - index
        index = max(end, index + 1)
    return found


def _is_trivial(letters: str, start: int, end: int) -> bool:
    """Only punctuation is missing, and none of a number."""
    if not letters or any(letter.isalnum() for letter in letters[start:end]):
        return False
    beside = letters[max(0, start - 1) : start], letters[end : end + 1]
    return not all(letter.isdigit() for letter in beside)


def _missing(count: int) -> str:
    return f"{count} character{'s' if count > 1 else ''} missing"


def _mark_words(text: str, low: int, marks: list[str], notes: dict[int, int]) -> None:
    """Mark a word as `other` where only some of it is the evidence's: people read words, not characters."""
    window = text[low : low + len(marks)]
    for word in re.finditer(r"\S+", window):
        start, end = word.span()
        if end - start > LONGEST_WORD:
            continue
        inside = [at for at in notes if low + start < at <= low + end and notes[at] <= SHORT_GAP]
        kinds = set(marks[start:end])
        letters = {marks[i] for i in range(start, end) if window[i].isalnum()}
        mixed = {"kept", "other"} <= kinds and (letters != {"kept"} or any(c.isdigit() for c in word[0]))
        if mixed or (inside and "kept" in kinds):
            marks[start:end] = ["other"] * (end - start)
            for at in inside:
                del notes[at]
    for space in re.finditer(r"\s+", window):
        start, end = space.span()
        beside = {marks[start - 1] if start else "", marks[end] if end < len(marks) else ""}
        if "other" in beside | set(marks[start:end]) and beside != {"other"}:
            marks[start:end] = [""] * (end - start)


def _all_hidden(
    text: str, low: int, high: int, hidden: Iterable[tuple[int, int, str]], redactor: Redactor | None
) -> list[tuple[int, int, str]]:
    """Ranges that meet a window, merged: by place and by string."""
    found = [(start, end, f"<{kind}>") for start, end, kind in hidden if start < high and end > low]
    if redactor is not None:
        wide = max(0, low - AROUND)
        for start, end in redactor.places(text[wide : high + AROUND]):
            if start + wide < high and end + wide > low:
                found.append((start + wide, end + wide, HIDDEN))
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found, key=lambda r: (r[0], -r[1])):
        if merged and start < merged[-1][1]:
            last = merged[-1]
            merged[-1] = (last[0], max(last[1], end), last[2] if last[2] != HIDDEN else kind)
        else:
            merged.append((start, end, kind))
    return merged


def _parts(
    text: str,
    low: int,
    marks: Sequence[str],
    hidden: Sequence[tuple[int, int, str]],
    gone: Mapping[int, Part],
    cuts: Sequence[int],
) -> list[Part]:
    parts: list[Part] = []
    starts = [start for start, _, _ in hidden]
    index, high, told = low, low + len(marks), set()
    if high in gone and high == low:
        return [gone[high]]
    while index < high:
        if index in gone and index not in told:
            parts.append(gone[index])
            told.add(index)
        if index in cuts and index not in told:
            parts.append(Part("", "cut"))
        number = bisect.bisect_right(starts, index) - 1
        if number >= 0 and index < hidden[number][1]:
            parts.append(Part(hidden[number][2], "hidden"))
            index = hidden[number][1]
            continue
        mark = marks[index - low]
        if text[index] == "\n" and parts and parts[-1].text.endswith("\n"):
            index += 1
            continue
        if parts and parts[-1].mark == mark:
            parts[-1] = Part(parts[-1].text + text[index], mark)
        else:
            parts.append(Part(text[index], mark))
        index += 1
    if high in gone and high not in told:
        parts.append(gone[high])
    return parts


def _safe(parts: list[Part], redactor: Redactor | None) -> list[Part]:
    """The parts; without marks where, put together, they still spell a personal string."""
    whole = "".join(part.text for part in parts if part.mark not in {"gone", "skip"})
    if redactor is None or not redactor.places(whole):
        return parts
    return [Part(redactor.text(whole))]


def lost_queries(evaluation: Evaluation, retriever: str, k: int) -> pl.DataFrame:
    """Lost units in the order of the waterfall: query_id, evidence_id, doc_id, first_loss_stage, cause, rank."""
    fate = evaluation.frame("evidence_fate").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & pl.col("eligible") & ~pl.col("served")
    )
    units = evaluation.frame("evidence_units").select("query_id", "evidence_id", "doc_id")
    order = {stage: number for number, stage in enumerate(STAGES)}
    return (
        fate.join(units, on=["query_id", "evidence_id"])
        .with_columns(pl.col("first_loss_stage").replace_strict(order, default=len(order)).alias("_order"))
        .sort("_order", "query_id", "evidence_id")
        .select("query_id", "evidence_id", "doc_id", "first_loss_stage", "cause", "rank")
    )
