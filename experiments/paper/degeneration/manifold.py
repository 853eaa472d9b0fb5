"""The manifold of constant β(1+κ)/κ, or (1+κ)/κ Ψ, on which the evidence cannot distinguish its parameters.

All of it in double precision with the paper's formulas as printed, so that nothing is left to a rearrangement of ours.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import digamma, roots_jacobi

from experiments.paper import printed_formulas as paper
from experiments.paper.printed_formulas import Array, Prior, log_determinant, log_t

WIDTH = 3.0  # β(1+κ)/κ on the manifold
DF = 5.0  # degrees of freedom of the t on it
RADII = 20
FACTOR = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.4, 0.6]])  # of the scale matrix, up to 2 WIDTH / DF

# Eighth-order central differences: first and second derivative from f at ±1, ..., ±4 steps (and 0).
STEP = 0.03
FIRST = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280])
SECOND = np.array([8 / 5, -1 / 5, 8 / 315, -1 / 560])


def points(n: int, kappa: Array) -> Array:
    """The manifold in unbounded parameters, (K, p): μ₀, then ℓ and u of Ψ = D U Uᵀ D, then ln κ and ln ν.

    D = diag exp ℓ, and U is lower triangular with unit diagonal and entries u. For n = 1, e^{2ℓ} = 2β and ν = 2α.
    """
    diagonal = np.diag(FACTOR)[:n]
    ratios = (FACTOR[:n, :n] / diagonal[:, None])[np.tril_indices(n, -1)]
    log_scale = 0.5 * np.log(2 * WIDTH * kappa / (1 + kappa))
    rows = np.zeros((len(kappa), len(ratios) + 2 * n + 2))
    rows[:, n : 2 * n] = np.log(diagonal) + log_scale[:, None]
    rows[:, 2 * n : -2], rows[:, -2], rows[:, -1] = ratios, np.log(kappa), np.log(DF + n - 1)
    return rows


def tangents(n: int, kappa: Array) -> Array:
    """The derivative of `points` by ln κ, (K, p): Ψ grows with κ as κ/(1+κ)."""
    along = np.zeros_like(points(n, kappa))
    along[:, n : 2 * n], along[:, -2] = (0.5 / (1 + kappa))[:, None], 1
    return along


def coupled_directions(n: int) -> Array:
    """Where ν = rκ leaves freedom, (p, p − 1): κ moves with ν and not by itself."""
    p = points(n, np.ones(1)).shape[1]
    free = np.delete(np.eye(p), p - 2, axis=1)
    free[p - 2, -1] = 1
    return free


def prior(theta: Array, n: int) -> Prior:
    """The NIW of parameters as in `points`, (..., p)."""
    root = np.zeros((*theta.shape[:-1], n, n))
    root[..., range(n), range(n)] = 1
    root[(..., *np.tril_indices(n, -1))] = theta[..., 2 * n : -2]
    root = np.exp(theta[..., n : 2 * n])[..., None] * root
    return Prior(theta[..., :n], root @ np.swapaxes(root, -1, -2), np.exp(theta[..., -2]), np.exp(theta[..., -1]))


def nll(theta: Array, y: Array) -> Array:
    """eq:nll of all y (M, n) at all parameters (..., p): (..., M)."""
    return -paper.minus_nll(prior(theta[..., None, :], y.shape[1]), y)


def nodes(n: int) -> tuple[Array, Array]:
    """Points and weights that replace the manifold's t, without error for its Hessian.

    q/(m+q) of a t with m degrees of freedom is Beta(n/2, m/2), and the Hessian is a polynomial in it: Gauss-Jacobi.
    The directions are ±1, an octagon, or an icosahedron.
    """
    x, weights = roots_jacobi(RADII, DF / 2 - 1, n / 2 - 1)
    radius = np.sqrt(2 * WIDTH * (1 + x) / (1 - x))
    y = radius[:, None, None] * (_directions(n) @ FACTOR[:n, :n].T)
    return y.reshape(-1, n), np.repeat(weights / weights.sum(), y.shape[1]) / y.shape[1]


def _directions(n: int) -> Array:
    """Unit vectors that average polynomials of degree 4 exactly, (directions, n)."""
    if n == 1:
        return np.array([[1.0], [-1.0]])
    if n == 2:
        angle = np.arange(8) * np.pi / 4
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    golden = (1 + np.sqrt(5)) / 2
    corners = np.array([[0.0, a, b * golden] for a in (-1, 1) for b in (-1, 1)])
    return np.concatenate([np.roll(corners, shift, axis=1) for shift in range(3)]) / np.sqrt(1 + golden**2)


def first_derivative(function: Callable[[Array], Array], theta: Array, direction: Array) -> Array:
    """d/ds f(θ + s v) at s = 0 for θ and v (K, p)."""
    steps = STEP * np.arange(1, 5)
    pairs = [function(theta + s * direction) - function(theta - s * direction) for s in steps]
    return sum(weight * pair for weight, pair in zip(FIRST, pairs, strict=True)) / STEP


def hessian(function: Callable[[Array], Array], theta: Array) -> Array:
    """(K, p, p) at θ (K, p) for f: (..., p) -> (...), from second derivatives along all eᵢ and eᵢ + eⱼ."""
    p = theta.shape[1]
    i, j = np.tril_indices(p)
    direction = np.eye(p)[i] + np.where((i == j)[:, None], 0, np.eye(p)[j])
    steps = STEP * np.arange(1, 5)[:, None, None] * direction
    at = theta[:, None, None]
    pairs = function(at + steps) + function(at - steps)
    second = (np.tensordot(pairs, SECOND, (1, 0)) - 2 * SECOND.sum() * function(theta)[:, None]) / STEP**2
    whole = np.zeros((len(theta), p, p))
    whole[:, i, j] = whole[:, j, i] = second
    diagonal = np.diagonal(whole, axis1=1, axis2=2)
    mixed = 0.5 * (whole - diagonal[:, :, None] - diagonal[:, None, :])
    return np.where(np.eye(p, dtype=bool), whole, mixed)


def examine(n: int, kappa: Array, hessians: int) -> dict[str, Any]:
    """What n targets' evidence keeps along the manifold, and the Hessian of its expectation at some of the points."""
    y, weights = nodes(n)
    theta, along = points(n, kappa), tangents(n, kappa)
    across = np.where(np.arange(theta.shape[1]) == theta.shape[1] - 2, 0.0, along)  # Ψ moves, κ stays
    some = np.linspace(0, len(kappa) - 1, min(hessians, len(kappa))).astype(int)
    curvature = np.concatenate([hessian(lambda rows: nll(rows, y) @ weights, theta[[i]]) for i in some])
    eigenvalues, vectors = np.linalg.eigh(curvature)
    free = coupled_directions(n)
    coupled = np.linalg.eigvalsh(free.T @ curvature @ free)
    tangent = along[some] / np.linalg.norm(along[some], axis=1, keepdims=True)
    return {
        "n": n,
        "nll_deviation": float(np.max(np.ptp(nll(theta, y), axis=0))),
        "slope_along": float(np.max(np.abs(first_derivative(lambda rows: nll(rows, y), theta, along)))),
        "slope_across": float(np.max(np.abs(first_derivative(lambda rows: nll(rows, y), theta, across)))),
        "hessian_kappa": kappa[some],
        "eigenvalues": eigenvalues / eigenvalues[:, -1:],
        "coupled_eigenvalues": coupled / coupled[:, -1:],
        "cosine": float(np.min(np.abs(np.sum(vectors[:, :, 0] * tangent, axis=1)))),
        **measures(prior(theta, n)),
    }


