"""Results of the estimator: mean with covariances, and joint regions, in original units."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from mder_jax._checks import doubles
from mder_jax.estimator._standardizer import QUIET
from mder_jax.estimator.target_transforms import TargetTransforms


class Uncertainty(NamedTuple):
    """Mean (N, n) and covariances (N, n, n) between the targets of each row, in original units.

    Args:
      mean: of a new observation.
      aleatoric: the noise, which more data do not reduce.
      within: the members' uncertainty about the mean, the mean of their var[μ].
      between: their disagreement, the covariance of their means.

    Example:
      >>> one = np.eye(2)[None]
      >>> u = Uncertainty(mean=np.zeros((1, 2)), aleatoric=one, within=one, between=2 * one)
      >>> print(u.epistemic[0, 0], u.total[0, 0])
      [3. 0.] [4. 0.]
    """

    mean: np.ndarray
    aleatoric: np.ndarray
    within: np.ndarray
    between: np.ndarray

    @property
    @QUIET
    def epistemic(self) -> np.ndarray:
        """within + between, the uncertainty about the mean, (N, n, n).

        Example:
          >>> print(Uncertainty(np.zeros((1, 2)), *np.ones((3, 1, 2, 2))).epistemic[0, 0])
          [2. 2.]
        """
        return self.within + self.between

    @property
    @QUIET
    def total(self) -> np.ndarray:
        """aleatoric + epistemic, the covariance of a new observation, (N, n, n).

        Example:
          >>> print(Uncertainty(np.zeros((1, 2)), *np.ones((3, 1, 2, 2))).total[0, 0])
          [3. 3.]
        """
        return self.aleatoric + self.epistemic

    @property
    @QUIET
    def std(self) -> np.ndarray:
        """√total_jj, the standard deviation of a new observation, in the shape of the mean.

        Example:
          >>> print(Uncertainty(np.zeros((1, 2)), *np.full((3, 1, 2, 2), 3.0)).std)
          [[3. 3.]]
        """
        return np.sqrt(np.diagonal(self.total, axis1=1, axis2=2)).reshape(self.mean.shape)


class Transformed(NamedTuple):
    """What a `Region` in transformed units needs: the maps of the targets, and its centre in these units, (N, n)."""

    maps: TargetTransforms
    centre: np.ndarray


class Region(NamedTuple):
    """The ellipsoid ‖C⁻¹(y − centre)‖ ≤ radius of each row; with a `transform`, that of transformed targets f(y).

    A row whose predictive covariance is not finite has a radius of ∞: its region is everything.

    Args:
      centre: (N, n), the predictive mean; with a transform f, f⁻¹ of the mean of f(y).
      scale_tril: C, (N, n, n), the lower Cholesky factor of the predictive covariance (of f(y), with a transform).
      radius: (N,).
      transform: None, or the maps f of a model with `target_transform`; y is in original units all the same.

    Example:
      >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
      >>> print(region.contains([[1.0, 1.0]]), region.contains([[2.0, 1.0]]))
      [ True] [False]
    """

    centre: np.ndarray
    scale_tril: np.ndarray
    radius: np.ndarray
    transform: Transformed | None = None

    def contains(self, y: Any) -> np.ndarray:
        """‖C⁻¹(y − centre)‖ ≤ radius: whether the targets of a row, (..., N, n), are inside, (..., N).

        The targets are in the order of the fit. If y was one-dimensional, it may be (N,). A NaN is a target that was
        not observed: the others are inside if some value of it puts the row into the ellipsoid, so that the coverage
        is at least that of complete rows. A row of NaN is inside; leave such rows out of a coverage.

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(region.contains([[1.0, 1.0]]), region.contains([[2.1, np.nan]]))  # √2 ≤ 2, 2.1 > 2
          [ True] [False]
          >>> several = np.array([[1.0, 1.0], [2.0, 1.0], [0.0, 1.9]])  # for one row
          >>> print(region.contains(several[:, None]).ravel())
          [ True False  True]
        """
        distance = self.distance(y)
        return (distance <= self.radius) | np.isnan(distance) & self._nothing(y) | np.isinf(self.radius)

    @QUIET
    def distance(self, y: Any) -> np.ndarray:
        """‖C⁻¹(y − centre)‖, (..., N, n) -> (..., N), for y as in `contains`; NaN for a row of NaN.

        With missing targets it is √(dᵀ Σ⁻¹ d) of the others, Σ their part of C Cᵀ: the smallest distance that any
        values of the missing ones would give.

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(region.distance([[3.0, 4.0]]), region.distance([[3.0, np.nan]]))
          [5.] [3.]
        """
        values = self._targets(y)
        centre = self.centre
        if self.transform is not None:
            values, centre = self.transform.maps.forward(values), self.transform.centre
        missing, offset = np.isnan(values), values - centre
        white = np.linalg.solve(self.scale_tril, offset[..., None])[..., 0]
        distance = np.linalg.norm(white, axis=-1)
        partly = missing.any(axis=-1)
        if partly.any():
            factors = np.broadcast_to(self.scale_tril, (*partly.shape, *self.scale_tril.shape[1:]))
            distance[partly] = _distance_of_observed(factors[partly], offset[partly], missing[partly])
        return np.where(np.isinf(offset).any(axis=-1), np.inf, distance)

    def _targets(self, y: Any) -> np.ndarray:
        values, n = doubles("y", y), self.centre.shape[1]
        if n == 1 and values.shape == self.centre.shape[:1]:
            values = values[:, None]
        if values.shape[-2:] != self.centre.shape:
            raise ValueError(f"y must have shape {self.centre.shape}, that of the centre; got {values.shape}")
        return values

    def _nothing(self, y: Any) -> np.ndarray:
        """Rows in which nothing was observed."""
        return np.isnan(self._targets(y)).all(axis=-1)

    def log_volume(self) -> np.ndarray:
        """ln of its volume in the units of the targets, (N,).

        With a transform the volume is that of the ellipsoid times the mean of Π_j abs(dy_j/dt_j) over it: exact for one
        target, else from 4096 points that fill the ellipsoid evenly, to about 1 % of the volume.

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(np.exp(region.log_volume()) / np.pi)  # its area is 4π
          [4.]
        """
        n = self.centre.shape[1]
        unit_ball = 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1)
        diagonal = np.diagonal(self.scale_tril, axis1=1, axis2=2)
        finite = unit_ball + n * np.log(self.radius) + np.log(diagonal).sum(axis=1)
        known = ~np.isinf(self.radius)
        if self.transform is not None:
            rows = np.flatnonzero(known)
            maps, centre = self.transform
            finite[rows] = [
                _log_volume(maps, centre[row], self.scale_tril[row], self.radius[row], finite[row]) for row in rows
            ]
        return np.where(known, finite, np.inf)


def _distance_of_observed(factors: np.ndarray, offset: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """√(dᵀ Σ⁻¹ d) of the observed targets, (K,), NaN if there are none; Σ = C Cᵀ, C (K, n, n).

    The rows of C, the observed ones first and the others 0, are turned to the lower-triangular factor of their Σ.
    """
    order = np.argsort(missing, axis=-1, kind="stable")
    gone = np.take_along_axis(missing, order, axis=-1)
    rows = np.where(gone[..., None], 0.0, np.take_along_axis(factors, order[..., None], axis=-2))
    lower = np.swapaxes(np.linalg.qr(np.swapaxes(rows, -1, -2), mode="r"), -1, -2)
    lower = np.where(gone[..., None], np.eye(lower.shape[-1]), lower)
    d = np.where(gone, 0.0, np.take_along_axis(offset, order, axis=-1))
    distance = np.linalg.norm(np.linalg.solve(lower, d[..., None])[..., 0], axis=-1)
    return np.where(missing.all(axis=-1), np.nan, distance)


@functools.cache
def _points_of_ball(n: int) -> np.ndarray:
    """4096 points that fill the unit ball of n dimensions evenly, (4096, n)."""
    from scipy.stats import norm, qmc

    uniform = qmc.Sobol(n + 1, scramble=True, rng=0).random(4096)
    direction = norm.ppf(uniform[:, :n])
    return direction / np.linalg.norm(direction, axis=1, keepdims=True) * uniform[:, n:] ** (1 / n)


@QUIET
def _log_volume(maps: TargetTransforms, centre: np.ndarray, C: np.ndarray, radius: float, transformed: float) -> float:
    """In original units, of the row with the volume `transformed` in transformed units."""
    if len(centre) == 1:
        lower, upper = maps.back(centre + radius * C[0] * np.array([[-1.0], [1.0]])).ravel()
        return math.log(abs(upper - lower))
    points = centre + radius * _points_of_ball(len(centre)) @ C.T
    log_slopes = -maps.log_slope(maps.back(points)).sum(axis=1)
    top = log_slopes.max()
    return float(transformed + top + np.log(np.mean(np.exp(log_slopes - top))))
