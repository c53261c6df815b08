"""Chunks: exact ranges that lose nothing, keep to the size, and cut where it hurts least."""

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.chunking import splitters
from rag_eval_pipeline.stages.chunking.quality import measure
from rag_eval_pipeline.stages.chunking.splitters import Block, Source, cover, forward_ranges
from rag_eval_pipeline.stages.chunking.transform import BUILT_IN, CONFIG, one, run
from rag_eval_pipeline.text.offsets import OffsetMap, Segment
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.runtime import Runtime

PIECES = [
    "The fee is 8 EUR. ", "It rose to 1.8 in 2026! ", "Sr. Pérez pagó el 3 de mayo. ", "我喜欢健身。", "مرحبا بالعالم ", "\n", "\n\n",
    "## Head\n\n", "a\tb\n1\t2\n", "- item\n", "x" * 40, " ", "👩‍👧", "é", "word ", "end of it; and more, and more ",
]  # fmt: skip
TEXT = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
KINDS = st.sampled_from(["heading", "paragraph", "list_item", "table", "code", "other", "boilerplate"])


def identity(text):
    return OffsetMap.identity(len(text)).rows()


def item(text, blocks=(), given=None, language=None):
    return {
        "text": text,
        "masked": identity(text),
        "clean": identity(text),
        "blocks": list(blocks),
        "language": language,
        "given": given,
    }


@st.composite
def documents(draw):
    """Any text with any blocks: overlapping, empty, out of order, or none."""
    text = draw(TEXT)
    edges = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(edges, edges, KINDS, st.integers(1, 3)), max_size=6))
    return text, [
        {"kind": kind, "level": level, "page": 1, "start": min(a, b), "end": max(a, b)} for a, b, kind, level in spans
    ]


def chunks(text, blocks=(), **config):
    return one(item(text, blocks), CONFIG(**config))["chunk_pieces"]


@given(
    documents(),
    st.sampled_from(sorted(BUILT_IN)),
    st.integers(1, 40),
    st.integers(0, 39),
    st.sampled_from(["chars", "words", "tokens"]),
)
def test_chunks_are_exact_ranges_that_hold_every_visible_character_and_keep_to_the_size(
    case, splitter, size, overlap, unit
):
    text, blocks = case
    made = chunks(text, blocks, splitter=splitter, size=size, overlap=min(overlap, size - 1), unit=unit)
    covered, starts = set(), []
    counter = get_tokenizer("bundled" if unit == "tokens" else unit)
    source = Source(text, counter)
    for number, row in enumerate(made):
        assert row["ordinal"] == number
        assert row["text"] == text[row["start"] : row["end"]]
        assert row["text"].strip() == row["text"] != ""
        assert row["tokens"] == source.count(row["start"], row["end"])
        if splitter != "none":
            assert row["tokens"] <= size
        covered |= set(range(row["start"], row["end"]))
        starts.append((row["start"], row["end"]))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(starts)), "chunks move on"
    assert {i for i, c in enumerate(text) if not c.isspace()} <= covered


@given(documents(), st.sampled_from(["recursive", "fixed", "structural"]), st.integers(2, 30), st.data())
def test_neighbours_share_at_most_the_overlap(case, splitter, size, data):
    text, blocks = case
    overlap = data.draw(st.integers(0, size - 1))
    made = chunks(text, blocks, splitter=splitter, size=size, overlap=overlap, unit="words")
    source = Source(text, get_tokenizer("words"))
    for a, b in itertools.pairwise(made):
        assert source.count(b["start"], max(a["end"], b["start"])) <= overlap


def test_fixed_windows_share_exactly_the_overlap():
    text = " ".join(f"w{i}" for i in range(100))
    made = chunks(text, splitter="fixed", size=30, overlap=10, unit="words")
    assert [row["text"].split()[0] for row in made] == ["w0", "w20", "w40", "w60", "w80"][: len(made)]
    assert [row["tokens"] for row in made] == [30, 30, 30, 30, 20][: len(made)]
    assert made[-1]["text"].endswith("w99")


