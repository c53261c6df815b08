"""Several parsers on the same documents: the table `parser_candidates`, from which a user chooses one by their own figures.

Here: how each candidate is run, and one row a document and parser. Not here: what is measured (`quality`), means and paired
differences by class (`stages.comparison`), and the parser that the pipeline goes on with (`transform`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.engine.limits import Limits
from rag_eval_pipeline.stages.candidates import CHOSEN, OTHER_FORMAT
from rag_eval_pipeline.stages.comparison import Asked, Compared
from rag_eval_pipeline.stages.parsing import quality
from rag_eval_pipeline.stages.parsing.candidate import ParserCandidate
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, run
from rag_eval_pipeline.warehouse.measurement import document_of_table
from rag_eval_pipeline.warehouse.table import Table, boolean, conform, integer, number, string, table

Frames = Mapping[str, pl.DataFrame]
Ours = Asked[ParserCandidate, ParsingConfig]

COLUMNS = {
    ("cer", "none"): "cer_raw", ("cer", "nfc+ws"): "cer", ("wer", "none"): "wer_raw", ("wer", "nfc+ws"): "wer",
    ("coverage", "nfc+ws"): "coverage", ("invented", "nfc+ws"): "invented",
    ("word_precision", "nfc+ws"): "word_precision", ("word_recall", "nfc+ws"): "word_recall",
    ("length_ratio", ""): "length_ratio", ("reading_order", "nfc+ws"): "reading_order",
    ("heading_f1", "nfc+ws"): "heading_f1", ("spurious_tables", ""): "spurious_tables",
}  # fmt: skip
"""(metric, form) of a document -> column."""
OF_TABLES = ("teds", "teds_struct", "teds_lenient")
"""Metrics of a reference table; a document has their mean, in which a score below 0 counts as 0: so they are within 0 and 1."""
_METRICS = {metric.name: metric for metric in quality.METRICS}
COMPARED = (
    *(Compared(column, _METRICS[metric], "reference_chars") for column, metric in (("cer", "cer"), ("cer_raw", "cer"))),
    *(Compared(column, _METRICS[metric], "reference_words") for column, metric in (("wer", "wer"), ("wer_raw", "wer"))),
    Compared("coverage", _METRICS["coverage"], "reference_words"),
    *(Compared(name, _METRICS[name]) for name in ("invented", "word_precision", "word_recall", "length_ratio")),
    *(Compared(name, replace(_METRICS[name], low=0.0), "tables_expected") for name in OF_TABLES),
    *(Compared(name, _METRICS[name]) for name in ("reading_order", "heading_f1")),
)
"""What the summary tells of each parser."""


@table(
    "parser_candidates",
    "One row a document and parser of `pipeline.parsing.candidates`, the chosen one among them: what it read and how well.",
)
class ParserCandidates(Table):
    """Figures only; texts stay in the memo."""

    doc_id = string("Document", key=True)
    candidate = string("Name of the candidate; `chosen`: the parser of the pipeline", key=True)
    doc_class = string("Class of the document")
    media = string("Format of the document")
    status = string("As in `parsed`; other_format: the candidate reads this format as the chosen parser does")
    error = string("Why the status is not ok, or a remark; without content", null=True)
    parser = string("What read it", null=True)
    pages = integer("Pages, where the format has them", null=True)
    seconds = number("Time to parse, when it was read", unit="s", null=True, volatile=True)
    characters = integer("Code points read", null=True)
    reference_chars = integer("Characters of the reference text, normalised", null=True)
    reference_words = integer("Words of it", null=True)
    cer = number("Character error rate, nfc+ws", null=True)
    cer_raw = number("Character error rate without normalisation", null=True)
    wer = number("Word error rate, nfc+ws", null=True)
    wer_raw = number("Word error rate without normalisation", null=True)
    coverage = number("Reference words read, in order", null=True)
    invented = number("Words read without a counterpart", null=True)
    word_precision = number("Words read that are in the reference, in any order", null=True)
    word_recall = number("Reference words read, in any order", null=True)
    length_ratio = number(
        "Characters read / expected; without a reference, the median of the class by this parser", null=True
    )
    text_status = string("scored, or why the text was not measured", null=True)
    tables_expected = integer("Reference tables")
    tables_read = integer("Tables read", null=True)
    spurious_tables = number("Tables read without a counterpart", null=True)
    teds = number("Mean TEDS of its reference tables; a missing one counts 0, as one below 0 does", null=True)
    teds_struct = number("The same without content of cells", null=True)
    teds_lenient = number("The same, lenient", null=True)
    reading_order = number("Kendall's τ-b of its blocks", null=True)
    heading_f1 = number("F1 of its headings", null=True)
    compared = boolean("Whether the candidate read this document in its own way")


def parser_candidates(
    documents: pl.DataFrame, chosen: Frames, asked: list[Ours], gold: Gold, settings: Settings
) -> pl.DataFrame:
    """Rows of `ParserCandidates`; none where no candidates are asked for.

    Args:
        documents: the table of that name.
        chosen: tables of the parsing stage.
        asked: candidates.
        gold: references, tables and structure are used.
        settings: as `quality.measure` takes them.
    """
    if not asked:
        return conform(ParserCandidates, [])
    rows: list[dict[str, Any]] = []
    rows += _rows(CHOSEN, documents, documents, chosen, gold, settings)
    for one in asked:
        media = one.candidate.media
        own = documents if media is None else documents.filter(pl.col("media").is_in(list(media)))
        rows += _rows(one.candidate.name, documents, own, _read(own, one), gold, settings)
    return conform(ParserCandidates, rows)


def _read(documents: pl.DataFrame, asked: Ours) -> Frames:
    """The candidate's tables; a document that is broken, hangs or eats all memory is a row with a status."""
    frames = {"documents": documents, **asked.imported()}
    limits = Limits(seconds=asked.config.seconds, memory_mb=asked.config.memory_mb)
    with asked.naming_its_file():
        return run(frames, asked.config, replace(asked.runtime, limits=limits))


