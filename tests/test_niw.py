"""The NIW: density, samples, moments, posterior, marginals and information."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as numpyro_dist
import pytest
import scipy.stats

import mder_jax as mder
from mder_jax import nig
from tests.support.cases import factors, long

# Compiled as a whole, which takes less time than each operation for every shape; test_properties has them eager too.
LOG_PROB, LOG_EVIDENCE = jax.jit(mder.log_prob), jax.jit(mder.log_evidence)
POSTERIOR, INFORMATION = jax.jit(mder.posterior), jax.jit(mder.mutual_information)
SAMPLE = jax.jit(mder.sample, static_argnums=2)


def example(n, batch=(), seed=0, nu=None):
    rng = np.random.default_rng(seed)
    L = factors(rng, batch, n)
    free = n + 3 + np.exp(rng.normal(size=batch))
    return mder.NIW(
        jnp.asarray(rng.normal(size=(*batch, n))),
        L,
        jnp.asarray(np.exp(rng.normal(size=batch))),
        jnp.asarray(free if nu is None else np.full(batch, float(nu))),
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_log_prob_is_normal_times_inverse_wishart(n):
    niw = example(n)
    sigma = np.asarray(mder.linalg.gram(niw.L)) * 1.7 + 0.1 * np.eye(n)
    mu = np.asarray(niw.mu) + 0.3
    psi = float(niw.nu) * np.asarray(mder.linalg.gram(niw.L))
    expected = scipy.stats.invwishart(float(niw.nu), psi).logpdf(sigma)
    expected += scipy.stats.multivariate_normal(np.asarray(niw.mu), sigma / float(niw.kappa)).logpdf(mu)
    np.testing.assert_allclose(LOG_PROB(niw, mu, sigma), expected, rtol=1e-9)


def test_log_prob_is_scipys_normal_inverse_gamma_for_one_target():
    niw = example(1)
    gamma = nig.from_niw(niw)
    scale = [float(value) for value in (gamma.mu, gamma.kappa, gamma.alpha, gamma.beta)]
    expected = scipy.stats.normal_inverse_gamma(*scale).logpdf(0.4, 1.3)
    np.testing.assert_allclose(LOG_PROB(niw, jnp.array([0.4]), jnp.array([[1.3]])), expected, rtol=1e-9)


def numpyros_log_prob(niw, psi, draw):
    wishart = numpyro_dist.InverseWishart(niw.nu, scale_matrix=psi)
    normal = numpyro_dist.MultivariateNormal(niw.mu, draw.sigma / niw.kappa[:, None, None])
    return wishart.log_prob(draw.sigma) + normal.log_prob(draw.mu)


def test_log_prob_is_numpyros_inverse_wishart():
    niw = example(3, batch=(5,))
    draw = SAMPLE(jax.random.key(1), niw)
    psi = niw.nu[:, None, None] * mder.linalg.gram(niw.L)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = jax.jit(numpyros_log_prob)(niw, psi, draw)
    np.testing.assert_allclose(LOG_PROB(niw, *draw), expected, rtol=1e-9)


@pytest.mark.parametrize("nu", [10.0, 1e4, 1e6])
def test_log_prob_in_float32_survives_a_large_nu(nu):
    niw = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), example(2, nu=nu))
    draw = SAMPLE(jax.random.key(0), niw)
    double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (niw, draw))
    expected = LOG_PROB(double[0], *double[1])
    np.testing.assert_allclose(LOG_PROB(niw, *draw), expected, rtol=1e-3, atol=3e-2)


@pytest.mark.parametrize("n", [long(1), 2, long(3)])
def test_samples_have_the_stated_moments(n):
    """eq. of App. C: E[μ] = μ₀, E[Σ] aleatoric, var[μ] epistemic, and E ln|Σ|."""
    niw = example(n, nu=n + 12)
    draw = SAMPLE(jax.random.key(2), niw, (100_000,))
    mu, sigma = np.asarray(draw.mu), np.asarray(draw.sigma)

    def agree(values, expected):
        error = values.std(0) / np.sqrt(len(values))
        return np.all(np.abs(values.mean(0) - np.asarray(expected)) < 4 * error)

    assert agree(mu, niw.mu)
    assert agree(sigma, mder.aleatoric(niw))
    centred = mu - np.asarray(niw.mu)
    assert agree(centred[:, :, None] * centred[:, None, :], mder.epistemic(niw))
    psi = float(niw.nu) * np.asarray(mder.linalg.gram(niw.L))
    digammas = sum(mpmath.digamma((float(niw.nu) + 1 - i) / 2) for i in range(1, n + 1))
    mean_logdet = np.log(np.linalg.det(psi)) - n * np.log(2) - float(digammas)
    assert agree(np.linalg.slogdet(sigma)[1], mean_logdet)


def test_epistemic_has_the_factor_r():
    niw = mder.couple(jnp.zeros(2), jnp.eye(2), nu=9.0, r=3.0)
    np.testing.assert_allclose(mder.epistemic(niw), 3.0 * mder.aleatoric(niw) / 9.0)


def test_total_variance_is_aleatoric_plus_epistemic():
    niw = example(3, batch=(4,))
    np.testing.assert_allclose(mder.predictive(niw).covariance(), mder.aleatoric(niw) + mder.epistemic(niw), rtol=1e-10)


def test_moments_do_not_exist_for_small_nu():
    infinite, undefined = [[np.inf, np.nan], [np.nan, np.inf]], np.full((2, 2), np.nan)
    for nu, epistemic in ((3.0, infinite), (2.5, infinite), (2.0, undefined), (1.5, undefined)):
        niw = mder.NIW(jnp.zeros(2), jnp.eye(2), 1.0, nu)
        np.testing.assert_array_equal(mder.aleatoric(niw), infinite)
        np.testing.assert_array_equal(mder.epistemic(niw), epistemic)
    for alpha, epistemic in ((0.8, np.inf), (0.4, np.nan)):
        gamma = nig.NIG(0.0, 1.0, alpha, 1.0)
        niw = nig.to_niw(gamma)
        np.testing.assert_array_equal([nig.aleatoric(gamma), mder.aleatoric(niw)[0, 0]], np.inf)
        np.testing.assert_array_equal([nig.epistemic(gamma), mder.epistemic(niw)[0, 0]], epistemic)


def test_posterior_and_marginal_of_an_infinite_nu():
    niw = mder.NIW(jnp.zeros(2), jnp.array([[2.0, 0.0], [1.0, 1.0]]), 3.0, jnp.inf)
    np.testing.assert_allclose(POSTERIOR(niw, jnp.ones((4, 2))).L, niw.L)
    np.testing.assert_allclose(mder.marginal(niw, [0]).L, [[2.0]])


def test_log_prob_takes_more_draws_than_niws():
    niw = example(2, batch=(3,))
    draw = SAMPLE(jax.random.key(0), niw, (5,))
    values = LOG_PROB(niw, *draw)
    assert values.shape == (5, 3)
    np.testing.assert_allclose(values[2], LOG_PROB(niw, draw.mu[2], draw.sigma[2]), rtol=1e-12)


def test_the_three_definitions():
    niw = example(1)
    gamma = nig.from_niw(niw)
    for ours, univariate in ((mder.aleatoric, nig.aleatoric), (mder.epistemic, nig.epistemic)):
        np.testing.assert_allclose(ours(niw, "amini2020")[0], univariate(gamma, "amini2020"), rtol=1e-10)
        np.testing.assert_allclose(ours(niw)[0, 0], univariate(gamma, "amini2020"), rtol=1e-10)
        np.testing.assert_allclose(ours(niw, "meinert2023").ravel()[0], univariate(gamma, "meinert2023"), rtol=1e-10)
    alpha, beta, kappa = (float(value) for value in (gamma.alpha, gamma.beta, gamma.kappa))
    np.testing.assert_allclose(nig.aleatoric(gamma), beta / (alpha - 1))
    np.testing.assert_allclose(nig.epistemic(gamma), beta / (alpha - 1) / kappa)
    np.testing.assert_allclose(nig.aleatoric(gamma, "meinert2023"), np.sqrt(beta * (1 + kappa) / (alpha * kappa)))
    np.testing.assert_allclose(nig.epistemic(gamma, "meinert2023"), kappa**-0.5)
    pair = example(2)
    np.testing.assert_allclose(mder.aleatoric(pair, "amini2020"), np.diagonal(mder.aleatoric(pair)))
    np.testing.assert_allclose(mder.epistemic(pair, "amini2020"), np.diagonal(mder.epistemic(pair)))
    with pytest.raises(ValueError, match="'meinert2022'"):
        mder.aleatoric(pair, "meinert2022")


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 2, 7])
def test_posterior_as_printed_and_one_point_at_a_time(n, m):
    niw = example(n)
    y = np.random.default_rng(3).normal(size=(m, n))
    joint = POSTERIOR(niw, y)
    kappa, nu, mu0 = float(niw.kappa), float(niw.nu), np.asarray(niw.mu)
    average = y.mean(0)
    psi = nu * np.asarray(mder.linalg.gram(niw.L)) + (y - average).T @ (y - average)
    psi += m * kappa / (kappa + m) * np.outer(mu0 - average, mu0 - average)
    np.testing.assert_allclose(joint.nu * mder.linalg.gram(joint.L), psi, rtol=1e-10)
    np.testing.assert_allclose(joint.mu, (kappa * mu0 + m * average) / (kappa + m), rtol=1e-10)
    single = niw
    evidence = 0.0
    for row in y:
        evidence += LOG_EVIDENCE(single, row)
        single = POSTERIOR(single, row[None])
    for one, all_at_once in zip(jax.tree.leaves(single), jax.tree.leaves(joint), strict=True):
        np.testing.assert_allclose(one, all_at_once, rtol=1e-9)
    # Bayes: prior(θ) likelihood(θ) = evidence posterior(θ), at any θ
    sigma = np.eye(n)
    likelihood = scipy.stats.multivariate_normal(np.zeros(n), sigma).logpdf(y).sum()
    bayes = LOG_PROB(niw, jnp.zeros(n), sigma) + likelihood - LOG_PROB(joint, jnp.zeros(n), sigma)
    np.testing.assert_allclose(evidence, bayes, rtol=1e-9)


def test_posterior_of_no_observations_is_the_prior():
    niw = example(2, batch=(3,))
    after = POSTERIOR(niw, jnp.zeros((3, 0, 2)))
    assert all(bool(jnp.all(a == b)) for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(niw), strict=True))


def test_marginal_commutes_with_the_predictive():
    niw = example(4, batch=(3,))
    ours, expected = mder.predictive(mder.marginal(niw, [3, 1])), mder.predictive(niw).marginal([3, 1])
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("n", [long(1), 2, long(3)])
def test_mutual_information_by_monte_carlo(n):
    """E over draws of ln p(y | μ, Σ) − ln p(y), within 4 standard errors."""
    niw = example(n)
    draw = SAMPLE(jax.random.key(0), niw, (50_000,))
    given = mder.StudentT(jnp.inf, draw.mu, mder.linalg.cholesky(draw.sigma))
    y = given.sample(jax.random.key(1))
    information = np.asarray(given.log_prob(y) - LOG_EVIDENCE(niw, y))
    error = information.std() / np.sqrt(information.size)
    assert abs(information.mean() - float(INFORMATION(niw))) < 4 * error


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_mutual_information_from_scipys_entropy(n):
    niw = example(n)
    t, nu = mder.predictive(niw), float(niw.nu)
    entropy = scipy.stats.multivariate_t(np.zeros(n), mder.linalg.gram(t.scale_tril), df=float(t.df)).entropy()
    digammas = float(sum(mpmath.digamma((nu + 1 - i) / 2) for i in range(1, n + 1)))
    mean_logdet = np.linalg.slogdet(nu * mder.linalg.gram(niw.L))[1] - n * np.log(2) - digammas
    expected = entropy - n / 2 * np.log(2 * np.pi * np.e) - mean_logdet / 2
    np.testing.assert_allclose(INFORMATION(niw), expected, rtol=1e-9)


def test_mutual_information_has_no_unit_and_falls_with_evidence():
    niw = example(2)
    moved = mder.NIW(niw.mu + 5, 1000 * niw.L, niw.kappa, niw.nu)
    np.testing.assert_allclose(INFORMATION(moved), INFORMATION(niw), rtol=1e-12)
    falling = [float(INFORMATION(mder.couple(niw.mu, niw.L, nu))) for nu in (2.0, 4.0, 50.0, 1e4, 1e8)]
    assert all(a > b > 0 for a, b in itertools.pairwise(falling))


def test_mutual_information_in_float32_keeps_its_relative_accuracy():
    for nu in (5.0, 1e3, 1e7):
        double = INFORMATION(mder.couple(jnp.zeros(3), jnp.eye(3), nu))
        single = INFORMATION(mder.couple(jnp.zeros(3, jnp.float32), jnp.eye(3, dtype=jnp.float32), nu))
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, double, rtol=1e-4)


def test_nig_and_niw_are_the_same_for_one_target():
    gamma = nig.NIG(jnp.array([0.1, 0.2]), jnp.array([0.5, 3.0]), jnp.array([1.5, 4.0]), jnp.array([0.3, 2.0]))
    niw = nig.to_niw(gamma)
    y = jnp.array([1.0, -0.4])
    np.testing.assert_allclose(nig.log_evidence(gamma, y), LOG_EVIDENCE(niw, y[:, None]), rtol=1e-12)
    scale = np.sqrt(gamma.beta * (1 + gamma.kappa) / (gamma.kappa * gamma.alpha))
    expected = scipy.stats.t.logpdf(y, 2 * gamma.alpha, gamma.mu, scale)
    np.testing.assert_allclose(nig.log_evidence(gamma, y), expected, rtol=1e-10)
    for back, original in zip(jax.tree.leaves(nig.from_niw(niw)), jax.tree.leaves(gamma), strict=True):
        np.testing.assert_allclose(back, original, rtol=1e-12)
    np.testing.assert_allclose(nig.total_evidence(gamma), mder.total_evidence(niw), rtol=1e-12)
    np.testing.assert_allclose(nig.total_evidence(gamma, "amini2020"), 2 * gamma.kappa + gamma.alpha)
