import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from rag_eval_pipeline.measures.intervals import Plan, confidence_interval
from rag_eval_pipeline.measures.paired import (
    DifferentItemsError,
    detectable_effect,
    direction,
    holm,
    mirrored,
    needed_n,
    pair_up,
    paired_interval,
    paired_intervals,
    paired_randomisation,
    randomisation_tests,
    rule_power,
    standard_error,
    tango_limits,
    verdict,
)
from rag_eval_pipeline_tests.bench.intervals import type_one

RNG = np.random.default_rng(8)
GRADED = RNG.choice([0.0, 0.25, 0.5, 1.0], size=(2, 60))


def two_bounds(a, b, **options):
    """Both one-sided limits of a − b, as `verdict` takes them."""
    return paired_interval(a, b, side="lower", **options), paired_interval(a, b, side="upper", **options)


def hits(both, up, down, neither):
    """Two sides of 0 and 1."""
    a = [1.0] * both + [1.0] * up + [0.0] * down + [0.0] * neither
    b = [1.0] * both + [0.0] * up + [1.0] * down + [0.0] * neither
    return a, b


# The same items ------------------------------------------------------------------------------------------------------------


def test_sides_with_other_items_are_refused_by_name():
    with pytest.raises(DifferentItemsError, match=r"only one side has a: q1; b: q3"):
        pair_up({"q1": 1.0, "q2": 0.0}, {"q2": 1.0, "q3": 0.0})
    with pytest.raises(DifferentItemsError, match=r"has a value for a: q2"):
        paired_interval({"q1": 1.0, "q2": 0.0}, {"q1": 1.0, "q2": None})
    with pytest.raises(DifferentItemsError, match="10 more"):
        paired_randomisation({f"q{at:02d}": 1.0 for at in range(20)}, {})
    with pytest.raises(DifferentItemsError, match="2 values and b has 1"):
        paired_interval([1.0, 0.0], [1.0])
    with pytest.raises(TypeError, match="both"):
        paired_interval({"q1": 1.0}, [1.0])


def test_items_are_paired_by_name_and_those_without_a_value_on_both_sides_left_out():
    items, a, b = pair_up({"y": 2.0, "x": 1.0, "z": None}, {"z": float("nan"), "x": 3.0, "y": 4.0})
    assert (items, a.tolist(), b.tolist()) == (["x", "y"], [1.0, 2.0], [3.0, 4.0])


