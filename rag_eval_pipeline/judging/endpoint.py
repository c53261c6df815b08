"""An OpenAI-compatible endpoint: how it is named and limited, what is asked of it, and what comes back.

Here: config, request, reply, and `complete`, the one way to ask. Not here: the protocol and its failures (`client`), what keeps
replies (`replies`), what is asked and how its answers are judged (`llm`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from rag_eval_pipeline.judging.replies import ReplyStore

Mode = Literal["json_schema", "tool", "json", "text"]
"""How structure was asked for; `text`: none was."""
OK = "ok"
STATUSES: Mapping[str, str] = {
    OK: "answered, and as the schema wants where one was given",
    "refused": "the model refused, or a content filter did",
    "invalid_json": "a schema was given and the reply is no JSON",
    "schema_violation": "a schema was given and the reply is JSON of another shape",
    "empty": "no choice, or a choice without content",
    "length": "stopped at max_tokens before the end",
    "cut": "the connection or stream ended early, also after retries",
    "timeout": "no reply in time, also after retries",
    "no_connection": "no connection, also after retries",
    "bad_response": "the reply isn't of the chat-completions protocol",
    "over_budget": "not asked: the spending cap could be passed",
    "too_large": "not asked: the request alone passes tokens_per_minute",
    "no_key": "not asked: the environment variable named by api_key_env is not set",
    "not_stored": "replay: no stored reply for this request",
}
"""What a status means; beside them `http_<code>` for an answer with an error code."""


class EndpointConfig(BaseModel):
    """Where to ask and within which limits. The key itself stands in the environment and is never part of this.

    `base_url`, `model` and what decides the text (`temperature`, `max_tokens`, `seed`) are part of a reply's identity; limits and
    prices are not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str = Field(description="Up to and with /v1, without /chat/completions.")
    model: str = Field(min_length=1, description="As the endpoint names it.")
    api_key_env: str | None = Field(
        "OPENAI_API_KEY", description="Name of the environment variable with the key, in capitals; null: none is sent."
    )
    temperature: float | None = Field(0, ge=0, le=2, description="Sampling temperature; null: not sent.")
    max_tokens: int = Field(1024, ge=1, description="Most tokens of one reply.")
    seed: int | None = Field(None, description="Sent where the endpoint takes one.")
    concurrency: int = Field(8, ge=1, le=1024, description="Requests under way at once.")
    requests_per_minute: float | None = Field(None, gt=0, description="Most requests in any minute; null: no limit.")
    tokens_per_minute: float | None = Field(
        None, gt=0, description="Most tokens, in and out, in any minute; null: no limit."
    )
    max_cost: float | None = Field(
        None,
        ge=0,
        description="Most that may be spent at this endpoint and model in 24 hours, in the prices' currency; it is never passed.",
    )
    price_in: float | None = Field(None, ge=0, description="Price of a million input tokens; null: not known, no cost.")
    price_out: float | None = Field(None, ge=0, description="Price of a million output tokens.")
    timeout_s: float = Field(60, gt=0, description="Longest wait for a reply.")
    retries: int = Field(
        5, ge=0, le=20, description="Tries after the first, on 429, 5xx, timeouts and cut connections."
    )
    backoff_s: float = Field(0.5, gt=0, description="Wait before the first of them, doubled each time, with jitter.")
    max_wait_s: float = Field(
        120, gt=0, description="Longest wait before a try; where Retry-After asks for more, it fails."
    )
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="How the endpoint names max_tokens."
    )

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str) -> str:
        scheme, _, rest = url.partition("://")
        if scheme not in ("http", "https") or not rest:
            raise ValueError("write http:// or https:// and the address, as https://api.example.com/v1")
        if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
            raise ValueError("no user, password or query in it: the key is read from the environment")
        try:
            parts = urlsplit(url)
            sound = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            sound = False
        if not sound or not url.isascii() or any(sign.isspace() for sign in url):
            raise ValueError("a host of ASCII signs (xn--… for others) and a port of 1 to 65535, without spaces")
        return url.rstrip("/").removesuffix("/chat/completions")

    @field_validator("api_key_env")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        # Settings are kept and shown; a key that was put here by mistake must not get that far.
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
            raise ValueError("the NAME of an environment variable (A–Z, 0–9, _), never the key itself")
        return name

    @model_validator(mode="after")
    def _priced(self) -> EndpointConfig:
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("price_in and price_out: give both or none")
        if self.max_cost is not None and self.price_in is None:
            raise ValueError("max_cost needs price_in and price_out, so that cost is known")
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """What decides the text beside the messages."""
        return {"temperature": self.temperature, "max_tokens": self.max_tokens, "seed": self.seed}


