r"""The scale that the coupling gives up, and conformal regions; both from held-out rows.

The coupling ν = r κ gives up the global scale of the uncertainties. r itself moves the border between aleatoric and
epistemic uncertainty and does not change the predictive distribution, so no data determine it. The factor fitted here
multiplies the predictive covariance, and held-out data do determine it.

A prediction is a `StudentT` or a `NIW` with batch shape (N,), or a `Mixture` whose members have batch shape (M, N). The
targets are (N, n), where NaN means that a target was not observed.
"""

import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from mder_jax import _arguments, _checks, linalg
from mder_jax.calibration import _scale_search
from mder_jax.calibration._scale_search import finite_rows, first, likelihood, posterior
from mder_jax.mixture import Mixture, as_mixture, from_centre
from mder_jax.niw import NIW
from mder_jax.student_t import StudentT

__all__ = ["Scale", "ScaleFit", "conformal_radius", "conformal_scores", "fit_scale", "radius_of", "rescale"]

Method = Literal["likelihood", "pull", "posterior"]
Prediction = TypeVar("Prediction", bound=StudentT | NIW | Mixture)


class Scale(NamedTuple):
    """Factors on the predictive covariance: `within` on that of the members, `between` on that of their means.

    Example:
      >>> print(Scale(within=2.0))
      Scale(within=2.0, between=1.0)
    """

    within: float | Array = 1.0
    between: float | Array = 1.0


class ScaleFit(NamedTuple):
    """The result of `fit_scale`: the `scale`, and for each factor its standard error and interval of that `level`.

    Example:
      >>> t = StudentT(df=jnp.inf, loc=jnp.zeros((4, 1)), scale_tril=jnp.ones((4, 1, 1)))
      >>> found = fit_scale(t, jnp.array([[-3.0], [1.0], [1.0], [-3.0]]))
      >>> print(f"{found.scale.within:.3f} {found.rows}")  # the mean square, (9 + 1 + 1 + 9)/4
      5.000 4
      >>> print(f"{rescale(t, found.scale).covariance()[0, 0, 0]:.3f}")
      5.000
    """

    scale: Scale
    standard_error: Scale
    lower: Scale
    upper: Scale
    method: str
    separate: bool
    level: float
    rows: int

    def __str__(self) -> str:
        names = ("within", "between") if self.separate else ("covariance",)
        lines = [f"factors on the covariance by {self.method}, {self.rows} rows, {self.level:.0%} intervals"]
        columns = zip(names, self.scale, self.standard_error, self.lower, self.upper, strict=False)
        for name, factor, error, low, high in columns:
            lines.append(f"  {name:<10}  {factor:.4g} ± {error:.2g}  [{low:.4g}, {high:.4g}]")
        return "\n".join(lines)


def rescale(prediction: Prediction, scale: Scale) -> Prediction:
    r"""The prediction with its covariance multiplied: L_i → √within L_i, μ_i → μ̄ + √between (μ_i − μ̄).

    A mixture's total covariance becomes within (aleatoric + epistemic_within) + between epistemic_between; equal
    factors multiply it as a whole. κ, ν and df do not change, so the result is valid and r keeps its meaning. Any batch
    shape; `between` has no effect on a StudentT or a NIW.

    Example:
      >>> t = StudentT(df=4.0, loc=jnp.zeros((3, 2)), scale_tril=jnp.broadcast_to(jnp.eye(2), (3, 2, 2)))
      >>> print(rescale(t, Scale(within=9.0)).scale_tril[0, 0, 0])
      3.0
    """
    _arguments.check_type("prediction", prediction, StudentT, NIW, Mixture)
    _arguments.check_type("scale", scale, Scale)
    prediction, (within, between) = _checks.floats_with(prediction, within=scale.within, between=scale.between)
    for name, number in (("within", within), ("between", between)):
        _checks.check_same(name, number, (), "one number")
        _checks.check_above(name, number, 0, "a factor on a covariance")
    return _rescaled(prediction, within, between)


