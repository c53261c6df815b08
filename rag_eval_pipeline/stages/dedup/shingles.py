"""Shingles of a text, their hashes, MinHash signatures, and which signatures share a band.

Here: arithmetic on one text or on a matrix of signatures. Not here: which pairs are near-duplicates and who survives
(`transform`), how much each choice of sizes costs (`sweep`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rag_eval_pipeline.text.normalise import normalise

FORM = "nfc+ws+casefold"
SCHEME = "affine32"
"""Pinned: datasketch's schemes give different signatures, and its default has changed before."""
BLOCK = 1024
"""Shingles permuted at a time: half a megabyte at 128 hash functions stays in the cache of a core."""
WINDOW = 64
"""In one bucket each document is compared with so many that follow it: all pairs up to 65 documents, and a chain in larger
buckets, so that 10⁵ copies of one template don't cost 10¹⁰ comparisons."""
MISSED, SPURIOUS = 0.98, 0.02
"""Verified candidates are wrong at no cost but time, so bands are chosen to miss few pairs."""

DENSE = (
    (0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3040, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97F),
    (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFFDC), (0x20000, 0x3FFFF),
)  # fmt: skip
"""Code points of Han, kana, bopomofo and Hangul: one of them says as much as a syllable or word of an alphabet."""
_FIRST = np.array([low for low, _ in DENSE], dtype=np.uint32)
_LAST = np.array([high for _, high in DENSE], dtype=np.uint32)
_MASK = (1 << 64) - 1


def shingles_of(text: str, size: int, dense: int | None = None) -> set[str]:
    """Distinct runs of code points of the normalised text; a shorter text is one shingle, an empty one has none.

    Args:
        text: as it stands.
        size: code points a shingle.
        dense: code points of a shingle that begins with a character of `DENSE`; None: `size`.
    """
    normal = normalise(text, FORM)
    if dense is None or dense == size:
        grams = {normal[start : start + size] for start in range(len(normal) - size + 1)}
    else:
        widths = np.where(is_dense(_codes(normal)), dense, size).tolist()
        grams = {normal[i : i + width] for i, width in enumerate(widths) if i + width <= len(normal)}
    return grams or ({normal} if normal else set())


def is_dense(codes: np.ndarray) -> np.ndarray:
    """Which code points are of `DENSE`."""
    place = np.searchsorted(_FIRST, codes, side="right") - 1
    return (place >= 0) & (codes <= _LAST[np.maximum(place, 0)])


def gram_hashes(text: str, size: int, dense: int | None = None) -> np.ndarray:
    """Hashes of the distinct shingles of `shingles_of`, sorted: uint64, equal where the shingles are.

    Two different shingles have one hash by a chance of 2⁻⁶⁴: the code points are weighed by odd numbers that don't depend on
    the text (multilinear hashing).
    """
    codes = _codes(normalise(text, FORM))
    if not len(codes):
        return np.empty(0, dtype=np.uint64)
    wide = codes.astype(np.uint64)
    if dense is None or dense == size:
        return _distinct(_rolled(wide, min(size, len(wide))))
    thick = is_dense(codes)
    parts = [
        _rolled(wide, width)[chosen[: len(wide) - width + 1]]
        for width, chosen in ((size, ~thick), (dense, thick))
        if width <= len(wide)
    ]
    found = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    return _distinct(found if len(found) else _rolled(wide, len(wide)))


