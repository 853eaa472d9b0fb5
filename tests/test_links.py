"""Links: the paper's packing, the gate's bounds, and the way back."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mder_jax as mder
from mder_jax.links import LOG_DIAGONAL_BOUND
from tests.support.cases import long


def test_the_papers_transformation_for_two_targets():
    p = np.array([0.3, -0.7, 0.2, 1.4, -0.5, 0.9])
    niw = mder.niw_link(p, n=2)
    np.testing.assert_array_equal(niw.mu, p[:2])
    np.testing.assert_allclose(niw.L, [[np.exp(p[2]), 0], [p[3], np.exp(p[4])]], rtol=1e-15)
    np.testing.assert_allclose(niw.nu, 8 + 5 * np.tanh(p[5]), rtol=1e-15)
    np.testing.assert_array_equal(niw.kappa, niw.nu)


def test_outputs_below_the_diagonal_may_be_relative_to_their_row():
    p = np.array([0.3, -0.7, 0.2, 1.4, -0.5, 0.9])
    niw, gaussian = mder.niw_link(p, n=2, relative=True), mder.gaussian_link(p[:5], n=2, relative=True)
    expected = [[np.exp(p[2]), 0], [p[3] * np.exp(p[4]), np.exp(p[4])]]
    for L in (niw.L, gaussian.scale_tril):
        np.testing.assert_allclose(L, expected, rtol=1e-15)
    np.testing.assert_allclose(mder.inverse_gaussian_link(gaussian, relative=True), p[:5], atol=1e-14)
    # a common factor on all standard deviations moves the diagonal alone
    smaller = mder.niw_link(p - [0, 0, 9, 0, 9, 0], n=2, relative=True)
    np.testing.assert_allclose(smaller.L, np.exp(-9) * np.array(expected), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 32])
def test_width_and_default_bounds(n):
    assert mder.num_outputs(n) == n * (n + 3) // 2 + 1
    for p, bound in ((-40.0, n + 1), (40.0, n + 11)):
        nu = mder.niw_link(jnp.full(mder.num_outputs(n), p, jnp.float32), n).nu
        assert abs(float(nu) - bound) < 1e-5 and float(nu) > n + 1


@pytest.mark.parametrize("n", [1, 2, 3, 5, long(32)])
@pytest.mark.parametrize("bounds", [{}, {"nu_min": 6.5 + 32, "nu_max": 80.0}, {"nu_max": math.inf}, {"relative": True}])
def test_round_trip(n, bounds):
    raw = jnp.asarray(np.random.default_rng(n).normal(size=(4, mder.num_outputs(n))))
    np.testing.assert_allclose(mder.inverse_niw_link(mder.niw_link(raw, n, r=2.0, **bounds), **bounds), raw, atol=1e-10)


def test_saturated_gates_have_a_finite_way_back():
    for p in (-9.0, -100.0, 9.0, 100.0):
        niw = mder.niw_link(jnp.full(6, p, jnp.float32).at[:5].set(0), 2)
        assert bool(jnp.all(jnp.isfinite(mder.inverse_niw_link(niw))))


@pytest.mark.parametrize("nu_max", [10.0, math.inf])
def test_a_lower_bound_of_zero_is_not_reached(nu_max):
    for p in (-9.0, -1000.0):
        niw = jax.jit(lambda raw: mder.niw_link(raw, 1, nu_min=0.0, nu_max=nu_max))(jnp.full(3, p, jnp.float32))
        assert float(niw.nu) > 0 and float(niw.kappa) > 0


def test_softplus_gate_has_no_upper_bound():
    raw = jnp.zeros(6).at[5].set(1e6)
    np.testing.assert_allclose(mder.niw_link(raw, 2, nu_max=math.inf).nu, 1e6 + 3)
    slope = jax.grad(lambda p: mder.niw_link(raw.at[5].set(p), 2, nu_max=math.inf).nu)(1e6)
    np.testing.assert_allclose(slope, 1.0)


def test_coupling_per_row():
    niw = mder.niw_link(jnp.zeros((3, 6)), 2, r=jnp.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(niw.kappa, [16.0, 8.0, 4.0])


def test_diagonal_is_held_within_bounds():
    raw = jnp.array([0.0, 0.0, -1000.0, 0.0, 1000.0, 0.0], jnp.float32)
    L = mder.niw_link(raw, 2).L
    np.testing.assert_allclose(jnp.log(jnp.diagonal(L)), [-LOG_DIAGONAL_BOUND, LOG_DIAGONAL_BOUND], rtol=1e-5)


def test_nig_link_for_one_and_for_several_targets():
    raw = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)))
    one, several = mder.nig_link(raw[:, :4]), mder.nig_link(raw, n=2)
    assert one.mu.shape == (5,) and several.mu.shape == (5, 2)
    np.testing.assert_allclose(one.kappa, np.log1p(np.exp(raw[:, 1])))
    np.testing.assert_allclose(one.alpha, 1 + np.log1p(np.exp(raw[:, 2])))
    np.testing.assert_allclose(mder.inverse_nig_link(one), raw[:, :4], atol=1e-10)
    np.testing.assert_allclose(mder.inverse_nig_link(several, n=2), raw, atol=1e-10)
    tiny = mder.nig_link(jnp.full(4, -500.0, jnp.float32))
    assert float(tiny.kappa) == float(tiny.beta) == pytest.approx(1e-6) and float(tiny.alpha) > 1


def test_gaussian_link_full_and_diagonal():
    raw = jnp.asarray(np.random.default_rng(0).normal(size=(5, 9)))
    full = mder.gaussian_link(raw, 3)
    assert bool(jnp.all(jnp.isinf(full.df)))
    np.testing.assert_allclose(mder.inverse_gaussian_link(full), raw, atol=1e-12)
    diagonal = mder.gaussian_link(raw[:, :6], 3, full=False)
    np.testing.assert_allclose(jnp.diagonal(diagonal.scale_tril, axis1=1, axis2=2), np.exp(raw[:, 3:6]))
    np.testing.assert_allclose(mder.inverse_gaussian_link(diagonal, full=False), raw[:, :6], atol=1e-12)


def test_a_network_can_be_started_at_given_values():
    start = mder.couple(jnp.array([1.0, 2.0]), jnp.array([[0.5, 0.0], [0.1, 0.2]]), nu=5.0)
    niw = mder.niw_link(mder.inverse_niw_link(start), 2)
    for ours, expected in zip(jax.tree.leaves(niw), jax.tree.leaves(start), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-10)
