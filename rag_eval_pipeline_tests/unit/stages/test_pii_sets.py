"""Labelled sets: read with exact offsets, halved without parting what is alike, scored with the invariants of spans."""

import json
from importlib.util import find_spec

import pytest

from rag_eval_pipeline.stages.pii.transform import CONFIG, _Analyzer, _engine, _engine_key
from rag_eval_pipeline.text.entities import EXTRA_MODEL
from rag_eval_pipeline_tests.bench.pii import (
    MEDDOCAN,
    RESEARCH,
    WORLD,
    Labelled,
    configured,
    curve,
    evaluate,
    expected,
    halves,
    meddocan,
    presidio_research,
    unmapped,
)

WANTED = ("FECHAS", "CORREO_ELECTRONICO", "ID_SUJETO_ASISTENCIA", "ID_ASEGURAMIENTO", "ID_TITULACION_PERSONAL_SANITARIO", "ID_CONTACTO_ASISTENCIAL")  # fmt: skip


@pytest.fixture(scope="module")
def notes(shared):
    return meddocan(shared("data", "meddocan") / "dev")


@pytest.fixture(scope="module")
def sentences(shared):
    return presidio_research(shared("data", "presidio_research") / "synth_dataset_v2.json")


def test_all_notes_and_labels_are_read(notes):
    assert len(notes) == 100
    kinds = [kind for note in notes for *_, kind in note.spans]
    assert len(kinds) == 2348
    assert {kind for kind in kinds if kind in MEDDOCAN} == set(MEDDOCAN)
    assert "NOMBRE_SUJETO_ASISTENCIA" in unmapped(notes, MEDDOCAN)


def test_all_sentences_and_labels_are_read(sentences):
    assert len(sentences) == 1500
    assert sum(len(sentence.spans) for sentence in sentences) == 2863
    assert "PERSON" in unmapped(sentences, RESEARCH)


def test_a_label_whose_offsets_are_wrong_is_refused_without_quoting_it(tmp_path):
    (tmp_path / "a.txt").write_text("Nombre: Ana", "utf-8")
    (tmp_path / "a.ann").write_text("T1\tNOMBRE 7 10\tAna\n", "utf-8")
    with pytest.raises(ValueError, match=r"a\.ann:1") as caught:
        meddocan(tmp_path)
    assert "Ana" not in str(caught.value)
    rows = [{"full_text": "Ana", "template_id": 1, "spans": [{"start_position": 1, "end_position": 3, "entity_type": "P", "entity_value": "An"}]}]  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(rows), "utf-8")
    with pytest.raises(ValueError, match="row 0"):
        presidio_research(tmp_path / "r.json")


def test_halves_part_no_group(sentences):
    first, second = halves(sentences)
    assert not {s.group for s in first} & {s.group for s in second}
    assert len(first) + len(second) == len(sentences)


def test_each_mapped_label_of_the_held_out_notes_is_found_and_rightly(notes):
    _, held = halves(notes)
    scores = evaluate(held, MEDDOCAN, configured(MEDDOCAN))
    for label in WANTED:
        counts = scores["overlap", MEDDOCAN[label]].counts
        assert counts.recall >= 0.9, label
        assert counts.precision >= 0.8, label


def test_counts_are_those_of_the_labels_and_of_the_findings(notes):
    some = notes[:10]
    scores = evaluate(some, MEDDOCAN, configured(MEDDOCAN))
    for mode in ("strict", "overlap"):
        for kind in set(MEDDOCAN.values()):
            labelled = sum(k == kind for note in some for *_, k in expected(note, MEDDOCAN))
            score = scores.get((mode, kind))
            assert (score.counts.gold if score else 0) == labelled
            if score:
                assert score.counts.tp + score.counts.fn == labelled
                assert score.counts.tp <= score.counts.predicted
                assert score.recall.mean == pytest.approx(score.counts.recall)


def test_a_higher_threshold_leaks_more_and_damages_less(notes):
    points = curve(notes[:6], MEDDOCAN)
    leaked, damaged = [p[1] for p in points], [p[2] for p in points]
    assert leaked == sorted(leaked)
    assert damaged == sorted(damaged, reverse=True)
    assert leaked[-1] > leaked[0]


def test_a_sweep_from_scores_is_what_runs_at_each_threshold_give():
    texts = [Labelled("a", "a", "Tel 600 123 456, 612 345 079; a@x.es y 4821 KJT matrícula 4822 KJT", ())]
    mapping = {"P": "PHONE_NUMBER", "E": "EMAIL_ADDRESS", "M": "ES_PLATE"}
    for threshold, _, damaged in curve(texts, mapping):
        scores = evaluate(texts, mapping, configured(mapping, score_threshold=threshold))
        assert scores["char", "all"].counts.fp == damaged, threshold


def test_reading_only_what_precedes_a_finding_gives_presidios_own_spans_and_scores(notes, sentences, monkeypatch):
    kinds = ("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS", "URL", "US_SSN", "US_DRIVER_LICENSE")  # fmt: skip
    engine = _engine(_engine_key(CONFIG(entities=kinds, regions=WORLD[:3], score_threshold=0.0)))
    texts = [text.text for text in (*notes[:5], *sentences[::15])]
    quick = [engine.analyze(text) for text in texts]
    assert sum(map(len, quick)) > 40
    for analyzer in engine._analyzers.values():
        assert isinstance(analyzer, _Analyzer)
        monkeypatch.setattr(analyzer, "_whole", True)
    assert quick == [engine.analyze(text) for text in texts]


@pytest.mark.full
@pytest.mark.skipif(find_spec(EXTRA_MODEL) is None, reason="the extra spacy-en is not installed")
def test_with_the_english_model_names_and_patterns_are_those_of_presidio(notes, sentences, monkeypatch):
    kinds = ("PERSON", "LOCATION", "ORGANIZATION", "EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "US_SSN", "US_DRIVER_LICENSE")  # fmt: skip
    engine = _engine(_engine_key(CONFIG(entities=kinds, languages=("en",), regions=WORLD[:3], score_threshold=0.0)))
    texts = [text.text for text in (*notes[:5], *sentences[::5])]
    quick = [engine.analyze(text) for text in texts]
    assert sum(row[2] == "PERSON" for rows in quick for row in rows) > 100
    monkeypatch.setattr(engine._analyzers["en"], "_whole", True)
    assert quick == [engine.analyze(text) for text in texts]
