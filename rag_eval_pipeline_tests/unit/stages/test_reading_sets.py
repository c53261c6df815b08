"""Real sets for reading: loaders give what the sets say of themselves, and figures stay within what their labels allow."""

import polars as pl
import pytest
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures import cer, coverage, match_tables, teds
from rag_eval_pipeline.stages.enriching.quality import measure
from rag_eval_pipeline.stages.enriching.transform import CONFIG, run
from rag_eval_pipeline.stages.parsing import ocr
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, one
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.reading_sets import (
    language_labels,
    sentences_of,
    unstructured_tables,
    unstructured_texts,
    write_unstructured,
)

needs_tesseract = pytest.mark.skipif(ocr.tesseract() is None, reason="tesseract is not installed")
RATIOS = {"Bank Good Credit Loan.pptx": 0.923, "Performance-Audit-Discussion.pdf": 0.976, "currency.csv": 0.858}
"""Levenshtein ratios that the set's notes give for the system against the gold texts."""


def test_texts_of_unstructured_have_the_ratios_that_were_published(shared):
    texts = unstructured_texts(shared("data", "unstructured"))
    assert texts.keys() == RATIOS.keys()
    for name, (gold, read) in texts.items():
        indel = 1 - Levenshtein.distance(gold, read, weights=(1, 1, 2)) / (len(gold) + len(read))
        assert indel == pytest.approx(RATIOS[name], abs=0.002), name


def test_error_rates_and_coverage_of_unstructured_agree_with_rapidfuzz(shared):
    for gold, read in unstructured_texts(shared("data", "unstructured")).values():
        a, b = " ".join(gold.split()), " ".join(read.split())
        assert cer(gold, read).value == pytest.approx(Levenshtein.distance(a, b) / len(a), abs=1e-12)
        words = coverage(gold, read)
        assert words.coverage.value <= words.word_recall.value, "in any order at least as many words are found"
        assert 1 - words.invented.value <= words.word_precision.value


def test_tables_of_unstructured_are_loaded_whole_and_scored_within_bounds(shared):
    tables = unstructured_tables(shared("data", "unstructured"))
    assert {name: (len(gold), len(read)) for name, (gold, read) in tables.items()} == {
        "2022-financial-statements-p11.pdf": (1, 1), "IRS-2023-Form-1095-A.pdf": (2, 3),
    }  # fmt: skip
    for gold, read in tables.values():
        assert all(teds(table, table) == 1.0 for table in (*gold, *read))
        matched, spurious = match_tables(gold, read)
        assert len(matched) == len(gold)
        assert len(spurious) == len(read) - len(gold)
        assert all(0 < score.value < 1 for _, score in matched)


def test_the_system_as_imported_outputs_has_a_row_for_every_text_and_table(tmp_path, shared):
    folder = shared("data", "unstructured")
    write_unstructured(tmp_path / "corpora", folder)
    subject = Run(home_of(tmp_path), "unstructured@v1").subject
    quality = subject.kept("parsing_quality")
    texts, tables = unstructured_texts(folder), unstructured_tables(folder)
    rates = quality.filter(metric="cer", params='{"form": "nfc+ws"}').drop_nulls("value")
    assert dict(rates.select("item_id", "value").iter_rows()) == {
        name.replace(" ", "_"): cer(*pair).value for name, pair in texts.items()
    }
    scores = quality.filter(metric="teds").drop_nulls("value")
    assert scores.height == sum(len(gold) for gold, _ in tables.values())
    assert quality.filter(metric="spurious_tables")["value"].sum() == 1


@pytest.mark.parametrize(("name", "media"), [("docx", "docx"), ("html", "html"), ("md", "md")])
def test_one_text_in_several_formats_is_read_alike(shared, name, media):
    folder = shared("data", "unstructured", "language-docs")
    texts = {
        suffix: one({"file": str(folder / f"eng_spa_mult.{suffix}"), "media": kind}, ParsingConfig())["parsed"][0]["text"]
        for suffix, kind in (("txt", "txt"), (name, media))
    }  # fmt: skip
    assert cer(texts["txt"], texts[name]).value <= 0.02
    assert coverage(texts["txt"], texts[name]).coverage.value >= 0.97


def test_a_document_in_two_languages_keeps_both(shared):
    path = shared("data", "unstructured", "language-docs", "eng_spa_mult.md")
    text = path.read_text("utf-8")
    frames = {
        "parsed": pl.DataFrame({"doc_id": ["mult"], "text": [text]}),
        "documents": pl.DataFrame({"doc_id": ["mult"], "language": [None]}, schema={"doc_id": pl.String, "language": pl.String}),
    }  # fmt: skip
    made = run(frames, CONFIG(), Runtime.plain())["section_languages"]
    assert made["language"].unique().sort().to_list() == ["en", "es"]
    for start, end, language in made.select("start", "end", "language").iter_rows():
        part = text[start:end]
        spanish, english = part.count("seres humanos"), part.count("human beings")
        assert (spanish > english) == (language == "es")


# Pages -----------------------------------------------------------------------------------------------------------------


def read_picture(path):
    return one({"file": str(path), "media": "image"}, ParsingConfig(ocr="tesseract"))["parsed"][0]["text"]


@needs_tesseract
def test_eurotext_is_read_with_its_accents(shared):
    folder = shared("data", "tesseract")
    reference, text = (folder / "eurotext.txt").read_text("utf-8"), read_picture(folder / "eurotext.tif")
    assert cer(reference, text).value <= 0.06
    spanish = reference[reference.index("El zorro") :]
    assert coverage(spanish, text).word_recall.value >= 0.75, "with Spanish among the languages, accents survive"


@needs_tesseract
@pytest.mark.full
def test_turned_pages_read_as_the_upright_one(shared):
    folder = shared("data", "tesseract")
    upright = read_picture(folder / "phototest.tif")
    assert len(upright) > 200
    for turned in ("180", "L", "R"):
        assert cer(upright, read_picture(folder / f"phototest-rotated-{turned}.png")).value <= 0.02, turned


# Languages -------------------------------------------------------------------------------------------------------------


def language_f1(sentences):
    made = run({"parsed": sentences.select("doc_id", "text")}, CONFIG(), Runtime.plain())
    rows = measure({"languages": made["languages"]}, language_labels(sentences), CONFIG(), Settings())
    macro = rows.filter(metric="language_macro_f1")
    return {row["params"]: row["value"] for row in macro.iter_rows(named=True)}['{"length": "normal"}']


def test_twelve_languages_are_told_apart_by_sentence(shared):
    sentences = sentences_of(shared("data", "langid"))
    assert sentences["language"].n_unique() == 12
    assert sentences.group_by("language").len()["len"].unique().to_list() == [300]
    some = sentences.group_by("language", maintain_order=True).head(40)
    assert language_f1(some) >= 0.96


@pytest.mark.full
def test_the_macro_f1_of_all_sentences_is_at_least_97_percent(shared):
    assert language_f1(sentences_of(shared("data", "langid"))) >= 0.97