def test_none_is_the_whole_document_however_long():
    text = "Word. " * 5000
    made = chunks(text, splitter="none", size=10, overlap=0)
    assert len(made) == 1
    assert made[0]["text"] == text.strip()


def blocks_of(*parts):
    """Text and blocks from (kind, level, text)."""
    text, blocks = "", []
    for kind, level, part in parts:
        blocks.append(
            {
                "kind": kind,
                "level": level,
                "page": len(blocks) // 3 + 1,
                "start": len(text),
                "end": len(text) + len(part),
            }
        )
        text += part + "\n\n"
    return text, blocks


DOCUMENT = blocks_of(
    ("heading", 1, "Leave policy"),
    ("heading", 2, "Carry-over"),
    ("paragraph", None, "Five days carry over. They lapse in March. Managers may extend this. HR keeps the books."),
    ("table", None, "Kind\tDays\nSick\t10\nAnnual\t22\nStudy\t5"),
    ("heading", 2, "Approval"),
    ("paragraph", None, "Managers approve within five days."),
)


def test_structure_is_respected_headings_sections_pages_tables():
    made = chunks(*DOCUMENT, size=60, overlap=0, unit="words")
    assert [row["text"].splitlines()[0] for row in made] == ["Leave policy", "Approval"]
    assert made[0]["section"] == ["Leave policy", "Carry-over"]
    assert made[1]["section"] == ["Leave policy", "Approval"]
    assert [row["page"] for row in made] == [1, 2]
    small = chunks(*DOCUMENT, size=12, overlap=0, unit="words")
    table = "Kind\tDays\nSick\t10\nAnnual\t22\nStudy\t5"
    assert table in [row["text"] for row in small], "a table that fits stays whole"
    assert small[0]["text"].startswith("Leave policy\n\nCarry-over\n\nFive days carry over."), (
        "headings don't stand alone"
    )
    tiny = chunks(*DOCUMENT, size=4, overlap=0, unit="words")
    rows = set(table.splitlines())
    assert all(any(row in chunk["text"] for chunk in tiny) for row in rows), "no table row is cut"


@given(st.integers(14, 60), st.integers(0, 10))
def test_structural_and_recursive_cut_between_sentences_where_all_sentences_fit(size, overlap):
    text = "\n\n".join(
        "Five days of leave carry over. They lapse in March of next year. HR keeps the books." for _ in range(6)
    )
    inside = {i for a, b in sentences(text) for i in range(a + 1, b)}
    for splitter in ("structural", "recursive"):
        for row in chunks(text, splitter=splitter, size=size, overlap=overlap, unit="words"):
            assert row["start"] not in inside
            assert row["end"] not in inside


def test_markdown_headings_count_where_no_blocks_are_given():
    made = chunks("# Guide\n\nIntro text here.\n\n## Setup\n\nInstall it first.", size=50, overlap=0, unit="words")
    assert [row["section"] for row in made] == [["Guide"], ["Guide", "Setup"]]


@given(documents())
def test_covering_blocks_hold_the_whole_text_in_order(case):
    text, blocks = case
    found = cover(text, [Block(b["kind"], b["level"], b["page"], b["start"], b["end"]) for b in blocks])
    if not text.strip():
        assert found == []
        return
    assert (found[0].start, found[-1].end) == (0, len(text))
    assert all(a.end == b.start for a, b in itertools.pairwise(found))


@st.composite
def maps(draw, ordered=True):
    segments, out, src = [], 0, 0
    for out_gap, src_gap, length, other in draw(
        st.lists(st.tuples(*[st.integers(0, 3)] * 2, st.integers(1, 4), st.integers(0, 3)), max_size=6)
    ):
        out, src = out + out_gap, src + src_gap
        width = length if other == 0 else other
        segments.append(Segment(out, out + length, src, src + width, other == 0))
        out, src = out + length, src + width
    if not ordered:
        spans = draw(st.permutations([(s.src_start, s.src_end, s.exact) for s in segments if s.exact]))
        return OffsetMap.keep([(a, b) for a, b, _ in spans])
    return OffsetMap(segments)


