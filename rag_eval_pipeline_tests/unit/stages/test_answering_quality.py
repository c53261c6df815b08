"""Measures of answers on tables: each names its fault, keeps its own denominator, and says why it has no value."""

import json
from statistics import mean

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.settings import Ledger, Settings
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.refusing import refusal_scores
from rag_eval_pipeline.stages.answering.evidence import trace
from rag_eval_pipeline.stages.answering.quality import METRICS, measure
from rag_eval_pipeline.stages.answering.transform import AnsweringConfig
from rag_eval_pipeline_tests.unit.stages.answers_made_by_hand import (
    FEES,
    LEAVE,
    answers,
    contexts,
    gold,
    measured,
    room,
    verdicts,
    whole,
    with_evidence,
    world,
)
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import pieces

DAYS = "Up to five unused days may be carried over."
FEE = "The card fee is 8 EUR."
CLAIMS = (("q1", "c1", DAYS, ["e1"], True), ("q1", "c2", "They must be taken by 31 March.", ["leave"], False))
RIGHT = {"q1": ["five days"], "q2": ["8 EUR"]}


def told(*lines, labels=None, evidence=None, judged=True, **queries):
    """What is measured of imported answers to q1 (leave) and q2 (fees), or to other queries."""
    asked = queries or {"q1": "How many unused days may be carried over?", "q2": "What is the card fee?"}
    frames = room(world(**asked) | {"output:answers": answers(*lines)}, answerer="import")
    frames = with_evidence(frames, **(evidence if evidence is not None else {"q1": DAYS, "q2": FEE}))
    if judged:
        frames["claim_verdicts"] = verdicts(frames)
    return measured(frames, labels or gold(dict.fromkeys(asked, True), CLAIMS if "q1" in asked else (), RIGHT))


GOOD = {"query_id": "q1", "answer": LEAVE, "citations": ["leave"], "confidence": 0.9}


def test_a_good_answer_is_good_by_every_measure():
    found = told(GOOD)
    ones = (
        "evidence_availability", "evidence_used", "faithfulness", "atomic_facts", "citation_precision", "citation_recall",
        "sources_shown", "nugget_vital", "nugget_all", "numeric_agreement", "negation_agreement", ("answer_right", "all_supported"),
    )  # fmt: skip
    for name in ones:
        metric, *more = name if isinstance(name, tuple) else (name,)
        assert found[metric, "q1", *more] == (1.0, "scored"), name
    for metric in (
        "unsupported_evidence_absent",
        "unsupported_evidence_ignored",
        "asserted_without_support",
        "dangling_citations",
        "unseen_entities",
        "false_refusal",
    ):
        assert found[metric, "q1"] == (0.0, "scored"), metric
    assert found["citation_coverage", "q1"] == (0.5, "scored")
    assert found["exact_match", "q1"] == (0.0, "scored")
    assert 0 < found["token_f1", "q1"][0] < 1
    assert found["answer_brier", "q1", "all_supported"] == (pytest.approx(0.01), "scored")
    assert found["refusal_recall", "q1"] == (None, "nothing_to_refuse")


def test_a_query_without_an_answer_scores_nothing_against_gold_and_has_no_other_value():
    found = told(GOOD)
    for metric in (
        "faithfulness",
        "citation_precision",
        "sources_shown",
        "answer_confidence",
        "unseen_entities",
        "refusal_rate",
    ):
        assert found[metric, "q2"] == (None, "no_answer"), metric
    for metric in ("exact_match", "token_f1", "numeric_agreement", "negation_agreement"):
        assert found[metric, "q2"] == (0.0, "no_answer"), metric
    assert found["evidence_used", "q2"] == (0.0, "scored")
    assert found["false_refusal", "q2"] == (0.0, "no_answer")


def test_a_fabricated_number_is_unsupported_though_the_evidence_was_there():
    found = told({"query_id": "q2", "answer": "The card fee is 12 EUR.", "citations": ["fees"]})
    assert found["faithfulness", "q2"] == (0.0, "scored")
    assert found["unsupported_evidence_ignored", "q2"] == (1.0, "scored")
    assert found["unsupported_evidence_absent", "q2"] == (0.0, "scored")
    assert found["numeric_agreement", "q2"] == (0.0, "scored")
    assert found["asserted_without_support", "q2"] == (1.0, "scored")
    assert found["citation_precision", "q2"] == (0.0, "scored")


