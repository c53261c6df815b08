"""Read JSON Lines: UTF-8 with or without BOM, LF or CRLF, one object a line, every fault with its line and field.

Which fields a line has belongs in `lines`; what holds between lines and files belongs in `checks`.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ValidationError

from rag_eval_pipeline.corpus.faults import Faults, suggestion
from rag_eval_pipeline.corpus.lines import Line

LINE_LIMIT = 32 * 2**20
"""Longest line in bytes. A longer one is refused without being held in memory."""
BOM = b"\xef\xbb\xbf"


class _DuplicateFieldError(ValueError):
    """A field stands twice in one object; readers differ in which one counts."""


def raw_lines(path: Path, file: str, faults: Faults) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 text file with their numbers from 1, without BOM and line end; blank ones are left out."""
    with path.open("rb") as stream:
        yield from _raw_lines(stream, file, faults)


def _raw_lines(stream: BinaryIO, file: str, faults: Faults) -> Iterator[tuple[int, str]]:
    number = 0
    while raw := stream.readline(LINE_LIMIT + 1):
        number += 1
        if len(raw) > LINE_LIMIT and not raw.endswith(b"\n"):
            faults.add(
                file, number, "", f"a line of {len(raw) + _skip(stream):,} bytes", f"at most {LINE_LIMIT:,}",
                "one object a line; texts this long belong in a document of their own",
            )  # fmt: skip
            continue
        if number == 1:
            raw = raw.removeprefix(BOM)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            faults.add(
                file, number, "", f"bytes that aren't UTF-8 at byte {error.start + 1} of the line", "UTF-8",
                "save the file as UTF-8",
            )  # fmt: skip
            continue
        if text.strip():
            yield number, text.rstrip("\r\n")


def _skip(stream: BinaryIO) -> int:
    """Read past the rest of a line in bounded pieces; its length."""
    skipped = 0
    while piece := stream.readline(2**20):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def objects(path: Path, file: str, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects of a file with their line numbers; other lines are faults."""
    for number, text in raw_lines(path, file, faults):
        try:
            value = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
            if "\\u" in text:
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except _DuplicateFieldError as error:
            faults.add(file, number, str(error), "the field twice", "once", "remove one of them")
        except RecursionError:
            faults.add(file, number, "", "JSON nested too deeply", "a flat object")
        except json.JSONDecodeError as error:
            faults.add(
                file, number, "", f"invalid JSON at column {error.colno} ({error.msg})", "one JSON object a line",
                "write one object on one line; double quotes, no trailing comma",
            )  # fmt: skip
        except UnicodeEncodeError:
            faults.add(file, number, "", "half of a surrogate pair (\\ud800–\\udfff)", "whole characters")
        except ValueError as error:
            faults.add(file, number, "", f"invalid JSON ({error})", "one JSON object a line")
        else:
            if isinstance(value, dict):
                yield number, value
            else:
                faults.add(file, number, "", describe(value), "an object {…}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _DuplicateFieldError(cut_name(name))
            seen.add(name)
    return made


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number out of range")
    return number


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def parse(model: type[Line], value: dict[str, Any], file: str, number: int, faults: Faults) -> Line | None:
    """One object as its model; None, with a fault for each wrong field, where it is not one."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        report(error, model, file, number, faults)
        return None


def report(
    error: ValidationError,
    model: type[BaseModel],
    file: str,
    number: int | None,
    faults: Faults,
    prefix: tuple[int | str, ...] = (),
) -> None:
    """Turn pydantic's errors into faults: dotted field, what was found without its text, what is expected."""
    for item in error.errors(include_url=False):
        loc = item["loc"]
        field = dotted((*prefix, *loc))
        kind = item["type"]
        if kind == "extra_forbidden":
            name = cut_name(str(loc[-1]))
            known = fields_at(model, loc[:-1])
            faults.add(file, number, field, "an unknown field", "a known one", suggestion(name, known))
        elif kind == "missing":
            others = [name for name in _given(item["input"]) if name not in fields_at(model, loc[:-1])]
            hint = f"is it {others[0]!r}?" if len(others) == 1 else ""
            faults.add(file, number, field, "no such field", "it is required", hint)
        else:
            faults.add(file, number, field, _found(item), _expected(item))


def _given(value: Any) -> list[str]:
    return [cut_name(str(name)) for name in value] if isinstance(value, dict) else []


def cut_name(name: str) -> str:
    """A field's name as messages show it: one that is longer may be a text of the corpus."""
    return name[:80]


def dotted(loc: tuple[int | str, ...]) -> str:
    """`spans[2].start` for ("spans", 2, "start"); names of union branches, which pydantic adds, are left out."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not any(character in part for character in "[](),"):
            name = cut_name(part)
            text += f".{name}" if text else name
    return text


def fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the model at a place inside another."""
    current: type[BaseModel] | None = model
    for part in loc:
        if current is not None and isinstance(part, str):
            known = {field.alias or name: field.annotation for name, field in current.model_fields.items()}
            current = _model_in(known.get(part))
    return [field.alias or name for name, field in current.model_fields.items()] if current is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in typing.get_args(annotation):
        if (found := _model_in(inner)) is not None:
            return found
    return None


CHOICES = frozenset({"literal_error", "enum"})


def _found(item: Any) -> str:
    value = item["input"]
    # A value out of a fixed list is a word of the file format, not text of the corpus.
    if item["type"] in CHOICES and isinstance(value, str) and len(value) <= 40:
        return repr(value)
    return describe(value)


def _expected(item: Any) -> str:
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "string_pattern_mismatch":
        pattern = str(item["ctx"]["pattern"])
        return "no control characters" if "x00" in pattern else f"a form such as 'en' or 'es-MX' ({pattern})"
    message = str(item["msg"])
    return message[len("Input should be ") :] if message.startswith("Input should be ") else message


def describe(value: Any) -> str:
    """A JSON value's type and size; never its text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        shown = repr(value) if isinstance(value, float) or abs(value) < 10**20 else "a number out of range"
        return f"the number {shown}" if isinstance(value, float) or abs(value) < 10**20 else shown
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return f"a list of {len(value)}" if isinstance(value, list) else f"an object of {len(value)} fields"
