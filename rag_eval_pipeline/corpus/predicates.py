"""Predicates as data, and who may see what: both decided on the documents table, in one place for gold and pipeline.

A predicate is `{field: value}` or `{field: {eq|in|range|exists: …}}` under `and`, `or`, `not`. Fields of one mapping, and
operators of one field, are joined by *and*. A field is a column of `documents` or a key of its `metadata`;
`metadata.<key>` always means the latter. Logic is two-valued: a field that is absent equals only `null`, is in no range,
and `not` is plain negation. A list matches where any of its items does. Booleans, numbers and strings never equal each
other. `published_at` and `committed_at` compare as instants (a date is its midnight, no zone is UTC).

Extracting a predicate from a query belongs in the filtering room.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.faults import suggestion

FIELDS = (
    "doc_id", "path", "media", "doc_class", "language", "locale", "title", "tenant", "acl",
    "published_at", "committed_at", "supersedes", "bytes",
)  # fmt: skip
"""Columns of `documents` that a predicate may name."""
INSTANTS = frozenset({"published_at", "committed_at"})
JOINS = ("and", "or", "not")
OPERATORS = ("eq", "in", "range", "exists")
BOUNDS = ("gte", "gt", "lte", "lt")
DEPTH = 50


class PredicateError(ValueError):
    """A predicate has a form that is not allowed; the message says where in it."""


def instant(text: str) -> datetime:
    """An ISO 8601 date or time as an instant.

    Raises:
        ValueError: it is neither.
    """
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:  # its zone takes it out of the years 1 to 9999
        raise ValueError("a time out of range") from error


def validate_predicate(predicate: Any) -> None:
    """Refuse a predicate that is not of the documented form.

    Raises:
        PredicateError: names the place in it, what was found and what is allowed.
    """
    _validate(predicate, "filter", 0)


def fields_of(predicate: Mapping[str, Any]) -> list[str]:
    """Names of the fields that a valid predicate reads, sorted."""
    found: set[str] = set()
    for name, value in predicate.items():
        if name == "not":
            found.update(fields_of(value))
        elif name in JOINS:
            found.update(field for part in value for field in fields_of(part))
        else:
            found.add(name)
    return sorted(found)


def _validate(predicate: Any, place: str, depth: int) -> None:
    if not isinstance(predicate, Mapping):
        raise PredicateError(f"{place}: found {_kind(predicate)}, expected an object of fields, and, or, not")
    if depth > DEPTH:
        raise PredicateError(f"{place}: nested deeper than {DEPTH}")
    for name, value in predicate.items():
        if name == "not":
            _validate(value, f"{place}.not", depth + 1)
        elif name in JOINS:
            if not isinstance(value, list):
                raise PredicateError(f"{place}.{name}: found {_kind(value)}, expected a list of predicates")
            for number, part in enumerate(value):
                _validate(part, f"{place}.{name}[{number}]", depth + 1)
        else:
            _validate_field(name, value, f"{place}.{name}")


def _validate_field(name: str, value: Any, place: str) -> None:
    if not isinstance(value, Mapping):
        _scalar(name, value, place)
        return
    if not value:
        raise PredicateError(f"{place}: found an empty object, expected one of {', '.join(OPERATORS)}")
    for operator, operand in value.items():
        if operator not in OPERATORS:
            raise PredicateError(f"{place}: unknown operator {operator!r}, {suggestion(operator, OPERATORS)}")
        _validate_operand(name, operator, operand, f"{place}.{operator}")


def _validate_operand(name: str, operator: str, operand: Any, place: str) -> None:
    if operator == "eq":
        _scalar(name, operand, place)
    elif operator == "in":
        if not isinstance(operand, list):
            raise PredicateError(f"{place}: found {_kind(operand)}, expected a list of values")
        for item in operand:
            _scalar(name, item, place)
    elif operator == "exists":
        if not isinstance(operand, bool):
            raise PredicateError(f"{place}: found {_kind(operand)}, expected true or false")
    else:
        _validate_range(name, operand, place)


def _validate_range(name: str, operand: Any, place: str) -> None:
    if not isinstance(operand, Mapping) or not operand:
        raise PredicateError(f"{place}: found {_kind(operand)}, expected an object of {', '.join(BOUNDS)}")
    for bound, value in operand.items():
        if bound not in BOUNDS:
            raise PredicateError(f"{place}: unknown bound {bound!r}, {suggestion(bound, BOUNDS)}")
        if _sort(value) not in {"number", "string"}:
            raise PredicateError(f"{place}.{bound}: found {_kind(value)}, expected a number or a string")
        _scalar(name, value, f"{place}.{bound}")


def _scalar(name: str, value: Any, place: str) -> None:
    if _sort(value) == "other":
        raise PredicateError(f"{place}: found {_kind(value)}, expected a string, number, boolean or null")
    if name in INSTANTS and value is not None:
        try:
            instant(value)
        except (TypeError, ValueError):
            raise PredicateError(f"{place}: found {_kind(value)}, expected an ISO 8601 date or time") from None


def _sort(value: Any) -> str:
    """Kind of a JSON value; values of two kinds never match each other."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "instant" if isinstance(value, datetime) else "other"


