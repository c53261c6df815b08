"""Which documents are editions of one document: a new edition is no duplicate to drop.

Here: who is a revision of whom, by what documents declare or how they are named. Not here: what their labels say (`quality`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

import polars as pl

from rag_eval_pipeline.measures.pairs import connected

_NUMBER = re.compile(r"\d+")


class Edition(NamedTuple):
    """A place in a chain of editions; two places of one chain are revisions of each other.

    Attributes:
        chain: name of the chain.
        place: which edition it is.
    """

    chain: str
    place: str


Editions = Mapping[int, tuple[Edition, ...]]


def editions_of(ids: pl.Series, documents: pl.DataFrame, rule: str, texts: pl.Series) -> dict[int, tuple[Edition, ...]]:
    """Row → its editions, for rows that have some.

    Args:
        ids: doc_id by row.
        documents: doc_id, `supersedes` and `path`.
        rule: `merge`: nothing is an edition. `declared`: documents joined by `supersedes`, over documents that this version
            lacks too. `numbered`: those, and documents whose paths differ in numbers alone ("prices-2025.md", "prices-2026.md")
            while their texts differ.
        texts: clean text by row.
    """
    if rule == "merge":
        return {}
    chains = _declared(documents)
    found: dict[int, tuple[Edition, ...]] = {}
    paths = dict(documents.select("doc_id", "path").iter_rows()) if rule == "numbered" else {}
    for row, doc_id in enumerate(ids):
        mine = [Edition(f"declared:{chains[doc_id]}", doc_id)] if doc_id in chains else []
        path = paths.get(doc_id)
        if path is not None and _NUMBER.search(path):
            # Two files of one text are copies, whatever their numbers.
            mine.append(Edition(f"numbered:{_unnumbered(path)}", " ".join(texts[row].split())))
        if mine:
            found[row] = tuple(mine)
    return found


def declared_pairs(documents: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs of documents of this version in one chain of `supersedes`, smaller doc_id first, sorted."""
    chains = _declared(documents)
    members: dict[str, list[str]] = {}
    for doc_id in sorted(set(documents["doc_id"]) & set(chains)):
        members.setdefault(chains[doc_id], []).append(doc_id)
    return sorted((a, b) for names in members.values() for n, a in enumerate(names) for b in names[n + 1 :])


def _declared(documents: pl.DataFrame) -> dict[str, str]:
    """doc_id → the smallest doc_id of its chain, for documents that supersede or are superseded."""
    linked = documents.filter(pl.col("supersedes").is_not_null()).select("doc_id", "supersedes")
    chains = connected(linked.iter_rows())
    smallest: dict[str, str] = {}
    for doc_id in sorted(chains):
        smallest.setdefault(chains[doc_id], doc_id)
    return {doc_id: smallest[chain] for doc_id, chain in chains.items()}


def _unnumbered(path: str) -> str:
    """A path with each number replaced, and without the extension: an edition may come as another kind of file."""
    return _NUMBER.sub("#", str(PurePosixPath(path).with_suffix("")).casefold())
