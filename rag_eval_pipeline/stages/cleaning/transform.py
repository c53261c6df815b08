"""Boilerplate and Unicode: which ranges of the parsed text are kept, and in which form. Language and duplicates are others' work.

The clean text derives from the parsed text, never from a second reading of the file: an extractor only says which lines to
keep, so every clean character has an exact place in the parsed text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.stages.candidates import Candidates
from rag_eval_pipeline.stages.cleaning.candidate import EXTRACTORS, CleanerCandidate, check, known_cleaner
from rag_eval_pipeline.stages.cleaning.tables import Cleaned
from rag_eval_pipeline.text.derivation import common_subsequence, derive, fold, matched_tokens, tokens_of
from rag_eval_pipeline.text.normalise import normalise_with_map
from rag_eval_pipeline.text.offsets import OffsetMap, Segment
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.fingerprint import library_versions
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

KEEP_SHARE = 0.5
"""A line is main text if at least this share of its characters is in what the extractor returned."""

Span = tuple[int, int]
Rows = dict[str, list[dict[str, Any]]]


class Cleaner(Protocol):
    """A user's own cleaner, made without arguments, once a worker."""

    def clean(self, text: str, html: str | None) -> str:
        """The clean text of a parsed text; `html` is the page of html documents."""
        ...


class CleaningConfig(BaseModel):
    """Section `cleaning` of corpus.yaml.

    Attributes:
        html: how boilerplate of html documents is found: trafilatura, justext, resiliparse, the parser's block hints, not
            at all, or an import path of a `Cleaner` (which gets every document).
        candidates: cleaners to compare with this one on the same documents; they decide nothing that follows.
        favor: what trafilatura leans to where it is in doubt.
        unicode: normalisation form of the clean text.
        invisible: zero-width and control characters, soft hyphens, byte order marks.
        imported: take outputs/cleaned.jsonl instead (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    html: str = "trafilatura"
    candidates: Candidates[CleanerCandidate] = Field((), exclude=True)
    favor: Literal["balanced", "recall", "precision"] = "balanced"
    unicode: Literal["none", "nfc", "nfkc"] = "nfc"
    invisible: Literal["strip", "keep"] = "strip"
    imported: Switch = Field(False, alias="import")

    @field_validator("html", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        return "none" if value is None else known_cleaner(str(value))


CONFIG = CleaningConfig


def identity(config: CleaningConfig) -> dict[str, Any]:
    """Versions of an extractor that is not always installed.

    Raises:
        ValueError: it is not.
    """
    if config.imported or config.html not in {"justext", "resiliparse"}:
        return {}
    check(config.html)
    return library_versions([config.html])


def run(frames: Mapping[str, pl.DataFrame], config: CleaningConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Clean every parsed document, or take the user's own clean texts.

    Raises:
        ValueError: an import without outputs/cleaned.jsonl, or with documents that were not parsed.
    """
    parsed = frames["parsed"]
    if "html" not in parsed.columns:
        parsed = parsed.with_columns(pl.lit(None, pl.String).alias("html"))
    items = parsed.select("doc_id", "text", "html").join(_hints(frames["blocks"]), on="doc_id", how="left")
    items = items.with_columns(pl.lit(None, pl.String).alias("clean"))
    if config.imported:
        items = _with_import(items, frames)
    elif config.html in {"none", "blocks"}:
        items = items.with_columns(pl.lit(None, pl.String).alias("html"))
    if config.html != "blocks" or config.imported:
        items = items.with_columns(pl.lit(None, items.schema["boilerplate"]).alias("boilerplate"))
    reads = ["text", "html", "boilerplate", "clean"]
    made = runtime.map("cleaning", one, items, config, reads=reads, writes=[Cleaned], failed=failed)
    return {"cleaned": conform(Cleaned, made["cleaned"])}


def _hints(blocks: pl.DataFrame) -> pl.DataFrame:
    """Blocks that the parser took for boilerplate, as one list a document."""
    return (
        blocks.filter(pl.col("kind") == "boilerplate")
        .sort("doc_id", "start")
        .group_by("doc_id", maintain_order=True)
        .agg(pl.struct("start", "end").alias("boilerplate"))
    )


