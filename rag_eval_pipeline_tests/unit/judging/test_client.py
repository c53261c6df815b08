"""The client against an endpoint that misbehaves: what is tried again, what is paid, what is kept, what is never passed."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.judging import client, pacing
from rag_eval_pipeline.judging.endpoint import STATUSES, ChatRequest, EndpointConfig, complete, prompt_hash
from rag_eval_pipeline.judging.replies import ReplyStore, ReplyStoreError
from rag_eval_pipeline.judging.structured import read
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline_tests.endpoint import serving
from rag_eval_pipeline_tests.small import QUICK, write_corpus

ROOT = Path(__file__).parents[3]
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "integer", "minimum": 3}},
    "required": ["verdict", "score"],
    "additionalProperties": False,
}
KEY = "sk-a-very-secret-key-5511"


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture(scope="module")
def endpoint():
    with serving() as running:
        yield running


def config(endpoint, **options):
    given = {"model": "m", "backoff_s": 0.01, "timeout_s": 5, "retries": 3, "max_tokens": 50, **options}
    return EndpointConfig(base_url=endpoint.url, **given)


def request(name, text="hello", **options):
    return ChatRequest(name, ({"role": "user", "content": f"{name}: {text}"},), **options)


def ask(endpoint, *requests, store=None, replay=False, **options):
    made = complete(config(endpoint, **options), requests, store, replay=replay)
    return {reply.request_id: reply for reply in made}


# --- config and identity -----------------------------------------------------------------------------------------------


def test_a_config_never_holds_a_key_and_refuses_an_address_that_does():
    with pytest.raises(ValidationError, match="no user, password or query"):
        EndpointConfig(base_url="https://user:pass@host/v1", model="m")
    with pytest.raises(ValidationError, match="http"):
        EndpointConfig(base_url="host/v1", model="m")
    made = EndpointConfig(base_url="https://host/v1/chat/completions/", model="m")
    assert made.base_url == "https://host/v1"
    assert KEY not in made.model_dump_json()


@pytest.mark.parametrize(
    "url",
    ["http://h:99999/v1", "http://h:x/v1", "http://[::1/v1", "http://:80/v1", "http://a b/v1", "http://€.example/v1"],
)
def test_an_address_that_no_client_can_ask_is_refused_before_anything_runs(url):
    with pytest.raises(ValidationError, match="a host of ASCII signs"):
        EndpointConfig(base_url=url, model="m")


@pytest.mark.parametrize("name", [KEY, "sk-a", "AIzaSyD0", "deadbeef00", "A=B", "", "A B"])
def test_a_key_in_the_place_of_its_variables_name_is_refused_and_not_told(tmp_path, name):
    with pytest.raises(ValidationError, match="never the key itself"):
        EndpointConfig(base_url="http://h/v1", model="m", api_key_env=name)
    judge = {"base_url": "http://h/v1", "model": "m", "api_key_env": name}
    home = Home(tmp_path, str(tmp_path / "warehouse"))
    write_corpus(home.corpora, documents=1, pipeline={**QUICK, "judging": {"judge": judge}})
    with pytest.raises(CorpusError, match="never the key itself") as caught:
        Subject.open(home, "small@v1", workers=0)
    assert len(name) < 4 or name not in str(caught.value)


def test_a_cap_without_prices_is_refused():
    with pytest.raises(ValidationError, match="needs price_in"):
        EndpointConfig(base_url="http://h/v1", model="m", max_cost=1)
    with pytest.raises(ValidationError, match="both or none"):
        EndpointConfig(base_url="http://h/v1", model="m", price_in=1)


def test_the_hash_names_what_decides_the_text_and_nothing_else():
    base, asked = EndpointConfig(base_url="http://h/v1", model="m"), request("a", schema=SCHEMA)
    same = base.model_copy(update={"concurrency": 2, "price_in": 1.0, "price_out": 1.0, "timeout_s": 1})
    assert prompt_hash(base, asked) == prompt_hash(same, asked)
    other_id = ChatRequest("b", asked.messages, SCHEMA)
    assert prompt_hash(base, asked) == prompt_hash(base, other_id)
    others = [
        prompt_hash(base.model_copy(update={"temperature": 1}), asked),
        prompt_hash(base.model_copy(update={"model": "n"}), asked),
        prompt_hash(base, request("a", "bye", schema=SCHEMA)),
        prompt_hash(base, request("a")),
        prompt_hash(base, request("a", schema=SCHEMA, repeat=1)),
    ]
    assert len({prompt_hash(base, asked), *others}) == 6


# --- forms and streams -------------------------------------------------------------------------------------------------


def test_a_schema_is_asked_for_as_response_format(endpoint):
    reply = ask(endpoint, request("a", schema=SCHEMA))["a"]
    assert (reply.status, reply.mode, reply.parsed) == ("ok", "json_schema", {"verdict": "yes", "score": 3})
    assert (reply.model, reply.attempts, reply.stored) == ("m-0", 1, False)
    assert reply.input_tokens > 0
    assert reply.output_tokens > 0
    assert reply.cost is None


@pytest.mark.parametrize(("supports", "mode", "first"), [(("tool", "json"), "tool", 2), (("json",), "json", 3)])
def test_an_endpoint_that_knows_less_is_asked_by_tool_then_by_words_and_it_is_remembered(supports, mode, first):
    with serving(supports=supports) as less:
        made = list(complete(config(less, concurrency=1), (request(str(i), schema=SCHEMA) for i in range(3))))
    assert [(reply.status, reply.mode) for reply in made] == [("ok", mode)] * 3
    assert [reply.attempts for reply in made] == [first, 1, 1]


def test_an_endpoint_that_knows_no_form_gives_its_first_refusal():
    with serving(supports=()) as none:
        reply = ask(none, request("a", schema=SCHEMA))["a"]
    assert (reply.status, reply.attempts, reply.parsed) == ("http_400", 3, None)


def test_log_probabilities_are_asked_for_and_done_without_where_they_are_not_known(endpoint):
    reply = ask(endpoint, request("a", schema=SCHEMA, logprobs=True))["a"]
    digit = next(token for token in reply.logprobs if token[0][0] == "3")
    assert dict(digit)["5"] == -0.7
    with serving(logprobs=False) as less:
        reply = ask(less, request("a", schema=SCHEMA, logprobs=True))["a"]
    assert (reply.status, reply.logprobs) == ("ok", None)


@pytest.mark.parametrize("form", ["json_schema", "tool"])
def test_a_stream_gives_the_same_reply_and_the_time_to_its_first_token(form):
    with serving(supports=(form,), latency=0.02) as running:
        whole = ask(running, request("a", schema=SCHEMA))["a"]
        piecewise = ask(running, request("a", schema=SCHEMA, stream=True))["a"]
    assert (piecewise.status, piecewise.parsed, piecewise.output_tokens) == ("ok", whole.parsed, whole.output_tokens)
    assert whole.first_token_s is None
    assert 0.02 <= piecewise.first_token_s <= piecewise.total_s


def test_a_stream_has_log_probabilities_too(endpoint):
    reply = ask(endpoint, request("a", schema=SCHEMA, stream=True, logprobs=True))["a"]
    assert any(token[0][0] == "3" for token in reply.logprobs)


# --- faults ------------------------------------------------------------------------------------------------------------

FINAL = {
    "invalid_json": "invalid_json",
    "schema_violation": "schema_violation",
    "refusal": "refused",
    "empty": "empty",
    "length": "length",
    "garbage": "bad_response",
}


@pytest.mark.parametrize("fault", FINAL)
@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_is_none_has_a_status_and_no_value(endpoint, fault, stream, tmp_path):
    store = ReplyStore(tmp_path)
    asked = request(f"{fault}{stream}", f"#fault:{fault}", schema=SCHEMA, stream=stream)
    reply = ask(endpoint, asked, store=store)[asked.request_id]
    assert (reply.status, reply.parsed) == (FINAL[fault], None)
    assert reply.status in STATUSES
    assert store.count() == (fault != "garbage"), "what was paid for is kept"
    if fault != "garbage":
        again = ask(endpoint, asked, store=store)[asked.request_id]
        assert again == reply
        assert again.stored


@pytest.mark.parametrize("fault", ["429", "429after", "429date", "500", "cut", "hidden"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_passes_is_tried_again(endpoint, fault, stream):
    asked = request(f"{fault}{stream}again", f"#fault:{fault}*2", schema=SCHEMA, stream=stream)
    began = time.monotonic()
    reply = ask(endpoint, asked)[asked.request_id]
    assert (reply.status, reply.attempts) == ("ok", 3)
    if fault == "429after":
        assert time.monotonic() - began >= 0.4
    if fault == "429date":
        assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    ("fault", "status", "attempts"),
    [
        ("500", "http_500", 4),
        ("cut", "cut", 4),
        ("429", "http_429", 4),
        ("429long", "http_429", 1),
        ("hang", "timeout", 2),
    ],
)
def test_what_does_not_pass_is_given_up_and_not_remembered(endpoint, fault, status, attempts, tmp_path):
    store, asked = ReplyStore(tmp_path), request(f"{fault}stays", f"#fault:{fault}")
    options = {"timeout_s": 0.2, "retries": 1} if fault == "hang" else {}
    reply = ask(endpoint, asked, store=store, **options)[asked.request_id]
    assert (reply.status, reply.attempts, store.count()) == (status, attempts, 0)


def test_a_wrong_key_and_an_empty_account_stop_the_run(endpoint):
    for fault, status in (("401", "http_401"), ("quota", "http_429")):
        before = endpoint.seen.requests
        made = ask(endpoint, *(request(f"{fault}{i}", f"#fault:{fault}") for i in range(40)), concurrency=2)
        assert Counter(reply.status for reply in made.values()) == {status: 40}
        assert endpoint.seen.requests - before <= 2


def test_an_endpoint_that_is_not_there_is_given_up_for_all():
    class Gone:
        url = "http://127.0.0.1:9/v1"

    made = ask(Gone, *(request(str(i)) for i in range(50)), retries=1, concurrency=2)
    assert Counter(reply.status for reply in made.values()) == {"no_connection": 50}
    assert sum(reply.attempts for reply in made.values()) <= 8


def test_without_a_key_nothing_is_sent(endpoint, monkeypatch):
    before = endpoint.seen.requests
    monkeypatch.delenv("OPENAI_API_KEY")
    assert ask(endpoint, request("a"))["a"].status == "no_key"
    monkeypatch.setenv("OPENAI_API_KEY", "two\nlines")
    assert ask(endpoint, request("a"))["a"].status == "no_key"
    assert endpoint.seen.requests == before
    assert ask(endpoint, request("a"), api_key_env=None)["a"].status == "ok"


def test_the_key_goes_into_one_header_and_nowhere_else(endpoint, tmp_path, capsys):
    store = ReplyStore(tmp_path)
    made = ask(endpoint, request("a"), request("b", "#fault:500"), request("c", "#fault:cut"), store=store)
    store.close()
    assert f"Bearer {KEY}" in endpoint.seen.keys
    assert KEY not in repr(made)
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.iterdir())
    assert KEY not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7, 7), ("0.5", 0.5, 0.5), ("-3", 0, 0), ("soon", None, None), (None, None, None), ("inf", None, None),
        ("nan", None, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
    ],
)  # fmt: skip
def test_both_forms_of_retry_after_are_read(header, low, high):
    found = client._retry_after(header)
    assert found is None if low is None else low <= found <= high


def test_a_date_in_retry_after_is_as_far_away_as_it_is():
    header = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 60 <= client._retry_after(header) <= 90


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"verdict": "yes", "score": 3}', "ok"), ('```json\n{"verdict": "no", "score": 4}\n```', "ok"),
        ('{"verdict": "yes", "score": 2}', "schema_violation"), ('{"verdict": "yes", "score": 3, "more": 1}', "schema_violation"),
        ('{"verdict": "yes", "verdict": "no", "score": 3}', "invalid_json"), ('{"verdict": "yes", "score": NaN}', "invalid_json"),
        ("yes", "invalid_json"), ("[" * 100_000, "invalid_json"), ('"yes"', "schema_violation"),
    ],
)  # fmt: skip
def test_a_text_is_read_strictly(text, status):
    assert read(text, SCHEMA)[0] == status


# --- what is paid ------------------------------------------------------------------------------------------------------


def test_a_stored_reply_is_given_without_asking_whatever_its_limits(endpoint, tmp_path):
    store, asked = ReplyStore(tmp_path), request("kept", schema=SCHEMA, logprobs=True)
    first = ask(endpoint, asked, store=store, price_in=1, price_out=2)["kept"]
    before = endpoint.seen.requests
    again = ask(endpoint, asked, store=ReplyStore(tmp_path), concurrency=1, price_in=1, price_out=2)["kept"]
    assert endpoint.seen.requests == before
    assert again == first
    assert (again.stored, first.stored) == (True, False)
    assert first.cost == pytest.approx((first.input_tokens + 2 * first.output_tokens) / 1e6)


def test_replay_asks_nobody(endpoint, tmp_path, monkeypatch):
    store = ReplyStore(tmp_path)
    ask(endpoint, request("kept"), store=store)
    monkeypatch.delenv("OPENAI_API_KEY")
    before = endpoint.seen.requests
    made = ask(endpoint, request("kept"), request("new"), store=store, replay=True)
    assert {name: reply.status for name, reply in made.items()} == {"kept": "ok", "new": "not_stored"}
    assert endpoint.seen.requests == before
    with pytest.raises(ValueError, match="needs the store"):
        list(complete(config(endpoint), [], replay=True))


def test_equal_requests_of_one_run_are_paid_once(endpoint, tmp_path):
    messages = ({"role": "user", "content": "the same for all"},)
    made = ask(endpoint, *(ChatRequest(str(i), messages) for i in range(20)), store=ReplyStore(tmp_path))
    assert {reply.status for reply in made.values()} == {"ok"}
    assert len(made) == 20
    assert sum(not reply.stored for reply in made.values()) == 1


def test_a_deliberate_repetition_is_asked_again(endpoint, tmp_path):
    messages = ({"role": "user", "content": "say it again"},)
    made = ask(endpoint, *(ChatRequest(str(i), messages, repeat=i) for i in range(3)), store=ReplyStore(tmp_path))
    assert not any(reply.stored for reply in made.values())


def test_the_cap_stops_before_it_is_passed_and_every_request_is_told(endpoint, tmp_path):
    prices = {"price_in": 1000.0, "price_out": 4000.0, "max_tokens": 20}
    asked = [request(f"cap{i}", "x" * 100) for i in range(60)]
    made = ask(endpoint, *asked, store=ReplyStore(tmp_path), concurrency=8, max_cost=1.0, **prices)
    spent = sum(reply.cost or 0 for reply in made.values())
    counts = Counter(reply.status for reply in made.values())
    assert counts.keys() == {"ok", "over_budget"}
    assert counts.total() == 60
    assert 0.75 < spent <= 1.0, "worst case is set aside only while a request is under way"


def test_what_an_earlier_run_paid_counts_against_the_cap(endpoint, tmp_path):
    prices = {"price_in": 1000.0, "price_out": 4000.0, "max_tokens": 20, "max_cost": 1.0}
    asked = [request(f"earlier{i}", "x" * 100) for i in range(60)]
    ask(endpoint, *asked[40:48], store=ReplyStore(tmp_path), **prices)
    made = ask(endpoint, *asked, store=ReplyStore(tmp_path), concurrency=1, **prices)
    assert 0.75 < sum(reply.cost or 0 for reply in made.values()) <= 1.0
    assert sum(reply.stored for reply in made.values()) == 8, "what is stored is given, whatever the cap"
    more = ask(endpoint, *asked, store=ReplyStore(tmp_path), **{**prices, "max_cost": 100.0})
    assert {reply.status for reply in more.values()} == {"ok"}


def test_a_try_of_unknown_end_counts_with_the_most_that_it_may_have_cost(endpoint, tmp_path):
    prices = {"price_in": 1000.0, "price_out": 1000.0, "max_tokens": 100, "max_cost": 1.0, "concurrency": 1}
    asked = [request(f"unknown{i}", "#fault:cut") for i in range(20)]
    store = ReplyStore(tmp_path)
    made = ask(endpoint, *asked, store=store, retries=0, **prices)
    counts = Counter(reply.status for reply in made.values())
    assert counts["cut"] * 0.1 <= 1.0
    assert counts["over_budget"] >= 10
    assert store.unknown() == counts["cut"]


def test_a_reply_without_counts_of_tokens_has_no_cost_and_uses_up_the_most(endpoint):
    made = ask(endpoint, request("nu", "#fault:no_usage"), price_in=1, price_out=1, max_cost=1)["nu"]
    assert (made.status, made.cost, made.input_tokens) == ("ok", None, None)


# --- limits ------------------------------------------------------------------------------------------------------------


def test_no_more_are_under_way_than_allowed():
    with serving(latency=0.01) as running:
        made = ask(running, *(request(str(i)) for i in range(60)), concurrency=5)
        assert len(made) == 60
        assert running.seen.most_at_once == 5


def test_no_window_holds_more_requests_or_tokens_than_allowed(monkeypatch):
    monkeypatch.setattr(pacing, "WINDOW_S", 0.5)
    with serving() as running:
        ask(running, *(request(str(i)) for i in range(45)), requests_per_minute=20)
        times = running.seen.times
        assert max(sum(t <= other < t + 0.5 for other in times) for t in times) <= 20
        assert times[-1] - times[0] < 4
    with serving() as running:
        ask(running, *(request(str(i), "x" * 400) for i in range(30)), tokens_per_minute=1500)
        taken = running.seen.taken
        assert max(sum(n for other, n in taken if t <= other < t + 0.5) for t, _ in taken) <= 1500


def test_a_request_larger_than_a_minute_is_not_sent(endpoint):
    assert ask(endpoint, request("big", "x" * 1000), tokens_per_minute=100)["big"].status == "too_large"


def test_requests_are_taken_as_they_are_needed(endpoint):
    taken = []

    def many():
        for index in range(10_000):
            taken.append(index)
            yield request(f"lazy{index}")

    replies = complete(config(endpoint, concurrency=2), many())
    for _ in range(5):
        next(replies)
    time.sleep(0.1)
    assert len(taken) <= 5 + 4 * 2 + 2
    replies.close()


def test_a_fault_of_the_requests_reaches_the_caller(endpoint):
    def broken():
        yield request("fine")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(complete(config(endpoint), broken()))


def test_progress_counts_all(endpoint, tmp_path):
    told = []
    store = ReplyStore(tmp_path)
    asked = [request("p1"), request("p2"), request("p3", "#fault:empty")]
    list(complete(config(endpoint, price_in=1, price_out=1), asked, store, told.append))
    list(complete(config(endpoint, price_in=1, price_out=1), asked, store, told.append))
    assert [(p.done, p.stored, p.failed) for p in (told[2], told[5])] == [(3, 0, 1), (3, 3, 1)]
    assert told[2].cost > 0
    assert told[5].cost == 0


# --- the store ---------------------------------------------------------------------------------------------------------


def test_replies_can_neither_be_changed_nor_removed(endpoint, tmp_path):
    store = ReplyStore(tmp_path)
    ask(endpoint, request("a"), store=store)
    import sqlite3

    for statement in ("DELETE FROM replies", "UPDATE replies SET text = ''"):
        with pytest.raises(sqlite3.DatabaseError, match="append-only"):
            store._connection.execute(statement)
    assert store.count() == 1


def test_a_file_that_is_no_store_is_refused_without_touching_it(tmp_path):
    (tmp_path / "replies.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ReplyStoreError, match="move it away"):
        ReplyStore(tmp_path)
    assert (tmp_path / "replies.sqlite").read_bytes().startswith(b"not a database")


KILLED = """
import sys
from pathlib import Path
from rag_eval_pipeline.judging.endpoint import ChatRequest, EndpointConfig, complete
from rag_eval_pipeline.judging.replies import ReplyStore
url, folder, n = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
config = EndpointConfig(base_url=url, model="m", concurrency=8, price_in=1000.0, price_out=4000.0, max_tokens=20, max_cost=1000.0)
asked = (ChatRequest(str(i), ({"role": "user", "content": f"item {i}"},)) for i in range(n))
for reply in complete(config, asked, ReplyStore(folder)):
    print(reply.request_id, reply.status, flush=True)
