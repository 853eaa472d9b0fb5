r"""How good a mixture of members is on the rows that they held out, once its scale is right.

All members stop at the epoch with the smallest −Σ ln p(y), where p is the mixture of those that held out the row, with
L multiplied by the factor c that suits these rows best. While members train on, each becomes too sure of itself, and
their mean still gets better: judged one by one, and with the scale they have, they would stop too soon.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mder_jax.estimator._rows import Rows
from mder_jax.networks import Network

# Rows that a judgement looks at, at most, and entries of all covariances for these.
MOST_ROWS, MOST_ENTRIES = 2048, 1 << 24
# Few rows say little of the scale: ln c has a Gaussian prior of this standard deviation.
PRIOR = math.log(2)
# c is sought between 1/20 and 20.
BOUNDS = (-3.0, 3.0)


class Judge:
    """Judges members by rows that they held out, of which there must be one with a target and a weight above 0.

    Args:
      network: makes a NIW of the targets.
      rows: standardised.
      held_out: which members held out which rows, (M, N).
    """

    def __init__(self, network: Network, rows: Rows, held_out: np.ndarray) -> None:
        weights = np.ones(len(rows.X)) if rows.weights is None else rows.weights
        usable = np.flatnonzero(held_out.any(axis=0) & (weights > 0) & ~np.isnan(rows.Y).all(axis=1))
        most = min(MOST_ROWS, max(64, MOST_ENTRIES // (len(held_out) * rows.Y.shape[1] ** 2)))
        if len(usable) > most:
            usable = np.sort(np.random.default_rng(0).permutation(usable)[:most])
        self._X, self._Y = jnp.asarray(rows.X[usable]), rows.Y[usable].astype(np.float64)
        self._weights, self._held_out = weights[usable].astype(np.float64), held_out[:, usable]
        self._predict = jax.jit(jax.vmap(network.apply, (0, None)))

    def loss_and_factor(self, params: Any) -> tuple[float, float]:
        """The smallest mean −ln p(y), and the c on L for which it is that; parameters are (M, ...)."""
        niw = self._predict(params, self._X)
        mu, L, kappa, nu = (np.asarray(part, np.float64) for part in (niw.mu, niw.L, niw.kappa, niw.nu))
        return best_factor(distances(mu, L, kappa, nu, self._Y), self._held_out, self._weights)

    def __call__(self, progress: Any) -> float:
        """The loss, for `fit_ensemble`."""
        return self.loss_and_factor(progress.params)[0]


class Distances(NamedTuple):
    """Of y from Student-t distributions: df and ln p(y), (M, N); q = dᵀ S⁻¹ d of observed targets, and their number.

    Their number is (N,).
    """

    df: np.ndarray
    log_prob: np.ndarray
    q: np.ndarray
    observed: np.ndarray

    def scaled(self, c: float) -> np.ndarray:
        """ln p(y), (M, N), with S multiplied by c²."""
        power = 0.5 * (self.df + self.observed)
        change = np.log1p(self.q / (c * c * self.df)) - np.log1p(self.q / self.df)
        return self.log_prob - self.observed * math.log(c) - power * change


def distances(mu: np.ndarray, L: np.ndarray, kappa: np.ndarray, nu: np.ndarray, Y: np.ndarray) -> Distances:
    """Of Y (N, n), NaN where a target is missing, from the predictive t of NIW distributions with batch shape (M, N).

    In double precision. A missing target is a row and column of the unit matrix in S, and 0 in d. Where S is not
    finite or singular, or d not finite, the density is 0.
    """
    with np.errstate(all="ignore"):
        return _distances(mu, L, kappa, nu, Y)


def _distances(mu: np.ndarray, L: np.ndarray, kappa: np.ndarray, nu: np.ndarray, Y: np.ndarray) -> Distances:
    from scipy.special import gammaln

    n, seen = Y.shape[1], ~np.isnan(Y)
    k, df = seen.sum(axis=1), nu - n + 1
    S = ((1 + kappa) / kappa * nu / df)[..., None, None] * (L @ np.swapaxes(L, -1, -2))
    S = np.where(seen[:, :, None] & seen[:, None, :], S, np.eye(n))
    d = np.where(seen, Y - mu, 0.0)
    sign, log_determinant = np.linalg.slogdet(S)
    good = (sign > 0) & np.isfinite(log_determinant)
    S = np.where(good[..., None, None], S, np.eye(n))
    q = np.sum(d * np.linalg.solve(S, d[..., None])[..., 0], axis=-1)
    constant = gammaln(0.5 * (df + k)) - gammaln(0.5 * df) - 0.5 * k * np.log(math.pi * df)
    log_prob = constant - 0.5 * log_determinant - 0.5 * (df + k) * np.log1p(q / df)
    return Distances(df, np.where(good & np.isfinite(log_prob), log_prob, -np.inf), np.maximum(q, 0.0), k)


def best_factor(found: Distances, members: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """min and argmin over c of −Σ w ln p_c(y)/Σ w − ln prior(c), p_c the mixture of the members in the mask (M, N)."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    sizes = np.log(members.sum(axis=0))

    def loss(log_c: float) -> float:
        each = np.where(members, found.scaled(math.exp(log_c)), -np.inf)
        log_prob = logsumexp(each, axis=0) - sizes
        return float(0.5 * (log_c / PRIOR) ** 2 - np.sum(weights * log_prob)) / float(weights.sum())

    with np.errstate(all="ignore"):
        best = minimize_scalar(loss, bounds=BOUNDS, method="bounded", options={"xatol": 1e-3})
    return (float(best.fun), math.exp(best.x)) if np.isfinite(best.fun) else (math.inf, 1.0)
