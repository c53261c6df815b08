"""Spans that differ: put into the reference they make the output; offsets, kinds and sizes by hand and by rapidfuzz."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.measures import Unmeasured, errors, wer
from rag_eval_pipeline.measures.errors import error_spans
from rag_eval_pipeline_tests.sizes import measured

TEXT = st.text(st.sampled_from("ab  \n\u00a0é1"), max_size=30) | st.text(max_size=20)


@measured
@given(reference=TEXT, output=TEXT)
def test_the_reference_with_its_spans_replaced_is_the_output(reference, output):
    spans, made, place = error_spans(reference, output), [], 0
    for span in spans:
        made += [reference[place : span.start], " ", output[span.out_start : span.out_end], " "]
        place = span.end
    made.append(reference[place:])
    assert unicodedata.normalize("NFC", "".join(made)).split() == unicodedata.normalize("NFC", output).split()
    assert [s.start for s in spans] == sorted(s.start for s in spans)
    for span in spans:
        lost, read = (
            " ".join(part.split()) for part in (reference[span.start : span.end], output[span.out_start : span.out_end])
        )
        lost, read = (unicodedata.normalize("NFC", part) for part in (lost, read))
        assert span.errors == Levenshtein.distance(lost, read) > 0
        assert span.kind == ("replaced" if lost and read else "lost" if lost else "invented")
    found = wer(reference, output)
    assert bool(spans) == bool(found.numerator)


def test_offsets_are_those_of_the_texts_as_they_are():
    reference, output = "Up to  five\nunused days may be kept.", "Up to f1ve unused may be safely kept."
    found = [
        (s.kind, reference[s.start : s.end], output[s.out_start : s.out_end], s.errors)
        for s in error_spans(reference, output)
    ]
    assert found == [("replaced", "five", "f1ve", 1), ("lost", "days", "", 4), ("invented", "", "safely", 6)]
    assert error_spans(reference, reference) == error_spans("", " ") == []


def test_texts_too_long_to_align_are_refused(monkeypatch):
    monkeypatch.setattr(errors, "MAX_PAIRS", 5)
    assert error_spans("a b", "a c")
    with pytest.raises(Unmeasured, match="3 and 2 words"):
        error_spans("a b c", "a c")
