"""Judges: what a judge said against what people said, and what judges cost and how long they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rag_eval_pipeline.release.pictures.svg import element, picture, text

CELL, LEFT, TOP = 92.0, 190.0, 84.0
ORDER = ("supported", "pass", "contradicted", "unsupported", "fail")
NONE = "none given"
BAR_LEFT, BAR_WIDTH, ROW = 250.0, 250.0, 54.0


def matrix_picture(
    counts: Sequence[tuple[str, str | None, int]], title: str, about: str, *, name: str = "matrix", alone: bool = False
) -> str:
    """People's labels (rows) against a judge's (columns); a cell's shade is its share of its row, its number the items.

    Args:
        counts: people's label, the judge's (None: it gave none), items.
        title: what it is.
        about: what it shows, in a sentence.
        name: unique in the page.
        alone: to be shown outside a page.
    """
    if not counts:
        return ""
    cells: dict[tuple[str, str], int] = {}
    for people, judge, n in counts:
        cells[people, judge or NONE] = cells.get((people, judge or NONE), 0) + n
    both = {label for pair in cells for label in pair} - {NONE}
    known = sorted(both, key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))
    columns = [*known, *([NONE] if any(judge == NONE for _, judge in cells) else [])]
    drawn = [
        text(LEFT, TOP - 58, "as the judge said", class_="faint"),
        text(12, TOP - 12, "as people said", class_="faint"),
    ]
    drawn += [text(LEFT + CELL * (i + 0.5), TOP - 12, column, text_anchor="middle") for i, column in enumerate(columns)]
    for row, people in enumerate(known):
        total = sum(cells.get((people, column), 0) for column in columns)
        drawn.append(text(LEFT - 12, TOP + CELL * (row + 0.5) + 4, f"{people} ({total})", text_anchor="end"))
        drawn += [
            _cell(people, column, cells.get((people, column), 0), total, LEFT + CELL * i, TOP + CELL * row)
            for i, column in enumerate(columns)
        ]
    width, height = LEFT + CELL * len(columns) + 12, TOP + CELL * len(known) + 12
    return picture(width, height, title, about, name, *drawn, alone=alone)


def _cell(people: str, judge: str, n: int, total: int, x: float, y: float) -> str:
    share = n / total if total else 0.0
    told = f"people: {people}, judge: {judge}: {n} of {total}"
    shape = {"x": x + 1, "y": y + 1, "width": CELL - 2, "height": CELL - 2}
    # Numbers stand on at most a third of the shade, so that they can be read in both schemes.
    shade = element(
        "rect",
        {"class": "kept", **shape, "fill-opacity": share / 3, "data-count": n},
        element("title", {}, escape(told)),
    )
    edge = element("rect", {"class": "grid", **shape, "fill": "none"})
    return shade + edge + text(x + CELL / 2, y + CELL / 2 + 5, str(n), text_anchor="middle", class_="num" + (" strong" if people == judge else ""))  # fmt: skip


def costs_picture(rows: Sequence[Mapping[str, Any]], *, name: str = "judges", alone: bool = False) -> str:
    """Price of a thousand judgments and seconds of one (median, line to the 95th percentile), a row a judge.

    Args:
        rows: judge, n, cost_per_1000 (None: no prices), latency_p50, latency_p95 (None: too few).
        name: unique in the page.
        alone: to be shown outside a page.
    """
    if not rows:
        return ""
    dearest = max((row["cost_per_1000"] or 0.0 for row in rows), default=0.0) or 1.0
    slowest = max((row["latency_p95"] or row["latency_p50"] or 0.0 for row in rows), default=0.0) or 1.0
    second = BAR_LEFT + BAR_WIDTH + 130
    drawn = [text(BAR_LEFT, 22, "price of 1,000 judgments", class_="faint"), text(second, 22, "seconds of one: median, 95 %", class_="faint")]  # fmt: skip
    for number, row in enumerate(rows):
        y = 40 + ROW * number
        drawn.append(text(BAR_LEFT - 12, y + 15, str(row["judge"]), text_anchor="end"))
        drawn.append(text(BAR_LEFT - 12, y + 31, f"{row['n']} judged", text_anchor="end", class_="faint num"))
        drawn.append(_bar(BAR_LEFT, y, row["cost_per_1000"], dearest, "no prices"))
        drawn.append(_bar(second, y, row["latency_p50"], slowest, "not known", row["latency_p95"]))
    about = (
        "For each judge the price of a thousand judgments, and the median and 95th percentile of seconds that one took."
    )
    return picture(
        second + BAR_WIDTH + 130, 40 + ROW * len(rows), "Cost and latency of judges", about, name, *drawn, alone=alone
    )


def _bar(x: float, y: float, value: float | None, most: float, nothing: str, reach: float | None = None) -> str:
    if value is None:
        return text(x, y + 15, nothing, class_="faint")
    parts = [
        element(
            "rect",
            {"class": "kept", "x": x, "y": y, "width": BAR_WIDTH * value / most, "height": 20.0, "data-value": value},
        )
    ]
    told, end = f"{value:.3g}", value
    if reach is not None:
        parts.append(element("line", {"class": "whisker", "x1": x + BAR_WIDTH * value / most, "x2": x + BAR_WIDTH * reach / most, "y1": y + 10, "y2": y + 10}))  # fmt: skip
        told, end = f"{told}, {reach:.3g}", max(value, reach)
    parts.append(text(x + BAR_WIDTH * end / most + 8, y + 15, told, class_="num"))
    return "".join(parts)
