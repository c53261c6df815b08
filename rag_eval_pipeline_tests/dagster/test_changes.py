"""The sensor `corpus_changes`: what it requests, when, and that a restart loses and doubles nothing."""

import json
import time
from datetime import UTC, datetime

import dagster as dg
import pytest

from rag_eval_pipeline.orchestration import changes
from rag_eval_pipeline.orchestration.changes import Cursor, look
from rag_eval_pipeline.orchestration.schedules import nightly
from rag_eval_pipeline.orchestration.sensors import corpus_changes
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline_tests.small import SUBJECTS, write_corpus, write_jsonl


class Sensor:
    """Ticks of the sensor, with the cursor that Dagster would store between them."""

    def __init__(self, instance):
        self.instance, self.cursor = instance, None

    def tick(self):
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        result = corpus_changes(context)
        if isinstance(result, dg.SkipReason):
            self.cursor = context.cursor
            return [], result.skip_message
        self.cursor = result.cursor
        assert [list(r.partition_keys) for r in result.dynamic_partitions_requests] == [
            [r.partition_key for r in result.run_requests]
        ]
        return [(r.partition_key, r.run_key) for r in result.run_requests], ""


@pytest.fixture
def sensor(home, instance):
    return Sensor(instance)


def keys(tick):
    return [key for key, _ in tick[0]]


def add_label(home, corpus="small"):
    gold = home.corpora / corpus / "gold"
    rows = [json.loads(line) for line in (gold / "evidence.jsonl").read_text("utf-8").splitlines()]
    write_jsonl(
        gold / "evidence.jsonl",
        [*rows, {**rows[0], "evidence_id": f"e{len(rows)}", "quote": f"# Policy on {SUBJECTS[0]}"}],
    )


def test_a_new_version_waits_until_it_is_quiet_and_is_requested_once(home, sensor):
    assert sensor.tick() == ([], "nothing changed below data/corpora")
    folder = write_corpus(home.corpora, documents=3)
    assert "waiting until it is quiet" in sensor.tick()[1]
    (folder / "documents" / "late.md").write_text("Still being copied.", "utf-8")
    assert "waiting until it is quiet" in sensor.tick()[1]
    assert keys(sensor.tick()) == ["small@v1"]
    for _ in range(2):
        assert sensor.tick() == ([], "nothing changed below data/corpora")


def test_ready_needs_no_waiting(home, sensor):
    (write_corpus(home.corpora, documents=3) / "_READY").touch()
    assert keys(sensor.tick()) == ["small@v1"]
    assert keys(sensor.tick()) == []


def test_a_restart_loses_nothing_and_doubles_nothing(home, instance):
    write_corpus(home.corpora, documents=3)
    first = Sensor(instance)
    first.tick()
    second = Sensor(instance)
    second.cursor = first.cursor  # stored, then the daemon was started again
    (requested,) = second.tick()[0]
    lost = Sensor(instance)
    lost.cursor = (
        first.cursor
    )  # the daemon died before it stored the cursor: the same run_key, so Dagster starts no second run
    assert lost.tick()[0] == [requested]
    third = Sensor(instance)
    third.cursor = second.cursor
    assert third.tick()[0] == []


def test_a_label_or_a_setting_requests_another_run(home, sensor):
    write_corpus(home.corpora, documents=3)
    sensor.tick()
    ((_, before),) = sensor.tick()[0]
    add_label(home)
    assert sensor.tick()[0] == []
    ((key, after),) = sensor.tick()[0]
    assert key == "small@v1"
    assert after != before
    settings = home.corpora / "small" / "corpus.yaml"
    settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), "evaluate": {"k": [2]}}), "utf-8")
    sensor.tick()
    ((_, third),) = sensor.tick()[0]
    assert third not in {before, after}, (
        "evaluate decides the evaluation, so a run of it must not be taken for the old one"
    )


def test_a_document_edited_under_a_key_that_has_run_requests_nothing_and_names_bump(home, sensor):
    folder = write_corpus(home.corpora, documents=3)
    sensor.tick()
    sensor.tick()
    Subject.open(home, "small@v1").run(STAGES[0])
    document = folder / "documents" / f"{SUBJECTS[0]}-0.md"
    before = document.read_text("utf-8")
    document.write_text(before + "More.", "utf-8")
    sensor.tick()
    for _ in range(2):
        requests, said = sensor.tick()
        assert requests == []
        assert said.count("rag-eval bump small@v1 NEW_VERSION") == 1
    document.write_text(before, "utf-8")
    sensor.tick()
    assert "bump" not in sensor.tick()[1], "the edit was taken back"


def test_a_wrong_version_is_a_note_and_is_requested_once_it_is_mended(home, sensor):
    write_corpus(home.corpora, documents=3)
    (write_corpus(home.corpora, corpus="other", documents=3) / "_READY").touch()
    evidence = home.corpora / "small" / "gold" / "evidence.jsonl"
    good = evidence.read_text("utf-8")
    evidence.write_text(good.replace('"quote"', '"qoute"', 1), "utf-8")
    assert keys(sensor.tick()) == ["other@v1"]
    for _ in range(2):
        requests, said = sensor.tick()
        assert requests == []
        assert "evidence.jsonl" in said
        assert "quote" in said
    evidence.write_text(good, "utf-8")
    sensor.tick()
    assert keys(sensor.tick()) == ["small@v1"]


def test_a_tick_that_runs_out_of_time_goes_on_where_it_stopped(home, monkeypatch):
    for number in range(3):
        (write_corpus(home.corpora, corpus=f"c{number}", documents=2) / "_READY").touch()
    cursor, found = Cursor(), []
    clock = iter(range(1000))
    monkeypatch.setattr(changes.time, "monotonic", lambda: float(next(clock)))
    for _ in range(6):
        tick = look(home, cursor, budget=1.5)  # one version a tick: the clock moves a second at each look
        assert len(tick.requests) <= 1
        found += [request.key for request in tick.requests]
        cursor = Cursor.load(cursor.dump())
    monkeypatch.setattr(changes.time, "monotonic", time.perf_counter)
    assert found == ["c0@v1", "c1@v1", "c2@v1"]
    assert look(home, cursor).requests == []


def test_a_version_that_is_gone_is_forgotten(home):
    import shutil

    (write_corpus(home.corpora, documents=2) / "_READY").touch()
    cursor = Cursor()
    assert [r.key for r in look(home, cursor).requests] == ["small@v1"]
    shutil.move(home.corpora / "small" / "v1", home.root / "away")
    assert look(home, cursor).requests == []
    assert cursor.requested == {}
    shutil.move(home.root / "away", home.corpora / "small" / "v1")
    assert [r.key for r in look(home, cursor).requests] == ["small@v1"]


def test_the_nightly_run_takes_the_newest_registered_version_of_each_corpus(home, tmp_path):
    for version in ("v1", "v2", "v10", "v10.limit2", "v11"):
        write_corpus(home.corpora, version=version, documents=2)
    write_corpus(home.corpora, corpus="other", documents=2)
    known = ["small@v1", "small@v2", "small@v10", "small@v10.limit2", "small@v2#candidate"]
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        instance.add_dynamic_partitions("corpus_version", known)
        context = dg.build_schedule_context(
            instance=instance, scheduled_execution_time=datetime(2026, 5, 4, 2, tzinfo=UTC)
        )
        requests = list(nightly(context))
    assert [(r.partition_key, r.run_key) for r in requests] == [("small@v10", "nightly:small@v10:2026-05-04")]
