"""The novelty of rows, in all that is predicted for them."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.stats

from mder_jax import NIW, MDERRegressor, Mixture, niw
from mder_jax.columns import Encoded
from mder_jax.estimator._fit_calibration import row_scores
from mder_jax.estimator._predicted_rows import with_novelty

NOVELTY = np.array([0.0, 0.5, 3.0, 1e9, np.inf])


@pytest.fixture(scope="module")
def fitted():
    X, Y = np.random.default_rng(0).normal(size=(2, 40, 2))
    model = MDERRegressor((8,), members=2, max_iter=3, embedding=None, beside=None, random_state=0).fit(
        X, Y * [10.0, 1.0] + 5
    )
    return model, X[:5], Y[:5] * [10.0, 1.0] + 5


def predicted(model, X, novelty=(0.0,) * 5, keep=True):
    return model.predictor_.rows(Encoded(X, np.array(novelty), {}), keep)


def numpy_novel(members, novelty):
    """The members of the formula, in double precision."""
    novelty = np.float64(novelty)
    mu, L, kappa, nu = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(members))
    n = mu.shape[-1]
    noise = (nu / (nu - n - 1))[..., None, None] * L @ np.swapaxes(L, -1, -2)
    w = np.where(np.isinf(novelty), 1.0, novelty / (1 + np.where(np.isinf(novelty), 0.0, novelty)))
    largest = np.max(np.diagonal(noise, axis1=-2, axis2=-1), axis=-1) * (1 + 1 / kappa)
    c = np.minimum(1, 4 / (np.minimum(1, 2 * w) + 1e-300) / largest)
    noise = c[..., None, None] * noise
    total = noise * (1 + 1 / kappa)[..., None, None] + w[:, None, None] * np.eye(n)
    ratio = np.trace(total, axis1=-2, axis2=-1) / np.trace(noise, axis1=-2, axis2=-1)
    own = total * ((nu - n - 1) / nu / ratio)[..., None, None]
    return NIW(mu, np.linalg.cholesky(own), 1 / (ratio - 1), nu)


def test_each_target_gets_its_fraction_of_the_variance(fitted):
    model, X, _ = fitted
    rows = predicted(model, X)
    members = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), rows.outputs)
    members = replace(members, L=members.L / 8)
    novel = with_novelty(members, NOVELTY.astype(np.float32))
    for got, expected in zip(jax.tree.leaves(novel), jax.tree.leaves(numpy_novel(members, NOVELTY)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    grown = niw.predictive(novel).covariance() - niw.predictive(members).covariance()
    w = np.array([0.0, 1 / 3, 0.75, 1.0, 1.0])
    np.testing.assert_allclose(grown, np.broadcast_to(w[:, None, None] * np.eye(2), grown.shape), atol=1e-4)
    noise, before = (np.trace(niw.aleatoric(each), axis1=-2, axis2=-1) for each in (novel, members))
    np.testing.assert_allclose(noise, before, rtol=1e-4)
    for part in ("mu", "nu"):
        np.testing.assert_array_equal(getattr(novel, part), getattr(members, part))


def test_a_member_that_says_anything_of_rows_it_has_not_seen_is_bounded():
    """From w = 1/2 on, so that no interval of a row further away is narrower."""
    wild = NIW(np.zeros((1, 5, 2)), np.broadcast_to(np.diag([100.0, 0.1]), (1, 5, 2, 2)), np.ones((1, 5)), 9.0)
    wild = jax.tree.map(np.float32, NIW(wild.mu, wild.L, wild.kappa, np.full((1, 5), 9.0)))
    novelty = np.array([0.0, 1 / 9, 1.0, 4.0, np.inf], np.float32)
    novel = with_novelty(wild, novelty)
    for got, expected in zip(jax.tree.leaves(novel), jax.tree.leaves(numpy_novel(wild, novelty)), strict=True):
        np.testing.assert_allclose(got[:, 1:], expected[:, 1:], rtol=1e-4, atol=1e-6)
    variances = np.diagonal(niw.predictive(novel).covariance()[0], axis1=-2, axis2=-1)
    np.testing.assert_allclose(variances[1:, 0], [4 / 0.2 + 0.1, 4.5, 4.8, 5.0], rtol=1e-4)
    assert np.all(np.diff(variances[2:], axis=0) > 0)
    np.testing.assert_array_equal(novel.L[:, 0], wild.L[:, 0])


def test_no_novelty_leaves_every_bit(fitted):
    model, X, _ = fitted
    rows = predicted(model, X)
    assert rows.novelty is None  # nothing is computed for it
    members = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), rows.outputs)
    jax.tree.map(np.testing.assert_array_equal, with_novelty(members, np.zeros(5, np.float32)), members)
    none, zero = rows.standardized(), replace(rows, novelty=np.zeros(5)).standardized()
    jax.tree.map(np.testing.assert_array_equal, none, zero)


@pytest.mark.parametrize("keep", [False, True])
def test_every_result_uses_it(fitted, keep):
    model, X, Y = fitted
    plain = predicted(model, X)
    rows = predicted(model, X, NOVELTY, keep)
    members = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), plain.outputs)
    mean, std = model.predictor_.targets
    novel = numpy_novel(members, NOVELTY)
    mu, L, kappa, nu = map(np.asarray, jax.tree.leaves(novel))
    expected = Mixture(NIW(mean + std * mu, std[:, None] * L, kappa, nu))
    moments = rows.moments()
    np.testing.assert_allclose(moments.within, expected.epistemic_within(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(moments.aleatoric, expected.aleatoric(), rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(moments.aleatoric[0], plain.moments().aleatoric[0])
    np.testing.assert_allclose(rows.log_prob(Y), expected.log_prob(Y), rtol=1e-4)
    np.testing.assert_allclose(rows.quantiles([0.1])[..., 0], expected.ppf(0.1), rtol=1e-3)
    np.testing.assert_allclose(rows.interval(0.8, joint=False).lower, expected.ppf(0.1), rtol=1e-3)
    np.testing.assert_allclose(rows.interval(0.8, joint=True).radius, expected.region_radius(0.8), rtol=1e-3)
    np.testing.assert_allclose(rows.distribution().ppf(0.1), expected.ppf(0.1), rtol=1e-3)
    drawn = rows.sample(jax.random.key(0), 500)
    assert scipy.stats.kstest(np.asarray(expected.cdf(np.moveaxis(drawn, -1, 0)))[:, 3, 0], "uniform").pvalue > 1e-3
    assert (
        scipy.stats.kstest(np.asarray(plain.distribution().cdf(np.moveaxis(drawn, -1, 0)))[:, 3, 0], "uniform").pvalue
        < 1e-3
    )
    _, single = row_scores(rows, Y, resolution=0.0)
    np.testing.assert_allclose(single, np.abs(Y - expected.mean()) / expected.std(), rtol=1e-3)
    part = rows.take([3, 1]).moments()
    np.testing.assert_allclose(part.within, moments.within[[3, 1]], rtol=1e-6)
