"""What an applied filter wrongly kept out.

Here: eligible gold against admitted ids. Not here: who may see what (corpus predicates) and how filters are made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rag_eval_pipeline.measures.metric import Unmeasured


@dataclass(frozen=True)
class FalseExclusion:
    """Eligible gold that the applied predicate kept out.

    Attributes:
        rate: queries all of whose eligible gold was excluded / queries with eligible gold.
        excluded: those queries, sorted.
        eligible: number of queries with eligible gold.
        document_rate: excluded eligible gold documents / eligible gold documents, over all queries.
    """

    rate: float
    excluded: tuple[str, ...]
    eligible: int
    document_rate: float


def false_exclusion(eligible: Mapping[str, Collection[str]], admitted: Mapping[str, Collection[str]]) -> FalseExclusion:
    """Share of queries whose eligible gold was all excluded by the applied predicate.

    The denominator is fixed before the filter runs: recomputing gold after it would always say 0.

    Args:
        eligible: query -> gold ids that its caller may see, as labelled.
        admitted: query -> ids that the applied predicate admits.

    Raises:
        Unmeasured: `no_eligible_gold`, no query has eligible gold.
        ValueError: a query with eligible gold has no entry in `admitted`.
    """
    asked = {query: set(gold) for query, gold in eligible.items() if gold}
    if not asked:
        raise Unmeasured("no_eligible_gold")
    if missing := sorted(asked.keys() - admitted.keys()):
        raise ValueError(
            f"query {missing[0]!r} has eligible gold but no admitted ids were given; give an empty set if none"
        )
    kept = {query: gold & set(admitted[query]) for query, gold in asked.items()}
    excluded = tuple(sorted(query for query, ids in kept.items() if not ids))
    n_documents = sum(map(len, asked.values()))
    n_excluded = n_documents - sum(map(len, kept.values()))
    return FalseExclusion(len(excluded) / len(asked), excluded, len(asked), n_excluded / n_documents)
