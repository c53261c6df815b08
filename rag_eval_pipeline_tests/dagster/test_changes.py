"""The sensor `corpus_changes`: what it requests, when, and that a restart loses and doubles nothing."""

import json
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg
import pytest

from rag_eval_pipeline.orchestration import changes
from rag_eval_pipeline.orchestration.automation import Watching
from rag_eval_pipeline.orchestration.changes import Cursor, look
from rag_eval_pipeline.orchestration.schedules import nightly
from rag_eval_pipeline.orchestration.sensors import corpus_changes
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.integration.house import Run
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
    automate(home, quiet=0)
    return Sensor(instance)


def automate(home, **sensor):
    home.root.mkdir(parents=True, exist_ok=True)
    (home.root / "automation.yaml").write_text(json.dumps({"sensor": sensor}), "utf-8")


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
    automate(home, quiet=0)
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


def test_a_label_edited_and_taken_back_is_requested_again(home, sensor):
    """Dagster runs a run key once: the state that came back needs another one, or its run is lost."""
    write_corpus(home.corpora, documents=3)
    evidence = home.corpora / "small" / "gold" / "evidence.jsonl"
    sensor.tick()
    ((_, first),) = sensor.tick()[0]
    before = evidence.read_bytes()
    add_label(home)
    sensor.tick()
    ((_, second),) = sensor.tick()[0]
    evidence.write_bytes(before)
    sensor.tick()
    ((key, third),) = sensor.tick()[0]
    assert key == "small@v1"
    assert len({first, second, third}) == 3
    assert first.split(":")[:2] == third.split(":")[:2], "the state is the same, the request is not"


def test_the_newest_evaluation_of_another_state_is_no_reason_to_request_nothing(home, sensor):
    write_corpus(home.corpora, documents=3)
    evidence = home.corpora / "small" / "gold" / "evidence.jsonl"
    before = evidence.read_bytes()
    first = Run(home, "small@v1").manifest
    add_label(home)
    second = replace(Run(home, "small@v1").manifest, started="2998-01-01T00:00:00+00:00")
    Manifests(home.manifests).write(second)
    evidence.write_bytes(before)
    sensor.tick()
    assert keys(sensor.tick()) == ["small@v1"], "its evaluation is there, but the newest one shows the other labels"
    Manifests(home.manifests).write(replace(first, started="2999-01-01T00:00:00+00:00"))
    fresh = Sensor(sensor.instance)
    fresh.tick()
    requests, said = fresh.tick()
    assert requests == []
    assert "small@v1 is evaluated already, as it is" in said
    assert first.evaluation_id != second.evaluation_id


def test_what_is_only_touched_or_marked_ready_while_it_runs_is_not_requested_twice(home, sensor):
    folder = write_corpus(home.corpora, documents=3)
    sensor.tick()
    assert keys(sensor.tick()) == ["small@v1"]
    (folder / "_READY").touch()
    os.utime(home.corpora / "small" / "gold" / "queries.jsonl")
    said = [sensor.tick() for _ in range(3)]
    assert [requests for requests, _ in said] == [[], [], []]
    assert any("was touched" in note for _, note in said)


def test_quiet_is_a_time_not_a_number_of_ticks(home, instance, monkeypatch):
    """A daemon that is restarted ticks at once: two looks in one second say nothing of a copy that goes on."""
    write_corpus(home.corpora, documents=2)
    cursor, now = Cursor(), [1000.0]
    monkeypatch.setattr(changes.time, "time", lambda: now[0])
    waiting = Watching(quiet=30)
    for seconds in (0, 1, 1, 27):
        now[0] += seconds
        assert look(home, cursor, waiting).requests == []
        cursor = Cursor.load(cursor.dump())
    now[0] -= 5000  # somebody puts the clock back
    assert look(home, cursor, waiting).requests == []
    now[0] += 31
    assert [r.key for r in look(home, cursor, waiting).requests] == ["small@v1"]


def test_a_file_that_a_tool_is_copying_is_waited_for(home, sensor):
    folder = write_corpus(home.corpora, documents=2)
    half = folder / "documents" / "manual.pdf.part"
    half.write_bytes(b"%PDF")
    for _ in range(3):
        requests, said = sensor.tick()
        assert requests == []
    assert "documents/manual.pdf.part looks like a file that is being copied" in said
    half.unlink()
    sensor.tick()
    assert keys(sensor.tick()) == ["small@v1"]


def test_where_the_mark_is_required_quiet_is_not_enough(home, instance):
    automate(home, quiet=0, ready="required")
    sensor = Sensor(instance)
    folder = write_corpus(home.corpora, documents=2)
    for _ in range(3):
        requests, said = sensor.tick()
        assert requests == []
        assert "small@v1 waits for its file _READY" in said
    (folder / "_READY").touch()
    assert keys(sensor.tick()) == ["small@v1"]


def test_a_wrong_automation_file_is_told_by_the_tick_and_changes_nothing(home, instance):
    automate(home, qiet=0)
    requests, said = Sensor(instance).tick()
    assert requests == []
    assert "automation.yaml: sensor.qiet" in said


def ticks_of(monkeypatch, step=1.0):
    clock = [0.0]

    def monotonic():
        clock[0] += step
        return clock[0]

    monkeypatch.setattr(changes.time, "monotonic", monotonic)


def test_a_tick_that_runs_out_of_time_goes_on_where_it_stopped(home, monkeypatch):
    for number in range(3):
        (write_corpus(home.corpora, corpus=f"c{number}", documents=2) / "_READY").touch()
    cursor, found = Cursor(), []
    ticks_of(monkeypatch)
    for _ in range(12):
        tick = look(home, cursor, Watching(budget=2.5))  # each look at the clock takes a second
        assert len(tick.requests) <= 1
        found += [request.key for request in tick.requests]
        cursor = Cursor.load(cursor.dump())
    monkeypatch.undo()
    assert found == ["c0@v1", "c1@v1", "c2@v1"]


