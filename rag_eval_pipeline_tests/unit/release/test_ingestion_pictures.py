"""Pictures of ingestion: what a table has is drawn, in words too; nothing without figures; small enough for metadata."""

from xml.etree import ElementTree

import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.release.pictures.ingestion import (
    class_picture,
    grid_picture,
    leak_damage_picture,
    quality_pictures,
    sizes_picture,
    sweep_points,
)
from rag_eval_pipeline.stages.dedup.sweep import sweep, without
from rag_eval_pipeline.stages.dedup.transform import CONFIG
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

SVG = "{http://www.w3.org/2000/svg}"


def words(svg):
    root = ElementTree.fromstring(svg)
    assert root.find(f"{SVG}title").text
    assert len(svg.encode()) * 4 / 3 < 60_000
    return root, " ".join(root.itertext())


def curve(points):
    rows = []
    for threshold, leaked, damage in points:
        for name, value in (("swept_leaked_chars", leaked), ("swept_over_redacted_chars", damage)):
            rows.append(measurement(name, "corpus", "all", value, unit="char", params={"threshold": threshold}))
    return measurements(rows)


def test_each_threshold_of_the_curve_is_a_point():
    points = [(0.35, 10.0, 400.0), (0.5, 40.0, 90.0), (1.0, 900.0, 0.0)]
    frame = curve(points)
    assert sweep_points(frame) == points
    root, told = words(leak_damage_picture(frame))
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == 3
    assert float(circles[0].get("cx")) > float(circles[2].get("cx"))
    assert float(circles[0].get("cy")) > float(circles[2].get("cy"))
    assert "900 leaked, 0 masked in vain" in told


def test_a_curve_without_figures_is_no_picture():
    rows = [measurement("swept_leaked_chars", "corpus", "all", None, status="no_gold", params={"threshold": 0.5})]
    assert leak_damage_picture(measurements(rows)) == ""
    assert quality_pictures("pii", measurements(rows)) == {}


@pytest.mark.parametrize("labels", [[("a", "b", True), ("a", "c", False)], []])
def test_the_grid_has_a_cell_a_choice_and_frames_what_is_in_use(labels):
    cleaned = pl.DataFrame(
        {"doc_id": ["a", "b", "c"], "text": ["one long text of words"] * 2 + ["quite another thing"]}
    )
    gold = pl.DataFrame(labels, schema=SCHEMAS["duplicates"], orient="row")
    rows = sweep(cleaned, gold, CONFIG(), [(64, 0.5), (64, 0.8), (128, 0.5), (128, 0.8)])
    root, told = words(grid_picture(rows))
    assert len(root.findall(f"{SVG}rect[@class='c0']")) == 4
    assert len(root.findall(f"{SVG}rect[@class='hurt']")) == 1
    assert ("B³ F1 1.000" in told) == bool(labels)
    assert ("pairs found 1" in told) != bool(labels)
    assert grid_picture(without([(64, 0.5)], CONFIG(), "off")) == ""


def test_sizes_and_classes_are_bars_worst_or_smallest_first():
    dedup = pl.DataFrame({"doc_id": list("abcdef"), "cluster_id": list("aaabbf")})
    root, told = words(sizes_picture(dedup))
    assert "2 clusters of near-duplicates, 3 documents removed" in told
    assert len(root.findall(f"{SVG}rect[@class='kept']")) == 2
    assert sizes_picture(dedup.head(1)) == ""
    rows = [
        measurement("cer", "document", d, v, unit="char", params={"form": "nfc+ws"})
        for d, v in (("x", 0.5), ("y", 0.0))
    ]
    frame = measurements(rows).with_columns(doc_class=pl.Series(["scan", "policy"]))
    _, told = words(class_picture(frame))
    assert told.index("scan (1)") < told.index("policy (1)")
    assert class_picture(frame.clear()) == ""
