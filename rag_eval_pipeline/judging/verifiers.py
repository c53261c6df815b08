"""One interface for all who verify claims, and the one way to ask them.

Here: what is given and what comes back, and what is refused before or after asking. Not here: any verifier (`lexical`,
`human`, `pairs`), and what verdicts add up to (`measures.answers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from rag_eval_pipeline.text.claims import Claim, check_claims, has_text

Label = Literal["supported", "contradicted", "unsupported"]
LABELS: tuple[str, ...] = get_args(Label)
JUDGED, JUDGE_ERROR = "judged", "judge_error"


class VerifierError(RuntimeError):
    """A verifier can't be used or can't answer; the message says what to do and quotes no text."""


@dataclass(frozen=True)
class Passage:
    """A text that may support claims.

    Attributes:
        passage_id: unique among those given.
        text: what it says.
        language: BCP 47; None where it is not known.
    """

    passage_id: str
    text: str
    language: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one claim.

    Attributes:
        claim_id: of which.
        label: supported, contradicted, unsupported; None where `status` says why there is none.
        status: `judged`, `judge_error`, or another reason.
        score: how sure it is, in the verifier's own unit.
        reason: a short code or the judge's words.
        passages: ids of the passages that the label stands on.
    """

    claim_id: str
    label: Label | None
    status: str = JUDGED
    score: float | None = None
    reason: str | None = None
    passages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.label is not None and self.label not in LABELS:
            raise VerifierError(f"unknown label {self.label!r}; a verdict is one of {', '.join(LABELS)}")
        if (self.label is None) == (self.status == JUDGED):
            raise VerifierError("a verdict has a label and the status judged, or none and a status that says why")


class Verifier(Protocol):
    """Says of each claim whether the evidence supports it."""

    name: str

    def verify(self, claims: Sequence[Claim], evidence: Sequence[Passage]) -> Sequence[Verdict]:
        """One verdict a claim, in any order, joined by claim_id. A claim that it fails on has a verdict without a label."""
        ...


def ask(verifier: Verifier, claims: Sequence[Claim], evidence: Sequence[Passage]) -> list[Verdict]:
    """Verdicts in the order of claims, exactly one each.

    No claims or no text in the evidence: the verifier is not asked, and nothing is supported. Fails closed: verdicts that are
    not exactly one a claim, and a `VerifierError`, make every claim a `judge_error`.

    Raises:
        ClaimError: the claims can't be judged.
        ValueError: two passages have one id.
    """
    check_claims(claims)
    if len({passage.passage_id for passage in evidence}) < len(evidence):
        raise ValueError("two passages have one id; give each its own")
    told = [passage for passage in evidence if has_text(passage.text)]
    if not claims or not told:
        return [Verdict(claim.claim_id, "unsupported", reason="no_text") for claim in claims]
    try:
        verdicts = list(verifier.verify(claims, told))
    except VerifierError as error:
        return _failed(claims, type(error).__name__)
    if Counter(verdict.claim_id for verdict in verdicts) != Counter(claim.claim_id for claim in claims):
        return _failed(claims, "no_partition")
    known = {passage.passage_id for passage in told}
    if any(not set(verdict.passages) <= known for verdict in verdicts):
        return _failed(claims, "unknown_passage")
    by_claim = {verdict.claim_id: verdict for verdict in verdicts}
    return [by_claim[claim.claim_id] for claim in claims]


def _failed(claims: Sequence[Claim], reason: str) -> list[Verdict]:
    return [Verdict(claim.claim_id, None, JUDGE_ERROR, reason=reason) for claim in claims]
