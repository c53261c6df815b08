"""Excerpts: a place with its surroundings, and no character of a personal place among them."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.stages.excerpts import LONGEST, Places, excerpt, labelled

HIDDEN = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 40)), max_size=5).map(
    lambda spans: sorted((start, start + length, "PERSON") for start, length in spans)
)


@given(st.integers(0, 160), st.integers(0, 60), HIDDEN)
def test_no_personal_character_is_shown_and_every_other_one_near_is(start, length, hidden):
    text = "".join(chr(0x4E00 + place) for place in range(160))  # every character once: what is shown can be told
    start, end = min(start, 160), min(start + length, 160)
    shown = excerpt(text, start, end, [span for span in hidden if span[0] < 160])
    secret = {text[place] for low, high, _ in hidden for place in range(low, min(high, 160))}
    assert not secret & set(shown)
    near = {text[place] for place in range(max(0, start - 40), min(160, end + 40))}
    assert near - secret <= set(shown)
    assert shown.count("[") == shown.count("]") == 1


def test_a_name_that_reaches_into_the_place_is_masked_on_both_sides():
    text = "Call Ana Mendoza Ruiz now"
    assert excerpt(text, 9, 16, [(5, 21, "PERSON")]) == "Call <PERSON>[<PERSON>]<PERSON> now"


def test_one_line_no_unseen_signs_and_the_middle_of_a_long_place_left_out():
    assert excerpt("a\n\tb \u202ec", 0, 1) == "[a] b \\u202ec"
    assert excerpt("ab", 1, 1) == "a[]b"
    long = excerpt("x" * 500, 0, 500)
    assert " … " in long
    assert len(long) <= LONGEST + 5


def test_places_are_those_of_the_document_and_layer():
    places = pl.DataFrame(
        {"doc_id": ["a", "a", "b"], "layer": ["parsed", "clean", "parsed"], "start": [1, 2, 3], "end": [4, 5, 6], "type": ["X"] * 3}
    )  # fmt: skip
    assert Places(places).of("a", "parsed") == [(1, 4, "X")]
    assert Places(None).of("a", "parsed") == []
    labels = pl.DataFrame({"doc_id": ["a"], "spans": [[{"start": 1, "end": 2, "type": None}]]})
    assert labelled(labels) == {"a": [(1, 2, "PII")]}
