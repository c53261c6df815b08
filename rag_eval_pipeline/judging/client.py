"""The chat-completions protocol over HTTP: many requests at once, tried again where that helps, each reply kept as it comes.

Here: sending, failures, streams, fallbacks. Not here: limits (`pacing`), structure (`structured`), the store (`replies`). No text of a
request or reply, and no key, stands in any error.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import product
from typing import TYPE_CHECKING, Any

from rag_eval_pipeline.judging.endpoint import OK, ChatReply, ChatRequest, EndpointConfig, Mode, Progress, prompt_hash
from rag_eval_pipeline.judging.pacing import Budget, Pace
from rag_eval_pipeline.judging.replies import Began, Ended, ReplyStore, given_to
from rag_eval_pipeline.judging.structured import MODES, body, read

if TYPE_CHECKING:
    import httpx

LONGEST_REPLY = 16 * 2**20
"""Bytes; a longer reply is none of this protocol."""
KEPT = frozenset({OK, "refused", "invalid_json", "schema_violation", "empty", "length"})
"""Statuses of replies that were paid for: they are stored, and never asked again."""
UNSUPPORTED = frozenset({400, 404, 415, 422, 501})
"""Codes by which endpoints refuse a form of request that they don't know."""
STOPS = frozenset({401, 403})
"""Codes after which no further request is worth sending."""
_LEAST_LOG = -12.0
"""Candidates of a token below this log-probability are not kept."""
_BYTES_A_TOKEN = 3.0
"""Expected, for the minute's budget of tokens; corrected by each reply. Money is reserved for the most: a token a byte."""
_OVERHEAD = 64
"""Tokens that roles and separators of a request may add, at most, beside 16 a message."""


@dataclass(frozen=True)
class _Try:
    """What one sending gave."""

    status: str
    text: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    first_token_s: float | None = None
    total_s: float | None = None
    logprobs: tuple[tuple[tuple[str, float], ...], ...] | None = None
    again: bool = False
    """Whether another try may help."""
    wait: float | None = None
    """Seconds that the endpoint asks to wait."""
    billed: bool = True
    """Whether it may have cost anything."""
    unsupported: bool = False
    """Whether the endpoint may not know this form of request."""
    value: Any = None
    """What the schema describes."""
    last: bool = False
    """Whether nothing else is worth asking."""