def test_clusters_follow_their_items():
    a = {f"q{at:03d}": value for at, value in enumerate(GRADED[0])}
    b = {f"q{at:03d}": value for at, value in enumerate(GRADED[1])}
    clusters = {name: at // 2 for at, name in enumerate(a)}
    shuffled = dict(sorted(a.items(), key=lambda pair: pair[0][::-1]))
    by_name = paired_interval(shuffled, b, clusters=clusters)
    assert by_name == paired_interval(GRADED[0], GRADED[1], clusters=[at // 2 for at in range(60)])
    assert by_name.n_clusters == 30
    with pytest.raises(TypeError, match="clusters"):
        paired_interval(a, b, clusters=list(range(60)))
    with pytest.raises(ValueError, match="clusters"):
        paired_interval(GRADED[0], GRADED[1], clusters=[1])


# Intervals -----------------------------------------------------------------------------------------------------------------


def tango_by_likelihood(up, down, n, side):
    """The shift at which the score is ∓1.96 where the rest of the table is found by maximising the likelihood."""

    def score(shift):
        def against(share):
            terms = ((up, share + shift), (down, share), (n - up - down, 1 - 2 * share - shift))
            return -sum(count * np.log(max(p, 1e-300)) for count, p in terms if count)

        least, most = max(0.0, -shift), (1 - shift) / 2
        share = optimize.minimize_scalar(against, bounds=(least, most), method="bounded", options={"xatol": 1e-13}).x
        variance = (2 * share + shift - shift**2) / n
        return ((up - down) / n - shift) / np.sqrt(variance)

    estimate, z = (up - down) / n, float(stats.norm.ppf(0.975))
    if side == "high":
        return optimize.brentq(lambda shift: score(shift) + z, estimate, 1 - 1e-9)
    return optimize.brentq(lambda shift: score(shift) - z, -1 + 1e-9, estimate)


@pytest.mark.parametrize(("up", "down", "n"), [(12, 2, 50), (3, 1, 20), (9, 9, 44), (25, 5, 60), (1, 14, 40)])
def test_limits_of_paired_shares_are_where_the_score_test_would_refuse(up, down, n):
    low, high = tango_limits(np.array([up]), np.array([down]), n, Plan())
    assert low[0] == pytest.approx(tango_by_likelihood(up, down, n, "low"), abs=1e-5)
    assert high[0] == pytest.approx(tango_by_likelihood(up, down, n, "high"), abs=1e-5)


def test_paired_shares_get_a_score_interval_and_sides_mirror_it():
    a, b = hits(30, 8, 3, 9)
    found = paired_interval(a, b)
    assert (found.method, found.n) == ("score", 50)
    assert found.mean == pytest.approx(0.1)
    other = paired_interval(b, a)
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low), abs=1e-12)
    lower, upper = two_bounds(a, b)
    assert lower.low > found.low
    assert upper.high < found.high
    assert (lower.high, upper.low) == (1.0, -1.0)
    again = mirrored(other)
    assert (again.low, again.high) == pytest.approx((found.low, found.high), abs=1e-12)


def test_sides_that_agree_everywhere_still_have_an_interval_with_width():
    shares = paired_interval([1.0] * 30, [1.0] * 30)
    graded = paired_interval([0.5] * 30, [0.5] * 30)
    assert shares.low < 0 < shares.high
    assert graded.low < 0 < graded.high
    assert (shares.method, graded.method) == ("score", "bounded")
    assert shares.low == pytest.approx(-(1.959964**2) / (30 + 1.959964**2), abs=1e-6)


def test_other_differences_are_means_of_differences():
    a, b = GRADED
    found = paired_interval(a, b)
    alone = confidence_interval(a - b, binary=False, low=-1, high=1)
    assert (found.low, found.high, found.method) == (alone.low, alone.high, "bca")
    assert paired_interval(a * 5, b * 5, low=0, high=5).mean == pytest.approx(found.mean * 5)
    assert paired_interval(a[:20], b[:20]).method == "bounded"
    assert paired_interval(a[:20], b[:20], low=None, high=None).status == "no_bounds"
    one, other = hits(30, 8, 3, 9)
    assert paired_interval(one, other, clusters=[at // 2 for at in range(50)]).method == "bounded"


def test_many_pairs_at_once_are_as_one_by_one():
    a, b = np.column_stack([GRADED[0], GRADED[0] > 0.3]), np.column_stack([GRADED[1], GRADED[1] > 0.3])
    found = paired_intervals(a, b)
    assert [each.method for each in found] == ["bca", "score"]
    assert found == [paired_interval(a[:, at], b[:, at]) for at in range(2)]
    with pytest.raises(DifferentItemsError, match="measures"):
        paired_intervals(a, b[:, :1])
    with pytest.raises(ValueError, match="binary"):
        paired_intervals(a, b, binary=True)


# Test ----------------------------------------------------------------------------------------------------------------------


def scipys(a, b):
    def mean(x, y, axis):
        return np.mean(x - y, axis=axis)

    return stats.permutation_test(
        (a, b), mean, permutation_type="samples", vectorized=True, n_resamples=10_000, rng=1
    ).pvalue


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.75]), min_size=2, max_size=12))
@settings(max_examples=40, deadline=None)
def test_few_differences_are_tested_exactly_as_scipy_does(deltas):
    a = np.array(deltas)
    assert paired_randomisation(a, np.zeros(len(a)), mid=False) == pytest.approx(scipys(a, np.zeros(len(a))), abs=1e-12)


def test_many_differences_are_drawn_and_near_scipys():
    for shift in (0.0, 0.05, 0.1):
        a = GRADED[0] + shift
        assert paired_randomisation(a, GRADED[1]) == pytest.approx(scipys(a, GRADED[1]), abs=0.015)


@given(up=st.integers(0, 40), down=st.integers(0, 40))
def test_differences_of_one_size_are_the_sign_test(up, down):
    a, b = hits(3, up, down, 2)
    exact = stats.binomtest(up, up + down).pvalue if up + down else 1.0
    assert paired_randomisation(a, b, mid=False) == pytest.approx(exact, abs=1e-12)
    at = stats.binom.pmf(min(up, down), up + down, 0.5)
    halved = exact - at if up != down else 1 - at / 2 * 2
    assert paired_randomisation(a, b) == pytest.approx(halved if up + down else 1.0, abs=1e-12)


def test_signs_of_a_cluster_flip_together():
    deltas = np.repeat([0.5, -0.25, 0.75, 1.0, 0.1], 4)
    together = paired_randomisation(deltas, np.zeros(20), clusters=np.repeat(range(5), 4))
    sums = np.array([0.5, -0.25, 0.75, 1.0, 0.1])
    assert together == paired_randomisation(sums, np.zeros(5))
    assert together > 5 * paired_randomisation(deltas, np.zeros(20))