@jax.jit
def _rescaled(prediction: Prediction, within: Array, between: Array) -> Prediction:
    """`rescale` by factors that are known to be positive."""
    members: Any = prediction.members if isinstance(prediction, Mixture) else prediction
    location, factor = ("loc", "scale_tril") if isinstance(members, StudentT) else ("mu", "L")
    members = replace(members, **{factor: jnp.sqrt(within) * getattr(members, factor)})
    if not isinstance(prediction, Mixture):
        return members
    means = getattr(members, location)
    apart = from_centre(means, prediction.log_weights)
    means = means + (jnp.sqrt(between) - 1) * apart  # exactly the same for a factor of 1
    return Mixture(replace(members, **{location: means}), prediction.log_weights)  # type: ignore[return-value]


def fit_scale(
    prediction: StudentT | NIW | Mixture,
    y: ArrayLike,
    method: Method = "likelihood",
    separate: bool = False,
    level: float = 0.95,
) -> ScaleFit:
    r"""argmax_f Σ ln p_f(y), the factor f on the predictive covariance that fits held-out rows best, for `rescale`.

    * "likelihood" maximises Σ ln p(y) of the rescaled prediction. Errors are from the observed information in
      ln factor: the interval is exp(ln f ± z s), the standard error f s.
    * "pull" is the mean over rows of (y − mean)ᵀ Cov⁻¹ (y − mean) / n, which is 1 if the covariance is right; its error
      is from the spread over rows and needs fourth moments, df > 4.
    * "posterior" is Bayes' with the prior ln f ~ N(0, 2²) for each factor, on a grid: the median, the central credible
      interval, and as standard error the median times the posterior standard deviation of ln f. One row is enough.

    Args:
      prediction: of N rows.
      y: targets, (N, n). With a NaN the marginal of the other targets is used; a row of NaN is ignored.
      method: "likelihood", "pull" or "posterior".
      separate: one factor for the covariance within members and one for that between their means, instead of one for
        both. Needs members that differ, and a method other than "pull", which uses only the sum.
      level: probability of the interval.

    Example:
      >>> t = StudentT(jnp.inf, jnp.zeros((4, 1)), jnp.ones((4, 1, 1)))
      >>> print(fit_scale(t, jnp.array([[-3.0], [1.0], [jnp.nan], [2.0]])))
      factors on the covariance by likelihood, 3 rows, 95% intervals
        covariance  4.667 ± 3.8  [0.9419, 23.12]
    """
    level = _checks.plain_probability("level", level)
    (mixture, y), separate = _held_out(prediction, y), _arguments.flag("separate", separate)
    check_method(method, separate, mixture)
    if method == "pull":
        found = _pull(mixture, y, level)
    else:
        parts, start = _scale_search.prepare(mixture.components(), y, separate, mixture.log_weights)
        found = (likelihood if method == "likelihood" else posterior)(parts, start, level)
    scale, error, lower, upper = (Scale(float(numbers[0]), float(numbers[-1])) for numbers in found)
    return ScaleFit(scale, error, lower, upper, method, separate, level, len(y))


def _held_out(prediction: StudentT | NIW | Mixture, y: ArrayLike) -> tuple[Mixture, Array]:
    """The prediction as a mixture (of one), and y, without the rows in which nothing was observed."""
    mixture = as_mixture(prediction)
    mixture, y = _checks.matching(mixture, (*mixture.batch_shape, mixture.n), "the prediction's mean", y=y)
    if np.isinf(y).any():
        raise ValueError(f"y must be finite, or NaN for 'not observed'; y{first(np.isinf(y))} is infinite")
    kept = ~np.isnan(y).all(axis=1)
    if not kept.any():
        raise ValueError(f"at least one row with an observed target is needed; all {len(y)} have only NaN")
    if kept.all():
        return mixture, y
    # By numpy, which compiles nothing for a new number of rows.
    return jax.device_put((jax.tree.map(lambda leaf: np.asarray(leaf)[:, kept], mixture), np.asarray(y)[kept]))


