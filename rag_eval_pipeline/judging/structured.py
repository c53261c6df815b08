"""Structured replies: how structure is asked for, and what a text is once it came.

Here: bodies by mode, JSON out of a text, a schema held against it. Not here: sending (`client`), what fields mean (`rubrics`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rag_eval_pipeline.judging.endpoint import OK, ChatRequest, EndpointConfig, Mode

MODES: tuple[Mode, ...] = ("json_schema", "tool", "json")
"""In the order in which they are tried."""
CANDIDATES = 20
"""Most candidates of a token that the protocol gives."""
_JSON_ALONE = "Reply with one JSON object and nothing else. It must fit this JSON schema:\n"


def body(config: EndpointConfig, request: ChatRequest, mode: Mode, logprobs: bool) -> dict[str, Any]:
    """The request's body."""
    messages = [dict(message) for message in request.messages]
    made: dict[str, Any] = {"model": config.model, config.max_tokens_key: config.max_tokens}
    if config.temperature is not None:
        made["temperature"] = config.temperature
    if config.seed is not None:
        made["seed"] = config.seed
    if logprobs:
        made |= {"logprobs": True, "top_logprobs": CANDIDATES}
    if request.stream:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.schema is not None:
        name, schema = request.schema_name, dict(request.schema)
        if mode == "json_schema":
            made["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": schema, "strict": True},
            }
        elif mode == "tool":
            made["tools"] = [{"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}]
            made["tool_choice"] = {"type": "function", "function": {"name": name}}
        else:
            told = _JSON_ALONE + json.dumps(schema, sort_keys=True, ensure_ascii=False)
            messages = [*messages, {"role": "system", "content": told}]
    return made | {"messages": messages}


def read(text: str, schema: Mapping[str, Any] | None) -> tuple[str, Any]:
    """Status and value of a reply's text: `ok`, `invalid_json` or `schema_violation`; without a schema always `ok`, None."""
    if schema is None:
        return OK, None
    try:
        value = json.loads(_bare(text), parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return "invalid_json", None
    return (OK, value) if _validator(json.dumps(schema, sort_keys=True)).is_valid(value) else ("schema_violation", None)


def _bare(text: str) -> str:
    """The JSON object in a text: fences and words around it, which plain JSON replies often have, are left out."""
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        return stripped
    start, end = stripped.find("{"), stripped.rfind("}")
    return stripped[start : end + 1] if 0 <= start < end else stripped


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key twice: which of the two was meant is not known")
    return made


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))
