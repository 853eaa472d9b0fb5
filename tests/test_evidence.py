"""The evidence: against mpmath over the whole box, the Gaussian limit, integration, and its symmetries."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings, strategies as st

import mder_jax as mder
from tests.support import exact
from tests.support.cases import factors, long

SIZES = (1, 2, 3, 5, 8, 16, 32)
LOG_EVIDENCE = jax.jit(mder.log_evidence, static_argnames="form")


def example(n, seed=0, batch=(), dtype=jnp.float64):
    rng = np.random.default_rng(seed)
    L = factors(rng, batch, n, below=n**-0.5)
    niw = mder.NIW(
        jnp.asarray(rng.normal(size=(*batch, n)), dtype),
        jnp.asarray(L, dtype),
        jnp.asarray(np.exp(rng.normal(size=batch)), dtype),
        jnp.asarray(n + 1 + np.exp(rng.normal(size=batch)), dtype),
    )
    return niw, jnp.asarray(rng.normal(size=(*batch, n)), dtype)


def evaluate(box):
    return mder.log_evidence(mder.NIW(box["mu"], box["L"], box["kappa"], box["nu"]), box["y"])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("dtype", "condition", "bound"),
    [
        (np.float64, (1, 1e8), 1e-10),
        (np.float32, (1, 1e4), 1e-5),
        (np.float32, (1e4, 1e8), 1e-3),
    ],
    ids=["float64", "float32", "float32-ill-conditioned"],
)
def test_error_against_mpmath(n, dtype, condition, bound):
    count = 120 if n <= 8 else 50
    box = exact.random_box(n, n, count, condition, dtype)
    ours = np.asarray(jax.jit(evaluate)(box), np.float64)
    rows = [exact.log_evidence(*(box[name][i] for name in ("mu", "L", "kappa", "nu", "y"))) for i in range(count)]
    error = [abs(value - row.value) / row.largest_term for value, row in zip(ours, rows, strict=True)]
    assert max(error) <= bound


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_value_and_gradient_over_the_box(n, dtype):
    count = 15_000  # 7 sizes: 105,000 cases for each dtype
    box = exact.random_box(100 + n, n, count, (1, 1e8), dtype)

    def total(box):
        per_row = evaluate(box)
        return jnp.sum(per_row), per_row

    gradient, per_row = jax.jit(jax.grad(total, has_aux=True))(box)
    assert per_row.shape == (count,)
    for name, array in {"value": per_row, **gradient}.items():
        assert np.isfinite(array).all(), name


@settings(max_examples=100, deadline=None)
@given(
    nu=st.floats(3.001, 1e8),
    log_kappa=st.floats(-6, 8),
    log_ratio=st.floats(-6, 6),
    log_diagonal=st.floats(-4, 4),
    below=st.floats(-1e4, 1e4),
)
def test_any_bivariate_niw_agrees_with_mpmath(nu, log_kappa, log_ratio, log_diagonal, below):
    L = np.array([[1.0, 0.0], [below, 10**log_diagonal]])
    y = 10**log_ratio * np.array([0.6, -0.8])
    ours = mder.log_evidence(mder.NIW(np.zeros(2), L, 10**log_kappa, nu), y)
    reference = exact.log_evidence(np.zeros(2), L, 10**log_kappa, nu, y)
    assert abs(float(ours) - reference.value) <= 1e-10 * max(reference.largest_term, 1)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 32])
def test_float32_goes_over_into_the_gaussian(n):
    """ν = 1e8 and ν = ∞ at fixed L: value and gradient are those of N(μ₀, (1 + 1/κ) Σ₀)."""
    niw, y = example(n, dtype=jnp.float32)

    def at(nu, mu, L, y):
        return mder.log_evidence(mder.NIW(mu, L, niw.kappa, jnp.float32(nu)), y)

    def gaussian(mu, L, y):
        scaled = mder.StudentT(jnp.inf, mu, jnp.sqrt(1 + 1 / niw.kappa)[..., None, None] * L)
        return -mder.gaussian_nll(scaled, y)

    arguments = (niw.mu, niw.L, y)
    factor = np.asarray(niw.L, float)
    reference = scipy.stats.multivariate_normal(
        np.asarray(niw.mu, float), (1 + 1 / float(niw.kappa)) * factor @ factor.T
    ).logpdf(np.asarray(y, float))
    limit = jax.jit(jax.grad(gaussian, (0, 1, 2)))(*arguments)
    value_and_gradient = jax.jit(jax.value_and_grad(at, argnums=(1, 2, 3)))
    for nu in (1e8, jnp.inf):
        value, gradient = value_and_gradient(nu, *arguments)
        np.testing.assert_allclose(value, reference, rtol=2e-6)
        for ours, expected in zip(gradient, limit, strict=True):
            scale = float(jnp.max(jnp.abs(expected)))
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("nu", [1e4, 1e6, 1e8])
def test_float32_gradient_in_nu_keeps_its_relative_accuracy(n, nu):
    """∂/∂ν falls as 1/ν²; differences of gamma functions would leave nothing but rounding noise of it."""
    niw, y = example(n, seed=1, dtype=jnp.float32)
    ours = jax.grad(lambda nu: mder.log_evidence(mder.NIW(niw.mu, niw.L, niw.kappa, nu), y))(jnp.float32(nu))

    def log_evidence(nu):
        kappa, q = mpmath.mpf(float(niw.kappa)), mpmath.mpf(float(jnp.sum(mder.whiten(niw.L, y - niw.mu) ** 2)))
        gamma = mpmath.loggamma((nu + 1) / 2) - mpmath.loggamma((nu - n + 1) / 2)
        kernel = (nu + 1) / 2 * mpmath.log1p(kappa / (1 + kappa) * q / nu)
        return gamma - mpmath.mpf(n) / 2 * mpmath.log(nu) - kernel

    with mpmath.workdps(exact.DIGITS):
        reference = float(mpmath.diff(log_evidence, mpmath.mpf(float(jnp.float32(nu)))))
    assert abs(float(ours) - reference) <= 1e-3 * abs(reference)


@pytest.mark.parametrize("n", SIZES)
def test_stable_form_equals_slogdet_form(n):
    niw, y = example(n, batch=(4,))
    np.testing.assert_allclose(LOG_EVIDENCE(niw, y), LOG_EVIDENCE(niw, y, form="slogdet"), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_printed_forms_are_all_equal(n):
    """eq:nll (Ψ), eq:nll2 (Σ₀), the t of eq:modev, eq:modev22, and the coupled loss of Sec. 4 with its constant."""
    niw, y = example(n)
    mu, L, nu = (np.asarray(array, float) for array in (niw.mu, niw.L, niw.nu))
    r = 2.5
    kappa = nu / r
    ours = -mder.log_evidence(mder.couple(mu, L, nu, r), y)
    lgamma, d, sigma0 = (mpmath.loggamma, np.asarray(y) - mu, L @ L.T)
    psi, outer, shrink = nu * sigma0, np.outer(d, d), kappa / (1 + kappa)
    gammas = float(lgamma((nu - n + 1) / 2) - lgamma((nu + 1) / 2))
    det = np.linalg.det
    nll = gammas + n / 2 * np.log(np.pi / shrink) - nu / 2 * np.log(det(psi))
    nll += (nu + 1) / 2 * np.log(det(psi + shrink * outer))
    nll2 = gammas + n / 2 * np.log(nu * np.pi / shrink) - nu / 2 * np.log(det(sigma0))
    nll2 += (nu + 1) / 2 * np.log(det(sigma0 + shrink / nu * outer))
    coupled = gammas + n / 2 * np.log(r + nu) - nu * np.sum(np.log(np.diag(L))) + n / 2 * np.log(np.pi)
    coupled += (nu + 1) / 2 * np.log(det(L @ L.T + outer / (r + nu)))
    t = scipy.stats.multivariate_t(mu, psi / shrink / (nu - n + 1), df=nu - n + 1)
    for form in (nll, nll2, coupled, -t.logpdf(np.asarray(y))):
        np.testing.assert_allclose(float(ours), form, rtol=1e-10)
    if n == 1:
        nu0 = nu * sigma0[0, 0]
        univariate = gammas + 0.5 * np.log(np.pi / kappa) - nu / 2 * np.log(nu0 * (1 + kappa))
        univariate += (nu + 1) / 2 * np.log(nu0 * (1 + kappa) + kappa * d[0] ** 2)
        np.testing.assert_allclose(float(ours), univariate, rtol=1e-10)


def test_evidence_is_the_integral_for_one_target():
    """eq:modev1 by quadrature over (μ, ln σ²)."""
    niw = mder.NIW(jnp.array([0.3]), jnp.array([[0.8]]), 2.0, 4.5)
    step, y = 0.15, 1.1  # of the trapezoidal rule in z = (μ − μ₀) √(κ/σ²) and u = ln(σ²/Ψ)
    z, u = (mesh.ravel() for mesh in np.meshgrid(np.arange(-12, 12, step), np.arange(-9, 45, step)))
    variance = 4.5 * 0.8**2 * np.exp(u)
    mean = 0.3 + z * np.sqrt(variance / 2)
    prior = jax.jit(mder.log_prob)(niw, mean[:, None], variance[:, None, None])
    likelihood = scipy.stats.norm.logpdf(y, mean, np.sqrt(variance))
    integral = step**2 * np.sum(variance**1.5 / np.sqrt(2) * np.exp(np.asarray(prior) + likelihood))
    np.testing.assert_allclose(np.log(integral), float(mder.log_evidence(niw, jnp.array([y]))), rtol=1e-10)


@pytest.mark.parametrize("n", [2, long(3)])
def test_evidence_is_the_monte_carlo_average(n):
    """E over draws of (μ, Σ) of the Gaussian likelihood, within 4 standard errors."""
    niw, y = example(n, seed=5)

    @jax.jit
    def likelihoods(key):
        draw = mder.sample(key, niw, (200_000,))
        gaussian = mder.StudentT(jnp.inf, draw.mu, mder.linalg.cholesky(draw.sigma))
        return jnp.exp(gaussian.log_prob(jnp.broadcast_to(y, draw.mu.shape)))

    likelihood = np.asarray(likelihoods(jax.random.key(0)))
    error = likelihood.std() / np.sqrt(likelihood.size)
    assert abs(likelihood.mean() - np.exp(float(mder.log_evidence(niw, y)))) < 4 * error


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_equivariance_under_affine_maps(n):
    """y -> A y + b takes (μ₀, L) to (A μ₀ + b, the factor of A L) and the log density down by ln|det A|."""
    niw, y = example(n)
    rng = np.random.default_rng(1)
    A, b = jnp.asarray(rng.normal(size=(n, n))), jnp.asarray(rng.normal(size=n))
    moved = mder.NIW(A @ niw.mu + b, mder.linalg.triangularise(A @ niw.L), niw.kappa, niw.nu)
    expected = mder.log_evidence(niw, y) - np.log(abs(np.linalg.det(A)))
    np.testing.assert_allclose(mder.log_evidence(moved, A @ y + b), expected, rtol=1e-10)


def test_permutation_of_targets():
    niw, y = example(4)
    order = jnp.array([2, 0, 3, 1])
    moved = mder.marginal(niw, order.tolist())
    np.testing.assert_allclose(mder.log_evidence(moved, y[order]), mder.log_evidence(niw, y), rtol=1e-12)


def unpack(theta, n, r=None):
    """A NIW from a vector without constraints: μ₀, L (logarithms on its diagonal), ln(ν − n + 1) and, if free, ln κ."""
    entries = theta[n : n + mder.tril_size(n)]
    L = mder.unpack_tril(entries, n)
    L = jnp.where(jnp.eye(n, dtype=bool), jnp.exp(L), L)
    nu = n - 1 + jnp.exp(theta[n + mder.tril_size(n)])
    return mder.couple(theta[:n], L, nu, r) if r else mder.NIW(theta[:n], L, jnp.exp(theta[-1]), nu)


def fitted_hessian(n, r=None):
    """Eigenvalues of the Hessian of the mean NLL of 300 draws of a t, at its minimum."""
    truth, _ = example(n)
    y = mder.predictive(truth).sample(jax.random.key(0), (300,))

    def loss(theta):
        return -jnp.mean(mder.log_evidence(unpack(theta, n, r), y))

    value_and_grad = jax.jit(jax.value_and_grad(loss))
    result = scipy.optimize.minimize(
        lambda x: tuple(np.asarray(out) for out in value_and_grad(jnp.asarray(x))),
        np.zeros(n + mder.tril_size(n) + (1 if r else 2)),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-8},
    )
    return np.linalg.eigvalsh(jax.jit(jax.hessian(loss))(jnp.asarray(result.x)))


@pytest.mark.parametrize("n", [long(1), 2, long(3)])
def test_degeneracy_without_coupling_is_exact(n):
    """Ψ(1 + κ)/κ fixed: the value stays, the slope along the curve is zero, the Hessian has one null direction."""
    niw, y = example(n)

    def along(log_kappa):
        """The curve: L shrinks as κ falls, so that (1 + 1/κ) L Lᵀ stays."""
        kappa = jnp.exp(log_kappa)
        scale = jnp.sqrt((1 + 1 / niw.kappa) / (1 + 1 / kappa))
        return mder.log_evidence(mder.NIW(niw.mu, scale * niw.L, kappa, niw.nu), y)

    value_and_slope = jax.jit(jax.value_and_grad(along))
    points = [value_and_slope(jnp.log(niw.kappa) + shift) for shift in (-8.0, -2.0, 0.0, 3.0, 9.0)]
    np.testing.assert_allclose([value for value, _ in points], points[2][0], rtol=1e-12)
    np.testing.assert_allclose([slope for _, slope in points], 0, atol=1e-13)
    eigenvalues = fitted_hessian(n)
    assert abs(eigenvalues[0]) < 1e-7 * eigenvalues[-1] < 1e-3 * eigenvalues[1]


@pytest.mark.parametrize("n", [1, 2])
def test_coupling_breaks_the_degeneracy(n):
    eigenvalues = fitted_hessian(n, r=1.0)
    assert eigenvalues[0] > 1e-4 * eigenvalues[-1]


@pytest.mark.parametrize("n", [2, 3, long(5), long(8)])
@pytest.mark.parametrize("form", ["stable", "slogdet"])
def test_missing_targets_give_the_exact_marginal(n, form):
    rng = np.random.default_rng(n)
    niw, y = example(n, batch=(12,))
    observed = rng.uniform(size=(12, n)) < 0.6
    observed[0], observed[1] = True, False
    partial = jnp.where(observed, y, jnp.nan)
    ours = jax.jit(lambda niw, y: mder.log_evidence(niw, y, form=form, missing=True))(niw, partial)
    for i in range(12):
        row = jax.tree.map(lambda leaf, i=i: leaf[i], niw)
        seen = np.flatnonzero(observed[i])
        expected = mder.log_evidence(mder.marginal(row, seen), y[i][seen]) if seen.size else 0.0
        np.testing.assert_allclose(ours[i], expected, rtol=1e-9, atol=1e-12)


def test_gradient_with_missing_targets_is_that_of_the_marginal():
    niw, y = example(3, batch=(2,))
    partial = y.at[0, 1].set(jnp.nan).at[1].set(jnp.nan)

    def loss(niw):
        return jnp.sum(jax.vmap(mder.mder_nll)(niw, partial))

    def by_hand(niw):
        first = jax.tree.map(lambda leaf: leaf[0], niw)
        return -mder.log_evidence(mder.marginal(first, [0, 2]), y[0][jnp.array([0, 2])])

    ours, expected = jax.jit(jax.grad(loss))(niw), jax.jit(jax.grad(by_hand))(niw)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, jnp.tril(b) if b.ndim == 3 else b, atol=1e-12)
    assert all(bool(jnp.all(leaf[1] == 0)) for leaf in jax.tree.leaves(ours))


def test_data_on_a_line_keep_finite_values_and_gradients():
    """The circle's noise is radial only: L₂₂ runs to 0 and the likelihood has no bound."""

    def loss(raw):
        return mder.mder_nll(mder.niw_link(raw, 2), jnp.array([1.0, 1.0], jnp.float32))

    for log_diagonal in (-5.0, -20.0, -60.0, -500.0):
        raw = jnp.array([0.1, 0.2, 0.0, 1.0, log_diagonal, 0.5], jnp.float32)
        value, gradient = jax.value_and_grad(loss)(raw)
        assert jnp.isfinite(value) and jnp.all(jnp.isfinite(gradient))
