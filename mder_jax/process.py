r"""The exact Gaussian process of several targets: a Normal-Inverse-Wishart posterior in closed form, without training.

.. math:: Σ \sim \mathcal W^{-1}(Ψ_0, ν_0), \qquad Y | Σ \sim \mathcal{MN}(0, K + σ^2 W^{-1}, Σ), \qquad
          k(x, z) = c + a\, x^\top z + m\bigl(‖(x - z)/ℓ‖\bigr)

with m(r) = (1 + √5 r + 5r²/3) e^{−√5 r} (Matérn 5/2), a length ℓ for each column, and weights W of the rows. Its
prediction at a new x is a NIW whose κ(x) is the number of observations that its mean is worth: large among the rows,
near 0 far from them. Everything is numpy in double precision: for a table of a thousand rows it takes about a second.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import dtrmm
from scipy.optimize import minimize
from scipy.special import gammaln
from threadpoolctl import threadpool_limits

from mder_jax._arguments import integer
from mder_jax._checks import doubles
from mder_jax.niw import NIW

__all__ = ["Kernel", "Posterior", "Process", "best_kernel", "fit_process", "log_evidence"]

# Ψ₀ = 0.01 I and ν₀ = n + 2: the expected noise is small against standardised targets, and counts as little.
PRIOR_SCALE, PRIOR_ROWS = 0.01, 2
# Added to the diagonal of k(Z, Z), whose entries are about 1, against rounding; and as a fraction of σ².
JITTER, JITTER_OF_NOISE = 1e-9, 1e-3
# κ is at most its inverse.
LEAST_VARIANCE = 1e-9
# Standardised inputs of a fit are not beyond the first, other numbers not beyond the second.
LARGEST, LARGEST_ELSEWHERE = 1e4, 1e10
LEAST_WEIGHT = 1e-100
# Rows of which kernels are computed at once.
BLOCK = 4096
# Mean and standard deviation of the Gaussian priors of ln a, ln c and ln σ². That of ln ℓ is about ½ ln d + ½, since
# distances of standardised rows grow as √d.
PRIOR_OF_REST = ((-2.0, 2.0), (0.0, 2.0), (-3.0, 3.0))
PRIOR_OF_LENGTHS = 1.5
BOUND_OF_LENGTHS, BOUNDS_OF_REST = (-3.0, 7.0), ((-9.0, 3.0), (-6.0, 4.0), (-13.0, 2.0))
MOST_STEPS = 60


class Kernel(NamedTuple):
    """k(x, z) = c + a xᵀz + m(‖(x − z)/ℓ‖), and the variance σ² of noise in units of Σ.

    Args:
      lengths: ℓ, (d,).
      linear: a.
      constant: c.
      noise: σ².

    Example:
      >>> kernel = Kernel(np.ones(2), linear=0.1, constant=0.0, noise=0.01)
      >>> print(kernel.between(np.zeros((3, 2)), np.zeros((1, 2))).shape)
      (3, 1)
    """

    lengths: np.ndarray
    linear: float
    constant: float
    noise: float

    def between(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """(N, d) and (M, d) -> (N, M), without noise.

        Example:
          >>> kernel = Kernel(np.ones(1), linear=0.0, constant=0.0, noise=0.1)
          >>> print(kernel.between(np.zeros((1, 1)), np.array([[0.0], [1.0]])).round(4))
          [[1.     0.524]]
        """
        return self.constant + self.linear * (X @ Z.T) + _matern(_squares(X / self.lengths, Z / self.lengths))[0]

    def at(self, X: np.ndarray) -> np.ndarray:
        """k(x, x), (N, d) -> (N,).

        Example:
          >>> print(Kernel(np.ones(1), linear=2.0, constant=0.5, noise=0.1).at(np.array([[3.0]])))
          [19.5]
        """
        return self.constant + self.linear * np.einsum("nd,nd->n", X, X) + 1.0


def _squares(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """‖x − z‖², (N, M)."""
    both = np.einsum("nd,nd->n", X, X)[:, None] + np.einsum("nd,nd->n", Z, Z)[None]
    return np.maximum(both - 2 * X @ Z.T, 0.0)


def _matern(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m(r) and its derivative by r², of r²."""
    s = np.sqrt(5 * squares)
    decay = np.exp(-s)
    return (1 + s + s * s / 3) * decay, (-5 / 6) * (1 + s) * decay


