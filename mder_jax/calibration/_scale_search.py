"""The search for the factors of `calibration.fit_scale`: their likelihood, its maximum, and the posterior on a grid."""

import math
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from mder_jax import _gamma, linalg
from mder_jax.mixture import from_centre
from mder_jax.student_t import StudentT

# The prior of ln factor is normal around 0 with this standard deviation: 95 % between 1/50 and 50.
PRIOR_SD = 2.0
# An error of ln factor above this (a factor of e²⁰) means that the rows do not determine it.
_UNDETERMINED = 20.0
# The posterior's grid ends where the density has fallen to e^-_DROP, and has at least and at most this many points a
# factor: more for few rows, whose posterior is less smooth and quick, so that about _DENSITIES densities are computed.
_DROP, _COARSEST, _FINEST = 16.0, 21, 101
_DENSITIES = 1e8


def log_normal(log_factor: np.ndarray, error: np.ndarray, level: float) -> tuple[np.ndarray, ...]:
    """Factor, standard error and ends of the interval, from ln factor and its error."""
    width = NormalDist().inv_cdf((1 + level) / 2) * error
    factor = np.exp(log_factor)
    return factor, factor * error, np.exp(log_factor - width), np.exp(log_factor + width)


class Parts(NamedTuple):
    """All that ln p(y) needs for any factors, so that L is solved with only once; each array is (M, N).

    `residual` L⁻¹(y − μ̄) and `offset` L⁻¹(μ_i − μ̄) are n arrays each, `observed` is the number of observed targets, and
    `constant` does not depend on the factors.
    """

    residual: list[Array]
    offset: list[Array]
    df: Array
    observed: Array
    constant: Array


@jax.jit
def _parts_of(t: StudentT, y: Array, log_weights: Array | None) -> Parts:
    observed = ~jnp.isnan(y)
    number = jnp.sum(observed, axis=-1)

    def of_member(t: StudentT, apart: Array) -> Parts:
        L = linalg.leave_rows_out(t.scale_tril, observed)
        residual, offset = (linalg.whiten(L, jnp.where(observed, d, 0.0)) for d in (y - t.loc + apart, apart))
        constant = _gamma.centred_log_gamma_ratio_counted(t.df, number, t.n) - linalg.half_logdet(L)
        return Parts(linalg.split_last(residual), linalg.split_last(offset), t.df, number.astype(y.dtype), constant)

    parts = jax.vmap(of_member)(t, from_centre(t.loc, log_weights))
    return parts if log_weights is None else parts._replace(constant=parts.constant + log_weights)


@jax.jit
def _log_density(log_factors: Array, parts: Parts) -> Array:
    """ln p(y) of each row up to a constant, (N,), given (ln within, ln between) or one ln factor for both."""
    within, between = jnp.exp(log_factors[0]), jnp.exp(log_factors[-1])
    white = [a - jnp.sqrt(between) * b for a, b in zip(parts.residual, parts.offset, strict=True)]
    q = sum((x * x for x in white), start=jnp.zeros_like(parts.df))
    gaussian = jnp.isinf(parts.df)
    df = jnp.where(gaussian, 1.0, parts.df)
    distance = jnp.where(gaussian, q / within, (df + parts.observed) * jnp.log1p(q / (within * df)))
    return logsumexp(parts.constant - 0.5 * (parts.observed * jnp.log(within) + distance), axis=0)


def _objective(log_factors: Array, parts: Parts, precision: float) -> Array:
    """Log likelihood plus log prior; precision 0 for no prior."""
    return jnp.sum(_log_density(log_factors, parts)) - 0.5 * precision * jnp.sum(log_factors**2)


@jax.jit
def _derivatives(log_factors: Array, parts: Parts, precision: float) -> tuple[Array, Array, Array]:
    """Value, gradient, and minus the second derivatives; forward mode twice, which compiles in half the time."""
    arguments, gradient = (log_factors, parts, precision), jax.jacfwd(_objective)
    return _objective(*arguments), gradient(*arguments), -jax.jacfwd(gradient)(*arguments)


@jax.jit
def _on_grid(points: Array, parts: Parts, precision: float) -> Array:
    """The objective at (K, 1) or (K, 2) points -> (K,)."""
    return lax.map(lambda point: _objective(point, parts, precision), points)


def prepare(t: StudentT, y: Array, separate: bool, log_weights: Array | None = None) -> tuple[Parts, np.ndarray]:
    """The parts of the members' t and the targets, and the start of the search: one ln factor, or two.

    It starts at ln of the median of ‖L⁻¹(y − μ̄)‖² / (n + ‖L⁻¹(μ_i − μ̄)‖²), which exists for any df.
    """
    parts = _parts_of(t, y, log_weights)
    with np.errstate(over="ignore"):
        residual, offset = (sum(np.asarray(x) ** 2 for x in part) for part in (parts.residual, parts.offset))
    ratios = np.mean(residual, axis=0) / np.mean(np.asarray(parts.observed) + offset, axis=0)
    ratios = finite_rows(ratios, "the prediction is not finite")
    start = np.full(1 + separate, math.log(np.median(ratios[ratios > 0])) if np.any(ratios > 0) else 0.0)
    return _relative_to(start.astype(y.dtype), parts), start


@jax.jit
def _relative_to(log_factors: Array, parts: Parts) -> Parts:
    """The parts with a constant such that ln p(y) of each row is 0 at these factors."""
    return parts._replace(constant=parts.constant - _log_density(log_factors, parts)[None])


