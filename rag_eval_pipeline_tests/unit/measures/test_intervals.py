import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rag_eval_pipeline.measures import bootstrap
from rag_eval_pipeline.measures.bounded import bounded_limits
from rag_eval_pipeline.measures.intervals import Plan, confidence_interval, limits_of, mean_intervals
from rag_eval_pipeline_tests.bench.intervals import NULLS, POPULATIONS, coverage, faults, type_one

SKEWED = np.random.default_rng(5).beta(0.5, 3, 60)


def zs(level=0.95, columns=1):
    z = float(stats.norm.ppf((1 + level) / 2))
    return np.full(columns, -z), np.full(columns, z)


# Against scipy ---------------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 400), share=st.floats(0, 1), level=st.sampled_from([0.8, 0.95, 0.99]))
def test_shares_have_the_limits_of_scipys_exact_interval(n, share, level):
    hits = round(n * share)
    found = confidence_interval([1.0] * hits + [0.0] * (n - hits), level=level)
    expected = stats.binomtest(hits, n).proportion_ci(level)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (found.method, found.n, found.n_clusters) == ("clopper_pearson", n, n)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_one_sided_limits_of_shares_are_scipys(side):
    alternative = {"lower": "greater", "upper": "less"}[side]
    expected = stats.binomtest(17, 20, alternative=alternative).proportion_ci(0.95)
    found = confidence_interval([1] * 17 + [0] * 3, side=side)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_bca_limits_are_scipys_on_the_same_draws():
    values = SKEWED
    drawn = bootstrap.resample(values[:, None], np.ones(60), 5_000, seed=1)
    low, high = bootstrap.bca_limits(values[:, None], np.ones(60), drawn.means, zs())
    expected = stats.bootstrap((values,), np.mean, n_resamples=0, bootstrap_result=_Drawn(drawn.means[0]), method="BCa")
    assert (low[0], high[0]) == pytest.approx(tuple(expected.confidence_interval), abs=1e-12)


def test_bca_limits_of_clusters_are_scipys_on_the_same_draws():
    sums, sizes = clusters_of(SKEWED)
    drawn = bootstrap.resample(sums[:, None], sizes, 5_000, seed=1)

    def ratio(picked):
        return sums[picked].sum() / sizes[picked].sum()

    low, high = bootstrap.bca_limits(sums[:, None], sizes, drawn.means, zs())
    expected = stats.bootstrap(
        (np.arange(len(sums)),),
        ratio,
        vectorized=False,
        n_resamples=0,
        bootstrap_result=_Drawn(drawn.means[0]),
        method="BCa",
    )
    assert (low[0], high[0]) == pytest.approx(tuple(expected.confidence_interval), abs=1e-12)


def test_draws_are_distributed_as_scipys():
    ours = bootstrap.resample(SKEWED[:, None], np.ones(60), 10_000, seed=2).means[0]
    theirs = stats.bootstrap(
        (SKEWED,), np.mean, n_resamples=10_000, rng=np.random.default_rng(3)
    ).bootstrap_distribution
    assert stats.ks_2samp(ours, theirs).pvalue > 0.01


def test_errors_of_draws_are_those_of_each_resample():
    sums, sizes = clusters_of(SKEWED)
    drawn = bootstrap.resample(sums[:, None], sizes, 200, seed=4)
    weights = np.concatenate(list(bootstrap.multinomial_weights(len(sizes), 200, 4)))
    for row, mean, error in zip(weights.astype(int), drawn.means[0], drawn.errors[0], strict=True):
        s, m = np.repeat(sums, row), np.repeat(sizes, row)
        assert mean == pytest.approx(s.sum() / m.sum(), abs=1e-12)
        assert error == pytest.approx(np.sqrt(((s - mean * m) ** 2).sum()) / m.sum(), abs=1e-9)


def test_quantiles_of_rows_are_numpys():
    rng = np.random.default_rng(0)
    values, shares = rng.random((20, 101)), rng.random(20)
    expected = [np.quantile(row, share) for row, share in zip(values, shares, strict=True)]
    assert bootstrap.quantile_of_each(values, shares) == pytest.approx(expected, abs=1e-12)


def test_quantiles_are_students_where_values_are_normal_enough_and_wider_where_few_differ():
    sizes, normal = np.ones(50), stats.norm.ppf((np.arange(50) + 0.5) / 50)
    few = np.where(np.arange(50) < 10, 1.0, 0.0)
    low, high = bootstrap.expanded_quantiles(np.column_stack([normal, few]), sizes, (0.025, 0.025))
    assert (low == -high).all()
    assert low[1] < low[0]
    degrees = bootstrap.freedom(normal[:, None], sizes)[0]
    assert high[0] == pytest.approx(stats.t.ppf(0.975, degrees) * np.sqrt(50 / 49), abs=1e-9)
    assert bootstrap.freedom(few[:, None], sizes)[0] == pytest.approx(2 * 50 / (stats.kurtosis(few, fisher=False) - 1))


