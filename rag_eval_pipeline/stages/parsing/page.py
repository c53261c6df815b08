"""Put what a page lacks of a text back into it. Reading pages belongs in `markup`; what is main text, cleaning decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from lxml import etree

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.stages.parsing import markup
from rag_eval_pipeline.stages.parsing.reading import clean
from rag_eval_pipeline.text.derivation import derive

CONTAINERS = frozenset(
    [
        "html",
        "body",
        "div",
        "article",
        "section",
        "main",
        "nav",
        "header",
        "footer",
        "aside",
        "form",
        "center",
        "fieldset",
    ]
)
"""Blocks that hold blocks: a new line goes inside of them. Behind any other block it goes after."""
ROWS = frozenset(["caption", "thead", "tbody", "tfoot", "tr", "th", "td"])
_LINE = re.compile(r"[^\n]*\S[^\n]*")


class Spot(NamedTuple):
    """Where a run of a page's text stands: in front of all children of `parent`, or behind its child `child`."""

    start: int
    parent: Any
    child: Any


def complete(page: str, text: str, furniture: Sequence[tuple[int, int]] = ()) -> str | None:
    """The page with every line of `text` in it: a line that it lacks, wholly or in part, stands behind what comes before it.

    Nothing is taken away, so an extractor that looks for main text finds the page's own frame. None for a page that cannot
    be read as html.

    Args:
        page: the html.
        text: what it says.
        furniture: ranges of `text` that are boilerplate. They are not put in: without their own frame they would pass for
            main text.
    """
    try:
        root = markup._tree(page)
    except Refusal:
        return None
    if root is None:
        return None
    content, spots = _read(root)
    last = _last_place(text, content)
    lacking = [
        match.span()
        for match in _LINE.finditer(text)
        if not any(start < match.end() and match.start() < end for start, end in furniture)
        and any(
            character.isalnum() and last[index] < 0
            for index, character in enumerate(match.group(), start=match.start())
        )
    ]
    if not lacking:
        return page
    reached = np.maximum.accumulate(last)
    behind: dict[int, Any] = {}
    for start, end in lacking:
        # Where an edited line stands in the page, the right one follows it.
        place = int(reached[end - 1])
        number = _spot_at(spots, place)
        behind[number] = _insert(spots[number], behind.get(number), text[start:end].strip())
    return clean(etree.tostring(root.getroottree(), encoding="unicode", method="html"))


def _last_place(text: str, content: str) -> np.ndarray:
    """For each character of `text` its place in the page's content; −1 where the page hasn't got it."""
    places = np.full(len(text), -1, dtype=np.int64)
    for segment in derive(text, content).segments:
        places[segment.out_start : segment.out_end] = np.arange(segment.src_start, segment.src_end)
    return places


def _read(root: Any) -> tuple[str, list[Spot]]:
    """The page's text in document order, blocks on lines of their own, and where each run of it stands."""
    parts: list[str] = []
    spots = [Spot(0, _body(root), None)]
    length = 0

    def add(text: str | None, parent: Any, child: Any) -> None:
        nonlocal length
        if text and text.strip():
            spots.append(Spot(length, parent, child))
        parts.append(text or "")
        length += len(text or "")

    walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        parent = element.getparent()
        if event == "start":
            add("\n" if element.tag in markup.BLOCK or element.tag == "br" else "", element, None)
            if element.tag in markup.UNSEEN:
                walk.skip_subtree()
            else:
                add(element.text, element, None)
            continue
        if event == "end" and element.tag in markup.BLOCK:
            add("\n", parent, element)
        if parent is not None:
            add(element.tail, parent, element)
    return "".join(parts), spots


def _body(root: Any) -> Any:
    found = root.find("body")
    return root if found is None else found


def _spot_at(spots: Sequence[Spot], place: int) -> int:
    """Number of the run that holds a place; the first one for no place."""
    low, high = 0, len(spots)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spots[middle].start <= place else (low, middle)
    return low


def _insert(spot: Spot, previous: Any, line: str) -> Any:
    """Put a line behind a run of text, or behind the line that was put there before; returns the new element."""
    if previous is not None:
        new = _made(previous.tag, line)
        parent, child = previous.getparent(), previous
    else:
        parent, child = spot.parent, spot.child
        while parent.tag not in CONTAINERS and parent.tag not in {
            "ul",
            "ol",
            "menu",
            "dl",
            "table",
            *ROWS - {"th", "td", "caption"},
        }:
            if parent.getparent() is None:
                break
            parent, child = parent.getparent(), parent
        new = _made(_tag_in(parent.tag), line)
    parent.insert(0 if child is None else parent.index(child) + 1, new)
    return new


def _tag_in(parent: str) -> str:
    if parent in {"ul", "ol", "menu"}:
        return "li"
    if parent == "dl":
        return "dd"
    return "tr" if parent == "table" or parent in ROWS else "p"


def _made(tag: str, line: str) -> Any:
    """An element with a line of text; an XML parser takes no control characters."""
    visible = "".join(character if character.isprintable() or character == "\t" else " " for character in line)
    new = etree.Element(tag)
    if tag == "tr":
        etree.SubElement(new, "td").text = visible
    else:
        new.text = visible
    return new