def check_method(method: Method, separate: bool, mixture: Mixture) -> None:
    """Raise unless the method exists and can fit the requested factors."""
    _arguments.check_option("method", method, ("likelihood", "pull", "posterior"))
    if separate and method == "pull":
        raise ValueError("pulls see only the total covariance; separate=True needs 'likelihood' or 'posterior'")
    if separate and not np.any(from_centre(mixture.components().loc)):
        raise ValueError(
            f"separate=True needs members whose means differ; here {mixture.size} member(s) agree in every row,"
            " so no data determine a factor on the spread between them"
        )


@jax.jit
def _program(mixture: Mixture, y: Array) -> tuple[Array, ...]:
    """The predictive covariance, (N, n, n), and all of `_distances`."""
    covariance, mean = mixture.total(), mixture.mean()
    observed, d, std = ~jnp.isnan(y), y - mean, jnp.sqrt(linalg.diagonal(covariance))
    C = linalg.cholesky(covariance)
    L = linalg.leave_rows_out(C, observed)
    squares = linalg.log_determinant_and_distance(L, jnp.where(observed, d, 0.0))[1]
    # First order: the residual is known to an ulp of y and mean, the covariance to an ulp of itself.
    ulps = 8 * float(jnp.finfo(y.dtype).eps)
    unknown = jnp.abs(y) + jnp.max(jnp.abs(mixture.components().loc), axis=0)
    inverse = jnp.abs(linalg.whiten_columns(C, jnp.broadcast_to(jnp.eye(mixture.n, dtype=C.dtype)[None], C.shape)))
    white = jnp.abs(linalg.whiten(C, d))
    by_covariance = jnp.sum(jnp.abs(covariance) * jnp.sum(inverse * white[..., None], axis=-2)[..., None, :], axis=-1)
    joint = jnp.sum(inverse * (unknown + by_covariance)[..., None, :], axis=-1)
    joint_errors = ulps * jnp.sqrt(jnp.sum(joint * joint, axis=-1))
    return covariance, jnp.abs(d) / std, ulps * (unknown + jnp.abs(d)) / std, squares, joint_errors


def _distances(mixture: Mixture, y: Array) -> list[np.ndarray]:
    """``|y_j − mean_j| / std_j``, (N, n), with bounds on rounding errors, (N, n), in double precision.

    Then (y − mean)ᵀ Cov⁻¹ (y − mean) of the observed targets, (N,), with bounds for its root in complete rows, (N,). An
    error if a covariance is not finite or not positive definite.
    """
    covariance, *found = (np.asarray(part, np.float64) for part in _program(mixture, y))
    finite_rows(covariance, "the predictive covariance needs df > 2 (a NIW: ν > n + 1); it is not finite")
    finite_rows(found[2], "the predictive covariance is not positive definite")
    return found


def _pull(mixture: Mixture, y: Array, level: float) -> tuple[np.ndarray, ...]:
    if len(y) < 2:
        raise ValueError(f"the spread of pulls needs 2 rows or more; got {len(y)}; 'posterior' takes one")
    pulls = _distances(mixture, y)[2] / np.sum(~np.isnan(y), axis=1)
    estimate = np.mean(pulls, keepdims=True)
    if estimate == 0:
        raise ValueError("every y is exactly the predicted mean; no positive factor fits that")
    return _scale_search.log_normal(np.log(estimate), np.std(pulls, ddof=1) / math.sqrt(len(y)) / estimate, level)


def conformal_scores(prediction: StudentT | NIW | Mixture, y: ArrayLike, joint: bool = True) -> Array:
    """√((y − mean)ᵀ Cov⁻¹ (y − mean)), sorted: with these distances, `radius_of` gives the radius of any coverage.

    They are rounded up by a bound on their rounding errors, so that a y as far away as a score is inside, also where
    many y are equal.

    Args:
      prediction: of N rows.
      y: targets, (N, n); a NaN was not observed.
      joint: True for the distance of all targets in the K complete rows, (K,); False for ``|y_j − mean_j| / std_j`` of
        each target, (K, n), with NaN at the end of targets observed in fewer rows than others.

    Example:
      >>> t = StudentT(df=jnp.inf, loc=jnp.zeros((4, 1)), scale_tril=jnp.ones((4, 1, 1)))
      >>> print(np.asarray(conformal_scores(t, jnp.array([[-3.0], [1.0], [jnp.nan], [2.0]]))).round(3))
      [1. 2. 3.]
    """
    mixture, y = _held_out(prediction, y)
    offsets, offset_errors, squares, joint_errors = _distances(mixture, y)
    if not joint:
        scores = np.sort(offsets + offset_errors, axis=0)  # NaN last
        return _rounded_up(scores[: np.sum(~np.isnan(y), axis=0).max()], y.dtype)
    complete = ~np.isnan(y).any(axis=1)
    if not complete.any():
        raise ValueError(f"joint scores need rows with all {mixture.n} targets; every row has a NaN; see joint=False")
    return _rounded_up(np.sort((np.sqrt(squares) + joint_errors)[complete]), y.dtype)


