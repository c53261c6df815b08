"""Runs in Dagster: a part of the graph finds its upstream or says what is missing; a blocking check stops what is below it."""

import json

import dagster as dg
import polars as pl
import pytest

from rag_eval_pipeline.orchestration import sensors
from rag_eval_pipeline.orchestration.build import build_defs
from rag_eval_pipeline.release.reading import Evaluation, NoEvaluationError
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.integration.house import Run, downstream
from rag_eval_pipeline_tests.small import QUICK, write_corpus, write_jsonl

pytestmark = pytest.mark.integration


def materialize(instance, *tables, key="small@v1"):
    instance.add_dynamic_partitions("corpus_version", [key])
    job = build_defs().resolve_job_def("evaluate")
    return job.execute_in_process(
        partition_key=key,
        instance=instance,
        raise_on_error=False,
        asset_selection=[dg.AssetKey(name) for name in tables],
    )


def failure_of(result):
    (event,) = [event for event in result.all_events if event.is_step_failure]
    return event.step_failure_data.user_failure_data.description


def test_one_asset_finds_its_upstream_in_the_store_or_says_what_to_materialize(home, instance):
    write_corpus(home.corpora, documents=3)
    alone = materialize(instance, "chunks")
    assert not alone.success
    said = failure_of(alone)
    assert "Materialize masked (stage pii) first" in said
    assert "rag-eval run small@v1" in said

    Run(home, "small@v1")  # what another process left in the store
    chunks = Subject.open(home, "small@v1").find("chunks")
    again = materialize(instance, "chunks")
    assert again.success
    (made,) = again.asset_materializations_for_node("chunking_room")
    assert made.metadata["reused"].value is True
    assert made.tags["dagster/data_version"] == chunks.content_hash
    above = materialize(instance, "scorecard", "evaluation")
    assert above.success


def test_the_manifest_names_every_table_that_is_missing(home, instance):
    write_corpus(home.corpora, documents=3)
    subject = Subject.open(home, "small@v1")
    for stage in STAGES:
        subject.run(stage)
    result = materialize(instance, "evaluation")
    said = failure_of(result)
    assert "evidence_ledger" in said
    assert "scorecard" in said
    assert "chunks" not in said
    assert Manifests(home.manifests).all() == []


def test_a_key_that_is_no_key_is_refused_with_a_slug(home, instance):
    write_corpus(home.corpora, documents=3)
    result = materialize(instance, "documents", key="Small@V 1")
    assert "small@v-1" in failure_of(result)


@pytest.fixture
def two_tenants(home):
    folder = write_corpus(
        home.corpora, documents=6, pipeline={**QUICK, "retrieval": {"words": {"kind": "rag_eval_parts:Words"}}}
    )
    names = sorted(path.name for path in (folder / "documents").iterdir())
    rows = [
        {"path": name, "doc_id": name, "tenant": "red" if number % 2 else "blue"} for number, name in enumerate(names)
    ]
    write_jsonl(folder / "documents.jsonl", rows)
    gold = home.corpora / "small" / "gold"
    write_jsonl(gold / "principals.jsonl", [{"principal": "ada", "tenant": "red", "groups": []}])
    queries = [json.loads(line) for line in (gold / "queries.jsonl").read_text("utf-8").splitlines()]
    write_jsonl(gold / "queries.jsonl", [{**query, "principal": "ada"} for query in queries])
    return folder


def careless(home):
    pipeline = {**QUICK, "retrieval": {"words": {"kind": "rag_eval_parts:Words", "options": {"careless": True}}}}
    (home.corpora / "small" / "corpus.yaml").write_text(
        json.dumps({"languages": ["en"], "pipeline": pipeline}), "utf-8"
    )


def test_a_lane_that_shows_what_its_caller_may_not_see_stops_the_run(home, two_tenants, on_ephemeral, cli):
    import duckdb

    good = Run(home, "small@v1")
    good.check_books()
    careless(home)
    code, out, err = cli("run", "small@v1")
    assert code == 1
    assert "stopped at retrieval_room" in err
    assert "check entitlement of runs" in err
    assert "lie outside their caller's set" in err
    assert "Traceback" not in out + err
    (failed,) = [m for m in Manifests(home.manifests).of("small@v1") if m.status == "failed"]
    assert failed.stopped_at == "retrieval_room"
    subject = Subject.open(home, "small@v1")
    for stage in downstream("retrieval"):
        assert all(subject.find(name) is None for name in stage.tables), f"{stage.name} ran below a failed check"
    # Shown …
    assert "failed at retrieval_room" in cli("evaluations")[1]
    with duckdb.connect(str(home.database), read_only=True) as con:
        rows = con.sql("SELECT evaluation_id, status, stopped_at FROM evaluations ORDER BY status").fetchall()
        current = con.sql("SELECT evaluation_id FROM current_evaluations").fetchall()
    assert rows == [(good.manifest.evaluation_id, "complete", None), (failed.evaluation_id, "failed", "retrieval_room")]
    # … and never compared.
    assert current == [(good.manifest.evaluation_id,)]
    assert Evaluation.latest(home, "small@v1").manifest == good.manifest
    code, _, err = cli("accept", "small@v1", failed.evaluation_id)
    assert code == 1
    assert "only a complete one is a baseline" in err


