"""What the answering room does: an answer for each query from its context, imported, quoted, or asked of a model.

Here: the choice of answerer, and what is computed once. The rules of each answerer stand in modules of their own; whether an
answer is right, supported or rightly refused: `quality`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.judging.endpoint import EndpointConfig, complete
from rag_eval_pipeline.judging.supplied import supplied
from rag_eval_pipeline.stages.answering import endpoint, extractive
from rag_eval_pipeline.stages.answering.importing import imported
from rag_eval_pipeline.stages.answering.said import Cited, Known, Rows, Said, Source, add, sources_of
from rag_eval_pipeline.stages.answering.tables import AnswerCitations, AnswerClaims, Answers
from rag_eval_pipeline.text.claims import Claim, ClaimError, as_claims
from rag_eval_pipeline.warehouse.memo import digest
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

Frames = Mapping[str, pl.DataFrame]
BUILT_IN = ("extractive", "import", "openai")
STAGE = "answering"
BATCH = 512
"""Answers made at a time; their rows are columns before the next ones are made."""


class Answerer(Protocol):
    """A user's own answerer: `answerer: package.module:Class`, made with `options` as keyword arguments."""

    def answer(self, query: str, passages: list[str]) -> str | Mapping[str, Any]:
        """The answer's text, or an object.

        It has `answer` and, each optional, `citations` (numbers of passages, from 1), `claims` (texts), `refused`, `confidence`.
        """


class Endpoint(EndpointConfig):
    """An endpoint of answers: beside how it is asked, the form of its replies."""

    form: endpoint.Format = Field(
        "json", description="json: a structured reply; text: a text with marks such as [1]"
    )  # fmt: skip


class AnsweringConfig(BaseModel):
    """Section `answering`; `answering: null` is a config without an answerer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    answerer: str | None = Field(
        "extractive", description="extractive | import | openai | package.module:Class; null: none"
    )
    sentences: int = Field(3, ge=1, description="extractive: sentences, at most")
    least: float = Field(
        0.3, ge=0, le=1, description="extractive: smallest share of the best sentence; below it, it refuses"
    )
    alone: float = Field(0.3, ge=0, le=1, description="extractive: smallest share that this sentence has by itself")
    endpoint: Endpoint | None = Field(None, description="openai: where to ask, and within which limits")
    samples: int = Field(1, ge=1, le=100, description="openai: answers a query, for self-consistency")
    attempt: int = Field(
        1, ge=1, description="openai: raise it to ask again for what failed; what was answered is kept"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of an own class")

    @model_validator(mode="after")
    def _known(self) -> AnsweringConfig:
        if self.answerer is not None and self.answerer not in BUILT_IN and not is_import_path(self.answerer):
            raise ValueError(
                f"answerer {self.answerer!r} is none of {', '.join(BUILT_IN)}, and no import path package.module:Class"
            )
        if self.answerer == "openai" and self.endpoint is None:
            raise ValueError(
                "answerer openai needs `endpoint`: {base_url: …, model: …}; the key stands in the environment"
            )
        return self

    @property
    def enabled(self) -> bool:
        """Whether anything answers."""
        return self.answerer is not None


CONFIG = AnsweringConfig


def run(frames: Frames, config: AnsweringConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Answers of all queries, with what they claim and cite; a query whose answer failed has a row with a status.

    Raises:
        ValueError: answers are imported and there are none.
        ClaimError: claims of an own class can't be judged.
    """
    parts: list[dict[str, pl.DataFrame]] = [_frames(Rows())]
    if config.enabled:
        queries = frames["prepared_queries"].sort("query_id")
        given = supplied(frames["contexts"], frames["chunks"])
        context = {str(key[0]): sources_of(g.to_dicts()) for key, g in given.group_by("query_id", maintain_order=True)}
        known = Known(frozenset(frames["chunks"]["chunk_id"]), frozenset(frames["chunks"]["doc_id"]))
        languages = dict(queries.select("query_id", "language").iter_rows())
        rows = Rows()
        made = _answers(frames, queries, context, config, runtime)
        for size, (answer_id, query_id, sample, said) in enumerate(made, 1):
            add(
                rows, said, answer_id, query_id, context.get(query_id, []), known,
                sample=sample, language=languages[query_id], answerer=str(config.answerer),
            )  # fmt: skip
            if size % BATCH == 0:
                parts.append(_frames(rows))
                rows = Rows()
        parts.append(_frames(rows))
    return {name: conform(schema, pl.concat([part[name] for part in parts])) for name, schema in TABLES.items()}


TABLES = {"answers": Answers, "answer_claims": AnswerClaims, "answer_citations": AnswerCitations}


def _frames(rows: Rows) -> dict[str, pl.DataFrame]:
    return {name: conform(schema, getattr(rows, name)) for name, schema in TABLES.items()}