def finite_rows(values: ArrayLike, what: str) -> np.ndarray:
    """The values in double precision, or an error that names the first row that is not finite."""
    numbers = np.asarray(values, np.float64)
    if not (finite := np.isfinite(numbers)).all():
        raise ValueError(f"{what} in row {first(~finite)[0]} (rows with nothing but NaN in y not counted)")
    return numbers


def first(where: np.ndarray) -> list[int]:
    """The index of the first True."""
    return np.argwhere(where)[0].tolist()


def _maximise(parts: Parts, x: np.ndarray, precision: float) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of the objective, by Newton steps halved until it rises, and minus its second derivatives there."""

    def evaluate(x: np.ndarray) -> tuple[np.ndarray, ...]:
        found = _derivatives(x.astype(parts.df.dtype), parts, precision)
        return tuple(np.asarray(part, np.float64) for part in found)

    value, slope, information = evaluate(x)
    if not (np.isfinite(value) and np.isfinite(slope).all() and np.isfinite(information).all()):
        raise ValueError(f"ln p(y) or its slope is not finite in {parts.df.dtype}: the prediction or y is too extreme")
    for _ in range(100):
        step = _newton_step(slope, information)
        if slope @ step < 1e-8:  # the gain is below rounding; one more step doubles the digits
            return x + step, evaluate(x + step)[2]
        following = evaluate(x + step)
        while not following[0] > value and np.abs(step).max() > 1e-6:
            step = step / 2
            following = evaluate(x + step)
        if not following[0] > value or np.abs(x).max() > 60:
            break
        x, (value, slope, information) = x + step, following
    return x, information


def _newton_step(slope: np.ndarray, information: np.ndarray) -> np.ndarray:
    """A step uphill also where the curvature has the wrong sign, by at most a factor of e³."""
    curvature, axes = np.linalg.eigh(information)
    step = axes @ (axes.T @ slope / np.maximum(np.abs(curvature), 1e-12))
    return step * min(1.0, 3 / np.abs(step).max()) if np.any(step) else step


def likelihood(parts: Parts, start: np.ndarray, level: float) -> tuple[np.ndarray, ...]:
    """Factors of maximum likelihood, their errors and intervals, from the observed information in ln factor."""
    x, information = _maximise(parts, start, 0.0)
    if not np.linalg.eigvalsh(information).min() > _UNDETERMINED**-2:
        raise ValueError(
            f"the likelihood has no maximum that these {parts.df.shape[1]} rows determine; the search ended at factors"
            f" {', '.join(f'{factor:.3g}' for factor in np.exp(x))}. method='posterior' has a prior that bounds them"
        )
    return log_normal(x, np.sqrt(np.diagonal(np.linalg.inv(information))), level)


def posterior(parts: Parts, start: np.ndarray, level: float) -> tuple[np.ndarray, ...]:
    """Median, error and central interval of each factor under the prior."""
    precision = PRIOR_SD**-2
    mode, information = _maximise(parts, start, precision)
    axes = _grid_axes(parts, mode, np.linalg.inv(information), precision)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    values = np.asarray(_on_grid(points.reshape(-1, len(mode)).astype(parts.df.dtype), parts, precision))
    density = np.exp(values - values.max()).reshape(points.shape[:-1])
    marginals = [density] if len(axes) == 1 else [density.sum(axis=1), density.sum(axis=0)]
    summaries = [_summary(axis, marginal, level) for axis, marginal in zip(axes, marginals, strict=True)]
    median, deviation, lower, upper = np.array(summaries).T
    return np.exp(median), np.exp(median) * deviation, np.exp(lower), np.exp(upper)


def _grid_axes(parts: Parts, mode: np.ndarray, covariance: np.ndarray, precision: float) -> list[np.ndarray]:
    """For each ln factor the points of the grid, out to where the density has fallen to e^-16 on either side."""
    size = int(np.clip((_DENSITIES / parts.df.size) ** (1 / len(mode)), _COARSEST, _FINEST))
    top = np.asarray(_on_grid(mode[None].astype(parts.df.dtype), parts, precision)).item()

    def end(ridge: np.ndarray) -> float:
        steps = 2 * 1.25 ** np.arange(24)
        points = (mode + steps[:, None] * ridge).astype(parts.df.dtype)
        return steps[np.argmax(top - np.asarray(_on_grid(points, parts, precision)) > _DROP)]

    axes = []
    for j, centre in enumerate(mode):
        deviation = math.sqrt(covariance[j, j])
        ridge = covariance[j] / deviation  # the other factor follows, so the fall is that of the marginal
        axes.append(np.linspace(centre - end(-ridge) * deviation, centre + end(ridge) * deviation, size))
    return axes


def _summary(x: np.ndarray, density: np.ndarray, level: float) -> tuple[float, float, float, float]:
    """Median, standard deviation and central interval of a density at few points, by a spline of its logarithm."""
    from scipy.interpolate import CubicSpline

    fine = np.linspace(x[0], x[-1], 4001)
    weights = np.exp(CubicSpline(x, np.log(np.maximum(density / density.max(), 1e-300)))(fine))
    below = np.cumsum(weights) - 0.5 * weights
    median, lower, upper = np.interp([0.5, (1 - level) / 2, (1 + level) / 2], below / weights.sum(), fine)
    mean = np.average(fine, weights=weights)
    return median, math.sqrt(np.average((fine - mean) ** 2, weights=weights)), lower, upper