def test_an_invented_citation_counts_in_precision_and_recall_and_is_dangling():
    found = told(
        {"query_id": "q1", "answer": DAYS, "citations": ["handbook"]},
        {"query_id": "q2", "answer": FEE, "citations": ["fees", "handbook"]},
    )
    assert (found["citation_precision", "q1"], found["citation_recall", "q1"]) == ((0.0, "scored"), (0.0, "scored"))
    assert (found["citation_precision", "q2"], found["citation_recall", "q2"]) == ((0.5, "scored"), (1.0, "scored"))
    assert found["dangling_citations", "q1"] == found["dangling_citations", "q2"] == (1.0, "scored")
    assert found["sources_shown", "q1"] == (0.0, "scored")


def test_ignored_evidence_was_there_and_not_used():
    found = told({"query_id": "q1", "answer": "Most firms decide this case by case."})
    assert found["evidence_used", "q1"] == (0.0, "scored")
    assert found["unsupported_evidence_ignored", "q1"] == (1.0, "scored")
    assert found["citation_precision", "q1"] == (None, "none_cited")
    assert found["citation_recall", "q1"] == (0.0, "scored")


def test_a_wrong_refusal_and_an_answer_out_of_scope_stand_in_measures_of_their_own():
    found = told(
        {"query_id": "q1", "answer": "I don't know."}, {"query_id": "q3", "answer": "The pool opens at 9."}, {"query_id": "q4", "answer": "I don't know."},
        labels=gold({"q1": True, "q3": False, "q4": False}, CLAIMS, RIGHT), evidence={"q1": DAYS},
        q1="How many days?", q3="When does the pool open?", q4="Who won?",
    )  # fmt: skip
    assert (found["false_refusal", "q1"], found["refusal_precision", "q1"]) == ((1.0, "scored"), (0.0, "scored"))
    assert found["nugget_vital", "q1"] == (0.0, "refused")
    assert found["token_f1", "q1"] == (0.0, "refused")
    assert found["faithfulness", "q1"] == (None, "refused")
    assert found["refusal_recall_out_of_scope", "q3"] == (0.0, "scored")
    assert found["refusal_recall_retrieval_miss", "q3"] == (None, "nothing_to_refuse")
    assert found["asserted_without_support", "q3"] == (1.0, "scored")
    assert found["unsupported_evidence_absent", "q3"] == (1.0, "scored")
    assert (found["refusal_recall", "q4"], found["refusal_precision", "q4"]) == ((1.0, "scored"), (1.0, "scored"))


def missed(said):
    """Of a query whose evidence is not in its context."""
    frames = room(
        world(q1="How many days?") | {"output:answers": answers({"query_id": "q1", "answer": said})}, answerer="import"
    )
    frames = with_evidence(frames, q1=DAYS)
    frames["contexts"] = contexts(("q1", "fees::0", 0, len(FEES)))
    frames["claim_verdicts"] = verdicts(frames)
    return measured(frames, gold({"q1": True}, CLAIMS, RIGHT))


def test_a_miss_of_retrieval_should_be_refused_and_is_told_from_what_nothing_answers():
    found = missed("I don't know.")
    assert found["refusal_recall_retrieval_miss", "q1"] == (1.0, "scored")
    assert found["refusal_recall_out_of_scope", "q1"] == (None, "nothing_to_refuse")
    assert found["evidence_availability", "q1"] == (0.0, "scored")
    assert found["evidence_used", "q1"] == (None, "evidence_absent")
    said = missed("Seven days may be carried over.")
    assert said["unsupported_evidence_absent", "q1"] == (1.0, "scored")
    assert said["unsupported_evidence_ignored", "q1"] == (0.0, "scored")
    assert said["refusal_recall_retrieval_miss", "q1"] == (0.0, "scored")


def test_an_empty_answer_is_no_refusal():
    found = told({"query_id": "q1", "answer": ""})
    assert found["refusal_rate", "q1"] == (0.0, "scored")
    assert found["refusal_precision", "q1"] == (None, "not_refused")
    assert found["false_refusal", "q1"] == (0.0, "empty")
    assert found["faithfulness", "q1"] == (None, "empty")


def test_padding_cannot_raise_atomic_facts_though_it_raises_faithfulness():
    lie = "The card fee is 12 EUR."
    once = told({"query_id": "q2", "answer": f"{FEE} {lie}"})
    padded = told({"query_id": "q2", "answer": f"{FEE} {lie} The fee is 8 EUR. A card fee of 8 EUR is the fee."})
    assert once["faithfulness", "q2"][0] == once["atomic_facts", "q2"][0] == 0.5
    assert padded["faithfulness", "q2"][0] > 0.5
    assert padded["atomic_facts", "q2"][0] <= 0.5