"""


def test_a_kill_in_the_middle_loses_no_reply_that_was_told_and_pays_none_of_them_twice(tmp_path):
    n = 120
    with serving(latency=0.02) as running:
        arguments = [sys.executable, "-c", KILLED, running.url, str(tmp_path), str(n)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ))
        told = {process.stdout.readline().split()[0] for _ in range(40)}
        process.kill()
        told |= {line.split()[0] for line in process.stdout.read().splitlines()}
        process.wait()
        stored_before = set(ReplyStore(tmp_path).hashes())
        resumed = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=True)
        assert sorted(int(line.split()[0]) for line in resumed.stdout.splitlines()) == list(range(n))
        assert {line.split()[1] for line in resumed.stdout.splitlines()} == {"ok"}
        config = EndpointConfig(base_url=running.url, model="m", max_tokens=20)
        hashes = {
            str(i): prompt_hash(config, ChatRequest(str(i), ({"role": "user", "content": f"item {i}"},)))
            for i in range(n)
        }
        billed = Counter({key.rsplit("-", 2)[0]: count for key, count in running.seen.billed.items()})
    assert len(told) >= 40
    assert {hashes[name] for name in told} <= stored_before, "what was told is on disk"
    assert all(billed[name] == 1 for name in stored_before), "what is on disk is never asked again"
    twice = [name for name, count in billed.items() if count > 1]
    assert len(twice) <= 8, "at most what was under way when it was killed"
    assert len(stored_before) < n
    assert ReplyStore(tmp_path).count() == n


def test_json_of_a_lone_surrogate_does_not_break_the_store(endpoint, tmp_path):
    store = ReplyStore(tmp_path)
    made = ask(endpoint, request("lone", "\ud800"), store=store)["lone"]
    assert made.status == "ok"
    assert json.dumps(made.text)
