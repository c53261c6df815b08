"""locate() against a brute force over all substrings, and what its positions promise."""

import random
import unicodedata

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.text.alignment import locate, nearest, occurrences
from rag_eval_pipeline.text.normalise import normalise


def every_substring(quote, text):
    """(edits, start, end): least edits, leftmost, shortest."""
    return min(
        (Levenshtein.distance(quote, text[start:end]), start, end)
        for start in range(len(text) + 1)
        for end in range(start, len(text) + 1)
    )


def sellers(quote, text):
    """Least distance of the quote to any substring, by the plain dynamic programme."""
    row = [0] * (len(text) + 1)
    for i, x in enumerate(quote, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(text, 1):
            previous, row[j] = row[j], min(previous + (x != y), row[j] + 1, row[j - 1] + 1)
    return min(row)


small = st.text(st.sampled_from("abcñ文"), min_size=1, max_size=9)


@given(quote=small, text=st.text(st.sampled_from("abcdñ文"), max_size=18))
def test_best_place_equals_brute_force(quote, text):
    edits, start, end = every_substring(quote, text)
    assert edits == sellers(quote, text)
    found = nearest(quote, text, "none")
    assert (found.similarity, found.start, found.end) == (1 - edits / len(quote), start, end)
    for bar in (0.0, 0.3, 0.6, 0.9, 1.0):
        located = locate(quote, text, "none", bar)
        assert (located is not None) == (edits <= (1 - bar) * len(quote) + 1e-9)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), alphabet=st.sampled_from(["ab", "abcdef ", "abcdefghijklmnopqrstuvwxyz    "]))
def test_seed_filter_loses_nothing_on_longer_texts(seed, alphabet):
    rng = random.Random(seed)
    text = "".join(rng.choice(alphabet) for _ in range(400))
    start = rng.randrange(300)
    quote = list(text[start : start + rng.randint(30, 90)])
    for _ in range(rng.randint(1, 18)):
        place = rng.randrange(len(quote))
        quote[place] = rng.choice(["", "x", quote[place] + "y", rng.choice(alphabet)])
    quote = "".join(quote)
    found = nearest(quote, text, "none")
    assert round((1 - found.similarity) * len(quote)) == sellers(quote, text)
    assert Levenshtein.distance(quote, text[found.start : found.end]) == sellers(quote, text)
    earlier = text[: found.end - 1]
    assert not earlier or every_start_before(quote, earlier, found.start) > sellers(quote, text)


def every_start_before(quote, text, start):
    """Least distance of substrings that begin before `start` (an independent check of "leftmost")."""
    return min((prefix_distance(quote, text[at:]) for at in range(max(0, start - 12), start)), default=len(quote) + 1)


def prefix_distance(quote, text):
    row = list(range(len(text) + 1))
    for i, x in enumerate(quote, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(text, 1):
            previous, row[j] = row[j], min(previous + (x != y), row[j] + 1, row[j - 1] + 1)
    return min(row)


PIECES = [
    "la tarifa",
    " es ",
    "8 USD",
    "más",
    "ma\u0301s",
    "\n",
    "  ",
    "文書",
    "क्ष",
    "한국",
    "1",
    "8",
    "é",
    "e\u0301",
    "🙂",
    "x",
]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(quote=texts, text=texts)
def test_positions_are_equal_characters_in_order_one_per_non_space(quote, text):
    found = nearest(quote, text)
    solid = [c for c in normalise(quote) if not c.isspace()]
    if not normalise(quote):
        assert locate(quote, text) is None
        return
    assert found.positions.dtype == np.int64
    assert len(found.positions) == len(solid)
    places = [(c, p) for c, p in zip(solid, found.positions, strict=True) if p >= 0]
    assert [p for _, p in places] == sorted(p for _, p in places)
    for character, place in places:
        assert 0 <= found.start <= place < found.end <= len(text)
        assert text[place] in (character, unicodedata.normalize("NFD", character)[0])
    edits = round((1 - found.similarity) * len(normalise(quote)))
    assert len(solid) - len(places) <= edits


@given(before=texts, quote=texts.filter(lambda q: normalise(q)), after=texts)
def test_a_quote_that_is_there_is_found_exactly(before, quote, after):
    text = f"{before} {quote} {after}"
    found = locate(quote, text)
    assert found.similarity == 1.0
    assert (found.positions >= 0).all()
    assert normalise(text[found.start : found.end]) == normalise(quote)
    all_places = occurrences(quote, text)
    assert all_places[0].start == found.start
    assert [p.start for p in all_places] == sorted(p.start for p in all_places)
    haystack, needle = normalise(text), normalise(quote)
    assert len(all_places) == sum(haystack.startswith(needle, i) for i in range(len(haystack)))


def test_decomposed_text_gives_the_base_characters_place():
    text = "ver ma\u0301s aqui\u0301"
    found = locate("más aquí", text)
    assert found.positions.tolist() == [4, 5, 7, 9, 10, 11, 12]
    assert (found.start, found.end) == (4, 14)


def test_a_changed_digit_has_no_position():
    found = locate("la tarifa es 18 USD", "Nota: la tarifa es 13 USD al mes.")
    assert found.positions.tolist().count(-1) == 1
    assert found.positions[11] == -1


def test_unlike_texts_are_refused_below_the_bar_but_have_a_nearest_place():
    assert locate("vacaciones", "zzzzzz") is None
    assert nearest("vacaciones", "zzzzzz").similarity == 0.0
    assert nearest("vacaciones", "").positions.tolist() == [-1] * 10
    assert locate("", "abc") is None
    assert occurrences(" ", "a b") == []