class _Drawn:
    """What `scipy.stats.bootstrap` takes from an earlier result."""

    def __init__(self, draws):
        self.bootstrap_distribution = draws


def clusters_of(values):
    """Sums and sizes of clusters of 1 to 3."""
    codes = np.repeat(np.arange(30), np.resize([1, 2, 3], 30))[: len(values)]
    return np.bincount(codes, values), np.bincount(codes).astype(float)


# Bounded -----------------------------------------------------------------------------------------------------------------


def by_hand(values, tail, bets):
    """Every m on a fine grid whose capital stays below 1 / tail."""
    grid = np.linspace(1e-6, 1, 200_001)
    capital = np.mean([np.prod([1 + bet * (x / grid - 1) for x in values], axis=0) for bet in bets], axis=0)
    return grid[capital < 1 / tail][0]


@pytest.mark.parametrize("values", [[1.0] * 12, [0.0, 0.3, 1.0, 0.9], [0.2] * 7 + [1.0], list(SKEWED[:9])])
def test_conservative_limits_are_where_the_capital_of_the_bets_is_reached(values):
    from rag_eval_pipeline.measures.bounded import BETS

    found = confidence_interval(values, binary=False, low=0, high=1)
    assert found.method == "bounded"
    assert found.conservative
    assert found.low == pytest.approx(by_hand(values, 0.025, BETS), abs=1e-5)
    assert 1 - found.high == pytest.approx(by_hand([1 - x for x in values], 0.025, BETS), abs=1e-5)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=30, max_size=60), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_condensed_values_give_the_limits_of_all_values(values, extra):
    values = np.array([*values, *[0.5] * 60 * extra])
    found = confidence_interval(values, binary=False, low=0, high=1, draws=200)
    if found.method != "bounded":
        return
    one, bounds = np.ones((1, 1)), (np.zeros(1), np.ones(1))
    low, high = bounded_limits(values[:, None], one, one, bounds, (0.025, 0.025))
    assert (found.low, found.high) == pytest.approx((low[0], high[0]), abs=1e-9)


def test_limits_move_with_the_scale():
    values = np.array([0.1, 0.9, 0.4, 0.4])
    unit = confidence_interval(values, low=0, high=1)
    wide = confidence_interval(values * 10 - 5, low=-5, high=5)
    assert (wide.low, wide.high) == pytest.approx((unit.low * 10 - 5, unit.high * 10 - 5), abs=1e-9)


# Which method ------------------------------------------------------------------------------------------------------------


def method(values, **options):
    return confidence_interval(values, draws=200, **options).method


def test_method_follows_from_what_the_values_are():
    values = np.linspace(0, 1, 40)
    assert method(values, low=0, high=1) == method(values) == "bca"
    assert method(values[:29], low=0, high=1) == "bounded"
    assert method([*values[1:10], *[0.5] * 60], low=0, high=1) == "bounded", "nine differ"
    assert method([*[1.0] * 10, *[0.5] * 60], low=0, high=1) == "bca", "ten differ, alike"
    assert method([*[0.51] * 9, 1.0, *[0.5] * 60], low=0, high=1) == "bounded", "ten differ, one carries all"
    assert method([1, 0, 1]) == method([1, 0, 1], low=0, high=1) == "clopper_pearson"
    assert method([1, 0, 1], low=0, high=5) == "bounded"
    assert method([1, 0, 1], low=0) == "none"
    assert method([1, 0] * 30, clusters=[*range(20)] * 3) == "none", "a binary value in clusters is no binomial"
    assert method([1, 0] * 30, clusters=[*range(20)] * 3, low=0, high=1) == "bounded"
    assert method([1, 0, 1], clusters=["a", "b", "c"]) == method([1, 0, 1], clusters=[None] * 3) == "clopper_pearson"


def test_without_a_method_limits_are_null_and_the_status_says_why():
    found = confidence_interval([3.0] * 20)
    assert (found.mean, found.low, found.high, found.method, found.status) == (3.0, None, None, "none", "no_bounds")
    found = confidence_interval([])
    assert (found.mean, found.low, found.status, found.n) == (None, None, "no_values", 0)
    assert limits_of([found])["interval"] == ["no_values"]


