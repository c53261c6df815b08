"""How verifiers are asked, people's verdicts, and the lexical verifier with SciFact."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.judging.human import HumanVerdicts, label_of
from rag_eval_pipeline.judging.lexical import LexicalVerifier
from rag_eval_pipeline.judging.verifiers import LABELS, Passage, Verdict, VerifierError, ask
from rag_eval_pipeline.measures import Unmeasured, faithfulness
from rag_eval_pipeline.text.claims import Claim, ClaimError, as_claims
from rag_eval_pipeline_tests.bench import verifiers as bench
from rag_eval_pipeline_tests.sizes import measured

CLAIMS = as_claims(["The fee is 8 USD.", "It is due on Monday.", "Lisbon pays."])
CONTEXT = [Passage("p1", "The fee is 8 USD.")]


class Spy:
    """Answers as told, and counts how often it was asked."""

    name = "spy"

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def verify(self, claims, evidence):
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(claims, evidence)


def labels_of(verdicts):
    return [(verdict.claim_id, verdict.label) for verdict in verdicts]


def all_supported(claims, evidence):
    return [Verdict(claim.claim_id, "supported", passages=(evidence[0].passage_id,)) for claim in claims]


@measured
@given(texts=st.lists(st.sampled_from(["", " ", "\u200b", "...", "\n"]), max_size=3))
def test_no_text_supports_nothing_and_nobody_is_asked(texts):
    spy = Spy(all_supported)
    verdicts = ask(spy, CLAIMS, [Passage(str(n), text) for n, text in enumerate(texts)])
    assert spy.calls == 0
    assert faithfulness([c.claim_id for c in CLAIMS], labels_of(verdicts)) == 0.0


def test_the_published_case_of_an_empty_context(known_wrong):
    case, spy = known_wrong["no-text-supports-nothing"], Spy(all_supported)
    claims = as_claims(case["input"]["claims"])
    verdicts = ask(spy, claims, [Passage(str(n), text) for n, text in enumerate(case["input"]["context"])])
    assert faithfulness([c.claim_id for c in claims], labels_of(verdicts)) == case["right"]["faithfulness"]
    assert spy.calls == case["right"]["judge_calls"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda claims, _: [Verdict(c.claim_id, "supported") for c in claims[:-1]],
        lambda claims, _: [Verdict(c.claim_id, "supported") for c in (*claims, claims[0])],
        lambda claims, _: [Verdict("other", "supported"), *[Verdict(c.claim_id, "supported") for c in claims[1:]]],
        lambda _, __: [],
        lambda claims, _: [Verdict(c.claim_id, "supported", passages=("p99",)) for c in claims],
        VerifierError("it broke"),
    ],
    ids=["too few", "twice", "other claims", "none", "unknown passage", "raises"],
)
def test_a_verifier_that_does_not_keep_to_its_claims_fails_closed(answer):
    verdicts = ask(Spy(answer), CLAIMS, CONTEXT)
    assert {v.label for v in verdicts} == {None}
    assert {v.status for v in verdicts} == {"judge_error"}
    with pytest.raises(Unmeasured) as raised:
        faithfulness([c.claim_id for c in CLAIMS], labels_of(verdicts))
    assert raised.value.reason == "judge_error"


def test_verdicts_come_in_the_order_of_claims():
    found = ask(Spy(lambda claims, evidence: all_supported(claims, evidence)[::-1]), CLAIMS, CONTEXT)
    assert [v.claim_id for v in found] == ["c1", "c2", "c3"]
    assert ask(Spy(all_supported), [], CONTEXT) == []


def test_unfit_questions_are_refused():
    with pytest.raises(ClaimError):
        ask(Spy(all_supported), [Claim("a", " ")], CONTEXT)
    with pytest.raises(ValueError, match="two passages"):
        ask(Spy(all_supported), CLAIMS, CONTEXT * 2)
    with pytest.raises(VerifierError, match="unknown label"):
        Verdict("a", "maybe")
    with pytest.raises(VerifierError, match="says why"):
        Verdict("a", None)
    with pytest.raises(VerifierError, match="says why"):
        Verdict("a", "supported", "judge_error")


# People ----------------------------------------------------------------------------------------------------------------


def rows(*verdicts):
    return [
        {"answer_id": "a1", "claim": claim, "verdict": verdict, "annotator": who, "time": time}
        for claim, verdict, who, time in verdicts
    ]


def test_people_decide_by_majority_and_by_their_last_word():
    people = HumanVerdicts(
        rows(
            ("the fee is 8 usd", "Supported", "kim", "2026-03-01"),
            ("The fee is 8 USD.", "no", "lee", "2026-03-01"),
            ("The fee is 8 USD.", "supports", "lee", "2026-03-02"),
            ("It is due on Monday.", "refuted", "kim", None),
            ("It is due on Monday.", "supported", "lee", None),
        )
    )
    found = ask(people.of("a1"), CLAIMS, CONTEXT)
    assert [(v.label, v.status) for v in found] == [
        ("supported", "judged"),
        (None, "annotators_disagree"),
        (None, "no_verdict"),
    ]
    assert {v.status for v in ask(people.of("a2"), CLAIMS, CONTEXT)} == {"no_verdict"}
    assert people.answers == ["a1"]


def test_unknown_words_of_people_are_refused():
    assert label_of("Not supported") == "unsupported"
    with pytest.raises(ValueError, match="unknown verdict 'maybe'"):
        HumanVerdicts(rows(("x", "maybe", "kim", None)))


# Lexical ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "evidence", "label", "reason"),
    [
        ("The fee is 8 USD.", "The annual fee is 8 dollars and is due in May.", "supported", "covered"),
        ("The fee is 9 USD.", "The annual fee is 8 USD.", "contradicted", "other_value"),
        ("The fee is 8 EUR.", "The annual fee is 8 USD.", "unsupported", "missing_value"),
        ("The fee is due on 4 March 2026.", "The fee is due on 3 March 2026.", "contradicted", "other_value"),
        ("Five days are carried over.", "5 days are carried over.", "supported", "covered"),
        ("Five days are not carried over.", "5 days are carried over.", "contradicted", "negation"),
        ("Days are carried over.", "Days cannot be carried over.", "contradicted", "negation"),
        ("The fee is set in Lisbon.", "The fee is set in Madrid.", "unsupported", "missing_name"),
        ("Aspirin increases the risk.", "Aspirin decreases the risk.", "contradicted", "direction"),
        ("Aspirin does not increase the risk.", "Aspirin decreases the risk.", "supported", "covered"),
        ("Cats sleep at night.", "The fee is 8 USD.", "unsupported", "not_covered"),
        ("La tasa es de 8 euros.", "La tasa anual es de 8 €.", "supported", "covered"),
        ("La tasa es de 9 euros.", "La tasa anual es de 8 €.", "contradicted", "other_value"),
        ("Los días se trasladan.", "Los días no se trasladan.", "contradicted", "negation"),
    ],
)
def test_the_lexical_verifier_finds_what_was_changed(claim, evidence, label, reason):
    language = "es" if "tasa" in claim or "días" in claim else "en"
    found = LexicalVerifier(language).verify([Claim("c", claim)], [Passage("p", evidence, language)])[0]
    assert found.label == label
    assert reason is None or found.reason == reason


def test_a_passage_that_supports_outweighs_one_that_contradicts():
    passages = [Passage("a", "The fee is 9 USD."), Passage("b", "The fee is 8 USD."), Passage("c", "Cats sleep.")]
    found = ask(LexicalVerifier("en"), as_claims(["The fee is 8 USD."]), passages)[0]
    assert (found.label, found.passages) == ("supported", ("b",))
    without = ask(LexicalVerifier("en"), as_claims(["The fee is 8 USD."]), [passages[0], passages[2]])[0]
    assert (without.label, without.passages) == ("contradicted", ("a",))


@measured
@given(claim=st.text(min_size=1, max_size=25), texts=st.lists(st.text(max_size=30), min_size=1, max_size=2))
def test_any_claim_gets_one_verdict_and_the_same_one_again(claim, texts):
    passages = [Passage(str(n), text) for n, text in enumerate(texts)]
    verifier = LexicalVerifier()
    found = verifier.verify([Claim("c", claim)], passages)
    assert [v.claim_id for v in found] == ["c"]
    assert found[0].label in LABELS
    assert found == verifier.verify([Claim("c", claim)], passages)


def test_a_claim_copied_from_the_evidence_is_supported():
    text = "The plan covers 5 working days of leave from 3 March 2026 in Lisbon. It does not cover travel."
    for sentence in text.split(". "):
        assert ask(LexicalVerifier("en"), as_claims([sentence]), [Passage("p", text, "en")])[0].label == "supported"


def test_scifact_pairs_are_those_of_the_labels(shared):
    pairs = bench.pairs_of(shared("data", "scifact"))
    lines = (shared("data", "scifact") / "claims_train.jsonl").read_text("utf-8").splitlines()
    claims = [json.loads(line) for line in lines]
    assert len(pairs) == sum(len(set(c["cited_doc_ids"])) for c in claims)
    assert sum(p.label != "unsupported" for p in pairs) == sum(len(c["evidence"]) for c in claims)
    assert all(bool(p.rationale) == (p.label != "unsupported") for p in pairs)
    assert not {p.claim_id for p in pairs if p.calibrates} & {p.claim_id for p in bench.held_out(pairs, "abstract")}


def test_a_part_of_scifact_is_judged_better_than_by_chance(shared):
    pairs = bench.held_out(bench.pairs_of(shared("data", "scifact")), "abstract")[:40]
    scores, agreed, found = bench.scores_of(LexicalVerifier("en"), pairs, "abstract")
    assert agreed.n_both == len(found) == 40
    assert agreed.kappa > 0
    assert all(each.recall.low < each.recall.high for each in scores)


@pytest.mark.full
def test_scifact_figures_are_those_in_the_docs(shared):
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text("utf-8")
    pairs = bench.pairs_of(shared("data", "scifact"))
    for evidence in ("abstract", "rationale"):
        for row in bench.rows_of(LexicalVerifier("en"), bench.held_out(pairs, evidence), evidence):
            assert row in page
