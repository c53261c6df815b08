"""The release gate of a tiny corpus: exit codes, what is named and refused, files for CI, and no gain from fewer labels."""

import json
import random
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.versions import bump_version
from rag_eval_pipeline.release import gating
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.dagster.conftest import cli  # noqa: F401 - a fixture
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import write_corpus, write_jsonl

pytestmark = pytest.mark.integration

N = 30
RECALL = {"metric": "recall", "k": 10, "unit": "evidence"}
LIMITS = {"pass": {"min": 0.85}, "inconclusive": {"min": 0.99}, "fail": {"max": 0.5}}
EXITS = {"pass": 0, "fail": 1, "inconclusive": 2}


def configure(home, *rules, corpus="small", **gates):
    """Write the corpus's rules."""
    path = home.corpora / corpus / "corpus.yaml"
    body = json.loads(path.read_text("utf-8"))
    body["gates"] = {"rules": [RECALL | rule for rule in rules], **gates}
    path.write_text(json.dumps(body), "utf-8")


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """small@v1, where everything is found, and its copy small@v2."""
    home = home_of(tmp_path_factory.mktemp("gate"))
    write_corpus(home.corpora, documents=N)
    configure(home, LIMITS["pass"])
    Run(home, "small@v1")
    bump_version(home.corpora, Key.parse("small@v1"), "v2")
    Run(home, "small@v2")
    return home


@pytest.fixture
def home(made, monkeypatch):
    monkeypatch.setenv("RAG_EVAL_DATA", str(made.root))
    settings = made.corpora / "small" / "corpus.yaml"
    original = settings.read_text("utf-8")
    yield made
    if settings.read_text("utf-8") != original:  # what a test measures under other rules
        settings.write_text(original, "utf-8")
        for key in ("small@v1", "small@v2"):
            Run(made, key)


@pytest.mark.parametrize("verdict", EXITS)
def test_each_verdict_has_its_exit_code_and_its_files(home, cli, tmp_path, verdict):  # noqa: F811
    configure(home, LIMITS[verdict])
    Run(home, "small@v1")
    files = {name: tmp_path / "made" / f"gate.{name}" for name in ("json", "junit")}
    code, out, err = cli(
        "gate", "small@v1", "--baseline", "v1", "--json", str(files["json"]), "--junit", str(files["junit"])
    )  # fmt: skip
    assert (code, err) == (EXITS[verdict], "")
    assert f"verdict: {verdict} (exit {EXITS[verdict]})" in out
    told = json.loads(files["json"].read_text("utf-8"))
    assert (told["decision"]["verdict"], told["exit_code"], told["key"]) == (verdict, EXITS[verdict], "small@v1")
    assert told["evaluation_id"] == Manifests(home.manifests).latest("small@v1").evaluation_id
    (finding,) = told["decision"]["findings"]
    assert finding.keys() == gating.Decision("pass", (_finding(),)).record()["findings"][0].keys()
    assert (finding["found"], finding["n"], finding["n_expected"]) == (1.0, N, N)
    assert (finding["n_needed"] > N) == (verdict == "inconclusive")
    suite = ET.parse(files["junit"]).getroot()
    kinds = {"pass": ("0", "0"), "fail": ("1", "0"), "inconclusive": ("0", "1")}
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", *kinds[verdict])
    assert len(suite.findall("testcase")) == 1


def _finding():
    from rag_eval_pipeline.release.gates import Finding

    return Finding(1, "x", "min", 0.5, "pass", "so")


def test_wrong_usage_is_64_and_never_looks_like_a_verdict(home, cli):  # noqa: F811
    wrong = (
        ["gate"], ["gate", "small"], ["gate", "Small@V1"], ["gate", "small@v1", "--allow", "all"], ["gate", "small@v1", "--jsn", "x"],
        ["gate", "small@v1", "--baseline", "No Version"], ["gaet", "small@v1"], ["gate", "small@v1", "small@v2"],
    )  # fmt: skip
    for arguments in wrong:
        code, out, err = cli(*arguments)
        assert code == 64, (arguments, out, err)
        assert "Traceback" not in out + err


@pytest.mark.full
def test_without_an_evaluation_a_rule_or_a_baseline_nothing_passes(home, cli):  # noqa: F811
    code, out, _ = cli("gate", "small@v9")
    assert (code, "rag-eval run small@v9" in out) == (2, True)
    configure(home)
    Run(home, "small@v1")
    code, out, _ = cli("gate", "small@v1", "--baseline", "v1")
    assert (code, "no gates.rules" in out) == (2, True)
    configure(home, {"max_drop": 0.1})
    Run(home, "small@v1")
    code, out, _ = cli("gate", "small@v1", "--baseline", "accepted")
    assert (code, "`rag-eval accept" in " ".join(out.split())) == (2, True)


def test_an_evaluation_that_failed_fails(home):
    manifests = Manifests(home.manifests)
    good = manifests.latest("small@v1")
    path = manifests.write(replace(good, evaluation_id="f", status="failed", stopped_at="runs", started="9999"))
    try:
        found = gating.gate(home, "small@v1")
        assert (found.decision.verdict, found.exit_code) == ("fail", 1)
        assert "failed at runs" in found.decision.refusals[0]
        assert gating.gate(home, "small@v1", evaluation_id=good.evaluation_id).exit_code == 0
    finally:
        path.unlink()


def test_a_broken_file_of_rules_lets_nothing_pass(home, cli):  # noqa: F811
    path = home.corpora / "small" / "corpus.yaml"
    whole = path.read_text("utf-8")
    path.write_text(whole.replace('"min"', '"mni"'), "utf-8")
    try:
        code, _, err = cli("gate", "small@v1")
        assert (code, "mni" in err, "Traceback" in err) == (2, True, False)
    finally:
        path.write_text(whole, "utf-8")


