"""All that is known of one query's answer, in one place: what the measures of the room look at.

Here: tables joined by query. Not here: any figure (`quality`, `supporting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.relevance import unit_state
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.supplied import supplied
from rag_eval_pipeline.measures.evidence import held_by_ranges
from rag_eval_pipeline.stages.answering.evidence import trace
from rag_eval_pipeline.text.marks import without_marks

NO_ANSWER = "no_answer"
Frames = Mapping[str, pl.DataFrame]
Row = dict[str, Any]


@dataclass(frozen=True)
class View:
    """One query of the measured split.

    Attributes:
        query_id: the query.
        text: what is asked.
        language: of the query.
        answerable: whether anything answers it, as gold says.
        state: `answered` where something was said that is no refusal; else `refused`, `empty`, `no_answer`, or the status of a
            failed answerer.
        answer: the measured answer; None where there is none at all.
        said: its text without citation marks.
        samples: all answers of the query.
        claims: its claims.
        citations: its citations.
        verdicts: verifier -> claim id -> verdict.
        opinions: (judge, rubric) -> the row of `judge_evals`.
        passages: place in the context -> text.
        chunks: chunks of the context.
        documents: documents of the context.
        units: evidence units that the caller may see, with `given` and `used`.
        gold_state: judged | ineligible | no_gold.
        nuggets: gold claims.
        right: gold answers.
    """

    query_id: str
    text: str
    language: str | None
    answerable: bool
    state: str
    answer: Row | None
    said: str
    samples: Sequence[Row]
    claims: Sequence[Row]
    citations: Sequence[Row]
    verdicts: Mapping[str, Mapping[str, Row]]
    opinions: Mapping[tuple[str, str], Row]
    passages: Mapping[str, str]
    chunks: frozenset[str]
    documents: frozenset[str]
    units: Sequence[Row]
    gold_state: str
    nuggets: Sequence[Row]
    right: Sequence[str]
    given_ids: frozenset[str] = field(default_factory=frozenset)

    @property
    def available(self) -> bool | None:
        """Whether the context held something to answer with; None where nobody labelled what would be.

        One unit of evidence is enough, of numbered hops one of each. Without evidence, one supported gold claim is. Nothing
        answers a query that gold calls unanswerable.
        """
        if not self.answerable:
            return False
        if self.units:
            hops: dict[Any, bool] = {}
            for unit in self.units:
                hops[unit["hop"]] = hops.get(unit["hop"], False) or unit["given"]
            return all(hops.values())
        supports = [nugget["supported_by"] for nugget in self.nuggets if nugget["supported_by"]]
        return any(self.given_ids & set(ids) for ids in supports) if supports else None

    @property
    def outcome(self) -> str:
        """As `measures.refusing` counts it; what failed said nothing."""
        return str(self.answer["outcome"]) if self.answer is not None and self.answer["outcome"] else "empty"


def views(frames: Frames, gold: Gold, settings: Settings) -> Iterator[View]:
    """A view for each query of the measured split, in the order of ids."""
    queries = gold.measured(settings.evaluate.split).sort("query_id")
    units = _units(frames, queries, settings)
    states = dict(unit_state(frames["evidence_units"], queries).iter_rows())
    languages = dict(frames["prepared_queries"].select("query_id", "language").iter_rows())
    answers = _grouped(frames["answers"].sort("query_id", "sample"), "query_id")
    claims = _grouped(frames["answer_claims"].sort("answer_id", "position"), "answer_id")
    citations = _grouped(frames["answer_citations"].sort("answer_id", "position"), "answer_id")
    nobody = pl.DataFrame(schema={"answer_id": pl.String})
    verdicts = _grouped(frames.get("claim_verdicts", nobody), "answer_id")
    opinions = _grouped(frames.get("judge_evals", nobody), "answer_id")
    context = _grouped(
        supplied(frames["contexts"].join(queries, on="query_id", how="semi"), frames["chunks"]), "query_id"
    )
    nuggets = _grouped(gold.claims, "query_id")
    right = dict(gold.answers_gold.iter_rows())
    for row in queries.iter_rows(named=True):
        query_id = row["query_id"]
        samples = answers.get(query_id, [])
        answer = samples[0] if samples else None
        answer_id = answer["answer_id"] if answer else ""
        language = languages.get(query_id, row["language"])
        given = context.get(query_id, [])
        held = {unit["evidence_id"] for unit in units.get(query_id, []) if unit["given"]}
        chunks = frozenset(piece["chunk_id"] for piece in given)
        documents = frozenset(piece["doc_id"] for piece in given)
        yield View(
            query_id, row["text"], language, row["answerable"], _state(answer), answer,
            without_marks(answer["answer"], documents | chunks) if answer else "", samples,
            claims.get(answer_id, []), citations.get(answer_id, []), _by_verifier(verdicts.get(answer_id, [])),
            {(row["judge"], row["rubric"]): row for row in opinions.get(answer_id, [])},
            {str(piece["position"]): piece["text"] for piece in given}, chunks, documents,
            units.get(query_id, []), states[query_id], nuggets.get(query_id, []), right.get(query_id, []),
            frozenset(held) | chunks | documents,
        )  # fmt: skip


def _state(answer: Row | None) -> str:
    if answer is None or answer["status"] == "missing":
        return NO_ANSWER
    if answer["outcome"] is None:
        return str(answer["status"])
    return "answered" if answer["outcome"] in ("answered", "hedged") else str(answer["outcome"])


def _units(frames: Frames, queries: pl.DataFrame, settings: Settings) -> dict[str, list[Row]]:
    """Units that the caller may see, with `given` (the context holds it) and `used` (the answer stands on it)."""
    mine = frames["evidence_units"].filter("eligible").join(queries, on="query_id", how="semi")
    pieces = frames["evidence_pieces"]
    hold = settings.ledger.hold
    given = held_by_ranges(mine, pieces, frames["contexts"], hold).rename({"held": "given"})
    found = trace(mine, frames, frames, settings.ledger).rename({"held": "used"}).drop("why")
    unit = ["query_id", "evidence_id"]
    full = mine.select(*unit, "hop").join(given, on=unit).join(found, on=unit).sort(unit)
    # Used is what was given and stood on: a copy elsewhere in the context doesn't make up for what the context lost.
    return _grouped(full.with_columns(used=pl.col("used") & pl.col("given")), "query_id")


def _grouped(frame: pl.DataFrame, key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(row[key], []).append(row)
    return found


def _by_verifier(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["verifier"], {})[row["claim_id"]] = row
    return found
