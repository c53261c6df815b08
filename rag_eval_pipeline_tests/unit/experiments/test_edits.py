"""Edits of texts and chunks: what is not edited stays, offsets follow, and chunks end where they should."""

from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.experiments.injector.chain import edit_chunks, edit_text
from rag_eval_pipeline.experiments.injector.edits import Cut, Join, TextEdit

WORDS = st.lists(st.text("abcdé1", min_size=1, max_size=6), min_size=3, max_size=30)


def test_a_digit_is_replaced_and_blocks_stay():
    blocks = [{"kind": "paragraph", "level": None, "page": 1, "start": 0, "end": 12}]
    text, moved = edit_text("lasts 24 h ok", blocks, [TextEdit(7, 8, "9")])
    assert text == "lasts 29 h ok"
    assert moved == blocks


def test_a_moved_passage_stands_behind_the_text_as_a_block_of_its_own():
    text = "first half second half\n\nnext"
    blocks = [
        {"kind": "paragraph", "level": None, "page": 1, "start": 0, "end": 22},
        {"kind": "paragraph", "level": None, "page": 2, "start": 24, "end": 28},
    ]
    made, moved = edit_text(text, blocks, [TextEdit(11, 22, "second half", moved=True)])
    assert made == "first half \n\nnext\n\nsecond half"
    assert [made[b["start"] : b["end"]] for b in moved] == ["first half ", "next", "second half"]
    assert moved[-1]["page"] == 2


def test_a_block_that_lost_its_text_is_gone():
    blocks = [{"kind": "table", "start": 4, "end": 7}, {"kind": "paragraph", "start": 8, "end": 11}]
    text, moved = edit_text("abc tab end", blocks, [TextEdit(4, 7)])
    assert text == "abc  end"
    assert [text[b["start"] : b["end"]] for b in moved] == ["end"]


@given(WORDS, st.data())
def test_blocks_outside_of_an_edit_keep_their_text(words, data):
    text = " ".join(words)
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    gone = data.draw(st.integers(0, len(words) - 1))
    new = data.draw(st.text("xyz", max_size=4))
    blocks = [{"kind": "paragraph", "page": None, "start": a, "end": b} for a, b in spans]
    made, moved = edit_text(text, blocks, [TextEdit(*spans[gone], new)])
    assert len(made) == len(text) - len(words[gone]) + len(new)
    kept = [made[b["start"] : b["end"]] for b in moved]
    assert kept[:gone] == words[:gone]
    assert kept[len(kept) - (len(words) - gone - 1) :] == words[gone + 1 :]


CHUNKS = [
    {"chunk_id": "d::0", "start": 0, "end": 20},
    {"chunk_id": "d::1", "start": 15, "end": 40},
    {"chunk_id": "d::2", "start": 41, "end": 60},
]
TEXT = "".join("x" if (i + 1) % 5 else " " for i in range(60))


def test_no_chunk_reaches_over_a_cut_and_the_others_keep_their_ids():
    made = edit_chunks("d", TEXT, CHUNKS, [Cut(18)])
    assert not any(c["start"] < 18 < c["end"] for c in made)
    assert [c["chunk_id"] for c in made] == ["d::0-a", "d::1-b", "d::2"]
    assert all(c["text"] == TEXT[c["start"] : c["end"]] for c in made)
    assert (made[0]["start"], made[1]["end"]) == (0, 40)


def test_joined_chunks_are_one_range():
    made = edit_chunks("d", TEXT, CHUNKS, [Join(("d::1", "d::2"))])
    assert [(c["chunk_id"], c["start"], c["end"]) for c in made] == [("d::0", 0, 20), ("d::1", 15, 60)]


@given(st.integers(1, 59))
def test_a_cut_loses_white_space_only(at):
    made = edit_chunks("d", TEXT, CHUNKS, [Cut(at)])

    def covered(chunks):
        return {i for c in chunks for i in range(c["start"], c["end"]) if not TEXT[i].isspace()}

    assert covered(made) == covered(CHUNKS)
    assert not any(c["start"] < at < c["end"] for c in made)
