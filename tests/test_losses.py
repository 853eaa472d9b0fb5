"""Losses: values against scipy, one per example, shapes refused rather than broadcast."""

import jax
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


@pytest.mark.parametrize("n", [3, 6])
def test_complete_rows_have_the_same_loss_whatever_is_missing_beside_them(n):
    rng = np.random.default_rng(n)
    raw, y = rng.normal(size=(2, 5, mder.num_outputs(n))), rng.normal(size=(2, 5, n))
    holes = y.copy()
    holes[1, 3, :2] = np.nan

    def loss(raw, y, missing):
        return mder.mder_nll(mder.niw_link(raw, n), y, missing=missing)

    def slope(raw, y, missing):
        return jax.grad(lambda raw: jnp.sum(loss(raw, y, missing)))(raw)

    for function in (loss, slope):
        expected = function(raw, y, False)
        complete = np.broadcast_to(~np.isnan(holes).any(axis=-1), expected.shape[:2])
        compiled = jax.jit(function, static_argnums=2)
        of_batch = jax.jit(jax.vmap(lambda raw, y, function=function: function(raw, y, True)))
        for found in (function(raw, y, True), compiled(raw, y, True), of_batch(raw, y)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        for found in (function(raw, holes, True), compiled(raw, holes, True), of_batch(raw, holes)):
            np.testing.assert_allclose(found[complete], expected[complete], rtol=1e-10, atol=1e-14)
            assert np.isfinite(found).all()


def test_complete_data_do_not_pay_for_missing_targets():
    niw, y = mder.niw_link(np.zeros((4, mder.num_outputs(6))), 6), jnp.ones((4, 6))
    of_known = jax.make_jaxpr(lambda niw: mder.mder_nll(niw, y))(niw)
    assert str(of_known) == str(jax.make_jaxpr(lambda niw: mder.mder_nll(niw, y, missing=False))(niw))
    niws = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), niw)
    of_traced = jax.make_jaxpr(jax.vmap(mder.mder_nll))(niws, jnp.stack([y] * 3))
    assert " cond[" in str(of_traced)  # one branch for all: `vmap` has not turned it into a choice of two results
