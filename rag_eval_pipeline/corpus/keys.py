"""Keys: the name of what is evaluated, `<corpus>@<version>[#<pipeline>]`, and the rule for each of its names.

Where a key's files lie belongs in `layout`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
RESERVED = frozenset({"gold", "pipelines"})
"""Folders of a corpus that are no version."""
DEFAULT = "default"
"""The pipeline of corpus.yaml itself; it has no `#` part."""


class KeyNameError(ValueError):
    """A key or one of its names is not allowed; the message offers a slug."""


def slug(name: str, fallback: str = "corpus") -> str:
    """The allowed name nearest to `name`: ASCII, lower case, runs of other characters as one hyphen."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9._-]+", "-", ascii_name).lstrip("._-")[:63].rstrip("-") or fallback


def check_name(name: str, what: str = "name") -> str:
    """`name` itself, where it is allowed.

    Raises:
        KeyNameError: it breaks the rule, or is a reserved folder's; names a slug that does not.
    """
    if not NAME.fullmatch(name):
        raise KeyNameError(f"{what} {name[:100]!r} is not allowed: use {slug(name, what)!r} (rule: ^{NAME.pattern}$)")
    if what == "version" and name in RESERVED:
        raise KeyNameError(f"version {name!r} is a reserved folder's name: use {name + '-1'!r}")
    if what == "pipeline" and name == DEFAULT:
        raise KeyNameError("pipeline 'default' is corpus.yaml itself: leave '#default' out")
    return name


@dataclass(frozen=True, order=True)
class Key:
    """A corpus version and the pipeline under evaluation. `Key.parse("leave@v2#small")`."""

    corpus: str
    version: str
    pipeline: str = DEFAULT

    def __post_init__(self) -> None:
        check_name(self.corpus, "corpus")
        check_name(self.version, "version")
        if self.pipeline != DEFAULT:
            check_name(self.pipeline, "pipeline")

    @classmethod
    def parse(cls, text: str | Key) -> Key:
        """Read `<corpus>@<version>[#<pipeline>]`.

        Raises:
            KeyNameError: it has another form or a name that is not allowed; the message offers a slug.
        """
        if isinstance(text, Key):
            return text
        subject, hash_sign, pipeline = text.partition("#")
        corpus, at, version = subject.partition("@")
        if not at or "@" in version or (hash_sign and not pipeline):
            raise KeyNameError(
                f"{text[:200]!r} is no key: write <corpus>@<version>[#<pipeline>], such as {_offer(text)!r}"
            )
        try:
            if hash_sign:
                check_name(pipeline, "pipeline")
            return cls(corpus, version, pipeline or DEFAULT)
        except KeyNameError as error:
            raise KeyNameError(f"{error}; as a whole: {_offer(text)!r}") from None

    @property
    def subject(self) -> str:
        """`corpus@version`: what candidate pipelines share."""
        return f"{self.corpus}@{self.version}"

    @property
    def text(self) -> str:
        """The key as written: the Dagster partition."""
        return self.subject if self.pipeline == DEFAULT else f"{self.subject}#{self.pipeline}"

    def __str__(self) -> str:
        return self.text


def _offer(text: str) -> str:
    """A key that is allowed and as near to `text` as slugs allow."""
    subject, _, pipeline = text.partition("#")
    corpus, _, version = subject.partition("@")
    name = slug(version, "v1")
    offered = f"{slug(corpus)}@{name + '-1' if name in RESERVED else name}"
    candidate = slug(pipeline, "") if pipeline else ""
    return f"{offered}#{candidate}" if candidate and candidate != DEFAULT else offered
