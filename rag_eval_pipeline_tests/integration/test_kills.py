"""Kills, and runs side by side: nothing half made is seen, nothing is lost, and the next run ends like an undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rag_eval_pipeline.engine.kills import VARIABLE
from rag_eval_pipeline.release.evaluated import EVALUATED
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline.warehouse.pruning import removable
from rag_eval_pipeline_tests.integration.house import Run, environment, home_of, rag_eval, start
from rag_eval_pipeline_tests.small import QUICK, write_corpus

pytestmark = pytest.mark.integration
KILLED = -signal.SIGKILL
PIPELINE = {**QUICK, "parsing": {"parser": "rag_eval_parts:Counting"}, "dedup": {"threshold": 0.8}}


def corpus_at(root):
    home = home_of(root)
    write_corpus(home.corpora, documents=3, pipeline=PIPELINE)
    return home


def run_through(home, *options, kill_at=None):
    """A process of its own; returns its exit code and what it printed at its end."""
    more = {VARIABLE: kill_at} if kill_at else {}
    process = start(home, "small@v1", *options, RAG_EVAL_TEST_LOG=str(home.root / "parsed.log"), **more)
    out, err = process.communicate(timeout=300)
    assert process.returncode in {0, KILLED}, err
    return process.returncode, json.loads(out.splitlines()[-1]) if process.returncode == 0 else None


def nothing_is_seen(home):
    """No manifest, no database; and every file that a reader would take is whole."""
    import polars as pl

    assert Manifests(home.manifests).all() == []
    assert not home.database.exists()
    parts = [
        *home.root.glob("warehouse/*/corpus_version=*/*/part-*.parquet"),
        *home.root.glob("memo/*/*/[!.]*.parquet"),
    ]
    for part in parts:
        pl.read_parquet(part)
    return parts


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Content hashes and ids of a run that nobody disturbed."""
    home = corpus_at(tmp_path_factory.mktemp("undisturbed"))
    os.environ["RAG_EVAL_TEST_LOG"] = str(home.root / "parsed.log")
    run = Run(home, "small@v1", database=True)
    return {"hashes": run.hashes, "ids": run.subject.ids, "evaluation": run.manifest.evaluation_id}


def ends_like(found, undisturbed):
    for name in ("hashes", "ids", "evaluation"):
        assert found[name] == undisturbed[name]


def test_a_killed_run_leaves_nothing_to_see_and_the_next_one_resumes(home, undisturbed):
    write_corpus(home.corpora, documents=3, pipeline=PIPELINE)
    code, _ = run_through(home, kill_at="chunks:temporary")
    assert code == KILLED
    parts = nothing_is_seen(home)
    assert any("/masked/" in str(part) for part in parts)
    assert not any("/chunks/" in str(part) for part in parts)
    (temporary,) = (home.root / "warehouse" / "chunks").rglob(".*.tmp")
    assert len((home.root / "parsed.log").read_text("utf-8").splitlines()) == 3
    again = Run(home, "small@v1", database=True)
    assert again.did["pii"] == "reused"
    assert again.did["chunking"] == "computed"
    assert len((home.root / "parsed.log").read_text("utf-8").splitlines()) == 3, (
        "what was parsed before the kill was parsed again"
    )
    ends_like(
        {"hashes": again.hashes, "ids": again.subject.ids, "evaluation": again.manifest.evaluation_id}, undisturbed
    )
    assert temporary in removable(home, quiet=0)


@pytest.mark.full
def test_a_kill_while_the_database_is_swapped_leaves_the_old_one(home):
    import duckdb

    write_corpus(home.corpora, documents=3)
    Run(home, "small@v1", database=True)
    before = home.database.read_bytes()
    write_corpus(home.corpora, corpus="other", documents=2)
    Run(home, "other@v1")
    code = "from rag_eval_pipeline.warehouse.home import Home; from rag_eval_pipeline.release.publish import publish; publish(Home.find())"
    done = subprocess.run([sys.executable, "-c", code], env=environment(home, **{VARIABLE: "database:temporary"}))
    assert done.returncode == KILLED
    assert home.database.read_bytes() == before
    assert list(home.root.glob(".rag_eval.duckdb.*.tmp"))
    publish(home)
    assert not list(home.root.glob(".rag_eval.duckdb.*.tmp*"))
    with duckdb.connect(str(home.database), read_only=True) as con:
        assert con.sql("SELECT count(*) FROM evaluations").fetchall() == [(2,)]


STEPS = [*(stage.name for stage in STAGES), *(step.name for step in EVALUATED)]
POINTS = [
    *(f"{step}{('', ':before_write', ':after_write')[number % 3]}" for number, step in enumerate(STEPS)),
    "blocks:temporary", "evidence_fate:temporary", "manifest:temporary",
]  # fmt: skip


@pytest.mark.full
def test_a_kill_inside_each_step(tmp_path, undisturbed):
    """One data folder: each run is killed one step further, so every re-run starts on what a kill left."""
    home = corpus_at(tmp_path)
    order = {step: number for number, step in enumerate(STEPS)}
    for point in sorted(POINTS[: len(STEPS)], key=lambda p: order[p.partition(":")[0]]) + POINTS[-1:]:
        code, _ = run_through(home, "--no-database", kill_at=point)
        assert code == KILLED, f"{point} was not reached"
        nothing_is_seen(home)
    code, found = run_through(home)
    assert code == 0
    ends_like(found, undisturbed)
    assert (
        len((home.root / "parsed.log").read_text("utf-8").splitlines()) <= 6
    )  # the kill before parsing was written may cost one batch


