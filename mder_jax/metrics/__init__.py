r"""Scores of predictive distributions: y first, then the prediction, as in scikit-learn.

A prediction is a `StudentT` or a `NIW` (its predictive t is meant) with batch shape (N,), or a `Mixture` whose members
have batch shape (M, N); an ensemble of one scores exactly like its member. `interval_score`, `coverage` and
`joint_coverage` score given intervals and regions, such as the conformal ones of `MDERRegressor.predict_interval`. y is
(N, n), where NaN means that a target was not observed:

* `nll`, `energy_score`, `variogram_score` score the observed targets of a row by their exact marginal distribution;
* scores of single targets (`rmse`, `crps`, `coverage`, ...) average over what was observed;
* `joint_pit` and `joint_coverage` use the complete rows;
* where nothing was observed the score is NaN.

Every score is the mean over what was observed, or with ``reduce=False`` one value per row, or per row and target;
quantities that need all rows at once give one value per target. All functions but `report` and the scorers work under
`jax.jit`; regions are given outside of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from mder_jax import _arguments, _checks
from mder_jax.metrics import scores
from mder_jax.metrics.reports import Report
from mder_jax.metrics.scorers import Scorer, crps_scorer, energy_scorer, nll_scorer, rmse_scorer
from mder_jax.metrics.scores import DRAWS, CalibrationCurve, Coverage, Estimate, Prediction, Regions, Sparsification
from mder_jax.mixture import Mixture
from mder_jax.student_t import Interval, StudentT as StudentT  # the examples use both

__all__ = ["CalibrationCurve", "Coverage", "Estimate", "Report", "Scorer", "Sparsification", "ause"]
__all__ += ["calibration_curve", "calibration_error", "coverage", "crps", "crps_scorer", "ence", "energy_score"]
__all__ += ["energy_scorer", "interval_score", "joint_coverage", "joint_pit", "nll", "nll_scorer", "pit", "report"]
__all__ += ["rmse", "rmse_scorer", "sharpness", "sparsification", "variogram_score"]

_LEVELS, _BINS = 100, 10


def nll(y: ArrayLike, prediction: Prediction, reduce: bool = True) -> Array:
    """−ln p(y) with all constants, mean or (N,); of a mixture it is −ln of the members' mean density.

    Example:
      >>> prediction = StudentT(df=5.0, loc=jnp.zeros((3, 2)), scale_tril=jnp.broadcast_to(jnp.eye(2), (3, 2, 2)))
      >>> print(f"{nll(jnp.zeros((3, 2)), prediction):.4f}")  # ln 2π
      1.8379
    """
    y, mixture = scores.prepared(y, prediction)
    values = scores.in_blocks(scores.negative_log_likelihood, y, mixture, _key(None))
    return _reduced(values, _count(y) > 0, reduce)


def rmse(y: ArrayLike, prediction: Prediction, reduce: bool = True) -> Array:
    """√mean (y_j − E[y_j])² of each target, (n,) with ``reduce=False``, or the mean of these over targets.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> print(rmse(jnp.array([[1.0], [7.0]]), prediction))  # √((1 + 49)/2)
      5.0
    """
    y, mixture = scores.prepared(y, prediction)
    return _over_targets(_rmse(y, mixture), y, reduce)


def crps(y: ArrayLike, prediction: Prediction, reduce: bool = True) -> Array:
    r"""``∫(F(x) − 1{x ≥ y})² dx = E|X − y| − ½E|X − X'|``, the continuous ranked probability score, mean or (N, n).

    Closed form for one t (df = ∞ is the Gaussian). Of a mixture, ``E|X − X'|`` of any two members is integrated, to
    about 1e-5 of itself; the time grows with the square of their number. A member without a mean (df ≤ 1) gives NaN.

    Example:
      >>> print(f"{crps([[0.0]], StudentT(jnp.inf, jnp.zeros((1, 1)), jnp.ones((1, 1, 1)))):.4f}")  # (√2 − 1)/√π
      0.2337
    """
    y, mixture = scores.prepared(y, prediction)
    return _reduced(scores.in_blocks(scores.crps, y, mixture, _key(None)), ~jnp.isnan(y), reduce)


def energy_score(
    y: ArrayLike, prediction: Prediction, key: Array | None = None, draws: int = DRAWS, reduce: bool = True
) -> Array:
    """E‖X − y‖ − ½E‖X − X'‖, the CRPS of all targets at once, mean or (N,): an unbiased estimate from draws.

    Targets should have similar units. `draws` is their number per row; all pairs of them are used. Without a `key` they
    are the same each time.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((1, 2)), scale_tril=1e-6 * jnp.eye(2)[None])
      >>> print(f"{energy_score(jnp.array([[3.0, 4.0]]), prediction):.3f}")  # of a point: the distance
      5.000
    """
    y, mixture = scores.prepared(y, prediction)
    values = scores.in_blocks(
        scores.energy_score, y, mixture, _key(key), (_arguments.integer("draws", draws, least=2),)
    )
    return _reduced(values, _count(y) > 0, reduce)


def variogram_score(
    y: ArrayLike,
    prediction: Prediction,
    p: float = 0.5,
    key: Array | None = None,
    draws: int = DRAWS,
    reduce: bool = True,
) -> Array:
    """``Σ_jk (|y_j − y_k|^p − E|X_j − X_k|^p)²``, mean or (N,): sees wrong correlations; unbiased, from draws.

    j and k run over all observed targets; a row with fewer than two has no score. The other arguments are those of
    `energy_score`.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((1, 2)), scale_tril=1e-12 * jnp.eye(2)[None])
      >>> print(f"{variogram_score(jnp.array([[0.0, 4.0]]), prediction):.3f}")  # twice (√4 − 0)²
      8.000
    """
    y, mixture = scores.prepared(y, prediction)
    p = _checks.plain_number("p", p)
    if not 0 < p <= 100:
        raise ValueError(f"p is a power above 0, up to 100; got {p}")
    options = (p, _arguments.integer("draws", draws, least=2))
    values = scores.in_blocks(scores.variogram_score, y, mixture, _key(key), options)
    return _reduced(values, _count(y) > 1, reduce)


def interval_score(y: ArrayLike, interval: Interval, coverage: float, reduce: bool = True) -> Array:
    """(u − l) + 2/α [(l − y)₊ + (y − u)₊] with α = 1 − coverage, mean or (N, n), for intervals [l, u] of each target.

    Args:
      y: (N, n), or (N,).
      interval: such as `MDERRegressor.predict_interval` gives, in the shape of y.
      coverage: the probability that these intervals are meant to have.

    Example:
      >>> lower, upper = jnp.array([[0.0]]), jnp.array([[2.0]])
      >>> print(interval_score([[3.0]], Interval(lower, upper), coverage=0.5))  # 2 + 2/0.5 · 1
      6.0
    """
    above, below = scores.distances(y, interval)
    alpha = 1 - _checks.probability("coverage", coverage, "[)", above.dtype)
    outside = jnp.maximum(-above, 0.0) + jnp.maximum(-below, 0.0)
    return _reduced(above + below + 2 / alpha * outside, scores.observed(y), reduce)


def coverage(y: ArrayLike, prediction: Prediction | Interval, level: float = 0.9) -> Coverage:
    """Fraction c of each target inside its interval, with √(c(1 − c)/N), and the mean width, each (n,).

    Args:
      y: (N, n); with intervals in this shape also (N,).
      prediction: its central intervals are meant; or the intervals themselves, such as `MDERRegressor.predict_interval`
        gives, which are conformal after `calibrate`.
      level: of the central intervals of a prediction.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((4, 1)), scale_tril=jnp.ones((4, 1, 1)))
      >>> y = jnp.array([[0.0], [9.0], [0.0], [9.0]])
      >>> found = coverage(y, prediction)
      >>> print(found.coverage, found.standard_error, f"{found.width[0]:.3f}")  # 2 · 1.645
      [0.5] [0.25] 3.290
      >>> print(coverage(y, Interval(lower=jnp.zeros((4, 1)), upper=jnp.full((4, 1), 9.0))).coverage)
      [1.]
    """
    if isinstance(prediction, Regions):
        raise TypeError("a region is of all targets at once, coverage of each: use joint_coverage, or give an Interval")
    if isinstance(prediction, tuple):
        return scores.coverage(y, prediction)
    y, mixture = scores.prepared(y, prediction)
    level = _checks.probability("level", level, dtype=y.dtype)
    return scores.coverage(y, scores.in_blocks(scores.interval, y, mixture, _key(None), (), level))


def joint_coverage(y: ArrayLike, prediction: Prediction | Interval | Regions, level: float = 0.9) -> Estimate:
    """Fraction c of the complete rows with all targets in the region of that level, and √(c(1 − c)/N).

    Args:
      y: (N, n).
      prediction: its ellipsoids (`joint_pit` ≤ level) are meant; or the regions themselves, such as
        ``MDERRegressor.predict_interval(..., joint=True)`` gives, anything with ``contains(y)`` of shape (N,); or
        intervals, all of which must hold their targets.
      level: of the ellipsoids of a prediction.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((4, 2)), scale_tril=jnp.broadcast_to(jnp.eye(2), (4, 2, 2)))
      >>> y = jnp.array([[0.0, 0.0], [9.0, 0.0], [0.0, 0.0], [0.0, 9.0]])
      >>> found = joint_coverage(y, prediction)
      >>> print(found.value, found.standard_error)
      0.5 0.25
      >>> print(joint_coverage(y, Interval(lower=jnp.zeros((4, 2)), upper=jnp.array([[0.0, 9.0]] * 4))).value)
      0.75
    """
    if isinstance(prediction, Regions):
        return scores.fraction(*scores.inside_region(y, prediction))
    if isinstance(prediction, tuple):
        return scores.fraction(*scores.inside_all(y, prediction))
    y, mixture = scores.prepared(y, prediction)
    nominal = _checks.probability("level", level, dtype=y.dtype)
    return _fraction_inside(y, joint_pit(y, mixture), nominal)


def pit(y: ArrayLike, prediction: Prediction) -> Array:
    """P(Y_j ≤ y_j) of each target alone, (N, n): uniform on [0, 1] if the prediction is right.

    Example:
      >>> prediction = StudentT(df=1.0, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> print(pit(jnp.array([[0.0], [1.0]]), prediction).round(4))  # of a Cauchy: ½ + arctan(y)/π
      [[0.5 ]
       [0.75]]
    """
    y, mixture = scores.prepared(y, prediction)
    return scores.in_blocks(scores.pit, y, mixture, _key(None))


def joint_pit(y: ArrayLike, prediction: Prediction) -> Array:
    """P(d(Y) ≤ d(y)), d the Mahalanobis distance by the prediction's mean and covariance, (N,): uniform if it is right.

    Exact for one t, integrated to about 1e-4 for a mixture. A member without a covariance (df ≤ 2) gives NaN, and so
    does an incomplete row.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((1, 2)), scale_tril=jnp.broadcast_to(jnp.eye(2), (1, 2, 2)))
      >>> print(f"{joint_pit(jnp.array([[1.0, 0.0]]), prediction)[0]:.4f}")  # 1 - exp(-1/2)
      0.3935
    """
    y, mixture = scores.prepared(y, prediction)
    return scores.in_blocks(scores.joint_pit, y, mixture, _key(None))


def calibration_curve(y: ArrayLike, prediction: Prediction, levels: int = _LEVELS) -> CalibrationCurve:
    """Observed fraction of each target inside its central intervals, (K, n), at K evenly spaced levels from 0 to 1.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> curve = calibration_curve(jnp.array([[0.0], [9.0]]), prediction, levels=3)
      >>> print(curve.level, curve.observed[:, 0])  # 0 is in every interval, 9 in none but the whole line
      [0.  0.5 1. ] [0.5 0.5 1. ]
    """
    y, mixture = scores.prepared(y, prediction)
    return scores.calibration_curve(pit(y, mixture), ~jnp.isnan(y), _arguments.integer("levels", levels))


def calibration_error(y: ArrayLike, prediction: Prediction, levels: int = _LEVELS, reduce: bool = True) -> Array:
    """Mean over levels of ``|observed − nominal coverage|`` of the central intervals, (n,) or the mean over targets.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> print(f"{calibration_error(jnp.zeros((2, 1)), prediction):.4f}")  # the mean of 1 − level
      0.5000
    """
    y, mixture = scores.prepared(y, prediction)
    return _over_targets(_calibration_error(calibration_curve(y, mixture, levels)), y, reduce)


def ence(y: ArrayLike, prediction: Prediction, bins: int = _BINS, reduce: bool = True) -> Array:
    """Expected normalised calibration error: mean over bins of ``|RMV − RMSE|/RMV``, (n,) or the mean over targets.

    Rows are sorted by predicted standard deviation into bins of equal size; RMV is the root of the mean predicted
    variance in a bin. It falls with the number of rows in a bin as 1/√(2 rows), not to 0.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> print(ence(jnp.array([[2.0], [-2.0]]), prediction, bins=1))  # RMV 1, RMSE 2
      1.0
    """
    y, mixture = scores.prepared(y, prediction)
    return _over_targets(_ence(y, mixture, _arguments.integer("bins", bins)), y, reduce)


def sparsification(y: ArrayLike, prediction: Prediction, uncertainty: ArrayLike | None = None) -> Sparsification:
    """RMSE of the rows left / RMSE of all, the most uncertain removed first, (K, n), for K fractions: 0, 1, ... 99 %.

    `uncertainty` ranks the rows: (N, n), or (N,) for all targets; None for the predicted standard deviation.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.array([[[1.0]], [[7.0]]]))
      >>> curve = sparsification(jnp.array([[1.0], [7.0]]), prediction)
      >>> print(f"{curve.error[0, 0]:.1f} {curve.error[50, 0]:.1f}")  # all, and the surer half: 1/√((1 + 49)/2)
      1.0 0.2
    """
    y, mixture = scores.prepared(y, prediction)
    u = mixture.std()
    if uncertainty is not None:
        mixture, (u, y) = _checks.floats_with(mixture, uncertainty=uncertainty, y=y)
    if u.ndim == 1:
        _checks.check_same("uncertainty", u, y.shape[:1], "the rows of y")
        u = jnp.broadcast_to(u[:, None], y.shape)
    _checks.check_same("uncertainty", u, y.shape, "y")
    return scores.sparsification(y - mixture.mean(), u, ~jnp.isnan(y))


def ause(y: ArrayLike, prediction: Prediction, uncertainty: ArrayLike | None = None, reduce: bool = True) -> Array:
    """Area between the sparsification curve and the oracle's, (n,) or mean; 0 if uncertainty ranks rows as errors do.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.array([[[1.0]], [[7.0]]]))
      >>> print(ause(jnp.array([[1.0], [7.0]]), prediction), bool(ause(jnp.array([[7.0], [1.0]]), prediction) > 0))
      0.0 True
    """
    y, mixture = scores.prepared(y, prediction)
    return _over_targets(_area(sparsification(y, mixture, uncertainty)), y, reduce)


def sharpness(prediction: Prediction, reduce: bool = True) -> Array:
    """√mean Var[y_j], the root of the mean predicted variance, (n,) or the mean over targets, whatever y is.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.array([[[1.0]], [[7.0]]]))
      >>> print(sharpness(prediction))  # √((1 + 49)/2)
      5.0
    """
    std = scores.students_of_rows(prediction).std()
    values = _root_mean_square(std, np.ones(std.shape, bool))
    return jnp.mean(values) if reduce else values


def report(
    y: ArrayLike,
    prediction: Prediction,
    level: float = 0.9,
    names: Sequence[str] | None = None,
    key: Array | None = None,
    draws: int = DRAWS,
) -> Report:
    """All scores at once, evaluated by blocks of rows in bounded memory; it prints as a table.

    `level` is that of the intervals, `names` are those of the targets, and `key` and `draws` are as in `energy_score`.

    Example:
      >>> prediction = StudentT(df=jnp.inf, loc=jnp.zeros((2, 1)), scale_tril=jnp.ones((2, 1, 1)))
      >>> found = report(jnp.array([[1.0], [7.0]]), prediction, names=["price"])
      >>> print(f"{found.rmse[0]:.1f}, {found.nll.value:.2f} ± {found.nll.standard_error:.2f}")
      5.0, 13.42 ± 12.00
    """
    y, mixture = scores.prepared(y, prediction)
    level, names = _checks.plain_number("level", level), _arguments.target_names(names, mixture.n)
    _checks.probability("level", level, "[)", y.dtype)
    return Report(names, level, **_summary(y, mixture, _key(key), level, _arguments.integer("draws", draws, least=2)))


def _key(key: Array | None) -> Array:
    return jax.random.key(0) if key is None else _checks.one_key(key)


@jax.jit
def _count(y: Array) -> Array:
    """Observed targets of each row, (N,)."""
    return jnp.sum(~jnp.isnan(y), axis=-1)


def _reduced(values: Array, observed: Array, reduce: bool) -> Array:
    return scores.average(values, observed) if reduce else jnp.where(observed, values, jnp.nan)


def _over_targets(values: Array, y: Array, reduce: bool) -> Array:
    """Values (n,), or their mean over targets that were ever observed."""
    return _mean_over_targets(values, y) if reduce else values


@jax.jit
def _mean_over_targets(values: Array, y: Array) -> Array:
    return scores.average(values, jnp.any(~jnp.isnan(y), axis=0))


@jax.jit
def _root_mean_square(error: Array, observed: Array) -> Array:
    return jnp.sqrt(scores.average(error**2, observed, axis=0))


@jax.jit
def _rmse(y: Array, mixture: Mixture) -> Array:
    return _root_mean_square(y - mixture.mean(), ~jnp.isnan(y))


@jax.jit
def _fraction_inside(y: Array, pit: Array, level: Array) -> Estimate:
    return scores.fraction(scores.inside(0.0, pit, level), _count(y) == y.shape[-1])


@jax.jit
def _calibration_error(curve: CalibrationCurve) -> Array:
    return jnp.mean(jnp.abs(curve.observed - curve.level[:, None]), axis=0)


@partial(jax.jit, static_argnums=2)
def _ence(y: Array, mixture: Mixture, bins: int) -> Array:
    return scores.ence(y - mixture.mean(), mixture.std(), ~jnp.isnan(y), bins)


@jax.jit
def _area(curves: Sparsification) -> Array:
    step = curves.fraction[1] - curves.fraction[0]
    return jnp.trapezoid(curves.error - curves.oracle, dx=step, axis=0)


def _all_rows(y: Array, mixture: Mixture, key: Array, draws: int, level: float) -> dict[str, Any]:
    """What a report computes in blocks of rows."""
    x = mixture.sample(key, draws)
    return {
        "nll": scores.negative_log_likelihood(y, mixture, key),
        "energy_score": scores.energy_of_draws(y, x),
        "variogram_score": scores.variogram_of_draws(y, x, 0.5),
        "joint_pit": scores.joint_pit(y, mixture, key),
        "crps": scores.crps(y, mixture, key),
        "pit": scores.pit(y, mixture, key),
        "interval": scores.interval(y, mixture, key, level),
        "error": y - mixture.mean(),
        "std": mixture.std(),
    }


@partial(jax.jit, static_argnums=4)
def _summary(y: Array, mixture: Mixture, key: Array, level: float, draws: int) -> dict[str, Any]:
    """The fields of a `Report`."""
    rows = scores.in_blocks(_all_rows, y, mixture, key, (draws,), level)
    observed, count = ~jnp.isnan(y), _count(y)
    curve = scores.calibration_curve(rows["pit"], observed, _LEVELS)
    sparse = scores.sparsification(rows["error"], rows["std"], observed)
    return {
        "nll": scores.estimate(rows["nll"], count > 0),
        "energy_score": scores.estimate(rows["energy_score"], count > 0),
        "variogram_score": scores.estimate(rows["variogram_score"], count > 1),
        "joint_coverage": scores.fraction(scores.inside(0.0, rows["joint_pit"], level), count == mixture.n),
        "joint_pit": rows["joint_pit"],
        "rmse": _root_mean_square(rows["error"], observed),
        "crps": scores.estimate(rows["crps"], observed),
        "interval_score": scores.estimate(interval_score(y, rows["interval"], level, reduce=False), observed),
        "coverage": scores.coverage(y, rows["interval"]),
        "pit": rows["pit"],
        "calibration_curve": curve,
        "calibration_error": _calibration_error(curve),
        "ence": scores.ence(rows["error"], rows["std"], observed, _BINS),
        "sparsification": sparse,
        "ause": _area(sparse),
        "sharpness": _root_mean_square(rows["std"], jnp.ones_like(observed)),
    }
