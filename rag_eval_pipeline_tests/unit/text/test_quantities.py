"""Numbers, dates and codes by what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.text.quantities import quantities, read, rivals, states
from rag_eval_pipeline_tests.sizes import measured


def only(text, language=None):
    found = quantities(text, language)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "language", "reading", "unit"),
    [
        ("1,000 USD", "en", "1000", "usd"),
        ("1.000 dólares", "es", "1000", "usd"),
        ("a thousand dollars", "en", "1000", "usd"),
        ("$1.5 million", "en", "1500000", "usd"),
        ("1,5 millones de euros", "es", "1500000", "eur"),
        ("1.234,50 €", None, "1234.5", "eur"),
        ("1,234.50 €", None, "1234.5", "eur"),
        ("1.000.000", "en", "1000000", ""),
        ("5 working days", "en", "5", "working day"),
        ("5 días hábiles", "es", "5", "working day"),
        ("cinco días", "es", "5", "day"),
        ("twenty-one days", "en", "21", "day"),
        ("treinta y dos horas", "es", "32", "hour"),
        ("un día", "es", "1", "day"),
        ("12 per cent", "en", "12", "%"),
        ("12 por ciento", "es", "12", "%"),
        ("−3 °C", "en", "-3", "°c"),
        ("0.125", "en", "0.125", ""),
        ("5 hundred", "en", "500", ""),
        ("3rd", "en", "3", ""),
    ],
)
def test_numbers_are_read_by_language_with_magnitude_and_unit(text, language, reading, unit):
    found = only(text, language)
    assert (found.kind, found.readings, found.unit) == ("number", frozenset({reading}), unit)


def test_an_ambiguous_separator_has_both_readings_without_a_language():
    assert only("1.000").readings == {"1000", "1"}
    assert only("0.125").readings == {"0.125"}
    assert only("3/4/2026").readings == {"2026-3-4", "2026-4-3"}


@pytest.mark.parametrize("text", ["3 March 2026", "March 3, 2026", "el 3 de marzo de 2026", "2026-03-03", "3/3/2026"])
def test_forms_of_a_date_are_one(text):
    assert only(text).readings == {"2026-3-3"}


def test_what_a_date_leaves_out_may_be_said_elsewhere():
    assert states(only("March 2026"), quantities("on 3 March 2026"))
    assert not states(only("3 March 2026"), quantities("in March 2026"))
    assert states(only("2026"), quantities("on 3 March 2026"))
    assert not states(only("2027"), quantities("on 3 March 2026"))
    assert rivals(only("4 March 2026"), quantities("on 3 March 2026"))


def test_units_must_agree_where_both_say_one():
    assert states(only("5 days"), quantities("Days: 5"))
    assert not states(only("5 days"), quantities("5 weeks"))
    assert rivals(only("5 days"), quantities("6 days and 2 weeks"))
    assert not rivals(only("5 days"), quantities("6 weeks"))
    assert not rivals(only("5"), quantities("6"))


def test_codes_compare_without_case_and_dashes():
    assert states(only("COVID-19"), quantities("covid19"))
    assert states(only("10:30 pm"), quantities("at 10:30 PM"))


@measured
@given(
    number=st.integers(0, 10**9),
    language=st.sampled_from(["en", "es"]),
    unit=st.sampled_from(["", " days", " USD", " %", " horas"]),
)
def test_grouping_changes_no_value(number, language, unit):
    mark = "," if language == "en" else "."
    plain, grouped = only(f"{number}{unit}", language), only(f"{number:,}".replace(",", mark) + unit, language)
    assert plain == grouped
    assert plain.readings == {str(number)}


@measured
@given(
    text=st.text(st.sampled_from("0123456789.,-/: €%abd de March'"), max_size=25),
    language=st.sampled_from([None, "en", "es"]),
)
def test_any_text_is_read_and_agrees_with_itself(text, language):
    found, denies = read(text, language)
    assert found == quantities(text, language)
    assert denies in (True, False)
    for quantity in found:
        assert quantity.readings
        assert states(quantity, found)
