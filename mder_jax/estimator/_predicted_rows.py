"""What a fitted estimator predicts for some rows, in original units: all its methods of prediction end here.

Moments are converted to original units in float64: a target such as 2020.5 ± 0.001 has no digits left in float32.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax import linalg
from mder_jax._arguments import flag
from mder_jax._blocks import map_host_blocks
from mder_jax._checks import doubles, plain_probability
from mder_jax.calibration import Scale, rank, rescale
from mder_jax.columns import Encoded
from mder_jax.ensemble.forward import Forward
from mder_jax.estimator import cross_conformal
from mder_jax.estimator._calibration import Calibration
from mder_jax.estimator._standardizer import QUIET, Standardizer
from mder_jax.estimator.beside import Beside
from mder_jax.estimator.results import Region, Transformed, Uncertainty
from mder_jax.estimator.target_transforms import (
    FOLDED,
    FORMULAS,
    NamedMap,
    TargetTransforms,
    folded_moments,
    within_prior,
)
from mder_jax.mixture import Mixture, points_of_tail, radius_of_tail
from mder_jax.niw import NIW, aleatoric
from mder_jax.student_t import Interval, StudentT

# Rows are evaluated in blocks of one size, so that a prediction does not depend on how many rows came with it.
BLOCK = 1024
# Of a standardised target, in a row that is unlike those of the fit.
MOST_VARIANCE = 4.0
# The largest number of values drawn at once.
SAMPLED = 1 << 22
# Rows of which moments of transformed targets are computed at once.
FOLDED_ROWS = 256


def with_novelty(members: NIW, novelty: Array) -> NIW:
    """Members (M, N) whose predictive covariance has changed to T = c E[Σ](1 + 1/κ) + w I, w = s/(1 + s).

    s is the novelty of each row, (N,): each standardised target gets the fraction w of its variance over the table, and
    never more. What a member says of rows that it has not seen may be anything: c ≤ 1 is such that no variance is above
    4/min(1, 2w). 1 + 1/κ' = tr T / c tr E[Σ] and E[Σ]' = T/(1 + 1/κ'): but for c the noise is the same on average over
    targets, and the uncertainty about the mean grows. μ and ν stay, and s = 0 changes nothing.
    """
    w, n = (1 - 1 / (1 + novelty))[None], members.mu.shape[-1]
    noise, inflation = aleatoric(members), 1 + 1 / members.kappa
    largest = jnp.max(linalg.diagonal(noise), axis=-1) * inflation
    c = jnp.minimum(1.0, MOST_VARIANCE / jnp.minimum(1.0, 2 * w) / largest)
    noise = c[..., None, None] * noise
    own = jnp.mean(linalg.diagonal(noise), axis=-1)
    ratio = inflation + w / own
    total = noise * inflation[..., None, None] + w[..., None, None] * jnp.eye(n, dtype=noise.dtype)[None, None]
    factor = (members.nu - n - 1) / (members.nu * ratio)
    novel = jnp.broadcast_to(novelty[None] > 0, members.kappa.shape)
    L = jnp.where(novel[..., None, None], linalg.cholesky(total * factor[..., None, None]), members.L)
    return replace(members, L=L, kappa=jnp.where(novel, 1 / (ratio - 1), members.kappa))


class Combination(NamedTuple):
    """How members become one distribution: factors on the covariance, and ln of their weights, (M,), None if equal."""

    scale: Scale
    log_weights: Any = None


@functools.cache
def _of_all_members(reduce: Callable[..., Any], further: bool, novel: bool) -> Callable[..., Any]:
    """``reduce`` after `with_members` and `with_novelty`, whose arguments come before its own; the same one again."""

    def of_all(outputs: NIW, *columns: Any) -> Any:
        if further:
            outputs, columns = with_members(outputs, columns[0]), columns[1:]
        if novel:
            outputs, columns = with_novelty(outputs, columns[0]), columns[1:]
        return reduce(outputs, *columns)

    return of_all


def with_members(networks: NIW, further: NIW) -> NIW:
    """Members (M, N) and further ones, (N, K)."""

    def joined(leaf: Array, own: Array) -> Array:
        return jnp.concatenate([leaf, jnp.moveaxis(own, 1, 0).astype(leaf.dtype)])

    return jax.tree.map(joined, networks, further)


def _mixture(niw: NIW, combination: Combination) -> Mixture:
    return rescale(Mixture(niw, combination.log_weights), combination.scale)


def mixture_moments(niw: NIW, combination: Combination) -> tuple[Array, ...]:
    """Mean, aleatoric and the two epistemic covariances of standardised targets, from what all members predict."""
    mixture = _mixture(niw, combination)
    return mixture.mean(), mixture.aleatoric(), mixture.epistemic_within(), mixture.epistemic_between()


def _quantiles(niw: NIW, combination: Combination, tails: Array, signs: Array) -> Array:
    return jnp.moveaxis(points_of_tail(_mixture(niw, combination), tails, signs), 0, -1)


def _marginals(niw: NIW, combination: Combination) -> tuple[Array, Array, Array]:
    """Location, (N, M, n), scale, (N, M, n), and degrees of freedom, (N, M), of the members' t of each target."""
    t = _mixture(niw, combination).components()
    loc, width, df = (jnp.moveaxis(part, 0, 1) for part in (t.loc, t.marginal_scale(), t.df))
    return loc, width, df


def traced_moments(
    transform: TargetTransforms,
    niw: NIW,
    combination: Combination,
    units: tuple[Any, Any],
    learned: tuple[Array, Array],
) -> tuple[Array, Array]:
    """Mean and standard deviation in original units, (N, n) both, in a traced program and its precision.

    `units` are mean and std of the standardiser, `learned` are the moments of transformed targets.
    """
    mixture, (centre, unit) = _mixture(niw, combination), units
    tails = jnp.full(2, FOLDED, niw.mu.dtype)
    ends = points_of_tail(mixture, tails, jnp.array([-1.0, 1.0], tails.dtype))
    limits = within_prior(np.asarray(centre), np.asarray(unit))
    low, high = (limit.astype(tails.dtype)[None, None] for limit in limits)
    ends = jnp.clip(ends, low, high)
    t = mixture.components()
    loc, width, df = t.loc, t.marginal_scale(), t.df
    columns = []
    shares = None if combination.log_weights is None else jnp.exp(jnp.asarray(combination.log_weights, niw.mu.dtype))
    for j, each in enumerate(transform.maps):
        if not isinstance(each, NamedMap):
            columns.append((learned[0][:, j], learned[1][:, j]))
            continue
        marginal = (centre[j] + unit[j] * loc[..., j], unit[j] * width[..., j], df, centre[j] + unit[j] * ends[..., j])
        columns.append(folded_moments(*marginal, functools.partial(FORMULAS[each.name].back, jnp), jnp, shares))
    mean, std = (jnp.stack(part, axis=-1) for part in zip(*columns, strict=True))
    return mean, std


def _log_prob(niw: NIW, y: Array, combination: Combination) -> Array:
    return _mixture(niw, combination).log_prob(y, missing=True)


def _rows_first(niw: NIW, combination: Combination) -> NIW:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), _mixture(niw, combination).members)


