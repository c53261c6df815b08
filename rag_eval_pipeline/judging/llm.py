"""The LLM judge: one prompt a question, its reply read as what it must be, or as nothing.

Here: requests of each rubric, and what their replies say; the verifier `llm:<model>`. Not here: words (`rubrics`, `prompts`), the wire
(`client`), which answers are judged (the judging room). Everything fails closed: a reply that is not whole is no judgment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rag_eval_pipeline.judging.endpoint import OK, ChatReply, ChatRequest, EndpointConfig, complete
from rag_eval_pipeline.judging.prompts import Section, groups, messages, passage_sections
from rag_eval_pipeline.judging.replies import ReplyStore
from rag_eval_pipeline.judging.rubrics import (
    ANSWER,
    CITATION,
    FAITHFULNESS,
    NUGGET,
    PREFERENCE,
    REFUSAL,
    AnswerJudgment,
    PreferenceJudgment,
    RefusalJudgment,
    Rubric,
)
from rag_eval_pipeline.judging.verifiers import JUDGE_ERROR, Label, Passage, Verdict
from rag_eval_pipeline.measures.agreement import Order, g_eval_score
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.text.claims import Claim

_SCORE = re.compile(r'"score"\s*:\s*(?P<digit>\d)')
NO_ANSWER = "(the answer is empty)"


def judge_name(config: EndpointConfig) -> str:
    """`llm:<model>`."""
    return f"llm:{config.model}"


def _request(
    request_id: str,
    rubric: Rubric,
    sections: Sequence[Section],
    items: int = 0,
    *,
    logprobs: bool = False,
    repeat: int = 0,
) -> ChatRequest:
    return ChatRequest(
        request_id, messages(rubric, sections, items), rubric.schema(items), rubric.name, logprobs=logprobs, repeat=repeat
    )  # fmt: skip


def _read(reply: ChatReply, rubric: Rubric, items: int = 0) -> tuple[Any, str]:
    """What a reply says, or None with its status."""
    if reply.status != OK:
        return None, reply.status
    try:
        return rubric.model(items).model_validate(reply.parsed), OK
    except ValidationError:
        return None, "schema_violation"


def _items(reply: ChatReply, rubric: Rubric, items: int) -> tuple[list[Any] | None, str]:
    """A judgment for each item, in order; None with a status where they are not all there."""
    found, status = _read(reply, rubric, items)
    if not isinstance(found, BaseModel):
        return None, status
    return [getattr(found, f"{rubric.item}{number}") for number in range(1, items + 1)], OK


# --- claims ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClaimPrompt:
    """A prompt of some claims of one answer.

    Attributes:
        request: to ask.
        claims: in the order of the prompt.
        passages: all that it shows.
    """

    request: ChatRequest
    claims: tuple[Claim, ...]
    passages: tuple[Passage, ...]

    def verdicts(self, reply: ChatReply) -> list[Verdict]:
        """One a claim. A claim that is called supported without a passage that is there, or by one that is not, has none."""
        found, status = _items(reply, FAITHFULNESS, len(self.claims))
        if found is None:
            return [Verdict(claim.claim_id, None, JUDGE_ERROR, reason=status) for claim in self.claims]
        return [self._verdict(claim, each) for claim, each in zip(self.claims, found, strict=True)]

    def _verdict(self, claim: Claim, judged: Any) -> Verdict:
        numbers = sorted(set(judged.passages))
        label: Label = judged.verdict
        if any(not 1 <= number <= len(self.passages) for number in numbers):
            return Verdict(claim.claim_id, None, JUDGE_ERROR, reason="unknown_passage")
        if label == "supported" and not numbers:
            return Verdict(claim.claim_id, None, JUDGE_ERROR, reason="no_passage")
        ids = () if label == "unsupported" else tuple(self.passages[number - 1].passage_id for number in numbers)
        return Verdict(claim.claim_id, label, reason=judged.reason, passages=ids)


def claim_prompts(
    name: str, claims: Sequence[Claim], passages: Sequence[Passage], repeat: int = 0
) -> list[ClaimPrompt]:
    """Prompts that ask for a verdict on each claim, exactly once.

    Args:
        name: prefix of the request ids.
        claims: of one answer.
        passages: what the answer was given; masked.
        repeat: number of a deliberate repetition.
    """
    made = []
    for place, group in enumerate(groups(len(claims))):
        chosen = tuple(claims[index] for index in group)
        sections = [
            *passage_sections(passages),
            *((f"claim c{number}", claim.text) for number, claim in enumerate(chosen, 1)),
        ]
        request = _request(f"{name}/{place}", FAITHFULNESS, sections, len(chosen), repeat=repeat)
        made.append(ClaimPrompt(request, chosen, tuple(passages)))
    return made


class LlmVerifier:
    """Asks an endpoint; `judging.verifiers.ask` sees to it that every claim has exactly one verdict, or none has.

    Args:
        config: of the endpoint.
        store: where replies are kept.
        replay: take stored replies alone.
    """

    def __init__(self, config: EndpointConfig, store: ReplyStore | None = None, replay: bool = False) -> None:
        self.name = judge_name(config)
        self._config, self._store, self._replay = config, store, replay

    def verify(self, claims: Sequence[Claim], evidence: Sequence[Passage]) -> list[Verdict]:
        """One verdict a claim; where a reply is none, `judge_error` with its status as the reason."""
        prompts = {prompt.request.request_id: prompt for prompt in claim_prompts("claims", claims, evidence)}
        replies = complete(
            self._config, [p.request for p in prompts.values()], self._store, replay=self._replay
        )  # fmt: skip
        return [verdict for reply in replies for verdict in prompts[reply.request_id].verdicts(reply)]


# --- answers -----------------------------------------------------------------------------------------------------------


def _answer_sections(question: str, answer: str, passages: Sequence[Passage]) -> list[Section]:
    return [("question", question), *passage_sections(passages), ("answer", answer or NO_ANSWER)]


def score_request(
    name: str, question: str, answer: str, passages: Sequence[Passage], *, weighted: bool = False, repeat: int = 0
) -> ChatRequest:
    """Ask for a score; `weighted`: with the probabilities of ratings."""
    return _request(
        name, ANSWER, _answer_sections(question, answer, passages), logprobs=weighted, repeat=repeat
    )  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """A judge's opinion of an answer; all None where status says why.

    Attributes:
        status: `ok`, a status of the reply, or `inconsistent`: score, flag and code contradict each other.
        score: 0 to 5.
        weighted: mean of ratings by their probability; None where there is none.
        is_unsatisfactory: whether the answer fails.
        failure_code: why; None where it does not.
        reason: the judge's words.
    """

    status: str
    score: int | None = None
    weighted: float | None = None
    is_unsatisfactory: bool | None = None
    failure_code: str | None = None
    reason: str | None = None


def scored(reply: ChatReply) -> Scored:
    """What a reply to `score_request` says."""
    found, status = _read(reply, ANSWER)
    if not isinstance(found, AnswerJudgment):
        return Scored(status)
    if not found.consistent:
        return Scored("inconsistent", reason=found.reason)
    code = None if found.failure_code == "none" else found.failure_code
    return Scored(OK, found.score, weighted_score(reply), found.is_unsatisfactory, code, found.reason)


def weighted_score(reply: ChatReply) -> float | None:
    """G-Eval's score of a reply; None where the endpoint gave no probabilities, or no token is the rating alone."""
    if reply.logprobs is None:
        return None
    found = list(_SCORE.finditer("".join(token[0][0] for token in reply.logprobs)))
    if not found:
        return None
    digit, place = found[-1].start("digit"), 0
    for token in reply.logprobs:
        if place <= digit < place + len(token[0][0]):
            try:
                return g_eval_score(dict(token), logs=True)
            except Unmeasured:
                return None
        place += len(token[0][0])
    return None


