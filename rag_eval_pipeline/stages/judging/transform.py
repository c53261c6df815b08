"""What the judging room does: verdicts on every claim by each verifier, and judgments of answers where a judge is configured.

Here: which answers are judged by whom, and what is computed or asked once. Not here: verifiers, rubrics and the wire (`judging`), what
verdicts add up to (the answering room's quality), how far a judge agrees with people (`quality`, `calibrating`). No label is seen here
but the text of gold claims, and that only where corpus.yaml asks a judge to look for them (rubric `nugget`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.judging.endpoint import OK, ChatReply, ChatRequest, EndpointConfig, complete
from rag_eval_pipeline.judging.injections import INJECTIONS
from rag_eval_pipeline.judging.lexical import LexicalVerifier
from rag_eval_pipeline.judging.llm import (
    ClaimPrompt,
    Scored,
    claim_prompts,
    judge_name,
    preference_requests,
    preferred,
    refusal_request,
    refusal_scored,
    score_request,
    scored,
)
from rag_eval_pipeline.judging.pairs import CrossEncoderVerifier, missing
from rag_eval_pipeline.judging.replies import ReplyStore
from rag_eval_pipeline.judging.rubrics import ANSWER, BEST, RUBRICS, WORST
from rag_eval_pipeline.judging.verifiers import JUDGE_ERROR, Passage, Verdict, Verifier, ask
from rag_eval_pipeline.models.folders import folder_checksum
from rag_eval_pipeline.stages.judging.items import ITEMISED, ItemPrompt, item_prompts, merged
from rag_eval_pipeline.stages.judging.judged import Frames, Judged, answers_of
from rag_eval_pipeline.stages.judging.tables import ClaimVerdicts, JudgeEvals, JudgeProbes
from rag_eval_pipeline.text.claims import Claim, has_text
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.memo import digest
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

Rows = list[dict[str, Any]]
STAGE = "judging"
BATCH = 1024
"""Answers verified at a time; their rows are columns before the next ones are made."""
Named = Literal["lexical", "nli", "hhem", "llm"]
Asked = Literal["answer", "refusal", "citation", "nugget"]


class JudgingConfig(BaseModel):
    """Section `judging`. Without `judge` nothing leaves the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verifiers: tuple[Named, ...] = Field(("lexical",), description="Who gives verdicts on claims")
    nli: str | None = Field(None, description="Folder of a cross-encoder with entailment, contradiction, neutral")
    hhem: str | None = Field(None, description="Folder of a cross-encoder with one output")
    threshold: float = Field(0.5, gt=0, lt=1, description="nli, hhem: least probability of a label")
    judge: EndpointConfig | None = Field(
        None, description="An endpoint that rates answers, and claims where `llm` is a verifier"
    )
    rubrics: tuple[Asked, ...] = Field(("answer",), description="What the judge is asked of each answer")
    weighted: Switch = Field(False, description="Ask for probabilities of ratings, too (G-Eval)")
    probes: int = Field(20, ge=0, description="Answers whose judgment is shaken on purpose; 0: none")
    replay: Switch = Field(False, description="Take stored replies alone and ask nobody")
    attempt: int = Field(1, ge=1, description="Raise it to ask again for what failed; what was replied is kept")
    alert_share: float = Field(0.15, ge=0, le=1, description="Days with a larger unsatisfactory share are flagged")

    @model_validator(mode="after")
    def _usable(self) -> JudgingConfig:
        if len(set(self.verifiers)) < len(self.verifiers):
            raise ValueError("verifiers: name each once")
        if len(set(self.rubrics)) < len(self.rubrics):
            raise ValueError("rubrics: name each once")
        for kind in ("nli", "hhem"):
            folder = getattr(self, kind)
            if kind in self.verifiers and folder is None:
                raise ValueError(f"verifier {kind} needs its model: set `{kind}` to the folder of a cross-encoder")
            if kind in self.verifiers and (why := missing(Path(folder))):
                raise ValueError(f"verifier {kind}: {why}")
        asked = ["verifier llm"] if "llm" in self.verifiers else []
        asked += [f"rubric {name}" for name in self.rubrics if name != "answer"]
        if asked and self.judge is None:
            raise ValueError(f"{asked[0]} needs `judge`: {{base_url: …, model: …}}; the key stands in the environment")
        return self

    @property
    def reads_gold_claims(self) -> bool:
        """Whether the judge is shown gold claims: only where corpus.yaml asks for the rubric `nugget`."""
        return self.judge is not None and "nugget" in self.rubrics


