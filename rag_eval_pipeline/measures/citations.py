"""Citations: whether what is cited supports, whether what needs a source has one, and what was cited that does not exist.

Here: ids against ids. Not here: whether a passage supports a claim (judging), marks in a text (`text.claims`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.measures.shares import Share, share


@dataclass(frozen=True)
class CitationScores:
    """Citations of one answer.

    Attributes:
        precision: cited passages that support / cited; a citation is a claim and an id, each once.
        recall: claims with a cited passage that supports them / claims that need one.
        dangling: citations of ids that the answer was not given.
    """

    precision: Share
    recall: Share
    dangling: int


def citation_scores(
    claims: Iterable[Mapping[str, Any]], passages: Collection[str], cited: Sequence[str] | None = None
) -> CitationScores:
    """Precision and recall of citations. An invented id supports nothing, and counts in both.

    None cited: precision has no value (`none_cited`), recall is 0. A claim whose support nobody judged (`supported_by`
    None) has no value where it cites something that exists.

    Args:
        claims: each `cites` (ids), `supported_by` (ids, or None: not judged), and `needs` (default true).
        passages: ids that the answer was given.
        cited: ids that the answer cites as a whole, where its claims cite nothing themselves: each supports if it supports
            any claim, and serves every claim.
    """
    given, rows = _ids(passages), [(_ids(c.get("cites") or ()), _support(c), c.get("needs", True)) for c in claims]
    if cited is not None:
        whole = _ids(cited)
        pairs = [_of_any([support for _, support, _ in rows], each, given) for each in sorted(whole)]
        rows = [(whole, support, needs) for _, support, needs in rows]
        dangling = len(whole - given)
    else:
        pairs = [_supports(support, each, given) for ids, support, _ in rows for each in sorted(ids)]
        dangling = sum(len(ids - given) for ids, _, _ in rows)
    served = [_of_claim(ids, support, given) for ids, support, needs in rows if needs]
    nothing = "no_claims_needing" if rows else "no_claims"
    return CitationScores(
        share([(value, 1.0) for value in pairs], "none_cited", "not_judged"),
        share([(value, 1.0) for value in served], nothing, "not_judged"),
        dangling,
    )


def context_citation_coverage(cited: Iterable[str], supplied: Iterable[str]) -> float:
    """Distinct supplied chunks that are cited / distinct supplied chunks.

    Raises:
        Unmeasured: `empty_context`.
    """
    given = _ids(supplied)
    if not given:
        raise Unmeasured("empty_context")
    return len(given & _ids(cited)) / len(given)


def sources_shown(cited: Iterable[str], supplied: Iterable[str], outcome: str) -> float:
    """1 where an answer names at least one source that it was given.

    Raises:
        Unmeasured: `refused`: a refusal needs none. An empty answer shows none.
    """
    if outcome == "refused":
        raise Unmeasured("refused")
    return float(bool(_ids(cited) & _ids(supplied)))


def _ids(ids: Iterable[str]) -> set[str]:
    if isinstance(ids, str):
        raise ValueError("ids are a list of ids, found one string")
    return set(ids)


def _support(claim: Mapping[str, Any]) -> set[str] | None:
    ids = claim["supported_by"]
    return None if ids is None else _ids(ids)


def _supports(support: set[str] | None, cited: str, given: set[str]) -> float | None:
    if cited not in given:
        return 0.0
    return None if support is None else float(cited in support)


def _of_any(supports: list[set[str] | None], cited: str, given: set[str]) -> float | None:
    values = [_supports(support, cited, given) for support in supports]
    known = [value for value in values if value is not None]
    if 1.0 in known or len(known) == len(values):
        return max(known, default=0.0)
    return None


def _of_claim(ids: set[str], support: set[str] | None, given: set[str]) -> float | None:
    there = ids & given
    if not there:
        return 0.0
    return None if support is None else float(bool(there & support))