def refusal_request(name: str, question: str, answer: str, passages: Sequence[Passage]) -> ChatRequest:
    """Ask whether an answer refuses, and whether it should."""
    return _request(name, REFUSAL, _answer_sections(question, answer, passages))


def refusal_scored(reply: ChatReply) -> Scored:
    """What a reply to `refusal_request` says, as an opinion of the answer: unsatisfactory where the two differ. No score."""
    found, status = _read(reply, REFUSAL)
    if not isinstance(found, RefusalJudgment):
        return Scored(status)
    wrong = found.refuses != found.should_refuse
    code = None if not wrong else "should_have_refused" if found.should_refuse else "other"
    return Scored(OK, is_unsatisfactory=wrong, failure_code=code, reason=found.reason)


# --- pairs of answers --------------------------------------------------------------------------------------------------


def preference_requests(
    name: str, question: str, passages: Sequence[Passage], one: str, other: str
) -> tuple[ChatRequest, ChatRequest]:
    """Ask which of two answers is better, in both orders."""

    def asked(order: str, first: str, second: str) -> ChatRequest:
        sections = [
            ("question", question), *passage_sections(passages),
            ("first answer", first or NO_ANSWER), ("second answer", second or NO_ANSWER),
        ]  # fmt: skip
        return _request(f"{name}/{order}", PREFERENCE, sections)

    return asked("forward", one, other), asked("backward", other, one)


