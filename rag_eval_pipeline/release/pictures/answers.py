"""Pictures of answers: the reliability curve of stated confidence, and the four fields of refusing. Figures in, markup out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rag_eval_pipeline.measures.calibration import Bin
from rag_eval_pipeline.release.pictures.svg import element, picture, text

LEFT, TOP, SIDE = 78.0, 34.0, 320.0
STRIP = 70.0
"""Height of the counts under the curve."""
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
DOT = 4.5


def reliability_picture(bins: Sequence[Bin], outcome: str, *, name: str = "reliability", alone: bool = False) -> str:
    """Draw the curve: a dot a bin at its mean confidence and its share of right answers, with the share's interval.

    The diagonal is confidence that means what it says; under it confidence promises too much. Below, how many answers each bin has.

    Args:
        bins: of `measures.reliability_curve`; empty ones are left out.
        outcome: what counts as right, in words.
        name: unique in the page.
        alone: to be shown outside a page.
    """
    there = [each for each in bins if each.n and each.confidence is not None and each.accuracy.mean is not None]
    if not there:
        return ""
    bottom = TOP + SIDE
    drawn = [_square(bottom), _words(outcome, bottom)]
    drawn += [_dot(each) for each in there]
    drawn += [_count(each, max(b.n for b in there), bottom) for each in there]
    total = sum(each.n for each in there)
    about = f"{total} answers with a confidence, right where {outcome}. " + "; ".join(
        f"confidence {each.confidence:.2f}: {each.accuracy.mean:.2f} right of {each.n}" for each in there
    )
    return picture(
        LEFT + SIDE + 40, bottom + 58 + STRIP, "Whether confidence means what it says", about, name, *drawn, alone=alone
    )


def _x(share: float) -> float:
    return LEFT + share * SIDE


def _y(share: float) -> float:
    return TOP + (1.0 - share) * SIDE


def _square(bottom: float) -> str:
    grid = [
        element("line", {"class": "grid", "x1": _x(t), "x2": _x(t), "y1": TOP, "y2": bottom})
        + element("line", {"class": "grid", "x1": LEFT, "x2": LEFT + SIDE, "y1": _y(t), "y2": _y(t)})
        + text(_x(t), bottom + 18, f"{t:g}", class_="faint num", text_anchor="middle")
        + text(LEFT - 10, _y(t) + 4, f"{t:g}", class_="faint num", text_anchor="end")
        for t in TICKS
    ]
    diagonal = {"class": "hurt", "x1": _x(0.0), "y1": _y(0.0), "x2": _x(1.0), "y2": _y(1.0)}
    return "".join([*grid, element("line", diagonal)])


def _words(outcome: str, bottom: float) -> str:
    return "".join(
        (
            text(LEFT, 18, f"share that is right ({outcome})", class_="faint"),
            text(LEFT + SIDE, bottom + 40, "stated confidence", class_="faint", text_anchor="end"),
            text(LEFT - 10, bottom + 58 + STRIP / 2, "answers", class_="faint", text_anchor="end"),
        )
    )


def _dot(each: Bin) -> str:
    confidence, right = float(each.confidence or 0.0), float(each.accuracy.mean or 0.0)
    told = f"confidence {each.confidence:.3f}, right {right:.3f} of {each.n} (bin {each.low:.2f} to {each.high:.2f})"
    low, high = each.accuracy.low, each.accuracy.high
    whisker = ""
    if low is not None and high is not None:
        whisker = element(
            "line", {"class": "whisker", "x1": _x(confidence), "x2": _x(confidence), "y1": _y(low), "y2": _y(high)}
        )
        told += f", 95 % {low:.3f} to {high:.3f}"
    shape = {"class": "kept", "cx": _x(confidence), "cy": _y(right), "r": DOT, "data-n": each.n}
    return whisker + element("circle", shape, element("title", {}, told))


def _count(each: Bin, most: int, bottom: float) -> str:
    height = (STRIP - 14) * each.n / most
    low, high = _x(each.low) + 1, _x(each.high) - 1
    base = bottom + 54 + STRIP
    bar = {
        "class": "track",
        "x": low,
        "y": base - height,
        "width": max(high - low, 1.0),
        "height": height,
        "data-n": each.n,
    }
    return element("rect", bar) + text(
        (low + high) / 2, base - height - 3, str(each.n), class_="faint num", text_anchor="middle"
    )


CELL_W, CELL_H = 210.0, 92.0
ROWS = (("should_answer", "should answer"), ("should_refuse", "should refuse"))
COLUMNS = (("answered", "answers"), ("refused", "refuses"), ("empty", "says nothing"))
MEANING = {
    ("answered", "should_answer"): "right to answer",
    ("refused", "should_answer"): "refused in vain",
    ("empty", "should_answer"): "no answer",
    ("answered", "should_refuse"): "answered without evidence",
    ("refused", "should_refuse"): "rightly refused",
    ("empty", "should_refuse"): "no refusal either",
}
RIGHT = frozenset({("answered", "should_answer"), ("refused", "should_refuse")})


def refusals_picture(
    quadrants: Mapping[tuple[str, str], int], unknown: int = 0, *, name: str = "refusals", alone: bool = False
) -> str:
    """Draw the fields: what the answer did against what it should have done, as large as it is often, and its count.

    Args:
        quadrants: of `measures.refusal_scores`: (refused | answered | empty) × (should_refuse | should_answer) → queries.
        unknown: queries of which nobody knows what they call for.
        name: unique in the page.
        alone: to be shown outside a page.
    """
    total = sum(quadrants.values())
    if not total:
        return ""
    columns = [
        column for column in COLUMNS if column[0] != "empty" or any(quadrants.get(("empty", row), 0) for row, _ in ROWS)
    ]
    drawn = [
        text(130 + CELL_W * (place + 0.5), 24, words, class_="faint", text_anchor="middle")
        for place, (_, words) in enumerate(columns)
    ]
    for down, (row, words) in enumerate(ROWS):
        drawn.append(text(118, 40 + CELL_H * (down + 0.5) + 5, words, class_="faint", text_anchor="end"))
        drawn += [
            _field(quadrants.get((column, row), 0), total, (column, row), 130 + CELL_W * place, 40 + CELL_H * down)
            for place, (column, _) in enumerate(columns)
        ]
    about = f"{total} queries. " + "; ".join(
        f"{MEANING[column, row]}: {quadrants.get((column, row), 0)}" for row, _ in ROWS for column, _ in columns
    )
    about += f"; {unknown} more have no label that says what they call for." if unknown else "."
    return picture(
        140 + CELL_W * len(columns), 48 + 2 * CELL_H, "Who was answered and who was refused", about, name, *drawn, alone=alone
    )  # fmt: skip


def _field(count: int, total: int, which: tuple[str, str], x: float, y: float) -> str:
    """A frame, and in it a square whose area is the share of queries."""
    side = (count / total) ** 0.5 * (CELL_H - 12)
    style = "kept" if which in RIGHT else "c1"
    square = {"class": style, "x": x + 8, "y": y + (CELL_H - side) / 2, "width": side, "height": side, "data-n": count}
    frame = {
        "class": "frame",
        "x": x + 2,
        "y": y + 2,
        "width": CELL_W - 4,
        "height": CELL_H - 4,
        "fill": "none",
        "stroke": "var(--line)",
    }
    return "".join(
        (
            element("rect", frame),
            element("rect", square, element("title", {}, f"{MEANING[which]}: {count} of {total}")) if count else "",
            text(x + CELL_W - 14, y + 40, str(count), class_="num strong", text_anchor="end"),
            text(x + CELL_W - 14, y + 62, MEANING[which], class_="faint", text_anchor="end"),
        )
    )
