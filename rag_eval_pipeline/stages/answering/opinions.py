"""Measures of an answer by what a judge said of it item by item: its citations, and the facts that gold wants in it.

Here: rows of `judge_evals` of the rubrics citation and nugget as figures. Not here: who judges (the judging room), the same figures by
verdicts on claims (`supporting`) and by the lexical verifier (`quality`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.endpoint import OK
from rag_eval_pipeline.judging.rubrics import CITATION, NUGGET, Rubric
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.stages.answering.supporting import cited, named
from rag_eval_pipeline.stages.answering.views import Row, View

NO_JUDGMENT = "no_judgment"


def judge_of(settings: Settings, rubric: Rubric) -> str | None:
    """The judge that corpus.yaml asks for this rubric; None: nobody."""
    section = settings.pipeline.get("judging") or {}
    judge = section.get("judge")
    return f"llm:{judge['model']}" if judge and rubric.name in section.get("rubrics", ()) else None


def judged_citations(view: View, judge: str) -> Iterator[Row]:
    """Citation precision and recall by a judge. NULL with the status of its judgment where that is none."""
    params = {"judge": judge, "rubric": CITATION.id}

    # What cites nothing that was given is not shown to the judge: no passage could support it.
    asked = bool(view.claims) and any(row["status"] == "resolved" for row in view.citations)

    def support(claim_id: str) -> list[str]:
        pairs = judgment(view, judge, CITATION) if asked else ()
        return named(view, [place for claim, place, held in pairs if claim == claim_id and held])

    yield from cited(view, support, params)


def assignments(view: View, judge: str) -> list[str]:
    """What a judge said of each gold claim, in their order.

    Raises:
        Unmeasured: `no_judgment`, or the status of its judgment.
    """
    said = dict(judgment(view, judge, NUGGET))
    return [str(said.get(nugget["claim_id"], "failed")) for nugget in view.nuggets]


def judgment(view: View, judge: str, rubric: Rubric) -> Sequence[list[Any]]:
    """The items of a judgment of an answer. One of several prompts that failed leaves no judgment.

    Raises:
        Unmeasured: `no_judgment`, or its status.
    """
    row = view.opinions.get((judge, rubric.id))
    if row is None:
        raise Unmeasured(NO_JUDGMENT)
    if row["status"] != OK:
        raise Unmeasured(row["status"])
    found: list[list[Any]] = json.loads(row["items"])
    return found