def test_tests_of_many_measures_are_as_one_by_one_and_seeded():
    deltas = np.column_stack([GRADED[0] - GRADED[1], np.zeros(60), np.where(np.arange(60) < 7, 1.0, 0.0)])
    found = randomisation_tests(deltas)
    assert found.tolist() == [paired_randomisation(column, np.zeros(60)) for column in deltas.T]
    assert found[1] == 1.0
    assert found[2] == pytest.approx(2 / 2**7 / 2)


def test_holm_is_the_stepwise_bound():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="0, 1"):
        holm([float("nan")])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_refuses_what_the_stepwise_procedure_refuses(p_values):
    alpha, refused = 0.05, set()
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        if p_values[at] * (len(p_values) - rank) > alpha:
            break
        refused.add(at)
    assert {at for at, p in enumerate(holm(p_values)) if p <= alpha} == refused


# Decisions -----------------------------------------------------------------------------------------------------------------


def test_verdicts_ask_the_limits_and_admit_when_n_is_too_small():
    def decide(n, down, **margin):
        return verdict(*two_bounds(*hits(n - down, 0, down, 0)), **margin)

    assert decide(1_000, 5, least=-0.02) == "pass"
    assert decide(1_000, 80, least=-0.02) == "fail"
    assert decide(30, 0, least=-0.02) == "inconclusive"
    assert decide(1_000, 80, greatest=0.0) == "pass"
    with pytest.raises(ValueError, match="order"):
        verdict(*reversed(two_bounds(*hits(3, 0, 0, 0))), least=0)


def test_direction_needs_an_interval_off_zero():
    up, same = paired_interval(*hits(10, 30, 0, 10)), paired_interval(*hits(10, 3, 2, 10))
    assert direction(up) == "better"
    assert direction(up, "lower") == "worse"
    assert direction(up, "neither") == "different"
    assert direction(mirrored(up)) == "worse"
    assert direction(same) == "inconclusive"
    assert direction(paired_interval([], [])) == "inconclusive"


def test_detectable_effect_and_needed_n_agree_with_a_simulated_test():
    rng = np.random.default_rng(0)
    deltas = rng.choice([0.0, 0.5, -0.5], p=[0.6, 0.2, 0.2], size=400)
    interval = paired_interval(deltas, np.zeros(400), low=0, high=1)
    effect = detectable_effect(interval)
    sd = deltas.std()
    assert standard_error(interval) == pytest.approx(sd / 20, rel=0.05)
    assert effect == pytest.approx((1.96 + 0.8416) * sd / 20, rel=0.05)
    samples = rng.choice([0.0, 0.5, -0.5], p=[0.6, 0.2 + effect, 0.2 - effect], size=(400, 400))
    assert (randomisation_tests(samples, draws=1_000) <= 0.05).mean() == pytest.approx(0.8, abs=0.08)
    n = needed_n(interval, 0.05)
    assert rule_power(interval, 0.05) == pytest.approx(0.93, abs=0.03)
    assert 200 < n < 400
    assert rule_power(paired_interval(np.resize(deltas, n), np.zeros(n)), 0.05) == pytest.approx(0.8, abs=0.05)


def test_sides_that_agree_everywhere_don_t_look_sharp():
    interval = paired_interval([0.5] * 30, [0.5] * 30)
    assert detectable_effect(interval) > 0.1
    assert needed_n(interval, 0.02) > 300
    with pytest.raises(ValueError, match="outside the margin"):
        needed_n(interval, 0.02, true=-0.05)
    with pytest.raises(ValueError, match="one-sided"):
        standard_error(two_bounds([0.5], [0.5])[0])
    assert detectable_effect(paired_interval([5.0], [4.0], low=None, high=None)) is None


# Errors --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", ["hits, 30% not 0", "graded, 30% not 0", "graded, clusters of 1–3, 50% not 0"])
def test_the_test_refuses_a_true_null_as_often_as_it_says(null):
    found = type_one(null, 50, repeats=1_000, draws=1_000)
    assert found.share <= 0.07
    assert found.share_some >= 0.02


def test_differences_that_are_no_numbers_and_no_draws_have_no_p_value():
    for wrong in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="missing or infinite"):
            randomisation_tests(np.array([[wrong], [1.0]]))
    with pytest.raises(ValueError, match="missing or infinite"):
        paired_randomisation([float("inf"), 1.0], [1.0, 0.5])
    with pytest.raises(ValueError, match="0 draws"):
        paired_randomisation([0.1, 0.2], [0.3, 0.1], draws=0)
    with pytest.raises(ValueError, match="outside the margin of nan"):
        needed_n(confidence_interval([0.2, 0.4, 0.6] * 20, low=0, high=1), float("nan"))
