"""A trained ensemble as a function of a table: standardised on the way in, in original units on the way out.

Moments are turned into original units in float64, since a target such as 2020.5 ± 0.001 has no digits left in float32.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax._blocks import map_host_blocks
from mder_jax.calibration import Scale, rescale
from mder_jax.ensemble.forward import Forward
from mder_jax.estimator._design import Design
from mder_jax.estimator._standardizer import Standardizer
from mder_jax.estimator.results import Region, Uncertainty
from mder_jax.mixture import Mixture, points_of_tail, radius_of_tail
from mder_jax.niw import NIW
from mder_jax.student_t import StudentT

# Rows go through in blocks of one size, so that a row's prediction does not depend on how many came with it.
BLOCK = 1024


# So many numbers are drawn at once.
SAMPLED = 1 << 22


def _mixture(niw: NIW, scale: Scale) -> Mixture:
    return rescale(Mixture(niw), scale)


def moments(niw: NIW, scale: Scale) -> tuple[Array, ...]:
    """Mean, aleatoric and the two epistemic covariances of standardised targets, from what the networks return."""
    mixture = _mixture(niw, scale)
    return mixture.mean(), mixture.aleatoric(), mixture.epistemic_within(), mixture.epistemic_between()


def _quantiles(niw: NIW, scale: Scale, tails: Array, signs: Array) -> Array:
    return jnp.moveaxis(points_of_tail(_mixture(niw, scale), tails, signs), 0, -1)


def _log_prob(niw: NIW, y: Array, scale: Scale) -> Array:
    return _mixture(niw, scale).log_prob(y, missing=True)


def _rows_first(niw: NIW, scale: Scale) -> NIW:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), _mixture(niw, scale).members)


@functools.partial(jax.jit, static_argnames="draws")
def _samples(members: NIW, key: Array, draws: int) -> Array:
    return jnp.moveaxis(Mixture(members).sample(key, draws), 0, -1)


@jax.jit
def _radius(members: NIW, tail: Array) -> Array:
    return radius_of_tail(Mixture(members), tail)


@dataclass(frozen=True)
class Predictor:
    """A trained ensemble with its standardisers and its calibrated scale. Arrays are numpy's.

    Args:
      design: of every member.
      params: of all members, stacked.
      inputs: standardiser of X.
      targets: standardiser of Y.
      scale: factors on the predictive covariance; see `calibration`.
    """

    design: Design
    params: Any
    inputs: Standardizer
    targets: Standardizer
    scale: Scale

    @property
    def members(self) -> int:
        """How many networks."""
        return len(jax.tree.leaves(self.params)[0])

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without what is on devices."""
        return {name: value for name, value in self.__dict__.items() if name != "forward"}

    @functools.cached_property
    def forward(self) -> Forward:
        """The networks on all devices."""
        return Forward(self.design.network(), self.params)

    def with_scale(self, scale: Scale) -> "Predictor":
        """The same networks with another calibration."""
        made = replace(self, scale=Scale(*(float(factor) for factor in scale)))
        made.__dict__["forward"] = self.forward
        return made

    def outputs(self, X: np.ndarray) -> NIW:
        """What the networks return for the rows, (M, N), on the host."""
        return self.forward(self.inputs.forward(X), BLOCK)

    def each_row(self, X: np.ndarray, reduce: Callable[..., Any], *columns: np.ndarray, constants: Any = ()) -> Any:
        """``reduce(networks' outputs, columns, scale, constants)`` for all rows, which are the first axis of it."""
        scale = jax.tree.map(np.float32, self.scale)
        return self.forward(self.inputs.forward(X), BLOCK, reduce, columns, (scale, *constants))

    def uncertainty(self, X: np.ndarray) -> Uncertainty:
        """Mean and covariances."""
        mean, *covariances = self.each_row(X, moments)
        return Uncertainty(self.targets.back(mean), *map(self.targets.back_covariance, covariances))

    def quantiles(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Of each target at each level, (N, n, K); from the nearer tail, which keeps the digits of 0.99999999."""
        return self._points(X, np.minimum(levels, 1 - levels), np.where(levels < 0.5, -1.0, 1.0))

    def interval(self, X: np.ndarray, coverage: float) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval of each target, (N, n) twice."""
        tail = (1 - coverage) / 2
        lower, upper = np.moveaxis(self._points(X, np.array([tail, tail]), np.array([-1.0, 1.0])), -1, 0)
        return lower, upper

    def _points(self, X: np.ndarray, tails: np.ndarray, signs: np.ndarray) -> np.ndarray:
        found = self.each_row(X, _quantiles, constants=(tails.astype(np.float32), signs.astype(np.float32)))
        return np.moveaxis(self.targets.back(np.moveaxis(found, 1, -1)), -1, 1)

    def ellipsoids(self, X: np.ndarray) -> Region:
        """The regions of all targets with a radius of 1, or ∞ where the predictive covariance is not finite."""
        parts = self.uncertainty(X)
        known = np.isfinite(parts.total).all(axis=(1, 2)) & np.isfinite(parts.mean).all(axis=1)
        total = np.where(known[:, None, None], parts.total, np.eye(parts.total.shape[1]))
        factor = np.where(known[:, None, None], _factors(total), np.nan)
        return Region(parts.mean, factor, np.where(known, 1.0, np.inf))

    def region(self, X: np.ndarray, coverage: float, radius: np.ndarray | None = None) -> Region:
        """The ellipsoid of all targets; its radius by the predictive distribution unless one is given."""
        made = self.ellipsoids(X)
        if radius is None:
            radius = self._own_radius(X, 1 - coverage)
        return made._replace(radius=np.where(np.isinf(made.radius), np.inf, radius))

    def _own_radius(self, X: np.ndarray, tail: float) -> np.ndarray:
        """Of the predictive distribution, (N,), in double precision, which members far apart need.

        Few rows are not filled up to a block, since the search takes its time.
        """
        size = min(BLOCK, 1 << (len(X) - 1).bit_length())
        members = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.standardized(X).members)
        with jax.enable_x64(True):
            return map_host_blocks(lambda part: _radius(part, np.float64(tail)), size, members, axis=1)

    def sample(self, X: np.ndarray, key: Array, draws: int) -> np.ndarray:
        """Joint draws, (N, n, draws)."""
        block = max(1, min(BLOCK, SAMPLED // (draws * self.design.targets)))
        keys = iter(list(jax.random.split(key, -(-len(X) // block))))
        members = jax.tree.map(np.asarray, self.standardized(X).members)
        found = map_host_blocks(lambda part: _samples(part, next(keys), draws), block, members, axis=1)
        return np.moveaxis(self.targets.back(np.moveaxis(found, 1, -1)), -1, 1)

    def standardized(self, X: np.ndarray) -> Mixture:
        """The predictive of standardised targets, rows (N,)."""
        found = self.each_row(X, _rows_first)
        return Mixture(jax.tree.map(lambda leaf: jnp.asarray(np.moveaxis(leaf, 0, 1)), found))

    def distribution(self, X: np.ndarray) -> Mixture | StudentT:
        """The predictive in original units: a mixture of NIW, or the Student-t of a single member."""
        niw = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.standardized(X).members)
        try:
            mixture = Mixture(NIW(self.targets.back(niw.mu), self.targets.std[:, None] * niw.L, niw.kappa, niw.nu))
        except ValueError as error:
            beyond = f"a target is beyond what {jnp.result_type(float)} can hold, which only distributions need"
            raise ValueError(f"{beyond}: {error}") from None
        return mixture.member(0) if self.members == 1 else mixture

    def log_prob(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """ln p(y) of each row in original units, (N,); a NaN in y is a target that was not observed."""
        z = self.targets.forward(Y)
        found = self.each_row(X, _log_prob, z)
        return np.asarray(found, np.float64) - np.isfinite(Y) @ np.log(self.targets.std)


def _factors(covariances: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors, (N, n, n); a matrix that is singular to rounding is widened by a part in a million."""
    try:
        return np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        widened = covariances * (1 + 1e-6 * np.eye(covariances.shape[1]))
        return np.stack([_factor(*both) for both in zip(covariances, widened, strict=True)])


def _factor(*candidates: np.ndarray) -> np.ndarray:
    """The factor of the first of the matrices that has one; failing that, of the last one's diagonal."""
    for matrix in candidates:
        with contextlib.suppress(np.linalg.LinAlgError):
            return np.linalg.cholesky(matrix)
    return np.diag(np.sqrt(np.diagonal(candidates[-1])))
