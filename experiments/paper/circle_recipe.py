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
from experiments.harness.training import train

POINTS, BATCH, EPOCHS, NOISE = 300, 100, 1500, 0.1
WIDTHS = (32, 32)
RATE, DECAY = 1e-2, 0.1
GRID = np.linspace(0, 2 * np.pi, 500)
# masks on the grid: where data are dense, |t − {0, 2π}| < π/4, and where they are sparse, |t − π| < π/4, (T,)
NEAR_ENDS = np.minimum(GRID, 2 * np.pi - GRID) < np.pi / 4
NEAR_CENTRE = np.abs(GRID - np.pi) < np.pi / 4
# the middle 60 % of each quadrant, (4, T)
QUADRANT_MIDDLES = np.abs(GRID - np.pi / 4 * np.array([[1], [3], [5], [7]])) < 0.6 * np.pi / 4
SIGN_FLIPS = np.pi * np.array([0.5, 1.0, 1.5])

loss = functools.partial(mder.mder_nll, missing=False)


def network() -> mder.Network:
    """1-32-32-6 with ReLU and the link of Sec. 4, ν = 8 + 5 tanh p₆ and κ = ν."""
    return mder.mlp(WIDTHS, mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2))


def optimizer(steps: int) -> optax.GradientTransformation:
    """Adam with learning rates 1e-2, 1e-3 and 1e-4, for a third of the steps each."""
    return optax.adam(optax.piecewise_constant_schedule(RATE, {steps // 3: DECAY, 2 * steps // 3: DECAY}))


def fit(what: str, keys: Any, t: Any, xy: Any, epochs: int, batch: int = BATCH, **options: Any) -> mder.Ensemble:
    """Train members on separate rows, t (M, N, 1) and xy (M, N, 2); options as for `fit_ensemble`."""
    batch = min(batch, t.shape[1])
    steps = epochs * options.get("steps_per_epoch", -(-t.shape[1] // batch))
    options = {"optimizer": optimizer(steps), "epochs": epochs, "batch_size": batch, **options}
    members = options.pop("network", None) or network()
    return train(what, keys, members, loss, mder.PerMember(t), mder.PerMember(xy), **options)


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


def near_sign_flips(width: float = np.pi / 8) -> np.ndarray:
    """Where the correlation changes sign: |t − {π/2, π, 3π/2}| < π/8, a mask (T,)."""
    return np.abs(GRID[:, None] - SIGN_FLIPS).min(axis=1) < width


def true_mean() -> np.ndarray:
    """(cos t, sin t) on the grid: (T, 2)."""
    return np.asarray(mder.datasets.circle_mean(GRID), np.float64)


def true_covariance() -> np.ndarray:
    """cov(x, y) = noise² cos t sin t on the grid, App. E: (T,)."""
    return np.asarray(mder.datasets.circle_covariance(GRID, NOISE)[:, 0, 1], np.float64)


def true_correlation(t: np.ndarray = GRID) -> np.ndarray:
    """corr(x, y) = sign(cos t sin t), +1, −1, +1, −1 in the four quadrants, App. E: (T,)."""
    return np.sign(np.cos(t) * np.sin(t))


def nu_drop(nu: np.ndarray) -> np.ndarray:
    """Mean ν near the ends minus mean ν near the centre: (..., T) -> (...)."""
    return nu[..., NEAR_ENDS].mean(axis=-1) - nu[..., NEAR_CENTRE].mean(axis=-1)


def covariance(L: np.ndarray) -> np.ndarray:
    """(L Lᵀ)₁₂ = L₁₁ L₂₁, the covariance of x and y up to a factor: (..., 2, 2) -> (...)."""
    return L[..., 0, 0] * L[..., 1, 0]


def correlation(L: np.ndarray) -> np.ndarray:
    """L₂₁ / √(L₂₁² + L₂₂²), the correlation that L Lᵀ has: (..., 2, 2) -> (...)."""
    L = np.asarray(L)
    return L[..., 1, 0] / np.hypot(L[..., 1, 0], L[..., 1, 1])


def error_of_mean(mu: np.ndarray) -> np.ndarray:
    """‖μ − (cos t, sin t)‖: (M, T, 2) -> (M, T)."""
    return np.linalg.norm(np.asarray(mu) - true_mean(), axis=-1)
