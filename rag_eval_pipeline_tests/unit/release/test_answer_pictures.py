"""Pictures of answers show the numbers they are given, and nothing where there is nothing."""

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from rag_eval_pipeline.measures.calibration import reliability_curve
from rag_eval_pipeline.release.pictures.answers import LEFT, MEANING, SIDE, TOP, refusals_picture, reliability_picture

SVG = "{http://www.w3.org/2000/svg}"


def tree(svg):
    """The drawing; inside a page it has no name space of its own."""
    named = svg if "xmlns=" in svg else svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return etree.fromstring(named)


pairs = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30)


@given(pairs)
def test_a_dot_stands_at_confidence_and_share_of_its_bin_and_all_answers_are_counted(given_pairs):
    bins = reliability_curve(*zip(*given_pairs, strict=True))
    drawn = tree(reliability_picture(bins, "it is right", alone=True))
    dots = drawn.findall(f".//{SVG}circle")
    there = [each for each in bins if each.n]
    assert [int(dot.get("data-n")) for dot in dots] == [each.n for each in there]
    assert sum(int(bar.get("data-n")) for bar in drawn.findall(f".//{SVG}rect") if bar.get("data-n")) == len(
        given_pairs
    )
    for dot, each in zip(dots, there, strict=True):
        assert abs(float(dot.get("cx")) - (LEFT + each.confidence * SIDE)) < 1e-3
        assert abs(float(dot.get("cy")) - (TOP + (1 - each.accuracy.mean) * SIDE)) < 1e-3
        assert f"of {each.n}" in dot.findtext(f"{SVG}title")
    assert f"{len(given_pairs)} answers" in drawn.findtext(f"{SVG}desc")


counts = st.dictionaries(st.sampled_from(sorted(MEANING)), st.integers(1, 50), min_size=1)


@given(counts, st.integers(0, 9))
def test_a_field_is_as_large_as_it_is_often_and_says_its_count(quadrants, unknown):
    drawn = tree(refusals_picture(quadrants, unknown))
    squares = [rect for rect in drawn.findall(f".//{SVG}rect") if rect.get("data-n")]
    assert sorted(int(square.get("data-n")) for square in squares) == sorted(quadrants.values())
    areas = {round(float(s.get("width")) ** 2 / int(s.get("data-n")), 1) for s in squares}
    assert max(areas) - min(areas) <= 1.0
    about = drawn.findtext(f"{SVG}desc")
    for which, count in quadrants.items():
        assert f"{MEANING[which]}: {count}" in about
    assert (f"{unknown} more" in about) == bool(unknown)


def test_nothing_is_drawn_of_nothing():
    assert refusals_picture({}) == ""
    assert reliability_picture([], "it is right") == ""
