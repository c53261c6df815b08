"""An endpoint of the OpenAI protocol that misbehaves on demand: for tests and benches, in a thread or a process of its own.

What it does wrong is written into the prompt: `#fault:429*2` twice answers 429, then well. Faults: 429, 429after, 429date, 500,
hang, cut, invalid_json, schema_violation, too_few, other_claims, refusal, empty, length, no_usage, quota, garbage. It counts what
it would bill, by Idempotency-Key, and how many it served at once.

`python -m rag_eval_pipeline_tests.endpoint --latency 0.05` prints its address and serves until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

FAULT = re.compile(r"#fault:(\w+?)(?:\*(\d+))?(?![\w*])")
FORMS = ("json_schema", "tool", "json")
Brain = Callable[[dict[str, Any], dict[str, Any]], Any]
"""(body, schema) -> the value of the reply, or None: the schema's first choices."""


@dataclass
class Seen:
    """What the server saw."""

    requests: int = 0
    billed: Counter = field(default_factory=Counter)
    tokens: int = 0
    most_at_once: int = 0
    at_once: int = 0
    times: list[float] = field(default_factory=list)
    taken: list[tuple[float, int]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    forms: Counter = field(default_factory=Counter)
    faults: Counter = field(default_factory=Counter)
    bodies: list[dict] = field(default_factory=list)


class Endpoint:
    """The server.

    Args:
        latency: seconds before each reply.
        supports: forms of structure that it knows; others are answered with 400.
        logprobs: whether it knows them.
        brain: what it replies.
        keep: whether bodies are kept.
    """

    def __init__(self, latency=0.0, supports=FORMS, logprobs=True, brain: Brain | None = None, keep=False):
        self.latency, self.supports, self.logprobs, self.brain, self.keep = latency, supports, logprobs, brain, keep
        self.seen = Seen()
        self._times: Counter = Counter()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, ready: Callable[[], None]) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        ready()
        async with server:
            await server.serve_forever()

    async def _connection(self, reader, writer) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                if head[0].startswith("GET /seen"):
                    _plain(writer, 200, self._seen())
                    await writer.drain()
                    continue
                self.seen.at_once += 1
                self.seen.most_at_once = max(self.seen.most_at_once, self.seen.at_once)
                try:
                    if not await self._answer(json.loads(content), headers, writer):
                        return
                finally:
                    self.seen.at_once -= 1
                await writer.drain()
        writer.close()

    def _seen(self) -> dict[str, Any]:
        return {
            "requests": self.seen.requests, "billed": dict(self.seen.billed), "tokens": self.seen.tokens,
            "most_at_once": self.seen.most_at_once, "faults": dict(self.seen.faults),
        }  # fmt: skip

    async def _answer(self, body: dict[str, Any], headers: dict[str, str], writer) -> bool:
        """Answer one request; False where the connection ends."""
        name, prompt = headers.get("idempotency-key", ""), "\n".join(str(m["content"]) for m in body["messages"])
        self.seen.requests += 1
        self.seen.times.append(time.monotonic())
        self.seen.keys.add(headers.get("authorization", ""))
        if self.keep:
            self.seen.bodies.append(body)
        form, schema = _asked(body, prompt)
        self.seen.forms[form] += 1
        fault = self._fault(prompt, name)
        if self.latency:
            await asyncio.sleep(self.latency)
        if (schema is not None and form not in self.supports) or (body.get("logprobs") and not self.logprobs):
            _plain(writer, 400, {"error": {"message": "unsupported", "type": "invalid_request_error"}})
            return True
        if fault is not None:
            self.seen.faults[fault] += 1
        if fault == "hang":
            await asyncio.sleep(3600)
        if (early := _early(fault)) is not None:
            code, told, extra = early
            _plain(writer, code, told, extra)
            return True
        if fault == "garbage":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n<html>no!")
            return True
        text = self._text(body, schema, prompt, fault)
        tokens = len(prompt.encode()) // 4, max(1, len(text.encode()) // 4)
        self.seen.billed[name] += 1
        self.seen.tokens += sum(tokens)
        self.seen.taken.append((time.monotonic(), sum(tokens)))
        return await _reply(writer, body, form if schema is not None else "text", text, tokens, fault)

    def _fault(self, prompt: str, name: str) -> str | None:
        for kind, times in FAULT.findall(prompt):
            if times and self._times[name, kind] >= int(times):
                continue
            self._times[name, kind] += 1
            return kind
        return None

    def _text(self, body, schema, prompt, fault) -> str:
        if schema is None:
            return f"You said {len(prompt)} characters."
        value = self.brain(body, schema) if self.brain is not None else None
        value = instance(schema) if value is None else value
        if fault == "invalid_json":
            return json.dumps(value)[:-2]
        if fault == "schema_violation":
            return json.dumps({"something": "else"})
        if fault == "too_few" and isinstance(value, dict):
            value = dict(list(value.items())[1:])
        if fault == "other_claims" and isinstance(value, dict):
            value = {f"other_{key}": each for key, each in value.items()}
        return json.dumps(value)


