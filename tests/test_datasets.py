"""Data of the paper's experiments: distributions against scipy, truths against what was drawn."""

import jax
import numpy as np
import pytest
from scipy import stats

from mder_jax import datasets

KEY = jax.random.key(3)


def test_circle_has_a_v_shaped_density_and_radial_noise():
    t, xy = (np.asarray(part) for part in datasets.circle(KEY, 20_000, noise=0.1))
    assert t.min() >= 0 and t.max() <= 2 * np.pi
    edges = np.linspace(0, 2 * np.pi, 41)
    density = np.abs(1 - edges / np.pi) / np.pi  # the paper's, normalised
    expected = len(t) * np.diff(np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(edges))]))
    counts = np.histogram(t, edges)[0]
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3
    radius = np.hypot(*xy.T)
    assert stats.kstest(radius, stats.norm(1, 0.1).cdf).pvalue > 1e-3
    assert np.allclose(np.mod(np.arctan2(xy[:, 1], xy[:, 0]), 2 * np.pi), t[:, 0])


def test_circle_truth_is_the_moments_of_the_data():
    angle = 2.0
    draws = (1 + 0.1 * np.random.default_rng(0).normal(size=(200_000, 1))) * [np.cos(angle), np.sin(angle)]
    assert np.allclose(datasets.circle_covariance(angle, 0.1), np.cov(draws.T), atol=2e-4)
    assert np.allclose(datasets.circle_mean(angle), draws.mean(axis=0), atol=2e-3)
    assert np.linalg.matrix_rank(np.asarray(datasets.circle_covariance(angle))) == 1


def test_cubic_and_three_points_scatter_around_their_truth():
    x, y = (np.asarray(part) for part in datasets.cubic(KEY, 20_000))
    assert stats.kstest(x[:, 0], stats.uniform(-4, 8).cdf).pvalue > 1e-3
    assert stats.kstest((y - x**3)[:, 0], stats.norm(0, 3).cdf).pvalue > 1e-3
    x, y = (np.asarray(part) for part in datasets.three_points(KEY, 3000))
    residual = y - np.array([[0.0], [1.0], [-1.0]])[np.searchsorted([0, 1, 3], x[:, 0])]
    spread = [residual[x == place].std() for place in (0, 1, 3)]
    assert np.allclose(spread, [0.1, 0.1, 0.5], rtol=0.05)


def test_student_t_follows_scipys():
    draws = np.asarray(datasets.student_t(KEY, 20_000, df=3.0, scale=2.0))
    assert stats.kstest(draws[:, 0], stats.t(3, scale=2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("make", [datasets.circle, datasets.cubic, datasets.three_points])
def test_no_points_is_an_error(make):
    with pytest.raises(ValueError, match="at least one point is needed; got 0"):
        make(KEY, 0)
