"""Personal data: found with exact offsets, masked without leaking, and judged against labels."""

import itertools
import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.spans import span_scores
from rag_eval_pipeline.stages.pii import transform
from rag_eval_pipeline.stages.pii.quality import carry, measure, sweep
from rag_eval_pipeline.stages.pii.transform import CONFIG, Span, find, mask, merged, one, run, windows
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.integration.house import home_of
from rag_eval_pipeline_tests.small import QUICK, write_corpus

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
TYPES = st.sampled_from(["EMAIL_ADDRESS", "PHONE_NUMBER", "PERSON"])


@st.composite
def text_and_spans(draw):
    text = draw(TEXT)
    edges = draw(
        st.lists(st.tuples(st.integers(0, len(text) - 1), st.integers(1, 12), TYPES, st.floats(0, 1)), max_size=6)
    )
    return text, [Span(start, min(start + length, len(text)), kind, score) for start, length, kind, score in edges]


@given(text_and_spans(), st.sampled_from(["mask", "replace", "hash"]))
def test_masked_text_keeps_every_other_character_in_its_place_and_shows_no_span(case, action):
    text, spans = case
    masked, offsets = mask(text, spans, action)
    covered = {index for span in spans for index in range(span.start, span.end)}
    out_at = src_at = 0
    for s in offsets.segments:
        assert (s.out_start, s.src_start) == (out_at, src_at), "the map leaves no gap on either side"
        if s.exact:
            assert masked[s.out_start : s.out_end] == text[s.src_start : s.src_end]
            assert not covered & set(range(s.src_start, s.src_end))
        else:
            assert masked[s.out_start : s.out_end].startswith("<")
            assert covered >= set(range(s.src_start, s.src_end))
        out_at, src_at = s.out_end, s.src_end
    assert (out_at, src_at) == (len(masked), len(text))


@given(text_and_spans())
def test_merged_spans_are_disjoint_and_hold_the_same_characters(case):
    _, spans = case
    result = merged(spans)
    assert all(a.end <= b.start for a, b in itertools.pairwise(result))
    characters = lambda given: {i for s in given for i in range(s.start, s.end)}  # noqa: E731
    assert characters(result) == characters(spans)
    assert merged(result) == result


def test_actions_tell_values_apart_as_promised():
    text = "a@x.es b@x.es a@x.es"
    spans = [Span(0, 6, "EMAIL_ADDRESS", 1.0), Span(7, 13, "EMAIL_ADDRESS", 1.0), Span(14, 20, "EMAIL_ADDRESS", 1.0)]
    assert mask(text, spans)[0] == "<EMAIL_ADDRESS> <EMAIL_ADDRESS> <EMAIL_ADDRESS>"
    assert mask(text, spans, "replace")[0] == "<EMAIL_ADDRESS_1> <EMAIL_ADDRESS_2> <EMAIL_ADDRESS_1>"
    first, second, third = mask(text, spans, "hash", "salt")[0].split()
    assert first == third != second
    assert mask(text, spans, "hash", "other")[0].split()[0] != first


@given(st.integers(0, 100_000))
def test_windows_cover_a_text_and_each_place_is_decided_by_one(length):
    found = windows(length)
    owned = [place for low, high in found for place in (low, high) if transform._belongs(place, low, high, length)]
    assert found[0][0] == 0
    assert found[-1][1] == length
    assert all(high - low <= transform.WINDOW for low, high in found)
    for place in {*range(0, length, 997), *(edge for pair in found for edge in pair if edge < length)}:
        owners = sum(transform._belongs(place, low, high, length) for low, high in found if low <= place < high)
        assert owners == 1, place
    assert len(owned) <= 2 * len(found)


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        (("PHONE",), "did you mean PHONE_NUMBER"),
        (("EMAIL_ADRESS",), "did you mean EMAIL_ADDRESS"),
        (("ES_NIFF",), "did you mean ES_NIF"),
    ],
)
def test_an_unknown_entity_is_refused_with_the_nearest(entities, message):
    with pytest.raises(ValidationError, match=message):
        CONFIG(entities=entities)