def _rounded_up(values: np.ndarray, dtype: Any) -> Array:
    nearest = values.astype(dtype)
    return jnp.asarray(np.where(nearest < values, np.nextafter(nearest, dtype.type(np.inf)), nearest))


def radius_of(scores: ArrayLike, coverage: float) -> Array:
    """The ⌈(K+1) coverage⌉-th smallest of K `conformal_scores`, (K,) -> () or (K, n) -> (n,); ∞ if K is too small.

    Example:
      >>> print(radius_of(jnp.arange(1.0, 20.0), 0.9), radius_of(jnp.arange(1.0, 4.0), 0.9))
      18.0 inf
    """
    (scores,) = _checks.floats(scores=scores)
    if scores.ndim not in (1, 2):
        raise ValueError(f"scores must have shape (K,) or (K, n); got {scores.shape}")
    coverage = _checks.plain_probability("coverage", coverage, "(]")
    return _rounded_up(radius_from(np.asarray(scores), coverage), scores.dtype)


def radius_from(scores: np.ndarray, coverage: float) -> np.ndarray:
    """`radius_of` in numpy and the precision of the scores."""
    place = rank(np.sum(~np.isnan(scores), axis=0), coverage)
    ordered = np.sort(np.append(scores, np.full((1, *scores.shape[1:]), np.inf), axis=0), axis=0)  # ∞, then NaN last
    return np.take_along_axis(ordered, place[None] - 1, axis=0)[0]


def rank(count: Any, coverage: float) -> Any:
    """⌈(K+1) coverage⌉ without rounding errors such as 0.07 · 100 = 7.000000000000001."""
    return np.ceil((count + 1) * coverage * (1 - 1e-12)).astype(int)


def rows_needed(coverage: float) -> int:
    """The smallest K with ⌈(K+1) coverage⌉ ≤ K, about coverage/(1 − coverage): below it the radius is ∞."""
    rows = max(1, math.floor(coverage / (1 - coverage)) - 1)
    while rank(rows, coverage) > rows:
        rows += 1
    return rows


def conformal_radius(prediction: StudentT | NIW | Mixture, y: ArrayLike, coverage: float, joint: bool = True) -> Array:
    r"""The ⌈(K+1) coverage⌉-th smallest of K `conformal_scores`, the split-conformal radius, () or (n,).

    However wrong the prediction, a new row exchangeable with the K held-out ones is inside with probability
    ⌈(K+1) coverage⌉/(K+1) on average over such sets, or more if scores are tied. With fewer than
    coverage/(1 − coverage) rows the radius is ∞. A common factor on the covariance cancels in the region, so that one
    held-out set may serve `fit_scale` and this; factors fitted separately do not cancel and need other rows.

    Args:
      prediction: of N rows.
      y: as in `conformal_scores`.
      coverage: above 0, at most 1.
      joint: True for one radius of the ellipsoid √((y − mean)ᵀ Cov⁻¹ (y − mean)) ≤ radius; False for the half-widths
        of each target's interval in units of its standard deviation, (n,). For a mixture the mean and `total`.

    Example:
      >>> t = StudentT(jnp.inf, jnp.zeros((9, 1)), jnp.ones((9, 1, 1)))
      >>> print(conformal_radius(t, jnp.arange(-4.0, 5.0)[:, None], coverage=0.8).round(3))
      4.0
    """
    return radius_of(conformal_scores(prediction, y, joint), coverage)
