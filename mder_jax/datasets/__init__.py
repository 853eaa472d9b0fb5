"""Data of the paper's experiments as functions of a key; readers of real tables."""

import math
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from mder_jax._arguments import integer
from mder_jax._checks import check_same, floats, one_key, one_number
from mder_jax.datasets import real_tables
from mder_jax.datasets.real_tables import MissingTableError as MissingTableError, RealTable
from mder_jax.student_t import StudentT

__all__ = ["REAL_TABLES", "MissingTableError", "RealTable", "Table", "circle", "circle_covariance", "circle_mean"]
__all__ += ["cubic", "real", "student_t", "three_points", "three_points_mean"]

REAL_TABLES = tuple(real_tables.SOURCES)


class Table(NamedTuple):
    """Inputs (N, d) and targets (N, n).

    Example:
      >>> X, Y = Table(X=jnp.zeros((5, 3)), Y=jnp.zeros((5, 2)))
      >>> print(X.shape, Y.shape)
      (5, 3) (5, 2)
    """

    X: Array
    Y: Array


def circle(key: Array, points: int = 300, noise: float = 0.1) -> Table:
    r"""(x, y) = (1 + ε)(cos t, sin t) with ε ~ N(0, noise²), Sec. 4: X is t, (points, 1), and Y is (x, y), (points, 2).

    The density of t is ``p(t) ∝ |1 − t/π|`` on [0, 2π]: data are dense at 0 and 2π and sparse at π.

    Example:
      >>> t, xy = circle(jax.random.key(0), points=5)
      >>> print(t.shape, xy.shape)
      (5, 1) (5, 2)
    """
    points = integer("points", points)
    t_key, noise_key = jax.random.split(one_key(key))
    u = jax.random.uniform(t_key, (points, 1), minval=-1.0, maxval=1.0)
    t = jnp.pi * (1 + jnp.sign(u) * jnp.sqrt(jnp.abs(u)))
    radius = 1 + _number("noise", noise) * jax.random.normal(noise_key, (points, 1))
    return Table(t, radius * jnp.concatenate([jnp.cos(t), jnp.sin(t)], axis=1))


def circle_mean(t: ArrayLike) -> Array:
    """(cos t, sin t), (...,) -> (..., 2).

    Example:
      >>> print(circle_mean(0.0))
      [1. 0.]
    """
    (t,) = floats(t=t)
    return jnp.stack([jnp.cos(t), jnp.sin(t)], axis=-1)


def circle_covariance(t: ArrayLike, noise: float = 0.1) -> Array:
    r"""cov(x, y) = J cov(r, φ) Jᵀ = noise² (cos t, sin t)(cos t, sin t)ᵀ, App. E, (...,) -> (..., 2, 2); rank one.

    Example:
      >>> print(circle_covariance(0.0, noise=0.5))  # at t = 0 the noise is along x
      [[0.25 0.  ]
       [0.   0.  ]]
    """
    mean = circle_mean(t)
    return _number("noise", noise).astype(mean.dtype) ** 2 * mean[..., :, None] * mean[..., None, :]


def cubic(key: Array, points: int = 1000, low: float = -4.0, high: float = 4.0, noise: float = 3.0) -> Table:
    """y = x³ + N(0, noise²) with x uniform on [low, high], both (points, 1), as in Amini et al. (2020).

    Example:
      >>> x, y = cubic(jax.random.key(0), points=5, noise=0.0)
      >>> print(x.shape, bool(jnp.allclose(y, x**3)))
      (5, 1) True
    """
    points = integer("points", points)
    x_key, noise_key = jax.random.split(one_key(key))
    x = jax.random.uniform(x_key, (points, 1), minval=_number("low", low), maxval=_number("high", high))
    return Table(x, x**3 + _number("noise", noise) * jax.random.normal(noise_key, (points, 1)))


def three_points(key: Array, repeats: int = 20, noise: tuple[float, float, float] = (0.1, 0.1, 0.5)) -> Table:
    """y = sin(πx/2) + N(0, noise²) repeatedly at x = 0, 1 and 3, fig:unctypes, both (3 repeats, 1).

    Example:
      >>> print(three_points(jax.random.key(0), repeats=2).X.ravel())
      [0. 0. 1. 1. 3. 3.]
    """
    repeats = integer("repeats", repeats)
    (three,) = floats(noise=noise)
    check_same("noise", three, (3,), "the three points")
    x = jnp.repeat(jnp.array([0.0, 1.0, 3.0]), repeats)[:, None]
    spread = jnp.repeat(three.astype(x.dtype), repeats)[:, None]
    return Table(x, three_points_mean(x) + spread * jax.random.normal(one_key(key), x.shape))


def three_points_mean(x: ArrayLike) -> Array:
    """sin(πx/2), (...) -> (...), the mean of `three_points`: 0, 1 and −1 at x = 0, 1 and 3, not on a straight line.

    Example:
      >>> print(three_points_mean(jnp.array([0.0, 1.0, 3.0])).round())
      [ 0.  1. -1.]
    """
    (x,) = floats(x=x)
    return jnp.sin(math.pi / 2 * x)


def student_t(key: Array, points: int, df: float, scale: float = 1.0, n: int = 1) -> Array:
    """Draws (points, n) from a centred multivariate t with scale matrix scale² I, for App. "Bias of fit parameters".

    Example:
      >>> print(student_t(jax.random.key(0), 5, df=4.0).shape)
      (5, 1)
    """
    points, n = integer("points", points), integer("n", n)
    return StudentT(df, jnp.zeros(n), _number("scale", scale) * jnp.eye(n)).sample(key, (points,))


def real(name: str, folder: str | pathlib.Path | None = None) -> RealTable:
    """A real table by name, from a folder or, for some, an installed package; none is shipped with this library.

    Args:
      name: one of `REAL_TABLES`. In the folder it is ``name/data.csv`` or ``name/data.txt``, targets last.
      folder: None for that of the environment variable ``MDER_DATA``.

    Raises `MissingTableError` with the places that were searched, and ValueError for a file that is not that table.

    Example:
      >>> import pathlib, tempfile
      >>> import numpy as np
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     pathlib.Path(folder, "slump").mkdir()
      ...     np.savetxt(f"{folder}/slump/data.csv", np.ones((103, 10)), delimiter=",", header="names of the columns")
      ...     print(real("slump", folder).X.shape, real("slump", folder).Y.shape)
      (103, 7) (103, 3)
    """
    return real_tables.read(name, folder)


def _number(name: str, value: float) -> Array:
    return one_number(name, value).astype(jnp.result_type(float))
