"""Special functions against scipy and mpmath."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

from mder_jax import StudentT, _gamma, metrics, special

DF = np.array([0.05, 0.5, 1.0, 2.0, 3.7, 12.0, 30.0, 400.0, 1e5, 1e8])
TOLERANCE = {np.float64: 1e-11, np.float32: 2e-5}


def grid(first, second, dtype):
    return (mesh.ravel().astype(dtype) for mesh in np.meshgrid(first, second))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_t_cdf_is_scipys_with_relative_accuracy_in_the_tail(dtype):
    t, df = grid(np.concatenate([-np.logspace(-4, 2, 25), [0.0], np.logspace(-4, 2, 25)]), DF, dtype)
    expected = scipy.stats.t.cdf(t.astype(float), df.astype(float))
    ours = np.asarray(special.t_cdf(t, df), float)
    representable = expected > 1e-30
    np.testing.assert_allclose(ours[representable], expected[representable], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_t_ppf_is_scipys(dtype):
    p, df = grid(np.concatenate([np.logspace(-12, -1, 12), np.linspace(0.01, 0.99, 21)]), DF[2:], dtype)
    expected = scipy.stats.t.ppf(p.astype(float), df.astype(float))
    np.testing.assert_allclose(special.t_ppf(p, df), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 32])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_joint_pit_and_radius_are_those_of_fishers_f(n, dtype):
    # not 1e8: there scipy is off by 1e-9 (mpmath sides with the value here)
    radius, df = grid(np.logspace(-1, 1, 15), DF[3:-1], dtype)
    expected = scipy.stats.f.cdf(radius.astype(float) ** 2 / n, n, df.astype(float))
    np.testing.assert_allclose(special.joint_pit(radius, df, n), expected, atol=TOLERANCE[dtype])
    coverage, df = grid(np.linspace(0.05, 0.99, 20), DF[3:-1], dtype)
    expected = np.sqrt(n * scipy.stats.f.ppf(coverage.astype(float), n, df.astype(float)))
    np.testing.assert_allclose(special.joint_radius(coverage, df, n), expected, rtol=TOLERANCE[dtype])


def test_infinite_df_is_the_gaussian():
    t = np.linspace(-6, 6, 25)
    np.testing.assert_allclose(special.t_cdf(t, jnp.inf), scipy.stats.norm.cdf(t), rtol=1e-13)
    p = np.linspace(0.001, 0.999, 25)
    np.testing.assert_allclose(special.t_ppf(p, jnp.inf), scipy.stats.norm.ppf(p), rtol=1e-12, atol=1e-14)
    for n in (1, 2, 3, 8):
        np.testing.assert_allclose(special.joint_radius(p, jnp.inf, n), scipy.stats.chi.ppf(p, n), rtol=1e-11)


def test_edges_of_the_quantile():
    np.testing.assert_array_equal(
        special.t_ppf(np.array([0.0, 0.5, 1.0, -0.1, 1.1]), 3.0), [-np.inf, 0, np.inf, np.nan, np.nan]
    )
    np.testing.assert_array_equal(special.joint_radius(np.array([0.0, 1.0, 1.5]), 3.0, 2), [0, np.inf, np.nan])


def test_far_out_and_below_zero():
    far = np.array([-np.inf, -1e30, 1e30, np.inf], np.float32)
    for df in (3.0, np.inf):
        np.testing.assert_array_equal(special.t_cdf(far, df), [0, 0, 1, 1])
        np.testing.assert_array_equal(special.joint_pit(far, df, 2), [np.nan, np.nan, 1, 1])
    slopes = jax.vmap(jax.grad(special.t_cdf, argnums=(0, 1)), (0, None))(jnp.asarray(far), jnp.float32(3.0))
    np.testing.assert_array_equal(slopes, 0)


def test_a_quantile_beyond_the_largest_radius_is_infinite():
    assert float(special.t_ppf(jnp.float32(1e-3), 0.05)) == -np.inf
    np.testing.assert_allclose(special.t_ppf(jnp.float32(1e-18), 1.0), scipy.stats.t.ppf(1e-18, 1.0), rtol=1e-4)


@pytest.mark.parametrize("df", [0.7, 3.0, 50.0, 1e4])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_derivatives_of_the_radius_and_the_pit(df, n):
    """Against central differences of scipy's F distribution."""
    step = 1e-5

    def pit(radius, df):
        return scipy.stats.f.cdf(radius**2 / n, n, df)

    def radius_of(coverage, df):
        return np.sqrt(n * scipy.stats.f.ppf(coverage, n, df))

    for ours, reference, x in ((special.joint_pit, pit, 1.3), (special.joint_radius, radius_of, 0.6)):
        slope = jax.grad(lambda x, df, ours=ours: ours(x, df, n), argnums=(0, 1))(x, df)
        np.testing.assert_allclose(
            slope[0], (reference(x + step, df) - reference(x - step, df)) / (2 * step), rtol=1e-6
        )
        wide = 1e-3 * df
        expected = (reference(x, df + wide) - reference(x, df - wide)) / (2 * wide)
        np.testing.assert_allclose(slope[1], expected, rtol=1e-4, atol=1e-12)


