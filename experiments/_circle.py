"""The circle of Sec. 4: the recipe its networks are trained by, and what is read off trained ones on a grid of t.

Arrays here are numpy's. Predictions on the grid have the members first and the points of the grid second: ν is (M, T),
μ is (M, T, 2) and L is (M, T, 2, 2).
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import mder_jax as mder

POINTS, BATCH, EPOCHS, NOISE = 300, 100, 1500, 0.1
STEPS = EPOCHS * -(-POINTS // BATCH)
WIDTHS = (32, 32)
RATES = (1e-2, 1e-3, 1e-4)
GRID = np.linspace(0, 2 * np.pi, 500)
SIGN_FLIPS = np.pi * np.array([0.5, 1.0, 1.5])

loss = functools.partial(mder.mder_nll, missing=False)


def network(r: Any = 1.0) -> mder.Network:
    """1-32-32-6 with ReLU and the link of Sec. 4, ν = 8 + 5 tanh p₆ and κ = ν/r."""
    return mder.mlp(WIDTHS, mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2, r=r))


def optimizer(steps: int) -> optax.GradientTransformation:
    """Adam with learning rates 1e-2, 1e-3 and 1e-4, for a third of the steps each."""
    first, second, third = RATES
    changes = {steps // 3: second / first, 2 * steps // 3: third / second}
    return optax.adam(optax.piecewise_constant_schedule(first, changes))


class Draw(NamedTuple):
    """Data sets t (D, N, 1) and xy (D, N, 2), fresh points (F, 1) and (F, 2), and bits of keys for networks (K, 2)."""

    t: np.ndarray
    xy: np.ndarray
    fresh_t: np.ndarray
    fresh_xy: np.ndarray
    keys: np.ndarray


def draw(seed: int, data_sets: int, points: int, fresh: int, keys: int) -> Draw:
    """All that is random in a study. One draw cut into parts, since each draw is a program to compile."""

    @jax.jit
    def program(key: jax.Array) -> tuple[mder.datasets.Table, jax.Array]:
        data_key, network_key = jax.random.split(key)
        table = mder.datasets.circle(data_key, data_sets * points + fresh)
        return table, jax.random.key_data(jax.random.split(network_key, keys))

    (t, xy), bits = program(jax.random.key(seed))
    t, xy, bits = np.asarray(t), np.asarray(xy), np.asarray(bits)
    own = data_sets * points
    return Draw(t[:own].reshape(data_sets, points, 1), xy[:own].reshape(data_sets, points, 2), t[own:], xy[own:], bits)


def near_ends(t: np.ndarray = GRID, width: float = np.pi / 4) -> np.ndarray:
    """Where data are dense: |t − {0, 2π}| < π/4, a mask (T,)."""
    return np.minimum(t, 2 * np.pi - t) < width


def near_centre(t: np.ndarray = GRID, width: float = np.pi / 4) -> np.ndarray:
    """Where data are sparse: |t − π| < π/4, a mask (T,)."""
    return np.abs(t - np.pi) < width


def near_sign_flips(t: np.ndarray = GRID, width: float = np.pi / 8) -> np.ndarray:
    """Where the correlation changes sign: |t − {π/2, π, 3π/2}| < π/8, a mask (T,)."""
    return np.abs(t[:, None] - SIGN_FLIPS).min(axis=1) < width


def quadrant_middles(t: np.ndarray = GRID, part: float = 0.6) -> np.ndarray:
    """The middle 60 % of each quadrant of t: masks (4, T)."""
    centres = np.pi / 4 * np.array([1, 3, 5, 7])
    return np.abs(t - centres[:, None]) < part * np.pi / 4


def true_mean(t: np.ndarray = GRID) -> np.ndarray:
    """(cos t, sin t): (T,) -> (T, 2)."""
    return np.stack([np.cos(t), np.sin(t)], axis=-1)


def true_covariance(t: np.ndarray = GRID, noise: float = NOISE) -> np.ndarray:
    """cov(x, y) = noise² cos t sin t, App. E: (T,)."""
    return noise**2 * np.cos(t) * np.sin(t)


def true_correlation(t: np.ndarray = GRID) -> np.ndarray:
    """corr(x, y) = sign(cos t sin t), +1, −1, +1, −1 in the four quadrants, App. E: (T,)."""
    return np.sign(np.cos(t) * np.sin(t))


def nu_drop(nu: np.ndarray, t: np.ndarray = GRID) -> np.ndarray:
    """Mean ν near the ends minus mean ν near the centre: (M, T) -> (M,)."""
    nu = np.asarray(nu)
    return nu[:, near_ends(t)].mean(axis=1) - nu[:, near_centre(t)].mean(axis=1)


def covariance(L: np.ndarray) -> np.ndarray:
    """(L Lᵀ)₁₂ = L₁₁ L₂₁, the covariance of x and y up to a factor: (..., 2, 2) -> (...)."""
    L = np.asarray(L)
    return L[..., 0, 0] * L[..., 1, 0]


def correlation(L: np.ndarray) -> np.ndarray:
    """L₂₁ / √(L₂₁² + L₂₂²), the correlation that L Lᵀ has: (..., 2, 2) -> (...)."""
    L = np.asarray(L)
    return L[..., 1, 0] / np.hypot(L[..., 1, 0], L[..., 1, 1])


def error_of_mean(mu: np.ndarray, t: np.ndarray = GRID) -> np.ndarray:
    """‖μ − (cos t, sin t)‖: (M, T, 2) -> (M, T)."""
    return np.linalg.norm(np.asarray(mu) - true_mean(t), axis=-1)
