"""The waterfall: a row a stage, what it lost as a bar from the ceiling before it to the ceiling after it, down to recall.

Beside each loss what its repair gives back: a bar that starts where the loss ended and goes back up. A bar's length is its
number on the axis; every number stands in `loss_waterfall` or `stage_repairs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_eval_pipeline.attribution.order import AFTER
from rag_eval_pipeline.release.pictures.svg import colour_of, element, picture, text

WIDTH = 1000.0
LEFT, RIGHT = 118.0, 640.0
LOST, UNITS, BACK = 730.0, 790.0, 985.0
"""Right edges of the columns of numbers."""
WIDER = 185.0
"""The room of the repairs' numbers, given to the axis where there are none."""
TOP = 44.0
STEPS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
MOST_TICKS = 7


@dataclass(frozen=True)
class Axis:
    """From a recall to a place; it starts below the lowest figure drawn, at 0 where that is near."""

    start: float
    step: float
    right: float = RIGHT

    @classmethod
    def of(cls, lowest: float, right: float = RIGHT) -> Axis:
        """The axis for figures down to `lowest`."""
        span = 1 - lowest
        if lowest < 0.3 or span <= 0:
            return cls(0.0, 0.2, right)
        step = min((s for s in STEPS if span * 1.1 / s <= MOST_TICKS - 1), default=STEPS[0])
        return cls(max(0.0, round(math.floor((lowest - 0.08 * span) / step) * step, 6)), step, right)

    def x(self, recall: float) -> float:
        """The place of a recall."""
        return LEFT + (recall - self.start) / (1 - self.start) * (self.right - LEFT)

    @property
    def ticks(self) -> list[float]:
        """Marks from the start to 1."""
        count = round((1 - self.start) / self.step)
        return [round(self.start + number * self.step, 6) for number in range(count + 1)]


def waterfall_picture(
    rows: Sequence[Mapping[str, Any]],
    repairs: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    name: str = "waterfall",
    alone: bool = False,
) -> str:
    """Draw a waterfall.

    Args:
        rows: of `loss_waterfall`, one retriever, k and slice, in order; what follows k is left out.
        repairs: rows of `stage_repairs` by stage: recovered_recall, recovered_low, recovered_high.
        name: unique in the page.
        alone: to be shown outside a page.
    """
    repairs = repairs or {}
    stages = [row for row in rows if row["stage"] not in AFTER and (row["stage"] != "unanchored" or row["lost_units"])]
    if not stages:
        return ""
    recall, k = float(stages[0]["recall"]), stages[0]["k"]
    axis = Axis.of(_lowest(stages, repairs), RIGHT if repairs else RIGHT + WIDER)
    height = 34.0 if repairs else 27.0
    bottom = TOP + height * (len(stages) + 1)
    drawn = [_grid(axis, bottom), _header(bool(repairs), k)]
    for number, row in enumerate(stages):
        drawn.append(_row(row, repairs.get(row["stage"]), axis, TOP + number * height, height))
    drawn.append(_final(recall, stages[0], axis, TOP + len(stages) * height))
    about = (
        f"{len(stages)} stages from recall 1 down to {recall:.3f}. "
        + "; ".join(f"{r['stage']} loses {r['lost_recall']:.3f}" for r in stages if r["lost_units"])
        + ". The same numbers stand in the table that follows."
    )
    title = f"Where recall@{k} was lost, stage by stage"
    return picture(WIDTH, bottom + 30, title, about, name, *drawn, alone=alone)


def _lowest(stages: Sequence[Mapping[str, Any]], repairs: Mapping[str, Mapping[str, Any]]) -> float:
    found = [float(row["ceiling_after"]) for row in stages]
    for row in stages:
        repair = repairs.get(row["stage"])
        if repair is not None:
            given = [repair["recovered_recall"], repair.get("recovered_low")]
            found += [row["ceiling_after"] + value for value in given if value is not None]
    return max(0.0, min(found))


def _grid(axis: Axis, bottom: float) -> str:
    lines = [
        element("line", {"class": "grid", "x1": axis.x(tick), "x2": axis.x(tick), "y1": TOP - 8, "y2": bottom + 4})
        + text(axis.x(tick), bottom + 19, f"{tick:.3g}", class_="faint num", text_anchor="middle")
        for tick in axis.ticks
    ]
    if axis.start > 0:
        lines.append(text(LEFT - 22, bottom + 19, "axis starts at", class_="faint", text_anchor="end"))
    return "".join(lines)


