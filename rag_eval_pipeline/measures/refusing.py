"""Refusals against what should have been refused, and why: nothing was to be found, or retrieval missed it.

Here: outcomes and labels, counted. Not here: whether a text refuses (`text.refusals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rag_eval_pipeline.measures.shares import Share, share
from rag_eval_pipeline.text.refusals import OUTCOMES

Reason = Literal["out_of_scope", "retrieval_miss"]


@dataclass(frozen=True)
class RefusalScores:
    """Refusals over queries.

    Attributes:
        precision: refused and should be / refused.
        recall: refused and should be / should be; empty answers are not refused.
        out_of_scope: recall over queries that nothing answers.
        retrieval_miss: recall over queries that something answers which the answer was not given.
        false_refusals: refused / should be answered.
        quadrants: (refused | answered | empty) × (should_refuse | should_answer) → queries.
        unknown: queries of which nobody knows whether the evidence was there; in no figure.
    """

    precision: Share
    recall: Share
    out_of_scope: Share
    retrieval_miss: Share
    false_refusals: Share
    quadrants: dict[tuple[str, str], int]
    unknown: int


def why_refuse(answerable: bool, evidence_available: bool | None) -> Reason | Literal["answer"] | None:
    """What a query calls for: `out_of_scope`, `retrieval_miss` or `answer`; None where that is not known."""
    if not answerable:
        return "out_of_scope"
    if evidence_available is None:
        return None
    return "answer" if evidence_available else "retrieval_miss"


def refusal_scores(queries: Iterable[Mapping[str, Any]]) -> RefusalScores:
    """Precision and recall of refusals, with both reasons apart.

    Args:
        queries: each `answerable` (bool), `evidence_available` (bool, or None where it is not known), and `outcome` of
            `text.refusals`; a hedged answer counts as an answer.

    Raises:
        ValueError: an outcome has another name.
    """
    rows = [(why_refuse(q["answerable"], q.get("evidence_available")), _outcome(q["outcome"])) for q in queries]
    known = [(why, outcome) for why, outcome in rows if why is not None]
    quadrants = Counter((outcome, "should_answer" if why == "answer" else "should_refuse") for why, outcome in known)
    cells = {
        (o, s): quadrants[o, s] for o in ("refused", "answered", "empty") for s in ("should_refuse", "should_answer")
    }

    def of(whys: tuple[str, ...], nothing: str) -> Share:
        return share([(float(outcome == "refused"), 1.0) for why, outcome in known if why in whys], nothing)

    right = [(float(why != "answer"), 1.0) for why, outcome in known if outcome == "refused"]
    return RefusalScores(
        precision=share(right, "no_refusals"),
        recall=of(("out_of_scope", "retrieval_miss"), "nothing_to_refuse"),
        out_of_scope=of(("out_of_scope",), "nothing_to_refuse"),
        retrieval_miss=of(("retrieval_miss",), "nothing_to_refuse"),
        false_refusals=of(("answer",), "nothing_to_answer"),
        quadrants=cells,
        unknown=len(rows) - len(known),
    )


def _outcome(name: str) -> str:
    if name not in OUTCOMES:
        raise ValueError(f"unknown outcome {name!r}; use one of {', '.join(OUTCOMES)}")
    return "answered" if name == "hedged" else name
