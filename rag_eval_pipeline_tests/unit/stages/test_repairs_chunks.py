import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.stages.chunking import transform
from rag_eval_pipeline.stages.chunking.repair import repair
from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.stages.chunking.transform import ChunkingConfig
from rag_eval_pipeline.stages.parsing.tables import Blocks
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.text.tokens import get_tokenizer
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform
from rag_eval_pipeline_tests.sizes import examples
from rag_eval_pipeline_tests.unit.stages.truths import anchor, empty, truth, unit

WORDS = ["ice", "moon", "a", "rover", "18", "dust", "orbit.", "crater;", "Mars"]


def inputs(texts, given=None):
    rows = [
        {"doc_id": doc, "text": text, "offsets": OffsetMap.keep([(0, len(text))]).rows()} for doc, text in texts.items()
    ]
    frame = pl.DataFrame(
        rows, schema_overrides={"offsets": pl.List(pl.Struct(dict.fromkeys(("out_start", "out_end", "src_start", "src_end"), pl.Int64) | {"exact": pl.Boolean}))}
    )  # fmt: skip
    frames = {
        "masked": frame,
        "cleaned": frame,
        "blocks": empty(Blocks),
        "languages": pl.DataFrame({"doc_id": list(texts), "language": ["en"] * len(texts)}),
    }
    if given is not None:
        columns = {"chunk_id": pl.String, "doc_id": pl.String, "text": pl.String, "start": pl.Int64, "end": pl.Int64}
        frames["output:chunks"] = pl.DataFrame(given, schema=columns, orient="row")
    return frames


def cut(frames, **config):
    config = ChunkingConfig(**{"splitter": "fixed", "unit": "words", "size": 5, "overlap": 0, **config})
    return transform.run(frames, config, Runtime.plain()), config


def of_text(text, *ranges, doc="d", **settings):
    """One unit a range, each of a query of its own."""
    anchors = [anchor(f"q{i}", "e", text, *place, doc=doc) for i, place in enumerate(ranges)]
    units = [unit(f"q{i}", "e", doc=doc, n_chars=len(row["positions"])) for i, row in enumerate(anchors)]
    return truth(units, anchors, **settings)


def texts_of(made):
    return made["chunks"].sort("ordinal")["text"].to_list()


NUMBERS = " ".join(str(number) for number in range(10, 30))


def at(*words):
    """Range of these neighbouring numbers in NUMBERS."""
    return 3 * (words[0] - 10), 3 * (words[-1] - 10) + 2


# Worked cuts -----------------------------------------------------------------------------------------------------------


def test_the_cut_goes_to_the_nearer_edge_that_keeps_the_growing_chunk_within_the_size():
    frames = inputs({"d": NUMBERS[:29]})  # 10 … 19: two chunks of five words
    before, config = cut(frames, size=6, splitter="recursive")
    assert texts_of(before) == ["10 11 12 13 14 15", "16 17 18 19"]
    near_start = repair(frames, before, of_text(NUMBERS, at(15, 17)), config)
    assert texts_of(near_start) == ["10 11 12 13 14", "15 16 17 18 19"]
    wider = config.model_copy(update={"size": 7})
    near_end = repair(frames, before, of_text(NUMBERS, at(13, 16)), wider)
    assert texts_of(near_end) == ["10 11 12 13 14 15 16", "17 18 19"]
    # The later edge is nearer still, but then the first chunk has seven words.
    far_start = repair(frames, before, of_text(NUMBERS, at(14, 16)), config)
    assert texts_of(far_start) == ["10 11 12 13", "14 15 16 17 18 19"]


def test_a_block_that_neither_neighbour_can_take_becomes_a_chunk_of_its_own():
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames)
    made = repair(frames, before, of_text(NUMBERS, at(13, 16)), config)
    assert texts_of(made) == ["10 11 12", "13 14 15 16", "17 18 19", "20 21 22 23 24", "25 26 27 28 29"]
    assert made["chunks"].sort("ordinal").select("chunk_id", "ordinal", "tokens").rows() == [
        ("d::0000", 0, 3),
        ("d::0000+", 1, 4),
        ("d::0001", 2, 3),
        ("d::0002", 3, 5),
        ("d::0003", 4, 5),
    ]


