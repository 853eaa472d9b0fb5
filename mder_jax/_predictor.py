"""A trained ensemble as a function of a table: standardised on the way in, in original units on the way out.

Moments are turned into original units in float64, since a target such as 2020.5 ± 0.001 has no digits left in float32.
"""

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax._arrays import doubles
from mder_jax.calibration import Scale, rescale
from mder_jax.links import niw_link, num_outputs
from mder_jax.mixture import Mixture, points_of_tail, radius_of_tail
from mder_jax.networks import Network, mlp
from mder_jax.niw import NIW
from mder_jax.student_t import StudentT

# Rows go through in blocks of one size, so that a row's prediction does not depend on how many came with it.
BLOCK = 1024
# So many numbers are drawn at once.
SAMPLED = 1 << 22


# Inputs far beyond the training data may give infinities, which speak for themselves.
_QUIET = np.errstate(over="ignore", invalid="ignore")


class Design(NamedTuple):
    """What a network is, enough to build it again.

    Args:
      inputs: columns of X.
      targets: columns of Y.
      widths: of the hidden layers.
      activation: see `mlp`.
      r: the coupling ν = r κ.
      nu_max: upper bound of ν, see `niw_link`.
      relative: how L is packed, see `niw_link`.
    """

    inputs: int
    targets: int
    widths: tuple[int, ...]
    activation: str
    r: float
    nu_max: float | None
    relative: bool

    def network(self) -> Network:
        """From standardised rows to a NIW of standardised targets."""
        link = functools.partial(niw_link, n=self.targets, r=self.r, nu_max=self.nu_max, relative=self.relative)
        return mlp(self.widths, num_outputs(self.targets), self.activation, link)

    def shapes(self, members: int) -> Any:
        """Shapes and dtypes of the parameters of all members."""
        row = jax.ShapeDtypeStruct((1, self.inputs), jnp.float32)
        one = jax.eval_shape(self.network().init, jax.random.key(0), row)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype), one)


class Standardizer(NamedTuple):
    """z = (value − mean) / std for each column, in float64; a std of ∞ leaves a column out, z = 0."""

    mean: np.ndarray
    std: np.ndarray

    @_QUIET
    def forward(self, values: np.ndarray) -> np.ndarray:
        """Standardised values, in float32."""
        return np.asarray((values - self.mean) / self.std, np.float32)

    @_QUIET
    def back(self, values: Any) -> np.ndarray:
        """Values in original units, (..., n)."""
        return self.mean + self.std * np.asarray(values, np.float64)

    @_QUIET
    def back_covariance(self, covariance: Any) -> np.ndarray:
        """Covariances in original units, (..., n, n)."""
        return self.std[:, None] * self.std * np.asarray(covariance, np.float64)


def standardizer_of(values: np.ndarray, whole: bool = True, constant: float = 1.0) -> Standardizer:
    """Mean and standard deviation of the columns, NaN left out.

    Args:
      values: (N, columns).
      whole: False for mean 0 and standard deviation 1.
      constant: the standard deviation that a column without spread gets (spread by rounding, a few ulp, is none).
    """
    columns = values.shape[1]
    mean = np.asarray(np.nanmean(values, axis=0, dtype=np.float64))
    std = np.asarray(np.nanstd(values, axis=0, dtype=np.float64))
    same = std <= 16 * np.finfo(np.float64).eps * np.abs(mean)
    if not whole:
        return Standardizer(np.zeros(columns), np.where(same, constant, 1.0))
    return Standardizer(mean, np.where(same, constant, std))


