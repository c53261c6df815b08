"""A run whose process is gone is seen as dead, and no other: not one of another host, not one that has just been started again."""

import os
import subprocess
import sys
import time

import dagster as dg
import pytest

from rag_eval_pipeline.orchestration import launcher, processes
from rag_eval_pipeline.orchestration.launcher import Launcher
from rag_eval_pipeline.orchestration.processes import BORN_TAG, HOST_TAG, PID_TAG, is_gone, tags_of


@pytest.fixture
def ended():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    tags = tags_of("run", process.pid)
    process.kill()
    process.wait()
    return tags


def test_a_process_that_lives_that_ended_and_whose_number_another_one_has(ended):
    assert is_gone("run", tags_of("run")) is False
    assert is_gone("run", ended) is True
    assert is_gone("run", ended | {PID_TAG: str(os.getpid())}) is True
    assert ended[BORN_TAG]


def test_what_can_not_be_known(ended):
    assert is_gone("run", {}) is None
    assert is_gone("run", ended | {HOST_TAG: "elsewhere"}) is None
    assert is_gone("its retry", ended) is None, "the tags came along from the run that was started first"


@pytest.fixture
def health(instance, monkeypatch):
    watcher = Launcher()
    watcher.register_instance(instance)

    def check(tags, age=0.0):
        run = dg.DagsterRun("evaluate", run_id="run", tags=tags)
        record = type("Record", (), {"start_time": time.time() - age})()
        monkeypatch.setattr(type(instance), "get_run_record_by_id", lambda *_: record)
        return watcher.check_run_worker_health(run).status.name

    return check


def test_only_a_run_that_is_surely_dead_is_given_up(health, ended):
    assert health(tags_of("run")) == "RUNNING"
    assert health(ended) == "FAILED"
    assert health(ended | {HOST_TAG: "elsewhere"}, age=9999) == "RUNNING"
    assert health(ended | {processes.RUN_TAG: "first"}, age=1) == "RUNNING", "it has not said its own process yet"
    assert health({}, age=launcher.SETTLE_SECONDS + 1) == "UNKNOWN"


def test_the_projects_dagster_yaml_names_the_launcher(home):
    from rag_eval_pipeline.orchestration.running import instance as open_instance

    with open_instance(home) as made:
        assert isinstance(made.run_launcher, Launcher)
        assert made.run_launcher.supports_check_run_worker_health
        assert made.run_retries_enabled
        assert not made.run_retries_retry_on_asset_or_op_failure
