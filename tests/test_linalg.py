"""Triangular algebra against numpy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from mder_jax import linalg
from tests.support.cases import factors, long

SIZES = (1, 2, 3, 4, 5, 8, 9, 17, 32)


def factor(n, batch=(4,), seed=0):
    return factors(np.random.default_rng(seed), batch, n, below=n**-0.5)


def test_pack_and_unpack_are_inverse_and_row_major():
    np.testing.assert_array_equal(linalg.unpack_tril(jnp.arange(1.0, 7.0), 3), [[1, 0, 0], [2, 3, 0], [4, 5, 6]])
    for n in SIZES:
        L = factor(n)
        np.testing.assert_array_equal(jax.jit(lambda L, n=n: linalg.unpack_tril(linalg.pack_tril(L), n))(L), L)


@pytest.mark.parametrize("n", SIZES)
def test_solves_and_determinants_are_numpys(n):
    L = factor(n)
    rng = np.random.default_rng(1)
    d, B = jnp.asarray(rng.normal(size=(4, n))), jnp.asarray(rng.normal(size=(4, n, 3)))
    np.testing.assert_allclose(jax.jit(linalg.whiten)(L, d), np.linalg.solve(L, d[..., None])[..., 0], rtol=1e-9)
    np.testing.assert_allclose(jax.jit(linalg.whiten_columns)(L, B), np.linalg.solve(L, B), rtol=1e-9)
    np.testing.assert_allclose(linalg.half_logdet(L), 0.5 * np.linalg.slogdet(L @ L.mT)[1], atol=1e-11)
    np.testing.assert_allclose(linalg.cholesky(L @ L.mT), L, atol=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_triangularise_is_the_cholesky_factor_of_the_gram_matrix(n):
    B = jnp.asarray(np.random.default_rng(2).normal(size=(4, n, n + 3)))
    np.testing.assert_allclose(linalg.triangularise(B), np.linalg.cholesky(B @ B.mT), atol=1e-10)


@pytest.mark.parametrize("n", SIZES)
def test_rows_are_left_out(n):
    """Every pattern of rows for n up to 5, some of them above."""
    every = np.array(list(itertools.product([False, True], repeat=min(n, 5))))
    observed = np.concatenate([every, np.random.default_rng(3).uniform(size=(len(every), n - every.shape[1])) < 0.6], 1)
    L = factor(n, (len(observed),))
    ours = np.asarray(jax.jit(linalg.leave_rows_out)(L, jnp.asarray(observed)))
    for row, seen, full in zip(ours, observed, np.asarray(L), strict=True):
        np.testing.assert_array_equal(row[~seen], np.eye(n)[~seen])
        expected = np.linalg.cholesky((full @ full.T)[np.ix_(seen, seen)]) if seen.any() else np.zeros((0, 0))
        np.testing.assert_allclose(row[np.ix_(seen, seen)], expected, atol=1e-10)


def test_triangularise_does_not_square_the_condition_number():
    B = jnp.asarray([[1.0, 0.0], [1.0, 1e-5]], jnp.float32)
    np.testing.assert_allclose(linalg.triangularise(B)[1, 1], 1e-5, rtol=1e-5)
    assert float(linalg.cholesky(B @ B.T)[1, 1]) != pytest.approx(1e-5, rel=0.5, nan_ok=False)


@pytest.mark.parametrize("order", [1, long(2)])
def test_derivatives(order):
    L, B = factor(3, (2,)), jnp.asarray(np.random.default_rng(4).normal(size=(2, 3, 4)))
    observed = jnp.array([[True, False, True], [False, True, True]])
    check_grads(jax.jit(linalg.whiten), (L, L[..., 0]), order=order)
    check_grads(jax.jit(lambda L: linalg.cholesky(L @ L.mT)), (L,), order=order)
    check_grads(jax.jit(linalg.triangularise), (B,), order=order)
    check_grads(jax.jit(lambda L: linalg.leave_rows_out(L, observed)), (L,), order=order)


def test_whitening_ignores_what_is_above_the_diagonal():
    L, d = factor(3, ()), jnp.ones(3)
    full = L + jnp.triu(jnp.ones((3, 3)), 1)
    np.testing.assert_array_equal(linalg.whiten(full, d), linalg.whiten(L, d))
    slope = jax.grad(lambda L: jnp.sum(linalg.whiten(L, d) ** 2))(full)
    np.testing.assert_array_equal(jnp.triu(slope, 1), 0)


def test_many_matrices_in_one_program_do_not_hang():
    """Two batched LAPACK calls at the same time would, on two cores."""
    L = factor(4, (4, 20_000))

    @jax.jit
    def total(L):
        return sum(jnp.sum(linalg.cholesky(linalg.gram(L[i]))) + jnp.sum(linalg.triangularise(L[i])) for i in range(4))

    assert jnp.isfinite(total(L))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, long(16), long(31), long(32)])
def test_axes_of_a_symmetric_matrix_are_numpys(n, dtype):
    B = np.random.default_rng(n).normal(size=(6, n, n)).astype(dtype)
    S = B @ B.swapaxes(1, 2)
    S[0], S[1], S[2] = 3 * np.eye(n), 0.0, np.diag(np.arange(n))  # equal, no and given axes
    U = np.asarray(jax.jit(linalg.axes_of)(S))
    small = 20 * n * np.finfo(dtype).eps
    turned = U.swapaxes(1, 2) @ S @ U
    values = np.diagonal(turned, axis1=1, axis2=2)
    np.testing.assert_allclose(U.swapaxes(1, 2) @ U, np.broadcast_to(np.eye(n), S.shape), atol=small)
    np.testing.assert_allclose(turned, values[..., None] * np.eye(n), atol=small * np.abs(S).max())
    np.testing.assert_allclose(np.sort(values, axis=1), np.linalg.eigvalsh(S), atol=small * np.abs(S).max())
