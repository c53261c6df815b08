"""Whether the evidence that claims need was among what the answer was given. Never called faithfulness.

Here: ids against ids. Not here: what an answer says (the answering room's judges).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from rag_eval_pipeline.measures.metric import Unmeasured

Contract = Literal["lenient", "zero", "strict"]


def evidence_availability(
    claims: Iterable[Mapping[str, Any] | Collection[str]],
    retrieved: Sequence[str],
    k: int | None = None,
    contract: Contract = "strict",
) -> float:
    """Claims with at least one supporting id in what was retrieved / claims.

    Args:
        claims: each its supporting ids, or a mapping that has them under `supported_by`.
        retrieved: ids the answer was given, best first.
        k: look at the first k only.
        contract: `lenient` gives 1.0 without claims and 0.0 for k ≤ 0; the others refuse both.

    Raises:
        Unmeasured: `no_claims`.
        ValueError: k ≤ 0, or supporting ids given as one string.
    """
    supports = [_supports(claim) for claim in claims]
    if k is not None and k <= 0:
        if contract != "lenient":
            raise ValueError(f"evidence_availability: k must be positive, found {k}")
        return 0.0
    if not supports:
        if contract == "lenient":
            return 1.0
        raise Unmeasured("no_claims")
    given = set(retrieved[:k])
    return sum(1 for ids in supports if given & ids) / len(supports)


def _supports(claim: Mapping[str, Any] | Collection[str]) -> set[str]:
    ids = claim["supported_by"] if isinstance(claim, Mapping) else claim
    if isinstance(ids, str):
        raise ValueError("supporting ids are a list of ids, found one string")
    return set(ids)
