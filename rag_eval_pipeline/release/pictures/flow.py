"""The flow of units: a stream of all labelled evidence from left to right; what a stage loses leaves the stream there.

A band's width is its number of units, the same all along. Bands are sorted by where they leave, so none crosses another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_eval_pipeline.attribution.order import AFTER
from rag_eval_pipeline.release.pictures.svg import colour_of, element, picture, text

LEFT, TOP = 96.0, 52.0
COLUMN = 68.0
"""Room between two stages, beside the bands that leave."""
STREAM = 230.0
"""Height of all units together."""
BEND, DROP = 10.0, 46.0
END = 130.0


def flow_picture(
    rows: Sequence[Mapping[str, Any]],
    causes: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    *,
    name: str = "flow",
    alone: bool = False,
) -> str:
    """Draw the stream.

    Args:
        rows: of `loss_waterfall`, one retriever, k and slice, in order; what follows k is left out.
        causes: by stage (cause, units), most first: told when a band is pointed at.
        name: unique in the page.
        alone: to be shown outside a page.
    """
    stages = [row for row in rows if row["stage"] not in AFTER and (row["stage"] != "unanchored" or row["lost_units"])]
    total = stages[0]["n_units"] if stages else 0
    if not total:
        return ""
    scale = STREAM / total
    served = total - sum(row["lost_units"] for row in stages)
    base = TOP + STREAM + BEND + DROP
    drawn: list[str] = []
    x, bottom = LEFT + 30, TOP + STREAM
    for row in stages:
        width = row["lost_units"] * scale
        drawn.append(_column(row["stage"], x, bottom - width))
        if width:
            drawn.append(_band(row, x, bottom, width, base, (causes or {}).get(row["stage"], ()), total))
            bottom -= width
        x += COLUMN + width
    kept = served * scale
    drawn.append(
        element(
            "rect",
            {"class": "stream band", "x": LEFT, "y": TOP, "width": x - LEFT, "height": kept, "data-kind": "served", "data-units": served},
            element("title", {}, f"served: {served} of {total} units"),
        )
    )  # fmt: skip
    drawn += [
        text(LEFT - 10, TOP + STREAM / 2 - 4, f"{total} units", text_anchor="end", class_="strong"),
        text(LEFT - 10, TOP + STREAM / 2 + 13, "of evidence", text_anchor="end", class_="faint"),
        text(x + 10, TOP + max(kept / 2, 6) - 2, f"{served} served", class_="strong"),
        text(x + 10, TOP + max(kept / 2, 6) + 15, f"{100 * served / total:.1f} % of units", class_="faint"),
    ]
    about = (
        f"Of {total} units of evidence {served} are served. "
        + "; ".join(f"{row['lost_units']} leave at {row['stage']}" for row in stages if row["lost_units"])
        + "."
    )
    title = f"{total} units of evidence on their way through the stages"
    return picture(x + END, base + 40, title, about, name, *drawn, alone=alone)


def _column(stage: str, x: float, bottom: float) -> str:
    mark = element("line", {"class": "grid", "x1": x, "x2": x, "y1": TOP - 10, "y2": max(bottom, TOP)})
    return mark + text(x, TOP - 18, stage, class_="faint", text_anchor="middle")


def _band(
    row: Mapping[str, Any],
    x: float,
    bottom: float,
    width: float,
    base: float,
    causes: Sequence[tuple[str, int]],
    total: int,
) -> str:
    """A band from the left to its stage, where it bends down and ends with its name."""
    top, units, stage = bottom - width, row["lost_units"], row["stage"]
    inner, outer = BEND, BEND + width
    path = (
        f"M{LEFT:.2f} {top:.3f}H{x:.2f}A{outer:.3f} {outer:.3f} 0 0 1 {x + outer:.3f} {top + outer:.3f}V{base:.2f}"
        f"H{x + inner:.3f}V{bottom + inner:.3f}A{inner:.3f} {inner:.3f} 0 0 0 {x:.2f} {bottom:.3f}H{LEFT:.2f}Z"
    )
    why = ", ".join(f"{cause} {count}" for cause, count in causes)
    told = f"{stage}: {units} of {total} units" + (f" ({why})" if why else "")
    middle = x + (inner + outer) / 2
    shape = {
        "class": f"{colour_of(stage)} band" if width > 4 else colour_of(stage),
        "d": path,
        "data-kind": "lost",
        "data-stage": stage,
        "data-units": units,
    }
    return (
        element("path", shape | {"data-width": width}, element("title", {}, told))
        + text(middle, base + 17, f"−{units}", class_="strong num", text_anchor="middle")
        + text(middle, base + 33, stage, class_="faint", text_anchor="middle")
    )
