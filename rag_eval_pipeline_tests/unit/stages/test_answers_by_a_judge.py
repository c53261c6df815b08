"""Citations and gold claims as a judge sees them, from the endpoint to the figure: each with its value, or with the reason for none."""

import re

import polars as pl
import pytest

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.rubrics import CITATION, NUGGET
from rag_eval_pipeline.stages.judging.transform import JudgingConfig, run
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.endpoint import serving
from rag_eval_pipeline_tests.unit.stages.answers_made_by_hand import (
    FEES,
    LEAVE,
    answers,
    gold,
    measured,
    room,
    with_evidence,
    world,
)

DAYS = "Up to five unused days may be carried over."
FEE = "The card fee is 8 EUR."
SECTION = re.compile(r"<<<\w+ ([^>]+)>>>\n(.*?)\n<<<end", re.DOTALL)
QUERIES = {f"q{n}": "x" for n in range(1, 8)}
LINES = (
    {"query_id": "q1", "answer": f"{DAYS} {FEE}", "claims": [{"claim_id": "a", "text": DAYS}, {"claim_id": "b", "text": FEE}],
     "citations": [{"id": "leave", "claim_id": "a"}, {"id": "leave", "claim_id": "b"}]},
    {"query_id": "q2", "answer": FEE, "citations": ["fees", "nowhere"]},
    {"query_id": "q3", "answer": "I don't know.", "citations": ["fees"]},
    {"query_id": "q4", "answer": f"{FEE} #fault:invalid_json", "citations": ["fees"]},
    {"query_id": "q5", "answer": FEE},
    {"query_id": "q6", "answer": FEE, "citations": ["nowhere"]},
)  # fmt: skip
CLAIMS = [
    claim
    for query in QUERIES
    if query != "q5"
    for claim in ((query, "n1", FEE, [], True), (query, "n2", DAYS, [], False))
]


def reader(body, schema):
    """A judge that takes words for what they say: what stands in the passage or the answer is there."""
    told = dict(SECTION.findall(body["messages"][1]["content"]))
    found = {}
    for name in schema["properties"]:
        if name.startswith("s"):
            held = told[f"citation {name}: claim"] in told[f"citation {name}: passage"]
            found[name] = {"reason": "r", "supports": held}
        else:
            held = told[f"fact {name}"] in told["answer"]
            found[name] = {"reason": "r", "assignment": "support" if held else "not_support"}
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is measured, with the judge's rows by rubric."""
    frames = room(world(**QUERIES) | {"output:answers": answers(*LINES)}, answerer="import")
    frames = with_evidence(frames, **dict.fromkeys(QUERIES, DAYS))
    labels = gold(dict.fromkeys(QUERIES, True), CLAIMS)
    with serving(brain=reader) as endpoint:
        section = {
            "judge": {"base_url": endpoint.url, "model": "m", "api_key_env": None}, "rubrics": ["citation", "nugget"],
            "verifiers": [],
        }  # fmt: skip
        runtime = Runtime(files=tmp_path_factory.mktemp("x"), workers=0, replies=tmp_path_factory.mktemp("replies"))
        shown = {"nuggets": labels.claims.select("query_id", "claim_id", "text")}
        made = run(frames | shown, JudgingConfig.model_validate(section), runtime)
    whole = frames | made
    without = whole | {"judge_evals": made["judge_evals"].clear()}
    settings = Settings.model_validate({"pipeline": {"judging": section}})
    return measured(whole, labels, settings), measured(without, labels, settings), measured(whole, labels)


def of(found, metric, rubric):
    return {query: found[metric, query, "llm:m", rubric.id] for query in QUERIES}