def test_overlapping_units_are_one_block_and_touching_ones_two():
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames, size=6)
    assert texts_of(before)[:2] == ["10 11 12 13 14 15", "16 17 18 19 20 21"]
    one = repair(frames, before, of_text(NUMBERS, at(14, 16), at(16, 18)), config)
    assert texts_of(one)[:3] == ["10 11 12 13", "14 15 16 17 18", "19 20 21"]
    two = repair(frames, before, of_text(NUMBERS, at(14, 16), at(17, 18)), config)
    assert texts_of(two)[:3] == ["10 11 12 13", "14 15 16", "17 18 19 20 21"]


def test_a_block_longer_than_the_size_stays_as_it_is():
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames)
    for ranges in ([at(13, 18)], [at(13, 15), at(15, 18)]):
        assert repair(frames, before, of_text(NUMBERS, *ranges), config)["chunks"] is before["chunks"]


def test_a_unit_that_is_too_long_by_itself_does_not_keep_others_cut():
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames)
    made = repair(frames, before, of_text(NUMBERS, at(11, 28), at(14, 15)), config)
    assert any("14 15" in text for text in texts_of(made))


def test_where_chunks_overlap_one_of_them_grows_and_the_other_stays():
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames, size=5, overlap=2)
    assert texts_of(before)[:3] == ["10 11 12 13 14", "13 14 15 16 17", "16 17 18 19 20"]
    config = config.model_copy(update={"size": 6})
    later = repair(frames, before, of_text(NUMBERS, at(11, 15)), config)
    assert texts_of(later)[:3] == ["10 11 12 13 14 15", "13 14 15 16 17", "16 17 18 19 20"]
    earlier = repair(frames, before, of_text(NUMBERS, at(12, 16)), config)
    assert texts_of(earlier)[:3] == ["10 11 12 13 14", "12 13 14 15 16 17", "16 17 18 19 20"]


def test_a_unit_that_some_chunk_holds_alone_needs_nothing():
    text = "10 11 12 13 14 15 11 12"
    frames = inputs({"d": text})
    before, config = cut(frames, size=2)
    anchors = [anchor("q", "e", text, 3, 8, carrier=0), anchor("q", "e", text, 18, 23, carrier=1)]
    assert texts_of(before)[:2] == ["10 11", "12 13"]
    gold = truth([unit("q", "e", n_chars=4)], anchors)
    assert repair(frames, before, gold, config)["chunks"] is before["chunks"]
    cut_twice = truth([unit("q", "e", n_chars=4)], anchors[:1])
    assert "11 12" in texts_of(repair(frames, before, cut_twice, config))


@pytest.mark.parametrize(
    "change",
    [{"eligible": False}, {"held": False}, {"kept": False}, {"kind": "document"}],
    ids=lambda change: next(iter(change)),
)
def test_gold_that_says_nothing_about_a_cut_changes_nothing(change):
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames)
    of_unit = {name: value for name, value in change.items() if name in {"eligible", "kind"}}
    of_anchor = {name: value for name, value in change.items() if name not in of_unit}
    gold = truth([unit("q", "e", n_chars=6, **of_unit)], [anchor("q", "e", NUMBERS, *at(14, 16), **of_anchor)])
    assert repair(frames, before, gold, config)["chunks"] is before["chunks"]


def test_a_critical_token_that_was_cut_off_is_reason_enough():
    frames = inputs({"d": NUMBERS})
    before, config = cut(frames)
    anchors = [anchor("q", "e", NUMBERS, *at(11, 15))]  # 8 of 10 characters stand in the first chunk
    quiet, loud = (
        truth([unit("q", "e", n_chars=10, tokens=t)], anchors, ledger={"hold": 0.8}) for t in ((), ((8, 10),))
    )
    assert repair(frames, before, quiet, config)["chunks"] is before["chunks"]
    assert "11 12 13 14 15" in texts_of(repair(frames, before, loud, config))