def test_derivative_of_the_cdf_at_zero_and_infinity_is_the_density():
    slope = jax.grad(special.t_cdf, argnums=(0, 1))
    np.testing.assert_allclose(slope(0.0, 3.0), (scipy.stats.t.pdf(0, 3), 0), atol=1e-12)
    np.testing.assert_allclose(slope(1.0, jnp.inf), (scipy.stats.norm.pdf(1), 0), atol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 32])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log_gamma_ratio_and_its_slope(n, dtype):
    x = np.logspace(-3, 8, 45).astype(dtype)
    ours = np.asarray(special.log_gamma_ratio(x, n), float)
    slope = np.asarray(jax.vmap(jax.grad(lambda x: special.log_gamma_ratio(x, n)))(x), float)
    with mpmath.workdps(40):
        points = [mpmath.mpf(float(value)) for value in x]
        expected = [float(mpmath.loggamma(p + mpmath.mpf(n) / 2) - mpmath.loggamma(p)) for p in points]
        slopes = [float(mpmath.digamma(p + mpmath.mpf(n) / 2) - mpmath.digamma(p)) for p in points]
    rtol = 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(ours, expected, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(slope, slopes, rtol=10 * rtol, atol=1e-300)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log1p_ratio_with_two_derivatives(dtype):
    z = np.concatenate([[0.0], np.logspace(-12, 12, 60), [0.4999, 0.5, 0.5001]]).astype(dtype)
    with mpmath.workdps(60):

        def ratio(x):
            return mpmath.log1p(x) / x if x else mpmath.mpf(1)

        points = [mpmath.mpf(float(value)) for value in z]
        values = [float(ratio(p)) for p in points]
        # ρ' = (1/(1+z) - ρ)/z, with its limit at zero
        slopes = [float((1 / (1 + p) - ratio(p)) / p) if p else -0.5 for p in points]
    rtol = 10 * np.finfo(dtype).eps
    np.testing.assert_allclose(_gamma.log1p_ratio(jnp.asarray(z)), values, rtol=rtol)
    np.testing.assert_allclose(jax.vmap(jax.grad(_gamma.log1p_ratio))(jnp.asarray(z)), slopes, rtol=4 * rtol)
    if dtype is np.float64:
        second = jax.vmap(jax.grad(jax.grad(_gamma.log1p_ratio)))(jnp.array([0.0, 0.3, 2.0]))
        expected = [2 / 3, *(float(mpmath.diff(ratio, x, 2)) for x in (0.3, 2.0))]
        np.testing.assert_allclose(second, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stirling_remainder_and_digamma_minus_log(dtype):
    x = jnp.asarray(np.logspace(-2, 8, 60), dtype)
    with mpmath.workdps(40):
        points = [mpmath.mpf(float(value)) for value in x]
        remainder = [
            float(mpmath.loggamma(p) - (p - 0.5) * mpmath.log(p) + p - mpmath.log(2 * mpmath.pi) / 2) for p in points
        ]
        digamma = [float(mpmath.digamma(p) - mpmath.log(p)) for p in points]
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(_gamma.stirling_remainder(x), remainder, rtol=20 * eps, atol=100 * eps)
    np.testing.assert_allclose(_gamma.digamma_minus_log(x), digamma, rtol=100 * eps)


def test_counted_ratio_equals_the_one_with_a_fixed_count():
    m = jnp.logspace(-1, 6, 8)
    for n in (1, 2, 5, 6):
        for count in range(n + 1):
            counted = _gamma.centred_log_gamma_ratio_counted(m, jnp.full(m.shape, count), n)
            np.testing.assert_allclose(counted, _gamma.centred_log_gamma_ratio(m, count), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_joint_pit_stays_between_0_and_1_near_the_centre(n):
    """In float32 1 − tail was −6e-8 there, which counted as outside of every region."""
    radius, df = np.meshgrid(np.linspace(0, 0.1, 301, dtype=np.float32), np.linspace(1, 50, 301, dtype=np.float32))
    pit = np.asarray(special.joint_pit(radius, df, n))
    assert pit.dtype == np.float32 and (pit >= 0).all() and (pit <= 1).all()
    t = StudentT(np.full(50, 4.7, np.float32), np.zeros((50, n)), np.broadcast_to(np.eye(n), (50, n, n)))
    near = 1e-3 * np.random.default_rng(0).normal(size=(50, n))
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), t)
    assert metrics.joint_coverage(near.astype(np.float32), single, 0.9).value == 1
