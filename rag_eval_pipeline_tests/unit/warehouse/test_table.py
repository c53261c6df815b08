"""The short way to say that a frame obeys its declaration agrees with dataframely's validation, row by row and rule by rule."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.release.dictionary import steps
from rag_eval_pipeline.warehouse import table as tables
from rag_eval_pipeline.warehouse.table import (
    Table,
    TableError,
    boolean,
    conform,
    integer,
    name_of,
    number,
    offsets,
    polars_schema,
    string,
    strings,
    table,
    vector,
)

KNOWN = ("nullability", "inf", "nan", "primary_key")
"""The rules that the short way looks at, of a column, of a list's values and of a struct's fields."""


@table("things", "One row a thing.")
class Things(Table):
    thing_id = string("Thing", key=True)
    part = integer("Part", key=True)
    note = string("Note", null=True)
    size = number("Size")
    share = number("Share", null=True)
    seen = boolean("Seen", null=True)
    names = strings("Names")
    aliases = strings("Aliases", null=True)
    direction = vector("Direction")
    segments = offsets("Segments")


def maybe(values):
    return st.one_of(values, st.none())


FLOATS = st.sampled_from([0.0, -1.5, math.nan, math.inf, 3.0])
SEGMENT = st.fixed_dictionaries(
    {
        **{name: st.sampled_from([0, 1, None]) for name in ("out_start", "out_end", "src_start", "src_end")},
        "exact": maybe(st.booleans()),
    }
)
ROW = st.fixed_dictionaries(
    {
        "thing_id": maybe(st.sampled_from("abñ")),
        "part": st.sampled_from([0, 1, 2, 3, None]),
        "note": maybe(st.text(max_size=2)),
        "size": maybe(FLOATS),
        "share": maybe(FLOATS),
        "seen": maybe(st.booleans()),
        "names": maybe(st.lists(maybe(st.text(max_size=1)), max_size=2)),
        "aliases": maybe(st.lists(maybe(st.text(max_size=1)), max_size=2)),
        "direction": maybe(st.lists(maybe(FLOATS), max_size=2)),
        "segments": maybe(st.lists(maybe(SEGMENT), max_size=2)),
    }
)
SOUND = {
    "thing_id": "a",
    "part": 0,
    "note": None,
    "size": 1.0,
    "share": None,
    "seen": None,
    "names": [],
    "aliases": None,
    "direction": [1.0],
    "segments": [{"out_start": 0, "out_end": 1, "src_start": 0, "src_end": 1, "exact": True}],
}
CELLS = st.one_of(*(st.tuples(st.just(name), ROW.map(lambda row, name=name: row[name])) for name in SOUND))


def accepted(frame):
    try:
        Things.validate(frame, cast=True)
    except Exception:
        return False
    return True


def framed(rows):
    return pl.DataFrame(rows, schema=polars_schema(Things))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), CELLS), max_size=4))
def test_a_frame_is_accepted_exactly_where_dataframely_accepts_it(rows):
    frame = framed([{**SOUND, "thing_id": key, "part": part, cell[0]: cell[1]} for key, part, cell in rows])
    assert tables._obeys(Things, frame) == accepted(frame)
    if accepted(frame):
        assert conform(Things, frame).rows() == Things.validate(frame, cast=True).sort("thing_id", "part").rows()
    else:
        with pytest.raises(TableError, match="things"):
            conform(Things, frame)


@given(st.lists(ROW, max_size=3))
def test_so_is_a_frame_with_several_faults(rows):
    frame = framed(rows)
    assert tables._obeys(Things, frame) == accepted(frame)


def test_what_is_of_another_type_is_cast_and_checked():
    frame = framed([SOUND]).with_columns(pl.col("part").cast(pl.Int8), pl.col("size").cast(pl.Int64))
    assert conform(Things, frame).schema == polars_schema(Things)


@pytest.mark.parametrize("schema", [schema for *_, schemas in steps() for schema in schemas], ids=name_of)
def test_no_table_has_a_rule_that_the_short_way_does_not_look_at(schema):
    assert {rule for rule in schema._validation_rules(with_cast=False) if not rule.endswith(KNOWN)} == set()