@pytest.mark.full
def test_rules_written_after_the_figures_are_refused_unless_allowed(home):
    configure(home, {"min": 0.5})
    refused = gating.gate(home, "small@v2")
    assert refused.exit_code == 2
    assert "changed since" in refused.decision.refusals[0]
    assert "--allow rules" in refused.decision.refusals[0]
    Run(home, "small@v2")
    still = gating.gate(home, "small@v2", against="v1")
    assert "not those under which the baseline" in still.decision.refusals[0]
    assert gating.gate(home, "small@v2", against="v1", allow=["rules"]).exit_code == 0


@pytest.mark.full
def test_changed_gold_and_other_queries_are_named_and_refused_unless_allowed(home):
    gold = home.corpora / "small" / "gold"
    saved = {name: (gold / f"{name}.jsonl").read_text("utf-8") for name in ("queries", "evidence")}
    try:
        configure(home, {"max_drop": 0.1})
        Run(home, "small@v1")
        shorter = [
            row | ({"quote": row["quote"][:-9]} if row["query_id"] == "q3" else {})
            for row in lines_of(gold / "evidence.jsonl")
        ]
        write_jsonl(gold / "evidence.jsonl", shorter)
        Run(home, "small@v2")
        found = gating.gate(home, "small@v2", against="v1")
        assert (found.exit_code, len(found.decision.refusals)) == (2, 1)
        assert "q3/e1" in found.decision.refusals[0]
        assert gating.gate(home, "small@v2", against="v1", allow=["gold"]).exit_code == 0

        (gold / "evidence.jsonl").write_text(saved["evidence"], "utf-8")
        write_jsonl(gold / "queries.jsonl", lines_of(gold / "queries.jsonl")[:-1])
        write_jsonl(gold / "evidence.jsonl", lines_of(gold / "evidence.jsonl")[:-1])
        Run(home, "small@v2")
        found = gating.gate(home, "small@v2", against="v1")
        assert found.exit_code == 2
        assert f"q{N - 1}/e1" in found.decision.refusals[0]
        assert f"(q{N - 1})" in found.decision.refusals[1]
        assert "--allow population" in found.decision.refusals[1]
        assert gating.gate(home, "small@v2", against="v1", allow=["gold"]).exit_code == 2
        assert gating.gate(home, "small@v2", against="v1", allow=["population"]).exit_code == 2
        assert gating.gate(home, "small@v2", against="v1", allow=["gold", "population"]).exit_code == 0
    finally:
        for name, text in saved.items():
            (gold / f"{name}.jsonl").write_text(text, "utf-8")


@pytest.mark.full
def test_a_relevant_document_that_is_no_longer_judged_is_gold_that_changed(tmp_path):
    """Judged documents of queries that have quotes are no pieces of evidence, but figures of documents count them."""
    home = home_of(tmp_path)
    write_corpus(
        home.corpora, documents=8, gates={"rules": [{"metric": "recall", "k": 10, "unit": "document", "min": 0.01}]}
    )
    qrels = home.corpora / "small" / "gold" / "qrels.tsv"
    documents = sorted(path.name for path in (home.corpora / "small" / "v1" / "documents").iterdir())
    judged = [f"q{n}\t{name}\t1\n" for n in range(8) for name in documents[:2]]
    qrels.write_text("query_id\tdoc_id\tgrade\n" + "".join(judged), "utf-8")
    first = Run(home, "small@v1")
    qrels.write_text("query_id\tdoc_id\tgrade\n" + "".join(judged[1:]), "utf-8")
    second = Run(home, "small@v1")
    assert first.manifest.evaluation_id != second.manifest.evaluation_id
    found = gating.gate(home, "small@v1")
    assert found.exit_code == 2
    assert "judged documents or chunks changed for 1 queries (q0)" in found.decision.refusals[0]


@pytest.mark.parametrize(
    ("chosen", "gone"),
    [
        ("the lost ones", "evidence"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("any", "evidence"),
                ("the lost ones", "queries and evidence"),
                ("any", "queries and evidence"),
            )
        ),
    ],
)
def test_deleting_a_third_of_the_labels_never_turns_a_failure_into_a_pass(tmp_path, chosen, gone):
    home = home_of(tmp_path)
    folder = write_corpus(home.corpora, documents=N)
    for path in sorted((folder / "documents").iterdir())[:11]:
        path.unlink()
    configure(home, {"min": 0.85})
    run = Run(home, "small@v1")
    assert gating.gate(home, "small@v1").exit_code == 1
    lost = set(run.frame("evidence_fate").filter(~run.frame("evidence_fate")["served"])["query_id"])
    gold = home.corpora / "small" / "gold"
    evidence, queries = lines_of(gold / "evidence.jsonl"), lines_of(gold / "queries.jsonl")
    names = sorted(lost) if chosen == "the lost ones" else random.Random(3).sample([q["query_id"] for q in queries], N)
    deleted = set(names[: round(0.3 * N)])
    write_jsonl(gold / "evidence.jsonl", [row for row in evidence if row["query_id"] not in deleted])
    if "queries" in gone:
        write_jsonl(gold / "queries.jsonl", [row for row in queries if row["query_id"] not in deleted])
    Run(home, "small@v1")
    assert gating.gate(home, "small@v1").exit_code in (1, 2)
    if gone == "evidence":  # the queries are still there: their values could be anything
        configure(home, {"min": 0.85}, min_coverage=0.0)
        assert gating.gate(home, "small@v1", allow=["gold", "rules"]).exit_code in (1, 2)