def _header(repaired: bool, k: int) -> str:
    shift = 0.0 if repaired else WIDER
    words = [
        text(LEFT, 20, f"recall@{k} that is still possible", class_="faint"),
        text(LOST + shift, 20, "lost here", class_="faint", text_anchor="end"),
        text(UNITS + shift, 20, "units", class_="faint", text_anchor="end"),
    ]
    if repaired:
        words.append(text(BACK, 20, "given back by its repair", class_="faint", text_anchor="end"))
    return "".join(words)


def _row(row: Mapping[str, Any], repair: Mapping[str, Any] | None, axis: Axis, y: float, height: float) -> str:
    stage, lost = row["stage"], row["lost_units"]
    before, after = axis.x(row["ceiling_before"]), axis.x(row["ceiling_after"])
    base, shift = y + 15, axis.right - RIGHT
    parts = [
        text(LEFT - 10, base, stage, text_anchor="end", class_="strong" if lost else "faint"),
        element("rect", {"class": "track", "x": LEFT, "y": y + 3, "width": max(after - LEFT, 0.0), "height": 15}),
        element("line", {"class": "grid", "x1": after, "x2": after, "y1": y + 3, "y2": y + height + 3}),
    ]
    if lost:
        told = f"{stage}: {lost} units, {row['lost_recall']:.3f} of recall"
        box = {"x": after, "y": y + 3, "width": before - after, "height": 15, "data-kind": "lost", "data-stage": stage}
        parts.append(element("rect", {"class": colour_of(stage), **box}, element("title", {}, told)))
    parts.append(
        text(LOST + shift, base, f"−{row['lost_recall']:.3f}" if lost else "–", class_="num", text_anchor="end")
    )
    parts.append(text(UNITS + shift, base, str(lost) if lost else "–", class_="num", text_anchor="end"))
    if repair is not None and repair["recovered_recall"] is not None:
        parts.append(_repair(stage, row["ceiling_after"], repair, axis, y + 21))
        parts.append(text(BACK, base, given_back(repair), class_="num", text_anchor="end"))
    return element("g", {}, *parts)


def _repair(stage: str, start: float, repair: Mapping[str, Any], axis: Axis, y: float) -> str:
    given = float(repair["recovered_recall"])
    low, high = sorted((axis.x(start), axis.x(start + given)))
    box = {"x": low, "y": y, "width": high - low, "height": 7, "data-kind": "back", "data-stage": stage}
    parts = [element("rect", {"class": f"back {colour_of(stage)}" if given >= 0 else "hurt", **box})] if given else []
    bounds = repair.get("recovered_low"), repair.get("recovered_high")
    low_end, high_end = bounds
    if low_end is not None and high_end is not None and bounds != (0, 0):
        a, b = (axis.x(min(1.0, max(0.0, start + bound))) for bound in (low_end, high_end))
        path = f"M{a:.2f} {y + 1:.2f}v5M{b:.2f} {y + 1:.2f}v5M{a:.2f} {y + 3.5:.2f}H{b:.2f}"
        parts.append(element("path", {"class": "whisker", "d": path, "data-kind": "interval", "data-stage": stage}))
    return "".join(parts)


def given_back(repair: Mapping[str, Any]) -> str:
    """`+0.035 [0.010, 0.060]`."""
    low, high = repair.get("recovered_low"), repair.get("recovered_high")
    interval = f" [{signed(low)}, {signed(high)}]" if low is not None and high is not None else ""
    return f"{signed(repair['recovered_recall'])}{interval}"


def signed(value: float) -> str:
    """With its sign; 0 has none."""
    return "0.000" if abs(value) < 0.0005 else f"{value:+.3f}".replace("-", "−")


def _final(recall: float, row: Mapping[str, Any], axis: Axis, y: float) -> str:
    box = {"x": LEFT, "y": y + 3, "width": max(axis.x(recall) - LEFT, 0.0), "height": 18, "data-kind": "recall"}
    place = axis.x(recall) + 10
    return element(
        "g",
        {},
        text(LEFT - 10, y + 17, "served", text_anchor="end", class_="strong"),
        element("rect", {"class": "kept", **box}),
        text(place, y + 17, f"{recall:.3f} recall@{row['k']}", class_="num strong"),
    )
