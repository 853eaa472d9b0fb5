r"""From a network's raw output vector to a distribution, and back. The only place that knows the packing.

Packing of the paper (Sec. 4): first the n entries of μ₀, then the rows of L with the exponential on its diagonal,
ν last: n(n+3)/2 + 1 outputs in all.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from mder_jax import linalg
from mder_jax._arguments import check_type, integer
from mder_jax._checks import check_above, floats, is_concrete, plain_number
from mder_jax.nig import NIG
from mder_jax.niw import NIW, couple
from mder_jax.student_t import StudentT

__all__ = ["gaussian_link", "inverse_gaussian_link", "inverse_nig_link", "inverse_niw_link", "nig_link", "niw_link"]
__all__ += ["num_outputs"]

# ln L_jj is clipped to ±30 (1e-13 to 1e13): an unbounded likelihood, as of data on a line, drives L_jj to 0, and in
# float32 ‖L⁻¹d‖² would overflow long before exp(p) underflows.
LOG_DIAGONAL_BOUND = 30.0


def num_outputs(n: int) -> int:
    """n(n+3)/2 + 1, the width of the raw vector of `niw_link` for n targets.

    Example:
      >>> num_outputs(2)
      6
    """
    n = integer("n, the number of targets,", n)
    return n + linalg.tril_size(n) + 1


def log_diagonal_outputs(n: int) -> np.ndarray:
    """The places of ln L_11, ..., ln L_nn in the raw vector of `niw_link`, (n,)."""
    return n + np.cumsum(np.arange(1, n + 1)) - 1


def niw_link(
    raw: ArrayLike,
    n: int,
    r: ArrayLike = 1.0,
    nu_min: float | None = None,
    nu_max: float | None = None,
    relative: bool = False,
) -> NIW:
    r"""A coupled NIW from raw outputs (..., n(n+3)/2 + 1), Sec. 4 of the paper.

    .. math:: ν = \tfrac{ν_\max + ν_\min}2 + \tfrac{ν_\max - ν_\min}2 \tanh p, \qquad κ = ν / r

    With the default bounds and n = 2 that is the paper's gate ν = 8 + 5 tanh p₆.

    Args:
      raw: raw outputs, (..., n(n+3)/2 + 1).
      n: number of targets.
      r: coupling ν = r κ, a scalar or (...).
      nu_min: lower bound of ν, default n + 1, below which the moments do not exist; the result is strictly above it.
      nu_max: upper bound of ν, default n + 11; ``math.inf`` for a gate without one, ν = ν_min + softplus(p).
      relative: the outputs below the diagonal are in units of their row's, L_jk = p_jk exp(p_jj), not L_jk = p_jk as in
        the paper. Where L_jj is small, p_jk need not be as small, so that noise-free data are fitted in fewer steps.

    Example:
      >>> print(niw_link(jnp.zeros(6), n=2).nu)
      8.0
    """
    raw = _outputs(raw, num_outputs(n), f"n = {n} targets need")
    low, high = _nu_bounds(n, nu_min, nu_max)
    mu, entries, gate = lax.split(raw, (n, linalg.tril_size(n), 1), raw.ndim - 1)
    return couple(mu, _tril_with_exp(entries, n, relative), _gate(jnp.squeeze(gate, -1), low, high), r)


def inverse_niw_link(
    niw: NIW, nu_min: float | None = None, nu_max: float | None = None, relative: bool = False
) -> Array:
    """The raw outputs (..., n(n+3)/2 + 1) that `niw_link` with the same options turns into this NIW; κ is not in them.

    Example:
      >>> raw = jnp.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
      >>> print(inverse_niw_link(niw_link(raw, n=2)).round(3))
      [0.1 0.2 0.3 0.4 0.5 0.6]
    """
    check_type("niw", niw, NIW)
    low, high = _nu_bounds(niw.n, nu_min, nu_max)
    if is_concrete(niw.nu) and not np.all((low <= np.float64(niw.nu)) & (np.float64(niw.nu) <= high)):
        raise ValueError(f"nu must lie within the gate, {low:g} to {high:g}; got {niw.nu}")
    tril = _tril_with_log(niw.L, relative)
    return jnp.concatenate([niw.mu, tril, _inverse_gate(niw.nu, low, high)[..., None]], axis=-1)


def _nu_bounds(n: int, nu_min: float | None, nu_max: float | None) -> tuple[float, float]:
    low = n + 1.0 if nu_min is None else plain_number("nu_min", nu_min)
    high = max(n + 11.0, low + 10.0) if nu_max is None else plain_number("nu_max", nu_max)
    if not n - 1 <= low < high or low > 1e30 or 1e30 < high < math.inf:
        wanted = "n - 1 <= nu_min < nu_max, both up to 1e30 or nu_max = inf"
        raise ValueError(f"the bounds of nu must satisfy {wanted}; got n = {n}, {low:g}, {high:g}")
    return low, high


def _gate(p: Array, low: float, high: float) -> Array:
    middle, half = (high + low) / 2, (high - low) / 2
    value = low + jax.nn.softplus(p) if math.isinf(high) else middle + half * jnp.tanh(p)
    # Rounding may land on the bound itself, where the moments are infinite. The smallest normal number is for low = 0.
    above = max(np.nextafter(p.dtype.type(low), p.dtype.type(np.inf)), jnp.finfo(p.dtype).tiny)
    return jnp.maximum(value, above)


def _inverse_gate(nu: Array, low: float, high: float) -> Array:
    if math.isinf(high):
        return inverse_softplus(nu - low)
    saturated = 1 - float(jnp.finfo(nu.dtype).eps)
    return jnp.arctanh(jnp.clip((nu - (high + low) / 2) / ((high - low) / 2), -saturated, saturated))


def inverse_softplus(x: Array) -> Array:
    """ln(eˣ − 1) without overflow: x + ln(1 − e⁻ˣ)."""
    return x + jnp.log(-jnp.expm1(-x))


def _outputs(raw: ArrayLike, width: int, needs: str) -> Array:
    (raw,) = floats(raw=raw)
    if raw.shape[-1:] != (width,):
        raise ValueError(f"{needs} {width} raw outputs; got shape {raw.shape}")
    return raw


def _bounded_exp(p: Array) -> Array:
    return jnp.exp(jnp.clip(p, -LOG_DIAGONAL_BOUND, LOG_DIAGONAL_BOUND))


def _tril_with_exp(entries: Array, n: int, relative: bool = False) -> Array:
    if n > linalg.ENTRYWISE:
        matrix = linalg.unpack_tril(entries, n)
        diagonal = _bounded_exp(linalg.diagonal(matrix))[..., None]
        return jnp.where(linalg.on_diagonal(matrix), diagonal, matrix * diagonal if relative else matrix)
    packed = linalg.split_last(entries)
    for j in range(n):
        first, last = linalg.tril_size(j), linalg.tril_size(j + 1) - 1
        packed[last] = _bounded_exp(packed[last])
        if relative:
            packed[first:last] = [entry * packed[last] for entry in packed[first:last]]
    return linalg.join_tril(packed, n)


def _tril_with_log(L: Array, relative: bool = False) -> Array:
    diagonal = linalg.diagonal(L)[..., None]
    return linalg.pack_tril(jnp.where(linalg.on_diagonal(L), jnp.log(diagonal), L / diagonal if relative else L))


def nig_link(raw: ArrayLike, n: int | None = None, floor: float = 1e-6) -> NIG:
    """Amini's link: μ₀ = p₁, κ = softplus p₂, α = 1 + softplus p₃, β = softplus p₄, κ and β at least `floor`.

    Args:
      raw: (..., 4) for one target; with n given (..., 4 n), the n values of μ₀ first, then of κ, α and β.
      n: number of independent targets; fields then have shape (..., n). None: fields have shape (...).
      floor: smallest κ and β.

    Example:
      >>> print(f"{nig_link(jnp.zeros(4)).alpha:.4f}")
      1.6931
    """
    floor = plain_number("floor", floor)
    if not 0 <= floor <= 1e30:
        raise ValueError(f"floor must be a number from 0 to 1e30; got {floor:g}")
    count, needs = (1, "one target needs") if n is None else (integer("n", n), f"n = {n} targets need")
    raw = _outputs(raw, 4 * count, needs)
    mu, kappa, alpha, beta = jnp.split(raw, 4, axis=-1) if n else [raw[..., i] for i in range(4)]
    kappa, beta = (jnp.maximum(jax.nn.softplus(p), floor) for p in (kappa, beta))
    return NIG(mu, kappa, 1 + jnp.maximum(jax.nn.softplus(alpha), jnp.finfo(raw.dtype).eps), beta)


def inverse_nig_link(nig: NIG, n: int | None = None) -> Array:
    """The raw outputs (..., 4), or with n (..., 4 n), that `nig_link` with the same n turns into this NIG; for α > 1.

    Example:
      >>> raw = inverse_nig_link(NIG(mu=1.0, kappa=2.0, alpha=3.0, beta=4.0))
      >>> nig = nig_link(raw)
      >>> print(raw.shape, f"{nig.mu:.4f} {nig.kappa:.4f} {nig.alpha:.4f} {nig.beta:.4f}")
      (4,) 1.0000 2.0000 3.0000 4.0000
    """
    check_type("nig", nig, NIG)
    check_above("alpha", nig.alpha, 1, "the link's range")
    if n is not None and nig.mu.shape[-1:] != (integer("n", n),):
        raise ValueError(f"a NIG of n = {n} targets has shape (..., {n}); got {nig.mu.shape}")
    parts = [nig.mu, inverse_softplus(nig.kappa), inverse_softplus(nig.alpha - 1), inverse_softplus(nig.beta)]
    return jnp.concatenate(parts, axis=-1) if n else jnp.stack(parts, axis=-1)


def gaussian_link(raw: ArrayLike, n: int, full: bool = True, relative: bool = False) -> StudentT:
    """A Gaussian (the `StudentT` with df = ∞) from raw outputs: n of the mean, then the rows of the Cholesky factor.

    Args:
      raw: (..., n(n+3)/2), or (..., 2 n) without correlations.
      n: number of targets.
      full: False for a diagonal factor, the exponentials of the last n outputs.
      relative: as in `niw_link`.

    Example:
      >>> print(gaussian_link(jnp.zeros(5), n=2).scale_tril)
      [[1. 0.]
       [0. 1.]]
    """
    raw = _outputs(raw, num_outputs(n) - 1 if full else 2 * integer("n", n), f"n = {n} targets need")
    mean, rest = raw[..., :n], raw[..., n:]
    tril = _tril_with_exp(rest, n, relative) if full else linalg.diagonal_matrix(_bounded_exp(rest))
    return StudentT(jnp.inf, mean, tril)


def inverse_gaussian_link(gaussian: StudentT, full: bool = True, relative: bool = False) -> Array:
    """The raw outputs (..., n(n+3)/2) or (..., 2 n) that `gaussian_link` with the same options turns into it.

    Example:
      >>> gaussian = StudentT(df=jnp.inf, loc=jnp.array([3.0, 4.0]), scale_tril=jnp.array([[1.0, 0.0], [2.0, 1.0]]))
      >>> print(inverse_gaussian_link(gaussian))  # the mean, ln L₁₁, L₂₁, ln L₂₂
      [3. 4. 0. 2. 0.]
    """
    check_type("gaussian", gaussian, StudentT)
    L = gaussian.scale_tril
    tail = _tril_with_log(L, relative) if full else jnp.log(linalg.diagonal(L))
    return jnp.concatenate([gaussian.loc, tail], axis=-1)