def _with_import(items: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    output = frames.get("output:cleaned")
    if output is None:
        raise ValueError(
            "pipeline.cleaning.import is set but outputs/cleaned.jsonl is absent; add it or remove `import`"
        )
    if unknown := sorted(set(output["doc_id"]) - set(items["doc_id"])):
        raise ValueError(
            f"outputs/cleaned.jsonl: {len(unknown)} documents are not in this version, first {unknown[:3]}"
        )
    clean = output.select("doc_id", pl.col("text").alias("clean"))
    return items.drop("clean").join(clean, on="doc_id", how="left").with_columns(pl.lit(None, pl.String).alias("html"))


def prepare(config: CleaningConfig) -> None:
    """Load the cleaner once a worker, so that a wrong import path is an error of the config and not of each document."""
    if config.imported:
        return
    if is_import_path(config.html):
        _user_cleaner(config.html)
    elif config.html in EXTRACTORS:
        _EXTRACT[config.html](_WARM, config.favor)  # imports take seconds that no document's time limit should pay


def one(item: dict[str, Any], config: CleaningConfig) -> Rows:
    """Clean one document."""
    text, error = item["text"], None
    if not text:
        return _row("", OffsetMap([]), text, "none", "empty", None)
    if config.imported:
        clean = item["clean"]
        if clean is None:
            return _row("", OffsetMap([]), text, "import", "empty", "no row in outputs/cleaned.jsonl")
        return _row(clean, derive(clean, text), text, "import", "ok" if clean.strip() else "empty", None)
    if is_import_path(config.html):
        clean = _user_cleaner(config.html).clean(text, item["html"])
        offsets = derive(clean, text)
        cleaner = config.html
    else:
        ranges, cleaner, error = _main_ranges(item, config)
        offsets = OffsetMap.keep(ranges)
        clean = "".join(text[start:end] for start, end in ranges)
    if config.invisible == "strip":
        clean, offsets = _applied(strip_invisible, clean, offsets)
    if config.unicode == "nfc":
        clean, offsets = _applied(lambda given: normalise_with_map(given, "nfc"), clean, offsets)
    elif config.unicode == "nfkc":
        clean, offsets = _applied(nfkc_with_map, clean, offsets)
    return _row(clean, offsets, text, cleaner, "ok" if clean.strip() else "empty", error)


def failed(item: dict[str, Any], status: str, error: str) -> Rows:
    """No clean text, with the reason."""
    return _row("", OffsetMap([]), item["text"], "none", status, error)


def _applied(change: Callable[[str], tuple[str, OffsetMap]], clean: str, offsets: OffsetMap) -> tuple[str, OffsetMap]:
    changed, latest = change(clean)
    return (clean, offsets) if changed == clean else (changed, latest.then(offsets))


def _row(clean: str, offsets: OffsetMap, text: str, cleaner: str, status: str, error: str | None) -> Rows:
    row = {
        "text": clean,
        "offsets": offsets.rows(),
        "removed_chars": int((solid(text) & ~kept(offsets, len(text))).sum()),
        "cleaner": cleaner,
        "status": status,
        "error": error,
    }
    return {"cleaned": [row]}


def solid(text: str) -> np.ndarray:
    """Mask of the code points of `text` that are not white space."""
    return np.fromiter((not character.isspace() for character in text), dtype=bool, count=len(text))


def kept(offsets: OffsetMap, length: int) -> np.ndarray:
    """Mask of the source code points that something in the output derives from."""
    mask = np.zeros(length, dtype=bool)
    for segment in offsets.segments:
        mask[segment.src_start : segment.src_end] = True
    return mask


@lru_cache(maxsize=4)
def _user_cleaner(path: str) -> Cleaner:
    return load(path)()


# Boilerplate -----------------------------------------------------------------------------------------------------------


def _main_ranges(item: dict[str, Any], config: CleaningConfig) -> tuple[list[Span], str, str | None]:
    """Ranges of the parsed text that are main text, who said so, and a remark."""
    text = item["text"]
    if config.html == "blocks" and item["boilerplate"]:
        cut = [(hint["start"], hint["end"]) for hint in item["boilerplate"]]
        return _complement(cut, len(text)), "blocks", None
    if config.html in EXTRACTORS and item["html"]:
        extracted = _EXTRACT[config.html](item["html"], config.favor)
        if extracted and extracted.strip():
            return main_lines(text, extracted), config.html, None
        # A page without main text is more often a page that the extractor misread: losing all of it would be worse.
        return [(0, len(text))], "none", f"{config.html} found no main text; everything was kept"
    return [(0, len(text))], "none", None


def _by_trafilatura(html: str, favor: str) -> str | None:
    import trafilatura

    return trafilatura.extract(
        html,
        include_comments=False,
        include_tables=True,
        favor_recall=favor == "recall",
        favor_precision=favor == "precision",
    )


def _by_justext(html: str, favor: str) -> str | None:
    """Paragraphs that jusText takes for text; its stop words are those of all its languages, as its page may be in any."""
    import justext
    from lxml.etree import ParserError

    try:
        paragraphs = justext.justext(html.encode("utf-8", "replace"), _stop_words(), encoding="utf-8")
    except ParserError:  # a page without an element
        return None
    return "\n".join(paragraph.text for paragraph in paragraphs if not paragraph.is_boilerplate)


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    import justext

    return frozenset().union(*(justext.get_stoplist(name) for name in justext.get_stoplists()))


def _by_resiliparse(html: str, favor: str) -> str | None:
    from resiliparse.extract.html2text import extract_plain_text

    return extract_plain_text(html, main_content=True, list_bullets=False, alt_texts=False, comments=False)


_EXTRACT: dict[str, Callable[[str, str], str | None]] = {
    "trafilatura": _by_trafilatura,
    "justext": _by_justext,
    "resiliparse": _by_resiliparse,
}
"""Extractor -> (page, what to lean to) -> main text. Only trafilatura leans."""
_WARM = "<html><body><p>Nothing.</p></body></html>"


def _complement(cut: list[Span], length: int) -> list[Span]:
    ranges, position = [], 0
    for start, end in sorted(cut):
        if start > position:
            ranges.append((position, start))
        position = max(position, end)
    return [*ranges, (position, length)] if position < length else ranges


def main_lines(text: str, extracted: str) -> list[Span]:
    """Lines of `text` (sentences of partly matched lines) most of which stand in `extracted`, with their line ends."""
    token = np.zeros(len(text) + 1, dtype=np.int64)
    matched = np.zeros(len(text) + 1, dtype=np.int64)
    # Words only: extractors write their own bullets and table bars.
    for start, end in tokens_of(text):
        token[start + 1 : end + 1] = text[start].isalnum()
    for start, end in _matched_ranges(text, extracted):
        matched[start + 1 : end + 1] = token[start + 1 : end + 1]
    matched, token = matched.cumsum(), token.cumsum()

    def share(start: int, end: int) -> float | None:
        total = token[end] - token[start]
        return float((matched[end] - matched[start]) / total) if total else None

    ranges: list[Span] = []
    keep_blank = False
    for start, end in _lines(text):
        for low, high, found in _parts(text, start, end, share):
            keep_blank = keep_blank if found is None else found >= KEEP_SHARE
            if keep_blank:
                _extend(ranges, low, high)
    return ranges


def _matched_ranges(text: str, extracted: str) -> Iterator[Span]:
    """Ranges of `text` that stand in `extracted`: whole lines first, then words between them.

    Words alone would let a menu entry take the place of the same word in a sentence.
    """
    lines, found = _worded_lines(text), _worded_lines(extracted)
    ids: dict[tuple[str, ...], int] = {}
    a, b = ([ids.setdefault(words, len(ids)) for _, _, words in side] for side in (found, lines))
    at_a = at_b = 0
    for i, j in [*common_subsequence(a, b), (len(a), len(b))]:
        if at_a < i and at_b < j:
            low, high = lines[at_b][0], lines[j - 1][1]
            _, spans, pairs = matched_tokens(extracted[found[at_a][0] : found[i - 1][1]], text[low:high], fold)
            yield from ((low + spans[k][0], low + spans[k][1]) for _, k in pairs)
        if j < len(b):
            yield lines[j][0], lines[j][1]
        at_a, at_b = i + 1, j + 1


def _worded_lines(text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    lines = []
    for start, end in _lines(text):
        line = text[start:end]
        words = tuple(fold(line[low:high]) for low, high in tokens_of(line) if line[low].isalnum())
        if words:
            lines.append((start, end, words))
    return lines


def _parts(
    text: str, start: int, end: int, share: Callable[[int, int], float | None]
) -> Iterator[tuple[int, int, float | None]]:
    """A line, or its sentences where only a part of it was matched."""
    whole = share(start, end)
    inner = sentences(text[start:end]) if whole is not None and 0.1 < whole < 0.9 else []
    if len(inner) < 2:
        yield start, end, whole
        return
    edges = [start, *(start + low for low, _ in inner[1:]), end]
    for low, high in pairwise(edges):
        yield low, high, share(low, high)


def _lines(text: str) -> Iterator[Span]:
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield start, end
        start = end


def _extend(ranges: list[Span], start: int, end: int) -> None:
    if ranges and ranges[-1][1] == start:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((start, end))


# Unicode ---------------------------------------------------------------------------------------------------------------

_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e007f"
)
_CONTROL = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_JOINER = "\u200c\u200d"
_INVISIBLE = re.compile(f"[{_HIDDEN}{_CONTROL}{_JOINER}]")
# Scripts and symbols in which a joiner changes what is read: Arabic to Tibetan and Khmer, Indic extensions, emoji.
_JOINING = re.compile(
    "[\u0600-\u0fff\u1000-\u109f\u1780-\u18af\u1b00-\u1cff\ua800-\uabff\ufb1d-\ufdff\ufe0f\ufe70-\ufefe"
    "\u20e3\u2190-\u2bff\U00010a00-\U00011fff\U0001e900-\U0001e95f\U0001f000-\U0001faff]"
)


def strip_invisible(text: str) -> tuple[str, OffsetMap]:
    """Drop characters that nobody sees; joiners stay in scripts and emoji that need them."""
    gone = [match.start() for match in _INVISIBLE.finditer(text) if not _needed(text, match.start())]
    if not gone:
        return text, OffsetMap.identity(len(text))
    ranges = _complement([(place, place + 1) for place in gone], len(text))
    return "".join(text[start:end] for start, end in ranges), OffsetMap.keep(ranges)


def _needed(text: str, place: int) -> bool:
    return text[place] in _JOINER and place > 0 and bool(_JOINING.match(text[place - 1]))


def nfkc_with_map(text: str) -> tuple[str, OffsetMap]:
    """NFKC by clusters that no composition crosses; a cluster that changed is an inexact segment."""
    if unicodedata.is_normalized("NFKC", text):
        return text, OffsetMap.identity(len(text))
    parts: list[str] = []
    segments: list[Segment] = []
    out = 0
    for start, end in _clusters(text):
        piece = unicodedata.normalize("NFKC", text[start:end])
        exact = piece == text[start:end]
        last = segments[-1] if segments else None
        if exact and last and last.exact and last.src_end == start and last.out_end == out:
            segments[-1] = Segment(last.out_start, out + len(piece), last.src_start, end)
        elif piece:
            segments.append(Segment(out, out + len(piece), start, end, exact))
        parts.append(piece)
        out += len(piece)
    return "".join(parts), OffsetMap(segments)


def _clusters(text: str) -> Iterator[Span]:
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or _starts_cluster(text[place]):
            yield start, place
            start = place


@lru_cache(maxsize=8192)
def _starts_cluster(character: str) -> bool:
    """Whether nothing before it can compose with it: decided on its compatibility decomposition."""
    first = unicodedata.normalize("NFKD", character)[0]
    return (
        unicodedata.combining(first) == 0
        and unicodedata.category(first)[0] != "M"
        and not "\u1160" <= first <= "\u11ff"
        and first not in _AFTERS
    )


_AFTERS = frozenset("\U000110ba\U00011127\U0001133e\U00011357")
"""Letters and signs that compose with what stands before them although they are no marks in every Unicode version."""