def test_names_are_refused_without_a_model_and_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(transform, "find_spec", lambda name: None)
    with pytest.raises(ValidationError, match="spacy-en"):
        CONFIG(entities=("PERSON",))
    CONFIG(entities=("PERSON",), models={"en": "/a/model"})
    CONFIG(entities=("PERSON",), enabled=False)


def test_an_entity_of_a_language_that_is_not_used_is_refused():
    with pytest.raises(ValidationError, match=r"add it to pipeline\.pii\.languages"):
        CONFIG(entities=("ES_NIF",), languages=("en",))


def frames(kept=("a", "b"), **texts):
    ids = list(texts)
    offsets = [OffsetMap.identity(len(text)).rows() for text in texts.values()]
    cleaned = pl.DataFrame({"doc_id": ids, "text": list(texts.values()), "offsets": offsets})
    return {
        "cleaned": cleaned,
        "parsed": cleaned.select("doc_id", "text"),
        "dedup": pl.DataFrame({"doc_id": ids, "kept": [name in kept for name in ids]}),
        "section_languages": sections([(name, "en", 100) for name in ids]),
    }


def sections(rows):
    schema = {"doc_id": pl.String, "language": pl.String, "letters": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


SPAN_SCHEMA = {"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String, "score": pl.Float64}


def imported(rows, **kwargs):
    given_frames = frames(**{"a": "ana@x.es 😀 here", "b": "", "gone": "removed by dedup", **kwargs})
    given_frames["output:pii_spans"] = pl.DataFrame(rows, schema=SPAN_SCHEMA, orient="row")
    return given_frames, run(given_frames, CONFIG(**{"import": True}), Runtime.plain())


def test_imported_spans_are_masked_in_kept_documents_only():
    _, made = imported([("a", 0, 8, "EMAIL_ADDRESS", None), ("gone", 0, 7, "PERSON", 1.0)])
    assert dict(made["masked"].select("doc_id", "text").iter_rows()) == {"a": "<EMAIL_ADDRESS> 😀 here", "b": ""}
    assert made["masked"]["status"].to_list() == ["ok", "empty"]
    assert made["pii_spans"]["doc_id"].to_list() == ["a"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", 5, 99, "X", 1.0), "code points"),
        (("a", 5, 5, "X", 1.0), "do not fit"),
        (("no", 0, 1, "X", 1.0), "not in this version"),
    ],
)
def test_imported_spans_that_do_not_fit_are_refused_without_quoting_text(row, message):
    with pytest.raises(ValueError, match=message) as caught:
        imported([row])
    assert "ana@x.es" not in str(caught.value)


def test_switched_off_nothing_is_masked_and_no_engine_is_loaded():
    given_frames = frames(a="ana@x.es", b="")
    made = run(given_frames, CONFIG(enabled=False), Runtime.plain())
    assert made["masked"]["text"].to_list() == ["ana@x.es", ""]
    assert made["pii_spans"].is_empty()


# With presidio --------------------------------------------------------------------------------------------------------

WIDE = CONFIG(
    entities=("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS", "ES_NIF", "ES_NIE", "US_SSN")
)


def values(text, config=WIDE):
    return [(text[s.start : s.end], s.type) for s in find(text, config)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to ana.perez@example.com.", [("ana.perez@example.com", "EMAIL_ADDRESS")]),
        ("Call 212-555-0182 today", [("212-555-0182", "PHONE_NUMBER")]),
        ("😀 correo: josé@example.es 😀", [("josé@example.es", "EMAIL_ADDRESS")]),
        ("Llame al 600 123 456.", [("600 123 456", "PHONE_NUMBER")]),
        ("Fax: +34 912 345 678", [("+34 912 345 678", "PHONE_NUMBER")]),
        ("DNI 12345678Z", [("12345678Z", "ES_NIF")]),
        ("DNI 12345678A", []),
        ("NIE X1234567L", [("X1234567L", "ES_NIE")]),
        ("Card 4111 1111 1111 1111", [("4111 1111 1111 1111", "CREDIT_CARD")]),
        ("IBAN ES91 2100 0418 4502 0005 1332", [("ES91 2100 0418 4502 0005 1332", "IBAN_CODE")]),
        ("Host 192.168.0.12", [("192.168.0.12", "IP_ADDRESS")]),
        ("Order of 2024-10-12, 22 days, 1,500.00 EUR", []),
        ("", []),
    ],
)
def test_english_and_spanish_patterns_are_found_with_code_point_offsets(text, expected):
    assert values(text) == expected


