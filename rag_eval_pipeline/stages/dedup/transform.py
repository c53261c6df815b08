"""Which documents are near-duplicates, and which one of each cluster is kept. Labels and their judgement belong in `quality`.

Character shingles of the normalised text (no word splitting, so every script counts alike) → MinHash → banding for
candidates (`shingles`) → verified similarity → clusters by union-find, never two editions of one document in one (`revisions`)
→ one survivor a cluster.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from rag_eval_pipeline.stages.dedup.revisions import Editions, editions_of
from rag_eval_pipeline.stages.dedup.shingles import (
    candidates,
    gram_hashes,
    jaccard,
    packed,
    shingles_of,
    signature_of,
    unpacked,
)
from rag_eval_pipeline.stages.dedup.tables import Dedup, DedupEdges
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import Table, conform, integer, string, table

CACHED_SHINGLES = 1_000_000
"""Shingles of documents that are kept while pairs are verified: about 100 MB."""

Pair = tuple[int, int]


@table("dedup_signatures", "One row a document: its MinHash signature. Kept in the memo, not in the warehouse.")
class Signatures(Table):
    """Payload of `one`."""

    doc_id = string("Document", key=True)
    shingles = integer("Distinct shingles; 0 for an empty document")
    signature = string("Hash values, uint32 in base 64")


class DedupConfig(BaseModel):
    """Section `dedup` of corpus.yaml; null is `enabled: false`: every document is kept.

    Attributes:
        shingle: code points a shingle; a shorter text is one shingle.
        dense_shingle: code points of a shingle that begins with a Han, kana or Hangul character; null: as `shingle`, blind to
            the script.
        num_perm: hash functions of the signature.
        threshold: Jaccard similarity from which two documents are near-duplicates.
        verify: `exact` Jaccard of the shingle sets, `minhash` estimate, or `none`: every candidate counts.
        keep: survivor of a cluster. `newest`: not superseded by a member, then latest published_at, else committed_at;
            `longest`: most characters; `first`: smallest doc_id. Ties: smallest doc_id.
        revisions: what is a new edition and so no duplicate, however alike: `declared` what `supersedes` joins; `numbered` also
            what differs in its text and is named alike but for numbers; `merge` nothing.
        seed: of the hash functions.
        imported: take outputs/dedup.jsonl instead (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    enabled: bool = True
    shingle: int = Field(5, ge=1, le=1000)
    dense_shingle: int | None = Field(None, ge=1, le=1000)
    num_perm: int = Field(128, ge=2, le=2048)
    threshold: float = Field(0.8, gt=0, le=1)
    verify: Literal["exact", "minhash", "none"] = "exact"
    keep: Literal["newest", "longest", "first"] = "newest"
    revisions: Literal["declared", "numbered", "merge"] = "declared"
    seed: int = 1
    imported: Switch = Field(False, alias="import")


CONFIG = DedupConfig


def run(frames: Mapping[str, pl.DataFrame], config: DedupConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Find near-duplicates among the clean documents and keep one of each cluster.

    Raises:
        ValueError: an import that is absent or names unknown documents, or a date that is no ISO 8601.
    """
    cleaned = frames["cleaned"].select("doc_id", "text").sort("doc_id")
    if config.imported and config.enabled:
        return _imported(cleaned, frames.get("output:dedup"))
    if not config.enabled:
        return _tables(cleaned, {}, [])
    made = runtime.map("dedup", one, cleaned, config, reads=["text"], writes=[Signatures], failed=failed)
    signatures = made["dedup_signatures"].sort("doc_id")
    pairs, similarities = near_pairs(cleaned["text"], signatures, config)
    documents = frames["documents"]
    editions = editions_of(cleaned["doc_id"], documents, config.revisions, cleaned["text"])
    clusters = clusters_of(pairs, similarities, editions)
    survivors = _survivors(clusters, _preference(cleaned, documents, config.keep))
    shingles = _ShingleSets(cleaned["text"], config)
    edges = _edges(cleaned["doc_id"], pairs, similarities, survivors, shingles, config.verify)
    return _tables(cleaned, survivors, edges)


def one(item: dict[str, Any], config: DedupConfig) -> dict[str, list[dict[str, Any]]]:
    """MinHash signature of one text."""
    hashes = gram_hashes(item["text"], config.shingle, config.dense_shingle)
    signature = packed(signature_of(hashes, config.num_perm, config.seed)) if len(hashes) else ""
    return {"dedup_signatures": [{"shingles": len(hashes), "signature": signature}]}


def failed(item: dict[str, Any], status: str, error: str) -> dict[str, list[dict[str, Any]]]:
    """A document whose signature could not be computed is nobody's duplicate."""
    return {"dedup_signatures": [{"shingles": 0, "signature": ""}]}


# Pairs -----------------------------------------------------------------------------------------------------------------


def near_pairs(
    texts: pl.Series, signatures: pl.DataFrame, config: DedupConfig
) -> tuple[list[Pair], list[float | None]]:
    """Near-duplicate pairs of row numbers (smaller first), in order, with their similarity."""
    rows = np.flatnonzero(signatures["shingles"].to_numpy() > 0)
    if len(rows) < 2:
        return [], []
    matrix = unpacked(signatures["signature"].gather(rows).to_list(), config.num_perm)
    sizes = signatures["shingles"].to_numpy()[rows]
    pairs = candidates(matrix, config.threshold, verified=config.verify != "none")
    if config.verify == "none":
        return [(int(rows[i]), int(rows[j])) for i, j in pairs], [None] * len(pairs)
    if config.verify == "minhash":
        estimates = _estimates(matrix, pairs)
        near = estimates >= config.threshold
        return [(int(rows[i]), int(rows[j])) for i, j in pairs[near]], estimates[near].tolist()
    # Two sets whose sizes differ too much cannot be that similar: no need to build them.
    low, high = sizes[pairs].min(axis=1), sizes[pairs].max(axis=1)
    sets = _ShingleSets(texts, config)
    found, similarities = [], []
    for i, j in pairs[low / high >= config.threshold]:
        similarity = jaccard(sets[int(rows[i])], sets[int(rows[j])])
        if similarity >= config.threshold:
            found.append((int(rows[i]), int(rows[j])))
            similarities.append(similarity)
    return found, list(similarities)


def _estimates(matrix: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Share of equal hash values, in blocks that bound the memory."""
    blocks = [(matrix[block[:, 0]] == matrix[block[:, 1]]).mean(axis=1) for block in _blocks(pairs, 50_000)]
    return np.concatenate(blocks) if blocks else np.empty(0)


def _blocks(pairs: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size]


class _ShingleSets:
    """Shingle sets of rows, the latest ones kept up to a total size."""

    def __init__(self, texts: pl.Series, config: DedupConfig) -> None:
        self._texts, self._config = texts, config
        self._kept: OrderedDict[int, set[str]] = OrderedDict()
        self._total = 0

    def __getitem__(self, row: int) -> set[str]:
        if row in self._kept:
            self._kept.move_to_end(row)
            return self._kept[row]
        grams = shingles_of(self._texts[row], self._config.shingle, self._config.dense_shingle)
        self._kept[row] = grams
        self._total += len(grams)
        while self._total > CACHED_SHINGLES and len(self._kept) > 2:
            self._total -= len(self._kept.popitem(last=False)[1])
        return grams


# Clusters --------------------------------------------------------------------------------------------------------------


def _preference(cleaned: pl.DataFrame, documents: pl.DataFrame, keep: str) -> list[tuple[Any, ...]]:
    """A sort key for each row of `cleaned`; the smallest of a cluster survives. Superseding is decided in the cluster."""
    ids = cleaned["doc_id"].to_list()
    if keep == "first":
        return [(doc_id, None, doc_id) for doc_id in ids]
    if keep == "longest":
        lengths = cleaned["text"].str.len_chars().to_list()
        return [(-length, None, doc_id) for length, doc_id in zip(lengths, ids, strict=True)]
    dates = {
        row["doc_id"]: (-_seconds(row["doc_id"], row["published_at"] or row["committed_at"]), row["supersedes"])
        for row in documents.select("doc_id", "published_at", "committed_at", "supersedes").iter_rows(named=True)
    }
    unknown = (float("inf"), None)
    return [(*dates.get(doc_id, unknown), doc_id) for doc_id in ids]


def _seconds(doc_id: str, stamp: str | None) -> float:
    """Seconds since 1970 of an ISO 8601 time (UTC where it names no zone); a document without one is older than all."""
    if not stamp:
        return -float("inf")
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError as error:
        raise ValueError(
            f"documents.jsonl: {doc_id}: published_at or committed_at is no ISO 8601 date; write e.g. 2026-03-01, "
            "or set pipeline.dedup.keep to longest or first"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _survivors(clusters: Iterable[Sequence[int]], preference: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    """Row → survivor of its cluster."""
    survivors: dict[int, int] = {}
    for members in clusters:
        replaced = {preference[row][1] for row in members} - {None}
        best = min(members, key=lambda row: (preference[row][2] in replaced, preference[row][0], preference[row][2]))
        survivors.update(dict.fromkeys(members, best))
    return survivors


def clusters_of(
    pairs: Sequence[Pair], similarities: Sequence[float | None] = (), editions: Editions | None = None
) -> list[list[int]]:
    """Connected components, each sorted; of pairs that would bring two editions of one document together, the weaker are cut.

    Args:
        pairs: rows, smaller first.
        similarities: by pair; the most alike are joined first. Without editions their order makes no difference.
        editions: row → its places in chains of editions.
    """
    parent: dict[int, int] = {}
    held: dict[int, dict[str, str]] = {}

    def root(row: int) -> int:
        if row not in parent:
            parent[row] = row
            held[row] = dict((editions or {}).get(row, ()))
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    order: Sequence[int] = range(len(pairs))
    if editions:
        alike = [-1.0 if value is None else value for value in similarities] or [0.0] * len(pairs)
        order = sorted(order, key=lambda number: (-alike[number], pairs[number]))
    for number in order:
        low, high = sorted(map(root, pairs[number]))
        mine, other = held[low], held[high]
        if low == high or any(other.get(chain, place) != place for chain, place in mine.items()):
            continue
        parent[high] = low
        mine.update(other)
    groups: dict[int, list[int]] = {}
    for row in sorted(parent):
        groups.setdefault(root(row), []).append(row)
    return list(groups.values())


def _edges(
    ids: pl.Series,
    pairs: Sequence[Pair],
    similarities: Sequence[float | None],
    survivors: Mapping[int, int],
    shingles: _ShingleSets,
    verified: str,
) -> list[dict[str, Any]]:
    """Every pair found, and for every removal its edge to the survivor, also where a chain brought them together.

    A pair whose documents are in two clusters is a revision: alike, and kept apart.
    """
    known = dict(zip(pairs, similarities, strict=True))
    for row, survivor in sorted(survivors.items()):
        pair = (min(row, survivor), max(row, survivor))
        if row != survivor and pair not in known:
            known[pair] = jaccard(shingles[row], shingles[survivor])
    original = set(pairs)
    return [
        edge(ids, pair, similarity, verified if pair in original else "exact", survivors)
        for pair, similarity in sorted(known.items())
    ]


def edge(
    ids: Sequence[str] | pl.Series, pair: Pair, similarity: float | None, verified: str, survivors: Mapping[int, int]
) -> dict[str, Any]:
    """A row of `dedup_edges`. Where both went for a third one, the pair itself removed neither."""
    a, b = pair
    kept, removed = (a, b) if survivors[a] == a else (b, a)
    takes = survivors[removed] == kept != removed
    return {
        "doc_a": ids[a],
        "doc_b": ids[b],
        "similarity": similarity,
        "verified": verified,
        "relation": "duplicate" if survivors[a] == survivors[b] else "revision",
        "kept": ids[kept] if takes else None,
        "removed": ids[removed] if takes else None,
    }


def _tables(
    cleaned: pl.DataFrame, survivors: Mapping[int, int], edges: list[dict[str, Any]]
) -> dict[str, pl.DataFrame]:
    ids = cleaned["doc_id"].to_list()
    smallest: dict[int, str] = {}
    for row, survivor in survivors.items():
        smallest[survivor] = min(ids[row], smallest.get(survivor, ids[row]))
    kept_by = [survivors.get(row, row) for row in range(len(ids))]
    frame = cleaned.select(
        "doc_id",
        pl.Series("survivor", [ids[row] for row in kept_by], dtype=pl.String),
        pl.Series("cluster_id", [smallest.get(row, ids[row]) for row in kept_by], dtype=pl.String),
        pl.when(pl.col("text").str.strip_chars() == "").then(pl.lit("empty")).otherwise(pl.lit("ok")).alias("status"),
    ).with_columns((pl.col("survivor") == pl.col("doc_id")).alias("kept"))
    return {"dedup": conform(Dedup, frame), "dedup_edges": conform(DedupEdges, edges)}


# Import ----------------------------------------------------------------------------------------------------------------


def _imported(cleaned: pl.DataFrame, output: pl.DataFrame | None) -> dict[str, pl.DataFrame]:
    """The user's own removals: each removed document follows its `kept` to a document that stays."""
    if output is None:
        raise ValueError("pipeline.dedup.import is set but outputs/dedup.jsonl is absent; add it or remove `import`")
    rows = {doc_id: row for row, doc_id in enumerate(cleaned["doc_id"])}
    named = sorted({*output["kept"], *output["removed"]} - set(rows))
    if named:
        raise ValueError(f"outputs/dedup.jsonl: {len(named)} documents are not in this version, first {named[:3]}")
    best = output.sort("similarity", "kept", descending=[True, False], nulls_last=True)
    goes_to: dict[int, int] = {}
    for removed, kept in best.select("removed", "kept").iter_rows():
        goes_to.setdefault(rows[removed], rows[kept])
    survivors = {row: _end(row, goes_to, cleaned["doc_id"]) for row in goes_to}
    survivors |= {row: row for row in survivors.values()}
    edges = _import_edges(output)
    return _tables(cleaned, survivors, edges)


def _end(row: int, goes_to: Mapping[int, int], ids: pl.Series) -> int:
    seen = {row}
    while row in goes_to:
        row = goes_to[row]
        if row in seen:
            raise ValueError(
                f"outputs/dedup.jsonl: every document of the cluster of {ids[row]!r} is removed; keep one of them"
            )
        seen.add(row)
    return row


def _import_edges(output: pl.DataFrame) -> list[dict[str, Any]]:
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    for row in output.select("kept", "removed", "similarity").iter_rows(named=True):
        pair = tuple(sorted((row["kept"], row["removed"])))
        similarity, removed = row["similarity"], row["removed"]
        edges[pair] = {
            "doc_a": pair[0],
            "doc_b": pair[1],
            "similarity": similarity,
            "verified": "import",
            "relation": "duplicate",
            "kept": row["kept"],
            "removed": removed,
        }
    return list(edges.values())
