r"""How good a mixture of members is on the rows that they held out, once its scale is right.

All members stop at the epoch with the smallest −Σ ln p(y), where p is the mixture of those that held out the row, with
L multiplied by the factor c that suits these rows best. While members train on, each becomes too sure of itself, and
their mean still gets better: judged one by one, and with the scale they have, they would stop too soon.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mder_jax.estimator._rows import Rows
from mder_jax.networks import Network
from mder_jax.niw import NIW

# Rows that a judgement looks at, at most, and entries of all covariances for these.
MOST_ROWS, MOST_ENTRIES = 2048, 1 << 24
# Few rows say little of the scale: ln c has a Gaussian prior of this standard deviation.
PRIOR = math.log(2)
# c is sought between 1/20 and 20.
BOUNDS = (-3.0, 3.0)
# Mean and standard deviation of the prior of ln(s/(networks' share)) of a further member, and where it is sought.
PRIOR_OF_SHARE, BOUNDS_OF_SHARE = (-1.0, 2.0), (-9.0, 9.0)
# A density of 0 would be an infinite loss, of which there is no derivative.
LEAST_LOG = -1e6


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
        self.index, self._held_out = usable, held_out[:, usable]
        self._weights = _of_mean_one(weights[usable])
        self.rows = Rows(rows.X[usable], rows.Y[usable].astype(np.float64), self._weights)
        self._X, self._predict = jnp.asarray(self.rows.X), jax.jit(jax.vmap(network.apply, (0, None)))

    def loss_and_factor(self, params: Any) -> tuple[float, float]:
        """The smallest mean −ln p(y), and the c on L for which it is that; parameters are (M, ...)."""
        return best_factor(self._distances(self._predict(params, self._X)), self._held_out, self._weights)

    def blend(self, params: Any, candidates: Sequence["Candidate"], judged: np.ndarray) -> "Blend":
        """The best weights of further members, and the c on L of the networks; by the judged rows of a mask (K,).

        The candidates are of all K rows of the judge.
        """
        networks = self._distances(self._predict(params, self._X)).take(judged)
        apart = [candidate.take(judged) for candidate in candidates]
        return best_blend(networks, self._held_out[:, judged], _of_mean_one(self._weights[judged]), apart)

    def _distances(self, niw: NIW) -> "Distances":
        return distances(*_in_double_precision(niw), self.rows.Y)

    def __call__(self, progress: Any) -> float:
        """The loss, for `fit_ensemble`."""
        return self.loss_and_factor(progress.params)[0]


def _of_mean_one(weights: np.ndarray) -> np.ndarray:
    """So that a prior counts as much as it does without weights."""
    return weights.astype(np.float64) / weights.mean(dtype=np.float64)


class Distances(NamedTuple):
    """Of y from Student-t distributions: df and ln p(y), (M, N); q = dᵀ S⁻¹ d of observed targets, and their number.

    Their number is (N,).
    """

    df: np.ndarray
    log_prob: np.ndarray
    q: np.ndarray
    observed: np.ndarray

    def take(self, rows: np.ndarray) -> "Distances":
        """Some of the rows."""
        return Distances(*(part[..., rows] for part in self))

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
    good &= np.isfinite(log_prob)
    return Distances(df, np.where(good, log_prob, -np.inf), np.where(good, np.maximum(q, 0.0), 0.0), k)


def best_factor(found: Distances, members: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """min and argmin over c of −Σ w ln p_c(y)/Σ w − ln prior(c), p_c the mixture of the members in the mask (M, N)."""
    from scipy.optimize import minimize_scalar

    def loss(log_c: float) -> float:
        log_prob = _of_mixture(found, members, log_c)
        return float(0.5 * (log_c / PRIOR) ** 2 - np.sum(weights * log_prob)) / float(weights.sum())

    with np.errstate(all="ignore"):
        best = minimize_scalar(loss, bounds=BOUNDS, method="bounded", options={"xatol": 1e-3})
    return (float(best.fun), math.exp(best.x)) if np.isfinite(best.fun) else (math.inf, 1.0)


class Candidate(NamedTuple):
    """A further member of the mixture.

    Args:
      log_prob: ln p(y) of K rows at its own parameters θ, (P,) -> (K,).
      priors: mean and standard deviation of each θ.
      limits: where it is sought.
    """

    log_prob: Callable[[np.ndarray], np.ndarray]
    priors: tuple[tuple[float, float], ...] = ()
    limits: tuple[tuple[float, float], ...] = ()

    @classmethod
    def fixed(cls, niw: NIW, Y: np.ndarray) -> "Candidate":
        """One that has no parameters: of targets (K, n), NaN where one is missing."""
        found = distances(*_in_double_precision(jax.tree.map(lambda part: part[None], niw)), Y).log_prob[0]
        return cls(lambda _: found)

    def take(self, rows: np.ndarray) -> "Candidate":
        """Some of the rows."""
        return self._replace(log_prob=lambda theta: self.log_prob(theta)[rows])


class Blend(NamedTuple):
    """The shares of further members, the factor c on L of the networks, and θ of each member."""

    shares: list[float]
    factor: float
    theta: list[np.ndarray]


def best_blend(found: Distances, members: np.ndarray, weights: np.ndarray, candidates: Sequence[Candidate]) -> Blend:
    """The shares sⱼ of further members, c and θ that minimise the same with (1 − Σ sⱼ) p_c + Σ sⱼ pⱼ.

    Few rows say little of a share: each ln(sⱼ/(1 − Σ s)) has a Gaussian prior.
    """
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    ends = np.cumsum([0, *(len(candidate.priors) for candidate in candidates)]) + 1 + len(candidates)

    def parts(at: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """ln of all shares but for their sum, and θ of each."""
        own = [at[start:end] for start, end in itertools.pairwise(ends)]
        return np.append(0.0, at[1 : 1 + len(candidates)]), own

    priors = [(0.0, PRIOR), *[PRIOR_OF_SHARE] * len(candidates), *itertools.chain(*(one.priors for one in candidates))]
    limits = [BOUNDS, *[BOUNDS_OF_SHARE] * len(candidates), *itertools.chain(*(one.limits for one in candidates))]
    middle, spread = np.array(priors).T

    def loss(at: np.ndarray) -> float:
        logits, own = parts(at)
        each = [_of_mixture(found, members, at[0])]
        each += [candidate.log_prob(theta) for candidate, theta in zip(candidates, own, strict=True)]
        log_prob = logsumexp(np.maximum(each, LEAST_LOG) + logits[:, None], axis=0) - logsumexp(logits)
        return (0.5 * float(np.sum(((at - middle) / spread) ** 2)) - float(weights @ log_prob)) / float(weights.sum())

    with np.errstate(all="ignore"):
        first = math.log(best_factor(found, members, weights)[1])
        starts = [np.append(log_c, middle[1:]) for log_c in (first, 0.0)]
        tried = [minimize(loss, start, method="L-BFGS-B", bounds=limits) for start in starts]
    best = min(tried, key=lambda one: one.fun if np.isfinite(one.fun) else np.inf).x
    logits, theta = parts(best)
    shares = np.exp(logits - logsumexp(logits))
    return Blend(shares[1:].tolist(), math.exp(best[0]), theta)


def _in_double_precision(niw: NIW) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    mu, L, kappa, nu = (np.asarray(part, np.float64) for part in (niw.mu, niw.L, niw.kappa, niw.nu))
    return mu, L, kappa, nu


def _of_mixture(found: Distances, members: np.ndarray, log_c: float) -> np.ndarray:
    """ln p_c(y) of the mixture of the members in the mask, (N,)."""
    from scipy.special import logsumexp

    each = np.where(members, found.scaled(math.exp(log_c)), -np.inf)
    return logsumexp(each, axis=0) - np.log(members.sum(axis=0))
