"""Run an evaluation without Dagster, and look at what it left: shared by the tests of the house.

`python -m rag_eval_pipeline_tests.integration.house KEY` is the same in a process of its own, for tests that end it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from rag_eval_pipeline.release.checks import books
from rag_eval_pipeline.release.evaluated import EVALUATED, evaluate
from rag_eval_pipeline.release.evaluation import complete_manifest
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.stages.graph import BY_NAME, STAGES
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home

ROOT = Path(__file__).parents[2]
PARTS = Path(__file__).parent / "parts"
TABLES = [table for stage in STAGES for table in stage.tables]


def downstream(name: str) -> list[Stage]:
    """Stages that read, directly or not, what a stage writes."""
    touched = set(BY_NAME[name].tables)
    found = []
    for stage in STAGES:
        if touched & set(stage.reads):
            found.append(stage)
            touched |= set(stage.tables)
    return found


def home_of(root: Path) -> Home:
    return Home(root, str(root / "warehouse"))


class Run:
    """One evaluation: its subject, manifest, and what each step did: `reused`, or `computed`."""

    def __init__(self, home: Home, key: str, *, database: bool = False, workers: int = 0) -> None:
        self.subject = Subject.open(home, key, workers=workers)
        self.did: dict[str, str] = {}
        self.counts: dict[str, tuple[int, int]] = {}
        for stage in STAGES:
            _, reused, runtime = self.subject.run(stage)
            self.did[stage.name] = "reused" if reused else "computed"
            self.counts |= {name: tuple(count) for name, count in runtime.reused.items()}
        for step in EVALUATED:
            _, reused = evaluate(step, self.subject)
            self.did[step.name] = "reused" if reused else "computed"
        self.manifest = complete_manifest(self.subject)
        self.subject.manifests.write(self.manifest)
        if database:
            publish(home)

    @property
    def computed(self) -> set[str]:
        return {name for name, did in self.did.items() if did == "computed"}

    @property
    def computed_stages(self) -> set[str]:
        return self.computed & {stage.name for stage in STAGES}

    @property
    def hashes(self) -> dict[str, str]:
        """Content of every table of the evaluation."""
        return {name: entry["content_hash"] for name, entry in self.manifest.tables.items()}

    def frame(self, name: str):
        return self.subject.frame(name) if name in TABLES else self.subject.kept(name)

    def check_books(self) -> None:
        outcome = books(self.subject, self.frame("loss_waterfall"))
        assert outcome.passed, outcome.description
        assert outcome.found["impossible"] == 0
        assert outcome.found["worst_residual"] <= 1e-12


def environment(home: Home, **more: str) -> dict[str, str]:
    """Of a process that works in this data folder."""
    path = os.pathsep.join([str(ROOT), str(PARTS)])
    return {**os.environ, "RAG_EVAL_DATA": str(home.root), "RAG_EVAL_ENCODER_THREADS": "1", "PYTHONPATH": path, **more}


def start(home: Home, *arguments: str, **more: str) -> subprocess.Popen:
    """This module in a process of its own."""
    command = [sys.executable, "-m", "rag_eval_pipeline_tests.integration.house", *arguments]
    return subprocess.Popen(
        command, env=environment(home, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rag_eval(home: Home, *arguments: str, timeout: float = 400, **more: str) -> subprocess.CompletedProcess:
    """The command in a process of its own."""
    command = [sys.executable, "-c", "from rag_eval_pipeline.cli import main; main()", *arguments]
    return subprocess.run(
        command, env=environment(home, COLUMNS="200", **more), capture_output=True, text=True, timeout=timeout
    )


if __name__ == "__main__":
    print("ready", flush=True)  # imports are done: from here on it works
    if "--ids" in sys.argv:
        subject = Subject.open(Home.find(), sys.argv[1])
        print(json.dumps({"ids": subject.ids, "evaluation": subject.evaluation_id}))
    else:
        run = Run(Home.find(), sys.argv[1], database="--no-database" not in sys.argv)
        found = {"did": run.did, "hashes": run.hashes, "ids": run.subject.ids, "evaluation": run.manifest.evaluation_id}
        print(json.dumps(found))
