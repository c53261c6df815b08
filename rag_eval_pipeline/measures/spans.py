"""Scores of typed spans (PII, entities) and of character masks (boilerplate, redaction).

Here: spans of one text; counts add up over texts with `+`. Not here: what a span's errors cost the evidence (attribution).

Always tp + fn = gold spans and tp + fp = predicted spans (characters in mode `char`): nothing is counted twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_eval_pipeline.measures.pairs import ratio

Span = tuple[int, int, str]
ALL = "all"
MODES = ("strict", "overlap", "char")


@dataclass(frozen=True)
class Counts:
    """True positives, false positives and misses. Recall is None without gold, precision without predictions."""

    tp: int = 0
    fp: int = 0
    fn: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn)

    @property
    def gold(self) -> int:
        """Number of gold spans (characters)."""
        return self.tp + self.fn

    @property
    def predicted(self) -> int:
        """Number of predicted spans (characters)."""
        return self.tp + self.fp

    @property
    def precision(self) -> float | None:
        """Tp / predicted."""
        return ratio(self.tp, self.predicted)

    @property
    def recall(self) -> float | None:
        """Tp / gold."""
        return ratio(self.tp, self.gold)

    @property
    def f1(self) -> float | None:
        """2tp / (gold + predicted); None only where there is neither."""
        return ratio(2 * self.tp, self.gold + self.predicted)


def span_scores(gold: Iterable[Sequence], predicted: Iterable[Sequence]) -> dict[tuple[str, str], Counts]:
    """Counts of one text by (mode, type), type `all` included.

    Modes: `strict` (same type and edges), `overlap` (same type, at least one common character; matched one to one, as
    many as possible) and `char` (characters by type; a character under two types counts for each).

    Args:
        gold: (start, end, type), end exclusive.
        predicted: the same.

    Raises:
        ValueError: an empty or backward span, or a type called `all`.
    """
    gold_by, predicted_by = _by_type(gold), _by_type(predicted)
    scores: dict[tuple[str, str], Counts] = {(mode, ALL): Counts() for mode in MODES}
    for kind in sorted(gold_by.keys() | predicted_by.keys()):
        expected, found = gold_by.get(kind, []), predicted_by.get(kind, [])
        strict = (Counter(expected) & Counter(found)).total()
        overlap = _most_matches(expected, found)
        scores["strict", kind] = Counts(strict, len(found) - strict, len(expected) - strict)
        scores["overlap", kind] = Counts(overlap, len(found) - overlap, len(expected) - overlap)
        scores["char", kind] = mask_prf(expected, found)
        for mode in MODES:
            scores[mode, ALL] += scores[mode, kind]
    return scores


def mask_prf(gold: Iterable[Sequence[int]], predicted: Iterable[Sequence[int]]) -> Counts:
    """Counts over characters of ranges (start, end), whatever their type; a character counts once.

    For redaction `fn` are the leaked and `fp` the over-redacted characters.
    """
    expected, found = merge_ranges(gold), merge_ranges(predicted)
    common = _common_length(expected, found)
    return Counts(common, _length(found) - common, _length(expected) - common)


def merge_ranges(ranges: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Sorted, disjoint, non-empty ranges that hold the same characters."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((item[0], item[1]) for item in ranges if item[1] > item[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _by_type(spans: Iterable[Sequence]) -> dict[str, list[tuple[int, int]]]:
    grouped: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for start, end, kind in spans:
        if not 0 <= start < end:
            raise ValueError(f"span [{start}, {end}) of type {kind}: needs 0 <= start < end")
        if kind == ALL:
            raise ValueError(f"the type name {ALL!r} is taken by the total; rename it")
        grouped[kind].append((start, end))
    return grouped


def _most_matches(gold: list[tuple[int, int]], predicted: list[tuple[int, int]]) -> int:
    """Size of the largest one-to-one matching of overlapping ranges (augmenting paths, breadth first)."""
    ordered = sorted(predicted)
    neighbours = [[j for j, (s, e) in enumerate(ordered) if s < end and start < e] for start, end in sorted(gold)]
    owner: dict[int, int] = {}
    return sum(_augment(root, neighbours, owner) for root in range(len(neighbours)))


def _augment(root: int, neighbours: list[list[int]], owner: dict[int, int]) -> bool:
    """Match `root`, moving earlier matches along if needed; `owner` is predicted index -> gold index."""
    reached_from: dict[int, int] = {}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for target in neighbours[node]:
            if target in reached_from:
                continue
            reached_from[target] = node
            if target in owner:
                queue.append(owner[target])
                continue
            _flip(target, root, reached_from, owner)
            return True
    return False


def _flip(target: int, root: int, reached_from: dict[int, int], owner: dict[int, int]) -> None:
    held = {node: index for index, node in owner.items()}
    while True:
        node = reached_from[target]
        owner[target] = node
        if node == root:
            return
        target = held[node]


def _common_length(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    total = i = j = 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return total


def _length(ranges: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)
