"""How a pattern recogniser of ours works: a shape, an arithmetic check, and the words before it that confirm or rule it out.

Here: the machinery, pure and quick. Not here: which shapes there are (`recognizers_es`, `dates`), presidio's recognisers
(`transform`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Found = tuple[int, int, str, float]
REACH = 40
"""Code points before a value in which its context words are looked for; a line break ends them."""


@dataclass(frozen=True)
class Rule:
    """One shape of one entity.

    Attributes:
        entity: type of what it finds.
        shape: compiled; the group `value` is the span where there is one, else the whole match.
        score: confidence of the shape alone.
        check: whether the matched value can be one (check letter, control digits); None: every match is.
        context: words that confirm it, searched in what precedes the value on its line; then the score is `confirmed`.
        confirmed: confidence with such a word.
        against: words that rule it out, searched likewise. The last word before the value decides between the two.
    """

    entity: str
    shape: re.Pattern[str]
    score: float
    check: Callable[[str], bool] | None = None
    context: re.Pattern[str] | None = None
    confirmed: float = 0.85
    against: re.Pattern[str] | None = None

    def find(self, text: str) -> Iterator[Found]:
        """(start, end, entity, score) of every match that passes; scores may be below any threshold."""
        group = "value" if "value" in self.shape.groupindex else 0
        for match in self.shape.finditer(text):
            start, end = match.span(group)
            if self.check is not None and not self.check(text[start:end]):
                continue
            score = self._score(text, start)
            if score > 0:
                yield start, end, self.entity, score

    def _score(self, text: str, start: int) -> float:
        if self.context is None and self.against is None:
            return self.score
        before = text[max(text.rfind("\n", 0, start) + 1, start - REACH) : start]
        confirms, denies = last(self.context, before), last(self.against, before)
        if denies > confirms:
            return 0.0
        return self.confirmed if confirms >= 0 else self.score


def last(words: re.Pattern[str] | None, before: str) -> int:
    """Where the last of some words ends; -1 where there is none."""
    place = -1
    if words is not None:
        for match in words.finditer(before):
            place = match.end()
    return place


def words(*alternatives: str) -> re.Pattern[str]:
    """Whole words or phrases in any case; each alternative is a regular expression."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w)", re.IGNORECASE)


def find_all(rules: Iterable[Rule], text: str, threshold: float) -> list[Found]:
    """What rules find at or above a score; the best score of each place and type."""
    best: dict[tuple[int, int, str], float] = {}
    for rule in rules:
        for start, end, entity, score in rule.find(text):
            if score >= threshold:
                place = (start, end, entity)
                best[place] = max(best.get(place, 0.0), score)
    return [(*place, score) for place, score in sorted(best.items())]
