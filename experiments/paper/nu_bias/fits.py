r"""Maximum-likelihood fits of ν and the scale matrix S of many Student-t samples of many sizes, n = 1 and 2.

The location is fixed at 0. With :math:`q = y^\top S^{-1} y = θ·x` and x = (y₁², 2y₁y₂, y₂²) a fit works on
u = (1/ν, θ), where θ is the lower triangle of S⁻¹. In 1/ν the likelihood is nearly a parabola, even where the best ν is
∞. As q is linear in θ, the mean negative log likelihood

.. math:: \tfrac{ν+n}2\, \overline{\ln(1 + q/ν)} - \ln\frac{Γ(\frac{ν+n}2)}{Γ(\frac ν2)} + \tfrac n2 \ln πν
          - \tfrac12 \ln|S^{-1}|

and its derivatives need only averages of ln(1 + q/ν) and of 1, x, x xᵀ over powers of ν + q, which come from one pass
over the points. Samples with n = 1 have y₂ = 0 and θ held at (θ₁, 0, 1). All samples are cut into blocks of `WIDTH`
points, the last one padded with weight 0, so that they share one array and one compiled program.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import digamma, gammaln, polygamma

import mder_jax as mder

WIDTH = 25
ITERATIONS = 100
TOLERANCE = 1e-9  # of the projected gradient
PAIRS = ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2))  # lower triangle of x xᵀ
PLACES = np.array([[0, 1, 3], [1, 2, 4], [3, 4, 5]])  # of the entries of x xᵀ in that triangle
DETERMINANT = np.array([[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]])  # |S⁻¹| = ½ θ·Dθ


class Samples(NamedTuple):
    """Points y (2, B, WIDTH) with weights (B, WIDTH), the fit of each block (B,), and of each fit size and n (F,)."""

    y: Any
    weights: Any
    fit: Any
    sizes: Any
    targets: Any


class Fit(NamedTuple):
    """u (F, 4), and there the mean negative log likelihood (F,), its gradient (F, 4) and Hessian (F, 4, 4)."""

    u: Array
    value: Array
    gradient: Array
    hessian: Array


def draw(rng: np.random.Generator, nu: np.ndarray, sizes: np.ndarray, targets: np.ndarray) -> Samples:
    """One sample for each ν, size and n from the t_ν of scale matrix I: y = z √(ν/χ²_ν)."""
    blocks = -(-sizes // WIDTH)
    fit = np.repeat(np.arange(len(sizes)), blocks)
    first = np.cumsum(blocks) - blocks
    number = (np.arange(len(fit)) - first[fit])[:, None] * WIDTH + np.arange(WIDTH)
    stretch = np.sqrt(nu[fit][:, None] / rng.chisquare(nu[fit][:, None], number.shape))
    y = rng.standard_normal((2, *number.shape)) * stretch
    y[1, targets[fit] == 1] = 0.0
    weights = (number < sizes[fit][:, None]).astype(float)
    return Samples(y, weights, fit, sizes.astype(float), targets.astype(float))


def averages(nu: Array, theta: Array, samples: Samples) -> Array:
    """Averages over samples, (15, F): ln(1 + q/ν), r, r², x r, x r², lower triangle of x xᵀ r², with r = 1/(ν + q)."""
    (y1, y2), weights, fit = samples.y, samples.weights, samples.fit
    (y1, y2), nu = lax.optimization_barrier(((y1, y2), nu))  # else products of y are kept from step to step, 10 times y
    x = (y1 * y1, 2.0 * y1 * y2, y2 * y2)
    nu, theta = nu[fit][:, None], theta[fit]
    q = theta[:, 0:1] * x[0] + theta[:, 1:2] * x[1] + theta[:, 2:3] * x[2]
    r1 = weights / (nu + q)
    r2 = r1 / (nu + q)
    terms = (weights * jnp.log1p(q / nu), r1, r2, *(f * r1 for f in x), *(f * r2 for f in x))
    terms += tuple(x[a] * x[b] * r2 for a, b in PAIRS)
    # one reduction of all terms, which the compiler makes one loop; a sum of each would compute q and r again and again
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    sums = lax.reduce(terms, zeros, lambda p, q: tuple(a + b for a, b in zip(p, q, strict=True)), (1,))
    return _average(jnp.stack(sums, 1), samples).T


def _average(sums: Array, samples: Samples) -> Array:
    """Sums over each block of points as averages over each sample, (B, k) -> (F, k)."""
    by_fit = jax.ops.segment_sum(sums, samples.fit, len(samples.sizes), indices_are_sorted=True)
    return by_fit / samples.sizes[:, None]


def likelihood(u: Array, samples: Samples) -> Fit:
    """The mean negative log likelihood of each sample with its gradient and Hessian in u."""
    nu, theta = 1 / u[:, 0], u[:, 1:]
    half = 0.5 * (nu + samples.targets)
    mean = averages(nu, theta, samples)
    (log, r1, r2), x1, x2, xx = mean[:3], mean[3:6].T, mean[6:9].T, jnp.moveaxis(mean[9 + PLACES], -1, 0)
    gamma, by_nu, by_nu_twice = nu_part(nu, samples.targets)
    det, by_theta, by_theta_twice = theta_part(theta)
    by_nu = by_nu + 0.5 * log + half * (r1 - 1 / nu)
    by_nu_twice = by_nu_twice + r1 - 1 / nu + half * (1 / nu**2 - r2)
    by_theta = by_theta + half[:, None] * x1
    by_theta_twice = by_theta_twice - half[:, None, None] * xx
    mixed = -(nu[:, None] ** 2) * (0.5 * x1 - half[:, None] * x2)  # dν/du = −ν²
    corner = nu**4 * by_nu_twice + 2 * nu**3 * by_nu
    above = jnp.concatenate([corner[:, None], mixed], axis=1)
    below = jnp.concatenate([mixed[:, :, None], by_theta_twice], axis=2)
    gradient = jnp.concatenate([(-(nu**2) * by_nu)[:, None], by_theta], axis=1)
    return Fit(u, half * log + gamma + det, gradient, jnp.concatenate([above[:, None], below], axis=1))


def nu_part(nu: Array, targets: Array) -> tuple[Array, Array, Array]:
    """n/2 ln πν − lnΓ((ν+n)/2) + lnΓ(ν/2) with its first and second derivative in ν."""
    halves = jnp.stack([nu, nu + targets]) / 2
    value, first, second = (-jnp.diff(f(halves), axis=0)[0] for f in (gammaln, digamma, lambda x: polygamma(1, x)))
    half = 0.5 * targets
    return value + half * jnp.log(math.pi * nu), 0.5 * first + half / nu, 0.25 * second - half / nu**2


def theta_part(theta: Array) -> tuple[Array, Array, Array]:
    """−½ ln|S⁻¹| with gradient and Hessian; NaN where S⁻¹ is not positive definite."""
    slope = theta[:, ::-1] * jnp.array([1.0, -2.0, 1.0])  # of |S⁻¹| = θ₁θ₃ − θ₂²
    determinant = 0.5 * jnp.sum(theta * slope, axis=1)
    determinant = jnp.where((theta[:, 0] > 0) & (determinant > 0), determinant, jnp.nan)
    by_theta = -0.5 * slope / determinant[:, None]
    twice = 2 * by_theta[:, :, None] * by_theta[:, None, :] - 0.5 * DETERMINANT / determinant[:, None, None]
    return -0.5 * jnp.log(determinant), by_theta, twice


def start(samples: Samples) -> Array:
    """ν = 4 and a diagonal S whose scales are 1.5 times the geometric mean of |y_j|, which outliers hardly move."""
    away = jnp.where(samples.y == 0, 1.0, jnp.abs(samples.y))
    logs = jnp.sum(samples.weights * jnp.log(away), axis=2)
    inverse = jnp.exp(-2 * (_average(logs.T, samples) + math.log(1.5)))
    zero = jnp.zeros_like(inverse[:, 0])
    return jnp.stack([zero + 0.25, inverse[:, 0], zero, inverse[:, 1]], axis=1)


def box(targets: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Edges of u, (F, 4): low ≤ ν ≤ high, and θ₂ = 0, θ₃ = 1 where n = 1."""
    nu, one = jnp.ones_like(targets)[:, None], targets[:, None] == 1

    def edge(of_nu: Array, free: float) -> Array:
        """One side of the box; θ has this edge unless it is held."""
        return jnp.concatenate([of_nu, jnp.where(one, jnp.array([free, 0.0, 1.0]), free)], axis=1)

    return edge(nu / high, -math.inf), edge(nu / low, math.inf)