def _answers(
    frames: Frames,
    queries: pl.DataFrame,
    context: Mapping[str, Sequence[Source]],
    config: AnsweringConfig,
    runtime: Runtime,
) -> Iterator[tuple[str, str, int, Said]]:
    """(answer_id, query_id, sample, answer), of every query at least one."""
    if config.answerer == "import":
        yield from imported(frames.get("output:answers"), queries["query_id"].to_list())
    elif config.answerer == "openai":
        yield from _asked(queries, context, config, runtime)
    else:
        rows = list(queries.select("query_id", "text", "language").iter_rows())
        made = _made(rows, context, config, runtime)
        for (query_id, _, _), said in zip(rows, made, strict=True):
            yield query_id, query_id, 1, said


# --- computed here ---------------------------------------------------------------------------------------------------


def _made(
    rows: Sequence[tuple[str, str, str | None]],
    context: Mapping[str, Sequence[Source]],
    config: AnsweringConfig,
    runtime: Runtime,
) -> list[Said]:
    """Answers of the baseline or of an own class; each query with the same context is answered once, in any version."""
    keys = [
        digest([text, language, [[s.text, s.language] for s in context.get(query_id, ())]])
        for query_id, text, language in rows
    ]
    own = None if config.answerer == "extractive" else load(str(config.answerer))(**config.options)

    def compute(missing: list[int]) -> Iterator[tuple[int, bytes]]:
        for index in missing:
            query_id, text, language = rows[index]
            sources = context.get(query_id, ())
            if own is None:
                said = extractive.answer(
                    text, language, sources, least=config.least, alone=config.alone, most=config.sentences
                )
            else:
                said = _own(own.answer(text, [s.text for s in sources]), str(config.answerer), query_id)
            yield index, json.dumps(asdict(said), ensure_ascii=False).encode("utf-8", "surrogatepass")

    return [_load(payload) for payload in runtime.cached(STAGE, keys, compute)]


def _load(payload: bytes) -> Said:
    given = json.loads(payload.decode("utf-8", "surrogatepass"))
    claims = given.pop("claims")
    citations = tuple(Cited(**each) for each in given.pop("citations"))
    made = None if claims is None else tuple(Claim(**{**each, "cites": tuple(each["cites"])}) for each in claims)
    return Said(**given, claims=made, citations=citations)


FIELDS = ("answer", "citations", "claims", "refused", "confidence")


def _own(given: Any, name: str, query_id: str) -> Said:
    """What an own class gave, checked."""
    where = f"answerer {name}, query {query_id}"
    if isinstance(given, str):
        return Said(given)
    if not isinstance(given, Mapping) or not isinstance(given.get("answer"), str):
        raise ValueError(
            f"{where}: found {type(given).__name__}; give a text, or an object with the text under `answer`"
        )
    if unknown := sorted(set(given) - set(FIELDS)):
        raise ValueError(f"{where}: unknown fields {unknown}; known are {', '.join(FIELDS)}")
    refused, confidence = given.get("refused"), given.get("confidence")
    if refused is not None and not isinstance(refused, bool):
        raise ValueError(f"{where}: `refused` is true, false or None, found {type(refused).__name__}")
    if confidence is not None and not (isinstance(confidence, int | float) and 0 <= confidence <= 1):
        raise ValueError(f"{where}: `confidence` lies in [0, 1] or is None")
    claims = None
    if given.get("claims"):
        try:
            claims = tuple(as_claims([str(claim) for claim in given["claims"]], given["answer"]))
        except ClaimError as error:
            raise ClaimError(f"{where}: {error}") from None
    cited = tuple(
        Cited(str(each), "passage" if isinstance(each, int) else None) for each in given.get("citations") or ()
    )
    return Said(given["answer"], claims, citations=cited, refused=refused, confidence=confidence)


# --- asked of an endpoint --------------------------------------------------------------------------------------------


def _asked(
    queries: pl.DataFrame, context: Mapping[str, Sequence[Source]], config: AnsweringConfig, runtime: Runtime
) -> Iterator[tuple[str, str, int, Said]]:
    """Answers of a model, in the order of queries. What was replied once is kept beside the memo and not paid again."""
    from rag_eval_pipeline.judging.replies import ReplyStore

    where = config.endpoint
    assert where is not None
    rows = {
        f"{query_id}#{sample}" if sample > 1 else query_id: (query_id, text, language, sample)
        for query_id, text, language in queries.select("query_id", "text", "language").iter_rows()
        for sample in range(1, config.samples + 1)
    }
    requests = (
        endpoint.request(
            answer_id, text, language, context.get(query_id, ()), where.form,
            str(extractive.refusal(language).text), sample - 1,
        )
        for answer_id, (query_id, text, language, sample) in rows.items()
    )  # fmt: skip
    store = ReplyStore(runtime.replies) if runtime.replies is not None else None
    plain = EndpointConfig(**{name: getattr(where, name) for name in EndpointConfig.model_fields})
    found: dict[str, Said] = {}
    for done, reply in enumerate(complete(plain, requests, store), 1):
        found[reply.request_id] = endpoint.said(reply, where.form)
        runtime.progress(STAGE, done, len(rows))
    for answer_id, (query_id, _, _, sample) in rows.items():
        yield answer_id, query_id, sample, found[answer_id]
