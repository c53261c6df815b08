"""The redactor hides known personal strings as whole tokens, in any case and over line ends, and nothing else."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.warehouse.redact import HIDDEN, Redactor

TERMS = ["María Pérez", "ana.gomez@example.com", "+34 600 123 456", "Bo"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Ask María Pérez.", f"Ask {HIDDEN}."),
        ("Ask MARÍA\n  PÉREZ.", f"Ask {HIDDEN}."),
        ("Mari\u0301a Pe\u0301rez", HIDDEN),
        ("María Pérezson", "María Pérezson"),
        ("mail ana.gomez@example.com, call +34 600 123 456", f"mail {HIDDEN}, call {HIDDEN}"),
        ("Bo is too short to hide", "Bo is too short to hide"),
        ("", ""),
    ],
)
def test_text(text, shown):
    assert Redactor(TERMS).text(text) == shown


def test_null_stays_null_and_lists_are_redacted_inside():
    redactor = Redactor(TERMS)
    assert redactor.column(pl.Series(["María Pérez", None])).to_list() == [HIDDEN, None]
    lists = pl.Series([["x", "María Pérez"], [], None], dtype=pl.List(pl.String))
    assert redactor.column(lists).to_list() == [["x", HIDDEN], [], None]


@given(
    st.lists(st.text(alphabet="abé 1.@", min_size=4, max_size=9), max_size=5),
    st.text(alphabet="abé 1.@\n", max_size=60),
)
def test_after_redaction_no_term_stands_as_a_token(terms, text):
    import re

    shown = Redactor(terms).text(text)
    for term in Redactor(terms).terms:
        words = r"\s+".join(re.escape(word) for word in term.split())
        assert not re.search(rf"(?<!\w){words}(?!\w)", shown, re.IGNORECASE)
