"""Which kind of fault acts where, and which stage must be blamed for it: decided before anything is scored.

docs/faults.md says the same in a table; a test compares the two. How a fault is planted belongs in `injector`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["all", "dense", "reranked"]


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Attributes:
        name: as in faults files and manifests.
        stage: the stage that must be blamed.
        layer: the stage output (or file) that it is laid over: parsed | cleaned | dedup | pii_spans | chunks | documents
            | reranker | settings.
        scope: retrievers on which it can act: all, those with a dense lane, or those with a reranker.
        needs: what a corpus must have, in words; "" where any text will do.
        whole: it acts on the whole corpus, has no decoy and counts once.
        paired: it may be one of a pair.
    """

    name: str
    stage: str
    layer: str
    scope: Scope = "all"
    needs: str = ""
    whole: bool = False
    paired: bool = True


KINDS: tuple[Kind, ...] = (
    Kind("dropped_table", "parsing", "parsed", needs="a quote in a block of kind table", paired=False),
    Kind("dropped_page", "parsing", "parsed", needs="pages, one of them without evidence", paired=False),
    Kind("over_long_chunk", "embedding", "chunks", "dense", needs="more text before the quote than the encoder sees"),
    Kind("wrong_tag", "filtering", "documents", needs="a hard filter on a field of documents.jsonl"),
    Kind("false_merge", "dedup", "dedup", needs="documents without evidence, for the decoys"),
    Kind("ocr_digit_flip", "parsing", "parsed", needs="a digit in a critical token"),
    Kind(
        "reading_order",
        "parsing",
        "parsed",
        needs="a paragraph of 60 characters, not in an html document",
        paired=False,
    ),
    Kind("boilerplate_over_removal", "cleaning", "cleaned", needs="a line without evidence, for the decoy"),
    Kind("over_redaction", "pii", "pii_spans", needs="a critical token; pii is on"),
    Kind("cut_quote", "chunking", "chunks", needs="a quote of 30 characters"),
    Kind("harmful_reranker", "reranking", "reranker", "reranked"),
    Kind("starved_index", "indexing", "settings", "dense", whole=True, paired=False),
)
"""Scarcest sites first: planted in this order, so that common kinds don't take the rare ones' documents."""

BY_NAME: dict[str, Kind] = {kind.name: kind for kind in KINDS}

PAIRS: tuple[tuple[str, str], ...] = (
    ("ocr_digit_flip", "boilerplate_over_removal"),
    ("ocr_digit_flip", "over_redaction"),
    ("ocr_digit_flip", "cut_quote"),
    ("ocr_digit_flip", "false_merge"),
    ("ocr_digit_flip", "wrong_tag"),
    ("boilerplate_over_removal", "false_merge"),
    ("boilerplate_over_removal", "wrong_tag"),
    ("over_redaction", "wrong_tag"),
    ("cut_quote", "wrong_tag"),
    ("cut_quote", "harmful_reranker"),
    ("over_long_chunk", "wrong_tag"),
    ("over_long_chunk", "harmful_reranker"),
    ("over_redaction", "harmful_reranker"),
    ("wrong_tag", "harmful_reranker"),
)
"""Kinds that are planted on one unit together, the earlier stage first. Reading order is in none of them."""

DEFAULT_RATE = 0.06
"""Share of the documents with evidence that a kind takes where no faults file says otherwise."""


def default_faults() -> dict[str, dict[str, float]]:
    """Every kind that acts on single documents or queries, at the default rate."""
    return {kind.name: {"rate": DEFAULT_RATE} for kind in KINDS if not kind.whole}
