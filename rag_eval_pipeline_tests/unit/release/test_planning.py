"""The n that a rule needs: held against the gate itself on simulated releases."""

import math

import numpy as np
import pytest

from rag_eval_pipeline.corpus.settings import Gates, Rule
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.release.gates import decide
from rag_eval_pipeline.release.planning import CHURN, needed, needs
from rag_eval_pipeline_tests.sizes import FULL
from rag_eval_pipeline_tests.unit.release.test_gates import METRICS, measured

RECALL = METRICS["recall"]
REPEATS = 1_000 if FULL else 25


def passed(rule, now, before=None):
    gates = Gates(rules=(Rule(metric="recall", k=10, unit="evidence", **rule),))
    sides = [
        None if values is None else measured({f"q{i:05}": float(v) for i, v in enumerate(values)})
        for values in (now, before)
    ]
    return decide(gates, METRICS, *sides).verdict == "pass"


def share_passed(rule, n, draw):
    rng = np.random.default_rng(7)
    return np.mean([passed(rule, *draw(rng, n)) for _ in range(REPEATS)])


@pytest.mark.parametrize(("limit", "truth"), [(0.7, 0.85), pytest.param(0.85, 0.925, marks=pytest.mark.full)])
def test_an_absolute_rule_passes_about_four_of_five_good_releases_at_its_n(limit, truth):
    n, guess = needed("min", limit, RECALL)
    assert f"{truth:.3g}" in guess
    found = share_passed({"min": limit}, n, lambda rng, n: (rng.random(n) < truth, None))
    assert 0.8 - 3 * math.sqrt(0.16 / REPEATS) <= found <= 0.97
    assert share_passed({"min": limit}, n // 3, lambda rng, n: (rng.random(n) < truth, None)) < found


@pytest.mark.parametrize("margin", [0.1, pytest.param(0.05, marks=pytest.mark.full)])
def test_a_relative_rule_passes_about_four_of_five_unchanged_releases_at_its_n(margin):
    def draw(rng, n):
        before = rng.random(n) < 0.6
        flips = rng.random(n) < CHURN
        return np.where(flips, rng.random(n) < 0.5, before), before

    n, _ = needed("max_drop", margin, RECALL)
    # A flip lands on the old value as often as not, so half of the churn is seen: the rule passes rather more often.
    assert share_passed({"max_drop": margin}, n, draw) >= 0.8 - 3 * math.sqrt(0.16 / REPEATS)
    assert share_passed({"max_drop": margin}, n // 5, draw) < 0.8


def test_less_room_needs_more_items_and_max_mirrors_min():
    drops = [needed("max_drop", margin, RECALL)[0] for margin in (0.2, 0.1, 0.05, 0.02)]
    assert drops == sorted(drops)
    assert needed("max", 0.15, RECALL)[0] == needed("min", 0.85, RECALL)[0]
    wide = Metric("points", "0 to 10", "higher", 0, 10)
    assert needed("min", 8.5, wide)[0] == needed("min", 0.85, RECALL)[0]
    assert needed("max_rise", 0.5, wide)[0] == needed("max_rise", 0.05, RECALL)[0]


def test_where_no_number_of_items_can_be_named_it_is_said_why():
    assert needed("max", 0.08, METRICS["cer"]) == (None, "values without bounds: measured once, the gate says it")
    assert needed("max_drop", 0, RECALL)[0] is None


def test_every_limit_of_every_rule_on_a_known_metric_has_its_need():
    rules = [
        Rule(metric="recall", k=10, unit="evidence", slice={"language": "es"}, min=0.8, max_drop=0.05),
        Rule(metric="nobody", min=0.1),
    ]  # fmt: skip
    found = needs(rules, METRICS)
    assert [(need.rule, need.limit) for need in found] == [(1, "min"), (1, "max_drop")]
    assert found[0].label == "recall@10 evidence language=es"
