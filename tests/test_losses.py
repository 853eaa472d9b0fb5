"""Losses: values against scipy, one per example, shapes refused rather than broadcast."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import mder_jax as mder


def test_amini_loss_with_both_definitions_of_the_total_evidence():
    nig = mder.NIG(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]), jnp.array([2.0, 3.0]), jnp.array([1.0, 0.5]))
    y = jnp.array([0.5, -1.0])
    scale = np.sqrt(nig.beta * (1 + nig.kappa) / (nig.kappa * nig.alpha))
    nll = -scipy.stats.t.logpdf(y, 2 * nig.alpha, nig.mu, scale)
    for definition, phi in (("amini2020", 2 * nig.kappa + nig.alpha), ("meinert2021", nig.kappa + 2 * nig.alpha)):
        expected = nll + 0.1 * np.abs(y - nig.mu) * phi
        np.testing.assert_allclose(mder.der_loss(nig, y, 0.1, definition), expected, rtol=1e-10)
    np.testing.assert_allclose(mder.der_loss(nig, y, lam=0.0), nll, rtol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_gaussian_nll_is_scipys(n):
    rng = np.random.default_rng(n)
    gaussian = mder.gaussian_link(rng.normal(size=(6, mder.num_outputs(n) - 1)), n)
    y = rng.normal(size=(6, n))
    L = np.asarray(gaussian.scale_tril)
    expected = [
        -scipy.stats.multivariate_normal(m, f @ f.T).logpdf(v) for m, f, v in zip(gaussian.loc, L, y, strict=True)
    ]
    np.testing.assert_allclose(mder.gaussian_nll(gaussian, y), expected, rtol=1e-9)
    np.testing.assert_allclose(mder.gaussian_nll(gaussian, y), -gaussian.log_prob(y), rtol=1e-10)
    if n == 1:  # eq:minnllgaussian
        sigma = L[:, 0, 0]
        univariate = 0.5 * np.log(2 * np.pi * sigma**2) + (y[:, 0] - gaussian.loc[:, 0]) ** 2 / (2 * sigma**2)
        np.testing.assert_allclose(mder.gaussian_nll(gaussian, y), univariate, rtol=1e-10)


def test_mder_nll_is_one_value_per_example_with_and_without_missing_targets():
    rng = np.random.default_rng(0)
    niw = mder.niw_link(rng.normal(size=(7, 10)), 3)
    y = rng.normal(size=(7, 3))
    complete = mder.mder_nll(niw, y, missing=False)
    assert complete.shape == (7,)
    np.testing.assert_allclose(mder.mder_nll(niw, y), complete, rtol=1e-10)
    t = mder.predictive(niw)
    np.testing.assert_allclose(complete, -t.log_prob(y), rtol=1e-10)
    y[2, 1] = np.nan
    np.testing.assert_allclose(mder.mder_nll(niw, y)[2], -t.marginal([0, 2]).log_prob(y[:, [0, 2]])[2], rtol=1e-10)
    y[3] = np.nan
    assert float(mder.mder_nll(niw, y)[3]) == 0.0
