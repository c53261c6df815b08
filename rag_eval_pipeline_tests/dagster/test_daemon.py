"""The daemon, killed and started again at random while corpora are copied in: each version is run exactly once."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
import yaml

from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.integration.house import ROOT, environment
from rag_eval_pipeline_tests.small import QUICK, write_corpus

pytestmark = [pytest.mark.full, pytest.mark.integration]

KILLS, VERSIONS, SEED = 20, 6, 20261130
SLOWEST = 1800
"""Seconds after the last kill in which all is to be done, on a machine that does much else."""


@pytest.fixture
def settled(home, monkeypatch):
    """A Dagster home as `make ui` makes it, that looks more often; and the sensor too."""
    home.dagster.mkdir(parents=True)
    monkeypatch.setenv("DAGSTER_HOME", str(home.dagster))
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text("utf-8"))
    settings["run_monitoring"] |= {"poll_interval_seconds": 2, "start_timeout_seconds": 60}
    settings["run_retries"]["max_retries"] = 100  # twenty kills may all hit one run
    (home.dagster / "dagster.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    (home.root / "automation.yaml").write_text(json.dumps({"sensor": {"every": 2, "quiet": 8}}), "utf-8")
    return home


class Daemon:
    """`dagster-daemon run` with its code server and runs, in a session of its own."""

    def __init__(self, home):
        self.home, self.process = home, None
        self.log = home.root / "daemon.log"

    def start(self):
        with self.log.open("a") as output:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("dagster-daemon"), "run", "-w", "workspace.yaml"],
                cwd=ROOT, env=environment(self.home, DAGSTER_HOME=str(self.home.dagster)), stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def kill(self, everything):
        """The daemon alone (its code server and runs live on for a while), or all of them, as when the machine goes down."""
        with contextlib.suppress(ProcessLookupError):
            if everything:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.groups = [*getattr(self, "groups", []), self.process.pid]

    def end(self):
        for group in [*getattr(self, "groups", []), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.process.wait()


def copy_in(source, corpora, stop):
    """Copy versions as people do, a file after the other, some with the mark, the last ones late."""
    dice = random.Random(SEED)
    for corpus in sorted(path.name for path in source.iterdir()):
        for path in sorted((source / corpus).rglob("*")):
            if path.is_file():
                target = corpora / corpus / path.relative_to(source / corpus)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                if stop.wait(dice.uniform(0.1, 5)):
                    return
        if dice.random() < 0.4:
            (corpora / corpus / "v1" / "_READY").touch()


def runs_of(home):
    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        return instance.get_runs()


def roots(runs):
    """Runs that were requested; the others are the same run, started again after a kill."""
    return [run for run in runs if run.parent_run_id is None]


def wait_for_all(home, names):
    end = time.monotonic() + SLOWEST
    while time.monotonic() < end:
        done = Counter(run.tags["dagster/partition"] for run in runs_of(home) if run.is_success)
        if set(names) <= set(done):
            return
        time.sleep(5)
    raise AssertionError(f"after {SLOWEST} s: {[(r.tags, r.status) for r in runs_of(home)]}")


def test_each_version_is_run_once_whatever_is_killed(settled, tmp_path):
    home, source = settled, tmp_path / "handed-in"
    home.corpora.mkdir(parents=True, exist_ok=True)
    names = [f"c{number}@v1" for number in range(VERSIONS)]
    for number in range(VERSIONS):
        write_corpus(source, corpus=f"c{number}", documents=4, pipeline=QUICK)
    stop, dice = threading.Event(), random.Random(SEED)
    copier = threading.Thread(target=copy_in, args=(source, home.corpora, stop))
    daemon = Daemon(home)
    copier.start()
    try:
        for number in range(KILLS):
            daemon.start()
            time.sleep(dice.uniform(3, 20))
            assert daemon.process.poll() is None, f"the daemon ended by itself:\n{daemon.log.read_text()[-3000:]}"
            daemon.kill(everything=number % 2 == 0)
        copier.join()
        daemon.start()
        wait_for_all(home, names)
        time.sleep(15)  # a second request would come now
    finally:
        stop.set()
        copier.join()
        daemon.end()
    runs = runs_of(home)
    requested = Counter(run.tags["dagster/partition"] for run in roots(runs))
    assert requested == dict.fromkeys(names, 1), "no version is lost, none is requested twice"
    succeeded = Counter(run.tags["dagster/partition"] for run in runs if run.is_success)
    assert succeeded == dict.fromkeys(names, 1)
    for name in names:
        (manifest,) = Manifests(home.manifests).of(name)
        assert manifest.status == "complete", (
            "a half-copied version was not taken, and a kill left no failed evaluation"
        )
        assert manifest.tables["documents"]["rows"] == 4
    print(f"{KILLS} kills, {len(runs)} starts of {len(names)} runs")