def test_pages_and_sections_follow_a_moved_cut():
    text = "# One\n\n10 11 12 13 14\n\n# Two\n\n15 16 17 18 19"
    frames = inputs({"d": text})
    before, config = cut(frames, splitter="structural", size=6)
    assert before["chunks"].sort("ordinal")["section"].to_list() == [["One"], ["Two"]]
    start, end = text.index("13"), text.index("15") + 2
    made = repair(frames, before, of_text(text, (start, end)), config)["chunks"].sort("ordinal")
    held = made.filter(pl.col("text").str.contains("13 14") & pl.col("text").str.contains("15")).row(0, named=True)
    assert text[held["start"] : held["end"]] == held["text"]
    assert held["section"][0] == "One"
    assert held["language"] == "en"


# Chunks from outside ---------------------------------------------------------------------------------------------------


def test_imported_chunks_are_mended_by_their_places_and_none_goes():
    given = [("x", "d", NUMBERS[:14], 0, 14), ("y", "d", NUMBERS[15:17], 15, 17), ("z", "d", NUMBERS[18:29], 18, 29),
             ("far", "d", "not in the text at all, whatever one does", None, None)]  # fmt: skip
    frames = inputs({"d": NUMBERS[:29]}, given)
    before, config = cut(frames, **{"import": True})
    assert before["chunks"].filter(pl.col("status") == "unplaced")["chunk_id"].to_list() == ["far"]
    made = repair(frames, before, of_text(NUMBERS, at(14, 16)), config)["chunks"]
    texts = dict(made.select("chunk_id", "text").iter_rows())
    assert texts.keys() >= {"x", "y", "z", "far"}
    assert any("14 15 16" in text for text in texts.values())
    assert texts["far"] == given[3][2]
    assert repair(frames, {"chunks": made}, of_text(NUMBERS, at(14, 16)), config)["chunks"] is made


def test_chunks_without_a_place_stay_as_they_are():
    given = [("x", "d", "something else entirely, at great length", None, None)]
    frames = inputs({"d": NUMBERS}, given)
    before, config = cut(frames, **{"import": True})
    assert repair(frames, before, of_text(NUMBERS, at(14, 16)), config)["chunks"] is before["chunks"]


def test_lists_from_outside_still_find_every_chunk_that_they_name():
    text = "10 11 12 13"
    frames = inputs({"d": text})
    before, config = cut(frames, size=1)
    config = config.model_copy(update={"size": 3})
    gold = of_text(text, (0, 8))
    assert repair(frames, before, gold, config)["chunks"].height < 4
    lanes = {"retrieval": {"theirs": {"kind": "import", "run": "r"}}}
    kept = repair(frames, before, of_text(text, (0, 8), pipeline=lanes), config)["chunks"]
    assert set(kept["chunk_id"]) >= set(before["chunks"]["chunk_id"])
    assert "10 11 12" in kept["text"].to_list()


# Any text, any cut, any gold -------------------------------------------------------------------------------------------


@st.composite
def worlds(draw):
    texts = {}
    for number in range(draw(st.integers(1, 2))):
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40))
        gaps = draw(st.lists(st.sampled_from([" ", " ", "\n", "\n\n"]), min_size=len(words), max_size=len(words)))
        texts[f"d{number}"] = "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    size = draw(st.integers(1, 9))
    config = {
        "splitter": draw(st.sampled_from(["fixed", "recursive", "structural", "none"])),
        "unit": draw(st.sampled_from(["words", "chars"])),
        "size": size,
        "overlap": draw(st.integers(0, size - 1)),
    }
    if config["unit"] == "chars":
        config |= {"size": size * 5, "overlap": config["overlap"] * 3}
    units, anchors = [], []
    for number in range(draw(st.integers(0, 6))):
        row = {}
        for carrier in range(draw(st.sampled_from([1, 1, 2]))):
            doc = draw(st.sampled_from(sorted(texts)))
            visible = [place for place, character in enumerate(texts[doc]) if not character.isspace()]
            low = draw(st.integers(0, len(visible) - 1))
            high = min(len(visible), low + draw(st.integers(1, 30)))
            row = anchor(f"q{number}", "e", texts[doc], visible[low], visible[high - 1] + 1, doc=doc, carrier=carrier)
            anchors.append(row)
        size_of = max(len(row["positions"]) for row in anchors if row["query_id"] == f"q{number}")
        units.append(unit(f"q{number}", "e", n_chars=size_of))
        for row in anchors:
            if row["query_id"] == f"q{number}" and len(row["positions"]) < size_of:
                row["held"] = False
    return texts, config, units, anchors