def _distinct(hashes: np.ndarray) -> np.ndarray:
    """Sorted, each once; `np.unique` goes through a table first, which takes ten times as long here."""
    hashes.sort()
    first = np.ones(len(hashes), dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    return hashes[first]


def _codes(normal: str) -> np.ndarray:
    return np.frombuffer(normal.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _rolled(codes: np.ndarray, width: int) -> np.ndarray:
    """A hash of each run of `width` code points."""
    count = len(codes) - width + 1
    total = np.full(count, _odd(-width), dtype=np.uint64)
    for offset in range(width):
        total += codes[offset : offset + count] * np.uint64(_odd(offset))
    total ^= total >> np.uint64(32)
    total *= np.uint64(0x9E3779B97F4A7C15)
    return total ^ (total >> np.uint64(29))


@lru_cache(maxsize=4096)
def _odd(number: int) -> int:
    """The n-th odd multiplier, by splitmix64 (Steele et al. 2014): the same on every machine and with every numpy."""
    z = (number * 0x9E3779B97F4A7C15 + 0x1234567) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) | 1


# Signatures ------------------------------------------------------------------------------------------------------------


def signature_of(hashes: np.ndarray, num_perm: int, seed: int) -> np.ndarray:
    """MinHash signature: uint32, what datasketch's MinHash gives for the upper halves of these hashes."""
    a, b = _permutations(num_perm, seed)
    values = _mixed((hashes >> np.uint64(32)).astype(np.uint32))
    lowest = np.full(num_perm, 0xFFFFFFFF, dtype=np.uint32)
    for start in range(0, len(values), BLOCK):
        permuted = values[start : start + BLOCK, None] * a
        permuted += b
        np.minimum(lowest, permuted.min(axis=0), out=lowest)
    return lowest


def _mixed(values: np.ndarray) -> np.ndarray:
    """MurmurHash3's finalizer, by which datasketch's affine schemes begin."""
    values = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    values = (values ^ (values >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return values ^ (values >> np.uint32(16))


@lru_cache(maxsize=8)
def _permutations(num_perm: int, seed: int) -> Any:
    from datasketch import MinHash

    return MinHash(num_perm=num_perm, seed=seed, scheme=SCHEME).permutations


def packed(signature: np.ndarray) -> str:
    """A signature as text: a list of numbers would take ten times the memory."""
    return base64.b64encode(signature.astype("<u4").tobytes()).decode("ascii")


def unpacked(signatures: Sequence[str], num_perm: int) -> np.ndarray:
    """Signatures as a matrix, uint32 (documents, hash functions)."""
    matrix = np.empty((len(signatures), num_perm), dtype=np.uint32)
    for row, signature in enumerate(signatures):
        matrix[row] = np.frombuffer(base64.b64decode(signature), dtype="<u4")
    return matrix


# Candidates ------------------------------------------------------------------------------------------------------------


def candidates(matrix: np.ndarray, threshold: float, *, verified: bool) -> np.ndarray:
    """Pairs of rows that agree in all hash values of at least one band: int array (pairs, 2), sorted, smaller row first."""
    bands, width = bands_of(threshold, matrix.shape[1], verified)
    multipliers = np.array([_odd(1000 + column) for column in range(width)], dtype=np.uint64)
    found = np.empty(0, dtype=np.int64)
    n = len(matrix)
    for band in range(bands):
        part = matrix[:, band * width : (band + 1) * width].astype(np.uint64)
        keys = (part * multipliers).sum(axis=1, dtype=np.uint64)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        latest = [found]
        for step in range(1, min(WINDOW, n - 1) + 1):
            same = np.flatnonzero(ranked[step:] == ranked[:-step])
            if not len(same):
                break
            latest.append(order[same] * n + order[same + step])
        found = np.unique(np.concatenate(latest))
    return np.stack([found // n, found % n], axis=1).astype(np.int64)


@lru_cache(maxsize=64)
def bands_of(threshold: float, num_perm: int, verified: bool) -> tuple[int, int]:
    """(bands, hash values a band), as datasketch's MinHashLSH weighs missed against spurious candidates; at least two bands."""
    from datasketch import MinHashLSH

    weights = (SPURIOUS, MISSED) if verified else (0.5, 0.5)
    try:
        index = MinHashLSH(threshold=threshold, num_perm=num_perm, weights=weights)
    except ValueError:  # one band would be best, which datasketch refuses; two miss less
        return 2, num_perm // 2
    return int(index.b), int(index.r)


def jaccard(a: set[str], b: set[str]) -> float:
    """Shared / all shingles; two empty sets share nothing."""
    shared = len(a & b)
    union = len(a) + len(b) - shared
    return shared / union if union else 0.0
