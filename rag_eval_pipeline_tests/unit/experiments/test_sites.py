"""Where quotes stand, by plain search."""

from rag_eval_pipeline.experiments.injector.sites import Page, Unit, critical_spans, nearest_length

QUOTE = "The limit is 40 EUR per day, and not more."
UNIT = Unit("q1", "e1", "d", QUOTE, None)


def test_a_quote_is_found_over_line_breaks():
    page = Page("d", "Intro.\n\nThe limit is\n40 EUR per  day, and not more.\nEnd.", [UNIT])
    place = page.once(UNIT)
    assert page.text[place.start : place.end].split() == QUOTE.split()


def test_a_quote_that_stands_twice_is_no_site():
    assert Page("d", f"{QUOTE}\n{QUOTE}", [UNIT]).once(UNIT) is None


def test_a_short_quote_counts_in_its_own_document_only():
    short = Unit("q1", "e2", "d", "40 EUR", None)
    assert Page("d", "It is 40 EUR.", [short]).evidence == (("q1", "e2"),)
    assert Page("other", "It is 40 EUR.", [short]).evidence == ()
    assert Page("other", QUOTE, [UNIT]).evidence == (("q1", "e1"),)


def test_critical_tokens_are_those_listed_else_numbers():
    page = Page("d", QUOTE, [UNIT])
    assert [QUOTE[a:b] for a, b in critical_spans(page.once(UNIT), QUOTE)] == ["40"]
    listed = Unit("q1", "e1", "d", QUOTE, ("not more",))
    page = Page("d", QUOTE, [listed])
    assert [QUOTE[a:b] for a, b in critical_spans(page.once(listed), QUOTE)] == ["not more"]
    assert page.critical(QUOTE.index("more"), len(QUOTE)) == (("q1", "e1"),)
    assert page.critical(0, 3) == ()


def test_free_means_no_evidence_within_the_margin():
    page = Page("d", f"{QUOTE} Then 7 more.", [UNIT])
    seven = page.text.index("7")
    assert page.free(seven, seven + 1)
    assert not page.free(len(QUOTE), len(QUOTE) + 1)
    assert page.across(10) == (("q1", "e1"),)
    assert page.across(len(QUOTE)) == ()


def test_the_nearest_length_comes_first():
    assert nearest_length([(0, 9), (10, 14), (20, 26)], 5) == [(10, 14), (20, 26), (0, 9)]
