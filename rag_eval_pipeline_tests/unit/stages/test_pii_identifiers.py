"""Our own recognisers: check letters and control digits, shapes with their near misses, and the words that decide."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.stages.pii import dates, phones, recognizers_es
from rag_eval_pipeline.stages.pii.patterns import find_all
from rag_eval_pipeline.stages.pii.recognizers_es import (
    CONTROLS,
    LETTERS,
    RULES,
    check_letter,
    cif_control,
    is_cif,
    is_iban,
    is_nie,
    is_nif,
    is_social_security,
)
from rag_eval_pipeline.stages.pii.transform import CONFIG, find

SPANISH = CONFIG(entities=tuple(recognizers_es.ENTITIES))


def values(text, entities=None, threshold=0.35):
    rules = [rule for entity in entities or RULES for rule in RULES[entity]]
    return [(text[start:end], kind) for start, end, kind, _ in find_all(rules, text, threshold)]


# Arithmetic -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 99_999_999), st.sampled_from(["", "-", " "]))
def test_a_dni_has_exactly_one_letter(number, separator):
    right = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if is_nif(f"{number:08d}{separator}{letter}")]
    assert right == [check_letter(number)]


@given(st.integers(0, 99_999_999), st.integers(1, 22))
def test_another_remainder_is_another_letter(number, shift):
    assert check_letter(number) != check_letter(number + shift)
    assert check_letter(number) == check_letter(number + 23)


@given(st.integers(0, 99_999_999), st.integers(0, 7), st.integers(1, 9))
def test_one_misread_digit_of_a_dni_is_refused(number, place, by):
    digits = list(f"{number:08d}")
    digits[place] = str((int(digits[place]) + by) % 10)
    assert not is_nif("".join(digits) + check_letter(number))


@given(st.sampled_from("XYZ"), st.integers(0, 9_999_999))
def test_a_nie_is_the_dni_of_its_number_behind_0_1_or_2(first, number):
    letter = LETTERS[int(f"{'XYZ'.index(first)}{number:07d}") % 23]
    assert [c for c in LETTERS if is_nie(f"{first}{number:07d}{c}")] == [letter]


@given(st.text("0123456789", min_size=7, max_size=7))
def test_a_cif_control_makes_a_luhn_number(digits):
    # Oracle: the control digit is Luhn's over the seven digits.
    total = sum(int(d) if i % 2 else sum(map(int, str(2 * int(d)))) for i, d in enumerate(digits))
    control = cif_control(digits)
    assert (total + control) % 10 == 0
    assert is_cif(f"B{digits}{control}")
    assert not is_cif(f"B{digits}{CONTROLS[control]}"), "a company of type B has a digit"
    assert is_cif(f"Q{digits}{CONTROLS[control]}")
    assert not is_cif(f"Q{digits}{control}"), "a public body has a letter"
    assert not is_cif(f"B{digits}{(control + 1) % 10}")


@given(st.text("0123456789", min_size=20, max_size=20), st.integers(1, 96))
def test_an_iban_has_exactly_one_pair_of_check_digits(account, by):
    check = 98 - int(f"{account}142800") % 97
    assert is_iban(f"ES{check:02d}{account}")
    other = (check - 2 + by) % 97 + 2
    assert not is_iban(f"ES{other:02d}{account}")


@given(st.integers(1, 52), st.integers(0, 99_999_999))
def test_a_social_security_number_ends_in_its_remainder(province, number):
    joined = int(f"{province:02d}{number:08d}") if number >= 10**7 else province * 10**7 + number
    right = [c for c in range(97) if is_social_security(f"{province:02d}{number:08d}{c:02d}")]
    assert right == [joined % 97]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (is_nif, "12345678Z"),
        (is_nif, "12.345.678-Z"),
        (is_nie, "X1234567L"),
        (is_cif, "A58818501"),
        (is_cif, "Q2826000H"),
        (is_iban, "ES91 2100 0418 4502 0005 1332"),
        (is_iban, "GB82 WEST 1234 5698 7654 32"),
    ],
)
def test_published_examples_pass(check, value):
    assert check(value)


@pytest.mark.parametrize("check", [is_nif, is_nie, is_cif, is_iban, is_social_security])
@given(value=st.text(max_size=40))
def test_a_check_answers_for_any_text(check, value):
    assert check(value) in {True, False}


# Shapes ---------------------------------------------------------------------------------------------------------------

FOUND = [
    ("DNI 12345678Z.", "12345678Z", "ES_NIF"),
    ("con D.N.I. 12.345.678-Z, vecino", "12.345.678-Z", "ES_NIF"),
    ("NIE: X-1234567-L", "X-1234567-L", "ES_NIE"),
    ("CIF A58818501", "A58818501", "ES_CIF"),
    ("IBAN ES91 2100 0418 45 0200051332", "ES91 2100 0418 45 0200051332", "IBAN_CODE"),
    ("vehículo con matrícula 4821 KJT", "4821 KJT", "ES_PLATE"),
    ("matrícula M-4821-KT", "M-4821-KT", "ES_PLATE"),
    ("NHC: 2569870.", "2569870", "ES_PATIENT_ID"),
    ("CIPA: nhc-8794146", "8794146", "ES_PATIENT_ID"),
    ("Nº historia clínica: 436434/875", "436434/875", "ES_PATIENT_ID"),
    ("NASS: 28 23748589 45", "28 23748589 45", "ES_SOCIAL_SECURITY"),
    ("número de la Seguridad Social 28/12345678/40", "28/12345678/40", "ES_SOCIAL_SECURITY"),
    ("NºCol: 28 28 20943.", "28 28 20943", "ES_MEDICAL_LICENSE"),
    ("Dra. Ruiz, colegiada nº 282812345", "282812345", "ES_MEDICAL_LICENSE"),
    ("Episodio: 7845673", "7845673", "ES_EPISODE_ID"),
    ("CP: 28035", "28035", "ES_POSTAL_CODE"),
    ("Calle Mayor, 12. 28013 Madrid", "28013", "ES_POSTAL_CODE"),
    ("vive en la Calle del Olmo, 12, 3º B.", "Calle del Olmo, 12, 3º B", "ES_ADDRESS"),
    ("Avda. de América nº 7, 2º dcha", "Avda. de América nº 7, 2º dcha", "ES_ADDRESS"),
    ("C/ Choupana, s/n", "C/ Choupana, s/n", "ES_ADDRESS"),
    ("Apartado de Correos 20134", "Apartado de Correos 20134", "ES_ADDRESS"),
]


@pytest.mark.parametrize(("text", "value", "kind"), FOUND)
def test_an_identifier_is_found_with_its_exact_edges(text, value, kind):
    assert (value, kind) in values(text)


@pytest.mark.parametrize(
    "text",
    [
        "DNI 12345678A",
        "NIE X1234567A",
        "CIF A58818502",
        "IBAN ES92 2100 0418 4502 0005 1332",
        "Pedido 4821 KJT",
        "The fan runs at 4821 RPM, the chip at 2400 MHZ.",
        "Order number 612345078, invoice 20234567",
        "EAN 8412345678905",
        "Son 12.345,67 EUR; antes 1.500 €",
        "Entre 1998 y 2004 se vendieron 28013 unidades.",
        "28013 Unidades vendidas",
        "Se administraron 40 mg por vía oral 3 días.",
        "a calle cerrada 3 veces",
        "El plazo de 30 días de la plaza vence en 2025.",
        "In 1999 the C/ compiler had 12 errors",
        "versión 2.3.4567, serie 28/12345678/41",
        "colegio 28012345, colección 4455",
        "El episodio piloto duró 45 minutos",
        "SP-L80-0612 y SP-1234-AB",
    ],
)
def test_near_misses_are_left_alone(text):
    assert values(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nacido el 10/10/1963.", "10/10/1963"),
        ("04-7-1952", "04-7-1952"),
        ("2024-02-29T10:15:00Z logged", "2024-02-29T10:15:00Z"),
        ("27-octubre-2016", "27-octubre-2016"),
        ("el 3 de marzo de 2021", "3 de marzo de 2021"),
        ("En Junio de 2007 el paciente", "Junio de 2007"),
        ("desde enero del 2003 hasta", "enero del 2003"),
        ("el 1 de mayo, festivo", "1 de mayo"),
        ("on March 5, 2024 at noon", "March 5, 2024"),
        ("the 5th of March 2024", "5th of March 2024"),
        ("since Sept. 2019", "Sept. 2019"),
        ("due on 3 April", "3 April"),
    ],
)
def test_dates_are_found_as_they_are_written(text, value):
    assert value in [text[a:b] for a, b, *_ in find_all(dates.rules(("en", "es")), text, 0.35)]


@pytest.mark.parametrize(
    "text",
    [
        "in 2024",
        "99/99/2024",
        "version 10.2.2024.1",
        "1/2 cup",
        "it may 2 times fail",
        "12 marchers",
        "24 months",
        "31/12/20245",
        "a 10.20.30.40 address",
        "ISO 9001:2015",
        "3.5/10/2020x",
        "10:30",
        "53 años",
        "2,024 units",
    ],
)
def test_what_is_no_date_is_left_alone(text):
    assert find_all(dates.rules(("en", "es")), text, 0.35) == []


@pytest.mark.parametrize("piece", ["Calle de la ", "A ", "Av. San ", "nº 2, 3 ", "28 ", "C/ ", "1.", "s/n", "enero "])
def test_no_shape_is_slow_on_repetition(piece):
    text = piece * (20_000 // len(piece))
    started = time.process_time()
    values(text)
    find_all(dates.rules(("en", "es")), text, 0.35)
    assert time.process_time() - started < 4


@given(st.lists(st.sampled_from([text for text, *_ in FOUND] + ["\n", " y ", "texto 12 "]), max_size=8).map("".join))
def test_findings_are_inside_the_text_and_carry_a_score(text):
    for rules in (list(RULES.values()), [dates.rules(("en", "es"))]):
        for start, end, _, score in find_all([rule for group in rules for rule in group], text, 0.0):
            assert 0 <= start < end <= len(text)
            assert 0 < score <= 1
            assert text[start:end].strip() == text[start:end]


def test_the_threshold_cuts_what_has_no_word_to_confirm_it():
    assert values("4821 KJT") == []
    assert values("4821 KJT", threshold=0.2) == [("4821 KJT", "ES_PLATE")]


# In the stage ---------------------------------------------------------------------------------------------------------


def test_spanish_entities_are_off_by_default_and_found_when_asked_for():
    text = "DNI 12345678Z, NHC: 2569870, matrícula 4821 KJT"
    assert find(text, CONFIG()) == []
    assert {span.type for span in find(text, SPANISH)} == {"ES_NIF", "ES_PATIENT_ID", "ES_PLATE"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The cover has the order number 612 345 078 and comes with its gasket.", False),
        ("Número de pedido: 612 345 078", False),
        ("Order number 12. Call 612 345 078.", True),
        ("For your order number call 612 345 078", True),
        ("Order number +34 612 345 078", True),
        ("Móvil 612 345 078", True),
        ("612 345 078", True),
    ],
)
def test_a_number_of_goods_is_no_phone_number(text, found):
    assert [s.type for s in find(text, CONFIG())] == ["PHONE_NUMBER"] * found


@given(st.text("0123456789 order number call.\n", max_size=80), st.integers(0, 80))
def test_the_decision_on_goods_reads_the_line_before_only(text, place):
    place = min(place, len(text))
    assert phones.of_goods(text, place) == phones.of_goods(text[:place] + "call order number", place)
