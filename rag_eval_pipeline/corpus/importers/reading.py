"""Open the files of a set: plain or gzip, JSON Lines, and the fields that formats name differently.

What the fields mean belongs in each format's module.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.importers.writer import ImportFailedError

LINE_LIMIT = 64 * 2**20


def find(folder: Path, given: str | None, defaults: tuple[str, ...], what: str) -> Path:
    """A file or folder of the set: the given one, else the first default that is there.

    Raises:
        ImportFailedError: there is none.
    """
    candidates = (given,) if given else defaults
    for name in candidates:
        if (folder / name).exists():
            return folder / name
    raise ImportFailedError(f"no {what} in {folder.name}/: looked for {', '.join(candidates)}; name it by --{what}")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 file, gzip where it ends in .gz, with numbers from 1; blank ones left out.

    Raises:
        ImportFailedError: it can't be read, isn't UTF-8, or a line is too long.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            while raw := stream.readline(LINE_LIMIT + 1):
                number += 1
                if len(raw) > LINE_LIMIT:
                    raise ImportFailedError(f"{path.name}:{number}: a line beyond {LINE_LIMIT:,} bytes: split it")
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield number, text
    except UnicodeDecodeError:
        raise ImportFailedError(f"{path.name}:{number}: bytes that aren't UTF-8: save the file as UTF-8") from None
    except (OSError, EOFError) as error:
        raise ImportFailedError(
            f"{path.name}:{number}: can't be read ({type(error).__name__}): fetch it anew"
        ) from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """JSON objects of a file, with `name:line` for messages.

    Raises:
        ImportFailedError: a line is no JSON object.
    """
    for number, text in text_lines(path):
        place = f"{path.name}:{number}"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ImportFailedError(f"{place}: invalid JSON ({type(error).__name__}): one object a line") from None
        if not isinstance(value, dict):
            raise ImportFailedError(f"{place}: found {type(value).__name__}, expected an object")
        yield place, value


def take(row: Mapping[str, Any], names: tuple[str, ...], place: str, default: str | None = None) -> str:
    """The first of several fields that is there, as text; numbers as written, lists of text joined by a space.

    Raises:
        ImportFailedError: none is there and no default was given.
    """
    for name in names:
        if (value := row.get(name)) is not None:
            if isinstance(value, list) and all(isinstance(part, str) for part in value):
                return " ".join(value)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(value)
            raise ImportFailedError(f"{place}: {name} is {type(value).__name__}, expected text")
    if default is None:
        raise ImportFailedError(f"{place}: none of {', '.join(names)} is there; found {', '.join(sorted(row)[:10])}")
    return default
