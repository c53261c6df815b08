"""`python -m rag_eval_pipeline_tests.bench.reading DATA [--only unstructured|tesseract|langid]`: reading, on real sets.

DATA holds the folders unstructured, tesseract and langid. Tables in Markdown.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures import cer, coverage, match_tables, table_score, wer
from rag_eval_pipeline.stages.enriching.quality import measure
from rag_eval_pipeline.stages.enriching.transform import CONFIG, run
from rag_eval_pipeline.stages.parsing import ocr
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, one
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.reading_sets import language_labels, sentences_of, unstructured_tables, unstructured_texts

Row = dict[str, object]


def shown(value: float | None) -> str:
    """Three digits."""
    return "–" if value is None else f"{value:.3f}"


def markdown(rows: list[Row]) -> str:
    """A table."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def unstructured(data: Path) -> Iterator[list[Row]]:
    """The system's texts and tables against the gold ones."""
    yield [
        {
            "text": name, "CER": shown(cer(*pair).value), "CER raw": shown(cer(*pair, "none").value),
            "WER": shown(wer(*pair).value), "coverage": shown(coverage(*pair).coverage.value),
            "invented": shown(coverage(*pair).invented.value), "word P": shown(coverage(*pair).word_precision.value),
            "word R": shown(coverage(*pair).word_recall.value),
        }
        for name, pair in unstructured_texts(data / "unstructured").items()
    ]  # fmt: skip
    rows: list[Row] = []
    for name, (gold, read) in unstructured_tables(data / "unstructured").items():
        matched, spurious = match_tables(gold, read)
        for number, (place, score) in enumerate(matched):
            others = [
                None if place is None else table_score(gold[number], read[place], **options).value
                for options in ({"structure_only": True}, {"lenient": True})
            ]
            rows.append(
                {
                    "table": f"{name} #{number}", "TEDS": shown(score.value), "TEDS-S": shown(others[0]),
                    "lenient": shown(others[1]), "read beyond": len(spurious),
                }
            )  # fmt: skip
    yield rows
    folder, texts = data / "unstructured" / "language-docs", {}
    for suffix in ("txt", "docx", "html", "md"):
        item = {"file": str(folder / f"eng_spa_mult.{suffix}"), "media": suffix}
        texts[suffix] = one(item, ParsingConfig())["parsed"][0]["text"]
    yield [
        {"one text as": suffix, "CER against txt": shown(cer(texts["txt"], text).value), "coverage": shown(coverage(texts["txt"], text).coverage.value)}
        for suffix, text in texts.items()
    ]  # fmt: skip


def tesseract(data: Path) -> Iterator[list[Row]]:
    """eurotext against its text, and turned pages against the upright one, by every engine that is here."""
    folder, rows = data / "tesseract", []
    reference = (folder / "eurotext.txt").read_text("utf-8")
    found = [name for name in ("tesseract", "rapidocr") if name != "tesseract" or ocr.tesseract()]
    for name in found:
        config = ParsingConfig(ocr=name)
        started = time.perf_counter()
        text = _picture(folder / "eurotext.tif", config)
        seconds = time.perf_counter() - started
        row: Row = {"engine": name, "eurotext CER": shown(cer(reference, text).value), "s": f"{seconds:.1f}"}
        words = coverage(reference, text)
        row |= {"word P": shown(words.word_precision.value), "word R": shown(words.word_recall.value)}
        upright = _picture(folder / "phototest.tif", config)
        for turned in ("180", "L", "R"):
            row[f"phototest {turned}"] = shown(
                cer(upright, _picture(folder / f"phototest-rotated-{turned}.png", config)).value
            )
        rows.append(row)
    yield rows


def _picture(path: Path, config: ParsingConfig) -> str:
    return str(one({"file": str(path), "media": "image"}, config)["parsed"][0]["text"])


def langid(data: Path) -> Iterator[list[Row]]:
    """F1 by language, with all languages that the detector knows and with these twelve alone."""
    sentences = sentences_of(data / "langid")
    names = sentences["language"].unique().sort().to_list()
    rows: list[Row] = []
    for what, languages in (("all that it knows", None), ("these twelve", tuple(names))):
        config = CONFIG(languages=languages)
        started = time.perf_counter()
        made = run({"parsed": sentences.select("doc_id", "text")}, config, Runtime.plain())
        seconds = time.perf_counter() - started
        measured = measure({"languages": made["languages"]}, language_labels(sentences), config, Settings())
        normal = measured.filter(pl.col("params") == '{"length": "normal"}')
        f1 = dict(normal.filter(metric="language_f1").select("item_id", "value").iter_rows())
        macro = normal.filter(metric="language_macro_f1")["value"].item()
        rows.append(
            {"languages": what, "macro F1": f"{macro:.4f}", **{name: shown(f1[name]) for name in names}, "sentences/s": f"{len(sentences) / seconds:.0f}"}
        )  # fmt: skip
    yield rows


PARTS = {"unstructured": unstructured, "tesseract": tesseract, "langid": langid}


def main() -> None:
    """Print all parts, or one."""
    parser = argparse.ArgumentParser(prog="python -m rag_eval_pipeline_tests.bench.reading", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", choices=list(PARTS))
    asked = parser.parse_args()
    for name in [asked.only] if asked.only else PARTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        for rows in PARTS[name](asked.data):
            print(f"{markdown(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
