r"""Logarithms and gamma functions of the Student-t without cancellation, so that m = ∞ is the Gaussian, not a NaN.

* :math:`m \ln(1 + δ/m) = δ\,ρ(δ/m)` with :math:`ρ(z) = \ln(1+z)/z`, which is 1 at z = 0 (`log1p_ratio`);
* :math:`\lnΓ(\tfrac{m+n}2) - \lnΓ(\tfrac m2) = \tfrac n2 \ln\tfrac m2 + A_n(m)` with :math:`A_n(∞) = 0`
  (`centred_log_gamma_ratio`), a sum of a few logarithms instead of a difference of two huge numbers.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

# h(m) = Σ (1 - 4^k) B_2k / (2k (2k-1)) m^(1-2k)
_HALF_STEP = (-1 / 4, 1 / 24, -1 / 20, 17 / 112, -31 / 36, 691 / 88, -5461 / 52, 929569 / 480)
# Stirling's remainder Σ B_2k / (2k (2k-1)) x^(1-2k)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def is_double(x: Array) -> bool:
    """Whether the series need the terms of double precision."""
    return x.dtype == jnp.float64


def _odd_powers(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Σ c_k x^(1-2k) for k = 1, 2, ..."""
    w = 1 / x  # not 1/x², whose derivative is 0·∞ at x = ∞
    return jnp.polyval(jnp.asarray(coefficients[::-1], x.dtype), w * w) * w


@jax.custom_jvp
def log1p_ratio(z: Array) -> Array:
    r"""ρ(z) = ln(1 + z)/z for z ≥ 0, with ρ(0) = 1; value and derivative are accurate to rounding at every z.

    Below ½ by ln(1+z) = 2 atanh(s), s = z/(2+z): ρ = 2 (1 + s² T(s²))/(2+z), which is also faster than `log1p`.
    """
    small, near, far = _split_at_half(z)
    inverse, s, tail = _atanh_series(near)
    return jnp.where(small, 2 * (1 + s * s * tail) * inverse, jnp.log(1 + far) / far)


def _split_at_half(z: Array) -> tuple[Array, Array, Array]:
    small = z < 0.5
    return small, jnp.where(small, z, 0.0), jnp.where(small, 1.0, z)


def _atanh_series(z: Array) -> tuple[Array, Array, Array]:
    """1/(2+z), s = z/(2+z), and T = 1/3 + s²/5 + s⁴/7 + ..., so that atanh(s) = s + s³ T."""
    inverse, terms = 1 / (2 + z), 12 if is_double(z) else 6
    s = z * inverse
    return inverse, s, jnp.polyval(jnp.asarray([1 / (2 * k + 3) for k in reversed(range(terms))], z.dtype), s * s)


def log1p_ratio_slope(z: Array) -> Array:
    """ρ'(z) = (1/(1+z) − ρ(z))/z, which is −½ at z = 0; below ½ by the series, where the difference would cancel."""
    small, near, far = _split_at_half(z)
    inverse, s, tail = _atanh_series(near)
    series = -inverse * (1 / (1 + near) + 2 * s * tail * inverse)
    inverse = 1 / far
    return jnp.where(small, series, (1 / (1 + far) - jnp.log(1 + far) * inverse) * inverse)


log1p_ratio.defjvp(lambda z, dz: (log1p_ratio(*z), log1p_ratio_slope(*z) * dz[0]))


def half_step(m: Array) -> Array:
    r"""h(m) = lnΓ((m+1)/2) − lnΓ(m/2) − ½ ln(m/2) = ½ Σ_j ln(1 − 1/(m+1+2j)²), which is 0 at m = ∞.

    The first factors of the product are taken as they stand, the rest by its asymptotic series.
    """
    factors, terms = (12, 8) if is_double(m) else (4, 4)
    first = jnp.log1p(1 / (m + 1)) - jnp.log1p(1 / m)  # ln(1 - 1/(m+1)²) without cancellation as m -> 0
    deficit = jnp.zeros_like(m)  # Π(1 - a_j) - 1
    for j in range(1, factors):
        w = 1 / (m + 1 + 2 * j)
        deficit = deficit - (1 + deficit) * w * w
    return 0.5 * (first + jnp.log1p(deficit)) + _odd_powers(m + 2 * factors, _HALF_STEP[:terms])


def centred_log_gamma_ratio(m: Array, n: int) -> Array:
    r"""A_n(m) = lnΓ((m+n)/2) − lnΓ(m/2) − (n/2) ln(m/2), which is 0 at m = ∞, for an integer n ≥ 0.

    For even n it is Σ ln(1 + 2k/m) over 0 < k < n/2. For odd n one half step is left, taken at m + n − 1.
    """
    total = jnp.zeros_like(m)
    even = n - n % 2
    inverse = 1 / m
    for k in range(2, even, 4):  # two factors to a logarithm: (1 + a)(1 + b) = 1 + (a + b + ab)
        a, b = k * inverse, (k + 2) * inverse
        total = total + jnp.log1p(a + b + a * b if k + 2 < even else a)
    if n % 2:
        total = total + half_step(m + even) + 0.5 * jnp.log1p(even * inverse)
    return total


def centred_log_gamma_ratio_counted(m: Array, count: Array, n: int) -> Array:
    """`centred_log_gamma_ratio(m, count)` for an array of counts between 0 and n: A_{c+2} = A_c + ln(1 + c/m)."""
    odd = count % 2 == 1
    total = jnp.where(odd, half_step(m), 0.0)
    for c in range(1, n - 1):
        taken = (count >= c + 2) & (odd == (c % 2 == 1))
        total = total + jnp.where(taken, jnp.log1p(c / m), 0.0)
    return total


def stirling_remainder(x: Array) -> Array:
    r"""R(x) = lnΓ(x) − (x − ½) ln x + x − ½ ln 2π, which falls as 1/(12 x)."""
    large = x > 8
    far = jnp.where(large, x, 9.0)
    near = jnp.where(large, 1.0, x)
    direct = gammaln(near) - (near - 0.5) * jnp.log(near) + near - 0.5 * math.log(2 * math.pi)
    return jnp.where(large, _odd_powers(far, _STIRLING if is_double(x) else _STIRLING[:4]), direct)


def digamma_minus_log(x: Array) -> Array:
    """ψ(x) − ln x, which falls as −1/(2x)."""
    _, slope = jax.jvp(stirling_remainder, (x,), (jnp.ones_like(x),))
    return slope - 0.5 / x