def preferred(reply: ChatReply) -> Order | None:
    """Which was preferred, as shown; None where the reply is none."""
    found, _ = _read(reply, PREFERENCE)
    return found.preferred if isinstance(found, PreferenceJudgment) else None


def preference(forward: Order | None, backward: Order | None) -> Order | None:
    """Which of two answers is better: what both orders say; a tie where the order decides; None where one failed."""
    if forward is None or backward is None:
        return None
    turned: dict[Order, Order] = {"first": "second", "second": "first", "tie": "tie"}
    return forward if forward == turned[backward] else "tie"


# --- citations and nuggets ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listed:
    """Judgments of items, in the order in which they were asked; where the reply is none, nothing but its status.

    Attributes:
        status: `ok`, or a status of the reply.
        values: one an item; empty where status says why.
        reasons: the judge's words, one an item.
    """

    status: str
    values: tuple[Any, ...] = ()
    reasons: tuple[str, ...] = ()


def _listed(reply: ChatReply, rubric: Rubric, size: int, field: str) -> Listed:
    found, status = _items(reply, rubric, size)
    if found is None:
        return Listed(status)
    return Listed(status, tuple(getattr(each, field) for each in found), tuple(each.reason for each in found))


def citation_requests(name: str, citations: Sequence[tuple[str, str]]) -> list[tuple[ChatRequest, range]]:
    """Ask of each citation, a claim and the passage that is cited for it, whether the passage supports it."""
    made = []
    for place, group in enumerate(groups(len(citations))):
        sections = []
        for number, index in enumerate(group, 1):
            claim, passage = citations[index]
            sections += [(f"citation s{number}: claim", claim), (f"citation s{number}: passage", passage)]
        made.append((_request(f"{name}/{place}", CITATION, sections, len(group)), group))
    return made


def citation_support(reply: ChatReply, size: int) -> Listed:
    """Whether each supports: True or False."""
    return _listed(reply, CITATION, size, "supports")


def nugget_requests(name: str, nuggets: Sequence[str], answer: str) -> list[tuple[ChatRequest, range]]:
    """Ask of each fact whether the answer says it."""
    made = []
    for place, group in enumerate(groups(len(nuggets))):
        facts = [(f"fact n{number}", nuggets[index]) for number, index in enumerate(group, 1)]
        sections = [("answer", answer or NO_ANSWER), *facts]
        made.append((_request(f"{name}/{place}", NUGGET, sections, len(group)), group))
    return made


def nugget_assignments(reply: ChatReply, size: int) -> Listed:
    """Assignments as `measures.nugget_scores` takes them."""
    return _listed(reply, NUGGET, size, "assignment")