def projected_gradient(found: Fit, low: Array, high: Array) -> Array:
    """Largest entry of u − clip(u − g), which is 0 at a minimum inside the box or on its edge, (F,)."""
    return jnp.max(jnp.abs(found.u - jnp.clip(found.u - found.gradient, low, high)), axis=1)


def newton_step(found: Fit, damping: Array, low: Array, high: Array) -> Array:
    """u + d with the d of least g·d + ½ d·M d, M = H + damping, and ν in its box; NaN where M is not positive definite.

    What is held at an edge of the box does not move. Where ν would leave the box it goes to the edge, and the others go
    where they then should: d + M⁻¹e₁ (t − d₁)/(M⁻¹)₁₁ is the least point with d₁ = t.
    """
    u, g, H = found.u, found.gradient, found.hessian
    held = ((u <= low) & (g >= 0)) | ((u >= high) & (g <= 0))
    one = jnp.eye(u.shape[1])
    matrix = jnp.where(held[:, :, None] | held[:, None, :], one, H + damping[:, None, None] * one)
    columns = mder.whiten(jnp.linalg.cholesky(matrix)[:, None], jnp.broadcast_to(one, matrix.shape))  # of L⁻¹
    inverse = jnp.sum(columns[:, :, None] * columns[:, None, :], axis=3)
    step = -jnp.sum(inverse * jnp.where(held, 0.0, g)[:, None, :], axis=2)
    excess = jnp.clip(step[:, 0], low[:, 0] - u[:, 0], high[:, 0] - u[:, 0]) - step[:, 0]
    return jnp.clip(u + step + inverse[:, 0] * (excess / inverse[:, 0, 0])[:, None], low, high)


