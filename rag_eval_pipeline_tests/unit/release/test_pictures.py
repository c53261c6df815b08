"""A picture's bars are its numbers, and every number that it shows stands in the table it was drawn from."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from rag_eval_pipeline.attribution.order import AFTER, STAGES
from rag_eval_pipeline.release.pictures import COLOURS, flow_picture, waterfall_picture
from rag_eval_pipeline.release.pictures.svg import PAPER, element, picture, text
from rag_eval_pipeline.release.pictures.waterfall import Axis

SVG = "{http://www.w3.org/2000/svg}"


def rows_of(units, queries=10, stages=STAGES):
    """A waterfall in which every unit is a query of its own, as `loss_waterfall` has it."""
    total = max(sum(units.values()) + queries, 1)
    rows, ceiling = [], 1.0
    for position, stage in enumerate((*stages, *AFTER)):
        lost = units.get(stage, 0)
        rows.append(
            {"stage": stage, "position": position, "k": 10, "ceiling_before": ceiling, "ceiling_after": ceiling - lost / total,
             "lost_units": lost, "lost_recall": lost / total, "n_units": total, "recall": 0.0}
        )  # fmt: skip
        ceiling -= lost / total
    return [row | {"recall": ceiling} for row in rows]


def tree(svg):
    return etree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


losses = st.dictionaries(st.sampled_from(STAGES), st.integers(1, 40), max_size=8)


@given(losses, st.integers(1, 200))
def test_the_bars_of_the_waterfall_are_the_losses_on_the_axis(units, served):
    rows = rows_of(units, served)
    drawn = tree(waterfall_picture(rows))
    axis = Axis.of(min(row["ceiling_after"] for row in rows), 825.0)
    bars = {bar.get("data-stage"): bar for bar in drawn.iter(f"{SVG}rect") if bar.get("data-kind") == "lost"}
    assert bars.keys() == units.keys()
    for row in rows:
        if row["lost_units"]:
            bar = bars[row["stage"]]
            assert float(bar.get("x")) == pytest.approx(axis.x(row["ceiling_after"]), abs=1e-5)
            length = float(bar.get("width")) / (axis.x(1) - axis.x(axis.start)) * (1 - axis.start)
            assert length == pytest.approx(row["lost_recall"], abs=1e-6)
    widths = sum(float(bar.get("width")) for bar in bars.values())
    final = next(bar for bar in drawn.iter(f"{SVG}rect") if bar.get("data-kind") == "recall")
    assert widths + float(final.get("width")) == pytest.approx(axis.x(1) - axis.x(axis.start), abs=1e-3)


@given(losses, st.integers(1, 200))
def test_every_number_beside_the_bars_stands_in_the_table(units, served):
    rows = rows_of(units, served)
    drawn = tree(waterfall_picture(rows))
    allowed = {f"−{row['lost_recall']:.3f}" for row in rows} | {str(row["lost_units"]) for row in rows} | {"–"}
    allowed.add(f"{rows[0]['recall']:.3f} recall@10")
    shown = {t.text for t in drawn.iter(f"{SVG}text") if "num" in t.get("class", "") and "faint" not in t.get("class")}
    assert shown <= allowed


@given(losses, st.integers(0, 200))
def test_the_bands_of_the_flow_are_as_wide_as_they_are_many_and_fill_the_stream(units, served):
    rows = rows_of(units, served)
    drawn = tree(flow_picture(rows))
    bands = {p.get("data-stage"): p for p in drawn.iter(f"{SVG}path") if p.get("data-kind") == "lost"}
    kept = next(r for r in drawn.iter(f"{SVG}rect") if r.get("data-kind") == "served")
    assert {stage: int(band.get("data-units")) for stage, band in bands.items()} == units
    total = rows[0]["n_units"]
    assert int(kept.get("data-units")) == total - sum(units.values())
    for band in bands.values():
        assert float(band.get("data-width")) == pytest.approx(230 * int(band.get("data-units")) / total, abs=1e-5)
    heights = [float(band.get("data-width")) for band in bands.values()] + [float(kept.get("height"))]
    assert sum(heights) == pytest.approx(230, abs=1e-3)


def test_bands_leave_in_order_and_none_lies_over_another():
    drawn = tree(flow_picture(rows_of({"source": 3, "parsing": 20, "rank": 5}, 30)))
    bands = [p for p in drawn.iter(f"{SVG}path") if p.get("data-kind") == "lost"]
    edges = []
    for band in bands:
        start = re.match(r"M[\d.]+ ([\d.]+)H", band.get("d"))
        edges.append((float(start[1]), float(start[1]) + float(band.get("data-width"))))
    assert [band.get("data-stage") for band in bands] == ["source", "parsing", "rank"]
    assert all(below[0] == pytest.approx(above[1], abs=1e-2) for below, above in itertools.pairwise(edges))


def test_a_repair_starts_where_the_loss_ended_and_one_that_hurts_goes_the_other_way():
    rows = rows_of({"parsing": 10, "reranking": 5}, 85)
    repairs = {
        "parsing": {"recovered_recall": 0.08, "recovered_low": 0.02, "recovered_high": 0.11},
        "reranking": {"recovered_recall": -0.03, "recovered_low": -0.06, "recovered_high": 0.0},
        "dedup": {"recovered_recall": 0.0, "recovered_low": None, "recovered_high": None},
    }
    drawn = tree(waterfall_picture(rows, repairs))
    bars = {r.get("data-stage"): r for r in drawn.iter(f"{SVG}rect") if r.get("data-kind") == "back"}
    axis = Axis.of(0.85 - 0.06)
    assert bars.keys() == {"parsing", "reranking"}, "a repair that gives nothing back has no bar"
    scale = (axis.x(1) - axis.x(axis.start)) / (1 - axis.start)
    assert float(bars["parsing"].get("x")) == pytest.approx(axis.x(0.9), abs=1e-4)
    assert float(bars["parsing"].get("width")) == pytest.approx(0.08 * scale, abs=1e-4)
    assert float(bars["reranking"].get("x")) == pytest.approx(axis.x(0.82), abs=1e-4)
    assert bars["reranking"].get("class") == "hurt"
    words = " ".join(t.text for t in drawn.iter(f"{SVG}text"))
    assert "+0.080 [+0.020, +0.110]" in words
    assert "−0.030 [−0.060, 0.000]" in words


def test_an_interval_wider_than_the_axis_ends_with_it():
    repair = {"recovered_recall": 0.0, "recovered_low": -0.4, "recovered_high": 1.0}
    drawn = tree(waterfall_picture(rows_of({"parsing": 70, "reranking": 10}, 20), {"parsing": repair}))
    (whisker,) = [p for p in drawn.iter(f"{SVG}path") if p.get("data-kind") == "interval"]
    places = [float(x) for x in re.findall(r"[MH]([0-9.-]+)", whisker.get("d"))]
    axis = Axis.of(0.0)
    assert (min(places), max(places)) == (axis.x(0), axis.x(1)), "recall is never below 0 or above 1"


def test_a_healthy_pipeline_and_one_without_units_are_drawn():
    assert 'data-kind="lost"' not in waterfall_picture(rows_of({}))
    assert "10 served" in flow_picture(rows_of({}))
    assert waterfall_picture([]) == flow_picture([]) == ""


def test_words_and_attributes_are_escaped():
    made = picture(
        1, 1, "<script>", 'a "b" & <c>', "x", text(0, 0, "</text><script>"), element("g", {"data-x": '"><script>'})
    )
    assert "<script>" not in made
    assert tree(made).findtext(f"{SVG}title") == "<script>"


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_from_their_paper(theme):
    paper = luminance(PAPER[theme])
    for pair in COLOURS:
        low, high = sorted((luminance(pair[theme]), paper))
        assert (high + 0.05) / (low + 0.05) >= 4.5, pair


# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
MACHADO = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def lab(colour, matrix):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    rgb = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    if matrix:
        rgb = [min(max(sum(m * c for m, c in zip(row, rgb, strict=True)), 0), 1) for row in matrix]
    xyz = [
        sum(m * c for m, c in zip(row, rgb, strict=True)) / white
        for row, white in zip(
            [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
            [0.9505, 1, 1.089],
            strict=True,
        )
    ]
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", [None, *MACHADO])
def test_neighbouring_stages_can_be_told_apart_also_by_people_who_see_fewer_hues(theme, sight):
    seen = [lab(pair[theme], MACHADO.get(sight)) for pair in COLOURS]
    for number in range(len(seen)):
        a, b = seen[number], seen[(number + 1) % len(seen)]
        distance = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5
        assert distance >= 25, (COLOURS[number], COLOURS[(number + 1) % len(COLOURS)], distance)
