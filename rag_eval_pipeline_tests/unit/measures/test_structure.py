"""Order, headings, title and lists against scipy, rapidfuzz, an enumeration of subsequences, and cases made by hand."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import LCSseq, Levenshtein
from scipy.stats import kendalltau

from rag_eval_pipeline.measures import (
    Block,
    heading_scores,
    list_integrity,
    match_blocks,
    reading_order,
    title_exact,
    title_similarity,
)
from rag_eval_pipeline.text.normalise import normalise
from rag_eval_pipeline_tests.sizes import measured

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
KINDS = ("heading", "title", "paragraph", "list_item", "boilerplate", "table")
BLOCKS = st.lists(
    st.builds(
        Block,
        st.sampled_from(KINDS),
        st.sampled_from(["", " ", *WORDS, "alpha beta", "alphabet", "e\u0301ta", "éta"]) | st.text(max_size=6),
        st.none() | st.integers(0, 3),
    ),
    max_size=8,
)


def paragraphs(*texts):
    return [Block("paragraph", text) for text in texts]


def headings(*named):
    return [Block("heading", text, level) for text, level in named]


def items(*texts):
    return [Block("list_item", text, 1) for text in texts]


# Matching


@measured
@given(reference=BLOCKS, read=BLOCKS)
def test_blocks_are_matched_one_to_one_and_equal_texts_never_left_over(reference, read):
    matched = match_blocks(reference, read)
    taken = [number for number in matched if number is not None]
    assert len(matched) == len(reference)
    assert len(taken) == len(set(taken))
    texts, found = ([normalise(b.text) for b in blocks] for blocks in (reference, read))
    for text, number in zip(texts, matched, strict=True):
        assert number is None or Levenshtein.normalized_similarity(text, found[number]) >= 0.5
    left = {texts[i] for i, number in enumerate(matched) if number is None} - {""}
    assert not left & {text for j, text in enumerate(found) if j not in taken}


def test_a_block_that_repeats_is_matched_where_its_neighbours_are():
    assert match_blocks(paragraphs("one", "Total", "two"), paragraphs("Total", "one", "Total", "two")) == [1, 2, 3]
    assert match_blocks(paragraphs("Total", "one"), paragraphs("one", "Total")).count(None) == 0


def test_a_misread_block_has_its_counterpart_and_a_strange_one_has_none():
    reference, read = paragraphs("Asking for leave", "Buying and selling"), paragraphs("8uying and se11ing", "zzzz")
    assert match_blocks(reference, read) == [None, 0]


# Order


@measured
@given(order=st.permutations(range(10)), lost=st.sets(st.integers(0, 9)), more=st.integers(0, 3))
def test_the_order_of_blocks_equals_kendalls_tau_b_by_scipy(order, lost, more):
    reference = paragraphs(*WORDS)
    kept = [number for number in order if number not in lost]
    read = paragraphs(*(f"{'x' * 30} {n}" for n in range(more)), *(WORDS[number] for number in kept))
    found = reading_order(reference, read)
    assert found.matched == len(kept)
    if len(kept) < 2:
        assert (found.tau.value, found.tau.status) == (None, "too_few_matched")
    else:
        assert found.tau.value == pytest.approx(kendalltau(range(len(kept)), kept).statistic, abs=1e-12)
    sequence = [*(-1 - n for n in range(more)), *kept]
    assert found.edit_distance.value == Levenshtein.distance(list(range(10)), sequence) / max(10, len(sequence))


@measured
@given(reference=BLOCKS, read=BLOCKS)
def test_order_is_within_its_bounds_and_perfect_for_the_same_blocks(reference, read):
    found, same = reading_order(reference, read), reading_order(reference, reference)
    assert found.tau.value is None or -1 <= found.tau.value <= 1
    assert found.edit_distance.value is None or 0 <= found.edit_distance.value <= 1
    assert same.tau.value in {None, 1.0}
    assert same.edit_distance.value in {None, 0.0}


def test_order_without_blocks_says_why():
    assert reading_order([], paragraphs("a")).edit_distance.status == "no_blocks"
    assert reading_order(paragraphs("a", "b"), []).edit_distance.value == 1.0
    assert reading_order(paragraphs("a", "b"), []).tau.status == "too_few_matched"
    assert reading_order(paragraphs(" ", ""), paragraphs("a")).edit_distance.value is None


def test_columns_read_across_are_out_of_order_with_every_block_matched():
    left, right = ("first left", "second left", "third left"), ("alpha right", "bravo right", "gamma right")
    across = [text for pair in zip(left, right, strict=True) for text in pair]
    found = reading_order(paragraphs(*left, *right), paragraphs(*across))
    assert (found.matched, found.tau.value) == (6, pytest.approx(1 - 2 * 3 / 15))
    assert found.edit_distance.value > 0


def test_page_furniture_without_a_counterpart_is_no_fault_but_a_strange_paragraph_is():
    reference = paragraphs("alpha one", "beta two")
    furniture = [reference[0], Block("boilerplate", "Page 3 of 9"), reference[1]]
    strange = [reference[0], Block("paragraph", "Page 3 of 9"), reference[1]]
    assert reading_order(reference, furniture).edit_distance.value == 0.0
    assert reading_order(reference, strange).edit_distance.value == pytest.approx(1 / 3)


# Headings and title


def every_common(wanted, found):
    """(length, right levels, known levels) of every common subsequence, by trying all."""
    for size in range(min(len(wanted), len(found)) + 1):
        for left in combinations(wanted, size):
            for right in combinations(found, size):
                if all(a[0] == b[0] for a, b in zip(left, right, strict=True)):
                    known = sum(bool(level) for _, level in left)
                    yield size, sum(bool(a) and a == b for (_, a), (_, b) in zip(left, right, strict=True)), known


HEADINGS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(1, 2)), max_size=5)


@measured
@given(wanted=HEADINGS, found=HEADINGS)
def test_headings_equal_an_enumeration_of_all_common_subsequences(wanted, found):
    scores = heading_scores(headings(*wanted), headings(*found))
    matched, right, known = max(every_common(wanted, found))
    assert matched == LCSseq.similarity([t for t, _ in wanted], [t for t, _ in found])
    if not wanted:
        assert {scores.f1.status, scores.recall.status, scores.level_accuracy.status} == {"no_heading"}
        return
    assert scores.recall.value == matched / len(wanted)
    assert scores.f1.value == 2 * matched / (len(wanted) + len(found))
    assert scores.precision.value == (matched / len(found) if found else None)
    assert scores.level_accuracy.value == (right / known if known else None)


def test_headings_out_of_order_are_not_all_matched():
    scores = heading_scores(headings(("a", 1), ("b", 2), ("c", 2)), headings(("a", 1), ("c", 3), ("b", 2)))
    assert scores.f1.value == pytest.approx(4 / 6)
    assert scores.level_accuracy.value == 1.0
    assert heading_scores(headings(("a", 1)), []).f1.value == 0.0
    assert heading_scores(headings(("a", 1)), []).level_accuracy.status == "none_matched"


def test_a_paragraph_is_no_heading_and_a_title_is_one_of_level_one():
    assert heading_scores(headings(("a", 1)), paragraphs("a")).f1.value == 0.0
    assert heading_scores([Block("title", "a")], headings((" a\n", 1))).level_accuracy.value == 1.0


TITLES = st.text(st.sampled_from("ab é 文"), max_size=8)


@measured
@given(wanted=TITLES, found=TITLES)
def test_title_similarity_is_one_minus_edits_over_the_longer_title(wanted, found):
    reference, read = headings((wanted, 1)), headings((found, 1))
    similar, exact = title_similarity(reference, read), title_exact(reference, read)
    a, b = normalise(wanted), normalise(found)
    if not a:
        assert (similar.value, exact.value, similar.status) == (None, None, "no_title")
    elif not b:
        assert (similar.value, exact.value, exact.status) == (0.0, 0.0, "missing_title")
    else:
        assert similar.value == pytest.approx(1 - Levenshtein.distance(a, b) / max(len(a), len(b)), abs=1e-12)
        assert exact.value == float(a == b)


def test_which_block_is_the_title():
    reference = headings(("Site", 2), ("Leave", 1), ("More", 1))
    assert title_exact(reference, headings(("Leave", 1))).value == 1.0
    assert title_exact(reference, headings(("Leave", 2), ("More", 3))).value == 1.0  # no level 1: the first one
    assert title_exact(reference, headings(("Site", 2), ("Leave", 1))).value == 1.0
    assert title_exact([*headings(("Site", 1)), Block("title", "Leave")], headings(("Leave", 1))).value == 1.0
    assert title_exact(headings(("Site", 2)), headings(("Site", 2))).status == "no_title"


# Lists


def test_a_list_is_whole_where_all_its_items_stand_in_order_in_one_list():
    reference = [*items("first item", "second thing", "third matter"), *paragraphs("between"), *items("only one")]

    def share(*read):
        return list_integrity(reference, [block for part in read for block in part]).value

    assert share(items("first item", "second thing", "third matter"), paragraphs("x"), items("only one")) == 1.0
    assert share(items("first item", "an addition", "second thing", "third matter", "only one")) == 1.0
    assert share(items("first item"), paragraphs("in the middle of it"), items("second thing", "third matter")) == 0.0
    assert share(items("second thing", "first item", "third matter", "only one")) == 0.5
    assert share(items("first item", "third matter", "only one")) == 0.5
    assert share(paragraphs("first item", "second thing", "third matter", "only one")) == 0.0
    assert share(items("f1rst item", "second th1ng", "third matter")) == 0.5
    assert share() == 0.0


def test_page_furniture_does_not_end_a_list_and_no_list_is_no_value():
    broken = [*items("first item"), Block("boilerplate", "page 2"), *items("second thing")]
    assert list_integrity(items("first item", "second thing"), broken).value == 1.0
    assert (list_integrity(paragraphs("a"), items("a")).value, list_integrity([], []).status) == (None, "no_list")


@measured
@given(reference=BLOCKS, read=BLOCKS)
def test_every_figure_of_structure_lies_between_zero_and_one(reference, read):
    scores = heading_scores(reference, read)
    figures = [*vars(scores).values(), list_integrity(reference, read)]
    figures += [title_exact(reference, read), title_similarity(reference, read)]
    for found in figures:
        assert found.value is None or 0 <= found.value <= 1
        assert (found.value is None) == (found.status not in {"scored", "missing_title"})
    for found in (list_integrity(reference, reference), title_exact(reference, reference)):
        assert found.value in {None, 1.0}
