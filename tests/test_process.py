"""The Gaussian process of several targets against scikit-learn, scipy and textbook formulas with plain inverses."""

import math

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern

import mder_jax as mder
from mder_jax import process as module
from mder_jax.process import Kernel, Process, best_kernel, fit_process, log_evidence

KERNEL = Kernel(np.array([0.7, 2.0, 5.0]), linear=0.3, constant=0.8, noise=0.2)
ONE = Kernel(np.ones(1), linear=0.0, constant=0.0, noise=0.1)
X5, Y5 = np.zeros((5, 3)), np.zeros((5, 2))


def table(rows=25, n=2, seed=0):
    """Inputs (rows, 3), targets (rows, n) and weights that differ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    Y = np.sin(X @ rng.normal(size=(3, n))) + 0.3 * rng.normal(size=(rows, n))
    return X, Y, rng.uniform(0.3, 3, size=rows)


def sklearns(kernel):
    linear = ConstantKernel(kernel.linear) * DotProduct(math.sqrt(kernel.constant / kernel.linear))
    return linear + Matern(kernel.lengths, nu=2.5)


def covariance(kernel, X, weights):
    return sklearns(kernel)(X) + np.diag(kernel.noise / weights)


def predictive_by_hand(kernel, X, Y, weights, x, noise):
    """Of one new row, with Ψ₀ = 0.01 I and ν₀ = n + 2: scipy's t, and the variance of f(x) in units of Σ."""
    n, K, k = Y.shape[1], sklearns(kernel), np.linalg.inv(covariance(kernel, X, weights))
    near = K(x[None], X)
    Psi, df = 0.01 * np.eye(n) + Y.T @ k @ Y, len(X) + n + 2 - n + 1
    variance = (K(x[None]) - near @ k @ near.T).item()
    return scipy.stats.multivariate_t((near @ k @ Y)[0], (variance + noise) * Psi / df, df=df), variance


@pytest.fixture
def exact(monkeypatch):
    """Without the part of the jitter that is seen in the result."""
    monkeypatch.setattr(module, "JITTER_OF_NOISE", 0.0)


