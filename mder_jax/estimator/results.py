"""Results of the estimator: mean with covariances, and joint regions, in original units."""

import math
from typing import Any, NamedTuple

import numpy as np

from mder_jax._checks import doubles
from mder_jax.estimator._standardizer import QUIET


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


class Region(NamedTuple):
    """The ellipsoid ‖C⁻¹(y − centre)‖ ≤ radius of each row.

    A row whose predictive covariance is not finite has a radius of ∞: its region is everything.

    Args:
      centre: (N, n), the predictive mean.
      scale_tril: C, (N, n, n), the lower Cholesky factor of the predictive covariance.
      radius: (N,).

    Example:
      >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
      >>> print(region.contains([[1.0, 1.0]]), region.contains([[2.0, 1.0]]))
      [ True] [False]
    """

    centre: np.ndarray
    scale_tril: np.ndarray
    radius: np.ndarray

    def contains(self, y: Any) -> np.ndarray:
        """‖C⁻¹(y − centre)‖ ≤ radius: whether all targets of a row, (..., N, n), are inside, (..., N).

        The targets are in the order of the fit; a NaN raises. If y was one-dimensional, it may be (N,).

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(region.contains([[1.0, 1.0]]))  # √2 ≤ 2
          [ True]
          >>> several = np.array([[1.0, 1.0], [2.0, 1.0], [0.0, 1.9]])  # for one row
          >>> print(region.contains(several[:, None]).ravel())
          [ True False  True]
        """
        return (self.distance(y) <= self.radius) | np.isinf(self.radius)

    @QUIET
    def distance(self, y: Any) -> np.ndarray:
        """‖C⁻¹(y − centre)‖, (..., N, n) -> (..., N), for y as in `contains`.

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(region.distance([[3.0, 4.0]]))
          [5.]
        """
        values, n = doubles("y", y), self.centre.shape[1]
        if n == 1 and values.shape == self.centre.shape[:1]:
            values = values[:, None]
        if values.shape[-2:] != self.centre.shape:
            raise ValueError(f"y must have shape {self.centre.shape}, that of the centre; got {values.shape}")
        missing = np.isnan(values).any(axis=-1)
        if missing.any():
            raise ValueError(
                f"y has a missing target in {missing.sum()} of {missing.size} rows, first in row "
                f"{np.argwhere(missing)[0][-1]}; give complete rows, ~np.isnan(y).any(axis=1)"
            )
        white = np.linalg.solve(self.scale_tril, (values - self.centre)[..., None])[..., 0]
        return np.linalg.norm(white, axis=-1)

    def log_volume(self) -> np.ndarray:
        """ln of its volume in the units of the targets, (N,).

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(np.exp(region.log_volume()) / np.pi)  # its area is 4π
          [4.]
        """
        n = self.centre.shape[1]
        unit_ball = 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1)
        diagonal = np.diagonal(self.scale_tril, axis1=1, axis2=2)
        finite = unit_ball + n * np.log(self.radius) + np.log(diagonal).sum(axis=1)
        return np.where(np.isinf(self.radius), np.inf, finite)