def test_a_version_larger_than_a_tick_is_looked_at_and_hashed_in_several(home, monkeypatch):
    """Every file is stat once and hashed once, however often the tick ends in between."""
    folder = write_corpus(home.corpora, documents=40)
    (folder / "_READY").touch()
    monkeypatch.setattr(changes, "STEP", 5)
    monkeypatch.setattr(changes, "HASHED", 5)
    hashed = []
    honest = changes.FileHasher.__call__
    monkeypatch.setattr(
        changes.FileHasher, "__call__", lambda self, path: hashed.append(path.name) or honest(self, path)
    )
    ticks_of(monkeypatch)
    cursor, requests, notes = Cursor(), [], []
    for _ in range(60):
        tick = look(home, cursor, Watching(budget=2.5))
        notes += tick.notes
        cursor = Cursor.load(cursor.dump())
        if tick.requests:
            requests += tick.requests
            break
    assert [request.key for request in requests] == ["small@v1"]
    assert sum("files of small@v1 were looked at" in note for note in notes) > 3
    assert sum("are hashed up to" in note for note in notes) > 3
    before_opening = hashed[:40]
    assert sorted(before_opening) == sorted(path.name for path in (folder / "documents").iterdir())


def test_a_walk_in_pieces_has_the_signature_of_one_in_one_piece(home, monkeypatch):
    folder = write_corpus(home.corpora, documents=9)
    for name in ("a", "a.b", "a-b", "A"):  # folders and files whose order by path and by parts differ
        (folder / "documents" / name).mkdir()
        (folder / "documents" / name / "x.md").write_text(name, "utf-8")
    whole = Cursor()
    look(home, whole, Watching())
    pieces = Cursor()
    monkeypatch.setattr(changes, "STEP", 1)
    ticks_of(monkeypatch)
    for _ in range(80):
        look(home, pieces, Watching(budget=1.5))
        pieces = Cursor.load(pieces.dump())
        if pieces.seen:
            break
    assert pieces.seen["small@v1"][0] == whole.seen["small@v1"][0]


@pytest.mark.full
def test_a_hundred_thousand_files_take_ticks_that_end_in_time(home, instance):
    """The sensor itself, with a budget of seconds: it goes on where it stopped; a label edited later reads no document again."""
    automate(home, quiet=0, budget=5)
    sensor = Sensor(instance)
    folder = write_corpus(home.corpora, documents=3)
    for number in range(100_000):
        if number % 1000 == 0:
            below = folder / "documents" / f"part{number // 1000:03}"
            below.mkdir()
        (below / f"d{number}.txt").write_text(f"Document {number} says {number * 7}.", "utf-8")

    def until_requested():
        took, requested = [], []
        while not requested:
            began = time.monotonic()
            requested, _ = sensor.tick()
            took.append(time.monotonic() - began)
            assert len(sensor.cursor) < 10_000, "the cursor does not grow with the files"
            assert len(took) < 60
        assert [key for key, _ in requested] == ["small@v1"]
        assert max(took) < 60, f"a tick dies at 60 s: {took}"
        return [round(seconds, 1) for seconds in took]

    first = until_requested()
    assert len(first) > 2, "it was done in one go, so nothing was resumed"
    assert sensor.tick() == ([], "nothing changed below data/corpora")
    add_label(home)
    print(f"ticks of the first look: {first} s; after a label was edited: {until_requested()} s")


def test_a_version_that_is_gone_is_forgotten_and_requested_when_it_is_back(home):
    (write_corpus(home.corpora, documents=2) / "_READY").touch()
    cursor = Cursor()
    (first,) = look(home, cursor).requests
    shutil.move(home.corpora / "small" / "v1", home.root / "away")
    tick = look(home, cursor)
    assert tick.requests == []
    assert tick.notes == ["small@v1 is gone; what was evaluated of it stays"]
    assert cursor.requested == {}
    shutil.move(home.root / "away", home.corpora / "small" / "v1")
    (again,) = look(home, cursor).requests
    assert again.key == first.key == "small@v1"
    assert again.run_key != first.run_key, "its run failed meanwhile, and Dagster runs a run key once"


def test_a_renamed_version_is_a_new_one(home, sensor):
    folder = write_corpus(home.corpora, documents=2)
    sensor.tick()
    assert keys(sensor.tick()) == ["small@v1"]
    folder.rename(folder.with_name("v2"))
    sensor.tick()
    assert keys(sensor.tick()) == ["small@v2"]
    assert sensor.tick() == ([], "nothing changed below data/corpora")


def test_a_version_of_imported_lists_alone_is_seen(home, sensor):
    folder = write_corpus(home.corpora, documents=2)
    shutil.rmtree(folder / "documents")
    runs = folder / "outputs" / "runs"
    runs.mkdir(parents=True)
    (runs / "mine.trec").write_text("q0 Q0 travel-0.md 1 0.9 mine\n", "utf-8")
    settings = home.corpora / "small" / "corpus.yaml"
    body = json.loads(settings.read_text("utf-8"))
    body["pipeline"]["retrieval"] = {"mine": {"kind": "import", "file": "mine"}}
    settings.write_text(json.dumps(body), "utf-8")
    sensor.tick()
    requests, said = sensor.tick()
    assert "small@v1" in (said or requests[0][0]), "requested, or refused by name; never passed over"


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