def _rows(
    name: str, documents: pl.DataFrame, own: pl.DataFrame, read: Frames, gold: Gold, settings: Settings
) -> Iterator[dict[str, Any]]:
    """One row a document, `other_format` where the candidate doesn't read it in its own way."""
    expected = dict(gold.tables.group_by("doc_id").len().iter_rows())
    found = _figures({**read, "documents": own}, gold, settings)
    tables = dict(read["parsed_tables"].group_by("doc_id").len().iter_rows())
    parsed = {row["doc_id"]: row for row in read["parsed"].drop("html").iter_rows(named=True)}
    for doc_id, doc_class, media in documents.select("doc_id", "doc_class", "media").iter_rows():
        base = {
            "doc_id": doc_id,
            "candidate": name,
            "doc_class": doc_class,
            "media": media,
            "tables_expected": expected.get(doc_id, 0),
        }
        if doc_id not in found:
            yield {**base, "status": OTHER_FORMAT, "compared": False}
            continue
        row = parsed[doc_id]
        yield {
            **base,
            **found[doc_id],
            **{column: row[column] for column in ("status", "error", "parser", "pages", "seconds")},
            "characters": len(row["text"]),
            "tables_read": tables.get(doc_id, 0),
            "compared": True,
        }


def _figures(frames: Frames, gold: Gold, settings: Settings) -> dict[str, dict[str, Any]]:
    """doc_id -> column -> value, from the room's own measures."""
    found: dict[str, dict[str, Any]] = {doc_id: {} for doc_id in frames["documents"]["doc_id"]}
    if not found:
        return found
    measured = quality.measure(frames, gold, None, settings)
    form = pl.col("params").str.json_path_match("$.form").fill_null("")
    of_documents = measured.filter(pl.col("item_type") == "document").select(
        "item_id", "metric", form.alias("form"), "value", "status", "denominator"
    )
    for doc_id, metric, how, value, status, size in of_documents.iter_rows():
        column = COLUMNS.get((metric, how))
        if column is None:
            continue
        found[doc_id][column] = value
        if column == "cer":
            found[doc_id] |= {"text_status": status, "reference_chars": None if size is None else int(size)}
        elif column == "wer" and size is not None:
            found[doc_id]["reference_words"] = int(size)
    means = (
        measured.filter(pl.col("item_type") == "table", pl.col("metric").is_in(OF_TABLES))
        .group_by(document_of_table(pl.col("item_id")).alias("doc_id"), "metric")
        .agg(pl.col("value").clip(0).mean())
        .sort("doc_id", "metric")
    )
    for doc_id, metric, value in means.iter_rows():
        found[doc_id][metric] = value
    return found
