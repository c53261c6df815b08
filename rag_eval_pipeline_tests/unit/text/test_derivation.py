"""A derived map only says what is true: exact segments are equal text, in order, on both sides."""

from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.text.derivation import derive, matched_tokens
from rag_eval_pipeline.text.offsets import OffsetMap

WORDS = st.lists(
    st.sampled_from(["the", "fee", "is", "8", "EUR", "día", "我喜欢", "naïve", ".", "|", "home\n"]), max_size=60
).map(" ".join)
TEXT = st.one_of(WORDS, st.text(st.characters(exclude_categories=["Cs"]), max_size=80))


def check(offsets: OffsetMap, out: str, source: str) -> None:
    out_at = source_at = 0
    for segment in offsets.segments:
        assert segment.exact
        assert segment.out_start >= out_at
        assert segment.src_start >= source_at
        assert out[segment.out_start : segment.out_end] == source[segment.src_start : segment.src_end]
        out_at, source_at = segment.out_end, segment.src_end
    assert out_at <= len(out)
    assert source_at <= len(source)


@given(TEXT, TEXT)
def test_every_segment_is_equal_text_in_order(out, source):
    check(derive(out, source), out, source)


@given(TEXT)
def test_an_unchanged_text_maps_to_itself(text):
    assert derive(text, text).segments == OffsetMap.identity(len(text)).segments


@given(st.lists(st.text("abcdefgh", min_size=3, max_size=9), min_size=3, max_size=40, unique=True), st.data())
def test_kept_lines_are_found_where_they_were(lines, data):
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    source = "\n".join(lines)
    out = "\n".join(line for line, keep in zip(lines, kept, strict=True) if keep)
    offsets = derive(out, source)
    mapped = sum(s.out_end - s.out_start for s in offsets.segments)
    assert mapped >= sum(len(line) for line, keep in zip(lines, kept, strict=True) if keep)


def test_a_changed_letter_leaves_its_neighbours_mapped():
    out, source = "The fee is 8 EUR, paid in Deirnos today.", "The fee is 8 EUR, paid in Deimos today."
    offsets = derive(out, source)
    check(offsets, out, source)
    assert sum(s.out_end - s.out_start for s in offsets.segments) >= len(source) - 2


def test_long_texts_are_aligned_without_quadratic_memory():
    source = " ".join(f"word{i} of many" for i in range(20_000))
    out = source.replace("word500 ", "").replace("word9000 ", "changed ")
    _, _, pairs = matched_tokens(out, source)
    assert len(pairs) == 60_000 - 2