def test_queries_of_a_cluster_are_not_independent_and_the_mean_stays_over_queries():
    rng = np.random.default_rng(0)
    sizes = np.resize([1, 2, 6], 60)
    values = np.repeat(rng.random(60), sizes)
    codes = np.repeat(np.arange(60), sizes)
    alone, together = (
        confidence_interval(values, low=0, high=1),
        confidence_interval(values, clusters=codes, low=0, high=1),
    )
    assert alone.mean == together.mean == pytest.approx(values.mean())
    assert together.width > 1.4 * alone.width
    assert (together.n, together.n_clusters) == (len(values), 60)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.sampled_from(["two", "lower", "upper"]),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_an_interval_holds_its_mean_stays_in_range_and_has_width(values, side, per):
    found = confidence_interval(
        values, low=0, high=1, clusters=[at // per for at in range(len(values))], side=side, draws=300
    )
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.low < found.high


def test_same_values_same_interval_and_another_seed_another():
    one, again = confidence_interval(SKEWED), confidence_interval(SKEWED)
    assert one == again
    assert one != confidence_interval(SKEWED, seed=1)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ([0.5, None], {}, "missing"),
        ([0.5, float("nan")], {}, "missing"),
        ([0.5, float("inf")], {}, "infinite"),
        ([0.5, 2.0], {"low": 0, "high": 1}, "outside"),
        ([0.5], {"binary": True}, "binary"),
        ([0.5], {"clusters": [1, 2]}, "clusters"),
        ([0.5], {"level": 95}, "level"),
        ([0.5], {"side": "left"}, "side"),
        ([0.5], {"low": 1, "high": 0}, "less"),
        ([0.5], {"draws": 5}, "draws"),
    ],
)
def test_what_makes_no_sense_is_refused(values, options, said):
    with pytest.raises(ValueError, match=said):
        confidence_interval(values, **options)


# Many at once ------------------------------------------------------------------------------------------------------------


def test_many_at_once_are_as_one_by_one_with_gaps_bounds_and_clusters():
    rng = np.random.default_rng(1)
    values = rng.random((50, 6))
    values[:, 1] = values[:, 1] > 0.4
    values[:25, 2] = np.nan
    values[:, 3] = np.nan
    values[:, 4] *= 7
    clusters = [None, *range(49)]
    low, high = [0, 0, 0, 0, 0, None], [1, 1, 1, 1, 7, None]
    found = mean_intervals(values, clusters=clusters, low=low, high=high, plan=Plan(draws=500))
    for at, column in enumerate(values.T):
        there = ~np.isnan(column)
        mine = [cluster for cluster, ok in zip(clusters, there, strict=True) if ok]
        alone = confidence_interval(column[there], clusters=mine, low=low[at], high=high[at], draws=500)
        assert found[at].method == alone.method
        assert (found[at].low, found[at].high) == pytest.approx((alone.low, alone.high), abs=1e-9)


def test_weights_do_not_depend_on_how_they_are_cut(monkeypatch):
    whole = np.concatenate(list(bootstrap.multinomial_weights(40, 500, 3)))
    monkeypatch.setattr(bootstrap, "BLOCK", 40 * 60)
    cut = list(bootstrap.multinomial_weights(40, 500, 3))
    assert len(cut) > 5
    assert (np.concatenate(cut) == whole).all()
    assert (whole.sum(axis=1) == 40).all()


def test_twenty_measures_of_a_thousand_queries_take_seconds_and_bounded_memory():
    values = np.random.default_rng(0).beta(2, 5, (1_000, 20))
    tracemalloc.start()
    started = time.process_time()
    found = mean_intervals(values, low=0, high=1)
    spent = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert all(each.method == "bca" for each in found)
    assert spent < 10
    assert peak < 250e6, "10,000 × 1,000 weights alone would be 80 MB a copy; blocks bound what is held at once"


# Coverage ----------------------------------------------------------------------------------------------------------------


QUICK = (
    "skewed, Beta(0.3, 3)",
    "deltas, 20% not 0",
    "paired hits, 10% up, 10% down",
    "clusters of 1–6, hits 0.9",
    "hits 0.95",
)


@pytest.mark.parametrize("name", QUICK)
def test_intervals_cover_as_often_as_they_promise(name):
    population = next(each for each in POPULATIONS if each.name == name)
    found = coverage(population, 50, repeats=600, draws=1_000)
    assert found.share >= 0.93 - 0.02
    assert not found.zero


@pytest.mark.full
def test_every_promise_holds_on_all_populations():
    covered = [coverage(population, n, 2_000, 2_000, seed=3) for population in POPULATIONS for n in (20, 50, 200)]
    refused = [type_one(null, n, 2_000, 2_000, seed=3) for null in NULLS for n in (20, 50, 200)]
    assert faults(covered, refused) == []


@pytest.mark.parametrize("bounds", [{"low": float("nan"), "high": 1}, {"low": 0, "high": float("nan")}])
def test_a_bound_that_is_no_number_is_refused_and_no_mean_is_lost_in_it(bounds):
    with pytest.raises(ValueError, match="low must be less than high"):
        confidence_interval([0.1, 0.2], **bounds)
