"""What must hold of any bytes that are read as html, and of any two texts that are compared as tables."""

import itertools
import math
from pathlib import Path

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.measures.tables import match_tables, table_score
from rag_eval_pipeline.stages.cleaning.transform import main_lines
from rag_eval_pipeline.stages.parsing.markup import read_html

VARIANTS = ({}, {"structure_only": True}, {"lenient": True})
STATUSES = {"scored", "both_empty", "unreadable_table", "missing_table", "too_large", "too_deep"}


def check_page(data: bytes, path: Path) -> None:
    """A page is refused, or gives text, blocks inside it in order, and tables that can be compared."""
    path.write_bytes(data)
    try:
        rows = read_html(path, None).rows()
    except Refusal as refusal:
        if refusal.status not in {"error", "too_large"}:
            raise
        return
    text, html = rows["parsed"][0]["text"], rows["parsed"][0]["html"]
    text.encode("utf-8")  # no lone surrogates
    html.encode("utf-8")
    assert "\0" not in text
    assert "\r" not in text
    position = 0
    for block in rows["blocks"]:
        assert position <= block["start"] < block["end"] <= len(text), block
        assert text[block["start"] : block["end"]].strip()
        position = block["end"]
    for table in rows["parsed_tables"]:
        same = score(table["html"], table["html"])
        assert same is None or same == 1.0
        if table["start"] is not None:
            assert 0 <= table["start"] < table["end"] <= len(text)
    ranges = main_lines(text, text[len(text) // 3 :])
    assert all(0 <= start < end <= len(text) for start, end in ranges)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))


def check_tables(a: str, b: str) -> None:
    """TEDS is a number, at most 1, symmetric, and 1 of a table and itself; an assignment names each table once."""
    for options in VARIANTS:
        there, back = score(a, b, **options), score(b, a, **options)
        assert (there is None) == (back is None)
        if there is not None and back is not None:
            assert abs(there - back) <= 1e-9, (there, back)
        itself = score(a, a, **options)
        assert itself is None or itself in {0.0, 1.0}
    matched, spurious = match_tables([a, b], [b])
    assert all(one.status in STATUSES and math.isfinite(one.value) and one.value <= 1 for _, one in matched)
    places = [place for place, _ in matched if place is not None]
    assert sorted([*places, *spurious]) == [0]


def score(a: str, b: str, **options: bool) -> float | None:
    """Similarity; None where it is not measured."""
    try:
        found = table_score(a, b, **options)
    except Unmeasured as reason:
        if reason.reason not in STATUSES:
            raise
        return None
    assert found.status in STATUSES
    assert math.isfinite(found.value)
    assert found.value <= 1
    return found.value