def test_verdicts_that_are_not_one_a_claim_are_a_judge_error_and_never_a_pass():
    frames = room(world(q1="x") | {"output:answers": answers({"query_id": "q1", "answer": LEAVE})}, answerer="import")
    frames = with_evidence(frames, q1=DAYS)
    full = verdicts(frames)
    for broken in (full.head(1), full.with_columns(label=pl.lit(None, pl.String), status=pl.lit("judge_error"))):
        found = measured(frames | {"claim_verdicts": broken}, gold({"q1": True}, CLAIMS, RIGHT))
        for metric in ("faithfulness", "atomic_facts", "asserted_without_support", "unsupported_evidence_ignored"):
            assert found[metric, "q1"] == (None, "judge_error"), metric


def test_each_verifier_has_its_own_rows_and_one_that_names_no_passage_judges_no_citation():
    frames = room(
        world(q1="x") | {"output:answers": answers({"query_id": "q1", "answer": DAYS, "citations": ["leave"]})},
        answerer="import",
    )
    frames = with_evidence(frames, q1=DAYS)
    lexical = verdicts(frames)
    people = lexical.with_columns(verifier=pl.lit("human"), passages=pl.lit([], pl.List(pl.String)))
    frames["claim_verdicts"] = pl.concat([lexical, people])
    table = measure(frames, gold({"q1": True}, CLAIMS, RIGHT), AnsweringConfig(answerer="import"), Settings())
    rows = {
        (row["metric"], json.loads(row["params"])["verifier"]): (row["value"], row["status"])
        for row in table.filter(pl.col("metric").is_in(["faithfulness", "citation_precision"])).iter_rows(named=True)
    }
    assert rows == {
        ("faithfulness", "lexical"): (1.0, "scored"), ("faithfulness", "human"): (1.0, "scored"),
        ("citation_precision", "lexical"): (1.0, "scored"), ("citation_precision", "human"): (None, "not_judged"),
    }  # fmt: skip


def test_a_citation_of_a_document_supports_where_any_of_its_passages_does():
    frames = world(q1="x")
    frames["contexts"] = contexts(
        ("q1", "fees::0", 0, len(FEE)), ("q1", "leave::0", 0, len(LEAVE)), ("q1", "fees::0", len(FEE), len(FEES))
    )
    frames = room(
        frames
        | {
            "output:answers": answers(
                {"query_id": "q1", "answer": "It is paid on Fridays.", "citations": ["fees", "leave"]}
            )
        },
        answerer="import",
    )
    frames = with_evidence(frames, q1=FEE)
    frames["answer_citations"] = frames["answer_citations"].with_columns(kind=pl.lit("document"))
    found = measured(frames | {"claim_verdicts": verdicts(frames)}, gold({"q1": True}))
    assert found["citation_precision", "q1"] == (0.5, "scored")
    assert found["citation_recall", "q1"] == (1.0, "scored")


def test_an_unseen_name_is_a_flag_with_a_precision_of_its_own():
    found = told(
        {"query_id": "q1", "answer": "In Berlin five unused days may be carried over, says Anna Weber."},
        {"query_id": "q2", "answer": FEE},
    )
    assert found["unseen_entities", "q1"] == (1.0, "scored")
    assert found["unseen_entities_precision", "q1"] == (1.0, "scored")
    assert found["unseen_entities", "q2"] == (0.0, "scored")
    assert found["unseen_entities_precision", "q2"] == (None, "not_flagged")
    assert found["unseen_entities_recall", "q2"] == (None, "all_supported")


def test_of_repeated_answers_the_first_is_measured_and_all_serve_consistency():
    lines = [{"query_id": "q1", "answer": text} for text in ("Five days.", "five  days", "Six days.", "I don't know.")]
    found = told(*lines, {"query_id": "q2", "answer": FEE})
    assert found["self_consistency", "q1"] == (0.5, "scored")
    assert found["self_consistency", "q2"] == (None, "too_few_repeats")
    assert found["exact_match", "q1"] == (1.0, "scored")


