"""Candidates: entries of the settings, and their summary against means and differences made by hand."""

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from rag_eval_pipeline.measures import confidence_interval, paired_interval
from rag_eval_pipeline.stages.candidates import settings_of
from rag_eval_pipeline.stages.cleaning import candidate as cleaners
from rag_eval_pipeline.stages.cleaning.transform import CleaningConfig
from rag_eval_pipeline.stages.cleaning.transform import identity as cleaner_identity
from rag_eval_pipeline.stages.comparison import Asked, summary
from rag_eval_pipeline.stages.parsing.comparison import COMPARED, ParserCandidates
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform


def candidates(*entries):
    return ParsingConfig(candidates=list(entries)).candidates


def test_a_name_alone_says_parser_ocr_dpi_or_import():
    config = ParsingConfig(ocr="none", dpi=200)
    asked = candidates("pdfplumber", "tesseract@150", "rapidocr", "import:ours", "my.parsers:Mine")
    settings = [settings_of(config, candidate) for candidate in asked]
    assert [(s.parser, s.ocr, s.dpi, s.imported) for s in settings] == [
        ("pdfplumber", "none", 200, False), ("pypdfium2", "tesseract", 150, False), ("pypdfium2", "rapidocr", 200, False),
        ("pypdfium2", "none", 200, True), ("my.parsers:Mine", "none", 200, False),
    ]  # fmt: skip
    assert [candidate.media for candidate in asked] == [
        frozenset({"pdf"}), frozenset({"pdf", "image"}), frozenset({"pdf", "image"}), None, None,
    ]  # fmt: skip
    assert all(not each.candidates for each in settings)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (["tika"], "unknown parser 'tika'"),
        (["tesseract@20"], "greater than or equal to 72"),
        (["tesseract@many"], "valid integer"),
        (["pdfplumber", "pdfplumber"], "pdfplumber more than once"),
        ([{"name": "chosen", "dpi": 100}], "what tables call the one in use"),
        ([{"name": "same"}], "changes nothing"),
        ([{"name": "both", "import": "ours", "dpi": 100}], "takes no other settings"),
        (["import:../x"], "pattern"),
        ([{"name": "odd", "parserr": "pdfplumber"}], "Extra inputs"),
    ],
)
def test_a_wrong_entry_is_refused(entries, told):
    with pytest.raises(ValidationError, match=told):
        candidates(*entries)


def test_candidates_are_no_part_of_what_a_stage_is():
    for config, entry in ((ParsingConfig, "pdfplumber"), (CleaningConfig, "justext")):
        assert config(candidates=[entry]).model_dump(mode="json") == config().model_dump(mode="json")
        assert config(candidates=None).candidates == ()


def test_a_refused_import_names_the_file_of_the_candidate():
    (entry,) = candidates("import:ours")
    asked = Asked(entry, ParsingConfig(imported=True), Runtime.plain(), pl.DataFrame())
    with pytest.raises(ValueError, match=r"^outputs/parsed/ours\.jsonl: 1 documents"), asked.naming_its_file():
        raise ValueError("outputs/parsed.jsonl: 1 documents are not in this version")


def test_a_cleaner_that_is_not_installed_is_refused_with_its_extra(monkeypatch):
    monkeypatch.setattr(cleaners, "find_spec", lambda _name: None)
    with pytest.raises(
        ValueError, match=r"html is resiliparse, which is not installed.*rag_eval_pipeline\[resiliparse\]"
    ):
        cleaner_identity(CleaningConfig(html="resiliparse"))
    with pytest.raises(ValidationError, match="unknown cleaner 'boilerpipe'; use trafilatura, justext, resiliparse"):
        CleaningConfig(candidates=["boilerpipe"])


# Summary ---------------------------------------------------------------------------------------------------------------


def rows_of(values, candidate, doc_class="policy", **more):
    """Rows of a candidate: `values` by document, None where it has none."""
    return [
        {
            "doc_id": f"{doc_class}-{number:03}", "candidate": candidate, "doc_class": doc_class, "media": "pdf", "status": "ok",
            "tables_expected": 0, "compared": True, "cer": value, "coverage": None if value is None else 1 - min(value, 1),
            "reference_chars": 10 + number, "seconds": 0.5, "pages": 2, **more,
        }
        for number, value in enumerate(values)
    ]  # fmt: skip