def run(
    config: EndpointConfig,
    requests: Iterable[ChatRequest],
    store: ReplyStore | None,
    progress: Callable[[Progress], None] | None,
    replay: bool,
) -> Iterator[ChatReply]:
    """See `endpoint.complete`. An event loop of its own thread asks; at most four replies a place wait to be taken."""
    if replay and store is None:
        raise ValueError("replay needs the store of replies of an earlier run")
    replies: queue.SimpleQueue[ChatReply | BaseException | None] = queue.SimpleQueue()
    asking = _Asking(config, iter(requests), store, replay, replies)
    thread = threading.Thread(target=asking.work, name="asking an endpoint", daemon=True)
    thread.start()
    done = stored = failed = 0
    try:
        while (found := replies.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            asking.taken()
            done, stored, failed = done + 1, stored + found.stored, failed + (found.status != OK)
            if progress is not None:
                progress(Progress(done, stored, failed, asking.spent))
            yield found
    finally:
        asking.stop()
        thread.join()


class _Asking:
    """One run of requests."""

    def __init__(
        self,
        config: EndpointConfig,
        requests: Iterator[ChatRequest],
        store: ReplyStore | None,
        replay: bool,
        replies: queue.SimpleQueue[ChatReply | BaseException | None],
    ) -> None:
        self.config, self.store, self.replay = config, store, replay
        self._requests, self._replies = requests, replies
        self._key = _key(config)
        self._known: dict[tuple[bool, bool], int] = {}
        self._unreached = self._taken = 0
        self._stopped: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._under_way: dict[str, asyncio.Future[ChatReply]] = {}
        self._clients: list[httpx.AsyncClient] = []

    @property
    def spent(self) -> float:
        """Cost of what this run asked."""
        return self._budget.spent

    def work(self) -> None:
        """Ask for everything; the thread's body."""
        try:
            asyncio.run(self._all())
        except asyncio.CancelledError:
            self._replies.put(None)
        except BaseException as error:  # handed to the caller's thread, which raises it
            self._replies.put(error)
        else:
            self._replies.put(None)
        finally:
            self._ready.set()
            if self.store is not None:
                self.store.release()

    def taken(self) -> None:
        """The caller took a reply: there is room for another. Told by the dozen, since waking the loop costs as much as a reply."""
        self._taken += 1
        if self._taken == self.config.concurrency:
            self._taken = 0
            self._tell(self._make_room)

    def _make_room(self) -> None:
        for _ in range(self.config.concurrency):
            self._room.release()

    def stop(self) -> None:
        """Ask no more; what is under way is given up."""
        self._ready.wait()
        if self._main is not None and not self._main.done():
            self._tell(self._main.cancel)

    def _tell(self, what: Callable[[], object]) -> None:
        """Do something in the loop's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop ended in between: nobody waits for it any more
                self._loop.call_soon_threadsafe(what)

    async def _all(self) -> None:
        import httpx

        config = self.config
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self._budget, self._pace = Budget(config.max_cost), Pace(config.requests_per_minute, config.tokens_per_minute)
        if self.store is not None and config.max_cost is not None:
            day_ago = datetime.now(UTC) - timedelta(days=1)
            self._budget.earlier(self.store.spent(config, day_ago.isoformat(timespec="milliseconds")))
        self._room = asyncio.Semaphore(4 * config.concurrency)
        self._ready.set()
        self._url, self._trust = httpx.URL(f"{config.base_url}/chat/completions"), httpx.create_ssl_context()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(config.concurrency):
                    group.create_task(self._place())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for client in self._clients:
                await client.aclose()

    async def _place(self) -> None:
        """One place: a request after the other."""
        while (request := await self._next()) is not None:
            self._replies.put(await self._answer(request))

    async def _next(self) -> ChatRequest | None:
        """The next request, once there is room for its reply; None: there is none."""
        await self._room.acquire()
        request = next(self._requests, None)
        if request is None:
            self._room.release()
        return request

    async def _answer(self, request: ChatRequest) -> ChatReply:
        name = prompt_hash(self.config, request)
        if (other := self._under_way.get(name)) is not None:
            same = await asyncio.shield(other)
            return replace(same, request_id=request.request_id, stored=True)
        future: asyncio.Future[ChatReply] = asyncio.get_running_loop().create_future()
        self._under_way[name] = future
        try:
            reply = await self._stored_or_asked(request, name)
            future.set_result(reply)
            return reply
        except BaseException:
            future.cancel()
            raise
        finally:
            del self._under_way[name]

    async def _stored_or_asked(self, request: ChatRequest, name: str) -> ChatReply:
        if self.store is not None:
            kept = self.store.get(name)
            if kept is not None:
                _, value = read(kept.text or "", request.schema)
                return given_to(kept, request.request_id, value)
        nothing = ChatReply(request.request_id, "not_stored", prompt_hash=name)
        if self.replay:
            return nothing
        if self._key is None:
            return replace(nothing, status="no_key")
        if self._stopped is not None:
            return replace(nothing, status=self._stopped)
        return await self._asked(request, nothing)

    # --- tries -------------------------------------------------------------------------------------------------------

    async def _asked(self, request: ChatRequest, nothing: ChatReply) -> ChatReply:
        """Try until a reply is there, or another try would not help or is not allowed."""
        size = _size(request)
        tokens = size / _BYTES_A_TOKEN + self.config.max_tokens
        at_most = self._price(size + _OVERHEAD + 16 * len(request.messages), self.config.max_tokens) or 0.0
        if self.config.tokens_per_minute is not None and tokens > self.config.tokens_per_minute:
            return replace(nothing, status="too_large")
        attempts, failures, cost = 0, 0, None
        kind, forms = (request.schema is not None, request.logprobs), _forms(request)
        form, refused = self._known.get(kind, 0), None
        while True:
            if not await self._budget.reserve(at_most):
                return replace(nothing, status="over_budget", attempts=attempts, cost=cost)
            so_far = replace(nothing, mode=forms[form].mode, attempts=attempts + 1, cost=cost)
            found, reply = await self._one(request, so_far, forms[form], tokens, at_most)
            attempts, cost = reply.attempts, reply.cost
            if found.status in KEPT:
                self._unreached, self._known[kind] = 0, max(form, self._known.get(kind, 0))
                return reply
            if found.unsupported:
                refused = refused or reply
                if form + 1 < len(forms):
                    form += 1
                    continue
                return replace(refused, attempts=attempts)
            if found.last:
                self._stopped = found.status
            wait = self._wait(found, failures)
            failures += 1
            if not found.again or failures > self.config.retries or wait is None or self._stopped is not None:
                self._count_unreached(found.status)
                return reply
            await asyncio.sleep(wait)

    async def _one(
        self, request: ChatRequest, so_far: ChatReply, form: _Form, tokens: float, at_most: float
    ) -> tuple[_Try, ChatReply]:
        """One try, from its turn to its end. It is noted before it is sent, and its reply is kept before anybody sees it."""
        name = so_far.prompt_hash
        settled = False
        try:
            slot = await self._pace.turn(tokens)
            (try_id,) = self._noted(Began(name, _now(), at_most)) or (0,)
            sent = body(self.config, request, form.mode, form.logprobs)
            found = await self._send(sent, f"{name}-{form.mode}-{form.logprobs:d}", request.stream)
            if found.status == OK and found.text is not None:
                status, value = read(found.text, request.schema)
                found = replace(found, status=status, value=value)
            known = found.input_tokens is not None and found.output_tokens is not None
            if known:
                self._pace.correct(slot, float((found.input_tokens or 0) + (found.output_tokens or 0)))
            paid = self._price(found.input_tokens or 0, found.output_tokens or 0) if known else None
            ended = paid if known or found.billed else 0.0
            ended = 0.0 if self.config.price_in is None else ended
            reply = _with(so_far, found, _sum(so_far.cost, paid))
            self._noted(Ended(try_id, found.status, ended, reply if found.status in KEPT else None))
            await self._budget.settle(at_most, ended)
            settled = True
            return found, reply
        finally:
            if not settled:  # cancelled: what was under way may have been paid
                self._budget.earlier(at_most)

    def _noted(self, step: Began | Ended) -> list[int]:
        """Write a step. Not in another thread: changing threads takes longer than writing."""
        return [] if self.store is None else self.store.apply(self.config, [step])

    def _wait(self, found: _Try, failures: int) -> float | None:
        """Seconds before the next try; None: longer than is waited for."""
        backoff = self.config.backoff_s * 2**failures * random.uniform(0.5, 1.5)
        if found.wait is None:
            return min(backoff, self.config.max_wait_s)
        if found.wait > self.config.max_wait_s:
            return None
        self._pace.pause(found.wait)
        return found.wait + random.uniform(0, self.config.backoff_s)

    def _count_unreached(self, status: str) -> None:
        """After as many requests in a row as there are places, all without a connection, no further one is tried."""
        self._unreached = self._unreached + 1 if status == "no_connection" else 0
        if self._unreached >= self.config.concurrency:
            self._stopped = status

    def _price(self, tokens_in: float, tokens_out: float) -> float | None:
        if self.config.price_in is None or self.config.price_out is None:
            return None
        return (tokens_in * self.config.price_in + tokens_out * self.config.price_out) / 1e6

    # --- one exchange ------------------------------------------------------------------------------------------------

    def _connected(self) -> httpx.AsyncClient:
        """A client that nobody uses now. Each has one connection: a shared pool is looked through, whole, for every request."""
        import httpx

        if self._clients:
            return self._clients.pop()
        headers = {"Content-Type": "application/json", "User-Agent": "rag_eval_pipeline"}
        if isinstance(self._key, str):
            headers["Authorization"] = f"Bearer {self._key}"
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        return httpx.AsyncClient(timeout=self.config.timeout_s, limits=limits, headers=headers, verify=self._trust)

    async def _send(self, sent: Mapping[str, Any], name: str, stream: bool) -> _Try:
        import httpx

        began = time.monotonic()
        content = json.dumps(sent, ensure_ascii=False).encode("utf-8", "replace")
        # An endpoint that knows the header charges a request that was cut off and is sent again only once.
        headers, client = {"Idempotency-Key": name}, self._connected()
        try:
            async with asyncio.timeout(self.config.timeout_s):
                async with client.stream("POST", self._url, content=content, headers=headers) as response:
                    if response.status_code != httpx.codes.OK:
                        return await _refusal(response)
                    if stream and "event-stream" in response.headers.get("content-type", ""):
                        found = await _streamed(response, began)
                    else:
                        found = _whole(await _bytes(response))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol):
            return _Try("no_connection", again=True, billed=False)
        except (TimeoutError, httpx.TimeoutException):
            return _Try("timeout", again=True)
        except httpx.HTTPError:
            return _Try("cut", again=True)
        except _ProtocolError:
            return _Try("bad_response", total_s=time.monotonic() - began)
        finally:
            self._clients.append(client)
        return replace(found, total_s=time.monotonic() - began)


@dataclass(frozen=True)
class _Form:
    """One way to ask: endpoints that don't know it refuse it, and the next one is tried."""

    mode: Mode
    logprobs: bool


def _forms(request: ChatRequest) -> list[_Form]:
    modes = MODES if request.schema is not None else ("text",)
    return [_Form(mode, logprobs) for logprobs, mode in product((True, False) if request.logprobs else (False,), modes)]


class _ProtocolError(ValueError):
    """A reply of another shape."""


def _key(config: EndpointConfig) -> str | bool | None:
    """The key; True where none is sent; None where it should be there and is not, or can't stand in a header."""
    if config.api_key_env is None:
        return True
    key = os.environ.get(config.api_key_env, "").strip()
    return key if key and key.isascii() and key.isprintable() else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _size(request: ChatRequest) -> int:
    """Bytes of a request's text, schema included: no tokenizer makes more tokens of it."""
    texts = [str(message.get("content", "")) for message in request.messages]
    if request.schema is not None:
        texts.append(json.dumps(request.schema, ensure_ascii=False))
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def _sum(first: float | None, second: float | None) -> float | None:
    return first if second is None else second if first is None else first + second


def _with(so_far: ChatReply, found: _Try, cost: float | None) -> ChatReply:
    return replace(
        so_far, status=found.status, text=found.text, parsed=found.value, model=found.model,
        input_tokens=found.input_tokens, output_tokens=found.output_tokens, cost=cost,
        first_token_s=found.first_token_s, total_s=found.total_s, logprobs=found.logprobs,
        received=_now() if found.status in KEPT else None,
    )  # fmt: skip


# --- reading responses -------------------------------------------------------------------------------------------------


async def _chunks(response: Any) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > LONGEST_REPLY:
            raise _ProtocolError
        yield chunk


async def _bytes(response: Any) -> bytes:
    return b"".join([chunk async for chunk in _chunks(response)])


async def _refusal(response: Any) -> _Try:
    """An answer with another code than 200."""
    code = response.status_code
    try:
        told = json.loads(await _bytes(response))
        error = told.get("error") if isinstance(told, dict) else None
        kind = error.get("code") or error.get("type") if isinstance(error, dict) else None
    except (ValueError, RecursionError):
        kind = None
    exhausted = kind in ("insufficient_quota", "billing_hard_limit_reached")
    again = (code in (408, 425, 429) or code >= 500) and code != 501 and not exhausted
    wait = _retry_after(response.headers.get("retry-after")) if again else None
    last, unsupported = code in STOPS or exhausted, code in UNSUPPORTED
    return _Try(f"http_{code}", again=again, wait=wait, billed=False, last=last, unsupported=unsupported)


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header: a number of them, or a date; None where it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError):
            return None
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        seconds = (at - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if seconds == seconds and seconds != float("inf") else None


def _whole(content: bytes) -> _Try:
    """A reply in one piece."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise _ProtocolError from None
    if not isinstance(told, dict):
        raise _ProtocolError
    choices = told.get("choices")
    if told.get("error") is not None and not choices:  # some gateways hide a failure behind code 200
        return _Try("bad_response", again=True)
    choice = choices[0] if isinstance(choices, list) and choices else {}
    message = choice.get("message") if isinstance(choice, dict) else None
    gathered = _Gathered()
    gathered.told(told)
    if isinstance(message, dict):
        gathered.piece(message)
    if isinstance(choice, dict):
        gathered.chosen(choice)
    return gathered.result()


async def _streamed(response: Any, began: float) -> _Try:
    """A reply piece by piece (server-sent events)."""
    gathered, rest, ended = _Gathered(), b"", False
    first: float | None = None
    async for chunk in _chunks(response):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            data = line.strip()
            if not data.startswith(b"data:"):
                continue
            data = data[5:].strip()
            if data == b"[DONE]":
                ended = True
                continue
            try:
                told = json.loads(data)
            except (ValueError, RecursionError):
                raise _ProtocolError from None
            if not isinstance(told, dict):
                raise _ProtocolError
            if told.get("error") is not None:
                return _Try("cut", again=True)
            gathered.told(told)
            for choice in told.get("choices") or ():
                if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                    continue
                if gathered.piece(choice.get("delta") or {}) and first is None:
                    first = time.monotonic() - began
                gathered.chosen(choice)
    if not ended and gathered.finish is None:
        return _Try("cut", again=True)
    return replace(gathered.result(), first_token_s=first)


class _Gathered:
    """A reply as its pieces come."""

    def __init__(self) -> None:
        self.finish: str | None = None
        self._text: list[str] = []
        self._arguments: list[str] = []
        self._refusal = False
        self._model: str | None = None
        self._usage: tuple[int | None, int | None] = (None, None)
        self._logprobs: list[tuple[tuple[str, float], ...]] = []

    def told(self, whole: Mapping[str, Any]) -> None:
        """What stands beside the choices."""
        if isinstance(whole.get("model"), str):
            self._model = whole["model"]
        usage = whole.get("usage")
        if isinstance(usage, dict):
            self._usage = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))

    def piece(self, message: Mapping[str, Any]) -> bool:
        """A message or a part of one; whether it holds anything."""
        if not isinstance(message, Mapping):
            return False
        content, refusal = message.get("content"), message.get("refusal")
        if isinstance(content, list):  # content in parts
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        held = bool(content) or bool(refusal)
        if isinstance(content, str):
            self._text.append(content)
        self._refusal = self._refusal or bool(refusal)
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and call.get("index", 0) == 0 and isinstance(function.get("arguments"), str):
                self._arguments.append(function["arguments"])
                held = held or bool(function["arguments"])
        return held

    def chosen(self, choice: Mapping[str, Any]) -> None:
        """What a choice says beside its message."""
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
        logprobs = choice.get("logprobs")
        tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
        self._logprobs += [_candidates(token) for token in tokens or () if isinstance(token, dict)]

    def result(self) -> _Try:
        """The whole."""
        text = "".join(self._arguments) or "".join(self._text)
        status = OK
        if self._refusal or self.finish == "content_filter":
            status = "refused"
        elif not text.strip():
            status = "empty"
        elif self.finish == "length":
            status = "length"
        tokens_in, tokens_out = self._usage
        return _Try(
            status, text or None, self._model, tokens_in, tokens_out, logprobs=tuple(self._logprobs) or None
        )  # fmt: skip


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _candidates(token: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """A token's candidates, the chosen one first, those that are next to impossible left out."""
    found: dict[str, float] = {}
    for each in (token, *(token.get("top_logprobs") or ())):
        if (
            isinstance(each, dict)
            and isinstance(each.get("token"), str)
            and isinstance(each.get("logprob"), int | float)
        ):
            found.setdefault(each["token"], float(each["logprob"]))
    chosen = token.get("token")
    return tuple((name, log) for name, log in found.items() if name == chosen or log >= _LEAST_LOG)
