"""What of an answer is supported: faithfulness, atomic facts, nuggets, support asserted, entities unseen in the context.

Here: verdicts and assignments that someone else made, counted. Not here: who judges (judging), ids against ids
(`availability`), citations (`citations`), wording (`correctness`), refusals (`refusing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.measures.shares import Share, share
from rag_eval_pipeline.text.analysers import get_analyser
from rag_eval_pipeline.text.claims import has_text
from rag_eval_pipeline.text.normalise import normalise
from rag_eval_pipeline.text.quantities import read, unit_name

SUPPORTED = frozenset({"supported"})
NOT_SUPPORTED = frozenset({"contradicted", "unsupported"})
Verdicts = Mapping[str, Any] | Iterable[Any]
"""claim id → verdict, or pairs of them: `supported`, `contradicted`, `unsupported`, True, False; None or `failed`: none."""
_DENIES = "¬"
ASSIGNMENTS = {"support": 1.0, "partial_support": None, "not_support": 0.0, "failed": None}


def faithfulness(
    claims: Sequence[str], verdicts: Verdicts | None, context: Sequence[str | None] | None = None
) -> float:
    """Claims that a verifier found supported / claims.

    Args:
        claims: their ids, each once.
        verdicts: one a claim, joined by id, never by position.
        context: texts that the answer was given; where it is stated and holds no text, 0 without a look at verdicts.

    Raises:
        Unmeasured: `no_claims`; `judge_error`: the verdicts are not exactly one for each claim, or one of them failed.
        ValueError: a claim id occurs twice.
    """
    if not claims:
        raise Unmeasured("no_claims")
    if context is not None and not any(has_text(text) for text in context):
        return 0.0
    decided = supported_by_claim(claims, verdicts)
    return sum(decided.values()) / len(decided)


def supported_by_claim(claims: Sequence[str], verdicts: Verdicts | None) -> dict[str, bool]:
    """Claim id → whether it is supported; verdicts must partition the claims.

    Raises:
        Unmeasured: `judge_error`.
        ValueError: a claim id occurs twice.
    """
    if repeated := [claim for claim, n in Counter(claims).items() if n > 1]:
        raise ValueError(f"claim id {repeated[0]!r} occurs twice; give each claim its own")
    pairs = _pairs(verdicts)
    given = Counter(claim for claim, _ in pairs)
    if given != Counter(claims):
        missing, strange = len(set(claims) - set(given)), len(set(given) - set(claims))
        twice = sum(n > 1 for n in given.values())
        raise Unmeasured(
            "judge_error", f"{missing} claims have no verdict, {strange} are unknown, {twice} have several"
        )
    found = {claim: _is_supported(verdict) for claim, verdict in pairs}
    return {claim: found[claim] for claim in claims}


def _pairs(verdicts: Verdicts | None) -> list[tuple[str, Any]]:
    if verdicts is None or isinstance(verdicts, str):
        raise Unmeasured("judge_error", "no verdicts")
    pairs = list(verdicts.items()) if isinstance(verdicts, Mapping) else list(verdicts)
    if not all(
        isinstance(p, Sequence) and not isinstance(p, str) and len(p) == 2 and isinstance(p[0], str) for p in pairs
    ):
        raise Unmeasured("judge_error", "verdicts without the id of their claim")
    return [(claim, verdict) for claim, verdict in pairs]


def _is_supported(verdict: Any) -> bool:
    if isinstance(verdict, bool):
        return verdict
    if isinstance(verdict, str) and verdict in SUPPORTED | NOT_SUPPORTED:
        return verdict in SUPPORTED
    raise Unmeasured("judge_error", "a verdict failed or is none of supported, contradicted, unsupported")


def atomic_facts(
    facts: Mapping[str, str], verdicts: Verdicts | None, question: str = "", language: str | None = None
) -> Share:
    """Supported facts / facts, where what is repeated or trivial counts once: padding can't raise it.

    Facts are compared as sets of stems, numbers, names and negations; word order is not looked at. Facts with the same set
    are one, unsupported if any of them is. A supported fact that says no more than another of the same polarity, or than the question, adds
    nothing;
    where all are so, they are one fact together.

    Args:
        facts: id → text.
        verdicts: as `faithfulness`.
        question: what was asked.
        language: of the facts.

    Raises:
        Unmeasured: as `faithfulness`.
    """
    if not facts:
        raise Unmeasured("no_claims")
    decided = supported_by_claim(list(facts), verdicts)
    said: dict[frozenset[str], bool] = {}
    for fact, text in facts.items():
        terms = content_of(text, language)
        said[terms] = said.get(terms, True) and decided[fact]
    asked = content_of(question, language)
    against = [terms for terms, held in said.items() if not held]
    held = [terms for terms, is_held in said.items() if is_held]
    telling = [terms for terms in held if not terms <= asked and not any(_says_less(terms, other) for other in said)]
    counted = len(telling) or int(bool(held) and not against)
    return share([(1.0, 1.0)] * counted + [(0.0, 1.0)] * len(against), "no_claims")


def _says_less(terms: frozenset[str], other: frozenset[str]) -> bool:
    """Whether another fact says all that and more; what denies never says what does not."""
    return terms < other and (_DENIES in terms) == (_DENIES in other)


def content_of(text: str, language: str | None = None) -> frozenset[str]:
    """What a text is about, whatever its order: stems without stop words, numbers and units by value, whether it denies."""
    numbers, denies = read(text, language)
    values = {f"={min(quantity.readings)}" for quantity in numbers}
    units = {quantity.unit for quantity in numbers if quantity.unit and " " not in quantity.unit}
    terms = get_analyser(language or "en").tokens(text)
    words = {unit_name(term) or term for term in terms if not any(c.isdecimal() for c in term)}
    return frozenset(words | values | units | ({_DENIES} if denies else set()))


@dataclass(frozen=True)
class NuggetScores:
    """How many of the facts that an answer should hold it holds.

    Attributes:
        vital: over vital nuggets.
        all: over all; one that is merely okay weighs half.
    """

    vital: Share
    all: Share


def nugget_scores(nuggets: Iterable[Mapping[str, Any]], partial: float = 0.5, okay: float = 0.5) -> NuggetScores:
    """Nugget recall; a failed assignment is unvalued, never unsupported.

    Args:
        nuggets: each `vital` (bool) and `assignment`: support, partial_support, not_support, failed.
        partial: value of a partial support; 0 gives the strict scores.
        okay: weight of a nugget that is not vital; 0 leaves these out.

    Raises:
        ValueError: an assignment has another name.
    """
    items = []
    for index, nugget in enumerate(nuggets):
        name = nugget["assignment"]
        if name not in ASSIGNMENTS:
            raise ValueError(f"nuggets[{index}]: unknown assignment {name!r}; use one of {', '.join(ASSIGNMENTS)}")
        items.append((partial if name == "partial_support" else ASSIGNMENTS[name], bool(nugget["vital"])))
    vital = share([(value, 1.0) for value, is_vital in items if is_vital], "no_vital_nuggets")
    weighted = [(value, 1.0 if is_vital else okay) for value, is_vital in items if is_vital or okay]
    return NuggetScores(vital, share(weighted, "no_nuggets"))


def asserted_without_support(claims: Sequence[str], verdicts: Verdicts | None, outcome: str) -> float:
    """1 where an answer asserts something that is not supported.

    Args:
        claims: their ids.
        verdicts: as `faithfulness`.
        outcome: of `text.refusals`.

    Raises:
        Unmeasured: `refused` or `empty`: it asserts nothing; `no_claims`, `judge_error`.
    """
    if outcome in ("refused", "empty"):
        raise Unmeasured(outcome)
    if not claims:
        raise Unmeasured("no_claims")
    return float(not all(supported_by_claim(claims, verdicts).values()))


def unseen_entities(entities: Iterable[str], context: Sequence[str]) -> list[str]:
    """Entities of an answer that stand nowhere in its context, in order, each once. A flag to look closer, never grounding.

    Compared after NFC, white space and case; an entity stands there as whole words.
    """
    texts = [f" {_words(text)} " for text in context]
    unique = dict.fromkeys(entity for entity in entities if has_text(entity))
    return [entity for entity in unique if not any(f" {_words(entity)} " in text for text in texts)]


def _words(text: str) -> str:
    return " ".join(get_analyser(None, "none", "none").tokens(normalise(text)))


@dataclass(frozen=True)
class FlagScores:
    """A flag against labels. Ratios are None where their denominator is 0."""

    tp: int
    fp: int
    fn: int
    tn: int

    @property
    def precision(self) -> float | None:
        """Flagged and labelled / flagged."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else None

    @property
    def recall(self) -> float | None:
        """Flagged and labelled / labelled."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else None

    @property
    def f1(self) -> float | None:
        """2tp / (2tp + fp + fn)."""
        below = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp / below if below else None


def flag_scores(flagged: Collection[Hashable], labels: Mapping[Hashable, bool]) -> FlagScores:
    """A flag's own precision and recall over labelled items.

    Args:
        flagged: items that have the flag.
        labels: item → whether it should; items without a label are in no count.
    """
    chosen = set(flagged)
    counts = Counter((item in chosen, bool(label)) for item, label in labels.items())
    return FlagScores(counts[True, True], counts[True, False], counts[False, True], counts[False, False])