def test_citations_are_right_where_the_judge_finds_the_claim_in_the_passage(found):
    nothing = {"q3": (None, "refused"), "q7": (None, "no_answer"), "q4": (None, "invalid_json")}
    assert of(found[0], "citation_precision", CITATION) == {
        "q1": (0.5, "scored"), "q2": (0.5, "scored"), "q5": (None, "none_cited"), "q6": (0.0, "scored"), **nothing,
    }  # fmt: skip
    assert of(found[0], "citation_recall", CITATION) == {
        "q1": (0.5, "scored"), "q2": (1.0, "scored"), "q5": (0.0, "scored"), "q6": (0.0, "scored"), **nothing,
    }  # fmt: skip


def test_gold_claims_are_held_where_the_judge_finds_them_in_the_answer(found):
    nothing = {
        "q3": (0.0, "refused"), "q7": (0.0, "no_answer"), "q4": (None, "invalid_json"), "q5": (None, "no_gold"),
    }  # fmt: skip
    assert of(found[0], "nugget_vital", NUGGET) == {
        **dict.fromkeys(("q1", "q2", "q6"), (1.0, "scored")), **nothing,
    }  # fmt: skip
    assert of(found[0], "nugget_all", NUGGET) == {
        "q1": (1.0, "scored"), **dict.fromkeys(("q2", "q6"), (pytest.approx(2 / 3), "scored")), **nothing,
    }  # fmt: skip


def test_what_was_asked_for_and_is_not_there_is_no_judgment(found):
    for metric, rubric in (("citation_precision", CITATION), ("nugget_vital", NUGGET)):
        assert of(found[1], metric, rubric)["q1"] == (None, "no_judgment")
    assert of(found[1], "citation_recall", CITATION)["q5"] == (0.0, "scored"), "nothing was to be asked"


def test_where_corpus_yaml_does_not_ask_for_it_there_are_no_rows(found):
    assert [key for key in found[2] if "llm:m" in key] == []
    assert found[2]["nugget_vital", "q1"] == found[0]["nugget_vital", "q1"], "the lexical verifier's"


def test_the_judge_sees_claims_passages_and_gold_claims_and_no_label(tmp_path):
    frames = room(world(q1="x") | {"output:answers": answers(LINES[0])}, answerer="import")
    labels = gold({"q1": True}, CLAIMS[:2])
    with serving(brain=reader, keep=True) as endpoint:
        section = {
            "judge": {"base_url": endpoint.url, "model": "m", "api_key_env": None},
            "rubrics": ["citation", "nugget"],
        }
        shown = {"nuggets": labels.claims.select("query_id", "claim_id", "text")}
        run(frames | shown, JudgingConfig.model_validate(section), Runtime(files=tmp_path, workers=0))
        texts = [body["messages"][1]["content"] for body in endpoint.seen.bodies]
    told = [dict(SECTION.findall(text)) for text in texts]
    assert sorted(tuple(sorted(sections)) for sections in told) == [
        ("answer", "fact n1", "fact n2"),
        ("citation s1: claim", "citation s1: passage", "citation s2: claim", "citation s2: passage"),
    ]
    citations = next(sections for sections in told if "answer" not in sections)
    assert set(citations.values()) == {DAYS, FEE, LEAVE}
    assert FEES not in citations.values(), "what is not cited is not shown"


def test_the_same_facts_by_another_order_of_rows_are_the_same_judgments(tmp_path):
    """What is stored is found again: prompts don't depend on the order in which gold was written."""
    frames = room(world(q1="x") | {"output:answers": answers(LINES[0])}, answerer="import")
    facts = gold({"q1": True}, CLAIMS[:2]).claims.select("query_id", "claim_id", "text")
    with serving(brain=reader) as endpoint:
        section = {"judge": {"base_url": endpoint.url, "model": "m", "api_key_env": None}, "rubrics": ["nugget"]}
        runtime = Runtime(files=tmp_path, workers=0, replies=tmp_path / "replies")
        config = JudgingConfig.model_validate(section)
        one = run(frames | {"nuggets": facts}, config, runtime)
        other = run(frames | {"nuggets": facts.sort(pl.col("claim_id"), descending=True)}, config, runtime)
        assert endpoint.seen.requests == 1
    assert one["judge_evals"].equals(other["judge_evals"])
