"""The paper's formulas as they are printed, in numpy and double precision: what the library's stable forms must equal.

Letters: Σ (..., n, n), vectors (..., n), κ and ν (...). They share no code with the library.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

Array = np.ndarray


class Prior(NamedTuple):
    """A NIW in the paper's letters, Ψ itself and not its factor: NIW(μ₀, κ; Ψ, ν)."""

    mu: Array
    Psi: Array
    kappa: Array
    nu: Array


def outer(vector: Array) -> Array:
    """d dᵀ."""
    return vector[..., :, None] * vector[..., None, :]


def times(number: Array | float, matrix: Array) -> Array:
    """One number for each matrix."""
    return np.asarray(number)[..., None, None] * matrix


def quadratic(matrix: Array, vector: Array) -> Array:
    """dᵀ A⁻¹ d."""
    return np.sum(vector * np.linalg.solve(matrix, vector[..., None])[..., 0], axis=-1)


def log_determinant(matrix: Array) -> Array:
    """ln |A|."""
    return np.linalg.slogdet(matrix)[1]


def log_normal(x: Array, mu: Array, Sigma: Array) -> Array:
    """ln N(x | μ, Σ), eq:gauss."""
    n = x.shape[-1]
    return -0.5 * (n * np.log(2 * np.pi) + log_determinant(Sigma) + quadratic(Sigma, x - mu))


def log_inverse_wishart(Sigma: Array, Psi: Array, nu: Array) -> Array:
    """ln W⁻¹(Σ | Ψ, ν), App. C."""
    n = Sigma.shape[-1]
    log_gamma_n = n * (n - 1) / 4 * np.log(np.pi) + sum(gammaln((nu - i) / 2) for i in range(n))
    trace = np.trace(np.linalg.solve(Sigma, Psi), axis1=-2, axis2=-1)
    logs = nu * log_determinant(Psi) - (nu + n + 1) * log_determinant(Sigma) - nu * n * np.log(2)
    return -log_gamma_n + 0.5 * (logs - trace)


def log_niw(prior: Prior, mu: Array, Sigma: Array) -> Array:
    """ln NIW(μ, Σ), eq:niw."""
    return log_normal(mu, prior.mu, times(1 / prior.kappa, Sigma)) + log_inverse_wishart(Sigma, prior.Psi, prior.nu)


def log_t(y: Array, df: Array, mu: Array, scale: Array) -> Array:
    """ln t_m(y | μ, S) for a scale matrix S."""
    n = y.shape[-1]
    tail = -(df + n) / 2 * np.log1p(quadratic(scale, y - mu) / df)
    return gammaln((df + n) / 2) - gammaln(df / 2) - 0.5 * (n * np.log(df * np.pi) + log_determinant(scale)) + tail


def predictive(prior: Prior, y: Array) -> Array:
    """ln p(y | m) as a t with ν − n + 1 degrees of freedom, eq:modev and eq:modev21."""
    df = prior.nu - y.shape[-1] + 1
    return log_t(y, df, prior.mu, times((1 + prior.kappa) / (prior.kappa * df), prior.Psi))


def ratio_of_determinants(prior: Prior, y: Array) -> Array:
    """ln p(y | m) from eq:modev22."""
    kappa, nu, n = prior.kappa, prior.nu, y.shape[-1]
    shrink = kappa / (1 + kappa)
    grown = log_determinant(prior.Psi + times(shrink, outer(y - prior.mu)))
    front = gammaln((nu + 1) / 2) - gammaln((nu - n + 1) / 2) + n / 2 * np.log(shrink / np.pi)
    return front - 0.5 * log_determinant(prior.Psi) - (nu + 1) / 2 * (grown - log_determinant(prior.Psi))


def minus_nll(prior: Prior, y: Array) -> Array:
    """Minus eq:nll, which is eq:nll1."""
    kappa, nu, n = prior.kappa, prior.nu, y.shape[-1]
    grown = log_determinant(prior.Psi + times(kappa / (1 + kappa), outer(y - prior.mu)))
    nll = gammaln((nu - n + 1) / 2) - gammaln((nu + 1) / 2) + n / 2 * np.log(np.pi * (1 + kappa) / kappa)
    return -(nll - nu / 2 * log_determinant(prior.Psi) + (nu + 1) / 2 * grown)


def minus_nll_by_sigma(prior: Prior, y: Array) -> Array:
    """Minus eq:nll2, in terms of Σ₀ = Ψ/ν."""
    kappa, nu, n = prior.kappa, prior.nu, y.shape[-1]
    Sigma = times(1 / nu, prior.Psi)
    grown = log_determinant(Sigma + times(kappa / (1 + kappa) / nu, outer(y - prior.mu)))
    nll = gammaln((nu - n + 1) / 2) - gammaln((nu + 1) / 2) + n / 2 * np.log(nu * np.pi * (1 + kappa) / kappa)
    return -(nll - nu / 2 * log_determinant(Sigma) + (nu + 1) / 2 * grown)


def minus_coupled_loss(prior: Prior, y: Array) -> Array:
    """Minus the loss of Sec. 4 with its constant (n/2) ln π, for r = ν/κ and Σ₀ = L Lᵀ."""
    nu, n, r = prior.nu, y.shape[-1], prior.nu / prior.kappa
    L = np.linalg.cholesky(times(1 / nu, prior.Psi))
    logs = np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)
    grown = log_determinant(L @ np.swapaxes(L, -1, -2) + times(1 / (r + nu), outer(y - prior.mu)))
    nll = gammaln((nu - n + 1) / 2) - gammaln((nu + 1) / 2) + n / 2 * (np.log(r + nu) + np.log(np.pi))
    return -(nll - nu * logs + (nu + 1) / 2 * grown)


def update(prior: Prior, Y: Array, divisor: int) -> Prior:
    """The posterior after m observations (m, n), eq:postdens, with ⟨Y⟩ the sum over them divided by `divisor`."""
    m = len(Y)
    average = Y.sum(axis=0) / divisor
    kappa = prior.kappa + m
    mu = (prior.kappa * prior.mu + m * average) / kappa
    scatter = outer(Y - average).sum(axis=0) + m * prior.kappa / kappa * outer(prior.mu - average)
    return Prior(mu, prior.Psi + scatter, kappa, prior.nu + m)
