"""Data of the paper's experiments, as functions of a key, and readers of real tables."""

import math
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from mder_jax import _real_tables
from mder_jax._real_tables import MissingTableError as MissingTableError
from mder_jax._real_tables import RealTable
from mder_jax.student_t import StudentT

REAL_TABLES = tuple(_real_tables.SOURCES)


class Table(NamedTuple):
    """Inputs (N, d) and targets (N, n)."""

    X: Array
    Y: Array


def circle(key: Array, points: int = 300, noise: float = 0.1) -> Table:
    r"""Points (x, y) = (1 + ε)(cos t, sin t) with ε ~ N(0, noise²), Sec. 4 of the paper; X is t, Y is (x, y).

    The density of t is V-shaped, p(t) ∝ |1 − t/π| on [0, 2π]: data are dense at 0 and 2π and sparse at π.

    Example:
      >>> t, xy = circle(jax.random.key(0), points=5)
      >>> print(t.shape, xy.shape)
      (5, 1) (5, 2)
    """
    _check_points(points)
    t_key, noise_key = jax.random.split(key)
    u = jax.random.uniform(t_key, (points, 1), minval=-1.0, maxval=1.0)
    t = jnp.pi * (1 + jnp.sign(u) * jnp.sqrt(jnp.abs(u)))
    radius = 1 + noise * jax.random.normal(noise_key, (points, 1))
    return Table(t, radius * jnp.concatenate([jnp.cos(t), jnp.sin(t)], axis=1))


def circle_mean(t: ArrayLike) -> Array:
    """(cos t, sin t), (...,) -> (..., 2)."""
    t = jnp.asarray(t)
    return jnp.stack([jnp.cos(t), jnp.sin(t)], axis=-1)


def circle_covariance(t: ArrayLike, noise: float = 0.1) -> Array:
    r"""cov(x, y) = J cov(r, φ) Jᵀ = noise² (cos t, sin t)(cos t, sin t)ᵀ, App. E, (...,) -> (..., 2, 2); rank one."""
    mean = circle_mean(t)
    return noise**2 * mean[..., :, None] * mean[..., None, :]


def cubic(key: Array, points: int = 1000, low: float = -4.0, high: float = 4.0, noise: float = 3.0) -> Table:
    """y = x³ + N(0, noise²) with x uniform on [low, high], the univariate experiment of Amini et al. (2020).

    Example:
      >>> print(cubic(jax.random.key(0), points=5).Y.shape)
      (5, 1)
    """
    _check_points(points)
    x_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(x_key, (points, 1), minval=low, maxval=high)
    return Table(x, x**3 + noise * jax.random.normal(noise_key, (points, 1)))


def three_points(key: Array, repeats: int = 20, noise: tuple[float, float, float] = (0.1, 0.1, 0.5)) -> Table:
    """Repeated measurements at x = 0, 1 and 3 around `three_points_mean`, with little noise at 0 and 1, fig:unctypes.

    Example:
      >>> print(three_points(jax.random.key(0), repeats=2).X.ravel())
      [0. 0. 1. 1. 3. 3.]
    """
    _check_points(repeats)
    x = jnp.repeat(jnp.array([0.0, 1.0, 3.0]), repeats)[:, None]
    spread = jnp.repeat(jnp.array(noise), repeats)[:, None]
    return Table(x, three_points_mean(x) + spread * jax.random.normal(key, x.shape))


def three_points_mean(x: ArrayLike) -> Array:
    """sin(πx/2): 0, 1 and −1 at x = 0, 1 and 3, so that no straight line goes through all three."""
    return jnp.sin(math.pi / 2 * jnp.asarray(x))


def student_t(key: Array, points: int, df: float, scale: float = 1.0, n: int = 1) -> Array:
    """Draws (points, n) from a centred multivariate t with scale matrix scale² I, for App. "Bias of fit parameters".

    Example:
      >>> print(student_t(jax.random.key(0), 5, df=4.0).shape)
      (5, 1)
    """
    _check_points(points)
    return StudentT(df, jnp.zeros(n), scale * jnp.eye(n)).sample(key, (points,))


def real(name: str, folder: str | pathlib.Path | None = None) -> RealTable:
    """A real table by name, from a folder or, for some, out of an installed package; none is shipped with this library.

    Args:
      name: one of `REAL_TABLES`. In the folder it is ``name/data.csv`` or ``name/data.txt``, targets last.
      folder: None for the one that the environment variable ``MDER_DATA`` names.

    Raises `MissingTableError` with the places that were looked at, and ValueError for a file that is not that table.
    """
    return _real_tables.read(name, folder)


def _check_points(points: int) -> None:
    if points < 1:
        raise ValueError(f"at least one point is needed; got {points}")
