"""Vector search: exact, and by a faiss index (flat, HNSW, IVF), both scored alike so that their lists can be compared.

Here: building, loading and searching an index of unit vectors by inner product, under a set of allowed positions. Not here:
which vectors go in, what a query may see, how good an index is.

One score for all: the inner product summed in float64 and rounded to float32. It depends on the two vectors only, never
on blocks, threads or the kind of index, so equal vectors tie exactly and the order (score descending, position ascending)
is total. An index finds candidates; their score and order come from the vectors that it stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = ("flat", "hnsw", "ivf")
DEFAULTS: dict[str, Any] = {
    "kind": "hnsw", "m": 32, "ef_construction": 200, "ef_search": 64, "nlist": 64, "nprobe": 8, "seed": 0,
}  # fmt: skip
BLOCK = 16_000_000
"""Scores held in memory at a time by the exact search (float32)."""
NOISE = 1e-5
"""More than float32 products of unit vectors differ from exact ones: wide enough to lose no candidate."""
SPARE = 32
"""Extra candidates taken from an index, so that ties at the cut are decided by the total order."""
IVF_POINTS = 256
"""faiss trains k-means on at most this many points a list."""

Found = tuple[list[np.ndarray], list[np.ndarray]]


@dataclass
class Index:
    """A loaded index.

    Attributes:
        handle: the faiss index.
        kind: flat | hnsw | ivf.
    """

    handle: Any
    kind: str
    _vectors: np.ndarray | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Vectors in it."""
        return int(self.handle.ntotal)

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return int(self.handle.d)

    @property
    def vectors(self) -> np.ndarray:
        """The vectors that it stores, by position."""
        if self._vectors is None:
            if self.kind == "ivf":
                self.handle.make_direct_map()
            self._vectors = (
                self.handle.reconstruct_n(0, self.size) if self.size else np.zeros((0, self.dimension), "f4")
            )
        return self._vectors


def build_index(vectors: np.ndarray, params: Mapping[str, Any] | None = None) -> bytes:
    """Build and serialise an index; the same vectors and parameters give the same bytes.

    Args:
        vectors: float32, one unit row a position.
        params: kind, m, ef_construction, ef_search, nlist, nprobe, seed; what is absent is as in `DEFAULTS`.
            `nlist` is lowered to the number of vectors where there are fewer.

    Raises:
        ValueError: an unknown kind or parameter, or vectors that are not finite rows.
    """
    faiss = _faiss()
    settings = _settings(params)
    rows = _rows(vectors)
    with _one_thread():  # the order of insertion decides the graph, and threads race for it
        index = _empty(rows, settings)
        index.add(rows)
        return bytes(faiss.serialize_index(index).tobytes())


def load_index(blob: bytes) -> Index:
    """Read an index that `build_index` made.

    Raises:
        ValueError: the bytes are an index of another kind.
    """
    faiss = _faiss()
    handle = faiss.deserialize_index(np.frombuffer(blob, dtype=np.uint8))
    kinds = {"IndexFlatIP": "flat", "IndexFlat": "flat", "IndexHNSWFlat": "hnsw", "IndexIVFFlat": "ivf"}
    name = type(handle).__name__
    if name not in kinds:
        raise ValueError(f"the index is a {name}; supported are {', '.join(sorted(kinds))}: build it again")
    return Index(handle, kinds[name])