@given(st.one_of(maps(), maps(ordered=False)), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8))
def test_many_ranges_at_once_equal_one_by_one(offsets, spans):
    import numpy as np

    given_spans = [(start, start + length) for start, length in spans if length]
    result = forward_ranges(offsets, np.array(given_spans, dtype=np.int64).reshape(-1, 2))
    expected = [offsets.forward_range(a, b) or (-1, -1) for a, b in given_spans]
    assert [tuple(row) for row in result.tolist()] == expected


def test_blocks_follow_the_text_through_cleaning_and_masking():
    parsed = "Menu\n\nContact\n\nWrite to ana@x.es now."
    clean = OffsetMap.keep([(6, len(parsed))])
    masked_text = "Contact\n\nWrite to <EMAIL_ADDRESS> now."
    masked = OffsetMap([Segment(0, 18, 0, 18), Segment(18, 33, 18, 26, False), Segment(33, 38, 26, 31)])
    blocks = [
        {"kind": "paragraph", "level": None, "page": 1, "start": 0, "end": 4},
        {"kind": "heading", "level": 1, "page": 1, "start": 6, "end": 13},
        {"kind": "paragraph", "level": None, "page": 2, "start": 15, "end": 37},
    ]
    row = {
        "text": masked_text,
        "masked": masked.rows(),
        "clean": clean.rows(),
        "blocks": blocks,
        "language": "en",
        "given": None,
    }
    made = one(row, CONFIG())["chunk_pieces"]
    assert [r["text"] for r in made] == [masked_text]
    assert made[0]["section"] == ["Contact"]


# Frames, imports and own splitters ------------------------------------------------------------------------------------

BLOCKS = {
    "doc_id": pl.String,
    "block": pl.Int64,
    "kind": pl.String,
    "level": pl.Int64,
    "page": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
}
OUTPUT = {"chunk_id": pl.String, "doc_id": pl.String, "text": pl.String, "start": pl.Int64, "end": pl.Int64}


def frames(texts, removed=(), output=None):
    base = pl.DataFrame(
        {"doc_id": list(texts), "text": list(texts.values()), "offsets": [identity(t) for t in texts.values()]}
    )
    given_frames = {
        "cleaned": base,
        "masked": base.filter(~pl.col("doc_id").is_in(list(removed))),
        "blocks": pl.DataFrame(schema=BLOCKS),
        "languages": pl.DataFrame(
            {"doc_id": list(texts), "language": ["en" if i % 2 == 0 else "und" for i in range(len(texts))]}
        ),
    }
    return (
        given_frames
        if output is None
        else {**given_frames, "output:chunks": pl.DataFrame(output, schema=OUTPUT, orient="row")}
    )


def test_ids_language_and_order_and_equal_runs():
    texts = {"b": "One two three. " * 30, "a": "Uno dos tres.", "empty": " "}
    made = run(frames(texts), CONFIG(size=20, overlap=4, unit="words"), Runtime.plain())["chunks"]
    assert made["chunk_id"].to_list() == sorted(made["chunk_id"].to_list())
    assert made.filter(doc_id="a")["chunk_id"].to_list() == ["a::0000"]
    assert made.filter(doc_id="b")["language"].unique().to_list() == ["en"]
    assert made.filter(doc_id="a")["language"].to_list() == [None]
    assert "empty" not in made["doc_id"].to_list()
    again = run(frames(texts), CONFIG(size=20, overlap=4, unit="words"), Runtime.plain())["chunks"]
    assert made.equals(again)