def test_a_document_that_a_stage_drops_in_silence_stops_the_run(home, on_ephemeral, cli, monkeypatch):
    from rag_eval_pipeline.stages.cleaning import transform

    write_corpus(home.corpora, documents=4)
    honest = transform.run

    def dropping(frames, config, runtime):
        made = honest(frames, config, runtime)
        return {**made, "cleaned": made["cleaned"].sort("doc_id").slice(1)}

    monkeypatch.setattr(transform, "run", dropping)
    code, out, err = cli("run", "small@v1")
    assert code == 1
    assert "stopped at cleaning_room" in err
    assert "1 missing" in err
    assert "laptops-3.md" in err, "the first document by name"
    assert "Traceback" not in out + err
    (manifest,) = Manifests(home.manifests).all()
    assert (manifest.status, manifest.stopped_at) == ("failed", "cleaning_room")
    subject = Subject.open(home, "small@v1")
    assert subject.find("cleaned") is not None
    assert all(subject.find(name) is None for stage in downstream("cleaning") for name in stage.tables)
    with pytest.raises(NoEvaluationError, match="rag-eval run small@v1"):
        Evaluation.latest(home, "small@v1")


def test_books_that_do_not_balance_stop_the_run(home, on_ephemeral, cli, monkeypatch):
    from rag_eval_pipeline.release import evaluated

    write_corpus(home.corpora, documents=4)
    Run(home, "small@v1")
    step = next(step for step in evaluated.EVALUATED if step.name == "attribution")
    honest = step.run

    def cooking(subject):
        made = dict(honest(subject))
        made["loss_waterfall"] = made["loss_waterfall"].with_columns(lost_recall=pl.col("lost_recall") + 1e-11)
        return made

    object.__setattr__(step, "run", cooking)
    try:
        settings = home.corpora / "small" / "corpus.yaml"
        settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), "evaluate": {"k": [2]}}), "utf-8")
        code, _, err = cli("run", "small@v1")
    finally:
        object.__setattr__(step, "run", honest)
    assert code == 1
    assert "check books of loss_waterfall" in err
    assert [m.status for m in Manifests(home.manifests).of("small@v1")] == ["complete", "failed"]


def tell(instance, result, tags=None):
    """What Dagster's daemon does after a run failed."""
    (event,) = [e for e in result.all_events if e.event_type_value == "PIPELINE_FAILURE"]
    run = result.dagster_run.with_tags({**result.dagster_run.tags, **(tags or {})})
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs", dagster_instance=instance, dagster_run=run, dagster_event=event
    )
    sensors.failed_runs(context.for_run_failure())


def test_a_run_that_failed_elsewhere_leaves_its_manifest_by_the_sensor(home, instance, monkeypatch):
    from rag_eval_pipeline.stages.cleaning import transform

    write_corpus(home.corpora, documents=3)

    def broken(frames, config, runtime):
        raise ValueError("cleaning cannot go on")

    monkeypatch.setattr(transform, "run", broken)
    subject = Subject.open(home, "small@v1")
    for stage in STAGES[:3]:
        subject.run(stage)
    result = materialize(instance, "cleaned")
    assert failure_of(result) == "cleaning cannot go on"
    (home.root / "automation.yaml").write_text("notify: {webhook: {url_env: A_HOOK}}", "utf-8")
    tell(instance, result, {"dagster/will_retry": "true"})
    assert Manifests(home.manifests).all() == [], "Dagster starts it again by itself: nothing has failed yet"
    assert not (home.root / "outbox").exists()
    tell(instance, result)
    (letter,) = (home.root / "outbox").glob("*.json")
    notice = json.loads(letter.read_text("utf-8"))["notice"]
    assert (notice["event"], notice["key"], notice["stopped_at"]) == ("run_failed", "small@v1", "cleaning_room")
    assert "cleaning cannot go on" not in letter.read_text("utf-8"), "an error's message may quote a document"
    (manifest,) = Manifests(home.manifests).all()
    assert (manifest.key, manifest.status, manifest.stopped_at) == ("small@v1", "failed", "cleaning_room")
    assert set(manifest.tables) == {"documents", *STAGES[1].tables, *STAGES[2].tables}
