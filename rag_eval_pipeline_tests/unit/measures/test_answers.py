"""Support of answers: faithfulness, atomic facts, nuggets, citations; the published cases, each with its whole kind."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score

from rag_eval_pipeline.measures import (
    Unmeasured,
    asserted_without_support,
    atomic_facts,
    citation_scores,
    context_citation_coverage,
    evidence_availability,
    faithfulness,
    flag_scores,
    mean_of,
    nugget_scores,
    share,
    sources_shown,
    unseen_entities,
)
from rag_eval_pipeline_tests.sizes import examples, measured

few = examples(60, 2_000)
IDS = st.lists(st.sampled_from([f"p{n}" for n in range(6)]), max_size=4)
LABEL = st.sampled_from(["supported", "contradicted", "unsupported", True, False])
BAD = st.sampled_from([None, "failed", "yes", "", 1, 0.9, "Supported", "error"])


def test_the_worked_examples(worked):
    case = worked["faithfulness"]
    assert faithfulness([claim for claim, _ in case["claims"]], case["claims"]) == case["faithfulness"] == 0.75
    leave = worked["leave_policy"]
    assert evidence_availability(leave["claims"], leave["retrieved"], k=2) == leave["evidence_availability"] == 0.5


# Verdicts --------------------------------------------------------------------------------------------------------------


@measured
@given(verdicts=st.dictionaries(st.text(max_size=3), LABEL, min_size=1, max_size=8), order=st.randoms())
def test_faithfulness_is_the_share_of_supported_claims_whatever_the_order(verdicts, order):
    claims, pairs = list(verdicts), list(verdicts.items())
    order.shuffle(pairs)
    expected = sum(v in (True, "supported") for v in verdicts.values()) / len(verdicts)
    assert faithfulness(claims, verdicts) == faithfulness(claims, pairs) == expected


def test_missing_verdicts_do_not_pass(known_wrong):
    case = known_wrong["verdicts-must-match-claims"]
    with pytest.raises(Unmeasured) as raised:
        faithfulness(case["input"]["claims"], case["input"]["verdicts"])
    assert (raised.value.reason, case["right"]["value"]) == (case["right"]["status"], None)


@measured
@given(
    verdicts=st.dictionaries(st.sampled_from("abcdef"), LABEL, min_size=1),
    spoil=st.sampled_from(["drop", "foreign", "twice", "positions", "rename", "none", "text", "failed"]),
    bad=BAD,
)
def test_verdicts_that_do_not_partition_the_claims_fail_closed(verdicts, spoil, bad):
    claims, pairs = list(verdicts), list(verdicts.items())
    spoiled = {
        "drop": pairs[1:],
        "foreign": [*pairs, ("z", True)],
        "twice": [*pairs, pairs[0]],
        "positions": [verdict for _, verdict in pairs],
        "rename": [("z", pairs[0][1]), *pairs[1:]],
        "none": None,
        "text": "supported",
        "failed": [(claims[0], bad), *pairs[1:]],
    }[spoil]
    with pytest.raises(Unmeasured) as raised:
        faithfulness(claims, spoiled)
    assert raised.value.reason == "judge_error"


def test_no_claims_is_no_value_and_a_repeated_id_is_an_error():
    with pytest.raises(Unmeasured, match="no_claims"):
        faithfulness([], {})
    with pytest.raises(ValueError, match="twice"):
        faithfulness(["a", "a"], {"a": True})


def test_no_text_supports_nothing(known_wrong):
    case = known_wrong["no-text-supports-nothing"]
    assert faithfulness(case["input"]["claims"], None, case["input"]["context"]) == case["right"]["faithfulness"]


@measured
@given(
    context=st.lists(
        st.sampled_from(["", " ", "\n\t", "\u200b", "\ufeff", "\u00ad", "...", "—", None, "[]"]), max_size=4
    )
)
def test_a_context_without_a_letter_or_digit_gives_zero_whatever_the_verdicts(context):
    assert faithfulness(["a", "b"], {"a": True, "b": True}, context) == 0.0
    assert faithfulness(["a", "b"], {"a": True, "b": True}, [*context, "8"]) == 1.0


# Failures --------------------------------------------------------------------------------------------------------------


def test_a_failed_judgment_leaves_the_mean_but_neither_count_nor_band(known_wrong):
    case = known_wrong["failed-judgement-leaves-mean"]
    found, right = mean_of(case["input"]["verdicts"]), case["right"]
    assert {k: getattr(found, k) for k in ("mean", "n_expected", "n_valued", "worst", "best")} == {
        k: right[k] for k in ("mean", "n_expected", "n_valued", "worst", "best")
    }
    with pytest.raises(Unmeasured) as raised:
        found.require(min_coverage=0.9)
    assert raised.value.reason == right["gate_with_min_coverage_0.9"]


@measured
@given(
    values=st.lists(st.floats(0, 1) | st.sampled_from(["judge_error", "timeout", None]), max_size=12),
    bar=st.floats(0, 1),
)
def test_the_band_holds_the_mean_under_any_outcome_of_what_failed(values, bar):
    found, numbers = mean_of(values), [v for v in values if isinstance(v, float)]
    assert (found.n_expected, found.n_valued) == (len(values), len(numbers))
    assert sum(found.n_by_status.values()) == len(values)
    if not numbers:
        assert found.mean is None
        with pytest.raises(Unmeasured):
            found.require(0.0)
        return
    assert found.mean == pytest.approx(sum(numbers) / len(numbers))
    for fill in (0.0, bar, 1.0):
        filled = [v if isinstance(v, float) else fill for v in values]
        assert found.worst - 1e-9 <= sum(filled) / len(filled) <= found.best + 1e-9
    assert (found.n_valued / found.n_expected >= bar) == _is_enough(found, bar)


def _is_enough(found, bar):
    try:
        found.require(bar)
    except Unmeasured:
        return False
    return True


@measured
@given(items=st.lists(st.tuples(st.none() | st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.5, 1.0])), max_size=8))
def test_a_share_is_exact_and_inside_its_band(items):
    found = share(items, "nothing")
    valued = [(Fraction(v), Fraction(w)) for v, w in items if v is not None]
    if not items:
        assert (found.value, found.status, found.worst) == (None, "nothing", None)
    elif not valued:
        assert (found.value, found.status, found.worst, found.best) == (None, "judge_error", 0.0, 1.0)
    else:
        assert found.require() == pytest.approx(float(sum(v * w for v, w in valued) / sum(w for _, w in valued)))
        assert found.worst - 1e-12 <= found.value <= found.best + 1e-12


# Atomic facts ----------------------------------------------------------------------------------------------------------

FACTS = (
    "The fee is 8 USD.", "The fee is 9 USD.", "The fee is due on Monday.", "There is a fee.", "Lisbon pays the fee.",
    "The plan covers 5 days.", "Days are not carried over.", "Days are carried over.", "It is.", "The plan is a plan.",
)  # fmt: skip
PADS = (str.upper, lambda t: f"  {t} ", lambda t: t.rstrip(".") + "!", lambda t: " ".join(t.rstrip(".").split()[::-1]))


@few
@given(
    facts=st.dictionaries(st.sampled_from(FACTS), st.booleans(), min_size=1, max_size=6),
    chosen=st.integers(0, 5),
    pad=st.sampled_from(PADS) | st.sampled_from(["It is.", "There is a fee.", "The plan is a plan."]),
    times=st.integers(1, 4),
)
def test_padding_and_repetition_never_raise_the_figure(facts, chosen, pad, times):
    texts, verdicts = {t: t for t in facts}, dict(facts)
    before = atomic_facts(texts, verdicts, "How much is the fee of the plan?", "en").require()
    text = list(facts)[chosen % len(facts)]
    for number in range(times):
        added = pad if isinstance(pad, str) else pad(text)
        if isinstance(pad, str):
            assume("fee" in " ".join(facts) or pad != "There is a fee.")
        texts[f"pad{number}"], verdicts[f"pad{number}"] = added, True
    after = atomic_facts(texts, verdicts, "How much is the fee of the plan?", "en").require()
    assert after <= before


def test_facts_count_once():
    def of(*facts, question=""):
        named = {f"f{n}": text for n, (text, _) in enumerate(facts)}
        found = atomic_facts(named, {f"f{n}": held for n, (_, held) in enumerate(facts)}, question, "en")
        return found.numerator, found.denominator

    assert of(("The fee is 8 USD.", True), ("Its colour is red.", False)) == (1, 2)
    assert of(("The fee is 8 USD.", True), ("the fee is 8 dollars", True), ("Its colour is red.", False)) == (1, 2)
    assert of(("The fee is 8 USD.", True), ("There is a fee.", True), ("Its colour is red.", False)) == (1, 2)
    assert of(("The fee is 8 USD.", True), ("The fee is not 8 USD.", False)) == (1, 2), "a negation is another fact"
    assert of(("The fee is 8 USD.", True), ("The fee is 8 USD!", False)) == (0, 1), "the same fact can't be both"
    assert of(("There is a fee.", True), ("A fee.", True), question="What is the fee?") == (1, 1), (
        "trivial ones are one"
    )
    with pytest.raises(Unmeasured, match="no_claims"):
        atomic_facts({}, {})
    with pytest.raises(Unmeasured) as raised:
        atomic_facts({"a": "x", "b": "y"}, {"a": True})
    assert raised.value.reason == "judge_error"


# Nuggets ---------------------------------------------------------------------------------------------------------------


def test_a_failed_assignment_is_not_charged_to_the_system(known_wrong):
    case = known_wrong["failed-nugget-is-not-unsupported"]
    found, right = nugget_scores(case["input"]["nuggets"]).vital, case["right"]
    assert (found.value, found.n_valued, found.n_expected, found.worst) == (
        right["vital_recall"],
        right["n_valued"],
        right["n_expected"],
        right["worst"],
    )


@measured
@given(
    nuggets=st.lists(
        st.fixed_dictionaries(
            {
                "vital": st.booleans(),
                "assignment": st.sampled_from(["support", "partial_support", "not_support", "failed"]),
            }
        ),
        max_size=8,
    )
)
def test_nugget_recall_is_over_what_was_assigned(nuggets):
    worth = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
    judged = [(worth[n["assignment"]], n["vital"]) for n in nuggets if n["assignment"] != "failed"]
    vital, whole = [v for v, is_vital in judged if is_vital], [(v, 1.0 if is_vital else 0.5) for v, is_vital in judged]
    found = nugget_scores(nuggets)
    assert found.vital.value == (pytest.approx(sum(vital) / len(vital)) if vital else None)
    expected = sum(v * w for v, w in whole) / sum(w for _, w in whole) if whole else None
    assert found.all.value == (pytest.approx(expected) if whole else None)
    if not any(n["vital"] for n in nuggets):
        assert found.vital.status == "no_vital_nuggets"


def test_an_unknown_assignment_is_refused_and_partial_can_be_strict():
    with pytest.raises(ValueError, match=r"nuggets\[0\]: unknown assignment 'maybe'"):
        nugget_scores([{"vital": True, "assignment": "maybe"}])
    assert nugget_scores([{"vital": True, "assignment": "partial_support"}], partial=0).vital.value == 0


# Citations -------------------------------------------------------------------------------------------------------------


def test_an_invented_citation_is_no_better_than_none(known_wrong):
    case = known_wrong["invented-citation"]
    found, right = citation_scores(**case["input"]), case["right"]
    assert (found.precision.value, found.recall.value, found.dangling) == (
        right["citation_precision"],
        right["citation_recall"],
        right["dangling_citations"],
    )


CLAIMS = st.lists(
    st.fixed_dictionaries({"cites": IDS, "supported_by": IDS, "needs": st.booleans()}), min_size=1, max_size=5
)


@measured
@given(claims=CLAIMS, given_ids=IDS)
def test_citations_against_the_definition(claims, given_ids):
    found, given_ids = citation_scores(claims, given_ids), set(given_ids)
    pairs = [(p in given_ids and p in c["supported_by"]) for c in claims for p in set(c["cites"])]
    needing = [c for c in claims if c["needs"]]
    served = [bool(set(c["cites"]) & set(c["supported_by"]) & given_ids) for c in needing]
    assert found.precision.value == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)
    assert found.recall.value == (pytest.approx(sum(served) / len(served)) if needing else None)
    assert found.dangling == sum(p not in given_ids for c in claims for p in set(c["cites"]))
    if not pairs:
        assert (found.precision.status, found.recall.value) in {("none_cited", 0.0), ("none_cited", None)}


@measured
@given(claims=CLAIMS, given_ids=IDS, where=st.integers(0, 4))
def test_making_up_a_citation_never_helps(claims, given_ids, where):
    before = citation_scores(claims, given_ids)
    at = where % len(claims)
    spoiled = [dict(c, cites=[*c["cites"], "invented"]) if i == at else c for i, c in enumerate(claims)]
    spoiled[at]["supported_by"] = [*spoiled[at]["supported_by"], "invented"]
    after = citation_scores(spoiled, given_ids)
    assert after.precision.value <= (1.0 if before.precision.value is None else before.precision.value)
    assert after.precision.value == 0.0 or before.precision.value is not None
    assert after.recall.value == before.recall.value
    assert after.dangling == before.dangling + 1


def test_citations_of_a_whole_answer_and_of_unjudged_claims():
    claims = [{"supported_by": ["a"]}, {"supported_by": ["b"]}]
    found = citation_scores(claims, ["a", "b", "c"], cited=["a", "c", "zz"])
    assert (found.precision.value, found.recall.value, found.dangling) == (pytest.approx(1 / 3), 0.5, 1)
    unjudged = citation_scores([{"cites": ["a"], "supported_by": None}, {"cites": ["zz"], "supported_by": None}], ["a"])
    assert (unjudged.precision.value, unjudged.precision.n_valued, unjudged.precision.best) == (0.0, 1, 0.5)
    assert (unjudged.recall.value, unjudged.recall.n_valued) == (0.0, 1)
    assert citation_scores([], ["a"]).recall.status == "no_claims"
    assert (
        citation_scores([{"cites": [], "supported_by": [], "needs": False}], ["a"]).recall.status == "no_claims_needing"
    )
    with pytest.raises(ValueError, match="one string"):
        citation_scores([{"cites": "p1", "supported_by": []}], ["p1"])


def test_coverage_of_the_context_and_sources_shown():
    assert context_citation_coverage(["a", "a", "zz"], ["a", "b", "a", "c"]) == pytest.approx(1 / 3)
    with pytest.raises(Unmeasured, match="empty_context"):
        context_citation_coverage(["a"], [])
    assert sources_shown(["zz"], ["a"], "answered") == 0.0
    assert sources_shown(["a", "zz"], ["a"], "hedged") == 1.0
    assert sources_shown([], ["a"], "empty") == 0.0
    with pytest.raises(Unmeasured, match="refused"):
        sources_shown(["a"], ["a"], "refused")


# Assertions and entities -----------------------------------------------------------------------------------------------


def test_an_answer_asserts_without_support_if_any_claim_is_unsupported():
    assert asserted_without_support(["a", "b"], {"a": True, "b": "unsupported"}, "answered") == 1.0
    assert asserted_without_support(["a"], {"a": True}, "hedged") == 0.0
    for outcome in ("refused", "empty"):
        with pytest.raises(Unmeasured, match=outcome):
            asserted_without_support(["a"], {"a": False}, outcome)
    with pytest.raises(Unmeasured, match="no_claims"):
        asserted_without_support([], {}, "answered")


def test_unseen_entities_are_whole_words_in_any_case():
    context = ["The fee in LISBON is set by the Bank  of Spain.", "Lisbonne"]
    found = unseen_entities(["Lisbon", "Bank of Spain", "Lis", "Madrid", "Madrid", "", "–"], context)
    assert found == ["Lis", "Madrid"]
    assert unseen_entities(["A"], []) == ["A"]


@few
@given(labels=st.dictionaries(st.integers(0, 9), st.booleans(), min_size=1), flagged=st.sets(st.integers(0, 12)))
def test_a_flags_own_precision_and_recall(labels, flagged):
    found = flag_scores(flagged, labels)
    truth, said = list(labels.values()), [item in flagged for item in labels]
    if any(said):
        assert found.precision == pytest.approx(precision_score(truth, said, zero_division=0))
    else:
        assert found.precision is None
    assert found.recall == (pytest.approx(recall_score(truth, said)) if any(truth) else None)
    assert found.tp + found.fp + found.fn + found.tn == len(labels)


def test_nuggets_without_weight_are_left_out():
    nuggets = [{"vital": False, "assignment": "support"}]
    assert nugget_scores(nuggets, okay=0).all.status == "no_nuggets"
    vital = {"vital": True, "assignment": "not_support"}
    assert nugget_scores([*nuggets, vital], okay=0).all.value == 0.0


def test_a_value_that_is_no_number_makes_no_share_and_no_mean():
    nan = float("nan")
    for item in ((nan, 1.0), (0.5, -1.0), (0.5, 0.0), (0.5, nan)):
        with pytest.raises(ValueError, match="finite values and weights above 0"):
            share([item], "nothing")
    with pytest.raises(ValueError, match="finite values"):
        mean_of([nan])