@functools.partial(jax.jit, static_argnames="draws")
def _samples(mixture: Mixture, key: Array, draws: int) -> Array:
    return jnp.moveaxis(mixture.sample(key, draws), 0, -1)


@jax.jit
def _radius(mixture: Mixture, tail: Array) -> Array:
    return radius_of_tail(mixture, tail)


@functools.partial(jax.jit, static_argnums=0)
def _evaluated(reduce: Callable[..., Any], *arguments: Any) -> Any:
    return reduce(*arguments)


def swapped(niw: NIW) -> NIW:
    """(M, N) to (N, M), and back."""
    return jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), niw)


@dataclass(frozen=True)
class PredictedRows:
    """Predictions for N rows.

    Args:
      forward: the networks on all devices.
      X: standardised inputs, (N, d).
      outputs: of the networks, (N, M), if they have run; None to run them for every result, block after block.
      targets: standardiser of Y.
      scale: factors on the predictive covariance.
      calibration: conformal scores, if there are any.
      flat: whether y of the fit was one-dimensional; then results have no axis of targets.
      names: of the targets, for messages.
      transform: of the targets, or None. The networks, the standardiser and calibration know transformed targets;
        results are in original units.
      novelty: of each row, (N,), 0 or more: how far it is from what the networks have seen; see `with_novelty`.
      folds: predictions for the same rows by the models of the calibration's folds, if it has any.
      further: what members that are no networks predict, (N, K), or None.
      log_weights: of the networks and these members, (M + K,); None if there are none.
    """

    forward: Forward
    X: np.ndarray
    outputs: NIW | None
    targets: Standardizer
    scale: Scale
    calibration: Calibration | None = None
    flat: bool = False
    names: tuple[str, ...] = ()
    transform: TargetTransforms | None = None
    novelty: np.ndarray | None = None
    folds: tuple["PredictedRows", ...] = ()
    further: NIW | None = None
    log_weights: np.ndarray | None = None

    @property
    def learned(self) -> "PredictedRows":
        """The same rows with everything in the units that the networks have learned."""
        return replace(self, transform=None)

    def take(self, rows: Any) -> "PredictedRows":
        """Some of the rows; by numpy, which compiles nothing for a new number of rows."""
        outputs, novelty, further = jax.tree.map(lambda leaf: leaf[rows], (self.outputs, self.novelty, self.further))
        folds = tuple(fold.take(rows) for fold in self.folds)
        return replace(self, X=self.X[rows], outputs=outputs, novelty=novelty, folds=folds, further=further)

    def of_members(self, members: Sequence[int], beside: Beside | None) -> "PredictedRows":
        """What these networks, and further members, predict for the same rows, in the units that networks have learned.

        With factors of 1. The outputs must have been kept.
        """
        outputs = jax.tree.map(lambda leaf: leaf[:, list(members)], self.outputs)
        own = replace(self.learned, outputs=outputs, scale=Scale(1.0, 1.0), calibration=None, folds=())
        if beside is None:
            return replace(own, further=None, log_weights=None)
        return replace(own, further=beside.predict(self.X), log_weights=beside.log_weights(len(members)))

    def with_scale(self, scale: Scale) -> "PredictedRows":
        """The same rows with other factors on the covariance."""
        return replace(self, scale=scale)

    def _each_row(self, reduce: Callable[..., Any], *columns: np.ndarray, constants: tuple[Any, ...] = ()) -> Any:
        """``reduce(what all members predict, *columns, combination, *constants)`` with the rows as first axis."""
        constants = (Combination(jax.tree.map(np.float32, self.scale), self.log_weights), *constants)
        novelty = None if self.novelty is None else np.asarray(self.novelty, np.float32)
        before: tuple[Any, ...] = tuple(column for column in (self.further, novelty) if column is not None)
        if before:
            reduce = _of_all_members(reduce, self.further is not None, novelty is not None)
            columns = (*before, *columns)
        if self.outputs is None:
            return self.forward(self.X, BLOCK, reduce, columns, constants, by_row=True)

        def of_block(outputs: NIW, *block: np.ndarray) -> Any:
            return _evaluated(reduce, swapped(outputs), *block, *constants)

        return map_host_blocks(of_block, BLOCK, self.outputs, *columns)

    def _shaped(self, values: Any) -> Any:
        """(N, 1, ...) as (N, ...) if y was one-dimensional."""
        return values[:, 0] if self.flat else values

    def moments(self) -> Uncertainty:
        """Mean, (N, n), and covariances, (N, n, n); with a transform as `MDERRegressor.predict_uncertainty` says."""
        mean, *covariances = self._each_row(mixture_moments)
        found = Uncertainty(self.targets.back(mean), *map(self.targets.back_covariance, covariances))
        return found if self.transform is None else self._original_moments(self.transform, found)

    @QUIET
    def _original_moments(self, transform: TargetTransforms, learned: Uncertainty) -> Uncertainty:
        """Mean and std by `folded_moments`; covariances S A S, S = ± std / std of t, negative if the map decreases."""
        mean, std = learned.mean.copy(), learned.std.copy()
        ends = self.learned._points(np.full(2, FOLDED), np.array([-1.0, 1.0]))
        low, high = map(self.targets.back, within_prior(*self.targets))
        ends = np.clip(ends, low[:, None], high[:, None])
        loc, scale, df = self._each_row(_marginals)
        loc, scale = self.targets.back(loc), self.targets.std * scale
        shares = None if self.log_weights is None else np.exp(np.float64(self.log_weights))
        for j, each in enumerate(transform.maps):
            for start in range(0, len(mean) if each else 0, FOLDED_ROWS):
                rows = np.s_[start : start + FOLDED_ROWS]
                marginal = (loc[rows, :, j].T, scale[rows, :, j].T, df[rows].T.astype(np.float64), ends[rows, j].T)
                mean[rows, j], std[rows, j] = folded_moments(*marginal, each.back, shares=shares)  # type: ignore[union-attr]
        S = np.where(transform.decreasing, -1.0, 1.0) * np.where(transform.changed, std / learned.std, 1.0)
        return Uncertainty(mean, *(S[:, :, None] * S[:, None, :] * part for part in learned[1:]))

    def uncertainty(self) -> Uncertainty:
        """The moments, with the mean in the shape of y."""
        found = self.moments()
        return found._replace(mean=self._shaped(found.mean))

    def quantiles(self, quantiles: Any) -> np.ndarray:
        """Of each target at each level, (N, n, K); from the nearer tail, which keeps the digits of 0.99999999."""
        levels = doubles("quantiles", quantiles)
        if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles are a list of probabilities between 0 and 1; got {quantiles}")
        signs = np.where(levels < 0.5, -1.0, 1.0)
        found = self._points(np.minimum(levels, 1 - levels), signs)
        if self.transform is not None and self.transform.decreasing.any():  # there the other tail is asked for
            falling = self._points(np.minimum(levels, 1 - levels), -signs)
            found = np.where(self.transform.decreasing[:, None], falling, found)
        return self._shaped(found)

    def _points(self, tails: np.ndarray, signs: np.ndarray) -> np.ndarray:
        found = self._each_row(_quantiles, constants=(tails.astype(np.float32), signs.astype(np.float32)))
        return self._back(found)

    def _back(self, values: np.ndarray) -> np.ndarray:
        """Values (N, n, K) in original units."""
        back = self.targets.back(np.moveaxis(values, 1, -1))
        return np.moveaxis(back if self.transform is None else self.transform.back(back), -1, 1)

    def interval(self, coverage: float, joint: bool) -> Any:
        """The conformal set, an `Interval` or a `Region`; without a calibration the distribution's own.

        With folds the interval is that of `cross_conformal`, the region the model's own with a conformal radius.

        Where the calibration has too few scores for this coverage: the wider of the distribution's own set and that of
        the largest score, so that no set of a higher coverage is narrower.
        """
        found = self.learned._learned_interval(plain_probability("coverage", coverage), joint)
        if self.transform is None:
            return found if joint else Interval(*map(self._shaped, found))
        if not joint:
            return Interval(*map(self._shaped, self.transform.back_interval(found)))
        return found._replace(
            centre=self.transform.back(found.centre), transform=Transformed(self.transform, found.centre)
        )

    def _learned_interval(self, coverage: float, joint: bool) -> Any:
        """In the units that the networks have learned; ends (N, n)."""
        if self.calibration is None:
            return self._own(coverage, joint)
        radius = self.calibration.radius(coverage, joint)
        few = np.isinf(radius)
        if self.calibration.folds and not joint:
            found = self._cross_interval(self.calibration, coverage)
        else:
            found = self.within(np.where(few, self.calibration.widest(joint), radius), joint)
        if not few.any():
            return found
        warnings.warn(self.calibration.shortage(coverage, joint, self.names), UserWarning, stacklevel=4)
        own = self._own(coverage, joint)
        if joint:
            return found._replace(radius=np.maximum(found.radius, own.radius))
        lower = np.where(few, np.minimum(found.lower, own.lower), found.lower)
        return found._replace(lower=lower, upper=np.where(few, np.maximum(found.upper, own.upper), found.upper))

    def _cross_interval(self, found: Calibration, coverage: float) -> Any:
        """From the models of the folds; with too few scores that of the largest one."""
        counts = found.counts(joint=False)
        place = np.minimum(rank(counts, coverage), counts)
        moments = [(parts.mean, parts.std) for parts in (fold.moments() for fold in self.folds)]
        return cross_conformal.interval(moments, [fold.scores for fold in found.folds], place)

    def _own(self, coverage: float, joint: bool) -> Any:
        """By the predictive distribution: the ellipsoid, or the central interval of each target."""
        if joint:
            return self.within(self._own_radius(1 - coverage), joint)
        tail = (1 - coverage) / 2
        ends = self._points(np.array([tail, tail]), np.array([-1.0, 1.0]))
        return Interval(*np.moveaxis(ends, -1, 0))

    def within(self, radius: np.ndarray, joint: bool) -> Any:
        """The ellipsoid, or mean ± radius std of each target; everything where the moments are not finite."""
        parts = self.moments()
        if joint:
            region = ellipsoids(parts)
            return region._replace(radius=np.where(np.isinf(region.radius), np.inf, radius))
        with np.errstate(invalid="ignore", over="ignore"):
            half = radius * parts.std
            known = np.isfinite(parts.mean) & np.isfinite(half)
            ends: Any = np.where(known, parts.mean - half, -np.inf), np.where(known, parts.mean + half, np.inf)
        return Interval(*ends)

    def _own_radius(self, tail: float) -> np.ndarray:
        """Of the predictive distribution, (N,), in double precision, which members far apart need.

        Few rows are not padded to a block, since the search is slow.
        """
        mixture = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.standardized())
        size = min(BLOCK, 1 << (mixture.members.nu.shape[1] - 1).bit_length())
        with jax.enable_x64(True):
            return map_host_blocks(lambda part: _radius(part, np.float64(tail)), size, mixture, axis=1)

    def sample(self, key: Array, draws: int) -> np.ndarray:
        """Joint draws, (N, n, draws)."""
        mixture = jax.tree.map(np.asarray, self.standardized())
        _, rows, n = mixture.members.mu.shape
        block = max(1, min(BLOCK, SAMPLED // (draws * n)))
        keys = iter(list(jax.random.split(key, -(-rows // block))))
        found = map_host_blocks(lambda part: _samples(part, next(keys), draws), block, mixture, axis=1)
        return self._shaped(self._back(found))

    def standardized(self) -> Mixture:
        """The predictive distribution of standardised targets."""
        return Mixture(jax.tree.map(jnp.asarray, swapped(self._each_row(_rows_first))), self.log_weights)

    def distribution(self, transformed: bool = False) -> Mixture | StudentT:
        """The predictive distribution in original units: a mixture of NIW, or the Student-t of a single member.

        With a target transform there is none but that of the transformed targets, which must be asked for.
        """
        if not flag("transformed", transformed) and self.transform is not None:
            raise ValueError(
                f"the distribution is a mixture of t for {', '.join(self.transform.labels())}, not for the targets; use"
                " transformed=True for it, and predict_quantiles, log_prob or sample_y for original units"
            )
        niw = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.standardized().members)
        scaled = self.targets.back(niw.mu), self.targets.std[:, None] * niw.L
        try:
            mixture = Mixture(NIW(*scaled, niw.kappa, niw.nu), self.log_weights)
        except ValueError as error:
            beyond = f"a target is beyond what {jnp.result_type(float)} can hold, which only distributions need"
            raise ValueError(f"{beyond}: {error}") from None
        return mixture.member(0) if mixture.size == 1 else mixture

    def drawn(self) -> Mixture | StudentT:
        """A distribution with the mean and covariance of `moments`; the predictive one if there is no transform."""
        if self.transform is None:
            return self.distribution()
        region = ellipsoids(self.moments())
        return StudentT(np.inf, region.centre, region.scale_tril)

    def log_prob(self, Y: np.ndarray) -> np.ndarray:
        """ln p(y) of each row, (N,), for targets (N, n); NaN is a target that was not observed.

        With a transform t = f(y): ln p(t) + Σ ln|dt/dy| over the observed targets.
        """
        if self.transform is not None:
            slopes = np.where(np.isnan(Y), 0.0, self.transform.log_slope(Y))
            return self.learned.log_prob(self.transform.checked(Y)) + slopes.sum(axis=1)
        found = self._each_row(_log_prob, self.targets.forward(Y))
        return np.asarray(found, np.float64) - np.isfinite(Y) @ np.log(self.targets.std)


def ellipsoids(parts: Uncertainty) -> Region:
    """The regions of all targets with a radius of 1, or ∞ where the predictive covariance is not finite."""
    known = np.isfinite(parts.total).all(axis=(1, 2)) & np.isfinite(parts.mean).all(axis=1)
    total = np.where(known[:, None, None], parts.total, np.eye(parts.total.shape[1]))
    factor = np.where(known[:, None, None], _factors(total), np.nan)
    return Region(parts.mean, factor, np.where(known, 1.0, np.inf))


def _factors(covariances: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors, (N, n, n); a matrix that is singular to rounding is widened by a part in a million."""
    try:
        return np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        widened = covariances * (1 + 1e-6 * np.eye(covariances.shape[1]))
        return np.stack([_factor(*both) for both in zip(covariances, widened, strict=True)])


def _factor(*candidates: np.ndarray) -> np.ndarray:
    """The factor of the first matrix that has one; failing that, of the diagonal of the last."""
    for matrix in candidates:
        with contextlib.suppress(np.linalg.LinAlgError):
            return np.linalg.cholesky(matrix)
    return np.diag(np.sqrt(np.diagonal(candidates[-1])))


class Prediction:
    """What `MDERRegressor.predict_all` returns: the networks have run once, and each method only evaluates the result.

    The predictions of all members are kept in memory: 4 M N (n² + n + 2) bytes for M members, N rows and n targets, and
    as much for each fold of a cross-conformal calibration.
    A later `fit` or `calibrate` of the model has no effect on them.

    Args:
      rows: what the model predicts for them.
      encoded: the rows as the networks read them.

    Example:
      >>> from mder_jax import MDERRegressor
      >>> X, Y = np.random.default_rng(0).uniform(size=(2, 30, 2))
      >>> prediction = MDERRegressor((8,), members=2, max_iter=5).fit(X, Y).predict_all(X)
      >>> print(prediction.uncertainty().mean.shape, prediction.interval(0.5).lower.shape)
      (30, 2) (30, 2)
    """

    def __init__(self, rows: PredictedRows, encoded: Encoded) -> None:
        self._rows, self.encoded = rows, encoded

    @property
    def outside(self) -> dict[str, np.ndarray]:
        """Which rows are unlike those of the fit, (N,) for each column in which some are.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 30, 2))
          >>> print(MDERRegressor((8,), members=2, max_iter=5).fit(X, Y).predict_all(X).outside)
          {}
        """
        return self.encoded.outside

    def uncertainty(self) -> Uncertainty:
        """As `MDERRegressor.predict_uncertainty`.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 30, 2))
          >>> prediction = MDERRegressor((8,), members=2, max_iter=5).fit(X, Y).predict_all(X)
          >>> print(prediction.uncertainty().total.shape)
          (30, 2, 2)
        """
        return self._rows.uncertainty()

    def interval(self, coverage: float = 0.9, joint: bool = False) -> Interval | Region:
        """As `MDERRegressor.predict_interval`.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 30, 2))
          >>> prediction = MDERRegressor((8,), members=2, max_iter=5).fit(X, Y).predict_all(X)
          >>> print(prediction.interval(coverage=0.9).lower.shape)
          (30, 2)
        """
        return self._rows.interval(coverage, joint)

    def distribution(self, transformed: bool = False) -> Mixture | StudentT:
        """As `MDERRegressor.predict_dist`, in the precision of JAX at this call.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 30, 2))
          >>> prediction = MDERRegressor((8,), members=2, max_iter=5).fit(X, Y).predict_all(X)
          >>> print(prediction.distribution().batch_shape)
          (30,)
        """
        return self._rows.distribution(transformed)
