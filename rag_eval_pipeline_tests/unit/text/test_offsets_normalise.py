"""Offset maps compose and invert; normalisation equals unicodedata and maps back."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.text.normalise import FORMS, normalise, normalise_with_map
from rag_eval_pipeline.text.offsets import OffsetMap, Segment

# --- offset maps, against a list of source sets per output character --------------------------------------------------------


@st.composite
def maps(draw, source_length):
    """A map of a random edit: kept ranges in any order, replacements, and written text without a source."""
    segments, out = [], 0
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["keep", "replace", "write"]))
        size = draw(st.integers(1, 4))
        if kind == "write":
            out += size
            continue
        start = draw(st.integers(0, max(0, source_length - 1)))
        end = min(source_length, start + draw(st.integers(1, 5)))
        if start >= end:
            continue
        width = end - start if kind == "keep" else size
        segments.append(Segment(out, out + width, start, end, kind == "keep"))
        out += width
    return OffsetMap(segments), out


def origins(offsets, length):
    """Per output character: (set of source characters, exact)."""
    table = [(frozenset(), False)] * length
    for s in offsets.segments:
        for i in range(s.out_start, s.out_end):
            place = s.src_start + i - s.out_start
            table[i] = (frozenset([place]), True) if s.exact else (frozenset(range(s.src_start, s.src_end)), False)
    return table


def flat(ranges):
    return {i for low, high in ranges for i in range(low, high)}


@given(data=st.data(), n=st.integers(1, 12))
def test_source_forward_and_forward_range_agree_with_a_table_of_characters(data, n):
    offsets, length = data.draw(maps(n))
    table = origins(offsets, length)
    low = data.draw(st.integers(0, length))
    high = data.draw(st.integers(low, length))
    assert flat(offsets.source(low, high)) == set().union(*(src for src, _ in table[low:high]))
    forward = offsets.forward(np.arange(-1, n + 2))
    assert forward[0] == -1
    for position, out in zip(range(n + 2), forward[1:], strict=True):
        places = [i for i, (src, exact) in enumerate(table) if exact and position in src]
        assert out == (places[0] if places else -1)
    start = data.draw(st.integers(0, n))
    end = data.draw(st.integers(start, n))
    touched = [i for i, (src, _) in enumerate(table) if src & set(range(start, end))]
    assert offsets.forward_range(start, end) == ((touched[0], touched[-1] + 1) if touched else None)


@given(data=st.data(), n=st.integers(1, 12))
def test_forward_inverts_source(data, n):
    offsets, _length = data.draw(maps(n))
    for position in range(n):
        out = int(offsets.forward(np.array([position]))[0])
        if out >= 0:
            assert offsets.source(out, out + 1) == [(position, position + 1)]


@given(data=st.data(), n=st.integers(1, 12))
def test_composition_is_one_map_after_the_other(data, n):
    earlier, middle = data.draw(maps(n))
    later, length = data.draw(maps(middle)) if middle else (OffsetMap([]), 0)
    joined = later.then(earlier)
    first = origins(earlier, middle)
    for i, (via, exact) in enumerate(origins(later, length)):
        direct = flat(joined.source(i, i + 1))
        through = set().union(*(first[j][0] for j in via)) if via else set()
        assert direct >= through
        if exact:
            assert direct == through
        elif through:
            assert direct == set(range(min(through), max(through) + 1))
        exact_now = origins(joined, length)[i][1]
        assert exact_now == (exact and all(first[j][1] for j in via) and bool(through))


@given(n=st.integers(0, 20), data=st.data())
def test_identity_is_neutral(n, data):
    offsets, length = data.draw(maps(n)) if n else (OffsetMap([]), 0)
    table = origins(offsets, length)
    assert origins(offsets.then(OffsetMap.identity(n)), length) == table
    assert origins(OffsetMap.identity(length).then(offsets), length) == table
    assert OffsetMap(offsets.rows()).segments == offsets.segments


@given(text=st.text(max_size=20), cuts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4))
def test_keep_is_the_map_of_joined_ranges(text, cuts):
    ranges = [(min(a, b, len(text)), min(max(a, b), len(text))) for a, b in cuts]
    joined = "".join(text[a:b] for a, b in ranges)
    for i, (src, exact) in enumerate(origins(OffsetMap.keep(ranges), len(joined))):
        assert exact
        assert joined[i] == text[next(iter(src))]


def test_wrong_segments_are_refused():
    with pytest.raises(ValueError, match="equal lengths"):
        OffsetMap([Segment(0, 2, 0, 3)])
    with pytest.raises(ValueError, match="sorted by output"):
        OffsetMap([Segment(0, 2, 0, 2), Segment(1, 3, 5, 7)])


# --- normalisation -----------------------------------------------------------------------------------------------------------

ODD = [
    "a",
    "e",
    "o",
    "A",
    "É",
    "ñ",
    "́",
    "̣",
    "̈",
    "ͅ",
    "\xa0",
    "\t",
    "\n",
    "\u2003",
    "\u200b",
    "한",
    "ᄒ",
    "ᅡ",
    "ᆫ",
    "Å",
    "Å",
    "ß",
    "İ",
    "ΐ",
    "ﬁ",
    "क",
    "़",
    "ে",
    "া",
    "文",
]
TEXT = st.text(st.sampled_from([*"".join(ODD), " "]), max_size=30) | st.text(max_size=30)


@given(text=TEXT)
def test_forms_equal_unicodedata(text):
    nfc = unicodedata.normalize("NFC", text)
    spaced = " ".join(nfc.split())
    assert normalise(text, "none") == text
    assert normalise(text, "nfc") == nfc
    assert normalise(text, "nfc+ws") == re.sub(r"\s+", " ", nfc).strip() == spaced
    assert normalise(text, "nfc+ws+casefold") == unicodedata.normalize("NFC", spaced.casefold())
    for form in ("none", "nfc", "nfc+ws"):
        assert normalise(normalise(text, form), form) == normalise(text, form)


@given(text=TEXT, form=st.sampled_from(FORMS))
def test_map_gives_the_same_text_and_every_character_its_source(text, form):
    result, offsets = normalise_with_map(text, form)
    assert result == normalise(text, form)
    covered = origins(offsets, len(result))
    assert all(src for src, _ in covered)
    places = [min(src) for src, _ in covered]
    assert places == sorted(places)
    for character, (src, exact) in zip(result, covered, strict=True):
        original = text[min(src) : max(src) + 1]
        assert normalise(original, form) == "" or character in normalise(original, form) or character == " "
        if exact and "casefold" not in form:
            assert character == original


def test_composed_accent_comes_from_base_and_mark():
    result, offsets = normalise_with_map("ma\u0301s  8", "nfc+ws")
    assert result == "más 8"
    assert offsets.source(1, 2) == [(1, 3)]
    assert offsets.source(3, 4) == [(4, 6)]
    with pytest.raises(ValueError, match="unknown normalisation"):
        normalise("a", "nfkc")
