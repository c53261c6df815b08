"""The event log with open connections: nothing is lost, nothing is hidden from another process, and few files are open."""

import contextlib
import os
import signal
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from rag_eval_pipeline.orchestration import events
from rag_eval_pipeline.orchestration.events import EventLog
from rag_eval_pipeline.orchestration.running import instance as open_instance

RUN = "run"
PATIENCE = 30


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "history" / "runs"


@pytest.fixture
def log(folder):
    made = EventLog(str(folder))
    yield made
    made.dispose()


def event(number, run_id=RUN):
    return dg.EventLogEntry(
        error_info=None, user_message=str(number), level=10, run_id=run_id, timestamp=time.time(), job_name="evaluate"
    )


def numbers(log, run_id=RUN):
    return [int(entry.user_message) for entry in log.get_logs_for_run(run_id)]


@contextlib.contextmanager
def other_process(work):
    """`work(say, wait)` in another process; in this one, the number of it, and functions to listen and to let it go on."""
    (heard, said), (waited, told) = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(heard), os.close(told)
            work(lambda number: os.write(said, bytes([number])), lambda: os.read(waited, 1))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(said), os.close(waited)
    try:
        yield process, lambda: os.read(heard, 1), lambda: os.write(told, b".")
    finally:
        os.close(heard), os.close(told)
        _, status = os.waitpid(process, 0)
        assert status in (0, signal.SIGKILL)


def open_files(folder):
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing itself
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_what_one_process_writes_another_reads_while_both_are_open(log, folder):
    assert numbers(log) == []

    def work(say, wait):
        mine = EventLog(str(folder))
        for number in range(3):
            mine.store_event(event(number))
        say(3)
        wait()
        say(len(numbers(mine)))

    with other_process(work) as (_, listen, go_on):
        assert listen() == bytes([3])
        assert numbers(log) == [0, 1, 2]
        log.store_event(event(3))
        go_on()
        assert listen() == bytes([4])
    assert numbers(log) == [0, 1, 2, 3]


def test_a_killed_process_loses_no_event_that_it_stored(log, folder):
    def work(say, _wait):
        mine = EventLog(str(folder))
        for number in range(250):
            mine.store_event(event(number))
            say(number)
        time.sleep(PATIENCE)

    with other_process(work) as (process, listen, _):
        stored = [listen()[0] for _ in range(100)]
        os.kill(process, signal.SIGKILL)
        while said := listen():
            stored.append(said[0])
    found = numbers(log)
    assert found[: len(stored)] == stored == list(range(len(stored)))
    assert len(found) <= len(stored) + 1, "at most one was stored and not told of"


def test_a_watcher_hears_of_each_event_soon_while_the_writer_keeps_its_file_open(log, folder):
    heard = []
    log.store_event(event(0))
    log.watch(RUN, None, lambda entry, _cursor: heard.append((int(entry.user_message), time.time() - entry.timestamp)))

    def work(_say, wait):
        mine = EventLog(str(folder))
        for number in range(1, 11):
            mine.store_event(event(number))
            time.sleep(0.02)
        wait()  # with its file open

    with other_process(work) as (_, _, go_on):
        until = time.monotonic() + PATIENCE
        while len(heard) < 11 and time.monotonic() < until:
            time.sleep(0.02)
        go_on()
    assert [number for number, _ in heard] == list(range(11))


def test_reading_wakes_no_watcher(log):
    log.store_event(event(0))
    file = Path(log.path_for_shard(RUN))
    before = file.stat().st_mtime_ns
    assert numbers(log) == [0]
    assert file.stat().st_mtime_ns == before


def test_few_files_are_open_however_many_runs_there_are(log, folder, monkeypatch):
    monkeypatch.setattr(events, "MAX_OPEN", 3)
    runs = [f"run{number}" for number in range(6)]
    for run in runs:
        log.store_event(event(1, run))
    assert [numbers(log, run) for run in runs] == [[1]] * len(runs), "closed ones are opened again"
    log.has_secondary_index("any")
    databases = {path for path in open_files(folder) if path.endswith(".db")}
    assert databases == {str(folder / f"{name}.db") for name in ("run4", "run5", "index")}
    assert len(open_files(folder)) <= 3 * 3, "each with its write-ahead log and its index"
    numbers(log, "run0"), numbers(log, "run1")
    assert str(folder / "index.db") in open_files(folder), "the index of all runs is never the one to go"
    log.dispose()
    assert open_files(folder) == []


def test_a_run_that_another_process_wiped_is_empty_and_can_be_written_again(log, folder):
    log.store_event(event(1))

    def work(_say, _wait):
        SqliteEventLogStorage(str(folder)).wipe()

    with other_process(work):
        pass
    assert numbers(log) == []
    log.store_event(event(2))
    assert numbers(log) == [2]


def test_a_file_that_another_process_made_anew_is_taken_and_left_whole(log, folder):
    log.store_event(event(1))

    def work(say, wait):
        SqliteEventLogStorage(str(folder)).wipe()
        mine = EventLog(str(folder))
        mine.store_event(event(2))
        say(1)
        wait()
        mine.store_event(event(4))

    with other_process(work) as (_, listen, go_on):
        listen()
        assert numbers(log) == [2]
        log.store_event(event(3))
        log.dispose()
        go_on()
    assert numbers(log) == [2, 3, 4]


def test_a_wiped_log_holds_nothing(log):
    log.store_event(event(1))
    log.wipe()
    assert numbers(log) == []
    assert log.has_table("dynamic_partitions")


def test_a_forked_process_and_its_parent_have_each_their_own_connection(log):
    log.store_event(event(1))

    def work(say, wait):
        log.store_event(event(2))
        say(len(numbers(log)))
        wait()  # the parent closes: with shared locks it would remove what is written now
        log.store_event(event(3))

    with other_process(work) as (_, listen, go_on):
        assert listen() == bytes([2])
        assert numbers(log) == [1, 2]
        log.dispose()
        go_on()
    assert numbers(log) == [1, 2, 3]


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def thing():
    return dg.MaterializeResult(metadata={"rows": 3}, data_version=dg.DataVersion("first"))


def test_a_home_that_dagsters_own_class_made_keeps_its_history_and_can_go_back(home):
    home.dagster.mkdir(parents=True)
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    with dg.DagsterInstance.from_config(str(home.dagster)) as before:
        assert type(before.event_log_storage) is SqliteEventLogStorage
        first = dg.materialize([thing], partition_key="a", instance=before)
    with open_instance(home) as now:
        assert type(now.event_log_storage) is EventLog
        assert now.all_logs(first.run_id)
        assert now.get_latest_materialization_event(thing.key).run_id == first.run_id
        second = dg.materialize([thing], partition_key="b", instance=now)
        assert [run.run_id for run in now.get_runs()] == [second.run_id, first.run_id]
        assert now.get_materialized_partitions(thing.key) == {"a", "b"}
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    with dg.DagsterInstance.from_config(str(home.dagster)) as after:
        assert after.get_latest_materialization_event(thing.key).run_id == second.run_id
