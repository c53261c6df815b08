"""Notices reach a local webhook and a local SMTP server, once a channel, after failures too; they say no secret and no text."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from rag_eval_pipeline.orchestration import notices
from rag_eval_pipeline.orchestration.automation import load
from rag_eval_pipeline.orchestration.notices import Notice, deliver, put, words
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.integration.house import home_of
from rag_eval_pipeline_tests.ui.server import free_port

FAILED = Notice("run_failed", "small@v1", "run-1", "cleaning_room")
GATED = Notice("gate_failed", "small@v1", "run-2", "release_gate")


@pytest.fixture
def home(tmp_path):
    return home_of(tmp_path)


@pytest.fixture
def webhook(monkeypatch):
    """A server that answers with the codes it is told, the last one again and again; keeps what it was sent."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            code = self.server.codes.pop(0) if len(self.server.codes) > 1 else self.server.codes[0]
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.got, server.codes = [], [200]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    monkeypatch.setenv("A_HOOK", f"http://127.0.0.1:{server.server_port}/services/T0/hunter2")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def mailbox():
    from aiosmtpd.controller import Controller

    class Handler:
        def __init__(self):
            self.got, self.codes = [], []

        async def handle_DATA(self, _server, _session, envelope):  # noqa: N802 - the library's name
            if self.codes and (code := self.codes.pop(0)) != 250:
                return f"{code} not now"
            self.got.append((envelope.mail_from, envelope.rcpt_tos, envelope.content.decode()))
            return "250 taken"

    handler = Handler()
    handler.port = free_port()
    controller = Controller(handler, hostname="127.0.0.1", port=handler.port)
    controller.start()
    yield handler
    controller.stop()


def configure(home, **notify):
    home.root.mkdir(parents=True, exist_ok=True)
    (home.root / "automation.yaml").write_text(yaml.safe_dump({"notify": notify}), "utf-8")
    return load(home).notify


HOOK = {"webhook": {"url_env": "A_HOOK"}, "ui": "http://ui.example:3000/"}


def email(mailbox, **more):
    return {
        "host": "127.0.0.1",
        "port": mailbox.port,
        "security": "none",
        "sender": "rag@example.org",
        "to": ["a@example.org", "b@example.org"],
        **more,
    }


def waiting(home):
    return sorted(path.name for path in (home.root / "outbox").glob("*.json"))


def test_without_a_channel_nothing_is_written(home):
    assert put(home, FAILED) is None
    configure(home, ui="http://ui.example")
    assert put(home, FAILED) is None
    assert not (home.root / "outbox").exists()


def test_an_event_that_nobody_asked_for_is_not_told(home, webhook):
    settings = configure(home, **HOOK, events=["gate_failed"])
    assert put(home, FAILED) is None
    assert put(home, GATED) is not None
    deliver(home, settings)
    assert len(webhook.got) == 1


def test_slack_gets_a_sentence_with_a_link_and_no_sign_that_calls_anybody(home, webhook):
    settings = configure(home, **HOOK)
    put(home, Notice("run_failed", "<!channel> & a@v1\n", "run-1", "cleaning_room"))
    assert deliver(home, settings, 0) == ["run-1-run_failed went to the webhook"]
    ((path, body),) = webhook.got
    assert path == "/services/T0/hunter2"
    assert set(body) == {"text"}
    assert "&lt;!channel&gt; &amp; a@v1\\n: the run failed at cleaning_room" in body["text"]
    assert body["text"].endswith("http://ui.example:3000/runs/run-1")
    assert waiting(home) == []
    assert deliver(home, settings, 0) == []
    assert put(home, Notice("run_failed", "x@v1", "run-1", "y")) is None, (
        "the same run is told once, after a restart too"
    )


def test_a_gates_notice_names_the_broken_rules_with_what_was_found(home, webhook):
    settings = configure(home, webhook={"url_env": "A_HOOK", "format": "json"})
    finding = {
        "label": "recall@10 evidence both",
        "limit": "min",
        "allowed": 0.9,
        "found": 0.5,
        "verdict": "fail",
        "reason": "…",
    }
    findings = [finding, {**finding, "verdict": "pass"}, *[{**finding, "found": None}] * 6]
    record = {"key": "small@v1", "gate_id": "g", "made": "2026", "decision": {"verdict": "fail", "findings": findings}}
    Manifests(home.manifests).keep_gate("g", record)
    put(home, GATED)
    deliver(home, settings, 0)
    ((_, body),) = webhook.got
    assert body["event"] == "gate_failed"
    assert body["rules"][0] == "recall@10 evidence both min 0.9: found 0.5"
    assert body["rules"][1].endswith("found nothing")
    assert body["rules"][-1] == "and 2 more"
    assert body["id"] == "run-2-gate_failed"
    assert body["link"] is None