class Posterior(NamedTuple):
    """A NIW for each of N rows, in double precision.

    Attributes:
      mu: (N, n).
      L: Cholesky factor of Σ₀ = Ψ/ν, of all rows, (n, n).
      kappa: σ²/var f(x), (N,): how many observations with the same noise the mean is worth.
      nu: ν₀ plus the number of rows.

    Example:
      >>> X = np.linspace(-1, 1, 20)[:, None]
      >>> posterior = fit_process(X, X).predict(X[:3])
      >>> print(posterior.mu.shape, posterior.nu)
      (3, 1) 23.0
    """

    mu: np.ndarray
    L: np.ndarray
    kappa: np.ndarray
    nu: float

    def niw(self) -> NIW:
        """As a `NIW`, in JAX's precision.

        Example:
          >>> X = np.linspace(-1, 1, 20)[:, None]
          >>> print(fit_process(X, np.sin(X)).predict(X[:3]).niw().batch_shape)
          (3,)
        """
        return NIW(self.mu, np.broadcast_to(self.L, (len(self.mu), *self.L.shape)), self.kappa, self.nu)


@dataclass(frozen=True)
class Process:
    r"""The posterior given the rows of a fit, by the coefficients of m landmarks; these are all rows of a small table.

    With features φ(x) = C⁻¹ k(Z, x), C Cᵀ = k(Z, Z), and Λ = σ² I + Φᵀ W Φ the coefficients are
    B | Σ ~ MN(B_N, σ² Λ⁻¹, Σ), B_N = Λ⁻¹ Φᵀ W Y. With all rows as landmarks that is the exact process; with fewer it is
    the projected one, which keeps the variance k(x, x) − φᵀφ that landmarks do not explain (deterministic training
    conditional, Quiñonero-Candela and Rasmussen 2005).

    Args:
      kernel: lengths and variances.
      landmarks: Z, (m, d).
      precision_root: Cholesky factor of Λ, (m, m).
      coefficients: B_N, (m, n).
      Psi: Ψ₀ + (YᵀWY − B_Nᵀ Λ B_N)/σ², (n, n).
      nu: ν₀ + N.

    Example:
      >>> X = np.linspace(-1, 1, 40)[:, None]
      >>> process = fit_process(X, np.hstack([np.sin(3 * X), np.cos(3 * X)]))
      >>> near, far = process.predict(np.array([[0.3], [50.0]])).kappa
      >>> bool(near > 1 > far)
      True
    """

    kernel: Kernel
    landmarks: np.ndarray
    precision_root: np.ndarray
    coefficients: np.ndarray
    Psi: np.ndarray
    nu: float

    @classmethod
    def given(
        cls,
        kernel: Kernel,
        landmarks: np.ndarray,
        X: np.ndarray,
        Y: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> "Process":
        """The posterior of a kernel and landmarks (m, d), given rows (N, d), targets (N, n) and weights (N,).

        Example:
          >>> kernel, X = Kernel(np.ones(1), linear=0.0, constant=0.0, noise=0.1), np.zeros((1, 1))
          >>> print(Process.given(kernel, X, X, np.ones((1, 1))).predict(X).mu.round(4))  # 1/(1 + 0.1)
          [[0.9091]]
        """
        X, Y, w = _checked(X, Y, weights)
        kernel, landmarks = _checked_kernel(kernel, X.shape[1]), doubles("landmarks", landmarks)
        if landmarks.ndim != 2 or landmarks.shape[1:] != X.shape[1:]:
            raise ValueError(f"landmarks must be rows like those of X, {X.shape}; got shape {landmarks.shape}")
        root = _root(kernel, _standardised("landmarks", landmarks))
        precision, right = kernel.noise * np.eye(len(landmarks)), np.zeros((len(landmarks), Y.shape[1]))
        for start in range(0, len(X), BLOCK):
            rows = np.s_[start : start + BLOCK]
            features = solve_triangular(root, kernel.between(landmarks, X[rows]), lower=True)
            weighted = features * w[rows]
            precision += weighted @ features.T
            right += weighted @ Y[rows]
        precision_root = cholesky(precision, lower=True)
        coefficients = cho_solve((precision_root, True), right)
        explained = precision_root.T @ coefficients
        left = _positive((Y.T * w) @ Y - explained.T @ explained)
        Psi = PRIOR_SCALE * np.eye(Y.shape[1]) + left / kernel.noise
        # In the order of rows, as those of a file, so that products are the same to the last digit.
        landmarks, precision_root, coefficients = map(np.ascontiguousarray, (landmarks, precision_root, coefficients))
        return cls(kernel, landmarks, precision_root, coefficients, Psi, Y.shape[1] + PRIOR_ROWS + float(len(X)))

    def __getstate__(self) -> dict[str, object]:
        """For pickle: without what follows from the rest."""
        return {name: value for name, value in self.__dict__.items() if name not in ("whiteners", "factor")}

    @functools.cached_property
    def whiteners(self) -> tuple[np.ndarray, np.ndarray]:
        """C⁻¹ and R⁻¹ C⁻¹ with Λ = R Rᵀ, (m, m) both: of k(Z, x) they make φ and the root of φᵀ Λ⁻¹ φ.

        Example:
          >>> X = np.linspace(-1, 1, 20)[:, None]
          >>> print([part.shape for part in fit_process(X, X).whiteners])
          [(20, 20), (20, 20)]
        """
        inverse = solve_triangular(_root(self.kernel, self.landmarks), np.eye(len(self.landmarks)), lower=True)
        both = inverse, solve_triangular(self.precision_root, inverse, lower=True)
        return np.asfortranarray(both[0]), np.asfortranarray(both[1])  # as BLAS reads them

    @functools.cached_property
    def factor(self) -> np.ndarray:
        """L of every row: L Lᵀ = σ² Ψ/ν, (n, n).

        Example:
          >>> X = np.linspace(-1, 1, 20)[:, None]
          >>> print(fit_process(X, X).factor.shape)
          (1, 1)
        """
        return np.linalg.cholesky(self.Psi * (self.kernel.noise / self.nu))

    def predict(self, X: np.ndarray) -> Posterior:
        """At rows (N, d): μ = B_Nᵀ φ and κ = σ²/(k(x, x) − φᵀφ + σ² φᵀ Λ⁻¹ φ).

        Example:
          >>> X = np.linspace(-1, 1, 20)[:, None]
          >>> print(fit_process(X, 2 * X).predict(np.array([[0.5]])).mu.round(2))
          [[1.]]
        """
        X = doubles("X", X)
        if X.ndim != 2 or X.shape[1] != self.landmarks.shape[1]:
            raise ValueError(f"X must have shape (N, {self.landmarks.shape[1]}); got {X.shape}")
        X = _standardised("X", X, LARGEST_ELSEWHERE)
        mu, kappa = np.empty((len(X), len(self.Psi))), np.empty(len(X))
        for start in range(0, len(X), BLOCK):
            rows = np.s_[start : start + BLOCK]
            mu[rows], kappa[rows] = self._block(X[rows])
        return Posterior(mu, self.factor, kappa, self.nu)

    def _block(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_prior, of_posterior = self.whiteners
        near = self.kernel.between(X, self.landmarks).T
        features, spread = (dtrmm(1.0, part, near, lower=True) for part in (of_prior, of_posterior))
        unexplained = np.maximum(self.kernel.at(X) - np.einsum("mn,mn->n", features, features), 0.0)
        variance = unexplained / self.kernel.noise + np.einsum("mn,mn->n", spread, spread)
        return features.T @ self.coefficients, 1 / np.maximum(variance, LEAST_VARIANCE)


def _root(kernel: Kernel, landmarks: np.ndarray) -> np.ndarray:
    """C, (m, m)."""
    rounding = np.finfo(float).eps * len(landmarks) * float(kernel.at(landmarks).max())
    jitter = max(JITTER, JITTER_OF_NOISE * kernel.noise, rounding)
    return cholesky(kernel.between(landmarks, landmarks) + jitter * np.eye(len(landmarks)), lower=True)


def _checked(X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, Y = doubles("X", X), doubles("Y", Y)
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y) or not Y.size:
        raise ValueError(f"X and Y must be (N, d) and (N, n) with N, n >= 1; got shapes {X.shape} and {Y.shape}")
    w = np.ones(len(X)) if weights is None else doubles("weights", weights)
    if w.shape != (len(X),):
        raise ValueError(f"weights must be one number for each of the {len(X)} rows; got shape {w.shape}")
    if not np.all((w > LEAST_WEIGHT) & (w < 1 / LEAST_WEIGHT)):
        raise ValueError(f"weights must be finite, and above 0 ({LEAST_WEIGHT:g})")
    return _standardised("X", X), _standardised("Y", Y, LARGEST_ELSEWHERE), w


def _standardised(name: str, values: np.ndarray, largest: float = LARGEST) -> np.ndarray:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    if np.any(np.abs(values) > largest):
        raise ValueError(f"{name} must be standardised, with no entry beyond {largest:g}; got {np.abs(values).max():g}")
    return values


def _checked_kernel(kernel: Kernel, d: int) -> Kernel:
    """A kernel for inputs (N, d)."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a Kernel; got {kernel!r:.60}")
    lengths, rest = doubles("lengths", kernel.lengths), doubles("kernel", kernel[1:])
    if lengths.shape != (d,) or rest.shape != (3,):
        raise ValueError(f"a kernel has {d} lengths and three numbers; got shapes {lengths.shape} and {rest.shape}")
    positive = np.all(np.isfinite(lengths) & (lengths > 0)) and np.all(np.isfinite(rest) & (rest >= 0)) and rest[2] > 0
    if not positive:
        raise ValueError(f"lengths and noise must be positive, linear and constant 0 or more; got {kernel!r:.200}")
    return Kernel(lengths, *rest.tolist())


def _positive(matrices: np.ndarray) -> np.ndarray:
    """Symmetric matrices (..., n, n) without the negative eigenvalues that rounding left."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def fit_process(
    X: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None = None,
    landmarks: int = 1000,
    rows_of_kernel: int = 500,
    seed: int = 0,
) -> Process:
    """The process of standardised inputs (N, d) and standardised targets (N, n), both without gaps.

    Args:
      X: (N, d).
      Y: (N, n).
      weights: (N,), above 0; the noise of a row is σ²/w.
      landmarks: with so many rows or fewer the process is exact; of more rows so many represent it.
      rows_of_kernel: at most so many rows choose the kernel, see `best_kernel`.
      seed: which these are.

    Example:
      >>> X = np.random.default_rng(0).normal(size=(60, 2))
      >>> process = fit_process(X, X[:, :1] ** 2)
      >>> bool(process.kernel.lengths[0] < process.kernel.lengths[1])  # the second column does not matter
      True
    """
    X, Y, w = _checked(X, Y, weights)
    kernel = best_kernel(X, Y, w, integer("rows_of_kernel", rows_of_kernel), integer("seed", seed, 0))
    chosen = np.random.default_rng(seed).permutation(len(X))[: integer("landmarks", landmarks)]
    return Process.given(kernel, X[np.sort(chosen)], X, Y, w)


def best_kernel(
    X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None, rows: int = 500, seed: int = 0
) -> Kernel:
    """The kernel of the largest evidence times a prior on ln ℓ, ln a, ln c and ln σ², given some of the rows.

    Args:
      X: (N, d), standardised.
      Y: (N, n), standardised.
      weights: (N,), above 0.
      rows: at most so many of them are looked at.
      seed: which these are.

    Example:
      >>> X = np.linspace(-1, 1, 30)[:, None]
      >>> bool(best_kernel(X, np.sin(3 * X)).noise < 0.01)
      True
    """
    X, Y, w = _checked(X, Y, weights)
    few = np.sort(np.random.default_rng(integer("seed", seed, 0)).permutation(len(X))[: integer("rows", rows)])
    X, Y, w = X[few], Y[few], w[few]
    d = X.shape[1]
    middle = np.concatenate([np.full(d, 0.5 * math.log(max(d, 1)) + 0.5), [mean for mean, _ in PRIOR_OF_REST]])
    spread = np.concatenate([np.full(d, PRIOR_OF_LENGTHS), [std for _, std in PRIOR_OF_REST]])

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Per target, so that the prior weighs as much with many targets as with one."""
        value, slope = _evidence_and_slope(theta, X, Y, w)
        z = (theta - middle) / spread
        return 0.5 * float(z @ z) - value / Y.shape[1], z / spread - slope / Y.shape[1]

    bounds = [BOUND_OF_LENGTHS] * d + list(BOUNDS_OF_REST)
    with threadpool_limits(1, "blas"):  # for matrices of this size more threads only wait for each other
        found = minimize(loss, middle, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MOST_STEPS})
    return _kernel(found.x)


def _kernel(theta: np.ndarray) -> Kernel:
    """Of ln ℓ (d,), ln a, ln c and ln σ²."""
    return Kernel(np.exp(theta[:-3]), *(float(value) for value in np.exp(theta[-3:])))


def log_evidence(kernel: Kernel, X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None) -> float:
    r"""ln p(Y), a matrix-variate t: with K = k(X, X) + σ² W⁻¹, Ψ₀ and ν₀ as in this module and Γ_n of n dimensions,

    .. math:: \lnΓ_n\bigl(\tfrac{ν_0+N}2\bigr) - \lnΓ_n\bigl(\tfrac{ν_0}2\bigr) - \tfrac{nN}2 \ln π
              + \tfrac{ν_0}2 \ln|Ψ_0| - \tfrac n2 \ln|K| - \tfrac{ν_0+N}2 \ln|Ψ_0 + Y^\top K^{-1} Y|

    Example:
      >>> kernel = Kernel(np.ones(1), linear=0.1, constant=1.0, noise=0.1)
      >>> print(round(log_evidence(kernel, np.array([[0.0], [1.0]]), np.array([[0.2], [0.1]])), 4))
      0.6287
    """
    X, Y, w = _checked(X, Y, weights)
    kernel = _checked_kernel(kernel, X.shape[1])
    with np.errstate(divide="ignore"):  # ln 0 of a kernel without a linear part or a constant
        theta = np.log([*kernel.lengths, kernel.linear, kernel.constant, kernel.noise])
    N, n = Y.shape
    nu = n + PRIOR_ROWS
    gammas = sum(gammaln((nu + N - j) / 2) - gammaln((nu - j) / 2) for j in range(n))
    constant = gammas - n * N / 2 * math.log(math.pi) + nu * n / 2 * math.log(PRIOR_SCALE)
    return float(constant + _evidence_and_slope(theta, X, Y, w)[0])


def _evidence_and_slope(
    theta: np.ndarray, X: np.ndarray, Y: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """ln p(Y) up to its constant, and its derivative by ln ℓ (d,), ln a, ln c and ln σ²."""
    (N, n), kernel = Y.shape, _kernel(theta)
    values, slopes = _matern(_squares(X / kernel.lengths, X / kernel.lengths))
    products = X @ X.T
    K = values + kernel.linear * products + kernel.constant
    K[np.diag_indices(N)] += kernel.noise / weights + JITTER
    root = cholesky(K, lower=True)
    inverse = cho_solve((root, True), np.eye(N))
    alpha = inverse @ Y
    A = PRIOR_SCALE * np.eye(n) + Y.T @ alpha
    power = 0.5 * (n + PRIOR_ROWS + N)
    value = -n * np.log(np.diagonal(root)).sum() - power * np.linalg.slogdet(A)[1]
    G = power * alpha @ np.linalg.solve(A, alpha.T) - 0.5 * n * inverse  # ∂ ln p/∂K
    by_squares = G * slopes
    rows = by_squares.sum(axis=1)
    squares = 2 * ((X * X).T @ rows - np.einsum("nd,nd->d", X, by_squares @ X))  # Σ_ij (x_id − x_jd)² ∂ ln p/∂r²_ij
    noise = kernel.noise * float(np.diagonal(G) @ (1 / weights))
    rest = [kernel.linear * np.sum(G * products), kernel.constant * np.sum(G), noise]
    return float(value), np.concatenate([-2 * squares / kernel.lengths**2, rest])