def search(index: Index, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Found:
    """The first `k` positions that the index finds for each query, best first, with their scores.

    A filter is applied inside the index: an approximate one explores as far as its parameters say and gives fewer than
    `k` where it did not meet enough allowed vectors. No position comes twice, none is −1.

    Args:
        index: from `load_index`.
        queries: float32, one unit row a query.
        k: how many, ≥ 1.
        allowed: positions that may be found, as indexes or as a Boolean mask; None allows all.

    Returns:
        (positions, scores): a list of int64 arrays and a list of float32 arrays, one a query.

    Raises:
        ValueError: k < 1, another dimension, or a mask of another length.
    """
    rows = _queries(queries, k, index.dimension)
    mask = _mask(allowed, index.size)
    if index.kind == "flat" or index.size == 0:
        return exact_search(index.vectors, rows, k, mask)
    if mask is not None and not mask.any():
        return _none(len(rows))
    found = _candidates(index, rows, k, mask)
    return _collect(index.vectors, rows, (np.unique(row[row >= 0]) for row in found), k)


def exact_search(vectors: np.ndarray, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Found:
    """The true first `k` positions for each query; arguments and results as `search`."""
    stored = np.ascontiguousarray(vectors, dtype=np.float32)
    if stored.ndim != 2:
        raise ValueError(f"vectors: expected two dimensions, found shape {stored.shape}")
    rows = _queries(queries, k, stored.shape[1])
    mask = _mask(allowed, len(stored))
    positions = np.arange(len(stored)) if mask is None else np.flatnonzero(mask)
    if not len(positions):
        return _none(len(rows))
    scanned = stored if mask is None else stored[positions]
    return _collect(stored, rows, (positions[near] for near in _nearest(scanned, rows, k)), k)


def over_fetch(find: Callable[[int], Found], groups: np.ndarray, k: int, most: int) -> Found:
    """Search deeper until each list has shown `k` groups, or has no more to show.

    Args:
        find: how many positions -> lists of them with their scores, best first.
        groups: group (chunk, document) of each position.
        k: groups that a list should show, ≥ 1.
        most: positions that can be found at all, ≥ 1.

    Returns:
        As `search`; a list may show more groups than `k`.
    """
    size = min(k, most)
    while True:
        positions, scores = find(size)
        # A list that was not full has no more; one that was, may.
        if size == most or not any(len(row) == size and len(np.unique(groups[row])) < k for row in positions):
            return positions, scores
        size = min(2 * size, most)


def best_of_each(found: Found, groups: np.ndarray) -> Found:
    """Lists with the first, so the best, position of each group only; their order stays."""
    firsts = [np.sort(np.unique(groups[row], return_index=True)[1]) for row in found[0]]
    positions = [row[first] for row, first in zip(found[0], firsts, strict=True)]
    return positions, [row[first] for row, first in zip(found[1], firsts, strict=True)]


def score(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The one score of each row of `vectors` for a query: float64 inner product, rounded to float32."""
    result = np.empty(len(vectors), dtype=np.float32)
    wide = query.astype(np.float64)
    for start in range(0, len(vectors), 4096):
        # A row sum, not a matrix product: its rounding does not depend on how many rows there are.
        block = vectors[start : start + 4096].astype(np.float64) * wide
        result[start : start + 4096] = block.sum(axis=1)
    return result


def _settings(params: Mapping[str, Any] | None) -> dict[str, Any]:
    settings = {**DEFAULTS, **(params or {})}
    if unknown := sorted(set(settings) - set(DEFAULTS)):
        raise ValueError(f"unknown index parameters {unknown}; known are {list(DEFAULTS)}")
    if settings["kind"] not in KINDS:
        raise ValueError(f"unknown index kind {settings['kind']!r}; use one of {', '.join(KINDS)}")
    return settings


def _rows(vectors: np.ndarray) -> np.ndarray:
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(f"vectors: expected rows of at least one number, found shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError(f"vectors: {int((~np.isfinite(rows)).any(axis=1).sum())} rows hold NaN or infinity")
    return rows


def _queries(queries: np.ndarray, k: int, dimension: int) -> np.ndarray:
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}")
    rows = np.ascontiguousarray(queries, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise ValueError(
            f"queries have shape {rows.shape}, the vectors have {dimension} dimensions: embed both with the same model"
        )
    return rows


def _mask(allowed: np.ndarray | None, size: int) -> np.ndarray | None:
    if allowed is None:
        return None
    allowed = np.asarray(allowed)
    if allowed.dtype == np.bool_:
        if allowed.shape != (size,):
            raise ValueError(f"the mask has shape {allowed.shape}, the index holds {size} vectors")
        return allowed
    mask = np.zeros(size, dtype=bool)
    mask[allowed.astype(np.int64)] = True
    return mask


def _none(count: int) -> Found:
    return [np.zeros(0, np.int64) for _ in range(count)], [np.zeros(0, np.float32) for _ in range(count)]


def _empty(rows: np.ndarray, settings: Mapping[str, Any]) -> Any:
    """An index of the kind asked for, trained where it needs it."""
    faiss = _faiss()
    dimension = rows.shape[1]
    if settings["kind"] == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, settings["m"], faiss.METRIC_INNER_PRODUCT)
        index.hnsw.rng = faiss.RandomGenerator(settings["seed"])
        index.hnsw.efConstruction, index.hnsw.efSearch = settings["ef_construction"], settings["ef_search"]
        return index
    flat = faiss.IndexFlatIP(dimension)
    if settings["kind"] == "flat" or not len(rows):
        return flat
    lists = min(settings["nlist"], len(rows))
    index = faiss.IndexIVFFlat(flat, dimension, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed, index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = settings["seed"], 1, IVF_POINTS
    index.nprobe = min(settings["nprobe"], lists)
    index.train(rows)
    index.own_fields = True  # the serialised form holds the quantiser; the Python object must not free it twice
    flat.this.disown()
    return index


def _candidates(index: Index, rows: np.ndarray, k: int, mask: np.ndarray | None) -> np.ndarray:
    """Positions that an approximate index finds: one row a query, −1 where it found none."""
    faiss = _faiss()
    options: dict[str, Any] = {}
    if mask is not None:
        bits = np.packbits(mask, bitorder="little")  # kept alive until the search is over
        options["sel"] = faiss.IDSelectorBitmap(bits)
    if index.kind == "hnsw":
        ef = index.handle.hnsw.efSearch
        # The graph is explored with max(ef, k) candidates in any case: asking for all of them costs nothing.
        wanted, params = max(ef, k), faiss.SearchParametersHNSW(efSearch=ef, **options)
    else:
        wanted, params = k + SPARE, faiss.SearchParametersIVF(nprobe=index.handle.nprobe, **options)
    _, found = index.handle.search(rows, min(wanted, index.size), params=params)
    return np.asarray(found)


def _nearest(vectors: np.ndarray, rows: np.ndarray, k: int) -> Iterator[np.ndarray]:
    """For each query, row numbers among which its first `k` surely are."""
    size = max(1, BLOCK // len(vectors))
    for start in range(0, len(rows), size):
        products = rows[start : start + size] @ vectors.T
        if k >= len(vectors):
            yield from (np.arange(len(vectors)) for _ in products)
            continue
        last = np.partition(products, len(vectors) - k, axis=1)[:, len(vectors) - k]
        for row, least in zip(products, last, strict=True):
            yield np.flatnonzero(row >= least - NOISE)


def _collect(vectors: np.ndarray, rows: np.ndarray, candidates: Iterator[np.ndarray], k: int) -> Found:
    """Score the candidates of each query and keep the first `k` of the total order."""
    positions, scores = [], []
    for query, near in zip(rows, candidates, strict=True):
        exact = score(vectors[near], query)
        order = np.lexsort((near, -exact))[:k]
        positions.append(near[order].astype(np.int64))
        scores.append(exact[order])
    return positions, scores


def _faiss() -> Any:
    """The library, untyped: its stubs lack half of what it has."""
    import faiss

    return faiss


@contextmanager
def _one_thread() -> Iterator[None]:
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