def test_kernel_is_scikit_learns():
    X, Z = table()[0], table(7, seed=1)[0]
    assert_allclose(KERNEL.between(X, Z), sklearns(KERNEL)(X, Z), rtol=1e-10)
    assert_allclose(KERNEL.at(X), np.diagonal(sklearns(KERNEL)(X)), rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_evidence_of_one_target_is_scipys_multivariate_t(seed):
    X, Y, weights = table(n=1, seed=seed)
    t = scipy.stats.multivariate_t(np.zeros(25), 0.01 / 3 * covariance(KERNEL, X, weights), df=3)
    assert_allclose(log_evidence(KERNEL, X, Y, weights), t.logpdf(Y[:, 0]), rtol=1e-7)
    same = scipy.stats.multivariate_t(np.zeros(25), 0.01 / 3 * covariance(KERNEL, X, np.ones(25)), df=3)
    assert_allclose(log_evidence(KERNEL, X, Y), same.logpdf(Y[:, 0]), rtol=1e-7)


def test_evidence_without_a_linear_part_or_a_constant():
    X, Y, _ = table(n=1)
    K = Matern(KERNEL.lengths, nu=2.5)(X) + 0.2 * np.eye(25)
    expected = scipy.stats.multivariate_t(np.zeros(25), 0.01 / 3 * K, df=3).logpdf(Y[:, 0])
    assert_allclose(log_evidence(KERNEL._replace(linear=0.0, constant=0.0), X, Y), expected, rtol=1e-7)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_evidence_is_the_product_of_the_predictives_of_one_row_after_the_other(n):
    X, Y, weights = table(12, n)
    first = 0.01 / 3 * covariance(KERNEL, X[:1], weights[:1]).item() * np.eye(n)  # ν₀ − n + 1 = 3
    expected = scipy.stats.multivariate_t(np.zeros(n), first, df=3).logpdf(Y[0])
    for i in range(1, 12):
        t, _ = predictive_by_hand(KERNEL, X[:i], Y[:i], weights[:i], X[i], KERNEL.noise / weights[i])
        expected += t.logpdf(Y[i])
    assert_allclose(log_evidence(KERNEL, X, Y, weights), expected, rtol=1e-7)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_slope_of_the_evidence_by_finite_differences(n, seed):
    X, Y, weights = table(15, n, seed)
    theta = np.random.default_rng(seed).normal(-0.5, 0.7, size=6)

    def value(moved):
        return log_evidence(Kernel(np.exp(moved[:3]), *np.exp(moved[3:])), X, Y, weights)

    expected = [(value(theta + step) - value(theta - step)) / 2e-5 for step in 1e-5 * np.eye(6)]
    assert_allclose(module._evidence_and_slope(theta, X, Y, weights)[1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_as_landmarks_is_scikit_learns_process(exact, weighted):
    X, Y, weights = table()
    weights = weights if weighted else None
    model = GaussianProcessRegressor(sklearns(KERNEL), alpha=0.2 / (weights if weighted else np.ones(25)))
    mean, std = model.set_params(optimizer=None).fit(X, Y).predict(new := table(9, seed=1)[0], return_std=True)
    posterior = Process.given(KERNEL, X, X, Y, weights).predict(new)
    assert_allclose(posterior.mu, mean, rtol=1e-6, atol=1e-7)
    assert_allclose(posterior.kappa, 0.2 / std[:, 0] ** 2, rtol=1e-6)


def test_jitter_changes_little():
    X, Y, weights = table()
    mean, std = (
        GaussianProcessRegressor(sklearns(KERNEL), alpha=0.2 / weights, optimizer=None).fit(X, Y).predict(X, True)
    )
    posterior = Process.given(KERNEL, X, X, Y, weights).predict(X)
    assert_allclose(posterior.mu, mean, atol=2e-3)
    assert_allclose(posterior.kappa, 0.2 / std[:, 0] ** 2, rtol=5e-3)


@pytest.mark.parametrize("n", [1, 3])
def test_predictive_is_scipys_multivariate_t(exact, n):
    (X, Y, weights), (new, y, _) = table(n=n), table(6, n, seed=1)
    posterior = Process.given(KERNEL, X, X, Y, weights).predict(new)
    t = mder.predictive(posterior.niw())
    for row, (x, value) in enumerate(zip(new, y, strict=True)):
        expected, variance = predictive_by_hand(KERNEL, X, Y, weights, x, KERNEL.noise)
        assert_allclose(np.asarray(t.log_prob(y))[row], expected.logpdf(value), rtol=1e-6)
        assert_allclose(posterior.kappa[row], KERNEL.noise / variance, rtol=1e-6)


def textbook_conditional(kernel, Z, X, Y, weights, new):
    """Quiñonero-Candela and Rasmussen (2005), eq. 20: mean and variance in units of Σ; and Ψ."""
    K = sklearns(kernel)
    inverse = np.linalg.inv(K(Z) + K(Z, X) * (weights / kernel.noise) @ K(X, Z))
    mean = K(new, Z) @ inverse @ K(Z, X) @ (Y * weights[:, None]) / kernel.noise
    projected = K(new, Z) @ np.linalg.inv(K(Z)) @ K(Z, new)
    variance = np.diagonal(K(new) - projected + K(new, Z) @ inverse @ K(Z, new))
    of_rows = K(X, Z) @ np.linalg.inv(K(Z)) @ K(Z, X) + np.diag(kernel.noise / weights)
    return mean, variance, 0.01 * np.eye(Y.shape[1]) + Y.T @ np.linalg.inv(of_rows) @ Y


@pytest.mark.parametrize("block", [4096, 7])
@pytest.mark.parametrize("m", [1, 4, 11])
def test_fewer_landmarks_are_the_textbooks_deterministic_training_conditional(exact, monkeypatch, m, block):
    monkeypatch.setattr(module, "BLOCK", block)
    (X, Y, weights), new = table(30), table(9, seed=1)[0]
    process = Process.given(KERNEL, X[:m], X, Y, weights)
    posterior = process.predict(new)
    mean, variance, Psi = textbook_conditional(KERNEL, X[:m], X, Y, weights, new)
    assert_allclose(posterior.mu, mean, rtol=1e-6, atol=1e-7)
    assert_allclose(posterior.kappa, 0.2 / variance, rtol=1e-6)
    assert_allclose(process.Psi, Psi, rtol=1e-6)
    assert_allclose(posterior.L @ posterior.L.T * posterior.nu, 0.2 * Psi, rtol=1e-6)
    assert_array_equal(np.triu(posterior.L, 1), 0)
    assert posterior.nu == 2 + 2 + 30


def test_weight_2_is_the_row_twice_but_for_nu():
    X, Y, _ = table()
    twice, weights = np.r_[0:25, 3, 8], np.ones(25)
    weights[[3, 8]] = 2
    once, repeated = Process.given(KERNEL, X, X, Y, weights), Process.given(KERNEL, X, X[twice], Y[twice])
    for ours, expected in zip(once.predict(X + 0.1)[::2], repeated.predict(X + 0.1)[::2], strict=True):
        assert_allclose(ours, expected, rtol=1e-9)
    assert_allclose(once.Psi, repeated.Psi, rtol=1e-9)
    assert (once.nu, repeated.nu) == (4 + 25, 4 + 27)


@pytest.mark.parametrize("times", [1, 5, 50])
def test_kappa_counts_rows_at_x_and_what_the_prior_is_worth(exact, times):
    """A normal mean of variance k with `times` observations of noise σ², and k = 1 + 0.8."""
    X = np.full((times, 1), 0.3)
    posterior = Process.given(ONE._replace(constant=0.8), X[:1], X, X).predict(X[:1])
    assert_allclose(posterior.kappa, times + 0.1 / 1.8, rtol=1e-5)
    assert_allclose(posterior.mu, [[0.3 * times / (times + 0.1 / 1.8)]], rtol=1e-6)


def test_kappa_far_from_the_rows():
    """That of the prior, σ²/1, of which a linear part leaves nothing; the mean is then 0."""
    X, Y, _ = table(n=1)
    rows, far = X[:, :1], np.array([[100.0], [1000.0]])
    mu, _, kappa, _ = Process.given(ONE, rows, rows, Y).predict(far)
    assert_allclose(kappa, 0.1, rtol=1e-6)
    assert_allclose(mu, 0, atol=1e-12)
    at_100, at_1000 = Process.given(ONE._replace(linear=0.5), rows, rows, Y).predict(far).kappa
    assert 0 < at_1000 < 0.011 * at_100 < 1e-4


def test_without_columns_it_is_the_mean_of_the_rows(exact):
    """Of variance k = c + 1, whatever x is."""
    _, Y, _ = table()
    process = fit_process(np.empty((25, 0)), Y)
    prior = process.kernel.noise / (process.kernel.constant + 1)
    mu, _, kappa, _ = process.predict(np.empty((3, 0)))
    assert_allclose(kappa, 25 + prior, rtol=1e-4)
    assert_allclose(mu, [Y.mean(axis=0) * 25 / (25 + prior)] * 3, rtol=1e-4)


def test_kappa_is_at_most_a_billion():
    zero = np.zeros((1, 1))
    sure = Process.given(ONE._replace(constant=4.0**25 - 1), zero, zero, zero, np.array([1e15]))
    assert_allclose(sure.predict(zero).kappa, 1e9, rtol=1e-12)


def test_covariance_of_the_targets_is_found_in_draws_of_the_process():
    X, sigma = np.random.default_rng(0).normal(size=(200, 3)), np.array([[1.0, -0.6], [-0.6, 2.0]])
    draw = scipy.stats.matrix_normal(np.zeros((200, 2)), covariance(KERNEL, X, np.ones(200)), sigma)
    posterior = Process.given(KERNEL, X, X, draw.rvs(random_state=1)).predict(X)
    error = np.sqrt((sigma**2 + np.outer(np.diagonal(sigma), np.diagonal(sigma))) / 200)  # of a Wishart
    assert np.all(np.abs(posterior.L @ posterior.L.T / 0.2 - sigma) < 4 * error)


def test_kernel_of_a_fit_has_the_largest_evidence_times_prior():
    """Per target, and with the evidence of scipy's normal and inverse Wishart: p(Y) = p(Y|Σ) p(Σ)/p(Σ|Y) at Σ = I."""
    X, Y, weights = table(40)
    kernel = fit_process(X, Y, weights).kernel
    middle = [0.5 * math.log(3) + 0.5] * 3 + [-2.0, 0.0, -3.0]
    prior = scipy.stats.norm(middle, [1.5, 1.5, 1.5, 2.0, 2.0, 3.0])

    def value(theta):
        K = covariance(Kernel(np.exp(theta[:3]), *np.exp(theta[3:])), X, weights)
        joint = scipy.stats.multivariate_normal(np.zeros(40), K).logpdf(Y.T).sum()
        joint += scipy.stats.invwishart(4, 0.01 * np.eye(2)).logpdf(np.eye(2))
        given = scipy.stats.invwishart(44, 0.01 * np.eye(2) + Y.T @ np.linalg.inv(K) @ Y)
        return (joint - given.logpdf(np.eye(2))) / 2 + prior.logpdf(theta).sum()

    best = np.log([*kernel.lengths, *kernel[1:]])
    for step in 0.1 * np.eye(6):
        assert value(best) > max(value(best + step), value(best - step))
        assert abs(value(best + step) - value(best - step)) / 0.2 < 0.05


@pytest.mark.parametrize("relevant", [0, 2])
def test_columns_that_do_not_matter_get_longer_lengths(relevant):
    X = table(80)[0]
    x = X[:, [relevant]]
    process = fit_process(X, np.hstack([np.sin(2 * x), np.cos(2 * x)]))
    others = np.delete(process.kernel.lengths, relevant)
    assert np.all(others > 5 * process.kernel.lengths[relevant])
    new = table(50, seed=1)[0]
    assert_allclose(process.predict(new).mu[:, 0], np.sin(2 * new[:, relevant]), atol=0.15)


@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_noise_of_the_targets_is_found(noise):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 1))
    posterior = fit_process(X, np.sin(2 * X) + noise * rng.normal(size=(150, 1))).predict(X[:1])
    assert_allclose(posterior.L, noise, rtol=0.2)


def test_a_constant_column_keeps_the_length_of_the_prior():
    X, Y, _ = table()
    X[:, 1] = 0.4
    assert_allclose(fit_process(X, Y).kernel.lengths[1], math.sqrt(3) * math.exp(0.5), rtol=1e-6)


def test_landmarks_and_rows_of_kernel_are_rows_of_the_table_chosen_by_the_seed():
    X, Y, weights = table(120)
    few = {"landmarks": 30, "rows_of_kernel": 30}
    process, again = fit_process(X, Y, weights, **few), fit_process(X, Y, weights, **few)
    for ours, same in zip(process.predict(X), again.predict(X), strict=True):
        assert_array_equal(ours, same)
    matches = np.all(process.landmarks[:, None] == X[None], axis=-1)
    assert_array_equal(matches.sum(axis=1), 1)
    chosen = matches.argmax(axis=1)
    assert len(set(chosen)) == 30
    assert process.nu == 4 + 120
    # these rows, and no others, chose the kernel
    for kernel in (best_kernel(X[chosen], Y[chosen], weights[chosen]), best_kernel(X, Y, weights, rows=30)):
        assert_allclose(kernel.lengths, process.kernel.lengths, rtol=1e-9)
        assert_allclose(kernel[1:], process.kernel[1:], rtol=1e-9)
    assert not np.array_equal(fit_process(X, Y, weights, **few, seed=1).landmarks, process.landmarks)
    assert_array_equal(fit_process(X, Y, weights, landmarks=120, rows_of_kernel=30).landmarks, X)


def test_fewer_landmarks_predict_almost_as_well():
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-2, 2, size=(250, 1)), np.linspace(-1.9, 1.9, 50)[:, None]
    Y = np.sin(3 * X) + 0.1 * rng.normal(size=X.shape)
    few = fit_process(X, Y, landmarks=40, rows_of_kernel=100).predict(new)
    model = fit_process(X, Y, landmarks=250, rows_of_kernel=100).predict(new)
    assert_allclose(few.mu, np.sin(3 * new), atol=0.1)
    assert_allclose(few.mu, model.mu, atol=0.03)
    assert 0.4 < np.median(few.kappa / model.kappa) < 1.2


