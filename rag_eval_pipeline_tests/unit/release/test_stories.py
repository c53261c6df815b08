"""Passages show where evidence stands, what is missing or another, and never what is personal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.release.report import MARKS, _in_turn, _passage, slug
from rag_eval_pipeline.release.stories import Part, passage, removed, said
from rag_eval_pipeline.text.alignment import nearest
from rag_eval_pipeline.warehouse.redact import Redactor

TEXT = "Caps are stored dark. The cap is guaranteed for 24 months and is marked. Replace it then."
QUOTE = "The cap is guaranteed for 24 months and is marked."


def shown(parts):
    return "".join(f"[{part.mark}:{part.text}]" if part.mark not in {"", "skip"} else part.text for part in parts)


def told(text, quote=QUOTE, **more):
    return passage(text, nearest(quote, text).positions.tolist(), letters="".join(quote.split()), **more)


def test_evidence_that_is_there_is_marked_as_a_whole():
    assert shown(told(TEXT)) == f"Caps are stored dark. [kept:{QUOTE}] Replace it then."


def test_another_number_is_shown_in_place_of_the_labelled_one():
    assert "[kept:The cap is guaranteed for] [other:12] [kept:months and is marked.]" in shown(
        told(TEXT.replace("24", "12"))
    )


def test_a_word_of_which_a_letter_was_misread_is_marked_as_a_word():
    assert "[kept:The cap is] [other:guarantecd] [kept:for 24" in shown(told(TEXT.replace("guaranteed", "guarantecd")))


def test_what_is_missing_is_said_with_its_length():
    assert "[kept:The cap is][gone:15 characters missing][kept: months" in shown(
        told(TEXT.replace(" guaranteed for 24", ""))
    )


def test_lost_punctuation_is_no_loss_unless_it_is_a_numbers():
    assert "other" not in shown(told(TEXT.replace("marked.", "marked")))
    text, quote = TEXT.replace("24", "2.4"), QUOTE.replace("24", "2.4")
    assert "[other:24]" in shown(told(text.replace("2.4", "24"), quote))


def test_an_edge_of_a_chunk_is_shown_only_inside_the_evidence():
    at = TEXT.index("24")
    parts = told(TEXT, cuts=[3, at, len(TEXT)])
    assert [part.mark for part in parts].count("cut") == 1
    assert parts[[part.mark for part in parts].index("cut") + 1].text.startswith("24 months")


def test_removed_evidence_leaves_a_note_where_it_stood():
    text = TEXT.replace(QUOTE, "")
    parts = removed(text, text.index("  ") + 1, Part("50 characters were removed here", "gone"))
    assert shown(parts) == "Caps are stored dark. [gone:50 characters were removed here] Replace it then."
    assert shown(removed("", 0, Part("gone", "gone"))) == "[gone:gone]"


def test_personal_data_is_hidden_by_place_and_by_string_beside_and_inside_the_evidence():
    name, mail = "Zoraida Quintanilla", "zq@example.org"
    text = f"Ask {name} ({mail}). {TEXT}"
    quote = f"Ask {name} ({mail})."
    place = text.index(mail)
    parts = told(text, quote, hidden=[(place, place + len(mail), "EMAIL_ADDRESS")], redactor=Redactor([name]))
    words = "".join(part.text for part in parts)
    assert name not in words
    assert mail not in words
    assert "<PII>" in words
    assert "<EMAIL_ADDRESS>" in words
    beside = "".join(part.text for part in told(text, redactor=Redactor([name])))
    assert "Zoraida" not in beside
    assert "Quintanilla" not in beside


def test_a_name_that_the_edge_of_a_window_would_cut_is_hidden_too():
    name = "Zoraida Quintanilla"
    for gap in range(60, 110):
        text = f"{name} {'x' * (gap // 2)} {'y' * (gap - gap // 2)} {TEXT}"
        words = "".join(part.text for part in told(text, redactor=Redactor([name])))
        assert not {"Quintanilla", "Zoraida"} & set(words.split()), gap


@given(st.text(alphabet="ab1 \n.<&é", max_size=300), st.data())
def test_a_passage_shows_the_text_itself_and_nothing_hidden(text, data):
    """Whatever the places: unmarked parts are stretches of the text in order, hidden characters are in none of them."""
    positions = data.draw(st.lists(st.integers(-1, max(len(text) - 1, 0)), max_size=40)) if text else []
    low = data.draw(st.integers(0, len(text)))
    high = data.draw(st.integers(low, len(text)))
    secret = text[:low] + "\0" * (high - low) + text[high:]
    parts = passage(secret, positions, [(low, high, "X")] if high > low else [])
    at = 0
    for part in parts:
        if part.mark in {"", "kept", "other"}:
            found = _find(secret, part.text, at)
            assert found is not None, (secret, part)
            at = found
        assert "\0" not in part.text


def _find(text, words, at):
    """Where a stretch ends, newlines in a row counting once."""
    while at <= len(text):
        index, place = 0, at
        while index < len(words) and place < len(text):
            if text[place] == words[index]:
                index, place = index + 1, place + 1
            elif text[place] == "\n" and place and text[place - 1] == "\n":
                place += 1
            else:
                break
        if index == len(words):
            return place
        at += 1
    return None


def test_hostile_text_is_escaped_in_every_kind_of_part():
    for mark in ("", *MARKS, "cut"):
        drawn = str(_passage([{"text": "<script>alert(1)</script>&\"'", "mark": mark}]))
        assert "<script>" not in drawn


def test_anchors_are_names_and_stay_apart():
    assert slug("q-1_A") == "q-1_A"
    made = {slug(text) for text in ("q 1", "q/1", "q-1", '"><script>', "é", "")}
    assert len(made) == 6
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") for name in made)


def test_stories_are_chosen_from_each_cause_in_turn():
    rows = [{"query_id": f"p{i}", "first_loss_stage": "parsing", "cause": "token"} for i in range(5)]
    rows += [{"query_id": "r0", "first_loss_stage": "rank", "cause": "below_k"}]
    assert _in_turn(rows)[:3] == ["p0", "r0", "p1"]
    assert sorted(_in_turn([*rows, *rows])) == sorted({row["query_id"] for row in rows})


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        ({"language": "es"}, "language is es"),
        (
            {"and": [{"language": "es"}, {"locale": {"in": ["es", "es-ES"]}}]},
            "language is es and locale is one of es, es-ES",
        ),
        ({"or": [{"a": 1}, {"and": [{"b": 2}, {"c": {"exists": False}}]}]}, "a is 1 or (b is 2 and c is not given)"),
        ({"not": {"year": {"range": {"gte": 2020, "lt": 2024}}}}, "not (year at least 2020 and less than 2024)"),
        ({"a": {"eq": 3}}, "a is 3"),
    ],
)
def test_predicates_are_told_in_words(predicate, words):
    assert said(json.loads(json.dumps(predicate))) == words
