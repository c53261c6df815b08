"""Bars: shares between 0 and 1, a row each, with what they were before. A bar's length is its number on the axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rag_eval_pipeline.release.pictures.svg import element, picture, text

LEFT, RIGHT, END = 300.0, 800.0, 960.0
TOP, ROW, THICK = 46.0, 24.0, 14.0
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
LONGEST = 44
"""Characters of a name."""


@dataclass(frozen=True)
class Bar:
    """One row.

    Attributes:
        name: what it is.
        share: between 0 and 1.
        told: the number beside it.
        before: the same of the baseline, drawn as a line across; None where there is none.
    """

    name: str
    share: float
    told: str
    before: float | None = None


def bars_picture(
    bars: Sequence[Bar], title: str, about: str, *, name: str = "bars", head: str = "", alone: bool = False
) -> str:
    """Draw bars on one axis from 0 to 1; nothing where there are none.

    Args:
        bars: from top to bottom.
        title: what it is.
        about: what it shows, in a sentence.
        name: unique in the page.
        head: of the column of numbers.
        alone: to be shown outside a page.
    """
    if not bars:
        return ""
    bottom = TOP + ROW * len(bars)
    drawn = [_grid(bottom), text(RIGHT + 14, TOP - 18, head, class_="faint")]
    drawn += [_row(bar, TOP + ROW * number) for number, bar in enumerate(bars)]
    return picture(END, bottom + 14, title, about, name, *drawn, alone=alone)


def _x(share: float) -> float:
    return LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT)


def _grid(bottom: float) -> str:
    lines = [element("line", {"class": "grid", "x1": _x(t), "x2": _x(t), "y1": TOP - 8, "y2": bottom}) for t in TICKS]
    marks = [text(_x(t), TOP - 18, f"{t:g}", class_="faint num", text_anchor="middle") for t in TICKS]
    return "".join([*lines, *marks])


def _row(bar: Bar, top: float) -> str:
    shown = bar.name if len(bar.name) <= LONGEST else f"{bar.name[: LONGEST - 1]}…"
    place = top + (ROW - THICK) / 2
    told = f"{bar.name}: {bar.told}" + (f", before {bar.before:.4g}" if bar.before is not None else "")
    shape = {
        "class": "kept",
        "x": LEFT,
        "y": place,
        "width": _x(bar.share) - LEFT,
        "height": THICK,
        "data-share": bar.share,
    }
    parts = [
        text(LEFT - 12, place + THICK - 2, shown, text_anchor="end"),
        element("rect", shape, element("title", {}, escape(told))),
        text(RIGHT + 14, place + THICK - 2, bar.told, class_="num"),
    ]
    if bar.before is not None:
        x = _x(bar.before)
        parts.append(
            element("line", {"class": "whisker", "x1": x, "x2": x, "y1": place - 3, "y2": place + THICK + 3, "data-before": bar.before})
        )  # fmt: skip
    return "".join(parts)