def repeated(times):
    X, Y, _ = table(10)
    return np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0)


NORMAL = np.random.default_rng(0).normal
HARD = {
    "one row": (X5[:1] + 0.5, Y5[:1] + 0.2),
    "all zero": (X5, Y5),
    "duplicate rows": repeated(6),
    "same rows, other targets": (np.repeat(table(5)[0], 8, axis=0), NORMAL(size=(40, 2))),
    "more columns than rows": (NORMAL(size=(8, 60)), NORMAL(size=(8, 2))),
    "more targets than rows": (NORMAL(size=(6, 2)), NORMAL(size=(6, 20))),
    "no noise": (table(60)[0], table(60)[0][:, :2]),
    "the same target twice": (table()[0], table()[1][:, [0, 0]]),
    "constant target": (table()[0], np.ones((25, 1))),
    "two values": (np.sign(NORMAL(size=(90, 4))), np.sign(NORMAL(size=(90, 2)))),
    "an outlier": (np.r_[table()[0], [[30.0, 0, 0]]], np.r_[table()[1], [[0, -30.0]]]),
    "integers": (np.arange(10).reshape(5, 2), [[1], [0], [2], [1], [3]]),
}


@pytest.mark.parametrize("few", [{}, {"landmarks": 4, "rows_of_kernel": 5}], ids=["all", "few"])
@pytest.mark.parametrize("name", HARD)
def test_hard_tables_give_finite_predictions(name, few):
    X, Y = HARD[name]
    process = fit_process(X, Y, **few)
    for at in (np.asarray(X, float), np.asarray(X) + 0.01, 1e6 * np.ones_like(X, float)):
        mu, L, kappa, nu = process.predict(at)
        n = np.shape(Y)[1]
        assert (mu.shape, L.shape, kappa.shape, nu) == ((len(X), n), (n, n), (len(X),), n + 2 + len(X))
        assert np.isfinite(mu).all() and np.isfinite(L).all() and np.all(np.diagonal(L) > 0)
        assert np.all((kappa > 0) & (kappa <= 1e9))


