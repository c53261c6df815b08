"""The asset of the release gate: red only where a rule is broken, and hiding nothing; the workflow of docs/gates.md runs."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.orchestration import running
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.report import report_path
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.dagster.test_runs import materialize, tell
from rag_eval_pipeline_tests.integration.house import ROOT, Run, environment, home_of
from rag_eval_pipeline_tests.integration.test_gate import configure
from rag_eval_pipeline_tests.small import write_corpus

pytestmark = pytest.mark.integration

BESIDE = ("release_gate", "report", "duckdb_database")
DOCS = ROOT / "docs" / "gates.md"


def ask(home, query):
    import duckdb

    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.sql(query).fetchall()


def decided(home, instance, *rules):
    """Materialize the gate and what stands beside it under these rules: result and the gate's check."""
    configure(home, *rules)
    Run(home, "small@v1")
    result = materialize(instance, *BESIDE)
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "release"]
    return result, check


def test_a_broken_rule_is_an_error_that_hides_neither_report_nor_database(home, instance):
    write_corpus(home.corpora, documents=6)
    result, check = decided(home, instance, {"max": 0.1})
    assert not result.success
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.description.startswith("fail: rule 1, recall@10 evidence both max 0.1: 1, allowed at most 0.1")
    shown = check.metadata
    assert shown["verdict"].value == "fail"
    assert "| 1 | recall@10 evidence both | max 0.1 | fail | 1 |" in shown["findings"].value
    assert "`release_delta`" in shown["what_to_do"].value
    assert shown["power"].value == "no relative rule"
    made = {e.asset_key.to_user_string() for e in result.all_events if e.event_type_value == "ASSET_MATERIALIZATION"}
    assert {"report", "duckdb_database"} <= made
    manifest = Manifests(home.manifests).latest("small@v1")
    assert report_path(home, "small@v1", manifest.evaluation_id).is_file()
    rows = ask(home, "SELECT rule, verdict, whole_verdict, evaluation_id FROM current_release_gates")
    assert rows == [(1, "fail", "fail", manifest.evaluation_id)]
    # What the daemon's sensor makes of it: a notice with the rule, and no failed evaluation.
    (home.root / "automation.yaml").write_text("notify: {webhook: {url_env: A_HOOK}}", "utf-8")
    tell(instance, result)
    (letter,) = (home.root / "outbox").glob("*.json")
    notice = json.loads(letter.read_text("utf-8"))["notice"]
    assert (notice["event"], notice["key"], notice["stopped_at"]) == ("gate_failed", "small@v1", "release_gate")
    assert notice["rules"] == ["recall@10 evidence both max 0.1: found 1"]
    assert [m.status for m in Manifests(home.manifests).all()] == ["complete"]


@pytest.mark.parametrize(
    "rules", [(), *(pytest.param((rule,), marks=pytest.mark.full) for rule in ({"min": 0.99}, {"max_drop": 0.05}))]
)
def test_what_is_not_decided_is_a_warning_and_stops_nothing(home, instance, rules):
    write_corpus(home.corpora, documents=4)
    result, check = decided(home, instance, *rules)
    assert result.success
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["verdict"].value in {"inconclusive", "missing_evidence"}
    assert check.description.count("no baseline") <= 1, "what a rule has said is not said again"
    rows = ask(home, "SELECT rule, verdict FROM current_release_gates")
    assert rows == [(min(len(rules), 1), check.metadata["verdict"].value)]


@pytest.mark.full
def test_a_rule_that_holds_passes(home, instance):
    write_corpus(home.corpora, documents=6)
    result, check = decided(home, instance, {"min": 0.3})
    assert (result.success, check.passed) == (True, True)
    assert check.description.startswith("pass: all 1 limits hold")
    assert "rag-eval accept small@v1" in check.metadata["what_to_do"].value


def test_a_run_says_so_last_and_exits_with_1(home, on_ephemeral, cli):
    write_corpus(home.corpora, documents=4)
    configure(home, {"max": 0.1})
    code, out, err = cli("run", "small@v1")
    assert code == 1
    assert "Where evidence recall was lost" in out
    assert "report: " in out
    assert "small@v1 is evaluated, and its release gate fails" in err
    assert "check release of release_gate: fail: rule 1" in err
    assert "Traceback" not in out + err
    assert Evaluation.latest(home, "small@v1").manifest.status == "complete"
    assert [m.status for m in Manifests(home.manifests).all()] == ["complete"], "the evaluation itself is whole"


@pytest.mark.full
def test_a_run_without_rules_says_that_there_are_none(home, on_ephemeral, cli):
    write_corpus(home.corpora, documents=4)
    configure(home)
    code, out, err = cli("run", "small@v1")
    assert (code, err) == (0, "")
    assert "no gates.rules" in " ".join(out.split()), "a gate without rules is not silent"


