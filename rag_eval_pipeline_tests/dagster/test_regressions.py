"""The assets of a comparison: empty with a reason where there is no baseline, else what became of each unit since it."""

import pytest

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.versions import bump_version
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.dagster.test_runs import failure_of, materialize
from rag_eval_pipeline_tests.integration.house import Run
from rag_eval_pipeline_tests.small import write_corpus

pytestmark = pytest.mark.integration


def made(result):
    events = result.asset_materializations_for_node("regressions")
    return {event.asset_key.to_user_string(): event for event in events}


def test_regressions_are_empty_without_a_baseline_and_filled_with_one(home, instance):
    write_corpus(home.corpora, documents=4)
    early = materialize(instance, "version_regressions", "version_recall")
    assert "`rag-eval run small@v1` makes one" in failure_of(early)
    Run(home, "small@v1")
    first = materialize(instance, "version_regressions", "version_recall", "duckdb_database")
    assert first.success
    table = made(first)["version_regressions"]
    assert table.metadata["rows"].value == 0
    assert (
        table.metadata["baseline"].value
        == "no baseline: this is the first complete evaluation of small, pipeline default; the next one is compared with it"
    )
    assert Manifests(home.manifests).comparisons() == []
    assert count(home) == 0

    bump_version(home.corpora, Key.parse("small@v1"), "v2")
    (home.corpora / "small" / "v2" / "documents" / "leave-1.md").unlink()
    Run(home, "small@v2")
    second = materialize(instance, "version_regressions", "version_recall", "duckdb_database", key="small@v2")
    assert second.success
    table, recall = made(second)["version_regressions"].metadata, made(second)["version_recall"].metadata
    assert (table["newly_lost"].value, table["kept"].value, table["reused"].value) == (1, 3, False)
    assert table["baseline"].value.startswith("compared with small@v1 ")
    assert "missing_document" in table["version_diff"].value
    assert table["changed"].value == "no stage's config, code, model or inputs"
    assert (recall["recall_before"].value, recall["delta"].value) == (1.0, pytest.approx(-0.25))
    (comparison,) = Manifests(home.manifests).comparisons()
    assert (comparison.key_before, comparison.key) == ("small@v1", "small@v2")
    assert count(home) == table["rows"].value


def count(home):
    import duckdb

    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.sql(
            "SELECT count(*) FROM current_version_regressions WHERE corpus_version LIKE 'small@%'"
        ).fetchall()[0][0]
