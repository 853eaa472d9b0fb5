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
    model = MDERRegressor((8,), members=2, max_iter=3, random_state=0).fit(X, Y * [10.0, 1.0] + 5)
    return model, X[:5], Y[:5] * [10.0, 1.0] + 5


def predicted(model, X, novelty=(0.0,) * 5, keep=True):
    return model.predictor_.rows(Encoded(X, np.array(novelty), {}), keep)


def numpy_kappa(members, novelty):
    """κ' of the formula, in double precision, (M, N)."""
    mu, L, kappa, nu = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(members))
    n = mu.shape[-1]
    noise = (nu / (nu - n - 1))[..., None] * (L**2).sum(axis=-1)
    w = np.where(np.isinf(novelty), 1.0, novelty / (1 + np.where(np.isinf(novelty), 0.0, novelty)))
    return noise.mean(axis=-1) / (noise.mean(axis=-1) / kappa + w)


def test_variance_of_the_mean_grows_by_the_share(fitted):
    model, X, _ = fitted
    rows = predicted(model, X)
    members = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), rows.outputs)
    novel = with_novelty(members, NOVELTY.astype(np.float32))
    np.testing.assert_allclose(novel.kappa, numpy_kappa(members, NOVELTY), rtol=1e-5)
    grown = niw.epistemic(novel) - niw.epistemic(members)
    w = [0.0, 1 / 3, 0.75, 1.0, 1.0]
    np.testing.assert_allclose(np.trace(grown, axis1=-2, axis2=-1) / 2, [w, w], rtol=1e-4, atol=1e-6)
    for part in ("mu", "L", "nu"):
        np.testing.assert_array_equal(getattr(novel, part), getattr(members, part))


def test_no_novelty_leaves_every_bit(fitted):
    model, X, _ = fitted
    rows = predicted(model, X)
    assert rows.novelty is None  # nothing is computed for it
    members = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), rows.outputs)
    np.testing.assert_array_equal(with_novelty(members, np.zeros(5, np.float32)).kappa, members.kappa)
    none, zero = rows.standardized(), replace(rows, novelty=np.zeros(5)).standardized()
    jax.tree.map(np.testing.assert_array_equal, none, zero)


@pytest.mark.parametrize("keep", [False, True])
def test_every_result_uses_it(fitted, keep):
    model, X, Y = fitted
    plain = predicted(model, X)
    rows = predicted(model, X, NOVELTY, keep)
    members = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), plain.outputs)
    mean, std = model.predictor_.targets
    members = NIW(mean + std * members.mu, std[:, None] * members.L, numpy_kappa(members, NOVELTY), members.nu)
    expected = Mixture(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), members))
    moments = rows.moments()
    np.testing.assert_allclose(moments.within, expected.epistemic_within(), rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(moments.aleatoric, plain.moments().aleatoric)
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
