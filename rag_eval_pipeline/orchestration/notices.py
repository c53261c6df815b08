"""Notices of failed runs and gates: what is said, and how it gets to a webhook, Slack or a mailbox. No Dagster here.

A notice says names, figures and where to look: no document text, no message of an error, no secret. It waits as a file in
`data/outbox` until every channel took it, so that a restart loses none; a channel that took it is not told again. When it is
left is decided in `sensors`, to whom it goes in automation.yaml.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rag_eval_pipeline.corpus.faults import printable
from rag_eval_pipeline.orchestration.automation import AutomationError, Email, Event, Notify, Webhook, load, variable
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Manifests

TRIES, PAUSE = 3, 1.0
"""Tries of a channel in one tick, and seconds before the second; doubled before each further one."""
BUDGET = 25.0
"""Seconds of a tick for all notices."""
WAIT, LONGEST = 30.0, 3600.0
"""Seconds until a channel that refused is tried again in a later tick: the first time, and at most."""
TIMEOUT = 8.0
KEEP_DAYS = 30
"""Days for which it is remembered that a notice was sent."""
RULES = 5


class RefusedError(Exception):
    """A channel does not take a notice and never will."""


class LaterError(Exception):
    """A channel can't take a notice now."""


@dataclass(frozen=True)
class Notice:
    """What happened.

    Attributes:
        event: `run_failed`, or `gate_failed` where the evaluation is complete and its release is refused.
        key: corpus@version[#pipeline].
        run_id: Dagster's.
        stopped_at: step.
        rules: broken limits, with what was found, as far as they fit.
    """

    event: Event
    key: str
    run_id: str
    stopped_at: str
    rules: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its file, and its identity for receivers."""
        return f"{self.run_id}-{self.event}"


@dataclass
class _Letter:
    """A notice that waits: since when, which channels took it, and when each other one is tried again."""

    notice: Notice
    made: float
    sent: list[str] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


def put(home: Home, notice: Notice) -> Path | None:
    """Leave a notice for the channels; nothing where no channel is on or the event is not asked for."""
    try:
        settings = load(home).notify
    except AutomationError:
        pass  # it may name a channel: the notice waits until the file is mended, and the sensor's ticks say what is wrong
    else:
        if not settings.channels or notice.event not in settings.events:
            return None
    path = _outbox(home) / f"{notice.name}.json"
    if path.exists() or (path.parent / "sent" / path.name).exists():
        return None
    if notice.event == "gate_failed":
        notice = Notice(**{**asdict(notice), "rules": _broken(home, notice.key)})
    _write(path, _Letter(notice, time.time()))
    return path


def deliver(home: Home, settings: Notify, pause: float = PAUSE) -> list[str]:
    """Send what waits; returns what was done and what was not, a sentence each."""
    said: list[str] = []
    deadline = time.monotonic() + BUDGET
    for path in sorted(_outbox(home).glob("*.json")):
        if time.monotonic() > deadline:
            said.append("time is up; the next tick goes on")
            break
        letter = _read(path)
        for channel in settings.channels:
            if channel not in letter.sent and letter.after.get(channel, 0) <= time.time():
                said.append(_try(letter, channel, settings, pause, deadline))
                _write(path, letter)
        said += _put_away(path, letter, settings)
    _forget(_outbox(home) / "sent")
    return said


def _try(letter: _Letter, channel: str, settings: Notify, pause: float, deadline: float) -> str:
    """Send by one channel, with a few tries; returns how it went."""
    send: dict[str, Callable[[], None]] = {
        "webhook": lambda: _post(settings.webhook, letter.notice, settings.ui),  # type: ignore[arg-type]
        "email": lambda: _mail(settings.email, letter.notice, settings.ui),  # type: ignore[arg-type]
    }
    name, reason = letter.notice.name, ""
    for number in range(TRIES):
        try:
            send[channel]()
        except LaterError as error:
            reason = str(error)
        except (RefusedError, AutomationError) as error:
            reason = str(error)
            break
        else:
            letter.sent.append(channel)
            return f"{name} went to the {channel}"
        wait = pause * 2**number
        if number + 1 == TRIES or time.monotonic() + wait > deadline:
            break
        time.sleep(wait)
    tries = letter.tries[channel] = letter.tries.get(channel, 0) + 1
    letter.after[channel] = time.time() + min(WAIT * 2 ** (tries - 1), LONGEST)
    return f"{name} was not taken by the {channel}: {reason}; it is tried again"


def _put_away(path: Path, letter: _Letter, settings: Notify) -> Iterator[str]:
    """A notice that everybody has, or that is too old to be of use."""
    if set(settings.channels) <= set(letter.sent):
        (path.parent / "sent").mkdir(exist_ok=True)
        path.replace(path.parent / "sent" / path.name)
    elif time.time() - letter.made > settings.give_up_hours * 3600:
        (path.parent / "undelivered").mkdir(exist_ok=True)
        path.replace(path.parent / "undelivered" / path.name)
        yield f"{letter.notice.name} is given up after {settings.give_up_hours:g} h; it lies in outbox/undelivered"


def _forget(folder: Path) -> None:
    for path in folder.glob("*.json"):
        if time.time() - path.stat().st_mtime > KEEP_DAYS * 86400:
            path.unlink(missing_ok=True)


# What is said ----------------------------------------------------------------------------------------------------------


def words(notice: Notice, ui: str) -> tuple[str, str]:
    """Subject and text of a notice."""
    key = printable(notice.key)[:150]
    if notice.event == "gate_failed":
        subject = f"{key}: the release gate fails"
        lines = [f"{key} is evaluated, and its release gate fails.", *(f"- {rule}" for rule in notice.rules)]
        lines.append(f"What to do: `rag-eval gate '{key}'` names the rules; the report shows where it was lost.")
    else:
        subject = f"{key}: the run failed at {notice.stopped_at}"
        lines = [f"The run of {key} failed at {notice.stopped_at}; nothing of it is compared or released."]
        lines.append(f"What to do: read the run's log; `rag-eval run '{key}'` goes on where it stopped.")
    if ui:
        lines.append(f"{ui.rstrip('/')}/runs/{notice.run_id}")
    return subject, "\n".join(lines)


def _broken(home: Home, key: str) -> tuple[str, ...]:
    """The limits that the newest verdict on a key says are broken."""
    verdicts = [record for record in Manifests(home.manifests).gates() if record["key"] == key]
    findings = verdicts[-1]["decision"]["findings"] if verdicts else []
    broken = [finding for finding in findings if finding["verdict"] == "fail"]
    told = [
        printable(f"{f['label']} {f['limit']} {f['allowed']:g}: found {'nothing' if f['found'] is None else format(f['found'], '.4g')}")[:200]
        for f in broken[:RULES]
    ]  # fmt: skip
    return (*told, f"and {len(broken) - RULES} more") if len(broken) > RULES else tuple(told)


# Channels --------------------------------------------------------------------------------------------------------------


def _post(webhook: Webhook, notice: Notice, ui: str) -> None:
    """POST to the webhook; 2xx is taken, 408, 429 and 5xx mean later, everything else never."""
    url = variable(webhook.url_env)
    if urlsplit(url).scheme not in {"http", "https"}:
        raise RefusedError(f"{webhook.url_env} holds no http(s) URL")
    subject, text = words(notice, ui)
    body: dict[str, Any] = {"text": _slack(f"*{subject}*\n{text}")}
    if webhook.format == "json":
        link = f"{ui.rstrip('/')}/runs/{notice.run_id}" if ui else None
        body = {**asdict(notice), "id": notice.name, "subject": subject, "text": text, "link": link}
    headers = {"Content-Type": "application/json", "User-Agent": "rag-eval", "Idempotency-Key": notice.name}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - checked above
    try:
        with _opener().open(request, timeout=TIMEOUT) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except (OSError, ValueError) as error:
        raise LaterError(f"no answer ({type(error).__name__})") from None
    if status in {408, 425, 429} or status >= 500:
        raise LaterError(f"it answers {status}")
    if not 200 <= status < 300:
        raise RefusedError(f"it answers {status}; look at the address in {webhook.url_env}")


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: a notice goes only where it was told to."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
        return


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Stay)


def _slack(text: str) -> str:
    """Slack's three signs, so that nothing in a name calls a channel or makes a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mail(settings: Email, notice: Notice, ui: str) -> None:
    """Hand it to the SMTP server; 4xx and no answer mean later, 5xx never."""
    message = EmailMessage()
    message["From"], message["To"] = settings.sender, ", ".join(settings.to)
    subject, text = words(notice, ui)
    message["Subject"] = f"[rag-eval] {subject}"
    message["Message-ID"] = f"<{notice.name}@rag-eval>"
    message.set_content(text)
    secure = ssl.create_default_context()
    try:
        if settings.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(settings.host, settings.port, timeout=TIMEOUT, context=secure)
        else:
            server = smtplib.SMTP(settings.host, settings.port, timeout=TIMEOUT)
        with server:
            if settings.security == "starttls":
                server.starttls(context=secure)
            if settings.user_env and settings.password_env:
                server.login(variable(settings.user_env), variable(settings.password_env))
            server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        codes = {code for code, _ in error.recipients.values()}
        raise (LaterError if min(codes) < 500 else RefusedError)(f"it refuses the recipients ({min(codes)})") from None
    except smtplib.SMTPResponseException as error:
        raise (LaterError if error.smtp_code < 500 else RefusedError)(f"it answers {error.smtp_code}") from None
    except smtplib.SMTPNotSupportedError as error:
        raise RefusedError("it does not speak what is asked: look at email.security and the login") from error
    except (OSError, smtplib.SMTPException) as error:
        raise LaterError(f"no answer ({type(error).__name__})") from None


# Files -----------------------------------------------------------------------------------------------------------------


def _outbox(home: Home) -> Path:
    return home.root / "outbox"


def _write(path: Path, letter: _Letter) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    temporary.write_text(json.dumps(asdict(letter)), "utf-8")
    temporary.replace(path)


def _read(path: Path) -> _Letter:
    found = json.loads(path.read_text("utf-8"))
    notice = found.pop("notice")
    return _Letter(notice=Notice(**{**notice, "rules": tuple(notice["rules"])}), **found)