@dataclass(frozen=True)
class ChatRequest:
    """One request.

    Attributes:
        request_id: the caller's own id; unique among those given at once.
        messages: as the protocol has them: role and content.
        schema: JSON schema of the reply; None: text.
        schema_name: a name for it.
        logprobs: ask for log-probabilities of the reply's tokens.
        stream: receive it piece by piece, which tells the time to the first token.
        repeat: number of a deliberate repetition: the same request with another number is asked again.
    """

    request_id: str
    messages: tuple[Mapping[str, str], ...]
    schema: Mapping[str, Any] | None = None
    schema_name: str = "reply"
    logprobs: bool = False
    stream: bool = False
    repeat: int = 0


@dataclass(frozen=True)
class ChatReply:
    """What came back, or why nothing did.

    Attributes:
        request_id: of the request.
        status: a key of `STATUSES`, or `http_<code>`.
        text: the reply as it came; None where there is none.
        parsed: what the schema describes, only where status is `ok`.
        model: as the endpoint names it; None where it said nothing.
        input_tokens: as the endpoint counts them; None where it does not say.
        output_tokens: as above.
        cost: of all tries that were answered, in the prices' currency; None without prices or counts of tokens.
        first_token_s: seconds to the first token of the last try; streams only.
        total_s: seconds of the last try.
        attempts: tries, 0 where it was not asked.
        logprobs: for each token of the reply its candidates: (token, natural log of its probability), the chosen one first.
        mode: how structure was asked for.
        prompt_hash: identity of the request: where it is stored.
        received: when, ISO 8601 in UTC; None where nothing came.
        stored: whether it was there before.
    """

    request_id: str
    status: str
    text: str | None = None
    parsed: Any = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None
    attempts: int = 0
    logprobs: tuple[tuple[tuple[str, float], ...], ...] | None = None
    mode: Mode = "text"
    prompt_hash: str = ""
    received: str | None = None
    stored: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Progress:
    """How far a run of requests is; `cost` is that of what it asked itself."""

    done: int
    stored: int
    failed: int
    cost: float


def prompt_hash(config: EndpointConfig, request: ChatRequest) -> str:
    """Identity of a request: endpoint, model, parameters, messages, schema, and its number among deliberate repetitions."""
    whole = {
        "base_url": config.base_url,
        "model": config.model,
        "parameters": config.parameters,
        "messages": [dict(message) for message in request.messages],
        "schema": request.schema,
        "schema_name": request.schema_name if request.schema is not None else None,
        "logprobs": request.logprobs,
        "repeat": request.repeat,
    }
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def complete(
    config: EndpointConfig,
    requests: Iterable[ChatRequest],
    store: ReplyStore | None = None,
    progress: Callable[[Progress], None] | None = None,
    replay: bool = False,
) -> Iterator[ChatReply]:
    """Ask for every request, exactly one reply each, in the order in which they come back.

    A stored reply is given without asking. A new one is stored before it is yielded, so that a killed run pays none twice.
    Requests are taken from the iterator as they are needed: memory does not grow with their number.

    Args:
        config: of the endpoint.
        requests: each with its own request_id.
        store: where replies are kept; None: nowhere.
        progress: called after each reply.
        replay: ask nobody: what is not stored is `not_stored`.

    Raises:
        ValueError: `replay` without a store.
    """
    from rag_eval_pipeline.judging.client import run

    yield from run(config, requests, store, progress, replay)
