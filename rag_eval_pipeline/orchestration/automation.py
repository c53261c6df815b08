"""automation.yaml: how the sensors look, where corpora are mirrored from, and who is told of failures. All of it optional.

It lies beside the corpora in the data folder, since it speaks of all of them. Secrets never stand in it: a value that is
secret is named by its environment variable. What is done with the settings belongs in `changes`, `corpus.mirror`, `notices`.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rag_eval_pipeline.warehouse.home import Home

FILE = "automation.yaml"
SECRETS = ("key", "secret", "token", "password", "credential", "passphrase")
"""Parts of names of options whose values may not stand in a file."""
Event = Literal["run_failed", "gate_failed"]


class AutomationError(ValueError):
    """automation.yaml is wrong; the message names every field."""


class Section(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Watching(Section):
    """How `corpus_changes` looks: seconds between ticks, seconds of quiet, whether `_READY` is needed, seconds a look may take."""

    every: int = Field(default=30, ge=1)
    quiet: float = Field(default=30, ge=0)
    ready: Literal["optional", "required"] = "optional"
    budget: float = Field(default=30, gt=0, le=45)


class Source(Section):
    """One place to mirror corpora from: an fsspec URL with `<corpus>/<version>/…` below it, and fsspec's options."""

    url: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if not parts.scheme or not (parts.netloc or parts.path):
            raise ValueError("a URL that fsspec knows, such as s3://bucket/corpora or file:///mnt/corpora")
        if "@" in parts.netloc:
            raise ValueError("a URL without user and password; name them in options as {env: NAME}")
        return value.rstrip("/")

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        if named := sorted(_plain_secrets(value)):
            raise ValueError(f"{named[0]} as {{env: NAME_OF_A_VARIABLE}}: secrets don't belong in a file")
        return value

    def resolved(self) -> dict[str, Any]:
        """The options, with what stands in environment variables.

        Raises:
            AutomationError: a variable is not set.
        """
        return {name: _resolve(value) for name, value in self.options.items()}


class Mirroring(Section):
    """What `corpus_mirror` copies into the corpora folder, how often it looks, and how long a version must be quiet."""

    every: int = Field(default=60, ge=1)
    quiet: float = Field(default=60, ge=0)
    ready: Literal["optional", "required"] = "optional"
    budget: float = Field(default=30, gt=0, le=45)
    sources: tuple[Source, ...] = ()


Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Webhook(Section):
    """An address that gets a POST of JSON. It is a secret, so that its environment variable is named."""

    url_env: Variable
    format: Literal["slack", "json"] = "slack"


class Email(Section):
    """An SMTP server, and who writes to whom."""

    host: str
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    user_env: Variable | None = None
    password_env: Variable | None = None
    sender: str
    to: tuple[str, ...] = Field(min_length=1)

    @field_validator("sender", "to")
    @classmethod
    def _addresses(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for address in (value,) if isinstance(value, str) else value:
            if address.count("@") != 1 or any(c in address for c in "\r\n,;<> ") or not address.isascii():
                raise ValueError("plain addresses, such as team@example.org")
        return value

    @model_validator(mode="after")
    def _login(self) -> Email:
        if (self.user_env is None) != (self.password_env is None):
            raise ValueError("user_env and password_env together, or neither")
        if self.user_env and self.security == "none":
            raise ValueError("security starttls or tls where a password is sent")
        return self


class Notify(Section):
    """Who is told of what. Nobody, unless a channel is named."""

    events: tuple[Event, ...] = ("run_failed", "gate_failed")
    ui: str = ""
    webhook: Webhook | None = None
    email: Email | None = None
    give_up_hours: float = Field(default=24, gt=0)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels that are on."""
        return tuple(name for name in ("webhook", "email") if getattr(self, name) is not None)


class Automation(Section):
    """automation.yaml."""

    sensor: Watching = Watching()
    mirror: Mirroring = Mirroring()
    notify: Notify = Notify()


def load(home: Home) -> Automation:
    """Read automation.yaml; the defaults where there is none.

    Raises:
        AutomationError: it is not readable, or fields are wrong: each with what is expected, never with what stands there.
    """
    path = home.root / FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Automation()
    except (OSError, UnicodeDecodeError) as error:
        raise AutomationError(f"{FILE} can't be read ({type(error).__name__}); expected a YAML file in UTF-8") from None
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}" if mark else ""
        raise AutomationError(f"{FILE}{place} is no YAML: mend that line") from None
    if found is None:
        return Automation()
    if not isinstance(found, dict):
        raise AutomationError(f"{FILE}: found {type(found).__name__}; expected the sections sensor, mirror, notify")
    try:
        return Automation(**{str(name): value for name, value in found.items()})
    except ValidationError as error:
        raise AutomationError("\n".join(_sentence(fault) for fault in error.errors(include_url=False))) from None


def _sentence(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"]) or "the file"
    return f"{FILE}: {place}: found {type(fault['input']).__name__}; expected: {fault['msg']}"


def _plain_secrets(value: Any, name: str = "") -> list[str]:
    """Names of options that look like secrets and hold a plain text."""
    if isinstance(value, dict):
        if set(value) == {"env"}:
            return []
        return [found for key, inner in value.items() for found in _plain_secrets(inner, str(key))]
    if isinstance(value, (list, tuple)):
        return [found for inner in value for found in _plain_secrets(inner, name)]
    return [name] if isinstance(value, str) and any(part in name.lower() for part in SECRETS) else []


def _resolve(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"env"}:
            return variable(str(value["env"]))
        return {name: _resolve(inner) for name, inner in value.items()}
    return [_resolve(inner) for inner in value] if isinstance(value, list) else value


def variable(name: str) -> str:
    """What an environment variable holds.

    Raises:
        AutomationError: it is not set.
    """
    found = os.environ.get(name)
    if not found:
        raise AutomationError(f"the environment variable {name}, which {FILE} names, is not set for this process")
    return found
