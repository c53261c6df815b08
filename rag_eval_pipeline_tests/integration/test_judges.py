"""A judged corpus from end to end: verdicts, daily view, calibration, the mark of who is uncalibrated, and the gate that refuses it."""

import json

import pytest

from rag_eval_pipeline.release import gating
from rag_eval_pipeline_tests.endpoint import instance, serving
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import QUICK, UNPRICED, write_corpus, write_jsonl

pytestmark = pytest.mark.integration
N = 32
RULES = [{"metric": "judge_unsatisfactory", "max": 0.9}]


def opinions(body, schema):
    """Every fourth answer is unsatisfactory; every claim is supported by the first passage."""
    if "score" in schema["properties"]:
        fails = hash_of(body) % 4 == 0
        return {
            "reason": "r",
            "score": 1 if fails else 4,
            "is_unsatisfactory": fails,
            "failure_code": "other" if fails else "none",
        }
    value = instance(schema)
    return {name: {**each, "passages": [1]} for name, each in value.items()} if "c1" in value else value


def hash_of(body):
    return int(body["messages"][0]["content"].split("<<<")[1].split()[0], 16)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    home = home_of(tmp_path_factory.mktemp("judged"))
    with pytest.MonkeyPatch.context() as patch, serving(brain=opinions) as endpoint:
        patch.setenv("OPENAI_API_KEY", "sk-very-secret")
        judge = {"base_url": endpoint.url, "model": "gpt-test", "price_in": 1.0, "price_out": 1.0, "backoff_s": 0.01}
        section = {"verifiers": ["lexical", "llm"], "judge": judge, "probes": 3, "alert_share": 0.05}
        pipeline = {**QUICK, "judging": section}
        write_corpus(home.corpora, documents=N, pipeline=pipeline, gates={"rules": RULES}, **UNPRICED)
        first = Run(home, "small@v1", database=True)
        asked = endpoint.seen.requests
        claims = first.frame("answer_claims").select("answer_id", "claim_id").rows()
        words = ["supported" if n % 3 else "unsupported" for n in range(len(claims))]
        rows = [{"answer_id": a, "claim": c, "verdict": w} for (a, c), w in zip(claims, words, strict=True)]
        write_jsonl(home.corpora / "small" / "gold" / "verdicts.jsonl", rows)
        second = Run(home, "small@v1", database=True)
        yield home, first, second, asked, endpoint.seen.requests


def ask(home, statement):
    import duckdb

    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.sql(statement).pl()


def test_a_new_label_asks_nobody_again(judged):
    _, first, second, asked, then = judged
    assert asked == then > 0
    assert first.hashes["claim_verdicts"] == second.hashes["claim_verdicts"]
    assert "judging" not in second.computed


def test_the_daily_view_counts_every_answer_and_flags_days_above_the_share(judged):
    home, _, second, *_ = judged
    rows = ask(home, "SELECT * FROM judge_daily")
    evals = second.frame("judge_evals")
    assert rows["n"].sum() == evals.height == N
    row = rows.row(0, named=True)
    assert row["mean_score"] == pytest.approx(evals["score"].mean())
    assert row["unsatisfactory_share"] == pytest.approx(evals["is_unsatisfactory"].mean())
    assert (row["alert_share"], row["flagged"]) == (0.05, row["unsatisfactory_share"] > 0.05)
    assert (row["corpus_version"], row["pipeline"], row["judge"]) == ("small@v1", "default", "llm:gpt-test")


def test_figures_carry_the_mark_until_people_labelled_enough(judged):
    _, first, second, *_ = judged
    for run, expected in ((first, False), (second, True)):
        rows = run.frame("judging_quality")
        marks = {json.loads(text)["calibrated"] for text in rows["params"] if "verifier" in text}
        assert marks == {expected}
        answers = run.frame("answering_quality")
        marks = {json.loads(text)["calibrated"] for text in answers["params"] if '"verifier"' in text}
        assert marks == {expected}
    assert not first.frame("judge_calibration")["calibrated"].any()


def test_losses_at_answering_carry_the_mark_wherever_the_waterfall_is_shown(judged):
    from rag_eval_pipeline.orchestration.metadata import waterfall_metadata
    from rag_eval_pipeline.release.reading import Evaluation
    from rag_eval_pipeline.release.report import html_report, served
    from rag_eval_pipeline.release.showing import waterfall_rows

    home, first, second, *_ = judged
    for run, marked in ((first, True), (second, False)):
        evaluation = Evaluation(home, run.manifest)
        rows = waterfall_rows(evaluation, *served(evaluation))
        assert [stage for stage, text in rows.items() if "uncalibrated" in text] == ["answering"] * marked
        page = html_report(evaluation)
        assert ("as told by lexical, uncalibrated" in page) == marked
        assert ("of the recall (lexical, uncalibrated)" in page) == marked
        losses = waterfall_metadata(run.frame("loss_waterfall"), run.subject)["losses"].md_str
        assert ("lexical, uncalibrated" in losses) == marked


def test_the_gate_refuses_an_uncalibrated_judge_unless_told_otherwise(judged):
    home, first, *_ = judged
    name = first.manifest.evaluation_id
    refused = gating.judge(home, "small@v1", evaluation_id=name, allow=["rules", "gold"])
    assert refused.decision.verdict == "missing_evidence"
    assert any("not calibrated" in finding.reason for finding in refused.decision.findings)
    allowed = gating.judge(home, "small@v1", evaluation_id=name, allow=["rules", "gold", "uncalibrated"])
    assert allowed.decision.verdict in ("pass", "inconclusive")


def test_the_key_is_nowhere_in_what_the_run_left(judged):
    home, *_ = judged
    for path in home.root.rglob("*"):
        if path.is_file():
            assert b"sk-very-secret" not in path.read_bytes(), path.name


def test_every_metric_by_query_has_a_row_a_query(judged):
    from rag_eval_pipeline.stages.checks import accounting

    _, _, second, *_ = judged
    outcome = accounting(second.frame("judging_quality"), second.subject)
    assert outcome.passed, outcome.description


def test_the_report_names_judges_and_draws_them(judged):
    from rag_eval_pipeline.release.judges import costs_of, judges_of, pictures_of
    from rag_eval_pipeline.release.reading import Evaluation

    home, _, second, *_ = judged
    evaluation = Evaluation(home, second.manifest)
    rows = {(row["judge"], row["rubric"].split("-")[0]): row for row in judges_of(evaluation)}
    assert set(rows) == {("lexical", "claims"), ("llm:gpt-test", "claims"), ("llm:gpt-test", "answer")}
    assert costs_of(evaluation)[0]["n"] == N
    assert len(pictures_of(evaluation)) >= 2