def test_imported_chunks_are_placed_in_order_or_say_that_they_are_not():
    texts = {"a": "Pay 8 EUR.\nPay 8 EUR.\nThe fee rose to 9 EUR in 2026.", "gone": "old"}
    output = [
        ("x1", "a", "Pay 8 EUR.", None, None),
        ("x2", "a", "Pay 8 EUR.", None, None),
        ("x3", "a", "The fee  rose\nto 9 EUR in 2026.", None, None),
        ("x4", "a", "Nothing of this kind occurs anywhere", None, None),
        ("x5", "gone", "old", None, None),
        ("x6", "a", "given", 0, 3),
    ]
    made = run(frames(texts, removed=["gone"], output=output), CONFIG(**{"import": True}), Runtime.plain())["chunks"]
    placed = {row["chunk_id"]: (row["start"], row["end"], row["status"]) for row in made.iter_rows(named=True)}
    assert placed == {
        "x1": (0, 10, "ok"), "x2": (11, 21, "ok"), "x3": (22, 52, "ok"),
        "x4": (None, None, "unplaced"), "x5": (None, None, "unplaced"), "x6": (0, 3, "ok"),
    }  # fmt: skip
    rows = measure({**frames(texts, removed=["gone"]), "chunks": made}, Gold(), CONFIG(), Settings())
    fidelity = dict(rows.filter(metric="attribution_fidelity").select("item_id", "value").iter_rows())
    assert fidelity == {"x1": 1.0, "x2": 1.0, "x3": 0.0, "x4": 0.0, "x5": 0.0, "x6": 0.0}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([("x", "a", "t", None, None), ("x", "a", "t", None, None)], "more than once"),
        ([("x", "nope", "t", None, None)], "not in this version"),
        ([("x", "a", "t", 0, 99)], "code points"),
        ([("x", "a", "t", 0, None)], "code points"),
        (None, r"outputs/chunks\.jsonl is absent"),
    ],
)
def test_imports_that_cannot_be_right_are_refused(output, message):
    with pytest.raises(ValueError, match=message):
        run(frames({"a": "text"}, output=output), CONFIG(**{"import": True}), Runtime.plain())


