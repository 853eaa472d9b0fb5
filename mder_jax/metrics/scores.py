r"""The parts of `metrics`: scores of rows, by integration or sampling, and curves over all rows.

A row function accepts y (N, n) with NaN where nothing was observed, a `Mixture` of `StudentT` members, and a key; its
results have N rows. `in_blocks` runs it on a few thousand rows at a time, so that memory is bounded.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from mder_jax import _gamma, linalg, special
from mder_jax._blocks import map_traced_blocks
from mder_jax._checks import check_same, doubles, floats, is_concrete, matching
from mder_jax.mixture import Mixture, as_mixture, tail_of_radius, weighted_mean
from mder_jax.niw import NIW
from mder_jax.student_t import Interval, StudentT

Prediction = StudentT | NIW | Mixture

# Draws per row of the scores that sample: an error of about 5 % of the score in one row, √N times less in the mean.
DRAWS = 100
# Rows in one block: small enough that 100 draws of each stay in tens of megabytes.
_BLOCK = 2048
# The trapezoidal rule of `_distance_between`: its step, and the number of steps to either side.
_STEP, _STEPS = 0.5, 18
# Points of a sparsification curve.
_FRACTIONS = 100


@runtime_checkable
class Regions(Protocol):
    """Anything that tells which rows are inside, such as the `Region` of the estimator."""

    def contains(self, y: Any) -> Any:
        """Whether the targets of each row, (N, n), are inside, (N,)."""


class Estimate(NamedTuple):
    """A mean over rows and its standard error.

    Example:
      >>> from mder_jax import metrics
      >>> t = StudentT(df=jnp.inf, loc=jnp.zeros((4, 1)), scale_tril=jnp.ones((4, 1, 1)))
      >>> value, error = metrics.joint_coverage(jnp.array([[0.0], [9.0], [0.0], [9.0]]), t)
      >>> print(f"{value:.2f} ± {error:.2f}")
      0.50 ± 0.25
    """

    value: Array
    standard_error: Array


class Coverage(NamedTuple):
    """Fraction of y inside the central intervals, its binomial standard error, and their mean width; each (n,).

    Example:
      >>> from mder_jax import metrics
      >>> t = StudentT(df=jnp.inf, loc=jnp.zeros((4, 1)), scale_tril=jnp.ones((4, 1, 1)))
      >>> found = metrics.coverage(jnp.array([[0.0], [9.0], [0.0], [9.0]]), t, level=0.9)
      >>> print(found.coverage, found.standard_error, found.width.shape)
      [0.5] [0.25] (1,)
    """

    coverage: Array
    standard_error: Array
    width: Array


class CalibrationCurve(NamedTuple):
    """Nominal `level` (K,), and the fraction `observed` (K, n) of y inside the central intervals of that level.

    Example:
      >>> from mder_jax import metrics
      >>> t = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> curve = metrics.calibration_curve(jnp.array([[0.0], [9.0]]), t, levels=3)
      >>> print(curve.level, curve.observed[:, 0])
      [0.  0.5 1. ] [0.5 0.5 1. ]
    """

    level: Array
    observed: Array


class Sparsification(NamedTuple):
    """RMSE of the rows left, relative to that of all, once a `fraction` (K,) of the rows is removed.

    `error` (K, n): the most uncertain rows go first; `oracle` (K, n): those with the largest errors go first.

    Example:
      >>> from mder_jax import metrics
      >>> t = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.array([[[1.0]], [[7.0]]]))
      >>> curve = metrics.sparsification(jnp.array([[1.0], [7.0]]), t)
      >>> print(curve.fraction.shape, curve.error.shape, f"{curve.error[50, 0]:.1f}")  # 1/√((1 + 49)/2)
      (100,) (100, 1) 0.2
    """

    fraction: Array
    error: Array
    oracle: Array


def prepared(y: ArrayLike, prediction: Prediction) -> tuple[Array, Mixture]:
    """y (N, n) and the prediction as a mixture of t distributions (of one, if it is one), in one dtype."""
    mixture = students_of_rows(prediction)
    mixture, y = matching(mixture, (*mixture.batch_shape, mixture.n), "the prediction's rows and targets", y=y)
    return y, mixture


def students_of_rows(prediction: Prediction) -> Mixture:
    """The prediction as a mixture of t distributions with batch shape (N,)."""
    mixture = as_mixture(prediction)
    return Mixture(mixture.components(), mixture.log_weights)


@partial(jax.jit, static_argnums=(0, 4))
def in_blocks(
    rows: Callable[..., Any], y: Array, mixture: Mixture, key: Array, options: tuple[Any, ...] = (), *further: Any
) -> Any:
    """rows(y, mixture, key, *options, *further), a pytree of (N, ...), in blocks of rows, one after another.

    `options` are static, part of the compiled program; `further` arguments are not.
    """

    def evaluate(key: Array, y: Array, mixture: Mixture) -> Any:
        return rows(y, mixture, key, *options, *further)

    return map_traced_blocks(evaluate, _BLOCK, key, y, mixture, axes=(0, 1))


@partial(jax.jit, static_argnames="axis")
def average(values: Array, observed: Array, axis: int | None = None) -> Array:
    """Mean of the observed values; NaN if there are none, or if one of the observed ones is NaN."""
    total = jnp.sum(jnp.where(observed, values, 0.0), axis=axis)
    return total / jnp.sum(observed, axis=axis).astype(values.dtype)


def single_targets(mixture: Mixture) -> Mixture:
    """Each target of each row alone, batch shape (N n,): arrays with a long last axis are faster."""
    t = mixture.components()
    df = jnp.broadcast_to(t.df[..., None], t.loc.shape).reshape(mixture.size, -1)
    scale = t.marginal_scale().reshape(*df.shape, 1, 1)
    weights = mixture.log_weights
    if weights is not None:
        weights = jnp.broadcast_to(weights[..., None], t.loc.shape).reshape(df.shape)
    return Mixture(StudentT(df, t.loc.reshape(*df.shape, 1), scale), weights)


def interval(y: Array, mixture: Mixture, key: Array, level: float) -> Interval:
    """Central interval of each target, (N, n) twice."""
    return mixture.interval(level)


def negative_log_likelihood(y: Array, mixture: Mixture, key: Array) -> Array:
    """−ln p of the observed targets, (N,)."""
    return -mixture.log_prob(y, missing=True)


def crps(y: Array, mixture: Mixture, key: Array) -> Array:
    r"""E|X − y| − ½ E|X − X'| of each target, (N, n); NaN where a member has no mean (df ≤ 1).

    The first term, and the second for X and X' from one member, are closed forms; for two see `_distance_between`.
    """
    single = single_targets(mixture)
    t, log_w = single.components(), single.log_weights
    loc, scale, df = t.loc[..., 0], t.scale_tril[..., 0, 0], t.df
    to_y = weighted_mean(scale * _mean_distance((y.reshape(1, -1) - loc) / scale, df), log_w)
    share = None if log_w is None else mixture.size * jnp.exp(log_w).astype(df.dtype)  # 1 on average

    def add_pair(total: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        a, b = ((loc[i], scale[i], df[i], points[:, i], weights[:, i]) for i in pair)
        between = _distance_between(a, b)
        return total + (between if share is None else share[pair[0]] * share[pair[1]] * between), None

    points, weights = _nodes(df)
    each = scale * _half_mean_difference(df)
    own = jnp.sum(each if share is None else share**2 * each, axis=0)
    first, second = np.triu_indices(mixture.size, 1)
    within = lax.scan(add_pair, own, (jnp.asarray(first), jnp.asarray(second)))[0]
    return jnp.where(jnp.min(df, axis=0) > 1, to_y - within / mixture.size**2, jnp.nan).reshape(y.shape)


def _mean_distance(z: Array, df: Array) -> Array:
    """E|T − z| = |z| P(|T| ≤ |z|) + 2 f(z) (1 + z²/m)/(1 − 1/m) for a t with df = m > 1 and density f."""
    z = jnp.abs(z)
    density = jnp.exp(special.log_radial_density(z, df, 1))
    return z * (1 - special.joint_tail(z, df, 1)) + density * (1 + z * z / df) / (1 - 1 / df)


def _half_mean_difference(df: Array) -> Array:
    """½ E|T − T'| = 2√m B(½, m − ½)/((m − 1) B(½, m/2)²) for df = m > 1, which is 1/√π at ∞."""
    log_ratio = 2 * _gamma.half_step(df) - _gamma.half_step(2 * df - 1)
    return jnp.exp(log_ratio) / (math.sqrt(math.pi) * (1 - 1 / df) * jnp.sqrt(1 - 0.5 / df))


