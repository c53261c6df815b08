"""Named entities are critical where a model is named; a model that is not there is refused before anything runs."""

import pytest
from pydantic import ValidationError

from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.text.critical import critical_tokens, differing, find_listed
from rag_eval_pipeline.text.entities import EntityFinder, missing_model
from rag_eval_pipeline_tests.unit.attribution.test_stages import Small
from rag_eval_pipeline_tests.unit.attribution.world import gold_frame

QUOTE = "Oxal Energy S.A. delivers within 12 days."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a spaCy model of two patterns; real models are large."""
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "ORG", "pattern": "Oxal Energy S.A."}, {"label": "DATE", "pattern": "12 days"}])
    folder = tmp_path_factory.mktemp("model")
    pipeline.to_disk(folder)
    return str(folder)


def test_entities_are_found_by_language_and_numbers_are_left_to_the_tables(model):
    find = EntityFinder({"en": model})
    assert [(t.text, t.kind) for t in find(QUOTE, "en-GB")] == [("Oxal Energy S.A.", "entity")]
    assert find(QUOTE, None) == find(QUOTE, "en")
    assert find(QUOTE, "es") == []


def test_a_model_that_is_not_there_is_refused_with_the_extra_and_the_key():
    with pytest.raises(ValidationError, match="spacy-en") as error:
        Settings.model_validate({"ledger": {"entities": "spacy", "entity_models": {"en": "no_such_model"}}})
    assert "ledger.entity_models.en" in str(error.value)
    assert missing_model("es", "/no/such/folder") is not None
    Settings.model_validate({"ledger": {"entities": "off", "entity_models": {"en": "no_such_model"}}})


def test_an_entity_that_was_misread_is_a_parsing_loss_of_kind_entity(model):
    text = f"About us. {QUOTE} Ask the desk."

    class Named(Small):
        def _gold(self):
            gold = super()._gold()
            return Gold(**{name: getattr(gold, name) for name in ("queries", "principals", "evidence", "references")})

    small = Named()
    small.references = {"d1": text}
    small.evidence = {"query_id": "q", "evidence_id": "e", "doc_id": "d1", "quote": QUOTE, "grade": 1}
    small.parsed = {"d1": text.replace("Oxal", "Oxel")}
    frames, gold = small._frames(), small._gold()
    off = build_units(gold, frames, Settings())
    on = build_units(
        gold, frames, Settings.model_validate({"ledger": {"entities": "spacy", "entity_models": {"en": model}}})
    )
    assert off.anchors["held"].all()
    parsed = on.anchors.filter(layer="parsed").row(0, named=True)
    assert (parsed["held"], parsed["broken_kinds"]) == (False, ["entity"])
    assert on.units["critical_kinds"].to_list() == [["entity", "number"]]
    assert gold_frame("evidence", []).is_empty()


@pytest.mark.parametrize(
    ("text", "gone", "expected"),
    [
        ("18 days", "days", "unit"),
        ("18 days", "8", "number"),
        ("18 días", "d", "unit"),
        ("€ 5", "€", "unit"),
        ("3,5 %", "%", "unit"),
        ("3,5 %", ",", "number"),
        ("-5 °C", "-", "number"),
        ("18", "1", "number"),
    ],
)
def test_a_number_whose_digits_are_all_there_differs_in_its_unit(text, gone, expected):
    (token,) = critical_tokens(text)
    there = [character not in gone for character in token.text if not character.isspace()]
    assert differing(token.text, token.kind, there) == expected


def test_what_is_touched_by_a_foreign_letter_differs_as_what_it_is():
    assert differing("18 days", "number", [True] * 6) == "number"
    assert differing("2026-04-01", "date", [False] * 10) == "date"


def test_listed_tokens_have_the_kind_of_what_they_share_characters_with():
    quote = "Pay 8 USD to Mary by 1 May 2026, never SKU-88."
    kinds = [(t.text, t.kind) for t in find_listed(quote, ["8 USD", "Mary", "1 May", "never", "SKU-88"], "en")]
    assert kinds == [
        ("8 USD", "number"), ("Mary", "listed"), ("1 May", "date"), ("never", "negation"), ("SKU-88", "code"),
    ]  # fmt: skip