def _kind(value: Any) -> str:
    names = {"null": "null", "boolean": "a boolean", "number": "a number", "string": "a string"}
    return names.get(_sort(value), "a list" if isinstance(value, list) else "an object")


class Matcher:
    """Predicates over one documents frame: each field is read once, each leaf decided once on its distinct values.

    Use it instead of `matches` where many predicates meet the same documents.
    """

    def __init__(self, documents: pl.DataFrame) -> None:
        self.documents = documents
        self._metadata: list[dict[str, Any]] | None = None
        self._fields: dict[str, tuple[np.ndarray, list[Any]]] = {}
        self._leaves: dict[str, np.ndarray] = {}

    def __call__(self, predicate: Mapping[str, Any]) -> pl.Series:
        """Which documents the predicate admits, as a Boolean series in their order.

        Raises:
            PredicateError: the predicate has a form that is not allowed.
        """
        validate_predicate(predicate)
        return pl.Series("matches", self._all(predicate), dtype=pl.Boolean)

    def _all(self, predicate: Mapping[str, Any]) -> np.ndarray:
        admitted = np.ones(self.documents.height, dtype=bool)
        for name, value in predicate.items():
            admitted = admitted & self._part(name, value)
        return admitted

    def _part(self, name: str, value: Any) -> np.ndarray:
        if name == "not":
            return ~self._all(value)
        if name in JOINS:
            join = np.logical_and if name == "and" else np.logical_or
            parts = [self._all(part) for part in value]
            if parts:
                return np.asarray(join.reduce(parts))
            return np.full(self.documents.height, name == "and")
        operators = value if isinstance(value, Mapping) else {"eq": value}
        admitted = np.ones(self.documents.height, dtype=bool)
        for operator, operand in operators.items():
            admitted = admitted & self._leaf(name, operator, operand)
        return admitted

    def _leaf(self, name: str, operator: str, operand: Any) -> np.ndarray:
        memo = json.dumps([name, operator, operand], sort_keys=True)
        if memo not in self._leaves:
            codes, values = self._field(name)
            decided = np.fromiter(
                (_holds(name, operator, operand, value) for value in values), dtype=bool, count=len(values)
            )
            self._leaves[memo] = decided[codes] if len(values) else np.zeros(0, dtype=bool)
        return self._leaves[memo]

    def _field(self, name: str) -> tuple[np.ndarray, list[Any]]:
        """Codes of a field's values by document, and the distinct values."""
        if name not in self._fields:
            if name in FIELDS and name in self.documents.columns:
                values: Iterable[Any] = self.documents[name].to_list()
            else:
                key = name.removeprefix("metadata.")
                values = (metadata.get(key) for metadata in self._parsed())
            self._fields[name] = _encode(values, self.documents.height)
        return self._fields[name]

    def _parsed(self) -> list[dict[str, Any]]:
        if self._metadata is None:
            present = "metadata" in self.documents.columns
            texts = self.documents["metadata"].to_list() if present else [None] * self.documents.height
            known: dict[str | None, dict[str, Any]] = {None: {}}
            for text in texts:
                if text is not None and text not in known:
                    known[text] = json.loads(text)
            self._metadata = [known[text] for text in texts]
        return self._metadata