@pytest.mark.parametrize("weight", [1e-12, 1e12])
def test_extreme_weights_give_finite_predictions(weight):
    X, Y, weights = table()
    weights[::2] = weight
    mu, L, kappa, _ = fit_process(X, Y, weights).predict(X)
    assert np.isfinite(mu).all() and np.isfinite(L).all() and np.all((kappa > 0) & (kappa <= 1e9))


@pytest.mark.parametrize("seed", range(6))
def test_rounding_leaves_the_covariance_of_proportional_targets_positive(seed):
    X = table(seed=seed)[0]
    process = Process.given(KERNEL._replace(noise=1e-6), X, X, 1e5 * X[:, :1] * [1, 1 / 3, 0.7])
    assert np.all(np.linalg.eigvalsh(process.Psi) > 0.009)
    assert np.isfinite(process.factor).all()


def test_no_new_rows_give_an_empty_posterior():
    mu, L, kappa, _ = fit_process(*table()[:2]).predict(np.empty((0, 3)))
    assert (mu.shape, L.shape, kappa.shape) == ((0, 2), (2, 2), (0,))


def fitted():
    return Process.given(KERNEL, X5[:1], X5, Y5)


NAN, INFINITE = np.where(np.eye(5, 3), np.nan, 0.0), np.where(np.eye(5, 2), np.inf, 0.0)
SHAPES = r"X and Y must be \(N, d\) and \(N, n\).*got shapes "
BAD = [
    (lambda: fit_process(X5, Y5[:4]), SHAPES + r"\(5, 3\) and \(4, 2\)"),
    (lambda: fit_process(X5, Y5[:, 0]), SHAPES + r"\(5, 3\) and \(5,\)"),
    (lambda: fit_process(X5[0], Y5), SHAPES + r"\(3,\) and \(5, 2\)"),
    (lambda: fit_process(X5[:0], Y5[:0]), SHAPES + r"\(0, 3\) and \(0, 2\)"),
    (lambda: fit_process(X5, Y5[:, :0]), SHAPES + r"\(5, 3\) and \(5, 0\)"),
    (lambda: log_evidence(KERNEL, X5, Y5[:4]), SHAPES + r"\(5, 3\) and \(4, 2\)"),
    (lambda: Process.given(KERNEL, X5, X5, Y5[:4]), SHAPES + r"\(5, 3\) and \(4, 2\)"),
    (lambda: fit_process(NAN, Y5), r"X must be finite$"),
    (lambda: fit_process(X5, INFINITE), r"Y must be finite$"),
    (lambda: log_evidence(KERNEL, NAN, Y5), r"X must be finite$"),
    (lambda: Process.given(KERNEL, X5, X5, INFINITE), r"Y must be finite$"),
    (lambda: fit_process(X5, Y5, np.r_[np.ones(4), 0]), r"weights must be finite, and above 0"),
    (lambda: fit_process(X5, Y5, np.r_[np.ones(4), -1]), r"weights must be finite, and above 0"),
    (lambda: fit_process(X5, Y5, np.r_[np.ones(4), np.nan]), r"weights must be finite, and above 0"),
    (lambda: fit_process(X5, Y5, np.ones(4)), r"weights must be one number for each of the 5 rows; got shape \(4,\)"),
    (lambda: fit_process(X5, Y5, np.ones((5, 1))), r"weights must be one number.*5 rows; got shape \(5, 1\)"),
    (lambda: fit_process(X5, Y5, 2.0), r"weights must be one number.*5 rows; got shape \(\)"),
    (lambda: fit_process([["a"]], [[1.0]]), r"X must hold real numbers; got dtype <U1"),
    (lambda: fit_process(X5, Y5 + 1j), r"Y must hold real numbers; got dtype complex128"),
    (lambda: fit_process(X5, Y5, landmarks=0), r"landmarks must be at least 1; got 0"),
    (lambda: fit_process(X5, Y5, rows_of_kernel=2.5), r"rows_of_kernel must be an integer.*got 2\.5"),
    (lambda: best_kernel(X5, Y5, rows=0), r"^rows must be at least 1; got 0"),
    (lambda: best_kernel(X5, Y5[:4]), SHAPES + r"\(5, 3\) and \(4, 2\)"),
    (lambda: fitted().predict(X5[:, :2]), r"X must have shape \(N, 3\); got \(5, 2\)"),
    (lambda: fitted().predict(X5[0]), r"X must have shape \(N, 3\); got \(3,\)"),
    (lambda: fitted().predict(X5 + 1j), r"X must hold real numbers; got dtype complex128"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_quoted(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


PLAIN = Kernel(np.ones(2), linear=0.1, constant=1.0, noise=0.1)
TABLE = np.eye(4, 2), np.ones((4, 1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: log_evidence((1, 2, 3, 4), *TABLE), TypeError, r"kernel must be a Kernel; got \(1, 2, 3, 4\)"),
        (lambda: log_evidence(PLAIN._replace(lengths=np.ones(3)), *TABLE), ValueError, "2 lengths and three"),
        (lambda: log_evidence(PLAIN._replace(noise=0.0), *TABLE), ValueError, "noise must be positive"),
        (
            lambda: log_evidence(PLAIN._replace(linear=-1.0), *TABLE),
            ValueError,
            "linear and constant 0 or more",
        ),
        (lambda: Process.given(PLAIN, np.eye(3), *TABLE), ValueError, r"rows like those of X, \(4, 2\)"),
        (lambda: fit_process(1e5 * TABLE[0], TABLE[1]), ValueError, "no entry beyond 10000; got 100000"),
        (lambda: fit_process(*TABLE, seed=-1), ValueError, "seed must be at least 0; got -1"),
        (lambda: fit_process(*TABLE).predict(np.full((1, 2), np.nan)), ValueError, "X must be finite"),
    ],
)
def test_a_kernel_that_does_not_fit_and_numbers_that_are_not_standardised_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
