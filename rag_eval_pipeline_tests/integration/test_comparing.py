"""Two evaluations of a tiny corpus against each other: edits, removals, config, baselines, refusals, the published rows."""

import json
from dataclasses import replace

import polars as pl
import pytest

from rag_eval_pipeline.attribution.regressions import version_diff
from rag_eval_pipeline.cli.comparing import two_sides
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.versions import bump_version
from rag_eval_pipeline.release import comparing
from rag_eval_pipeline.release.comparing import NotComparableError
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline.warehouse.pruning import removable
from rag_eval_pipeline_tests.integration.house import Run, home_of, rag_eval
from rag_eval_pipeline_tests.small import QUICK, quote_of, text_of, write_corpus, write_jsonl

pytestmark = pytest.mark.integration

SMALL = {**QUICK, "chunking": {"splitter": "fixed", "size": 4, "overlap": 0, "unit": "words"}}
"""No chunk holds a quote: every unit is lost."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """v1; v2 with one document edited, one removed, one declared otherwise; and v2 in small chunks."""
    home = home_of(tmp_path_factory.mktemp("two"))
    folder = write_corpus(home.corpora, documents=6)
    listed = [{"doc_id": path.name, "path": path.name} for path in sorted((folder / "documents").iterdir())]
    write_jsonl(folder / "documents.jsonl", listed)
    Run(home, "small@v1")
    bump_version(home.corpora, Key.parse("small@v1"), "v2")
    documents = home.corpora / "small" / "v2" / "documents"
    edited = documents / "travel-0.md"
    edited.write_text(
        edited.read_text("utf-8").replace(quote_of(0, "travel"), "For travel 0 the limit is 9 EUR per day."), "utf-8"
    )
    transcripts = (
        home.corpora / "small" / "v2" / "gold" / "transcripts"
    )  # what the page said: the label is right, the file is not
    transcripts.mkdir(parents=True)
    (transcripts / "travel-0.md.txt").write_text(text_of(0, "travel"), "utf-8")
    (documents / "leave-1.md").unlink()
    kept = [
        row | ({"locale": "es-ES"} if row["doc_id"] == "laptops-3.md" else {})
        for row in listed
        if row["doc_id"] != "leave-1.md"
    ]
    write_jsonl(home.corpora / "small" / "v2" / "documents.jsonl", kept)
    Run(home, "small@v2")
    pipelines = home.corpora / "small" / "pipelines"
    pipelines.mkdir()
    (pipelines / "tiny.yaml").write_text(json.dumps({"pipeline": {"chunking": SMALL["chunking"]}}), "utf-8")
    Run(home, "small@v2#tiny")
    return home


def compare(home, before, now):
    return comparing.compare(home, comparing.choose(home, before), comparing.choose(home, now))


def rows_at(result, k=10, retriever="both"):
    frame = result.frame("version_regressions")
    return {
        row["query_id"]: row
        for row in frame.filter((pl.col("k") == k) & (pl.col("retriever") == retriever)).iter_rows(named=True)
    }


def test_an_edited_and_a_removed_document_lose_their_units_where_it_happened(home):
    result = compare(home, "small@v1", "small@v2")
    rows = rows_at(result)
    assert {q: row["state"] for q, row in rows.items()} == {"q0": "newly_lost", "q1": "newly_lost"} | dict.fromkeys(
        ["q2", "q3", "q4", "q5"], "kept"
    )
    edited, removed = rows["q0"], rows["q1"]
    assert (edited["stage_now"], edited["document_change"], edited["points_at"]) == ("parsing", "edited", "document")
    assert (removed["stage_now"], removed["cause_now"], removed["document_change"]) == (
        "source",
        "missing_document",
        "removed",
    )
    assert (edited["stage_before"], edited["gold_changed"], edited["config_changed"]) == ("served", False, False)
    assert "the limit is 3 EUR" in edited["text_before"]
    assert "the limit is 9 EUR" in edited["text_now"]
    assert (removed["text_doc_before"], removed["text_now"]) == ("leave-1.md", None)
    assert rows["q3"]["metadata_changed"]
    assert rows["q3"]["document_change"] == "unchanged"
    recall = (
        result.frame("version_recall").filter((pl.col("k") == 10) & (pl.col("retriever") == "both")).row(0, named=True)
    )
    assert (recall["recall_before"], recall["recall_now"], recall["delta"]) == (
        1.0,
        pytest.approx(4 / 6),
        pytest.approx(-2 / 6),
    )
    assert recall["low"] <= recall["delta"] <= recall["high"]


def test_another_config_of_one_version_points_at_the_config(home):
    result = compare(home, "small@v2", "small@v2#tiny")
    assert result.changes.named() == ["chunking: config"]
    assert not result.changes.documents
    rows = rows_at(result)
    lost = [row for row in rows.values() if row["state"] == "newly_lost"]
    assert lost
    for row in lost:
        assert (row["config_changed"], row["code_changed"], row["model_changed"]) == (True, False, False)
        assert (row["points_at"], row["document_change"]) == ("config", "unchanged")
        assert row["changed_stages"] == ["chunking: config"]
    source = rows["q1"]
    assert (source["state"], source["stage_now"], source["config_changed"]) == ("still_lost", "source", False)


def test_the_way_back_recovers_what_the_way_there_lost(home):
    there, back = compare(home, "small@v1", "small@v2"), compare(home, "small@v2", "small@v1")
    swapped = {"newly_lost": "recovered", "recovered": "newly_lost"}
    keys = ["query_id", "evidence_id", "retriever", "k"]
    a = there.frame("version_regressions").select(*keys, pl.col("state").replace(swapped))
    assert a.rows() == back.frame("version_regressions").select(*keys, "state").rows()
    assert rows_at(back)["q1"]["document_change"] == "added"


def test_a_comparison_is_computed_once_and_the_same_again(home):
    first = compare(home, "small@v1", "small@v2")
    again = compare(home, "small@v1", "small@v2")
    assert again.reused
    assert again.comparison == first.comparison
    Manifests(home.manifests)._comparison(first.comparison.comparison_id).unlink()
    anew = compare(home, "small@v1", "small@v2")
    assert not anew.reused
    assert anew.comparison.tables == first.comparison.tables
    assert not [file for file in removable(home, quiet=-1) if "version_re" in str(file)]


def test_what_may_not_be_compared_is_refused_with_what_to_do(home):
    good = comparing.choose(home, "small@v2")
    failed = replace(good, status="failed", stopped_at="retrieval")
    with pytest.raises(NotComparableError, match="failed at retrieval; a failed evaluation is never compared"):
        comparing.compare(home, good, failed)
    with pytest.raises(NotComparableError, match="with itself"):
        comparing.compare(home, good, good)
    with pytest.raises(NotComparableError, match="different corpora"):
        comparing.compare(home, replace(good, key="other@v1", evaluation_id="x"), good)
    with pytest.raises(NotComparableError, match="rag-eval run small@v9"):
        comparing.choose(home, "small@v9")
    with pytest.raises(NotComparableError, match="no single evaluation that starts with 'zz'"):
        comparing.choose(home, "small@v2", "zz")


def test_a_failed_evaluation_is_not_chosen(home):
    manifests = Manifests(home.manifests)
    good = comparing.choose(home, "small@v2")
    path = manifests.write(replace(good, key="small@v3", evaluation_id="f", status="failed", stopped_at="runs"))
    try:
        with pytest.raises(NotComparableError, match="failed at runs"):
            comparing.choose(home, "small@v3")
        assert (
            comparing.baseline(home, replace(good, evaluation_id="g", started="9999")).manifest.evaluation_id
            == good.evaluation_id
        )
    finally:
        path.unlink()


def with_rule(manifest, rule):
    return replace(manifest, config={**manifest.config, "gates": {"baseline": rule}})


def test_the_baseline_is_what_the_gates_name(home):
    first, second = (comparing.choose(home, f"small@{version}") for version in ("v1", "v2"))
    tiny = comparing.choose(home, "small@v2#tiny")
    assert comparing.baseline(home, second).manifest.key == "small@v1"
    assert comparing.baseline(home, second).sentence == f"compared with small@v1 {first.evaluation_id} (previous)"
    none = comparing.baseline(home, tiny)
    assert none.manifest is None
    assert "first complete evaluation of small, pipeline tiny" in none.sentence
    assert comparing.baseline(home, with_rule(tiny, "v2")).manifest.key == "small@v2"
    assert comparing.baseline(home, with_rule(second, "v2#tiny")).manifest.key == "small@v2#tiny"
    assert "`rag-eval accept" in comparing.baseline(home, with_rule(second, "accepted")).sentence
    Manifests(home.manifests).accept("small@v1", first.evaluation_id)
    assert comparing.baseline(home, with_rule(second, "accepted")).manifest.key == "small@v1"
    assert "this evaluation itself" in comparing.baseline(home, with_rule(first, "accepted")).sentence
    assert "rag-eval run small@v7" in comparing.baseline(home, with_rule(second, "v7")).sentence
    assert "no baseline" in comparing.baseline(home, with_rule(second, "No Version")).sentence


def test_the_view_equals_the_table_of_the_command_and_the_scorecard_changes_are_ranked(home):
    import duckdb

    result = compare(home, "small@v1", "small@v2")
    publish(home)
    diff = version_diff(result.frame("version_regressions"))
    with duckdb.connect(str(home.database), read_only=True) as con:
        query = (
            f"SELECT {', '.join(diff.columns)} FROM version_diff WHERE evaluation_id = $1 AND evaluation_before = $2"
        )
        ids = [result.now.manifest.evaluation_id, result.before.manifest.evaluation_id]
        shown = con.sql(query, params=ids).pl()
        told = con.sql(
            "SELECT query_id, why FROM why_lost WHERE corpus_version = 'small@v2' AND pipeline = 'default' AND k = 10 AND retriever = 'both'"
        ).fetchall()
    assert sorted(shown.rows(), key=str) == sorted(diff.rows(), key=str)
    assert dict(told)["q1"] == "its document leave-1.md is not in this version"
    assert dict(told)["q0"].startswith("parsing broke '3 EUR' in travel-0.md")
    changes = comparing.scorecard_changes(result.before, result.now)
    assert changes["share"].to_list() == sorted(changes["share"], reverse=True)
    recall = changes.filter(
        (pl.col("metric") == "recall")
        & (pl.col("unit") == "evidence")
        & (pl.col("k") == 10)
        & (pl.col("retriever") == "both")
    )
    assert recall.select("before", "change", "verdict").rows() == [(1.0, pytest.approx(-1 / 3), "worse")]


def test_the_command_prints_what_changed(home):
    done = rag_eval(home, "compare", "small@v1", "small@v2")
    assert done.returncode == 0, done.stderr
    for said in (
        "4 kept, 0 recovered, 2 newly lost",
        "missing_document",
        "documents: changed",
        "evidence recall",
        "scorecard",
    ):
        assert said in done.stdout


def test_the_command_takes_two_keys_each_with_or_without_an_evaluation():
    assert two_sides(["c@1", "c@2"]) == (("c@1", None), ("c@2", None))
    assert two_sides(["c@1", "abc", "c@1", "def"]) == (("c@1", "abc"), ("c@1", "def"))
    for words in (["c@1"], ["c@1", "abc"], ["c@1", "c@2", "c@3"]):
        with pytest.raises(ValueError, match="two are compared"):
            two_sides(words)
    for words in (["abc", "c@1"], ["c@1", "abc", "def"]):
        with pytest.raises(ValueError, match="follows no key"):
            two_sides(words)