def minimise(evaluate: Callable[[Array], Fit], u: Array, low: Array, high: Array) -> tuple[Fit, Array]:
    """Projected, damped Newton: a step that does not descend is taken back and the damping raised; fits and steps."""

    def unfinished(state: tuple[Fit, Array, Array]) -> Array:
        found, _, step = state
        return (step == 0) | ((step < ITERATIONS) & jnp.any(projected_gradient(found, low, high) > TOLERANCE))

    def improve(state: tuple[Fit, Array, Array]) -> tuple[Fit, Array, Array]:
        found, damping, step = state
        trial = evaluate(newton_step(found, damping, low, high))
        better = trial.value <= found.value + 1e-13  # rounding must not stop the last steps
        choose = jax.vmap(jnp.where)  # one decision for each fit
        kept = jax.tree.map(lambda new, old: choose(better, new, old), trial, found)
        return kept, jnp.where(better, damping / 10, jnp.maximum(10 * damping, 1e-3)), step + 1

    # the first step goes nowhere and evaluates the start, so that the likelihood is compiled once
    one = jnp.broadcast_to(jnp.eye(u.shape[1]), (*u.shape, u.shape[1]))
    nowhere = Fit(jnp.clip(u, low, high), jnp.full(len(u), jnp.inf), jnp.zeros_like(u), one)
    found, _, steps = lax.while_loop(unfinished, improve, (nowhere, jnp.full(len(u), 0.1), jnp.zeros((), int)))
    return found, steps


@jax.jit
def fit_all(samples: Samples, low: Array, high: Array) -> tuple[Fit, Array, Array]:
    """Fit all samples with ν between low and high: fits, projected gradients (F,), Newton steps."""
    edges = box(samples.targets, low, high)
    found, steps = minimise(lambda u: likelihood(u, samples), start(samples), *edges)
    return found, projected_gradient(found, *edges), steps
