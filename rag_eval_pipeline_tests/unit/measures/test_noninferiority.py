"""The exact test of paired shares: it never passes more than it says at the margin, and agrees with summing all tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multinomial

from rag_eval_pipeline.measures.noninferiority import _most_losses, _score, exact_noninferiority
from rag_eval_pipeline_tests.sizes import FULL, examples


def tables(n):
    """All (up, down) of n pairs."""
    up, down = (grid.ravel() for grid in np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij"))
    there = up + down <= n
    return up[there], down[there]


def chance(up, down, n, wins, margin):
    return multinomial.pmf(np.stack([up, down, n - up - down], 1), n, [wins, wins + margin, 1 - 2 * wins - margin])


@examples(40, 500)
@given(n=st.integers(2, 40), up=st.integers(0, 40), down=st.integers(0, 40), margin=st.floats(0.01, 0.5))
def test_it_is_the_worst_sum_over_all_tables_at_least_as_good(n, up, down, margin):
    up, down = min(up, n // 2), min(down, n - n // 2)
    ups, downs = tables(n)
    score = _score(np.array(up), np.array(down), n, margin)
    good = _score(ups, downs, n, margin) >= score - 1e-9
    worst = max(chance(ups, downs, n, q, margin)[good].sum() for q in np.linspace(0, (1 - margin) / 2, 200))
    p = exact_noninferiority(up, down, n, margin)
    assert worst - 1e-9 <= p <= worst + 0.02, "a score that is not monotone counts for more, never for less"


@pytest.mark.parametrize("n", [20, 50, 120] if FULL else [30])
@pytest.mark.parametrize("margin", [0.03, 0.1])
def test_at_the_margin_it_passes_at_most_one_of_twenty_whatever_the_share_of_wins(n, margin):
    ups, downs = tables(n)
    near = (downs <= ups + 3 * margin * n + 8) & (ups <= 0.5 * n + 1)  # others never pass
    p = np.full(len(ups), 1.0)
    scores = _score(ups, downs, n, margin)
    p[near & (scores > 1.2)] = [
        exact_noninferiority(int(u), int(d), n, margin)
        for u, d in zip(ups[near & (scores > 1.2)], downs[near & (scores > 1.2)], strict=True)
    ]
    for wins in (0.0, 0.013, 0.05, 0.117, 0.3):
        assert chance(ups, downs, n, wins, margin)[p <= 0.05].sum() <= 0.05 + 1e-6


def test_scores_fall_with_every_loss_and_rise_with_every_win():
    ups, downs = tables(25)
    scores = dict(
        zip(zip(ups.tolist(), downs.tolist(), strict=True), _score(ups, downs, 25, 0.1).tolist(), strict=True)
    )
    assert all(scores[u, d + 1] <= s + 1e-9 for (u, d), s in scores.items() if (u, d + 1) in scores)
    assert all(scores[u + 1, d] >= s - 1e-9 for (u, d), s in scores.items() if (u + 1, d) in scores)
    most = _most_losses(np.arange(26), 25, 0.1, scores[3, 2])
    assert all(
        m == max([d for (u, d), s in scores.items() if u == w and s >= scores[3, 2] - 1e-9], default=-1)
        for w, m in enumerate(most)
    )


def test_counts_that_are_none_are_refused():
    for wrong in ((-1, 0, 5, 0.1), (3, 3, 5, 0.1), (0, 0, 0, 0.1), (0, 0, 5, 1.0), (0, 0, 5, -0.1)):
        with pytest.raises(ValueError, match="must"):
            exact_noninferiority(*wrong)
