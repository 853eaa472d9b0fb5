r"""The probability that a mixture of Student-t distributions leaves a ball, and the radius for a given probability.

A member is x = a + B T with T a spherical t of m degrees of freedom, T = Z/√W, W ~ χ²_m/m. It leaves the ball of radius
r where :math:`Q = \|a\sqrt W + B Z\|^2 - r^2 W > 0`. In the axes of B Bᵀ, with variances λ_j and offsets b_j,

.. math:: E[e^{sQ}] = g(s)^{-m/2} \prod_j q_j^{-1/2}, \quad q_j = 1 - 2 s λ_j,
          \quad g(s) = 1 + \frac{2s}{m} \Big(r^2 - \sum_j b_j^2 / q_j\Big),

and P(Q > 0) is :math:`\frac{1}{2\pi i} \int E[e^{sQ}] ds/s` along a path that crosses the real axis between 0 and the
first singularity above (or, for 1 − P, below). The path starts where the integrand is smallest on the real axis and
opens to the right like a hyperbola, so that the trapezoidal rule converges exponentially: the far tail keeps its
relative accuracy, nothing is drawn, and rows do not depend on each other.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from mder_jax import linalg

# The trapezoidal rule: step and number of nodes, and how far the hyperbola opens. The error is below 1e-4 of the tail.
_STEP, _NODES, _OPENING = 0.22, 40, 0.5
# Halvings of the interval of the path's start in ln|s|, and the width of that interval.
_HALVINGS, _DECADES = 40, 28.0


def _members(S: Array, a: Array) -> tuple[Array, Array]:
    """S = B Bᵀ and a in the axes of S, (M, ..., n, n) and (M, ..., n); derivatives go through, the axes stay."""
    U = lax.stop_gradient(linalg.axes_of(S))
    across = jnp.swapaxes(U, -1, -2)
    return linalg.matmul(linalg.matmul(across, S), U), jnp.sum(across * a[..., None, :], axis=-1)


def _start(radius: Array, variance: Array, offset: Array, df: Array) -> tuple[Array, Array]:
    """Where the path crosses the real axis, (M, ...), and the length in which it leaves it.

    It is the minimum of ln E[e^{sQ}] − ln|s|, which is convex, at s > 0 if Q < 0 on average and at s < 0 otherwise.
    """
    squared = offset**2
    variance = jnp.maximum(variance, 1e-12 * jnp.max(variance, axis=-1, keepdims=True))  # rounding may leave less

    def beyond(s: Array) -> Array:
        """Whether s lies outside the domain, or the function rises away from 0 there."""
        q = 1 - 2 * s[..., None] * variance
        g = 1 + 2 * s / df * (radius**2 - jnp.sum(squared / q, axis=-1))
        slope = jnp.sum(variance / q, axis=-1) - (radius**2 - jnp.sum(squared / q**2, axis=-1)) / g - 1 / s
        return ~(g > 0) | (slope * side > 0)

    end = 0.5 / jnp.max(variance, axis=-1)
    side = jnp.where(jnp.sum(variance + squared, axis=-1) > radius**2, -1.0, 1.0).astype(df.dtype)
    reach = (1 + jnp.sum(squared / variance, axis=-1) + jnp.minimum(df, 1e6)) / radius**2  # the far end for s < 0
    high = jnp.log(jnp.where(side > 0, end, reach))
    low = high - _DECADES

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        far = beyond(side * jnp.exp(middle))
        return jnp.where(far, low, middle), jnp.where(far, middle, high)

    start = side * jnp.exp(lax.fori_loop(0, _HALVINGS, halve, (low, high))[0])
    return start, jnp.minimum(jnp.abs(start), end - start)


def _leaving(radius: Array, S: Array, a: Array, df: Array) -> tuple[Array, Array]:
    """P(‖a + B T‖ > radius) of every member in the axes of S, (M, ...), and minus its derivative by radius²."""
    variance = linalg.diagonal(S)
    apart = jnp.where(linalg.on_diagonal(S), 0.0, S)  # rounding, and derivatives: first order in them is enough
    start, width = (lax.stop_gradient(part) for part in _start(radius, variance, a, df))
    gaussian = jnp.isinf(df)
    m = jnp.where(gaussian, 1.0, df)

    def add(total: tuple[Array, Array], node: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        u, weight = node
        s = lax.complex(start + _OPENING * width * (jnp.cosh(u) - 1), width * jnp.sinh(u))
        step = lax.complex(_OPENING * width * jnp.sinh(u), width * jnp.cosh(u)) * lax.complex(weight, 0.0 * weight)
        q = 1 - 2 * s[..., None] * variance.astype(s.dtype)
        scaled = a.astype(s.dtype) / q
        first_order = jnp.sum(scaled * jnp.sum(apart.astype(s.dtype) * scaled[..., None, :], axis=-1), axis=-1)
        room = (radius**2).astype(s.dtype) - jnp.sum(a.astype(s.dtype) * scaled, axis=-1) - 2 * s * first_order
        z = 2 * s * room / m.astype(s.dtype)
        power = jnp.where(gaussian, -s * room, -0.5 * m.astype(s.dtype) * jnp.log1p(z))
        moment = step * jnp.exp(power - 0.5 * jnp.sum(jnp.log(q), axis=-1))
        slope = moment / jnp.where(gaussian, jnp.ones_like(z), 1 + z)
        return (total[0] + jnp.imag(moment / s), total[1] + jnp.imag(slope)), None

    nodes = jnp.asarray(_STEP * np.arange(_NODES), df.dtype)
    weights = jnp.full_like(nodes, _STEP / np.pi).at[0].multiply(0.5)
    integral, density = lax.scan(add, (jnp.zeros_like(start), jnp.zeros_like(start)), (nodes, weights))[0]
    return jnp.where(start < 0, 1 + integral, integral), density


def _averaged(radius: Array, S: Array, a: Array, df: Array, log_weights: Array | None) -> tuple[Array, Array]:
    found = _leaving(jnp.broadcast_to(radius, df.shape), S, a, df)
    if log_weights is None:
        return jnp.mean(found[0], axis=0), jnp.mean(found[1], axis=0)
    weights = jnp.exp(log_weights).astype(df.dtype)
    probability, density = (jnp.sum(jnp.where(weights > 0, weights * part, 0.0), axis=0) for part in found)
    return probability, density


def leaving(radius: Array, S: Array, a: Array, df: Array, log_weights: Array | None = None) -> Array:
    """P(‖x‖ > radius) of the mixture of x = a + B T, S = B Bᵀ; (...), (M, ..., n, n), (M, ..., n), (M, ...) -> (...)

    `log_weights` of the members are (M, ...), or None if all weigh the same.
    """
    # Beyond these bounds the result is 1 or 0 to rounding, and squares leave the range of float32.
    squared = jnp.trace(S, axis1=-2, axis2=-1)
    low, high = jnp.sqrt(jnp.min(squared, axis=0)), jnp.sqrt(jnp.max(squared + jnp.sum(a**2, axis=-1), axis=0))
    bounded = jnp.clip(radius, 1e-12 * low, 1e12 * high)
    return jnp.clip(
        _averaged(bounded[None], *_members(S, a), df, log_weights)[0], 0.0, 1.0
    )  # rounding may leave [0, 1]


@jax.custom_jvp
@jax.jit  # a loop called without jit is compiled anew each time
def radius_of(tail: Array, S: Array, a: Array, df: Array, log_weights: Array | None) -> Array:
    """The radius that the mixture leaves with probability `tail`, (...): Newton in ln r in a shrinking bracket."""
    S, a = _members(S, a)
    info = jnp.finfo(tail.dtype)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, x, change, _, count = state
        radius = jnp.exp(x)
        value, density = _averaged(radius[None], S, a, df, log_weights)
        gap = jnp.log(jnp.maximum(value, info.tiny)) - jnp.log(tail)
        low, high = jnp.where(gap > 0, x, low), jnp.where(gap > 0, high, x)
        newton = x + gap * value / (2 * radius**2 * density)
        following = jnp.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        following = jnp.where(change > 1e-6, following, x)  # a row that has converged does not change while others do
        return low, high, following, jnp.abs(following - x), gap, count + 1

    def unfinished(state: tuple[Array, ...]) -> Array:
        *_, change, _, count = state
        return (count < 60) & jnp.any(change > 1e-6)

    limit = jnp.full_like(tail, 0.2 * np.log(float(info.max)))
    middle = jnp.full_like(tail, 0.5 * np.log(S.shape[-1]))
    unknown = jnp.full_like(tail, jnp.inf)
    start: tuple[Array, ...] = (-limit, limit, middle, unknown, unknown, jnp.zeros((), jnp.int32))
    *_, x, _, gap, _ = lax.while_loop(unfinished, step, start)
    found = jnp.where(jnp.abs(gap) < 1e-2, jnp.exp(x), jnp.nan)  # NaN if the search failed
    found = jnp.where(tail >= 1, 0.0, jnp.where(tail > 0, found, jnp.inf))
    known = jnp.all(jnp.isfinite(jnp.sum(S, axis=(-1, -2)) + jnp.sum(a, axis=-1)), axis=0)
    return jnp.where(known & (tail >= 0) & (tail <= 1), found, jnp.nan)


@radius_of.defjvp
def _radius_of_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """leaving(r, θ) = tail: dr = (∂leaving dθ − d tail) / (2 r density)."""
    radius = radius_of(*primals)
    _, along = jax.jvp(lambda *members: leaving(radius, *members), primals[1:], tangents[1:])
    _, density = _averaged(radius[None], *_members(*primals[1:3]), *primals[3:])
    return radius, (along - tangents[0]) / (2 * radius * density)
