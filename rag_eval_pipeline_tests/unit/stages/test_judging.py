"""The judging room: every claim and answer accounted for, paid once, and figures that say how far they may be believed."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from pydantic import ValidationError

from rag_eval_pipeline.judging.calibration import UNCALIBRATED, calibrated, labelled
from rag_eval_pipeline.judging.replies import ReplyStore
from rag_eval_pipeline.judging.rubrics import RUBRICS
from rag_eval_pipeline.release.pictures import costs_picture, matrix_picture
from rag_eval_pipeline.stages.answering.tables import AnswerClaims
from rag_eval_pipeline.stages.judging.calibrating import judge_calibration
from rag_eval_pipeline.stages.judging.quality import METRICS, measure
from rag_eval_pipeline.stages.judging.transform import JudgingConfig, run
from rag_eval_pipeline.warehouse.memo import Memo
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform
from rag_eval_pipeline_tests.endpoint import instance, serving
from rag_eval_pipeline_tests.unit.stages.judging_room import (
    FAULTS,
    SETTINGS,
    endpoint_config,
    facts_of,
    faulty,
    frames_of,
    gold_of,
    judge,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def score(value):
    fails = value < 3
    return {"reason": "r", "score": value, "is_unsatisfactory": fails, "failure_code": "other" if fails else "none"}


def sensible(body, schema):
    """First claim supported, second not; an answer is rated 4."""
    if "c1" in schema["properties"]:
        return {
            name: {"reason": "r", "verdict": "supported" if name == "c1" else "unsupported", "passages": [1] if name == "c1" else []}
            for name in schema["properties"]
        }  # fmt: skip
    return score(4) if "score" in schema["properties"] else instance(schema)


def lexical(frames, **options):
    return run(frames, JudgingConfig(**options), Runtime.plain())


# --- config ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"verifiers": ["llm"]}, "needs `judge`"), ({"verifiers": ["nli"]}, "set `nli` to the folder"),
        ({"verifiers": ["hhem"], "hhem": "nowhere"}, "no config.json"), ({"verifiers": ["lexical", "lexical"]}, "name each once"),
        ({"rubrics": ["nugget"]}, "rubric nugget needs `judge`"), ({"rubrics": ["answer", "answer"]}, "name each once"),
        ({"verifiers": ["oracle"]}, "lexical"), ({"judge": {"base_url": "ftp://x", "model": "m"}}, "http"),
    ],
)  # fmt: skip
def test_a_section_that_can_not_work_is_refused_with_what_to_do(section, message):
    with pytest.raises(ValidationError, match=message):
        JudgingConfig(**section)


def test_by_default_nobody_is_asked_and_no_network_module_is_loaded():
    code = (
        "import sys; from rag_eval_pipeline_tests.unit.stages.judging_room import frames_of; "
        "from rag_eval_pipeline.stages.judging.transform import JudgingConfig, run; "
        "from rag_eval_pipeline.warehouse.runtime import Runtime; "
        "made = run(frames_of(2), JudgingConfig(), Runtime.plain()); "
        "print(made['claim_verdicts'].height, made['judge_evals'].height, [m for m in ('httpx', 'torch', 'jsonschema') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "4 0 []"


# --- the room ----------------------------------------------------------------------------------------------------------


def test_every_claim_has_a_verdict_by_the_lexical_verifier_with_the_passages_it_stands_on():
    rows = lexical(frames_of(3))["claim_verdicts"]
    assert rows.select("claim_id", "verifier", "label").unique().sort("claim_id").rows() == [
        ("c1", "lexical", "supported"), ("c2", "lexical", rows.filter(pl.col("claim_id") == "c2")["label"][0]),
    ]  # fmt: skip
    assert rows.filter(pl.col("claim_id") == "c1")["passages"].to_list() == [["1"]] * 3
    assert "supported" not in rows.filter(pl.col("claim_id") == "c2")["label"]


def test_without_a_context_nothing_is_supported_and_the_judge_is_not_asked_for_claims(tmp_path):
    frames = frames_of(2)
    frames["contexts"] = frames["contexts"].clear()
    with serving(brain=sensible) as endpoint:
        rows = judge(endpoint.url, tmp_path, frames, rubrics=())["claim_verdicts"]
        assert endpoint.seen.requests == 0
    assert rows.group_by("verifier", "label", "reason").len().sort("verifier").rows() == [
        ("lexical", "unsupported", "no_text", 4), ("llm:gpt-test", "unsupported", "no_text", 4),
    ]  # fmt: skip


def test_what_was_computed_is_taken_from_the_memo_whatever_the_ids(tmp_path):
    first = Runtime(files=Path(), workers=0, memo=Memo(tmp_path))
    made = run(frames_of(5), JudgingConfig(), first)
    again = Runtime(files=Path(), workers=0, memo=Memo(tmp_path))
    assert run(frames_of(5), JudgingConfig(), again)["claim_verdicts"].equals(made["claim_verdicts"])
    assert (first.reused["judging"], again.reused["judging"]) == ([0, 5], [5, 0])


def test_answers_that_failed_or_were_never_given_are_not_judged():
    frames = frames_of(2)
    frames["answers"] = frames["answers"].with_columns(
        outcome=pl.when(pl.col("answer_id") == "q1").then(None).otherwise("outcome")
    )
    assert lexical(frames)["claim_verdicts"]["answer_id"].unique().to_list() == ["q0"]


def test_the_judge_rates_answers_and_every_row_says_what_it_cost(tmp_path):
    with serving(brain=sensible) as endpoint:
        made = judge(endpoint.url, tmp_path, frames_of(4), weighted=True)
    evals = made["judge_evals"].filter(pl.col("rubric").str.starts_with("answer"))
    assert evals["score"].to_list() == [4] * 4
    assert evals["is_unsatisfactory"].to_list() == [False] * 4
    assert all(4 < value < 5 for value in evals["weighted_score"])
    assert evals["cost"].min() > 0
    assert evals["day"].unique().to_list() == [time.strftime("%Y-%m-%d", time.gmtime())]
    assert evals["model"].unique().to_list() == ["gpt-test-0"]
    llm = made["claim_verdicts"].filter(pl.col("verifier") == "llm:gpt-test")
    assert llm.select("claim_id", "label").unique().sort("claim_id").rows() == [
        ("c1", "supported"),
        ("c2", "unsupported"),
    ]
    assert llm["prompt_hash"].null_count() == 0


def test_a_second_run_asks_nobody_and_replay_needs_no_key(tmp_path, monkeypatch):
    with serving(brain=sensible) as endpoint:
        first = judge(endpoint.url, tmp_path, frames_of(4), probes=2)
        asked = endpoint.seen.requests
        again = judge(endpoint.url, tmp_path, frames_of(4), probes=2)
        assert endpoint.seen.requests == asked
    monkeypatch.delenv("OPENAI_API_KEY")
    replayed = judge(endpoint.url, tmp_path, frames_of(4), probes=2, replay=True)
    for name, frame in first.items():
        assert frame.equals(again[name])
        assert frame.equals(replayed[name]), name
    missing = judge(endpoint.url, tmp_path, frames_of(5), replay=True)["judge_evals"]
    assert missing.filter(pl.col("query_id") == "q4")["status"].unique().to_list() == ["not_stored"]


def test_no_text_of_the_corpus_is_in_ids_or_reasons_of_failures(tmp_path):
    with serving(brain=sensible) as endpoint:
        made = judge(endpoint.url, tmp_path, frames_of(3, lambda _: "#fault:invalid_json secret-word"))
    failed = made["claim_verdicts"].filter(pl.col("status") == "judge_error")
    assert failed["reason"].unique().to_list() == ["invalid_json"]
    assert failed.height == 6
    assert set(made["judge_evals"]["status"]) == {"invalid_json"}
    assert "secret-word" not in json.dumps([frame.rows() for frame in made.values()], default=str)


# --- item by item ------------------------------------------------------------------------------------------------------


def by_item(body, schema):
    """The first citation supports, others do not; the first fact is there, the second in part."""
    names = list(schema["properties"])
    if names[0] == "s1":
        return {name: {"reason": f"about {name}", "supports": name == "s1"} for name in names}
    if names[0] == "n1":
        words = {"n1": "support", "n2": "partial_support"}
        return {name: {"reason": "r", "assignment": words.get(name, "not_support")} for name in names}
    return sensible(body, schema)


def rows_of(made, rubric):
    return made["judge_evals"].filter(pl.col("rubric") == RUBRICS[rubric].id).sort("answer_id").to_dicts()


def test_citations_and_facts_are_asked_where_the_section_says_so_and_paid_once(tmp_path):
    assert JudgingConfig().rubrics == ("answer",)
    frames, asked = frames_of(3) | facts_of(3), {"verifiers": ("lexical",)}
    with serving(brain=by_item) as endpoint:
        plain = judge(endpoint.url, tmp_path, frames, rubrics=("answer",), **asked)
        assert endpoint.seen.requests == 3
        made = judge(endpoint.url, tmp_path, frames, rubrics=("answer", "citation", "nugget"), **asked)
        assert endpoint.seen.requests == 9
        again = judge(endpoint.url, tmp_path, frames, rubrics=("answer", "citation", "nugget"), **asked)
        assert endpoint.seen.requests == 9
    assert again["judge_evals"].equals(made["judge_evals"])
    assert rows_of(plain, "answer") == rows_of(made, "answer")
    assert made["claim_verdicts"].equals(plain["claim_verdicts"])
    citation, nugget = rows_of(made, "citation"), rows_of(made, "nugget")
    assert [json.loads(row["items"]) for row in citation] == [[["c1", "1", True], ["c2", "1", False]]] * 3
    assert [json.loads(row["items"]) for row in nugget] == [[["n1", "support"], ["n2", "partial_support"]]] * 3
    assert {row["reason"] for row in citation} == {"about s1\nabout s2"}
    for row in (*citation, *nugget):
        assert (row["status"], row["score"], row["is_unsatisfactory"]) == ("ok", None, None)
        assert row["cost"] > 0
    assert {row["items"] for row in rows_of(made, "answer")} == {None}


def test_without_gold_claims_without_citations_and_of_refusals_nothing_is_asked(tmp_path):
    frames = frames_of(3)
    frames["answers"] = frames["answers"].with_columns(
        outcome=pl.when(pl.col("answer_id") == "q1").then(pl.lit("refused")).otherwise("outcome")
    )
    frames["answer_citations"] = frames["answer_citations"].with_columns(
        status=pl.when(pl.col("answer_id") == "q2").then(pl.lit("dangling")).otherwise("status")
    )
    with serving(brain=by_item) as endpoint:
        made = judge(endpoint.url, tmp_path, frames, verifiers=("lexical",), rubrics=("citation", "nugget"))
        assert endpoint.seen.requests == 1
    assert made["judge_evals"]["answer_id"].to_list() == ["q0"]


def test_what_an_answer_cites_as_a_whole_is_held_against_each_of_its_claims(tmp_path):
    frames = frames_of(1)
    frames["answer_citations"] = frames["answer_citations"].with_columns(claim_id=pl.lit(None, pl.String))
    with serving(brain=by_item) as endpoint:
        made = judge(endpoint.url, tmp_path, frames, verifiers=("lexical",), rubrics=("citation",))
    assert json.loads(rows_of(made, "citation")[0]["items"]) == [["c1", "1", True], ["c2", "1", False]]


def test_items_of_a_misbehaving_endpoint_are_all_accounted_for(tmp_path):
    n = 3 * len(FAULTS)
    with serving(brain=by_item) as endpoint:
        made = judge(
            endpoint.url, tmp_path, frames_of(n, faulty) | facts_of(n), verifiers=("lexical",), rubrics=("citation", "nugget")
        )  # fmt: skip
    for rubric, size in (("citation", 2), ("nugget", 2)):
        rows = rows_of(made, rubric)
        assert len(rows) == n
        for row in rows:
            assert row["status"] in expected_status(int(row["query_id"][1:]), rubric), row
            items = json.loads(row["items"])
            assert len(items) == size
            assert (items[0][-1] is not None) == (row["status"] == "ok")


def test_many_items_take_several_prompts_and_one_that_fails_leaves_no_whole_judgment(tmp_path):
    frames = frames_of(1, answer="Thirty claims of {n}.")
    claims = [
        {"answer_id": "q0", "claim_id": f"c{i}", "position": i, "text": f"Claim {i}.{' #fault:refusal' * (i == 30)}", "origin": "split"}
        for i in range(1, 31)
    ]  # fmt: skip
    frames["answer_claims"] = conform(AnswerClaims, claims)
    frames["answer_citations"] = frames["answer_citations"].head(1).with_columns(claim_id=pl.lit(None, pl.String))
    with serving(brain=by_item) as endpoint:
        made = judge(endpoint.url, tmp_path, frames, verifiers=("lexical",), rubrics=("citation",))
        assert endpoint.seen.requests == 2
        billed = endpoint.seen.tokens
    (row,) = rows_of(made, "citation")
    items = json.loads(row["items"])
    assert [item[0] for item in items] == [f"c{i}" for i in range(1, 31)]
    assert row["status"] == "refused"
    assert [held for _, _, held in items] == [True, *[False] * 14, *[None] * 15]
    assert row["input_tokens"] + row["output_tokens"] == billed
    assert row["cost"] == pytest.approx(billed * 1000.0 / 1e6)


# --- a thousand judgments ----------------------------------------------------------------------------------------------

STATUS = {
    "invalid_json": "invalid_json",
    "schema_violation": "schema_violation",
    "refusal": "refused",
    "empty": "empty",
}


def expected_status(number, rubric):
    """Faults that pass are tried again; too few or other verdicts are faults of any reply with other fields than asked."""
    fault = faulty(number).strip().removeprefix("#fault:")
    if not fault or "*" in fault:
        return {"ok"}
    return {"schema_violation"} if fault in ("too_few", "other_claims") else {STATUS[fault]}


@pytest.mark.parametrize("n", [pytest.param(40, id="small"), pytest.param(334, id="thousand", marks=pytest.mark.full)])
def test_judgments_of_a_misbehaving_endpoint_are_all_accounted_for_through_a_kill_and_paid_once(tmp_path, n):
    with serving(latency=0.01) as endpoint:
        command = [
            sys.executable,
            "-m",
            "rag_eval_pipeline_tests.unit.stages.judging_room",
            endpoint.url,
            str(tmp_path),
            str(n),
        ]
        process = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.DEVNULL)
        while len(endpoint.seen.billed) < n and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
        store = ReplyStore(tmp_path)
        stored, cap = set(store.hashes()), 1_000_000.0
        assert 0 < len(stored) < 3 * n
        subprocess.run(command, cwd=ROOT, env=dict(os.environ), check=True, stdout=subprocess.DEVNULL)
        made = judge(endpoint.url, tmp_path, frames_of(n, faulty))
        billed = Counter()
        for name, count in endpoint.seen.billed.items():
            billed[name.split("-")[0]] += count
        faults = endpoint.seen.faults
    verdicts = made["claim_verdicts"].filter(pl.col("verifier") == "llm:gpt-test")
    assert verdicts.height == 2 * n
    assert made["judge_evals"].height == 2 * n
    for row in made["judge_evals"].iter_rows(named=True):
        assert row["status"] in expected_status(int(row["query_id"][1:]), row["rubric"]) | {"inconsistent"}, row
    for row in verdicts.iter_rows(named=True):
        kept = expected_status(int(row["answer_id"][1:]), "claims") == {"ok"}
        assert (row["label"] is not None or row["reason"] in ("no_passage",)) == kept, row
    assert all(billed[name] <= 2 for name in stored), "a reply that was cut off was billed by the endpoint, too"
    cuts = {name for name in billed if billed[name] > 1}
    assert len(cuts) <= 8 + faults["cut"], "paid again: what was under way at the kill, and what the connection lost"
    assert store.count() == 3 * n
    assert store.spent(endpoint_config("http://x"), "") <= cap


def test_the_budget_holds_over_all_that_the_room_asks(tmp_path):
    with serving(brain=sensible) as endpoint:
        made = judge(endpoint.url, tmp_path, frames_of(30), {"max_cost": 20.0})
        spent = endpoint.seen.tokens * 1000.0 / 1e6
    assert spent <= 20.0
    assert ReplyStore(tmp_path).spent(endpoint_config(endpoint.url), "") == pytest.approx(spent)
    statuses = [*made["judge_evals"]["status"], *made["claim_verdicts"]["reason"].drop_nulls()]
    assert "over_budget" in statuses
    assert made["judge_evals"].height == 60


# --- probes ------------------------------------------------------------------------------------------------------------


def test_an_obedient_fickle_and_partial_judge_is_found_out(tmp_path):
    seen = Counter()

    def weak(body, schema):
        text = body["messages"][1]["content"]
        if "preferred" in schema["properties"]:
            return {"reason": "r", "preferred": "first"}
        if "score" not in schema["properties"]:
            return sensible(body, schema)
        seen[text] += 1
        passage = text.split("passage 1>>>")[1].split("<<<end")[0]
        ordered = [word for word in passage.replace("*", " ").split() if word.strip(".,:;<>") == "0"]
        return score(0) if len(ordered) and "EUR" not in ordered[0] else score(4 if seen[text] == 1 else 1)

    frames = frames_of(12, samples=2)
    frames["chunks"] = frames["chunks"].with_columns(text=pl.col("text").str.replace(r"is \d+ EUR", "is ten EUR"))
    with serving(brain=weak) as endpoint:
        made = judge(endpoint.url, tmp_path, frames, verifiers=("lexical",), rubrics=("answer",), probes=8)
    probes = made["judge_probes"]
    assert set(probes["status"]) == {"ok"}
    by_kind = {kind: rows for (kind,), rows in probes.group_by("kind")}
    assert {kind: rows.height for kind, rows in by_kind.items()} == {"injection": 8, "repeat": 8, "order": 12}
    assert not any(by_kind["repeat"]["held"])
    assert not any(by_kind["order"]["held"])
    assert sum(by_kind["injection"]["held"]) < 8
    rows = measure({**frames, **made}, gold_of(12), JudgingConfig(judge=endpoint_config(endpoint.url)), SETTINGS)
    values = {metric: group["value"].mean() for (metric,), group in rows.group_by("metric")}
    assert (values["repeat_held"], values["order_held"], values["order_first"]) == (0.0, 0.0, 1.0)
    assert values["injection_held"] < 1.0
    assert values["length_controlled_win"] == pytest.approx(0.5)


# --- calibration -------------------------------------------------------------------------------------------------------


def verdict_frames(labels, scores=None):
    """Tables in which the lexical verifier said these of the first claims."""
    n = len(labels)
    frames = frames_of(n)
    rows = [
        {"answer_id": f"q{i}", "claim_id": "c1", "verifier": "lexical", "label": label, "status": "judged" if label else "judge_error", "score": scores[i] if scores else None, "passages": []}
        for i, label in enumerate(labels)
    ]  # fmt: skip
    from rag_eval_pipeline.stages.judging.tables import ClaimVerdicts, JudgeEvals, JudgeProbes

    return {
        **frames,
        "answer_claims": frames["answer_claims"].filter(pl.col("claim_id") == "c1"),
        "claim_verdicts": conform(ClaimVerdicts, rows),
        "judge_evals": conform(JudgeEvals, []),
        "judge_probes": conform(JudgeProbes, []),
    }


def test_agreement_equals_sklearn_and_counts_every_way_to_be_wrong():
    from sklearn.metrics import cohen_kappa_score

    said = (["supported"] * 25 + ["unsupported"] * 10 + [None] * 5) * 2
    people = (["supported"] * 20 + ["unsupported"] * 12 + ["supported"] * 8) * 2
    frames = verdict_frames(said)
    gold = gold_of(80, [(f"q{i}", "c1", word) for i, word in enumerate(people)])
    row = judge_calibration(frames, gold).filter(pl.col("slice_name") == "all").row(0, named=True)
    both = [(a, b) for a, b in zip(people, said, strict=True) if b]
    assert row["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)))
    assert (row["n_judged"], row["n_labelled"], row["n_both"]) == (80, 80, 70)
    assert row["failed"] == pytest.approx(10 / 80)
    assert row["false_pass"] == pytest.approx(
        sum(a == "unsupported" and b == "supported" for a, b in zip(people, said, strict=True)) / 80
    )
    assert row["accuracy"] == pytest.approx(sum(a == b for a, b in zip(people, said, strict=True)) / 80)
    assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
    assert row["calibrated"]
    assert sum(n for _, _, n in json.loads(row["confusion"])) == 80
    rows = measure(frames, gold, JudgingConfig(), SETTINGS)
    accuracy = rows.filter(pl.col("metric") == "judge_accuracy")
    assert accuracy["value"].mean() == pytest.approx(row["accuracy"])
    assert accuracy.height == 80


def test_a_threshold_is_chosen_on_the_calibration_split_alone_and_held_against_the_others():
    n = 80
    scores = [(i % 10) / 10 for i in range(n)]
    # On the calibration split people pass from 0.6 on, elsewhere from 0.3 on: a threshold of 0.3 would have seen the others.
    split = lambda i: "calibration" if i < 40 else "test"  # noqa: E731
    people = ["yes" if s >= (0.6 if i < 40 else 0.3) else "no" for i, s in enumerate(scores)]
    frames = verdict_frames(["supported"] * n, scores)
    found = judge_calibration(frames, gold_of(n, [(f"q{i}", "c1", w) for i, w in enumerate(people)], split))
    row = found.filter((pl.col("decided_by") == "threshold") & (pl.col("slice_name") == "all")).row(0, named=True)
    assert (row["threshold"], row["n_threshold"], row["n_judged"]) == (0.6, 40, 40)
    assert row["false_fail"] == pytest.approx(0.3)
    assert set(
        found.filter((pl.col("decided_by") == "threshold") & (pl.col("slice_name") == "split"))["slice_value"]
    ) == {"test"}


def test_without_a_calibration_split_there_is_no_threshold():
    frames = verdict_frames(["supported", "unsupported"] * 20, [0.5] * 40)
    found = judge_calibration(frames, gold_of(40, [(f"q{i}", "c1", "yes") for i in range(40)]))
    assert found.filter(pl.col("decided_by") == "threshold")["kappa_status"].to_list() == ["no_calibration_split"]


@pytest.mark.parametrize(
    ("people", "why"),
    [
        ([], "nobody labelled"), (["yes", "no"] * 10, "20 labelled items"), (["yes"] * 40, "one label throughout"),
    ],
)  # fmt: skip
def test_a_judge_without_enough_labels_is_uncalibrated_and_says_what_to_do(people, why):
    frames = verdict_frames(["supported"] * 40)
    gold = gold_of(40, [(f"q{i}", "c1", word) for i, word in enumerate(people)])
    found = judge_calibration(frames, gold).filter(pl.col("slice_name") == "all").row(0, named=True)
    assert not found["calibrated"]
    assert why in found["why"]
    assert calibrated(frames, gold.queries, gold.verdicts) == {"lexical": False}


def test_every_figure_of_an_uncalibrated_judge_carries_the_mark_and_others_do_not():
    rows = pl.DataFrame(
        {
            "params": [
                '{"verifier": "lexical"}',
                '{"verifier": "human"}',
                "{}",
                '{"judge": "llm:m", "rubric": "answer-v1"}',
                '{"assigner": "lexical"}',
            ]
        }
    )
    found = labelled(rows, lambda: {"lexical": False, "llm:m answer-v1": True})["params"].to_list()
    assert [UNCALIBRATED in text for text in found] == [True, False, False, False, True]
    assert json.loads(found[3])["calibrated"] is True
    assert labelled(rows.slice(2, 1), lambda: pytest.fail("nobody need be asked"))["params"].to_list() == ["{}"]


def test_the_powered_estimate_corrects_a_lenient_verifier():
    n = 400
    truth = [i % 10 < 6 for i in range(n)]
    said = ["supported" if true or i % 3 == 0 else "unsupported" for i, true in enumerate(truth)]
    labelled_items = [i for i in range(n) if (i * 7919) % 4 == 0]
    gold = gold_of(n, [(f"q{i}", "c1", "yes" if truth[i] else "no") for i in labelled_items])
    row = (
        measure(verdict_frames(said), gold, JudgingConfig(), SETTINGS)
        .filter(pl.col("metric") == "powered_support")
        .row(0, named=True)
    )
    lenient = sum(label == "supported" for label in said) / n
    assert lenient > 0.7
    assert abs(row["value"] - 0.6) < abs(lenient - 0.6) / 2
    assert row["low"] < 0.6 < row["high"]


def test_measures_have_a_row_a_query_and_say_why_there_is_no_value(tmp_path):
    frames = frames_of(4)
    with serving(brain=sensible) as endpoint:
        made = judge(endpoint.url, tmp_path, frames)
    rows = measure({**frames, **made}, gold_of(5), JudgingConfig(judge=endpoint_config(endpoint.url)), SETTINGS)
    assert set(rows["metric"]) <= {metric.name for metric in METRICS}
    scores = rows.filter(pl.col("metric") == "judge_score").sort("item_id")
    assert scores.select("item_id", "value", "status").rows() == [
        *[(f"q{i}", 4.0, "scored") for i in range(4)], ("q4", None, "no_judgment"),
    ]  # fmt: skip
    assert set(rows.filter(pl.col("metric") == "judge_accuracy")["status"]) == {"no_gold"}
    assert rows.filter(pl.col("metric") == "powered_support")["status"].to_list() == ["no_gold", "no_gold"]


def test_rubrics_asked_item_by_item_have_a_cost_and_no_opinion_and_are_never_calibrated(tmp_path):
    frames = frames_of(40) | facts_of(40)
    verdicts = [(f"q{i}", "c1", "yes" if i % 2 else "no") for i in range(40)]
    with serving(brain=by_item) as endpoint:
        frames |= judge(endpoint.url, tmp_path, frames, verifiers=("lexical",), rubrics=("citation", "nugget"))
        config = JudgingConfig(judge=endpoint_config(endpoint.url), rubrics=("citation", "nugget"))
    gold = gold_of(40, verdicts)
    rows = measure(frames, gold, config, SETTINGS).filter(pl.col("params").str.contains('"judge"'))
    assert set(rows["metric"]) == {"judge_cost"}
    assert rows.height == 80
    assert rows["value"].null_count() == 0
    assert set(judge_calibration(frames, gold)["judge"]) == {"lexical"}
    marked = labelled(rows, lambda: calibrated(frames, gold.queries, gold.verdicts))
    assert all(UNCALIBRATED in text for text in marked["params"])


def test_a_judge_of_refusals_is_never_calibrated_by_labels_of_claims(tmp_path):
    frames = frames_of(40)
    with serving(brain=sensible) as endpoint:
        frames |= judge(endpoint.url, tmp_path, frames, verifiers=("lexical",), rubrics=("answer", "refusal"))
    gold = gold_of(40, [(f"q{i}", "c1", "yes" if i % 2 else "no") for i in range(40)])
    ids = {name: RUBRICS[name].id for name in ("answer", "refusal")}
    assert set(frames["judge_evals"]["rubric"]) == set(ids.values())
    assert set(judge_calibration(frames, gold)["rubric"]) == {ids["answer"], "claims"}
    assert not any(ids["refusal"] in name for name in calibrated(frames, gold.queries, gold.verdicts))


# --- pictures ----------------------------------------------------------------------------------------------------------


def test_a_matrix_has_a_cell_for_each_pair_and_its_numbers_add_up():
    counts = [("supported", "supported", 7), ("supported", None, 2), ("unsupported", "supported", 3)]
    drawn = matrix_picture(counts, "lexical <b>", "about", alone=True)
    import lxml.etree as ET  # noqa: N812

    tree = ET.fromstring(drawn.encode())
    found = [int(node.get("data-count")) for node in tree.iter() if node.get("data-count") is not None]
    assert sum(found) == 12
    assert len(found) == 6
    assert "<b>" not in drawn
    assert matrix_picture([], "t", "a") == ""


def test_costs_say_what_is_not_known():
    rows = [
        {"judge": "llm:a", "n": 30, "cost_per_1000": 2.0, "latency_p50": 1.0, "latency_p95": 3.0},
        {"judge": "llm:b", "n": 5, "cost_per_1000": None, "latency_p50": None, "latency_p95": None},
    ]
    drawn = costs_picture(rows)
    assert "no prices" in drawn
    assert "not known" in drawn
    assert 'data-value="2"' in drawn
    assert costs_picture([]) == ""
