"""An answer with all that a judge may see of it, put together from the tables.

Here: tables joined by query and answer. Not here: who judges (`transform`), which items of an answer are asked about (`items`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from rag_eval_pipeline.judging.supplied import passages, supplied
from rag_eval_pipeline.judging.verifiers import Passage
from rag_eval_pipeline.text.claims import Claim

Frames = Mapping[str, pl.DataFrame]
QUERIES = 512
"""Queries whose contexts are put together at a time."""


@dataclass(frozen=True)
class Judged:
    """An answer.

    Attributes:
        answer_id: its id.
        query_id: its query.
        sample: which answer of its query, from 1.
        question: what was asked.
        language: of the answer, else of the question.
        answer: what was said.
        asserts: whether it says anything but a refusal.
        claims: in their order.
        citations: those that point to something given: claim (None: the answer as a whole) and places in the context.
        passages: the context, by place.
        facts: gold claims of the query, id and text; empty unless the judge is to look for them.
    """

    answer_id: str
    query_id: str
    sample: int
    question: str
    language: str | None
    answer: str
    asserts: bool
    claims: tuple[Claim, ...]
    citations: tuple[tuple[str | None, tuple[str, ...]], ...]
    passages: tuple[Passage, ...]
    facts: tuple[tuple[str, str], ...] = ()


def answers_of(frames: Frames) -> Iterator[Judged]:
    """Answers that say something, by query and sample; texts of a few hundred queries at a time."""
    said = frames["answers"].filter(pl.col("outcome").is_not_null()).sort("query_id", "sample", "answer_id")
    questions = {
        row[0]: row[1:] for row in frames["prepared_queries"].select("query_id", "text", "language").iter_rows()
    }
    queries = said.select("query_id").unique(maintain_order=True)
    for chosen in queries.iter_slices(QUERIES):
        context = frames["contexts"].join(chosen, on="query_id", how="semi")
        chunks = frames["chunks"].join(context, on="chunk_id", how="semi")
        given = dict(passages(supplied(context, chunks)))
        mine = said.join(chosen, on="query_id", how="semi", maintain_order="left")
        claims, citations, facts = _claims(frames, mine), _citations(frames, mine), _facts(frames, chosen)
        for answer_id, query_id, sample, text, language, outcome in mine.select(
            "answer_id", "query_id", "sample", "answer", "language", "outcome"
        ).iter_rows():
            question, asked_in = questions.get(query_id, ("", None))
            yield Judged(
                answer_id, query_id, sample, question, language or asked_in, text, outcome in ("answered", "hedged"),
                tuple(claims.get(answer_id, ())), tuple(citations.get(answer_id, ())), tuple(given.get(query_id, ())),
                tuple(facts.get(query_id, ())),
            )  # fmt: skip


def _claims(frames: Frames, mine: pl.DataFrame) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    listed = frames["answer_claims"].join(mine, on="answer_id", how="semi").sort("answer_id", "position")
    for answer_id, claim_id, text in listed.select("answer_id", "claim_id", "text").iter_rows():
        found.setdefault(answer_id, []).append(Claim(claim_id, text))
    return found


def _citations(frames: Frames, mine: pl.DataFrame) -> dict[str, list[tuple[str | None, tuple[str, ...]]]]:
    found: dict[str, list[tuple[str | None, tuple[str, ...]]]] = {}
    cited = frames["answer_citations"].filter(pl.col("status") == "resolved").join(mine, on="answer_id", how="semi")
    for answer_id, claim_id, places in (
        cited.sort("answer_id", "position").select("answer_id", "claim_id", "passages").iter_rows()
    ):
        found.setdefault(answer_id, []).append((claim_id, tuple(str(place) for place in places)))
    return found


def _facts(frames: Frames, chosen: pl.DataFrame) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    if "nuggets" in frames:
        mine = frames["nuggets"].join(chosen, on="query_id", how="semi").sort("query_id", "claim_id")
        for query_id, claim_id, text in mine.select("query_id", "claim_id", "text").iter_rows():
            found.setdefault(query_id, []).append((claim_id, text))
    return found