def _asked(body, prompt) -> tuple[str, dict[str, Any] | None]:
    if "response_format" in body:
        return "json_schema", body["response_format"]["json_schema"]["schema"]
    if "tools" in body:
        return "tool", body["tools"][0]["function"]["parameters"]
    last = str(body["messages"][-1]["content"])
    if "JSON schema:\n" in last:
        return "json", json.loads(last.split("JSON schema:\n", 1)[1])
    return "text", None


def instance(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """A value of a schema: first choices, least numbers."""
    root = root or schema
    if "$ref" in schema:
        return instance(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], root)
    kind = schema.get("type")
    if kind == "object":
        return {name: instance(each, root) for name, each in schema.get("properties", {}).items()}
    return {"array": [], "string": "because", "integer": schema.get("minimum", 0), "number": 0.0, "boolean": False}.get(
        kind
    )


def _early(fault) -> tuple[int, dict, dict] | None:
    limited = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
    return {
        "429": (429, limited, {}),
        "429after": (429, limited, {"Retry-After": "0.2"}),
        "429date": (429, limited, {"Retry-After": formatdate(time.time() + 1, usegmt=True)}),
        "429long": (429, limited, {"Retry-After": "86400"}),
        "500": (500, {"error": {"message": "oh"}}, {}),
        "401": (401, {"error": {"message": "bad key"}}, {}),
        "quota": (429, {"error": {"code": "insufficient_quota"}}, {}),
        "hidden": (200, {"error": {"message": "upstream failed"}}, {}),
    }.get(fault)


def _plain(writer, code, told, extra=None) -> None:
    content = json.dumps(told).encode()
    lines = [f"HTTP/1.1 {code} X", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in (extra or {}).items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


def _message(form, text, fault) -> dict[str, Any]:
    if fault == "refusal":
        return {"role": "assistant", "content": None, "refusal": "I can't help with that."}
    if form == "tool":
        call = {"id": "x", "type": "function", "index": 0, "function": {"name": "reply", "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": text}


def _logprobs(text) -> dict[str, Any]:
    tokens = re.findall(r"\d|[^\d]+", text)
    return {"content": [{"token": t, "logprob": -0.1, "top_logprobs": _tops(t)} for t in tokens]}


def _tops(token) -> list[dict[str, Any]]:
    others = {"4": -0.7, "5": -0.7} if token.isdigit() else {}
    return [{"token": token, "logprob": -0.1}, *({"token": t, "logprob": p} for t, p in others.items() if t != token)]


async def _reply(writer, body, form, text, tokens, fault) -> bool:
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    finish = {"refusal": "stop", "length": "length"}.get(fault, "tool_calls" if form == "tool" else "stop")
    message = _message(form, text, fault)
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
    if body.get("logprobs") and form != "tool":
        choice["logprobs"] = _logprobs(text)
    whole: dict[str, Any] = {"id": "r", "object": "chat.completion", "model": f"{body['model']}-0", "usage": usage}
    if fault == "no_usage":
        del whole["usage"]
    if body.get("stream"):
        return await _stream(writer, whole, choice, fault)
    whole["choices"] = [] if fault == "empty" else [choice]
    content = json.dumps(whole).encode()
    if fault == "cut":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n" + content)
        await writer.drain()
        writer.close()
        return False
    _plain(writer, 200, whole)
    return True


async def _stream(writer, whole, choice, fault) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    usage = whole.pop("usage", None)
    pieces = [] if fault == "empty" else _pieces(choice)
    if fault == "cut":
        pieces = pieces[: len(pieces) // 2]
    for piece in pieces:
        _event(writer, {**whole, "object": "chat.completion.chunk", "choices": [piece]})
        await writer.drain()
    if fault == "cut":
        writer.close()
        return False
    _event(writer, {**whole, "choices": [], "usage": usage})
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    return True


def _pieces(choice) -> list[dict[str, Any]]:
    message, made = choice["message"], [{"index": 0, "delta": {"role": "assistant", "content": ""}}]
    if message.get("tool_calls"):
        call = message["tool_calls"][0]
        made += [
            {"index": 0, "delta": {"tool_calls": [{**call, "function": {"name": "reply", "arguments": part}}]}}
            for part in re.findall(r"(?s).{1,20}", call["function"]["arguments"])
        ]
    elif message.get("refusal"):
        made.append({"index": 0, "delta": {"refusal": message["refusal"]}})
    else:
        made += [{"index": 0, "delta": {"content": part}} for part in re.findall(r"(?s).{1,20}", message["content"])]
        if "logprobs" in choice:
            made.append({"index": 0, "delta": {}, "logprobs": choice["logprobs"]})
    return [*made, {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]


def _event(writer, told) -> None:
    content = b"data: " + json.dumps(told).encode() + b"\n\n"
    writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")


@contextlib.contextmanager
def serving(**options) -> Iterator[Endpoint]:
    """An endpoint in a thread of this process."""
    endpoint, ready, loop = Endpoint(**options), threading.Event(), asyncio.new_event_loop()

    def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(endpoint.serve(ready.set))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield endpoint
    finally:

        def end() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()

        loop.call_soon_threadsafe(end)
        thread.join(10)


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    endpoint = Endpoint(latency=parser.parse_args().latency)
    asyncio.run(endpoint.serve(lambda: print(endpoint.url, flush=True)))


if __name__ == "__main__":
    main()