def test_availability_is_of_the_context_and_at_k_of_the_list():
    frames = room(world(q1="x") | {"output:answers": answers(GOOD)}, answerer="import")
    frames = with_evidence(frames, q1=FEE)
    claims = (
        ("q1", "c1", FEE, ["e1"], True),
        ("q1", "c2", LEAVE, ["leave::0"], True),
        ("q1", "c3", "x", ["gone"], True),
        ("q1", "c4", "x", [], True),
    )
    table = measure(frames, gold({"q1": True}, claims), AnsweringConfig(answerer="import"), Settings())
    rows = table.filter(pl.col("metric") == "evidence_availability").sort("k").select("k", "value", "retriever").rows()
    assert rows == [(0, 0.5, ""), (1, 0.25, "lane"), (3, 0.5, "lane"), (5, 0.5, "lane"), (10, 0.5, "lane")]


def test_the_worked_case_of_the_leave_policy_has_half_of_its_claims_available(worked):
    case = worked["leave_policy"]
    claims = [("q1", f"c{n}", claim["text"], claim["supported_by"], True) for n, claim in enumerate(case["claims"])]
    frames = world(q1="x")
    frames["chunks"] = frames["chunks"].head(0)
    frames = room(frames | {"output:answers": answers(GOOD)}, answerer="import")
    given_to = case["retrieved"][: case["k"]] if "k" in case else case["retrieved"][:2]
    frames["contexts"] = contexts(*(("q1", chunk, None, None) for chunk in given_to))
    frames = with_evidence(frames, q1=None)
    assert measured(frames, gold({"q1": True}, claims))["evidence_availability", "q1"] == (0.5, "scored")


def test_every_metric_by_query_has_a_row_for_every_query_and_every_null_a_reason():
    lines = [GOOD, {"query_id": "q3", "answer": "I don't know."}]
    frames = room(world(q1="a", q2="b", q3="c", q4="d") | {"output:answers": answers(*lines)}, answerer="import")
    frames = with_evidence(frames, q1=DAYS, q2=None, q3=FEE, q4=None)
    frames["claim_verdicts"] = verdicts(frames)
    table = measure(
        frames,
        gold({"q1": True, "q2": True, "q3": True, "q4": False}, CLAIMS, RIGHT),
        AnsweringConfig(answerer="import"),
        Settings(),
    )
    by_query = table.filter(pl.col("item_type") == "query")
    counts = by_query.group_by("metric", "unit", "k", "params", "retriever").agg(pl.col("item_id").n_unique(), pl.len())
    assert set(counts["item_id"]) == set(counts["len"]) == {4}
    assert table.filter(pl.col("value").is_null() & (pl.col("status") == "scored")).is_empty()
    bounds = {metric.name: metric for metric in METRICS}
    assert all(isinstance(metric, Metric) for metric in METRICS)
    assert set(table["metric"]) == set(bounds)
    for name, value in table.filter(pl.col("value").is_not_null()).select("metric", "value").iter_rows():
        assert bounds[name].low <= value <= bounds[name].high


def test_where_nothing_answers_there_are_no_rows():
    frames = with_evidence(room(world(q1="x"), answerer=None), q1=DAYS)
    assert measure(frames, gold({"q1": True}), AnsweringConfig(answerer=None), Settings()).is_empty()