def literal_blocks(source_count, units, size):
    """Overlapping ranges as one; those that fit. Each with the units in it."""
    ranges = sorted((low, high, name) for low, high, name in units if source_count(low, high) <= size)
    groups = []
    for low, high, name in ranges:
        if groups and low < groups[-1][1]:
            groups[-1][1] = max(groups[-1][1], high)
            groups[-1][2].add(name)
        else:
            groups.append([low, high, {name}])
    return [group for group in groups if source_count(group[0], group[1]) <= size]


def holds(chunk, row):
    return chunk["doc_id"] == row["doc_id"] and all(chunk["start"] <= p < chunk["end"] for p in row["positions"])


@examples(25, 3_000)
@given(worlds())
def test_what_fits_is_whole_no_text_is_lost_and_no_chunk_grows_beyond_the_size(world):
    texts, config, units, anchors = world
    frames = inputs(texts)
    before, config = cut(frames, **config)
    gold = truth(units, anchors, ledger={"hold": 1.0})
    made = repair(frames, before, gold, config)
    chunks, old = made["chunks"].to_dicts(), {row["chunk_id"]: row for row in before["chunks"].to_dicts()}

    assert made["chunks"].equals(conform(Chunks, made["chunks"]))
    assert repair(frames, made, gold, config)["chunks"] is made["chunks"]
    tokenizer = get_tokenizer(config.unit)
    starts = {doc: [start for start, _ in tokenizer.spans(text)] for doc, text in texts.items()}

    def count(doc, low, high):
        return sum(low <= start < high for start in starts[doc])

    for row in chunks:
        assert row["text"] == texts[row["doc_id"]][row["start"] : row["end"]].strip() != ""
        assert row["tokens"] == count(row["doc_id"], row["start"], row["end"])
        assert row["tokens"] <= max(
            config.size, old.get(row["chunk_id"], row)["tokens"] if row["chunk_id"] in old else 0
        )
    for doc in texts:
        mine = sorted((row for row in chunks if row["doc_id"] == doc), key=lambda row: row["ordinal"])
        assert [row["ordinal"] for row in mine] == list(range(len(mine)))
        assert [row["start"] for row in mine] == sorted(row["start"] for row in mine)
        seen = {place for row in mine for place in range(row["start"], row["end"])}
        assert {p for p, character in enumerate(texts[doc]) if not character.isspace()} <= seen

    held = [row for row in anchors if row["held"]]
    alone = {row["query_id"] for row in held if any(holds(chunk, row) for chunk in old.values())}
    for row in held:
        if any(holds(chunk, row) for chunk in old.values()):
            assert any(holds(chunk, row) for chunk in chunks)
    touched = []
    for doc in texts:
        ranges = [(r["positions"][0], r["positions"][-1] + 1, r["query_id"]) for r in held if r["doc_id"] == doc]
        for low, high, names in literal_blocks(lambda a, b, doc=doc: count(doc, a, b), ranges, config.size):
            if names - alone:
                touched.append((doc, low, high))
                assert any(c["doc_id"] == doc and c["start"] <= low and high <= c["end"] for c in chunks)
    if not touched:
        assert made["chunks"] is before["chunks"]
    for row in chunks:
        if row["chunk_id"] in old and not any(
            doc == row["doc_id"] and low < old[row["chunk_id"]]["end"] and old[row["chunk_id"]]["start"] < high
            for doc, low, high in touched
        ):
            assert row | {"ordinal": 0} == old[row["chunk_id"]] | {"ordinal": 0}
