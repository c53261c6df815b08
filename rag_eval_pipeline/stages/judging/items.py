"""Rubrics that are asked item by item: the citations of an answer, and the facts that gold wants in it.

Here: which items, in which prompts, and one row an answer of all that was replied. Not here: words (`judging.rubrics`), what is sent when
(`transform`), what judgments add up to (the answering room's quality).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rag_eval_pipeline.judging.endpoint import OK, ChatReply, ChatRequest
from rag_eval_pipeline.judging.llm import (
    Listed,
    citation_requests,
    citation_support,
    nugget_assignments,
    nugget_requests,
)
from rag_eval_pipeline.stages.judging.judged import Judged

ITEMISED = ("citation", "nugget")
"""Names of these rubrics."""
Item = tuple[str, ...]
"""Claim and place of the passage that is cited for it; or the id of a gold claim."""


@dataclass(frozen=True)
class ItemPrompt:
    """A prompt about some items of one answer.

    Attributes:
        rubric: its name.
        place: among the prompts of the answer.
        request: to ask.
        items: in the order of the prompt.
        reading: what a reply says of so many items.
    """

    rubric: str
    place: int
    request: ChatRequest
    items: tuple[Item, ...]
    reading: Callable[[ChatReply, int], Listed]

    def read(self, reply: ChatReply) -> Listed:
        """What a reply says."""
        return self.reading(reply, len(self.items))

    def said(self, found: Listed) -> list[list[Any]]:
        """Each item with what was said of it; None where the reply was none."""
        values = found.values or (None,) * len(self.items)
        return [[*item, value] for item, value in zip(self.items, values, strict=True)]


def item_prompts(rubric: str, judged: Judged) -> Iterator[ItemPrompt]:
    """Prompts of one answer; none where the rubric is of the whole answer, nothing is asserted, or there is no item."""
    if rubric not in ITEMISED or not judged.asserts:
        return
    name = f"{rubric}/{judged.answer_id}"
    if rubric == "citation":
        pairs = cited_pairs(judged)
        claims = {claim.claim_id: claim.text for claim in judged.claims}
        texts = {passage.passage_id: passage.text for passage in judged.passages}
        asked = citation_requests(name, [(claims[claim], texts[place]) for claim, place in pairs])
        items: Sequence[Item] = pairs
    else:
        asked = nugget_requests(name, [text for _, text in judged.facts], judged.answer)
        items = [(fact,) for fact, _ in judged.facts]
    reading = citation_support if rubric == "citation" else nugget_assignments
    for place, (request, group) in enumerate(asked):
        yield ItemPrompt(rubric, place, request, tuple(items[index] for index in group), reading)


def cited_pairs(judged: Judged) -> list[tuple[str, str]]:
    """Claim and place of each passage that is cited for it, each pair once. What the answer cites as a whole is held against every claim."""
    known = {passage.passage_id for passage in judged.passages}
    pairs: dict[tuple[str, str], None] = {}
    for claim in judged.claims:
        for cited_for, places in judged.citations:
            if cited_for in (None, claim.claim_id):
                pairs |= dict.fromkeys((claim.claim_id, place) for place in places if place in known)
    return list(pairs)


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row of the rows of an answer's prompts: all items, sums of what they cost, and `ok` only where all are."""
    rows = sorted(parts, key=lambda row: row["place"])
    reasons = [row["reason"] for row in rows if row["reason"]]
    whole = {name: value for name, value in rows[0].items() if name != "place"}
    return {
        **whole,
        "status": next((row["status"] for row in rows if row["status"] != OK), OK),
        "reason": "\n".join(reasons) or None,
        "items": json.dumps([item for row in rows for item in row["items"]], ensure_ascii=False),
        **{name: _sum(row[name] for row in rows) for name in ("input_tokens", "output_tokens", "cost", "latency_s")},
        "day": max((row["day"] for row in rows if row["day"]), default=None),
    }


def _sum(values: Iterator[Any]) -> Any:
    """Of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