class Uncertainty(NamedTuple):
    """Mean (N, n) and covariances (N, n, n) between the targets of each row, in original units.

    Args:
      mean: of a new observation.
      aleatoric: the noise, which more data do not lower.
      within: what the members say they do not know, the mean of their var[μ].
      between: how far they disagree, the covariance of their means.

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
    @_QUIET
    def epistemic(self) -> np.ndarray:
        """within + between, what the model does not know, (N, n, n).

        Example:
          >>> one = np.eye(2)[None]
          >>> print(Uncertainty(np.zeros((1, 2)), aleatoric=one, within=one, between=2 * one).epistemic[0, 0])
          [3. 0.]
        """
        return self.within + self.between

    @property
    @_QUIET
    def total(self) -> np.ndarray:
        """aleatoric + epistemic, the covariance of a new observation, (N, n, n).

        Example:
          >>> one = np.eye(2)[None]
          >>> print(Uncertainty(np.zeros((1, 2)), aleatoric=one, within=one, between=2 * one).total[0, 0])
          [4. 0.]
        """
        return self.aleatoric + self.epistemic

    @property
    @_QUIET
    def std(self) -> np.ndarray:
        """√total_jj, the standard deviation of a new observation, in the shape of the mean.

        Example:
          >>> one = np.eye(2)[None]
          >>> print(Uncertainty(np.zeros((1, 2)), aleatoric=one, within=one, between=2 * one).std)
          [[2. 2.]]
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

        Every target must be there, in the order of the fit: a row with a NaN raises. If y was one-dimensional, (N,)
        will do.

        Example:
          >>> region = Region(centre=np.zeros((1, 2)), scale_tril=np.eye(2)[None], radius=np.array([2.0]))  # a disc
          >>> print(region.contains([[1.0, 1.0]]))  # √2 ≤ 2
          [ True]
          >>> several = np.array([[1.0, 1.0], [2.0, 1.0], [0.0, 1.9]])  # for one row
          >>> print(region.contains(several[:, None]).ravel())
          [ True False  True]
        """
        return (self.distance(y) <= self.radius) | np.isinf(self.radius)

    @_QUIET
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
                f"{np.argwhere(missing)[0][-1]}; ask about complete rows, ~np.isnan(y).any(axis=1)"
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


@functools.partial(jax.jit, static_argnames="design")
def mixture_of(design: Design, params: Any, scale: Scale, x: Array) -> Mixture:
    """The predictive of standardised targets, from standardised rows (B, d)."""
    network = design.network()
    return rescale(Mixture(jax.vmap(network.apply, (0, None))(params, x)), scale)


@jax.jit
def _parts(mixture: Mixture) -> tuple[Array, ...]:
    return mixture.mean(), mixture.aleatoric(), mixture.epistemic_within(), mixture.epistemic_between()


@jax.jit
def _quantiles(mixture: Mixture, tails: Array, signs: Array) -> Array:
    return jnp.moveaxis(points_of_tail(mixture, tails, signs), 0, -1)


@functools.partial(jax.jit, static_argnames="draws")
def _samples(mixture: Mixture, key: Array, draws: int) -> Array:
    return jnp.moveaxis(mixture.sample(key, draws), 0, -1)


@jax.jit
def _radius(mixture: Mixture, tail: Array) -> Array:
    return radius_of_tail(mixture, tail)


@jax.jit
def _log_prob(mixture: Mixture, y: Array) -> Array:
    return mixture.log_prob(y, missing=True)


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

    def with_scale(self, scale: Scale) -> "Predictor":
        """The same with another calibration."""
        return replace(self, scale=Scale(*(float(factor) for factor in scale)))

    def each_block(self, X: np.ndarray, function: Callable[..., Any], *columns: np.ndarray, block: int = BLOCK) -> Any:
        """``function(mixture of a block, its part of each of the columns)``, blocks joined again along the rows.

        What it returns has the rows as first axis.
        """
        scale = jax.tree.map(np.float32, self.scale)
        blocks = []
        for start in range(0, len(X), block):
            rows = min(block, len(X) - start)
            x, *others = (_filled(values[start : start + block], block) for values in (X, *columns))
            mixture = mixture_of(self.design, self.params, scale, self.inputs.forward(x))
            blocks.append(jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[:rows], function(mixture, *others)))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)

    def uncertainty(self, X: np.ndarray) -> Uncertainty:
        """Mean and covariances."""
        mean, *covariances = self.each_block(X, _parts)
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
        tails, signs = tails.astype(np.float32), signs.astype(np.float32)
        found = self.each_block(X, lambda mixture: _quantiles(mixture, tails, signs))
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
        members, size = self.standardized(X).members, min(BLOCK, 1 << (len(X) - 1).bit_length())
        found = []
        with jax.enable_x64(True):
            for start in range(0, len(X), size):
                place = np.minimum(np.arange(start, start + size), len(X) - 1)
                part = jax.tree.map(lambda leaf, place=place: np.asarray(leaf, np.float64)[:, place], members)
                found.append(np.asarray(_radius(Mixture(part), np.float64(tail)))[: len(X) - start])
        return np.concatenate(found)

    def sample(self, X: np.ndarray, key: Array, draws: int) -> np.ndarray:
        """Joint draws, (N, n, draws)."""
        block = max(1, min(BLOCK, SAMPLED // (draws * self.design.targets)))
        keys = iter(list(jax.random.split(key, -(-len(X) // block))))
        found = self.each_block(X, lambda mixture: _samples(mixture, next(keys), draws), block=block)
        return np.moveaxis(self.targets.back(np.moveaxis(found, 1, -1)), -1, 1)

    def standardized(self, X: np.ndarray) -> Mixture:
        """The predictive of standardised targets, rows (N,)."""

        def rows_first(mixture: Mixture) -> NIW:
            return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), mixture.members)

        found = self.each_block(X, rows_first)
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
        found = self.each_block(X, _log_prob, z)
        return np.asarray(found, np.float64) - np.isfinite(Y) @ np.log(self.targets.std)


def _filled(rows: np.ndarray, block: int) -> np.ndarray:
    """The rows of a block, the first one repeated to fill it."""
    return np.concatenate([rows, np.broadcast_to(rows[:1], (block - len(rows), *rows.shape[1:]))])


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
