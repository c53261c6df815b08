"""The verifier `human`: what people wrote in verdicts.jsonl.

Here: their words as labels, several annotators as one. Not here: how far they agree (`measures.agreement`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rag_eval_pipeline.judging.verifiers import Label, Passage, Verdict
from rag_eval_pipeline.text.claims import Claim, same_words
from rag_eval_pipeline.text.verdicts import label_of

__all__ = ["HumanVerdicts", "HumanVerifier", "label_of"]


class HumanVerdicts:
    """All verdicts of people, by answer.

    Args:
        rows: lines of verdicts.jsonl: answer_id, claim (its text or its id), verdict; annotator and time where they are known.
            A later verdict of one annotator on one claim replaces the earlier.

    Raises:
        ValueError: a verdict is none of the known words.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        last: dict[tuple[str, str, str], tuple[str, Label]] = {}
        for row in rows:
            key = (row["answer_id"], same_words(row["claim"]), row.get("annotator") or "")
            said = (row.get("time") or "", label_of(row["verdict"]))
            if key not in last or said[0] >= last[key][0]:
                last[key] = said
        self._votes: dict[str, dict[str, Counter[Label]]] = defaultdict(lambda: defaultdict(Counter))
        for (answer, claim, _), (_, label) in sorted(last.items()):
            self._votes[answer][claim][label] += 1

    @property
    def answers(self) -> list[str]:
        """Ids of answers that have verdicts, sorted."""
        return sorted(self._votes)

    def of(self, answer_id: str) -> HumanVerifier:
        """The verifier of one answer."""
        return HumanVerifier(self._votes.get(answer_id, {}))


class HumanVerifier:
    """What people said of one answer's claims, by majority.

    A claim that nobody judged is `no_verdict`; without a majority it is `annotators_disagree`. Neither has a label.
    """

    name = "human"

    def __init__(self, votes: Mapping[str, Counter[Label]]) -> None:
        self._votes = votes

    def verify(self, claims: Sequence[Claim], evidence: Sequence[Passage]) -> list[Verdict]:
        """Verdicts by the claim's text, or else its id; evidence is not looked at: people saw it."""
        return [self._verdict(claim) for claim in claims]

    def _verdict(self, claim: Claim) -> Verdict:
        votes = self._votes.get(same_words(claim.text)) or self._votes.get(same_words(claim.claim_id))
        if not votes:
            return Verdict(claim.claim_id, None, "no_verdict")
        label, most = votes.most_common(1)[0]
        if 2 * most <= votes.total():
            return Verdict(claim.claim_id, None, "annotators_disagree", score=most / votes.total())
        return Verdict(claim.claim_id, label, score=most / votes.total())