class Halves:
    def split(self, text, blocks, language):
        return [(0, len(text) // 2), (len(text) // 2, len(text))]


class Sentences:
    def split(self, text, blocks, language):
        return [text[a:b] for a, b in sentences(text, language)]


def test_a_users_own_splitter_gives_ranges_or_texts():
    text = "First one here. Second one there."
    assert [r["text"] for r in chunks(text, splitter=f"{__name__}:Halves")] == [text[:16], text[16:]]
    made = chunks(text, splitter=f"{__name__}:Sentences")
    assert [(r["start"], r["end"]) for r in made] == [(0, 15), (16, 33)]


def test_a_config_that_cannot_work_is_refused():
    for bad, message in (
        ({"splitter": "magic"}, "unknown splitter"),
        ({"size": 10, "overlap": 10}, "smaller than size"),
    ):
        with pytest.raises(ValidationError, match=message):
            CONFIG(**bad)


# Quality --------------------------------------------------------------------------------------------------------------


def quality(texts, **config):
    made = run(frames(texts), CONFIG(**config), Runtime.plain())
    return made["chunks"], measure({**frames(texts), **made}, Gold(), CONFIG(**config), Settings())


def mean(rows, metric, **where):
    return rows.filter(pl.col("metric") == metric, **where)["value"].mean()


def test_own_chunks_re_read_exactly_and_overlap_has_its_cost():
    texts = {"a": "Five days of leave carry over. They lapse in March of next year. " * 20}
    _, rows = quality(texts, size=30, overlap=0, unit="words")
    assert mean(rows, "attribution_fidelity") == 1.0
    assert mean(rows, "chunk_coverage") == 1.0
    assert mean(rows, "duplication_cost") == 0.0
    assert mean(rows, "boundary_integrity", params='{"kind": "sentence"}') == 1.0
    assert mean(rows, "oversize_share") == 0.0
    _, rows = quality(texts, splitter="fixed", size=10, overlap=5, unit="words")
    assert mean(rows, "duplication_cost") > 0.8
    assert mean(rows, "boundary_integrity", params='{"kind": "sentence"}') < 0.6


UNITS = {
    "query_id": "q",
    "doc_id": "a",
    "kind": "quote",
    "n_chars": 10,
    "eligible": True,
    "present": True,
    "anchored": True,
}


def evidence(units, pieces):
    """Frames from {evidence_id: {column: value}} and (evidence_id, carrier, chunk_id, chars, tokens, whole)."""
    empty = {"critical": [], "critical_from": [], "critical_to": []}
    unit_rows = [{**UNITS, **empty, "evidence_id": name, **changes} for name, changes in units.items()]
    lists = {"critical": pl.List(pl.String), "critical_from": pl.List(pl.Int64), "critical_to": pl.List(pl.Int64)}
    columns = ("query_id", "evidence_id", "carrier", "chunk_id", "doc_id", "chars", "positions", "tokens", "whole")
    piece_rows = [
        ("q", e, carrier, chunk, "a", chars, chars, tokens, whole) for e, carrier, chunk, chars, tokens, whole in pieces
    ]
    schema = dict(
        zip(
            columns,
            (pl.String, pl.String, pl.Int64, pl.String, pl.String, *[pl.List(pl.Int64)] * 3, pl.Boolean),
            strict=True,
        )
    )
    return {
        "evidence_units": pl.DataFrame(unit_rows, schema_overrides=lists),
        "evidence_pieces": pl.DataFrame(piece_rows, schema=schema, orient="row"),
    }


def test_split_rate_counts_quotes_held_by_several_chunks_only():
    token = {"critical": ["8 EUR"], "critical_from": [3], "critical_to": [7]}
    first, second = list(range(5)), list(range(5, 10))
    tables = evidence(
        {"whole": {}, "split": {}, "gone": {}, "cut": token, "kept": token, "blind": {"eligible": False}, "two": {}},
        [
            ("whole", 0, "c1", [*first, *second], [], True),
            ("split", 0, "c1", first, [], False),
            ("split", 0, "c2", second, [], False),
            ("gone", 0, "c1", first, [], False),
            ("cut", 0, "c1", first, [], False),
            ("cut", 0, "c2", second, [], False),
            ("kept", 0, "c1", first, [], False),
            ("kept", 0, "c2", list(range(3, 10)), [0], False),
            ("two", 0, "c1", first, [], False),
            ("two", 1, "c2", second, [], False),
        ],
    )
    texts = {"a": "some text"}
    made = run(frames(texts), CONFIG(), Runtime.plain())
    rows = measure({**frames(texts), **made, **tables}, Gold(), CONFIG(), Settings()).filter(
        metric="evidence_split_rate"
    )
    found = {row["item_id"].split(" | ")[1]: (row["value"], row["status"]) for row in rows.iter_rows(named=True)}
    assert found == {
        "whole": (0.0, "scored"),
        "split": (1.0, "scored"),
        "kept": (1.0, "scored"),
        "cut": (None, "not_held"),
        "gone": (None, "not_held"),
        "two": (None, "not_held"),
    }


def test_without_evidence_the_split_rate_is_missing():
    _, rows = quality({"a": "text"})
    row = rows.filter(metric="evidence_split_rate").row(0, named=True)
    assert (row["value"], row["status"]) == (None, "no_gold")


def test_real_documents_are_cut_well_and_another_size_cuts_elsewhere(shared):
    text = (shared("data", "chunking_evaluation") / "corpora" / "state_of_the_union.md").read_text("utf-8")[:30_000]
    large, rows = quality({"a": text})
    assert mean(rows, "chunk_coverage") == 1.0
    assert mean(rows, "boundary_integrity", params='{"kind": "sentence"}') > 0.99
    small, _ = quality({"a": text}, size=64, overlap=8)
    assert len(small) > len(large)
    assert small["tokens"].max() <= 64
    assert splitters.whole(Source(text, get_tokenizer("chars")), 1, 0, []) == [(0, len(text))]
