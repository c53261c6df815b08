"""Several cleaners on the same parsed texts: the table `cleaner_candidates`, from which a user chooses one.

Here: how each candidate is run, and one row a document and cleaner. Not here: what is measured (`quality`), means
and paired differences by class (`stages.comparison`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.candidates import CHOSEN, OTHER_FORMAT
from rag_eval_pipeline.stages.cleaning import quality
from rag_eval_pipeline.stages.cleaning.candidate import CleanerCandidate
from rag_eval_pipeline.stages.cleaning.transform import CleaningConfig, run
from rag_eval_pipeline.stages.comparison import Asked, Compared
from rag_eval_pipeline.warehouse.table import Table, boolean, conform, integer, number, string, table

Frames = Mapping[str, pl.DataFrame]
Ours = Asked[CleanerCandidate, CleaningConfig]

FIGURES = (
    "boilerplate_precision", "boilerplate_recall", "boilerplate_f1", "false_removals_chars", "missed_boilerplate_chars",
    "main_text_precision", "main_text_recall", "main_text_f1", "nfkc_stable", "mixed_script_words", "mojibake",
)  # fmt: skip
_METRICS = {metric.name: metric for metric in quality.METRICS}
COMPARED = tuple(Compared(name, _METRICS[name]) for name in FIGURES)
"""What the summary tells of each cleaner."""


@table(
    "cleaner_candidates",
    "One row a document and cleaner of `pipeline.cleaning.candidates`, the chosen one among them: what it removed and how well.",
)
class CleanerCandidates(Table):
    """Figures only; texts stay in the memo."""

    doc_id = string("Document", key=True)
    candidate = string("Name of the candidate; `chosen`: the cleaner of the pipeline", key=True)
    doc_class = string("Class of the document")
    media = string("Format of the document")
    status = string("As in `cleaned`; other_format: the candidate cleans pages, and this is none")
    error = string("Why the status is not ok, or a remark; without content", null=True)
    cleaner = string("What cleaned it", null=True)
    characters = integer("Code points of the clean text", null=True)
    removed_chars = integer("Non-space code points of the parsed text that are gone", null=True)
    boilerplate_precision = number("Removed characters that are boilerplate / removed", null=True)
    boilerplate_recall = number("Boilerplate characters removed / boilerplate", null=True)
    boilerplate_f1 = number("Harmonic mean of the two", null=True)
    false_removals_chars = number("Main-text characters that were removed", null=True)
    missed_boilerplate_chars = number("Boilerplate characters that were left in", null=True)
    main_text_precision = number("Words of the clean text that are main text", null=True)
    main_text_recall = number("Words of the main text that are in the clean text", null=True)
    main_text_f1 = number("Harmonic mean of the two", null=True)
    nfkc_stable = number("1 where the clean text's NFC and NFKC are equal", null=True)
    mixed_script_words = number("Words that mix look-alike scripts", null=True)
    mojibake = number("1 where the clean text shows a wrong decoding", null=True)
    main_text_status = string("scored, or why the main text was not measured", null=True)
    compared = boolean("Whether the candidate cleaned this document in its own way")


def cleaner_candidates(
    documents: pl.DataFrame, chosen: Frames, asked: list[Ours], gold: Gold, settings: Settings
) -> pl.DataFrame:
    """Rows of `CleanerCandidates`; none where no candidates are asked for.

    Args:
        documents: the table of that name.
        chosen: `parsed`, `blocks` and `cleaned`.
        asked: candidates.
        gold: main text and references are used.
        settings: as `quality.measure` takes them.
    """
    if not asked:
        return conform(CleanerCandidates, [])
    parsed = chosen["parsed"]
    rows = [*_rows(CHOSEN, documents, parsed, chosen["cleaned"], gold, settings)]
    for one in asked:
        own = parsed.filter(pl.col("html").is_not_null()) if one.candidate.pages_only else parsed
        rows += _rows(one.candidate.name, documents, own, _cleaned(own, chosen["blocks"], one), gold, settings)
    return conform(CleanerCandidates, rows)


def _cleaned(parsed: pl.DataFrame, blocks: pl.DataFrame, asked: Ours) -> pl.DataFrame:
    own = blocks.join(parsed.select("doc_id"), on="doc_id", how="semi")
    frames = {"parsed": parsed, "blocks": own, **asked.imported()}
    with asked.naming_its_file():
        return run(frames, asked.config, asked.runtime)["cleaned"]


def _rows(
    name: str, documents: pl.DataFrame, parsed: pl.DataFrame, cleaned: pl.DataFrame, gold: Gold, settings: Settings
) -> Iterator[dict[str, Any]]:
    found = _figures({"parsed": parsed, "cleaned": cleaned}, gold, settings)
    rows = {row["doc_id"]: row for row in cleaned.drop("offsets").iter_rows(named=True)}
    for doc_id, doc_class, media in documents.select("doc_id", "doc_class", "media").iter_rows():
        base = {"doc_id": doc_id, "candidate": name, "doc_class": doc_class, "media": media}
        if doc_id not in rows:
            yield {**base, "status": OTHER_FORMAT, "compared": False}
            continue
        row = rows[doc_id]
        yield {
            **base,
            **found[doc_id],
            **{column: row[column] for column in ("status", "error", "cleaner", "removed_chars")},
            "characters": len(row["text"]),
            "compared": True,
        }


def _figures(frames: Frames, gold: Gold, settings: Settings) -> dict[str, dict[str, Any]]:
    """doc_id -> column -> value, from the room's own measures."""
    found: dict[str, dict[str, Any]] = {doc_id: {} for doc_id in frames["cleaned"]["doc_id"]}
    if not found:
        return found
    measured = quality.measure(frames, gold, None, settings).filter(pl.col("metric").is_in(FIGURES))
    for doc_id, metric, value, status in measured.select("item_id", "metric", "value", "status").iter_rows():
        found[doc_id][metric] = value
        if metric == "main_text_f1":
            found[doc_id]["main_text_status"] = status
    return found
