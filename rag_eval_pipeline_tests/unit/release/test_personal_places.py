"""Labelled and predicted spans are carried to every text, also where the parser misread them."""

import unicodedata

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.release.redaction import pii_places
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.redact import HIDDEN, Redactor

NAME = "Zoraida Quintanilla"
SPANS = pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "type": pl.String}))


def frames(parsed, clean_ranges=None, masks=(), predicted=()):
    kept = clean_ranges or [(0, len(parsed))]
    clean = OffsetMap.keep(kept)
    text = "".join(parsed[a:b] for a, b in kept)
    segments, out, at = [], 0, 0
    masked = ""
    for start, end, label in masks:
        segments.append((out, out + start - at, at, start, True))
        out += start - at
        segments.append((out, out + len(label), start, end, False))
        masked += text[at:start] + label
        out, at = out + len(label), end
    segments.append((out, out + len(text) - at, at, len(text), True))
    masked += text[at:]
    return {
        "parsed": pl.DataFrame({"doc_id": ["d"], "text": [parsed]}),
        "cleaned": pl.DataFrame({"doc_id": ["d"], "text": [text], "offsets": [clean.rows()]}),
        "masked": pl.DataFrame({"doc_id": ["d"], "text": [masked], "offsets": [OffsetMap(segments).rows()]}),
        "pii_spans": pl.DataFrame(
            [("d", *span) for span in predicted],
            schema={"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String},
            orient="row",
        ),
    }


def labels(reference, term):
    start = reference.index(term)
    span = {"start": start, "end": start + len(term), "type": "PERSON"}
    gold = pl.DataFrame({"doc_id": ["d"], "spans": [[span]]}, schema={"doc_id": pl.String, "spans": SPANS})
    return gold, pl.DataFrame({"doc_id": ["d"], "text": [reference]})


def shown(made, tables, layer):
    text = tables[{"parsed": "parsed", "clean": "cleaned", "masked": "masked"}[layer]]["text"][0]
    return {text[row["start"] : row["end"]] for row in made.filter(layer=layer).iter_rows(named=True)}


def test_a_label_is_carried_to_every_text():
    reference = f"Header line here\nPlease ask {NAME} about travel before May."
    tables = frames(reference, [(17, len(reference))])
    made = pii_places(tables, *labels(reference, NAME))
    assert {layer: shown(made, tables, layer) for layer in ("parsed", "clean", "masked")} == {
        "parsed": {NAME}, "clean": {NAME}, "masked": {NAME},
    }  # fmt: skip


def test_a_misread_name_is_placed_between_its_neighbours():
    reference = f"Please ask {NAME} about travel before May."
    for read in ("2oraida Quintanil1a", "Z0RA1DA 0UINT4NILL4", "#### ####"):
        tables = frames(reference.replace(NAME, read))
        made = pii_places(tables, *labels(reference, NAME))
        found = shown(made, tables, "parsed")
        assert len(found) == 1
        assert read in found.pop()


def test_a_predicted_span_goes_back_to_the_parsed_text_and_is_none_in_the_masked():
    parsed = f"junk junk Please ask {NAME} now."
    start = parsed.index(NAME) - 10
    tables = frames(
        parsed, [(10, len(parsed))], [(start, start + len(NAME), "<PERSON>")], [(start, start + len(NAME), "PERSON")]
    )
    nothing = pl.DataFrame(schema={"doc_id": pl.String, "spans": SPANS, "text": pl.String})
    made = pii_places(tables, nothing, nothing)
    assert shown(made, tables, "parsed") == shown(made, tables, "clean") == {NAME}
    assert shown(made, tables, "masked") == set()


def test_what_cleaning_removed_has_no_place_after_it():
    reference = f"{NAME} wrote this.\nThe limit is 45 EUR."
    tables = frames(reference, [(reference.index("The"), len(reference))])
    made = pii_places(tables, *labels(reference, NAME))
    assert made["layer"].to_list() == ["parsed"]


words = st.lists(
    st.sampled_from(["Ana Ruiz", "ANA  RUIZ", "ana", "x", "Ruiz Ana Ruiz", "José", "Jose\u0301", "JOSÉ", "12"]),
    max_size=12,
)


@given(words)
def test_the_redactors_places_are_what_it_hides(parts):
    redactor, text = Redactor(["Ana Ruiz", "José"]), " ".join(parts)
    places = redactor.places(text)
    assert places == sorted(places)
    out, at = "", 0
    for start, end in places:
        out, at = out + text[at:start] + HIDDEN, end
    assert unicodedata.normalize("NFC", out + text[at:]) == unicodedata.normalize("NFC", redactor.text(text))
    assert redactor.within([text]).text(text) == redactor.text(text)