def summarised(rows, **which):
    frame = conform(ParserCandidates, rows)
    found = summary({"parsing": (frame, COMPARED)}, draws=500).filter(**which)
    assert found.height == 1
    return found.row(0, named=True)


def test_means_and_paired_differences_are_those_of_the_measures():
    rng = np.random.default_rng(7)
    chosen, other = rng.uniform(0, 0.3, 40), rng.uniform(0, 0.2, 40)
    rows = [*rows_of(chosen, "chosen"), *rows_of(other, "pdfplumber"), *rows_of([0.5] * 3, "chosen", "scan"),
            *rows_of([None] * 3, "pdfplumber", "scan", status="other_format")]  # fmt: skip
    found = summarised(rows, candidate="pdfplumber", doc_class="policy", metric="coverage")
    mean = confidence_interval(1 - other, low=0, high=1, draws=500)
    paired = paired_interval(1 - other, 1 - chosen, draws=500)
    assert (found["mean"], found["mean_low"], found["mean_high"]) == pytest.approx((mean.mean, mean.low, mean.high))
    assert (found["delta"], found["delta_low"], found["delta_high"]) == pytest.approx(
        (paired.mean, paired.low, paired.high)
    )
    assert (found["n_pairs"], found["direction"], found["is_chosen"]) == (40, "better", False)
    everything = summarised(rows, candidate="pdfplumber", doc_class="all", metric="coverage")
    assert (everything["n_expected"], everything["n_valued"], everything["n_pairs"]) == (43, 40, 40)
    assert everything["delta"] == pytest.approx(paired.mean), "only over documents that both have a value of"


def test_micro_weighs_by_the_reference_and_time_is_by_page():
    found = summarised(rows_of([0.1, 0.4], "chosen"), metric="cer", doc_class="all")
    assert found["micro"] == pytest.approx((0.1 * 10 + 0.4 * 11) / 21)
    assert found["mean"] == pytest.approx(0.25)
    assert found["seconds_per_page"] == pytest.approx(1.0 / 4)
    assert (found["interval"], found["delta"], found["delta_method"]) == ("no_bounds", None, None)


def test_intervals_of_table_scores_stay_within_zero_and_one():
    rows = [{**row, "teds": score, "tables_expected": 1} for row, score in zip(rows_of([0.1] * 4, "chosen"), [0, 0, 0.1, 0], strict=True)]  # fmt: skip
    found = summarised(rows, metric="teds", doc_class="all")
    assert (found["interval"], found["mean"]) == ("bounded", pytest.approx(0.025))
    expected = confidence_interval([0, 0, 0.1, 0], low=0, high=1)
    assert 0 <= found["mean_low"] == pytest.approx(expected.low)
    assert 1 >= found["mean_high"] == pytest.approx(expected.high)


def test_equal_error_rates_of_few_documents_have_a_difference_and_no_interval():
    rows = [*rows_of([0.0] * 10, "chosen"), *rows_of([0.0] * 10, "pdfplumber")]
    found = summarised(rows, candidate="pdfplumber", metric="cer", doc_class="all")
    assert (found["delta"], found["delta_low"], found["delta_method"]) == (0.0, None, "no_bounds")
    bounded = summarised(rows, candidate="pdfplumber", metric="coverage", doc_class="all")
    assert bounded["delta_low"] < 0 < bounded["delta_high"]


def test_a_candidate_without_a_value_has_no_mean_and_says_why():
    rows = [*rows_of([0.1], "chosen"), *rows_of([None], "pymupdf", status="other_format", seconds=None)]
    found = summarised(rows, candidate="pymupdf", doc_class="all", metric="cer")
    assert (found["mean"], found["delta"], found["n_pairs"]) == (None, None, 0)
    assert (found["interval"], found["delta_method"]) == ("no_values", "no_values")
    assert found["n_by_status"] == '{"other_format": 1}'
    assert found["seconds_per_page"] is None


def test_no_candidates_no_rows():
    assert summary({"parsing": (conform(ParserCandidates, []), COMPARED)}).is_empty()
    assert isinstance(summary({}), pl.DataFrame)