@pytest.mark.full
@pytest.mark.parametrize("point", ["blocks:temporary", "evidence_fate:temporary"])
def test_a_kill_between_the_tables_of_one_step(tmp_path, undisturbed, point):
    home = corpus_at(tmp_path)
    assert run_through(home, kill_at=point)[0] == KILLED
    nothing_is_seen(home)
    ends_like(run_through(home)[1], undisturbed)


@pytest.mark.full
def test_twenty_kills_at_times_drawn_uniformly_over_a_cold_run(tmp_path, undisturbed):
    started = time.monotonic()
    process = start(corpus_at(tmp_path / "timed"), "small@v1", RAG_EVAL_TEST_LOG=str(tmp_path / "timed.log"))
    process.stdout.readline()
    ready = time.monotonic()
    process.communicate()
    whole = time.monotonic() - ready
    dice = random.Random(7)
    draws = [dice.uniform(0, whole) for _ in range(20)]

    def kill_and_run_again(number):
        home = corpus_at(tmp_path / str(number))
        log = {"RAG_EVAL_TEST_LOG": str(home.root / "parsed.log")}
        process = start(home, "small@v1", **log)
        process.stdout.readline()  # imports are done
        time.sleep(draws[number])
        process.kill()
        process.wait()
        seen = Manifests(home.manifests).all()
        if not seen:  # else the draw came after the manifest was written: then all of its tables are there
            nothing_is_seen(home)
        code, found = run_through(home, "--no-database")
        assert code == 0
        ends_like(found, undisturbed)
        return bool(seen)

    with ThreadPoolExecutor(2) as pool:
        late = list(pool.map(kill_and_run_again, range(20)))
    assert sum(late) < 10, f"most draws came after the end: {whole:.1f} s after {ready - started:.1f} s"


@pytest.mark.full
def test_a_run_in_dagster_is_killed_and_the_next_one_starts_and_buries_it(tmp_path, undisturbed):
    import dagster as dg

    from rag_eval_pipeline.orchestration import running

    home = corpus_at(tmp_path)
    log = {"RAG_EVAL_TEST_LOG": str(home.root / "parsed.log")}
    for point in ("parsing:before_write", "retrieval:after_write"):
        assert rag_eval(home, "run", "small@v1", **{VARIABLE: point}, **log).returncode == KILLED
        nothing_is_seen(home)
    done = rag_eval(home, "run", "small@v1", **log)
    assert done.returncode == 0, done.stderr
    (manifest,) = Manifests(home.manifests).all()
    assert {name: entry["content_hash"] for name, entry in manifest.tables.items()} == undisturbed["hashes"]
    with running.instance(home) as instance:
        statuses = sorted(run.status.value for run in instance.get_runs())
        assert instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])) == 0
    assert statuses == ["FAILURE", "FAILURE", "SUCCESS"]


@pytest.mark.full
def test_two_versions_run_at_once_while_a_third_process_asks_the_database(home):
    import duckdb

    write_corpus(home.corpora, documents=3)
    write_corpus(home.corpora, version="v2", documents=4)
    write_corpus(home.corpora, corpus="first", documents=2)
    Run(home, "first@v1", database=True)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(home.database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout.readline().strip() == "open"
    both = [start(home, key) for key in ("small@v1", "small@v2")]
    for process in both:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    out, err = reader.communicate("go on\n", timeout=120)
    assert reader.returncode == 0, err
    assert out.split() == ["1", "True", "True"], "an open session keeps its snapshot, and asks it all the while"
    with duckdb.connect(str(home.database), read_only=True) as con:
        assert con.sql("SELECT corpus_version FROM current_evaluations ORDER BY 1").fetchall() == [
            ("first@v1",),
            ("small@v1",),
            ("small@v2",),
        ]
        counts = con.sql("SELECT corpus_version, count(*) FROM current_documents GROUP BY 1 ORDER BY 1").fetchall()
        assert counts == [("first@v1", 2), ("small@v1", 3), ("small@v2", 4)]
        for manifest in Manifests(home.manifests).all():
            for name, entry in manifest.tables.items():
                if name not in {"pii_terms", "index_files", "embeddings", "query_embeddings"}:
                    found = con.sql(
                        f'SELECT count(*) FROM "{name}" WHERE corpus_version = $1', params=[manifest.key]
                    ).fetchall()
                    assert found == [(entry["rows"],)], name


READER = """
import sys, threading, time, duckdb
con = duckdb.connect(sys.argv[1], read_only=True)
asked, stop = [], threading.Event()
def ask():
    cursor = con.cursor()
    while not stop.is_set():
        asked.append(cursor.execute("SELECT count(*) FROM documents, range(300000)").fetchone()[0])
        time.sleep(0.02)
thread = threading.Thread(target=ask)
thread.start()
while not asked:
    time.sleep(0.01)
print("open", flush=True)
sys.stdin.readline()
stop.set()
thread.join()
print(con.execute("SELECT count(*) FROM evaluations").fetchone()[0], len(asked) > 3, set(asked) == {600000})
"""
