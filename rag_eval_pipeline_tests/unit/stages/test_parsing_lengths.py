"""Plausibility of lengths without a reference, against scipy's median absolute deviation."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.stages.parsing.length_quality import LEAST_SPREAD, LIMIT, METRICS, MIN_CLASS, length_rows
from rag_eval_pipeline_tests.sizes import examples


def judged(*documents):
    """Rows by (metric, place). A document: characters, then what differs from a page of a pdf that was read."""
    rows = [
        {
            "doc_id": f"d{number}",
            "doc_class": "letter",
            "media": "pdf",
            "bytes": 1000,
            "status": "ok",
            "pages": 1,
            **more,
        }
        for number, (_, more) in enumerate(documents)
    ]
    frame = pl.DataFrame(rows, schema_overrides={"pages": pl.Int64}).with_columns(
        pl.Series("text", ["x" * length for length, _ in documents])
    )
    found = list(length_rows({"documents": frame.drop("status", "pages", "text"), "parsed": frame}))
    assert len(found) == len(METRICS) * len(documents)
    return {(row["metric"], int(row["item_id"][1:])): row for row in found}


def of(*lengths, **more):
    return [(length, more) for length in lengths]


USUAL = of(*range(1000, 1200, 20))


def test_outliers_of_a_class_are_flagged_with_their_side():
    found = judged(*USUAL, *of(30, 90_000), *of(0, status="empty"))
    status = {place: row["status"] for (name, place), row in found.items() if name == "length_plausible"}
    assert [status[place] for place in (0, 9, 10, 11, 12)] == ["scored", "scored", "too_short", "too_long", "too_short"]
    assert [found["length_plausible", place]["value"] for place in (0, 10, 11, 12)] == [1.0, 0.0, 0.0, 0.0]
    usual = found["length_to_usual", 10]
    assert usual["params"] == '{"per": "page"}'
    assert usual["denominator"] == pytest.approx(float(np.median([*range(1000, 1200, 20), 30, 90_000])), rel=0.01)
    assert usual["value"] == pytest.approx(30 / usual["denominator"])


def test_a_class_too_small_or_a_document_not_read_has_no_value():
    found = judged(*USUAL[:-1], *of(5, doc_class="memo"), *of(0, status="timeout"))
    for metric in (one.name for one in METRICS):
        assert (found[metric, 0]["value"], found[metric, 0]["status"]) == (None, "too_few")
        assert (found[metric, 9]["value"], found[metric, 9]["status"]) == (None, "too_few")
        assert (found[metric, 10]["value"], found[metric, 10]["status"]) == (None, "timeout")


def test_length_is_told_by_page_or_by_byte_and_formats_are_not_mixed():
    long = of(*(100 * length for length, _ in USUAL), pages=100)
    pages = of(*range(300, 320, 2), media="html", pages=None, bytes=40_000)
    found = judged(*USUAL, *long, *pages)
    assert {row["status"] for row in found.values()} == {"scored"}, "a hundred pages are a hundred times as long"
    assert found["length_to_usual", 25]["params"] == '{"per": "byte"}'


def test_alike_documents_allow_what_a_tenth_of_spread_allows():
    found = judged(*of(*[1000] * 10), *of(1300, 1500, 600))
    assert [found["length_plausible", place]["status"] for place in range(9, 13)] == [
        "scored", "scored", "too_long", "too_short",
    ]  # fmt: skip


@examples(30, 1_000)
@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 50)), min_size=1, max_size=40))
def test_the_verdict_is_that_of_scipys_deviation(documents):
    from scipy.stats import median_abs_deviation

    found = judged(*((length, {"pages": pages}) for length, pages in documents))
    rates = np.log([(1 + length) / pages for length, pages in documents])
    spread = max(float(median_abs_deviation(rates, scale=1 / 1.4826)), LEAST_SPREAD)
    for place, rate in enumerate(rates):
        row, away = found["length_plausible", place], (rate - np.median(rates)) / spread
        if len(documents) < MIN_CLASS:
            assert (row["value"], row["status"]) == (None, "too_few")
        elif not math.isclose(abs(away), LIMIT, rel_tol=1e-9):
            assert row["value"] == float(abs(away) < LIMIT)
            assert row["status"] == ("scored" if row["value"] else "too_short" if away < 0 else "too_long")
            assert found["length_to_usual", place]["value"] > 0