def _encode(values: Iterable[Any], count: int) -> tuple[np.ndarray, list[Any]]:
    codes, distinct, known = np.zeros(count, dtype=np.int64), [], {}  # type: ignore[var-annotated]
    for position, value in enumerate(values):
        # JSON text as identity: 1, 1.0, true and "1" stay apart, and lists can be compared.
        identity = json.dumps(value, sort_keys=True)
        if identity not in known:
            known[identity] = len(distinct)
            distinct.append(value)
        codes[position] = known[identity]
    return codes, distinct


def _holds(name: str, operator: str, operand: Any, value: Any) -> bool:
    items: Sequence[Any] = value if isinstance(value, list) else [value]
    if operator == "exists":
        return (value is not None and value != []) is operand
    if isinstance(value, list) and not value:
        items = [None]
    if name in INSTANTS:
        items, operand = [_moment(item) for item in items], _moments(operand)
    if operator == "range":
        return any(_in_range(item, operand) for item in items)
    wanted = operand if operator == "in" else [operand]
    return any(_equal(item, other) for item in items for other in wanted)


def _moment(value: Any) -> Any:
    return instant(value) if isinstance(value, str) else value


def _moments(operand: Any) -> Any:
    if isinstance(operand, Mapping):
        return {bound: _moment(value) for bound, value in operand.items()}
    return [_moment(value) for value in operand] if isinstance(operand, list) else _moment(operand)


def _equal(value: Any, other: Any) -> bool:
    return _sort(value) == _sort(other) != "other" and bool(value == other)


def _in_range(value: Any, bounds: Mapping[str, Any]) -> bool:
    for bound, limit in bounds.items():
        if _sort(value) != _sort(limit):
            return False
        held = {"gte": value >= limit, "gt": value > limit, "lte": value <= limit, "lt": value < limit}[bound]
        if not held:
            return False
    return True


def matches(documents: pl.DataFrame, predicate: Mapping[str, Any]) -> pl.Series:
    """Which documents `predicate` admits, as a Boolean series in their order. `{}` admits all.

    Raises:
        PredicateError: the predicate has a form that is not allowed.
    """
    return Matcher(documents)(predicate)


def circle(principal: str, principals: pl.DataFrame) -> tuple[str | None, frozenset[str]]:
    """A principal's tenant, and the names under which an acl may admit them: their own and their groups'.

    Raises:
        ValueError: the principal is not in `principals`.
    """
    row = principals.filter(pl.col("principal") == principal)
    if row.is_empty():
        raise ValueError(f"unknown principal {principal!r}: add a line to principals.jsonl")
    tenant, groups = row["tenant"][0], row["groups"][0]
    return tenant, frozenset([principal, *(groups.to_list() if groups is not None else [])])


def acl_admits(acl: Iterable[str] | None, principal: str | None, principals: pl.DataFrame) -> bool:
    """Whether an acl alone admits a principal: the rule for evidence whose document is absent from the version.

    Raises:
        ValueError: the principal is not in `principals`.
    """
    names = list(acl or ())
    if principal is None:
        return True
    _, allowed = circle(principal, principals)
    return not names or not allowed.isdisjoint(names)


def visible(documents: pl.DataFrame, principal: str | None, principals: pl.DataFrame) -> pl.Series:
    """Which documents a principal may see, as a Boolean series in their order. No principal sees all.

    A document is seen iff its tenant is the principal's (or it has none) and its acl is empty or meets
    {principal} ∪ groups.

    Raises:
        ValueError: the principal is not in `principals`.
    """
    if principal is None:
        return pl.repeat(True, documents.height, dtype=pl.Boolean, eager=True).alias("visible")
    tenant, allowed = circle(principal, principals)
    same = pl.col("tenant").is_null() | (pl.col("tenant") == tenant if tenant is not None else pl.lit(False))
    acl = pl.col("acl").fill_null([])
    admitted = (acl.list.len() == 0) | acl.list.set_intersection(sorted(allowed)).list.len().gt(0)
    return documents.select((same & admitted).alias("visible"))["visible"]
