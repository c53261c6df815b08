"""The verifier `lexical`: words, numbers, units, dates, names, negation and direction of a claim, looked for in the evidence.

Here: one claim against windows of sentences. No model and no randomness: a baseline that finds what was changed or made up, and
that paraphrase defeats. Not here: entailment (`pairs`), the tables of critical tokens (`text`).
"""

# ruff: noqa: SIM905  (word tables read better as one text)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

from rag_eval_pipeline.judging.verifiers import Label, Passage, Verdict
from rag_eval_pipeline.measures.answers import unseen_entities
from rag_eval_pipeline.text.analysers import get_analyser
from rag_eval_pipeline.text.claims import Claim
from rag_eval_pipeline.text.names import names
from rag_eval_pipeline.text.quantities import Quantity, read, rivals, states
from rag_eval_pipeline.text.sentences import sentences

SUPPORT = 0.4
"""Share of a claim's terms that a window must have to support or contradict it; chosen on half of SciFact's train claims."""
WINDOW = 3
"""Sentences of a window, at most."""
_UP = (
    "increas rais rise rising rose higher high more greater elevat enhanc promot activat induc improv upregulat up-regulat "
    "stimulat accelerat grow grew gain expand strengthen facilitat longer positiv allow includ "
    "aument sub[eií] mayor más alt[oa] mejor permit inclu crec positiv"
).split()
_DOWN = (
    "decreas reduc lower low less fewer smaller inhibit suppress impair downregulat down-regulat block prevent diminish declin "
    "fall fell drop deplet attenuat shorten weaken worsen abolish loss negativ forbid exclud protect "
    "disminu reduc[ei] baj[aóe] menor menos inhib empeor prohíb prohib exclu negativ"
).split()
_DIRECTION = regex.compile(rf"(?i)(?<!\p{{L}})(?:(?P<up>{'|'.join(_UP)})|(?P<down>{'|'.join(_DOWN)}))[\p{{L}}]*")


@dataclass(frozen=True)
class _Said:
    """What a text says, as far as it is compared."""

    terms: frozenset[str]
    quantities: tuple[Quantity, ...]
    denies: bool
    directions: frozenset[str]


@lru_cache(maxsize=20_000)
def _said(text: str, language: str | None) -> _Said:
    pointing = [(m.start(), m.end(), m.lastgroup or "") for m in _DIRECTION.finditer(text)]
    plain = list(text)
    for start, end, _ in pointing:
        plain[start:end] = " " * (end - start)
    terms = get_analyser(language or "en").tokens("".join(plain))
    words = frozenset(term for term in terms if not any(c.isdecimal() for c in term))
    values, denies = read(text, language)
    return _Said(words, tuple(values), denies, frozenset(name for _, _, name in pointing))


def _together(parts: Sequence[_Said]) -> _Said:
    if len(parts) == 1:
        return parts[0]
    return _Said(
        frozenset().union(*(part.terms for part in parts)),
        tuple(quantity for part in parts for quantity in part.quantities),
        any(part.denies for part in parts),
        frozenset().union(*(part.directions for part in parts)),
    )


class LexicalVerifier:
    """A claim against its nearest window of sentences.

    The window is the one with most of the claim's terms, then most of its numbers, then the shortest and the first. Then:

    | window | verdict |
    | --- | --- |
    | has fewer than `support` of the terms | unsupported, `not_covered` |
    | says another value of the same unit, and not the claim's | contradicted, `other_value` |
    | lacks a number, date or code of the claim | unsupported, `missing_value` |
    | the passage lacks a name of the claim | unsupported, `missing_name` |
    | denies where the claim does not, or the reverse; or points the other way; but not both | contradicted, `negation`, `direction` |
    | else | supported |

    Of several passages, one that supports decides; else one that contradicts.

    Args:
        language: of claims; None: English stems, negations of all languages.
        support: share of terms.
        window: sentences, at most.
    """

    name = "lexical"

    def __init__(self, language: str | None = None, support: float = SUPPORT, window: int = WINDOW) -> None:
        self.language, self.support, self.window = language, support, window

    def verify(self, claims: Sequence[Claim], evidence: Sequence[Passage]) -> list[Verdict]:
        """One verdict a claim; it never fails."""
        return [self._verdict(claim, evidence) for claim in claims]

    def _verdict(self, claim: Claim, evidence: Sequence[Passage]) -> Verdict:
        found = [(passage.passage_id, *self._against(claim.text, passage)) for passage in evidence]
        for label in ("supported", "contradicted", "unsupported"):
            chosen = [(score, reason, name) for name, kind, reason, score in found if kind == label]
            if chosen:
                score, reason, _ = max(chosen, key=lambda each: each[0])
                ids = tuple(name for _, _, name in chosen) if label != "unsupported" else ()
                return Verdict(claim.claim_id, label, score=score, reason=reason, passages=ids)
        return Verdict(claim.claim_id, "unsupported", reason="no_text")

    def _against(self, claim: str, passage: Passage) -> tuple[Label, str, float]:
        """Label, reason and share of terms."""
        wanted = _said(claim, self.language)
        best, score = self._nearest(wanted, passage)
        if score < self.support:
            return "unsupported", "not_covered", score
        lacking = [quantity for quantity in wanted.quantities if not states(quantity, best.quantities)]
        if any(rivals(quantity, best.quantities) for quantity in lacking):
            return "contradicted", "other_value", score
        if lacking:
            return "unsupported", "missing_value", score
        if unseen_entities(names(claim, self.language), [passage.text]):
            return "unsupported", "missing_name", score
        denied = wanted.denies != best.denies
        turned = bool(wanted.directions and best.directions and not wanted.directions & best.directions)
        if denied != turned:
            return "contradicted", "negation" if denied else "direction", score
        return "supported", "covered", score

    def _nearest(self, wanted: _Said, passage: Passage) -> tuple[_Said, float]:
        best, chosen, score = (-1.0, -1, 0, 0), _Said(frozenset(), (), False, frozenset()), 0.0
        windows = _windows(passage.text, passage.language or self.language, self.window)
        for number, (length, said) in enumerate(windows):
            share = len(wanted.terms & said.terms) / len(wanted.terms) if wanted.terms else 1.0
            held = sum(states(quantity, said.quantities) for quantity in wanted.quantities)
            if (rank := (share, held, -length, -number)) > best:
                best, chosen, score = rank, said, share
        return chosen, score


@lru_cache(maxsize=4096)
def _windows(text: str, language: str | None, most: int) -> tuple[tuple[int, _Said], ...]:
    """Every run of up to `most` sentences, with its length: the shorter first. Remembered, as passages serve many claims."""
    said = [_said(text[start:end], language) for start, end in sentences(text, language)]
    return tuple(
        (length, _together(said[first : first + length]))
        for length in range(1, most + 1)
        for first in range(len(said) - length + 1)
    )