CONFIG = JudgingConfig


def identity(config: JudgingConfig) -> dict[str, Any]:
    """Checksums of the models that are read from disk."""
    folders = {kind: getattr(config, kind) for kind in ("nli", "hhem") if kind in config.verifiers}
    return {kind: folder_checksum(str(folder)) for kind, folder in folders.items()}


def run(frames: Frames, config: JudgingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Verdicts, judgments and probes. A judgment that failed has a row with a status."""
    made: dict[str, list[pl.DataFrame]] = {name: [] for name in ("claim_verdicts", "judge_evals", "judge_probes")}
    for verifier in _local(config):
        made["claim_verdicts"] += _verified(frames, verifier, runtime)
    judge = None if config.judge is None else _Judge(config, config.judge, runtime)
    if judge is not None:
        if "llm" in config.verifiers:
            made["claim_verdicts"].append(conform(ClaimVerdicts, judge.verdicts(frames)))
        evals = judge.evals(frames)
        made["judge_evals"].append(conform(JudgeEvals, [*evals, *judge.listed(frames)]))
        made["judge_probes"].append(conform(JudgeProbes, judge.probes(frames, evals)))
    tables = {"claim_verdicts": ClaimVerdicts, "judge_evals": JudgeEvals, "judge_probes": JudgeProbes}
    return {name: conform(schema, pl.concat([conform(schema, []), *made[name]])) for name, schema in tables.items()}


# --- verifiers of this machine -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Local:
    """A verifier that is asked answer by answer; `make` gives the one for a language."""

    name: str
    make: Callable[[str | None], Verifier]


def _local(config: JudgingConfig) -> list[_Local]:
    found = []
    for name in config.verifiers:
        if name == "lexical":
            found.append(_Local(name, lru_cache(maxsize=64)(LexicalVerifier)))
        elif name in ("nli", "hhem"):
            verifier = CrossEncoderVerifier(getattr(config, name), name, config.threshold)
            found.append(_Local(name, lambda _language, verifier=verifier: verifier))  # type: ignore[misc]
    return found


def _verified(frames: Frames, verifier: _Local, runtime: Runtime) -> Iterator[pl.DataFrame]:
    """Verdicts by batches of answers; the same claims against the same passages are computed once, in any version."""
    batch: list[Judged] = []
    for judged in answers_of(frames):
        if judged.claims:
            batch.append(judged)
        if len(batch) == BATCH:
            yield _batch(batch, verifier, runtime)
            batch = []
    if batch:
        yield _batch(batch, verifier, runtime)


def _batch(batch: Sequence[Judged], verifier: _Local, runtime: Runtime) -> pl.DataFrame:
    def key(judged: Judged) -> str:
        given = [[p.text, p.language] for p in judged.passages]
        return digest([verifier.name, judged.language, [claim.text for claim in judged.claims], given])

    def compute(missing: list[int]) -> Iterator[tuple[int, bytes]]:
        for index in missing:
            judged = batch[index]
            numbered = [Claim(str(number), claim.text) for number, claim in enumerate(judged.claims)]
            given = [Passage(str(number), p.text, p.language) for number, p in enumerate(judged.passages)]
            verdicts = ask(verifier.make(judged.language), numbered, given)
            yield index, json.dumps([[v.label, v.status, v.score, v.reason, v.passages] for v in verdicts]).encode()

    rows: Rows = []
    for judged, payload in zip(batch, runtime.cached(STAGE, [key(each) for each in batch], compute), strict=True):
        for claim, (label, status, score, reason, chosen) in zip(judged.claims, json.loads(payload), strict=True):
            ids = tuple(judged.passages[int(number)].passage_id for number in chosen)
            verdict = Verdict(claim.claim_id, label, status, score, reason, ids)
            rows.append(_verdict_row(judged.answer_id, verifier.name, verdict))
    return conform(ClaimVerdicts, rows)


def _verdict_row(answer_id: str, verifier: str, verdict: Verdict, prompt_hash: str | None = None) -> dict[str, Any]:
    return {
        "answer_id": answer_id,
        "claim_id": verdict.claim_id,
        "verifier": verifier,
        "label": verdict.label,
        "status": verdict.status,
        "score": verdict.score,
        "reason": verdict.reason,
        "passages": list(verdict.passages),
        "prompt_hash": prompt_hash,
    }


# --- the judge ---------------------------------------------------------------------------------------------------------


class _Judge:
    """An endpoint, asked about all answers."""

    def __init__(self, config: JudgingConfig, endpoint: EndpointConfig, runtime: Runtime) -> None:
        self._config, self._endpoint, self._runtime = config, endpoint, runtime
        self._store = None if runtime.replies is None else ReplyStore(runtime.replies)
        self.name = judge_name(endpoint)

    def _ask(self, requests: Iterator[ChatRequest]) -> Iterator[ChatReply]:
        replay = bool(self._config.replay)
        for done, reply in enumerate(complete(self._endpoint, requests, self._store, replay=replay), 1):
            self._runtime.progress(STAGE, done, done)
            yield reply

    def verdicts(self, frames: Frames) -> Rows:
        """Verdicts on all claims. Where there is no text, nobody is asked, and nothing is supported."""
        waiting: dict[str, tuple[str, ClaimPrompt]] = {}
        rows: Rows = []

        def requests() -> Iterator[ChatRequest]:
            for judged in answers_of(frames):
                if not any(has_text(passage.text) for passage in judged.passages):
                    rows.extend(
                        _verdict_row(judged.answer_id, self.name, Verdict(c.claim_id, "unsupported", reason="no_text"))
                        for c in judged.claims
                    )
                    continue
                for prompt in claim_prompts(judged.answer_id, judged.claims, judged.passages):
                    waiting[prompt.request.request_id] = judged.answer_id, prompt
                    yield prompt.request

        for reply in self._ask(requests()):
            answer_id, prompt = waiting.pop(reply.request_id)
            rows += [_verdict_row(answer_id, self.name, v, reply.prompt_hash) for v in _checked(prompt, reply)]
        return rows

    def evals(self, frames: Frames) -> Rows:
        """Judgments of all answers by each rubric of the whole answer."""
        waiting: dict[str, tuple[Judged, str]] = {}

        def requests() -> Iterator[ChatRequest]:
            for judged in answers_of(frames):
                for rubric in self._config.rubrics:
                    if rubric not in ITEMISED:
                        request = self._request(rubric, judged)
                        waiting[request.request_id] = judged, rubric
                        yield request

        rows = []
        for reply in self._ask(requests()):
            judged, rubric = waiting.pop(reply.request_id)
            opinion = scored(reply) if rubric == "answer" else refusal_scored(reply)
            rows.append(self._eval_row(judged, rubric, opinion, reply))
        return rows

    def listed(self, frames: Frames) -> Rows:
        """Judgments of all answers by each rubric that is asked item by item: a row an answer, whatever its prompts."""
        waiting: dict[str, tuple[Judged, ItemPrompt]] = {}

        def requests() -> Iterator[ChatRequest]:
            for judged in answers_of(frames):
                for rubric in self._config.rubrics:
                    for prompt in item_prompts(rubric, judged):
                        waiting[prompt.request.request_id] = judged, prompt
                        yield prompt.request

        parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for reply in self._ask(requests()):
            judged, prompt = waiting.pop(reply.request_id)
            found = prompt.read(reply)
            opinion = Scored(found.status, reason="\n".join(found.reasons) or None)
            row = self._eval_row(judged, prompt.rubric, opinion, reply)
            row |= {"place": prompt.place, "items": prompt.said(found)}
            parts.setdefault((judged.answer_id, prompt.rubric), []).append(row)
        return [merged(rows) for rows in parts.values()]

    def _request(self, rubric: str, judged: Judged) -> ChatRequest:
        parts = f"{rubric}/{judged.answer_id}", judged.question, judged.answer, judged.passages
        return (
            score_request(*parts, weighted=bool(self._config.weighted))
            if rubric == "answer"
            else refusal_request(*parts)
        )

    def _eval_row(self, judged: Judged, rubric: str, opinion: Scored, reply: ChatReply) -> dict[str, Any]:
        return {
            "answer_id": judged.answer_id,
            "judge": self.name,
            "rubric": RUBRICS[rubric].id,
            "query_id": judged.query_id,
            "score": opinion.score,
            "weighted_score": opinion.weighted,
            "reason": opinion.reason,
            "is_unsatisfactory": opinion.is_unsatisfactory,
            "failure_code": opinion.failure_code,
            "status": opinion.status,
            "prompt_hash": reply.prompt_hash,
            "model": reply.model,
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "cost": reply.cost,
            "latency_s": reply.total_s,
            "day": reply.received[:10] if reply.received else None,
        }

    # --- probes ------------------------------------------------------------------------------------------------------

    def probes(self, frames: Frames, evals: Rows) -> Rows:
        """Shake some judgments: an injected order, the same prompt again, two answers of one query in both orders."""
        clean = {row["answer_id"]: row for row in evals if row["rubric"] == ANSWER.id and row["status"] == OK}
        chosen = set(sorted(clean, key=lambda name: digest(name))[: self._config.probes])
        rows: Rows = []
        waiting: dict[str, dict[str, Any]] = {}

        def requests() -> Iterator[ChatRequest]:
            earlier: Judged | None = None
            for judged in answers_of(frames):
                if judged.answer_id in chosen:
                    for request, row in self._shaken(judged, clean[judged.answer_id]):
                        waiting[request.request_id] = row
                        yield request
                if earlier is not None and earlier.query_id == judged.query_id and self._config.probes:
                    for request, row in self._ordered(earlier, judged):
                        waiting[request.request_id] = row
                        yield request
                earlier = judged if judged.sample == 1 else earlier

        orders: dict[tuple[str, str], dict[str, tuple[ChatReply, dict[str, Any]]]] = {}
        for reply in self._ask(requests()):
            row = waiting.pop(reply.request_id)
            if row["kind"] == "order":
                pair = orders.setdefault((row["answer_id"], row["probe"]), {})
                pair[reply.request_id.rsplit("/", 1)[1]] = reply, row
                continue
            opinion = scored(reply)
            found = None if opinion.status != OK else _said(opinion.is_unsatisfactory)
            held = None if found is None else found == row["expected"]
            rows.append(
                {**row, "found": found, "held": held, "status": opinion.status, "prompt_hash": reply.prompt_hash}
            )
        return [*rows, *(_order_row(pair) for pair in orders.values())]

    def _shaken(self, judged: Judged, clean: dict[str, Any]) -> Iterator[tuple[ChatRequest, dict[str, Any]]]:
        fails = bool(clean["is_unsatisfactory"])
        row = {
            "answer_id": judged.answer_id,
            "judge": self.name,
            "query_id": judged.query_id,
            "expected": _said(fails),
            "longer": None,
        }
        injection = INJECTIONS[int(digest(judged.answer_id), 16) % len(INJECTIONS)]
        order = injection.ordering(BEST if fails else WORST)
        given = [
            Passage(p.passage_id, f"{p.text}\n{order}" if not n else p.text) for n, p in enumerate(judged.passages)
        ]
        asked = judged.question, judged.answer
        yield (
            score_request(f"injection/{judged.answer_id}", *asked, given or [Passage("1", order)]),
            {**row, "kind": "injection", "probe": injection.name},
        )
        weighted = bool(self._config.weighted)
        yield (
            score_request(f"repeat/{judged.answer_id}", *asked, judged.passages, weighted=weighted, repeat=1),
            {**row, "kind": "repeat", "probe": "1"},
        )

    def _ordered(self, one: Judged, other: Judged) -> Iterator[tuple[ChatRequest, dict[str, Any]]]:
        name = f"order/{one.answer_id}/{other.answer_id}"
        row = {
            "answer_id": one.answer_id,
            "judge": self.name,
            "kind": "order",
            "probe": other.answer_id,
            "query_id": one.query_id,
            "longer": len(one.answer) - len(other.answer),
        }
        for request in preference_requests(name, one.question, one.passages, one.answer, other.answer):
            yield request, row


def _checked(prompt: ClaimPrompt, reply: ChatReply) -> Sequence[Verdict]:
    """Verdicts of a reply, held to what every verifier is held to."""
    given = prompt.verdicts(reply)
    if all(verdict.status == JUDGE_ERROR for verdict in given):
        return given

    class Told:
        name = "told"

        def verify(self, claims: Sequence[Claim], evidence: Sequence[Passage]) -> list[Verdict]:
            return given

    return ask(Told(), prompt.claims, prompt.passages)


def _said(fails: bool | None) -> str:
    return "unsatisfactory" if fails else "satisfactory"


def _order_row(pair: Mapping[str, tuple[ChatReply, dict[str, Any]]]) -> dict[str, Any]:
    """What was preferred with the answers in either order, said of the forward one."""
    (forward, row), (backward, _) = pair["forward"], pair["backward"]
    first, second = preferred(forward), preferred(backward)
    turned = {"first": "second", "second": "first", "tie": "tie", None: None}[second]
    failed = next((reply.status for reply in (forward, backward) if reply.status != OK), OK)
    status = failed if failed != OK or (first and second) else "schema_violation"
    held = None if first is None or turned is None else first == turned
    return {
        **row,
        "expected": first,
        "found": turned,
        "held": held,
        "status": status,
        "prompt_hash": forward.prompt_hash,
    }
