import json
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.predicates import (
    Matcher,
    PredicateError,
    acl_admits,
    fields_of,
    matches,
    validate_predicate,
    visible,
)

SCHEMA = {
    "doc_id": pl.String,
    "tenant": pl.String,
    "locale": pl.String,
    "acl": pl.List(pl.String),
    "published_at": pl.String,
    "metadata": pl.String,
}


def documents(rows):
    return pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in rows], schema=SCHEMA, orient="row")


# --- a literal evaluator, row by row ---


def instant(text):
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def same_kind(one, other):
    def kind(value):
        return (
            "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else type(value).__name__
        )

    return kind(one) == kind(other)


def literal(row, predicate):
    for name, value in predicate.items():
        if name == "and":
            if not all(literal(row, part) for part in value):
                return False
        elif name == "or":
            if not any(literal(row, part) for part in value):
                return False
        elif name == "not":
            if literal(row, value):
                return False
        elif not literal_field(row, name, value):
            return False
    return True


def literal_field(row, name, value):
    held = row.get(name) if name in SCHEMA else json.loads(row["metadata"] or "{}").get(name.removeprefix("metadata."))
    read = (lambda x: instant(x) if isinstance(x, str) else x) if name == "published_at" else (lambda x: x)
    items = [read(item) for item in ((held or [None]) if isinstance(held, list) else [held])]
    for operator, operand in (value if isinstance(value, dict) else {"eq": value}).items():
        if operator == "eq":
            ok = any(same_kind(item, read(operand)) and item == read(operand) for item in items)
        elif operator == "in":
            ok = any(same_kind(item, read(other)) and item == read(other) for item in items for other in operand)
        elif operator == "exists":
            ok = (held is not None and held != []) == operand
        else:
            ok = any(all(literal_bound(item, bound, read(limit)) for bound, limit in operand.items()) for item in items)
        if not ok:
            return False
    return True


def literal_bound(item, bound, limit):
    if item is None or not same_kind(item, limit) or isinstance(item, bool):
        return False
    if bound == "gte":
        return item >= limit
    if bound == "gt":
        return item > limit
    return item <= limit if bound == "lte" else item < limit


words = st.sampled_from(["a", "b", "en", "", "é", "10", "9"])
numbers = st.one_of(st.integers(-2, 2), st.sampled_from([0.5, 1.0, 2.0]))
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
dates = st.sampled_from(["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00", "2023-12-31T23:59:59"])
rows = st.fixed_dictionaries(
    {
        "doc_id": words,
        "tenant": st.one_of(st.none(), words),
        "locale": st.one_of(st.none(), words),
        "acl": st.one_of(st.none(), st.lists(words, max_size=2)),
        "published_at": st.one_of(st.none(), dates),
        "metadata": st.dictionaries(
            st.sampled_from(["x", "tenant", "and"]), st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=3
        ).map(json.dumps),
    }
)


def operators(values, limits):
    bounds = st.dictionaries(st.sampled_from(["gte", "gt", "lte", "lt"]), limits, min_size=1, max_size=2)
    choices = {"eq": values, "in": st.lists(values, max_size=3), "exists": st.booleans(), "range": bounds}
    one = st.sampled_from(sorted(choices)).flatmap(lambda name: choices[name].map(lambda value: {name: value}))
    two = st.tuples(one, one).map(lambda pair: {**pair[0], **pair[1]})
    return st.one_of(values, one, two)


plain_fields = st.sampled_from(
    ["tenant", "locale", "acl", "x", "metadata.x", "metadata.tenant", "metadata.and", "nowhere"]
)
leaves = st.one_of(
    st.dictionaries(plain_fields, operators(scalars, st.one_of(numbers, words)), max_size=2),
    st.fixed_dictionaries({"published_at": operators(st.one_of(st.none(), dates), dates)}),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"and": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"or": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
        st.tuples(inner, st.fixed_dictionaries({"not": inner})).map(lambda pair: {**pair[0], **pair[1]}),
    ),
    max_leaves=6,
)