def _nodes(df: Array) -> tuple[Array, Array]:
    """Points x and weights w, (K, ...) both, with Σ w g(x) = E[g(T)] for a t with df > 1 and g(x) → |x| far out.

    With x = c sinh(u/c), c = √df, the integrand is analytic and falls exponentially, so the trapezoidal rule in u
    converges exponentially. Far out its terms are a geometric series, which is summed to the end.
    """
    c = jnp.sqrt(jnp.minimum(df, 1e4))[None]  # any c is right; ∞ is not
    k = jnp.arange(-_STEPS, _STEPS + 1, dtype=df.dtype).reshape(-1, *[1] * df.ndim)
    u = k * _STEP / c
    x = c * jnp.sinh(u)
    density = 0.5 * jnp.exp(special.log_radial_density(jnp.abs(x), jnp.broadcast_to(df[None], x.shape), 1))
    beyond = 1 / -jnp.expm1(-(df[None] - 1) * _STEP / c)
    return x, _STEP * jnp.cosh(u) * density * jnp.where(jnp.abs(k) == _STEPS, beyond, 1.0)


def _distance_between(a: tuple[Array, ...], b: tuple[Array, ...]) -> Array:
    """E|X − X'| of two univariate t (loc, scale, df, points, weights) with df > 1, to about 1e-5 of itself.

    It is E[g(X)], X from the narrower and g(x) = E|x − X'| from the wider, which varies on the wider scale only.
    """
    swap = a[1] > b[1]
    loc, scale, _, points, weights = (
        jnp.where(swap if x.ndim == 1 else swap[None], y, x) for x, y in zip(a, b, strict=True)
    )
    wide_loc, wide, wide_df = (jnp.where(swap, x, y) for x, y in zip(a[:3], b[:3], strict=True))

    def add_node(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        x, weight = node
        return total + weight * _mean_distance((loc + scale * x - wide_loc) / wide, wide_df), None

    return wide * lax.scan(add_node, jnp.zeros_like(loc), (points, weights))[0]


def energy_score(y: Array, mixture: Mixture, key: Array, draws: int) -> Array:
    """E‖X − y‖ − ½ E‖X − X'‖ over the observed targets, (N,), from draws and all pairs of them: unbiased."""
    return energy_of_draws(y, mixture.sample(key, draws))


def energy_of_draws(y: Array, x: Array) -> Array:
    """`energy_score` from draws (draws, N, n)."""
    draws, observed = x.shape[0], linalg.split_last(~jnp.isnan(y))
    targets = linalg.split_last(jnp.where(jnp.isnan(y), 0.0, y))
    twice = [jnp.concatenate([part, part]) for part in linalg.split_last(x)]

    def mean_norm(others: list[Array]) -> Array:
        parts = zip(twice, others, observed, strict=True)
        squares = [jnp.where(seen[None], (part[:draws] - other) ** 2, 0.0) for part, other, seen in parts]
        return jnp.mean(jnp.sqrt(sum(squares[1:], squares[0])), axis=0)

    def add_shift(shift: Array, total: Array) -> Array:  # draw k with draw k + shift, each pair once
        weight = jnp.where(2 * shift == draws, 0.5, 1.0).astype(total.dtype)
        return total + weight * mean_norm([lax.dynamic_slice_in_dim(part, shift, draws) for part in twice])

    between = lax.fori_loop(1, draws // 2 + 1, add_shift, jnp.zeros_like(targets[0])) / (draws - 1)
    return mean_norm([target[None] for target in targets]) - between


def variogram_score(y: Array, mixture: Mixture, key: Array, p: float, draws: int) -> Array:
    """Σ_jk (|y_j − y_k|^p − E|X_j − X_k|^p)² over the observed targets, (N,), from draws: unbiased."""
    return variogram_of_draws(y, mixture.sample(key, draws), p)


def variogram_of_draws(y: Array, x: Array, p: float) -> Array:
    """`variogram_score` from draws (draws, N, n)."""
    targets, draws = jnp.moveaxis(y, -1, 0), jnp.moveaxis(x, -1, 0)

    def add_pair(total: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        j, k = pair
        simulated = jnp.abs(draws[j] - draws[k]) ** p
        gap = jnp.abs(targets[j] - targets[k]) ** p - jnp.mean(simulated, axis=0)
        excess = jnp.var(simulated, axis=0, ddof=1) / draws.shape[1]  # of the square of a mean over draws
        return total + 2 * jnp.where(jnp.isnan(targets[j] + targets[k]), 0.0, gap**2 - excess), None

    first, second = np.triu_indices(y.shape[-1], 1)
    return lax.scan(add_pair, jnp.zeros_like(targets[0]), (jnp.asarray(first), jnp.asarray(second)))[0]


def joint_pit(y: Array, mixture: Mixture, key: Array) -> Array:
    """P(d(Y) ≤ d(y)), (N,), with d the distance by the mixture's mean and covariance."""
    if mixture.size == 1:
        return mixture.member(0).joint_pit(y)
    return 1 - tail_of_radius(mixture, mixture.mahalanobis(y))


def pit(y: Array, mixture: Mixture, key: Array) -> Array:
    """P(Y_j ≤ y_j), (N, n)."""
    return jnp.where(jnp.isnan(y), jnp.nan, mixture.cdf(jnp.where(jnp.isnan(y), 0.0, y)))


def estimate(values: Array, observed: Array) -> Estimate:
    """Mean over the observed rows of (N, ...), and their standard deviation over √N."""
    mean, count = average(values, observed, axis=0), jnp.sum(observed, axis=0).astype(values.dtype)
    variance = average((values - mean[None]) ** 2, observed, axis=0) * count / (count - 1)
    return Estimate(mean, jnp.sqrt(variance / count))


def inside(low: Array | float, values: Array, high: Array | float) -> Array:
    """1 where low ≤ value ≤ high, else 0; NaN where one of the three is."""
    within = jnp.where((low <= values) & (values <= high), 1.0, 0.0).astype(values.dtype)
    return jnp.where(jnp.isnan(values) | jnp.isnan(low) | jnp.isnan(high), jnp.nan, within)


def fraction(inside: Array, observed: Array) -> Estimate:
    """The fraction c of the observed rows of (N, ...) that are inside, and √(c(1 − c)/N)."""
    c = average(inside, observed, axis=0)
    return Estimate(c, jnp.sqrt(c * (1 - c) / jnp.sum(observed, axis=0).astype(c.dtype)))


def observed(y: ArrayLike) -> Array:
    """Where y is not NaN."""
    return ~jnp.isnan(floats(y=y)[0])


def distances(y: ArrayLike, interval: Interval) -> tuple[Array, Array]:
    """y − lower and upper − y, all in the shape of y; one of them is negative if y is outside.

    Known values are subtracted in double precision: 2020.5 ± 0.001 has no digits left in float32.
    """
    if not isinstance(interval, tuple | list) or len(interval) != 2:
        raise TypeError(f"interval must be an Interval(lower, upper); got {type(interval).__name__}")
    named = {"y": y, "lower": interval[0], "upper": interval[1]}
    arrays = floats(**named)
    for name, array in zip(named, arrays, strict=True):
        check_same(name, array, arrays[0].shape, "y")
    values: Any = [doubles(*pair) for pair in named.items()] if all(map(is_concrete, arrays)) else arrays
    with np.errstate(all="ignore"):  # infinite ends
        above, below = (jnp.asarray(part, arrays[0].dtype) for part in (values[0] - values[1], values[2] - values[0]))
    return above, below


def coverage(y: ArrayLike, interval: Interval) -> Coverage:
    """Coverage and mean width of intervals, each (n,), or without axis if y is (N,)."""
    return _coverage(*distances(y, interval), observed(y))


@jax.jit
def _coverage(above: Array, below: Array, seen: Array) -> Coverage:
    within = inside(0.0, jnp.minimum(above, below), jnp.inf)
    return Coverage(*fraction(within, seen), average(above + below, seen, axis=0))


def inside_all(y: ArrayLike, interval: Interval) -> tuple[Array, Array]:
    """1 where all targets of a row are in their intervals, else 0, and which rows are complete, (N,) both."""
    above, below = distances(y, interval)
    nearest, seen = jnp.minimum(above, below), observed(y)
    rows = (nearest.shape[0], -1) if nearest.ndim == 1 else nearest.shape
    return inside(0.0, jnp.min(nearest.reshape(rows), axis=-1), jnp.inf), jnp.all(seen.reshape(rows), axis=-1)


def inside_region(y: ArrayLike, region: Regions) -> tuple[Array, Array]:
    """1 where region.contains(y), else 0, and which rows are complete, (N,) both."""
    if isinstance(y, jax.core.Tracer):
        raise TypeError("y must not be traced where regions are given: they are numpy's")
    values = doubles("y", y)
    values = values[:, None] if values.ndim == 1 else values
    complete = ~np.isnan(values).any(axis=-1)
    found = jnp.asarray(region.contains(np.where(complete[..., None], values, 0.0)), jnp.result_type(float))
    check_same("region.contains(y)", found, values.shape[:1], "the rows of y")
    return found, jnp.asarray(complete)


@partial(jax.jit, static_argnums=2)
def calibration_curve(pit: Array, observed: Array, levels: int) -> CalibrationCurve:
    """Fraction of the rows with |2 pit − 1| ≤ level, (K, n), at evenly spaced levels from 0 to 1."""
    level = jnp.linspace(0, 1, levels, dtype=pit.dtype)
    centred = jnp.abs(2 * pit - 1)
    return CalibrationCurve(level, lax.map(lambda c: average(inside(0.0, centred, c), observed, axis=0), level))


@partial(jax.jit, static_argnums=3)
def ence(error: Array, std: Array, observed: Array, bins: int) -> Array:
    """Mean over bins of |RMV − RMSE|/RMV, (n,), from errors and predicted standard deviations (N, n)."""

    def one_target(error: Array, std: Array, observed: Array) -> Array:
        rank = jnp.argsort(jnp.lexsort((std, ~observed)))
        chosen = jnp.where(observed, rank * bins // jnp.maximum(jnp.sum(observed), 1), bins)
        sums = partial(jax.ops.segment_sum, segment_ids=chosen, num_segments=bins + 1)
        rows, variance, squares = (sums(values)[:bins] for values in (jnp.ones_like(std), std**2, error**2))
        rmv, rmse = jnp.sqrt(variance / rows), jnp.sqrt(squares / rows)
        return average(jnp.abs(rmv - rmse) / rmv, rows > 0)

    return jax.vmap(one_target, in_axes=1)(error, std, observed)


@jax.jit
def sparsification(error: Array, uncertainty: Array, observed: Array) -> Sparsification:
    """The curves from errors and uncertainties (N, n)."""

    def one_target(error: Array, uncertainty: Array, observed: Array) -> Array:
        order, count = jnp.lexsort((uncertainty, ~observed)), jnp.sum(observed)
        total = jnp.cumsum(jnp.where(observed, error**2, 0.0)[order])  # of the least uncertain rows
        kept = count - jnp.arange(_FRACTIONS) * count // _FRACTIONS
        mean = total[kept - 1] / kept.astype(error.dtype)
        return jnp.sqrt(mean / mean[0])

    curves = jax.vmap(one_target, in_axes=1, out_axes=1)
    fraction = jnp.arange(_FRACTIONS, dtype=error.dtype) / _FRACTIONS
    return Sparsification(fraction, curves(error, uncertainty, observed), curves(error, jnp.abs(error), observed))