outcomes = st.sampled_from(["I don't know.", "Five days may be carried over.", "", None])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(outcomes, st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_means_of_refusing_are_those_of_the_definition(cases):
    """Each case: what was said, whether gold says that it can be answered, whether its evidence is in the context."""
    queries = {f"q{n}": "x" for n in range(len(cases))}
    lines = [{"query_id": f"q{n}", "answer": said} for n, (said, _, _) in enumerate(cases) if said is not None]
    frames = room(world(**queries) | {"output:answers": answers(*lines)}, answerer="import")
    frames = with_evidence(frames, **{f"q{n}": DAYS for n in range(len(cases))})
    kept = [(q, "leave::0", 0, len(LEAVE)) for q, (_, _, there) in zip(queries, cases, strict=True) if there]
    frames["contexts"] = contexts(*kept)
    labels = gold({q: ok for q, (_, ok, _) in zip(queries, cases, strict=True)})
    table = measure(frames, labels, AnsweringConfig(answerer="import"), Settings())
    names = {"I don't know.": "refused", "": "empty", None: "empty"}
    expected = refusal_scores(
        {"answerable": ok, "evidence_available": there, "outcome": names.get(said, "answered")}
        for said, ok, there in cases
    )
    wanted = {
        "refusal_precision": expected.precision, "refusal_recall": expected.recall, "false_refusal": expected.false_refusals,
        "refusal_recall_out_of_scope": expected.out_of_scope, "refusal_recall_retrieval_miss": expected.retrieval_miss,
    }  # fmt: skip
    for metric, share in wanted.items():
        values = table.filter((pl.col("metric") == metric) & pl.col("value").is_not_null())["value"].to_list()
        assert (mean(values) if values else None) == (
            pytest.approx(share.value) if share.value is not None else None
        ), metric


def test_calibration_error_is_that_of_the_definition_and_counts_those_without_a_confidence_apart():
    lines = [
        {
            "query_id": f"q{n}",
            "answer": FEE if n % 3 else "The card fee is 12 EUR.",
            "confidence": None if n == 5 else n / 10,
        }
        for n in range(10)
    ]
    queries = {f"q{n}": "What is the card fee?" for n in range(10)}
    frames = room(world(**queries) | {"output:answers": answers(*lines)}, answerer="import")
    frames = with_evidence(frames, **dict.fromkeys(queries, FEE))
    frames["claim_verdicts"] = verdicts(frames)
    found = measured(frames, gold(dict.fromkeys(queries, True)))
    stated = np.array([n / 10 for n in range(10) if n != 5])
    right = np.array([float(bool(n % 3)) for n in range(10) if n != 5])
    edges = np.clip(np.ceil(stated * 10 - 1e-9) - 1, 0, 9)
    wanted = sum((edges == b).sum() * abs(right[edges == b].mean() - stated[edges == b].mean()) for b in set(edges)) / 9
    assert found["answer_ece", "all", "width", "all_supported"] == (pytest.approx(wanted), "scored")
    assert found["answer_confidence", "q5"] == (None, "no_confidence")
    assert found["answer_brier", "q5", "all_supported"] == (None, "no_confidence")


# --- evidence that an answer stands on --------------------------------------------------------------------------------


def used(frames):
    made = trace(frames["evidence_units"], frames, frames, Ledger())
    return {(q, e): (held, why) for q, e, held, why in made.iter_rows()}


def test_a_unit_is_used_by_a_citation_or_by_a_supported_claim_and_else_the_reason_is_told():
    lines = [
        {"query_id": "q1", "answer": "Mind the policy.", "citations": ["leave"]}, {"query_id": "q2", "answer": DAYS},
        {"query_id": "q3", "answer": "Nobody knows exactly.", "citations": ["fees"]}, {"query_id": "q4", "answer": "I don't know.", "citations": ["leave"]},
        {"query_id": "q5", "answer": "", "citations": ["leave"]},
    ]  # fmt: skip
    queries = {f"q{n}": "x" for n in range(1, 7)}
    frames = room(world(**queries) | {"output:answers": answers(*lines)}, answerer="import")
    frames = with_evidence(frames, **dict.fromkeys(queries, DAYS))
    frames["claim_verdicts"] = verdicts(frames)
    assert [used(frames)[f"q{n}", "e1"] for n in range(1, 7)] == [
        (True, None), (True, None), (False, "ignored"), (False, "refused"), (False, "empty"), (False, "no_answer"),
    ]  # fmt: skip
    without = {name: frame for name, frame in frames.items() if name != "claim_verdicts"}
    assert used(without)["q2", "e1"] == (False, "ignored")


def test_what_an_earlier_piece_gave_counts_for_the_chunk_that_is_cited():
    frames = world(q1="x")
    half = LEAVE.index("unused")
    leave = frames["chunks"].filter(chunk_id="leave::0")
    frames["chunks"] = pl.concat([leave.with_columns(chunk_id=pl.lit("leave::1")), frames["chunks"]])
    frames["contexts"] = contexts(("q1", "leave::1", 0, half), ("q1", "leave::0", half, len(LEAVE)))
    frames = room(
        frames | {"output:answers": answers({"query_id": "q1", "answer": "So it is.", "citations": [2]})},
        answerer="import",
    )
    frames = with_evidence(frames, q1=DAYS)
    assert used(frames)["q1", "e1"] == (True, None)
    cut = frames | {"contexts": contexts(("q1", "leave::1", 0, 5), ("q1", "leave::0", half, len(LEAVE)))}
    assert used(cut)["q1", "e1"] == (False, "ignored")


def test_a_document_is_used_where_anything_of_it_is():
    frames = room(
        world(q1="x") | {"output:answers": answers({"query_id": "q1", "answer": "So it is.", "citations": ["fees"]})},
        answerer="import",
    )
    frames = with_evidence(frames, q1=FEE)
    frames["evidence_units"] = frames["evidence_units"].with_columns(kind=pl.lit("document"))
    frames["evidence_pieces"] = pieces(whole("q1", "e1", "fees::0", FEES, FEE) | {"chars": [], "positions": []})
    assert used(frames)["q1", "e1"] == (True, None)
