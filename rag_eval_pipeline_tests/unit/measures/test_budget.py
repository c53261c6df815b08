"""A range is held by covered text iff each of its characters is, whatever was put in and in which order."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.measures.budget import Covered
from rag_eval_pipeline.stages.chunking.quality import SPACES

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=8)


@given(put=RANGES, asked=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 15)), min_size=1, max_size=10))
def test_holds_and_gaps_agree_with_a_set_of_characters(put, asked):
    covered, characters = Covered(), set()
    for start, length in put:
        covered.add("d", start, start + length)
        characters |= set(range(start, start + length))
    for start, length in asked:
        wanted = set(range(start, start + length))
        assert covered.holds("d", start, start + length) == (wanted <= characters)
        assert not covered.holds("other", start, start + length)
        missing = {place for low, high in covered.gaps("d", start, start + length) for place in range(low, high)}
        assert missing == wanted - characters


def test_every_white_space_character_is_known():
    assert {place for place in range(sys.maxunicode + 1) if chr(place).isspace()} == set(SPACES.tolist())