def test_long_documents_give_the_spans_of_their_parts_wherever_windows_end():
    filler = "Lorem ipsum dolor sit amet. "
    secret = "ana.perez@example.com"
    size = transform.WINDOW - transform.OVERLAP
    for shift in (0, -5, -10, -21, transform.OVERLAP // 2, transform.OVERLAP - 3):
        place = size + shift
        text = (filler * 2000)[:place] + f" {secret} " + filler * 900
        assert [v for v, _ in values(text, CONFIG())] == [secret]


@given(
    st.lists(
        st.sampled_from(["the fee is 8 EUR ", "a@b.es ", "Tel: 600 123 456.\n", "ñandú 😀 ", "\n", "www.x.es "]),
        max_size=12,
    ).map("".join)
)
@settings(max_examples=40)
def test_rows_of_any_text_obey_the_tables_and_leak_nothing_found(text):
    rows = one({"text": text, "spans": None}, CONFIG())
    row = rows["masked"][0]
    for span in rows["pii_spans"]:
        value = text[span["start"] : span["end"]]
        assert value.strip() == value
        assert span["type"] in {"EMAIL_ADDRESS", "PHONE_NUMBER"}
        assert value not in row["text"]


def test_labelled_english_sentences_are_mostly_found(shared):
    rows = json.loads((shared("data", "presidio_research") / "synth_dataset_v2.json").read_text("utf-8"))
    rows = [row for row in rows if any(s["entity_type"] == "EMAIL_ADDRESS" for s in row["spans"])][:25]
    gold = found = 0
    for row in rows:
        wanted = {(s["start_position"], s["end_position"]) for s in row["spans"] if s["entity_type"] == "EMAIL_ADDRESS"}
        spans = {(s.start, s.end) for s in find(row["full_text"], CONFIG()) if s.type == "EMAIL_ADDRESS"}
        gold, found = gold + len(wanted), found + len(wanted & spans)
    assert found / gold > 0.9


def test_labelled_spanish_reports_are_mostly_found(shared):
    gold = found = 0
    for path in sorted((shared("data", "meddocan") / "dev").glob("*.ann"))[:12]:
        text = path.with_suffix(".txt").read_text("utf-8")
        spans = {(s.start, s.end) for s in find(text, CONFIG())}
        for line in path.read_text("utf-8").splitlines():
            kind, start, end = line.split("\t")[1].split()
            if kind == "CORREO_ELECTRONICO":
                gold, found = gold + 1, found + ((int(start), int(end)) in spans)
    assert found / gold > 0.9


class Badges:
    """A user's own recogniser."""

    def __new__(cls):
        from presidio_analyzer import Pattern, PatternRecognizer

        return PatternRecognizer("BADGE", name="badges", patterns=[Pattern("badge", r"\bB-\d{4}\b", 0.9)])


def test_a_users_own_recogniser_runs_and_its_entities_are_known():
    config = CONFIG(entities=("BADGE", "EMAIL_ADDRESS"), recognizers=(f"{__name__}:Badges",))
    assert values("Badge B-1234, a@example.com", config) == [("B-1234", "BADGE"), ("a@example.com", "EMAIL_ADDRESS")]
    with pytest.raises(ValueError, match="did you mean BADGE"):
        transform.prepare(CONFIG(entities=("BADGES",), recognizers=(f"{__name__}:Badges",)))


# Quality --------------------------------------------------------------------------------------------------------------


def gold_of(labels, references):
    spans = [
        {"doc_id": d, "spans": [dict(zip(("start", "end", "type"), s, strict=True)) for s in given]}
        for d, given in labels.items()
    ]
    texts = [{"doc_id": d, "text": text} for d, text in references.items()]
    return Gold(
        pii=pl.DataFrame(spans, schema=SCHEMAS["pii"]), references=pl.DataFrame(texts, schema=SCHEMAS["references"])
    )


def test_quality_counts_by_type_and_mode_and_names_what_leaked():
    text = "ana@x.es and 600 123 456 Bob"
    given_frames, made = imported([("a", 0, 8, "EMAIL_ADDRESS", 1.0), ("a", 13, 28, "PHONE_NUMBER", 1.0)], a=text)
    labels = {"a": [(0, 8, "EMAIL_ADDRESS"), (13, 24, "PHONE_NUMBER"), (25, 28, "PERSON")]}
    rows = measure({**given_frames, **made}, gold_of(labels, {"a": text}), CONFIG(**{"import": True}), Settings())
    value = {(r["metric"], r["unit"], r["item_id"]): r["value"] for r in rows.iter_rows(named=True)}
    assert value["pii_recall", "span", "EMAIL_ADDRESS"] == 1.0
    assert value["pii_recall", "span", "PHONE_NUMBER"] == 0.0
    assert value["pii_recall", "overlap", "PHONE_NUMBER"] == 1.0
    assert value["pii_precision", "char", "PHONE_NUMBER"] == pytest.approx(11 / 15)
    assert value["pii_recall", "span", "PERSON"] == 0.0
    assert value["pii_precision", "span", "PERSON"] is None
    assert value["leaked_chars", "char", "a"] == 0.0
    assert value["over_redacted_chars", "char", "a"] == 1.0
    assert value["leaked_chars", "char", "b"] is None
    for mode, unit in (("strict", "span"), ("overlap", "overlap"), ("char", "char")):
        counts = span_scores(labels["a"], [(0, 8, "EMAIL_ADDRESS"), (13, 28, "PHONE_NUMBER")])[mode, "all"]
        assert value["pii_f1", unit, "all"] == pytest.approx(counts.f1)


def test_labels_are_carried_from_the_reference_through_parsing_and_cleaning():
    reference = "Menu. Contact: ana@x.es or 600 123 456. Footer"
    parsed = "Menu.\nContact: ana@x.es or 6OO 123 456. Footer"
    clean = OffsetMap.keep([(6, 39)])
    spans = [(15, 23, "EMAIL_ADDRESS"), (27, 38, "PHONE_NUMBER"), (0, 4, "PERSON")]
    email, phone, gone = carry(spans, reference, parsed, clean)
    assert email == (9, 17, "EMAIL_ADDRESS")
    assert phone == (21, 32, "PHONE_NUMBER")
    assert gone is None


@given(text_and_spans())
def test_on_an_unchanged_text_labels_stay_where_they_are(case):
    text, spans = case
    labels = [(s.start, s.end, s.type) for s in spans]
    assert carry(labels, text, text, OffsetMap.identity(len(text))) == labels


def test_the_sweep_counts_characters_by_stored_scores_and_starts_at_the_threshold_in_use():
    text = "ana@x.es and 600 123 456 Bob"
    given_frames = frames(a=text, b="")
    made = {
        "pii_spans": pl.DataFrame(
            [("a", 0, 8, "EMAIL_ADDRESS", 1.0), ("a", 13, 28, "PHONE_NUMBER", 0.45), ("a", 9, 12, "X", 0.1 + 0.35)],
            schema=SPAN_SCHEMA,
            orient="row",
        ),
        "masked": pl.DataFrame({"doc_id": ["a", "b"], "status": ["ok", "empty"]}),
    }
    labels = {"a": [(0, 8, "EMAIL_ADDRESS"), (13, 24, "PHONE_NUMBER"), (25, 28, "PERSON")]}
    rows = measure({**given_frames, **made}, gold_of(labels, {"a": text}), CONFIG(), Settings())
    points = {
        (r["metric"], json.loads(r["params"])["threshold"]): r["value"]
        for r in rows.filter(pl.col("metric").str.starts_with("swept_")).iter_rows(named=True)
    }
    assert min(threshold for _, threshold in points) == CONFIG().score_threshold
    assert points["swept_leaked_chars", 0.35] == 0
    assert points["swept_over_redacted_chars", 0.35] == 1 + 3
    assert points["swept_over_redacted_chars", 0.45] == 1 + 3, "0.1 + 0.35 is 0.45"
    assert points["swept_leaked_chars", 0.5] == 11 + 3
    assert points["swept_over_redacted_chars", 0.5] == 0
    assert points["swept_leaked_chars", 1.0] == 11 + 3


@given(st.lists(text_and_spans(), min_size=1, max_size=4), st.lists(st.floats(0, 1), min_size=6, max_size=6))
@settings(max_examples=60)
def test_each_point_of_the_sweep_is_the_mask_of_what_is_left(cases, scores):
    judged = {str(i): [(s.start, s.end, s.type) for s in spans[::2]] for i, (_, spans) in enumerate(cases)}
    predicted = {
        str(i): [((s.start, s.end, s.type), scores[j % 6]) for j, s in enumerate(spans[1::2])]
        for i, (_, spans) in enumerate(cases)
    }
    characters = lambda spans: {i for start, end, _ in spans for i in range(start, end)}  # noqa: E731
    for threshold, leaked, damaged in sweep(judged, predicted):
        sides = [
            (characters(judged[d]), characters([span for span, score in predicted[d] if score >= threshold - 1e-9]))
            for d in judged
        ]
        assert leaked == sum(len(gold - found) for gold, found in sides)
        assert damaged == sum(len(found - gold) for gold, found in sides)


def evidence(rows):
    """Units and anchors of (query, unit, document, clean positions, held when masked, status when masked)."""
    units = pl.DataFrame(
        [{"query_id": q, "evidence_id": e, "eligible": True, "present": True} for q, e, *_ in rows]
    ).unique(maintain_order=True)
    anchors = []
    for carrier, (q, e, doc, positions, held, status) in enumerate(rows):
        common = {"query_id": q, "evidence_id": e, "carrier": carrier, "doc_id": doc, "present": True, "kept": True}
        anchors.append({**common, "layer": "clean", "positions": positions, "held": True, "status": "ok"})
        anchors.append({**common, "layer": "masked", "positions": positions, "held": held, "status": status})
    return {"evidence_units": units, "evidence_anchors": pl.DataFrame(anchors)}


def costs(rows, kind):
    return {
        (r["metric"], json.loads(r["params"])["documents"]): (r["value"], r["status"])
        for r in rows.filter(pl.col("metric").str.starts_with("over_redacted_u") | (pl.col("metric") == "over_redacted_queries")).iter_rows(named=True)
        if r["item_id"] == kind
    }  # fmt: skip


def test_units_that_masking_in_vain_took_are_counted_by_type_and_by_query():
    text = "order 600 123 456, mail ana@x.es"
    given_frames, made = imported(
        [("a", 6, 17, "PHONE_NUMBER", 0.4), ("a", 24, 32, "EMAIL_ADDRESS", 1.0), ("b", 0, 5, "PHONE_NUMBER", 0.4)],
        a=text,
        b="12345",
    )
    shown = evidence(
        [
            ("q1", "e1", "a", [6, 7, 8], False, "masked"),
            ("q1", "e2", "a", [10, 11], False, "masked"),
            ("q2", "e1", "a", [24, 25], False, "policy"),
            ("q3", "e1", "a", [6, 7], False, "masked"),
            ("q3", "e1", "b", [0, 1], True, "ok"),
            ("q4", "e1", "b", [0, 1], False, "masked"),
        ]
    )
    labels = {"a": [(24, 32, "EMAIL_ADDRESS")]}
    config = CONFIG(**{"import": True})
    rows = measure({**given_frames, **made, **shown}, gold_of(labels, {"a": text}), config, Settings())
    assert costs(rows, "PHONE_NUMBER") == {
        ("over_redacted_units", "labelled"): (2, "scored"),
        ("over_redacted_queries", "labelled"): (1, "scored"),
        ("over_redacted_units", "unlabelled"): (1, "scored"),
        ("over_redacted_queries", "unlabelled"): (1, "scored"),
    }
    assert {value for value, _ in costs(rows, "EMAIL_ADDRESS").values()} == {0}
    assert costs(rows, "all") == costs(rows, "PHONE_NUMBER")
    rows = measure({**given_frames, **made}, gold_of(labels, {"a": text}), config, Settings())
    assert set(costs(rows, "PHONE_NUMBER").values()) == {(None, "no_gold")}


def test_without_labels_nothing_is_judged():
    given_frames, made = imported([])
    rows = measure({**given_frames, **made}, Gold(), CONFIG(), Settings())
    assert rows["value"].null_count() == len(rows)
    assert set(rows["status"]) <= {"no_gold", "no_prediction"}


# Names, with a model ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A pipeline that knows a few names and lemmas: parts in the order of spaCy's own models."""
    transform.prepare(CONFIG())  # presidio without torch; spaCy alone would load both
    import spacy
    from spacy.lookups import Lookups
    from spacy.training import Example

    nlp = spacy.blank("en")
    for part in ("tagger", "sentencizer", "attribute_ruler", "ner"):
        nlp.add_pipe(part)
    given = {"tags": ["N", "N", "V", "P", "N"], "entities": [(0, 8, "PERSON"), (18, 24, "GPE")]}
    example = Example.from_dict(nlp.make_doc("Ana Ruiz lives in Bilbao"), given)
    optimizer = nlp.initialize(lambda: [example])
    for _ in range(15):
        nlp.update([example], sgd=optimizer)
    nlp.get_pipe("attribute_ruler").add(patterns=[[{"TAG": "N"}]], attrs={"POS": "NOUN"})
    lookups = Lookups()
    lookups.add_table("lemma_lookup", {"paid": "card", "cards": "card"})
    nlp.add_pipe("lemmatizer", config={"mode": "lookup"}, before="ner").initialize(lookups=lookups)
    folder = tmp_path_factory.mktemp("models") / "small"
    nlp.to_disk(folder)
    return str(folder)


TOLD = (
    "Ana Ruiz lives in Bilbao",
    "Ana Ruiz lives in Bilbao. Ana Ruiz paid 4012888888881881, write to ana@x.es or call 600 123 456.",
    "cards: 4012888888881882",
    "no name, nothing",
)


def test_with_a_model_less_work_gives_presidios_own_spans_and_scores(small_model, monkeypatch):
    kinds = ("PERSON", "LOCATION", "EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "US_SSN")
    config = CONFIG(entities=kinds, models={"en": small_model}, score_threshold=0.0, regions=("ES",))
    engine = transform._engine(transform._engine_key(config))
    quick = [engine.analyze(text) for text in TOLD]
    assert (0, 8, "PERSON") in {row[:3] for row in quick[0]}
    assert {row[2] for row in quick[1]} >= {"CREDIT_CARD", "EMAIL_ADDRESS", "PHONE_NUMBER"}
    monkeypatch.setattr(engine._analyzers["en"], "_whole", True)
    assert quick == [engine.analyze(text) for text in TOLD]


def test_a_model_reads_the_documents_that_hold_text_in_its_language(small_model):
    text = "Ana Ruiz lives in Bilbao, ana@x.es"
    ids = ["english", "spanish", "both", "menu", "unknown"]
    tables = frames(kept=ids, **dict.fromkeys(ids, text))
    tables["section_languages"] = sections(
        [
            ("english", "en", 90), ("spanish", "es", 90), ("both", "es", 70), ("both", "en", 20), ("menu", "es", 190),
            ("menu", "en", 10), ("unknown", "und", 9),
        ]
    )  # fmt: skip
    config = CONFIG(entities=("PERSON", "EMAIL_ADDRESS"), models={"en": small_model})
    found = run(tables, config, Runtime.plain())["pii_spans"]
    assert set(found.filter(pl.col("type") == "PERSON")["doc_id"]) == {"english", "both", "unknown"}
    assert set(found.filter(pl.col("type") == "EMAIL_ADDRESS")["doc_id"]) == set(ids)
    assert transform.languages_without_model(config) == ["es"]
    both = {"en": small_model, "es-ES": small_model}
    assert transform.languages_without_model(CONFIG(entities=("PERSON",), models=both)) == []
    found = run(tables, CONFIG(entities=("PERSON",), models=both), Runtime.plain())["pii_spans"]
    assert set(found["doc_id"]) == set(ids)


@pytest.mark.parametrize("whole", [False, True], ids=["by parts", "as a user's own recogniser needs it"])
def test_a_text_in_another_language_keeps_its_names_and_loses_the_rest(small_model, monkeypatch, whole):
    config = CONFIG(entities=("PERSON", "EMAIL_ADDRESS"), models={"en": small_model}, languages=("en",))
    engine = transform._engine(transform._engine_key(config))
    monkeypatch.setattr(engine._analyzers["en"], "_whole", whole)
    found = {languages: find(TOLD[1], config, languages) for languages in (("en",), ("es",), ())}
    kinds = {languages: {span.type for span in spans} for languages, spans in found.items()}
    assert kinds == {("en",): {"PERSON", "EMAIL_ADDRESS"}, ("es",): {"EMAIL_ADDRESS"}, (): {"PERSON", "EMAIL_ADDRESS"}}


def test_names_that_no_model_looks_for_are_warned_of_before_a_run(small_model, tmp_path):
    home = home_of(tmp_path)
    pii = {"entities": ["PERSON"], "models": {"en": small_model}}
    write_corpus(home.corpora, documents=2, languages=["en", "es"], pipeline={**QUICK, "pii": pii})
    (warning,) = [w for w in Subject.open(home, "small@v1").version.warnings if w.field == "pipeline.pii.entities"]
    assert "no model reads es" in warning.found
    assert "pipeline.pii.models, e.g. {es: /path/to/model}" in warning.hint


def test_without_models_the_language_of_a_document_decides_nothing():
    tables = frames(kept=("a",), a="ana@x.es 😀 here")
    memo_keys = [
        transform._with_languages(tables["cleaned"], sections([("a", language, 5)]), CONFIG())["languages"].to_list()
        for language in ("en", "es")
    ]
    assert memo_keys == [[[]], [[]]]


def test_lemmas_are_made_only_where_a_pattern_has_context_words(small_model, monkeypatch):
    config = CONFIG(entities=("PERSON", "CREDIT_CARD"), models={"en": small_model}, languages=("en",))
    nlp = transform._engine(transform._engine_key(config))._analyzers["en"]._nlp
    assert transform._deferred(nlp.nlp["en"]) == ["tagger", "attribute_ruler", "lemmatizer"]
    asked = []
    monkeypatch.setattr(type(nlp), "add_lemmas", lambda self, document: asked.append(document.text) or document)
    for text in TOLD:
        find(text, config)
    assert asked == [TOLD[1]]


def test_nothing_is_left_out_of_a_pipeline_with_parts_of_others(small_model):
    import spacy

    nlp = spacy.load(small_model)
    nlp.add_pipe("entity_ruler", before="ner")
    assert transform._deferred(nlp) == []