@pytest.mark.full
def test_dagsters_own_command_exits_with_1_too_and_leaves_the_same_tables(home, tmp_path):
    write_corpus(home.corpora, documents=4)
    configure(home, {"max": 0.1})
    running.register(home, "small@v1")
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "asset", "materialize", "--select", "*", "--partition", "small@v1", "-m", "rag_eval_pipeline.definitions"],
        env=environment(home, DAGSTER_HOME=str(home.dagster)), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-2000:]
    manifest = Manifests(home.manifests).latest("small@v1")
    assert report_path(home, "small@v1", manifest.evaluation_id).is_file()
    assert ask(home, "SELECT DISTINCT whole_verdict FROM current_release_gates") == [("fail",)]
    assert ask(home, "SELECT count(*) > 0 FROM current_scorecard") == [(True,)]

    other = home_of(tmp_path / "other")
    shutil.copytree(home.corpora, other.corpora)
    ran = subprocess.run(
        [Path(sys.executable).with_name("rag-eval"), "run", "small@v1"],
        env=environment(other), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr[-2000:]
    beside = Manifests(other.manifests).latest("small@v1")
    assert beside.evaluation_id == manifest.evaluation_id
    content = {name: entry["content_hash"] for name, entry in manifest.tables.items()}
    assert len(content) > 40
    assert {name: entry["content_hash"] for name, entry in beside.tables.items()} == content
    names = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY 1"
    assert ask(other, names) == ask(home, names), "and the same database for people"


# The workflow ----------------------------------------------------------------------------------------------------------


def workflow():
    (body,) = re.findall(
        r"^```yaml \.github/workflows/rag-eval\.yml\n(.*?)^```$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return yaml.safe_load(body)


def commands(job, event):
    """The job's own commands for an event, a word a part; variables of the workflow put in."""
    found = []
    for step in job["steps"]:
        if "!= 'pull_request'" in str(step.get("if", "")) and event == "pull_request":
            continue
        for line in step.get("run", "").splitlines():
            if line.strip().startswith("rag-eval"):
                found.append(line.split("|")[0].split(">>")[0].strip())
    return found


@pytest.mark.full
def test_the_workflow_of_the_docs_decides_on_a_tiny_corpus(home, on_ephemeral, cli, tmp_path, monkeypatch):
    """By night the full set and the smoke set, on a pull request the smoke set alone, against that of the night."""
    monkeypatch.chdir(tmp_path)
    write_corpus(home.corpora, documents=6)
    configure(home, {"min": 0.3}, {"max_drop": 0.9}, baseline="accepted")
    smoke = {"evaluate": {"subset": "smoke", "subset_size": 4}, "gates": {"baseline": "previous"}}
    smoke["gates"]["rules"] = [{"metric": "recall", "k": 10, "unit": "evidence", "max_drop": 0.9}]
    (home.corpora / "small" / "pipelines").mkdir()
    (home.corpora / "small" / "pipelines" / "smoke.yaml").write_text(json.dumps(smoke), "utf-8")
    whole = workflow()
    (job,) = whole["jobs"].values()
    assert set(whole[True]) >= {"pull_request", "schedule"}, "YAML reads `on` as true"
    assert whole["env"] == {
        "CORPUS": "small@v1", "KEY": "small@v1${{ github.event_name == 'pull_request' && '#smoke' || '' }}"
    }  # fmt: skip

    def night():
        return [call(line, "small@v1") for line in commands(job, "schedule")]

    def call(line, key):
        return cli(*shlex.split(line.replace("$KEY", key).replace("$CORPUS", "small@v1"))[1:])[0]

    assert [shlex.split(line)[1] for line in commands(job, "schedule")] == [
        "doctor",
        "validate",
        "run",
        "gate",
        "report",
        "run",
    ]
    assert night()[1:] == [0, 0, 2, 0, 0], "no baseline is accepted yet"
    manifest = Manifests(home.manifests).latest("small@v1")
    assert cli("accept", "small@v1", manifest.evaluation_id)[0] == 0
    settings = home.corpora / "small" / "corpus.yaml"
    body = json.loads(settings.read_text("utf-8"))
    body["pipeline"]["chunking"]["size"] = 50  # the change that a pull request brings
    settings.write_text(json.dumps(body), "utf-8")
    codes = [call(line, "small@v1#smoke") for line in commands(job, "pull_request")]
    assert codes[1:] == [0, 0, 0, 0]
    asked = json.loads((tmp_path / "gate.json").read_text("utf-8"))
    assert asked["key"] == "small@v1#smoke"
    assert {f["n_expected"] for f in asked["decision"]["findings"]} == {4}
    assert night()[1:] == [0, 0, 0, 0, 0]
    for name in ("gate.json", "gate.xml"):
        assert (tmp_path / name).is_file()


def test_the_rules_that_the_docs_show_are_valid():
    (body,) = re.findall(r"^```yaml corpus\.yaml\n(.*?)^```$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(Settings(**yaml.safe_load(body)).gates.rules) == 4
