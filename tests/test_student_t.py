"""The multivariate t against scipy and numpyro, its moments by sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as numpyro_dist
import pytest
import scipy.stats

import mder_jax as mder
from tests.support.cases import factors, long

# Compiled as a whole, which takes less time than each operation for every shape; test_properties has them eager too.
LOG_PROB, ENTROPY, DISTANCE = map(jax.jit, (mder.StudentT.log_prob, mder.StudentT.entropy, mder.StudentT.mahalanobis))


def example(n, df=4.5, batch=(), seed=0):
    rng = np.random.default_rng(seed)
    L = factors(rng, batch, n)
    return mder.StudentT(df, jax.device_put(rng.normal(size=(*batch, n))), L)


def scipy_t(t):
    L = np.asarray(t.scale_tril)
    return scipy.stats.multivariate_t(np.asarray(t.loc), L @ L.T, df=float(t.df))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("df", [0.8, 2.0, 4.5, 1e3])
def test_log_prob_and_entropy_are_scipys(n, df):
    t = example(n, df)
    y = np.random.default_rng(1).normal(size=(20, n)) * 3
    np.testing.assert_allclose(LOG_PROB(t, y), scipy_t(t).logpdf(y).reshape(20), rtol=1e-9)
    np.testing.assert_allclose(ENTROPY(t), scipy_t(t).entropy(), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_infinite_df_is_the_multivariate_normal(n):
    t = example(n, np.inf)
    L = np.asarray(t.scale_tril)
    normal = scipy.stats.multivariate_normal(np.asarray(t.loc), L @ L.T)
    y = np.random.default_rng(1).normal(size=(20, n))
    np.testing.assert_allclose(LOG_PROB(t, y), normal.logpdf(y), rtol=1e-9)
    np.testing.assert_allclose(ENTROPY(t), normal.entropy(), rtol=1e-12)
    np.testing.assert_allclose(t.covariance(), L @ L.T, rtol=1e-12)
    draws = np.asarray(t.sample(jax.random.key(0), (100_000,)))
    np.testing.assert_allclose(draws.mean(0), t.loc, atol=4 * np.sqrt(np.diag(L @ L.T) / 1e5).max())


def test_numpyro_agrees_in_a_batch():
    t = example(3, 5.0, batch=(6,))
    y = jnp.asarray(np.random.default_rng(2).normal(size=(6, 3)))
    reference = numpyro_dist.MultivariateStudentT(t.df, t.loc, t.scale_tril)
    np.testing.assert_allclose(LOG_PROB(t, y), reference.log_prob(y), rtol=1e-9)
    np.testing.assert_allclose(linalg_diagonal(t.covariance()), reference.variance, rtol=1e-9)


def linalg_diagonal(matrix):
    return np.diagonal(np.asarray(matrix), axis1=-2, axis2=-1)


@pytest.mark.parametrize("df", [0.7, 1.0, 1.5, 2.0, 2.5, 9.0])
def test_mean_and_variance_exist_where_scipy_says(df):
    t = example(1, df)
    mean, variance = scipy.stats.t.stats(df, float(t.loc[0]), float(t.scale_tril[0, 0]))
    np.testing.assert_allclose(t.mean()[0], mean)
    np.testing.assert_allclose(t.covariance()[0, 0], variance)
    pair = example(2, df).covariance()
    assert bool(jnp.isfinite(pair[0, 1])) == (df > 2)


@pytest.mark.parametrize("n", [long(1), 2, long(4)])
def test_samples_have_the_stated_moments(n):
    t = example(n, 9.0)
    draws = np.asarray(t.sample(jax.random.key(3), (200_000,)))
    centred = draws - np.asarray(t.loc)
    error = centred.std(0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(0) - np.asarray(t.loc)) < 4 * error)
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(0) / np.sqrt(len(draws))
    assert np.all(np.abs(products.mean(0) - np.asarray(t.covariance())) < 4 * error)
    pit = scipy.stats.kstest(np.asarray(t.joint_pit(draws[:5000])), "uniform")
    assert pit.pvalue > 1e-3


def test_samples_for_few_degrees_of_freedom_are_finite():
    draws = example(2, 0.05).sample(jax.random.key(0), (10_000,))
    assert np.isfinite(np.asarray(draws)).mean() > 0.99 and not np.isnan(np.asarray(draws)).any()


def test_marginal_in_any_order():
    t = example(4, batch=(3,))
    part = t.marginal([2, 0])
    S = np.asarray(t.scale_tril @ t.scale_tril.mT)
    np.testing.assert_allclose(part.scale_tril @ part.scale_tril.mT, S[:, [2, 0]][:, :, [2, 0]], rtol=1e-10)
    np.testing.assert_array_equal(part.loc, t.loc[:, jnp.array([2, 0])])
    np.testing.assert_array_equal(part.df, t.df)


def test_conditional_times_marginal_is_the_joint():
    t = example(4, batch=(3,))
    y = jnp.asarray(np.random.default_rng(5).normal(size=(3, 4)))
    given, other = jnp.array([3, 1]), jnp.array([0, 2])
    marginal, conditional = t.marginal([3, 1]), t.conditional([3, 1], y[:, given])
    product = LOG_PROB(marginal, y[:, given]) + LOG_PROB(conditional, y[:, other])
    np.testing.assert_allclose(product, LOG_PROB(t, y), rtol=1e-10)


def test_conditional_of_a_gaussian():
    t = example(2, np.inf)
    S = np.asarray(t.scale_tril @ t.scale_tril.T)
    given = t.conditional([0], jnp.array([0.7]))
    np.testing.assert_allclose(given.loc, t.loc[1:] + S[1, 0] / S[0, 0] * (0.7 - t.loc[0]), rtol=1e-12)
    np.testing.assert_allclose(given.scale_tril**2, [[S[1, 1] - S[1, 0] ** 2 / S[0, 0]]], rtol=1e-12)


def test_cdf_quantiles_and_intervals_of_each_target():
    t = example(3, 3.5, batch=(4,))
    scale = np.sqrt(linalg_diagonal(t.scale_tril @ t.scale_tril.mT))
    reference = scipy.stats.t(3.5, np.asarray(t.loc), scale)
    y = np.random.default_rng(6).normal(size=(4, 3))
    np.testing.assert_allclose(t.cdf(y), reference.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(t.ppf(0.3), reference.ppf(0.3), rtol=1e-9)
    np.testing.assert_allclose(t.ppf(reference.cdf(y)), y, rtol=1e-8)
    np.testing.assert_allclose(t.interval(0.9), reference.interval(0.9), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_region_of_a_coverage_holds_that_share_of_samples(n):
    t = example(n, 4.0)
    draws = t.sample(jax.random.key(7), (40_000,))
    inside = np.asarray(DISTANCE(t, draws)) <= float(t.region_radius(0.8))
    assert abs(inside.mean() - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 40_000)


@pytest.mark.parametrize("method", ["log_prob", "mahalanobis", "joint_pit"])
def test_gradient_at_the_location_is_zero_not_nan(method):
    t = example(3)
    np.testing.assert_array_equal(jax.jit(jax.grad(getattr(t, method)))(t.loc), 0)


@pytest.mark.parametrize("df", [0.7, 3.0, np.inf])
def test_draws_have_the_distribution_of_scipys(df):
    draws = 4000
    t = mder.StudentT(df, jnp.zeros(3), jnp.eye(3))
    x = np.asarray(t.sample(jax.random.key(3), draws))
    reference = scipy.stats.norm if np.isinf(df) else scipy.stats.t(df)
    for j in range(3):
        assert scipy.stats.kstest(x[:, j], reference.cdf).pvalue > 1e-4
    squared = np.sum(x**2, axis=1) / 3
    radial = scipy.stats.chi2(3, scale=1 / 3) if np.isinf(df) else scipy.stats.f(3, df)
    assert scipy.stats.kstest(squared, radial.cdf).pvalue > 1e-4
    direction = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(direction.T @ direction / draws, np.eye(3) / 3, atol=4 / np.sqrt(draws))


def test_distance_of_what_was_not_observed_is_not_zero():
    t = mder.StudentT(4.0, jnp.zeros(2), jnp.eye(2))
    assert np.isnan(t.mahalanobis(jnp.array([1.0, jnp.nan]))) and np.isnan(t.joint_pit(jnp.array([jnp.nan, 1.0])))