@pytest.mark.parametrize("code", [500, 503, 429, 408])
def test_a_webhook_that_is_down_for_a_moment_is_tried_again_in_the_same_tick(home, webhook, code):
    settings = configure(home, **HOOK)
    webhook.codes = [code, code, 200]
    put(home, FAILED)
    assert deliver(home, settings, 0.01) == ["run-1-run_failed went to the webhook"]
    assert len(webhook.got) == 3


@pytest.mark.parametrize(("code", "posts"), [(500, 3), (404, 1), (302, 1)])
def test_what_is_not_taken_waits_longer_each_time_and_is_given_up_in_the_end(home, webhook, monkeypatch, code, posts):
    settings = configure(home, **HOOK, give_up_hours=2)
    webhook.codes = [code]
    now = [1_000_000.0]
    monkeypatch.setattr(notices.time, "time", lambda: now[0])
    put(home, FAILED)
    (said,) = deliver(home, settings, 0)
    assert f"it answers {code}" in said
    assert "hunter2" not in said
    assert len(webhook.got) == posts, "a refusal is not asked again at once; a redirect is not followed"
    now[0] += 29
    assert deliver(home, settings, 0) == []
    now[0] += 2
    assert len(deliver(home, settings, 0)) == 1
    now[0] += 40
    assert deliver(home, settings, 0) == [], "twice as long the second time"
    now[0] += 7200
    assert "given up after 2 h" in " ".join(deliver(home, settings, 0))
    assert waiting(home) == []
    assert [path.name for path in (home.root / "outbox" / "undelivered").iterdir()] == ["run-1-run_failed.json"]


def test_a_webhook_that_nobody_serves_or_whose_variable_is_not_set_is_told_without_its_address(
    home, webhook, monkeypatch
):
    settings = configure(home, **HOOK)
    put(home, FAILED)
    monkeypatch.setenv("A_HOOK", "http://127.0.0.1:9/hunter2")
    (said,) = deliver(home, settings, 0)
    assert "no answer (" in said
    assert "hunter2" not in said
    monkeypatch.delenv("A_HOOK")
    monkeypatch.setattr(notices.time, "time", lambda: 4e9)
    said = " ".join(deliver(home, settings, 0))
    assert "A_HOOK, which automation.yaml names, is not set" in said


def test_an_e_mail_reaches_everybody_and_says_no_more_than_names(home, mailbox):
    settings = configure(home, email=email(mailbox), ui="http://ui.example")
    put(home, FAILED)
    assert deliver(home, settings, 0) == ["run-1-run_failed went to the email"]
    ((sender, to, content),) = mailbox.got
    assert (sender, to) == ("rag@example.org", ["a@example.org", "b@example.org"])
    assert "Subject: [rag-eval] small@v1: the run failed at cleaning_room" in content
    assert "Message-ID: <run-1-run_failed@rag-eval>" in content
    assert "http://ui.example/runs/run-1" in content


def test_each_channel_is_told_once_whatever_the_other_says(home, webhook, mailbox):
    settings = configure(home, **HOOK, email=email(mailbox))
    mailbox.codes = [451, 451, 451]
    put(home, FAILED)
    said = deliver(home, settings, 0)
    assert said[0] == "run-1-run_failed went to the webhook"
    assert "it answers 451" in said[1]
    path = home.root / "outbox" / "run-1-run_failed.json"
    letter = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(letter | {"after": {}}), "utf-8")
    assert deliver(home, settings, 0) == ["run-1-run_failed went to the email"]
    assert (len(webhook.got), len(mailbox.got)) == (1, 1)


def test_a_server_without_encryption_gets_no_password(home, mailbox, monkeypatch):
    monkeypatch.setenv("A_USER", "me")
    monkeypatch.setenv("A_PASSWORD", "hunter2")
    settings = configure(home, email=email(mailbox, security="starttls", user_env="A_USER", password_env="A_PASSWORD"))
    put(home, FAILED)
    (said,) = deliver(home, settings, 0)
    assert "look at email.security" in said
    assert mailbox.got == []


def test_a_wrong_settings_file_loses_no_notice(home, webhook):
    home.root.mkdir(parents=True, exist_ok=True)
    (home.root / "automation.yaml").write_text("notify: [", "utf-8")
    assert put(home, FAILED) is not None
    deliver(home, configure(home, **HOOK), 0)
    assert len(webhook.got) == 1


def test_the_words_hold_nothing_but_names_figures_and_commands():
    subject, text = words(GATED, "")
    assert subject == "small@v1: the release gate fails"
    assert "rag-eval gate 'small@v1'" in text
    subject, text = words(Notice("run_failed", "k" * 500, "r", "s"), "")
    assert len(subject) < 200