def measures(niw: Prior) -> dict[str, Any]:
    """Entropy, ln of the peak height and f-divergences (n = 1) of the predictive t, and I(y; μ, Σ) of the NIW, (K,)."""
    n = niw.mu.shape[-1]
    df = niw.nu - n + 1
    scale = paper.times((1 + niw.kappa) / (niw.kappa * df), niw.Psi)
    log_peak = log_t(niw.mu, df, niw.mu, scale)
    entropy = -log_peak + (df + n) / 2 * (digamma((df + n) / 2) - digamma(df / 2))
    noise = log_determinant(niw.Psi) - n * np.log(2) - sum(digamma((niw.nu - i) / 2) for i in range(n))
    information = entropy - 0.5 * (n * np.log(2 * np.pi * np.e) + noise)
    found = {"entropy": entropy, "log_peak": log_peak, "information": information}
    return found | ({"divergences": divergences(df, scale[:, 0, 0])} if n == 1 else {})


def divergences(df: Array, squared_scale: Array) -> dict[str, Array]:
    """f-divergences of centred t densities from a fixed one, (K,) each, by the trapezoidal rule in arsinh y."""
    x = np.arange(-20, 20, 0.05)
    y, volume = np.sinh(x), 0.05 * np.cosh(x)
    log_p = stats.t.logpdf(y, df[:, None], scale=np.sqrt(squared_scale)[:, None])
    log_q = stats.t.logpdf(y, 3, loc=0.5)
    p, q = np.exp(log_p), np.exp(log_q)
    integrands = {
        "KL(t, reference)": p * (log_p - log_q),
        "KL(reference, t)": q * (log_q - log_p),
        "total variation": 0.5 * np.abs(p - q),
        "squared Hellinger": 0.5 * (np.sqrt(p) - np.sqrt(q)) ** 2,
    }
    return {name: (values * volume).sum(axis=1) for name, values in integrands.items()}
