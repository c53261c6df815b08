"""Scores of named entities and of relations: four ways to call an entity right, and triples as a set.

Here: the conventions of nervaluate (SemEval 2013, task 9.1: strict, exact, partial, type) and of seqeval (its entity scores are
`strict` of entities that don't overlap). Not here: redaction and one-to-one overlap (`spans`), which text a span stands in
(the metadata room).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rag_eval_pipeline.measures.pairs import ratio
from rag_eval_pipeline.text.normalise import normalise

Entity = tuple[int, int, str]
Triple = tuple[str, str, str]
ALL = "all"
SCHEMES = ("strict", "exact", "partial", "type")
"""Right where edges and type are equal; edges; edges, half where they overlap; type, of what overlaps."""
LEAST_OVERLAP = 0.01
"""Share of a labelled entity that a prediction must cover to have anything to do with it: nervaluate's default."""


@dataclass(frozen=True)
class EntityCounts:
    """What became of predicted and labelled entities under one scheme. They add up over texts with `+`."""

    correct: int = 0
    incorrect: int = 0
    partial: int = 0
    missed: int = 0
    spurious: int = 0

    def __add__(self, other: EntityCounts) -> EntityCounts:
        return EntityCounts(
            self.correct + other.correct,
            self.incorrect + other.incorrect,
            self.partial + other.partial,
            self.missed + other.missed,
            self.spurious + other.spurious,
        )

    @property
    def labelled(self) -> int:
        """Entities of the label."""
        return self.correct + self.incorrect + self.partial + self.missed

    @property
    def predicted(self) -> int:
        """Entities that were found."""
        return self.correct + self.incorrect + self.partial + self.spurious

    @property
    def right(self) -> float:
        """Right ones, partial ones half."""
        return self.correct + 0.5 * self.partial

    @property
    def precision(self) -> float | None:
        """Right / predicted; None without any."""
        return ratio(self.right, self.predicted)

    @property
    def recall(self) -> float | None:
        """Right / labelled; None without any."""
        return ratio(self.right, self.labelled)

    @property
    def f1(self) -> float | None:
        """2 · right / (labelled + predicted); None only where there is neither."""
        return ratio(2 * self.right, self.labelled + self.predicted)


def entity_scores(labelled: Iterable[Sequence], predicted: Iterable[Sequence]) -> dict[tuple[str, str], EntityCounts]:
    """Counts of one text by (scheme, type), and of all types together as `all`.

    By type, only entities of that type meet each other; for `all` they all do, so that an entity under a wrong type is one
    `incorrect` and not a `missed` and a `spurious`.

    Args:
        labelled: (start, end, type), end exclusive.
        predicted: the same.

    Raises:
        ValueError: an empty or backward span, or a type called `all`.
    """
    gold, found = _checked(labelled), _checked(predicted)
    kinds = sorted({kind for _, _, kind in (*gold, *found)})
    scores = {}
    for scheme in SCHEMES:
        scores[scheme, ALL] = _matched(gold, found, scheme)
        for kind in kinds:
            scores[scheme, kind] = _matched(
                [span for span in gold if span[2] == kind], [span for span in found if span[2] == kind], scheme
            )
    return scores


def macro_f1(scores: Iterable[EntityCounts]) -> float | None:
    """Mean F1 over types with a label or a prediction, as seqeval's macro average; None without any."""
    values = [score.f1 for score in scores if score.f1 is not None]
    return sum(values) / len(values) if values else None


def _checked(spans: Iterable[Sequence]) -> list[Entity]:
    """In order of their places."""
    found = []
    for start, end, kind in spans:
        if not 0 <= start < end:
            raise ValueError(f"entity [{start}, {end}) of type {kind}: needs 0 <= start < end")
        if kind == ALL:
            raise ValueError(f"the type name {ALL!r} is taken by the total; rename it")
        found.append((start, end, kind))
    return sorted(found)


def _matched(gold: list[Entity], found: list[Entity], scheme: str) -> EntityCounts:
    """Each prediction, from left to right, takes one labelled entity that is left, or is spurious."""
    starts = [start for start, _, _ in gold]
    reach = list(accumulate((end for _, end, _ in gold), max))
    free = [True] * len(gold)
    tally = dict.fromkeys(("correct", "incorrect", "partial", "spurious"), 0)
    for span in found:
        outcome, taken = _choice(span, _overlapping(span, gold, starts, reach, free), gold, scheme)
        tally[outcome] += 1
        if taken is not None:
            free[taken] = False
    return EntityCounts(missed=sum(free), **tally)


def _overlapping(span: Entity, gold: list[Entity], starts: list[int], reach: list[int], free: list[bool]) -> list[int]:
    """Labelled entities that are left and that a prediction covers enough of, in order."""
    low, high, _ = span
    index = bisect_left(starts, high) - 1
    touched = []
    while index >= 0 and reach[index] > low:
        start, end, _ = gold[index]
        if free[index] and min(end, high) - max(start, low) >= LEAST_OVERLAP * (end - start):
            touched.append(index)
        index -= 1
    return touched[::-1]


def _choice(span: Entity, touched: list[int], gold: list[Entity], scheme: str) -> tuple[str, int | None]:
    if not touched:
        return "spurious", None
    if scheme == "type":
        alike = [index for index in touched if gold[index][2] == span[2]]
        if alike:
            return "correct", min(alike, key=lambda i: abs(gold[i][0] - span[0]) + abs(gold[i][1] - span[1]))
        return "incorrect", touched[0]
    for index in touched:
        if gold[index][:2] == span[:2] and (scheme != "strict" or gold[index][2] == span[2]):
            return "correct", index
    return "partial" if scheme == "partial" else "incorrect", touched[0]


def relation_scores(labelled: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> tuple[int, int, int]:
    """(right, labelled, predicted) triples of one text, each counted once; texts are compared in `nfc+ws+casefold`.

    Args:
        labelled: (subject, relation, object).
        predicted: the same.

    Raises:
        ValueError: a triple without exactly three parts.
    """
    gold, found = _triples(labelled), _triples(predicted)
    return len(gold & found), len(gold), len(found)


def _triples(given: Iterable[Sequence[str]]) -> set[Triple]:
    made = set()
    for parts in given:
        if len(parts) != 3:
            raise ValueError(f"a relation of {len(parts)} parts; needs subject, relation and object")
        subject, relation, other = (normalise(part, "nfc+ws+casefold") for part in parts)
        made.add((subject, relation, other))
    return made