@given(st.lists(rows, max_size=4), predicates)
def test_predicates_equal_a_literal_evaluator(found, predicate):
    assert matches(documents(found), predicate).to_list() == [literal(row, predicate) for row in found]


@given(st.lists(rows, max_size=3), st.lists(predicates, min_size=1, max_size=2))
def test_a_matcher_used_again_gives_what_a_new_one_gives(found, several):
    frame = documents(found)
    matcher = Matcher(frame)
    assert [matcher(p).to_list() for p in [*several, *several]] == [
        matches(frame, p).to_list() for p in [*several, *several]
    ]


principals = pl.DataFrame(
    {"principal": ["ann", "bob", "eve"], "tenant": ["acme", "acme", None], "groups": [["hr"], [], None]},
    schema={"principal": pl.String, "tenant": pl.String, "groups": pl.List(pl.String)},
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "tenant": st.sampled_from([None, "acme", "globex"]),
                "acl": st.one_of(st.none(), st.lists(st.sampled_from(["hr", "bob", "ann", "it"]), max_size=2)),
            }
        ),
        max_size=6,
    ),
    st.sampled_from([None, "ann", "bob", "eve"]),
)
def test_the_principal_rule(found, principal):
    circles = {"ann": ("acme", {"ann", "hr"}), "bob": ("acme", {"bob"}), "eve": (None, {"eve"})}

    def sees(row):
        if principal is None:
            return True
        tenant, names = circles[principal]
        return (row["tenant"] is None or row["tenant"] == tenant) and (not row["acl"] or bool(names & set(row["acl"])))

    assert visible(documents(found), principal, principals).to_list() == [sees(row) for row in found]


def test_an_unknown_principal_is_refused_not_served():
    with pytest.raises(ValueError, match="unknown principal 'mallory'"):
        visible(documents([]), "mallory", principals)


def test_an_acl_alone_admits_members_and_everybody_where_it_is_empty():
    assert acl_admits(["hr"], "ann", principals)
    assert not acl_admits(["hr"], "bob", principals)
    assert acl_admits([], "bob", principals)
    assert acl_admits(["hr"], None, principals)


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ([], "filter: found a list"),
        ({"and": {}}, "filter.and: found an object, expected a list"),
        ({"not": 3}, "filter.not: found a number"),
        ({"tenant": {"equals": "a"}}, "unknown operator 'equals', did you mean 'eq'"),
        ({"tenant": {}}, "filter.tenant: found an empty object"),
        ({"tenant": {"in": "a"}}, "filter.tenant.in: found a string, expected a list"),
        ({"tenant": {"exists": 1}}, "filter.tenant.exists: found a number, expected true or false"),
        ({"x": {"range": {"from": 1}}}, "unknown bound 'from'"),
        ({"x": {"range": {"gte": None}}}, "filter.x.range.gte: found null"),
        ({"published_at": "last week"}, "filter.published_at: found a string, expected an ISO 8601"),
        ({"or": [{"x": ["a"]}]}, r"filter.or\[0\].x: found a list"),
    ],
)
def test_a_malformed_predicate_names_its_place(predicate, message):
    with pytest.raises(PredicateError, match=message):
        validate_predicate(predicate)


def test_deep_nesting_is_refused():
    predicate = {"tenant": "a"}
    for _ in range(200):
        predicate = {"not": predicate}
    with pytest.raises(PredicateError, match="nested deeper"):
        validate_predicate(predicate)


def test_fields_of_a_predicate():
    assert fields_of({"a": 1, "or": [{"b": 2}, {"not": {"c": {"exists": True}}}]}) == ["a", "b", "c"]


def test_the_worked_filters(worked):
    case = worked["filter"]
    frame = documents([{"doc_id": doc["id"], **doc} for doc in case["docs"]])
    excluded = [
        not any(
            admitted and doc in query["gold"]
            for doc, admitted in zip(frame["doc_id"], matches(frame, query["applied_filter"]), strict=True)
        )
        for query in case["queries"]
    ]
    assert sum(excluded) / len(excluded) == case["filter_false_exclusion_rate"]
