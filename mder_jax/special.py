r"""Special functions JAX lacks: cdf and quantile of the Student-t and of the radius of a multivariate one.

The tail of the t is a sum of positive terms and an expansion around the Gaussian tail (`joint_tail`): relative
accuracy far out, any df from well below 1 to ∞, float32 and float64, differentiable in both arguments.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import erfc
from jax.typing import ArrayLike

from mder_jax._arguments import integer
from mder_jax._checks import check_above, common_batch, floats
from mder_jax._gamma import centred_log_gamma_ratio, half_step, is_double, log1p_ratio

__all__ = ["joint_pit", "joint_radius", "log_gamma_ratio", "t_cdf", "t_ppf"]

# (sinh w / w)^(-1/2) = Σ p_k w^(2k)
_SINH: tuple[float, ...] = (1.0, -1 / 12, 1 / 160, -61 / 120960, 1261 / 29030400, -79 / 20275200)
_SINH += (66643 / 185980354560, -16820653 / 502146957312000)


def log_radial_density(radius: Array, df: Array, n: int) -> Array:
    """ln of the density of R = ‖L⁻¹(y − loc)‖ without its factor R^(n-1), for a t in n dimensions."""
    squared = radius * radius
    constant = math.log(2) - math.lgamma(n / 2) - n / 2 * math.log(2)
    return constant + centred_log_gamma_ratio(df, n) - 0.5 * (1 + n / df) * squared * log1p_ratio(squared / df)


def _joint_tail_series(radius: Array, df: Array, n: int) -> Array:
    r"""P(R > radius) for R = ‖L⁻¹(y − loc)‖ of a t in n dimensions: I_x(m/2, n/2) at x = 1/(1 + radius²/m).

    The incomplete beta function is summed in b from 1 (even n) or ½ (odd n) to n/2; all terms are positive, so the
    far tail keeps its relative accuracy. b = ½ is the tail of the univariate t.
    """
    z = radius * radius / df
    power = jnp.exp(-0.5 * radius * radius * log1p_ratio(z))  # x^(m/2)
    if n % 2:
        total = _two_sided_tail(radius, df)
        term = power * jnp.exp(half_step(df)) * math.sqrt(2 / math.pi) * radius / jnp.sqrt(1 + z)
    else:
        total = jnp.zeros_like(power)
        term = power
    for j in range(n // 2):
        b = j + (n % 2) / 2
        total = total + term
        term = term * radius * radius * (0.5 + b / df) / ((1 + z) * (b + 1))
    return total


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def joint_tail(radius: Array, df: Array, n: int) -> Array:
    """P(R > radius) for R = ‖L⁻¹(y − loc)‖ of a t in n dimensions, differentiable in radius and df; NaN below 0."""
    inside = radius < _largest_radius(df)
    tail = jnp.minimum(_joint_tail_series(jnp.where(inside, radius, 1.0), df, n), 1.0)  # rounding may exceed 1
    return jnp.where(radius >= 0, jnp.where(inside, tail, 0.0), jnp.nan)


def _largest_radius(df: Array) -> Array:
    """Beyond it radius² or radius²/df overflows; the tail is taken to be 0 there, and no quantile lies there but ∞."""
    return 0.5 * math.sqrt(float(jnp.finfo(df.dtype).max)) * jnp.sqrt(jnp.minimum(df, 1.0))


@joint_tail.defjvp
def _joint_tail_jvp(n: int, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (radius, df), (d_radius, d_df) = primals, tangents
    # Only the df direction goes through the series; the radius has the density in closed form.
    inside = (radius >= 0) & (radius < _largest_radius(df))
    radius = jnp.where(inside, radius, 1.0)
    _, along_df = jax.jvp(lambda m: _joint_tail_series(radius, m, n), (df,), (d_df,))
    density = jnp.exp(log_radial_density(radius, df, n)) * radius ** (n - 1)
    return joint_tail(primals[0], df, n), jnp.where(inside, along_df - density * d_radius, 0.0)


def _two_sided_tail(t: Array, m: Array) -> Array:
    r"""P(|T_m| > t) = I_x(m/2, ½) for t ≥ 0.

    I_x(a, ½) = I_x(a + K, ½) + Σ_{k<K} x^(a+k) (1−x)^½ / ((a+k) B(a+k, ½)) lifts a until the expansion of
    (sinh w / w)^(−½) under the integral, whose terms are incomplete gamma functions, is exact to rounding.
    """
    lift, terms = (15, 8) if is_double(t) else (8, 4)
    z = t * t / m
    ratio = log1p_ratio(z)
    term = jnp.exp(half_step(m) - 0.5 * t * t * ratio) * t / jnp.sqrt(1 + z) * math.sqrt(2 / math.pi) / m
    total = jnp.zeros_like(term)
    for k in range(lift):
        total = total + term
        term = term * (1 - 1 / (m + 2 * k + 2)) / (1 + z)

    lifted = m + 2 * lift
    root = t * jnp.sqrt((0.5 + (lift - 0.25) / m) * ratio)  # u = root² = (a + K - ¼) ln(1 + z)
    u = root * root
    step = 1 / (lifted - 0.5)  # 1 / (2 (a + K - ¼))
    gamma = math.sqrt(math.pi) * erfc(root)  # Γ(½ + 2k, u) step^2k
    edge = root * jnp.exp(-u)  # u^(½ + 2k) e^-u step^2k
    series = jnp.zeros_like(gamma)
    for k, coefficient in enumerate(_SINH[:terms]):
        series = series + coefficient * gamma
        gamma = ((2 * k + 1.5) * (2 * k + 0.5) * gamma + (2 * k + 1.5 + u) * edge) * step * step
        edge = edge * (u * step) ** 2
    return total + jnp.exp(half_step(lifted)) / jnp.sqrt(math.pi * (1 - 0.5 / lifted)) * series


@partial(jax.custom_jvp, nondiff_argnums=(2,))
@partial(jax.jit, static_argnums=2)  # a loop called without jit is compiled anew each time
def radius_of_tail(tail: Array, df: Array, n: int) -> Array:
    """The radius whose `joint_tail` is the given probability: Newton in ln radius inside a shrinking bracket."""
    target = jnp.log(tail)
    limit = jnp.broadcast_to(jnp.log(_largest_radius(df)), target.shape)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, x, _, count = state
        radius = jnp.exp(x)
        value = joint_tail(radius, df, n)
        gap = jnp.log(value) - target
        low, high = jnp.where(gap > 0, x, low), jnp.where(gap > 0, high, x)
        slope = jnp.exp(log_radial_density(radius, df, n) + n * x) / value
        newton = x + gap / slope
        following = jnp.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        return low, high, following, jnp.abs(following - x), count + 1

    def unfinished(state: tuple[Array, ...]) -> Array:
        *_, change, count = state
        return (count < 100) & jnp.any(change > 4 * jnp.finfo(tail.dtype).eps)

    start = jnp.full_like(target, 0.5 * math.log(n))
    state: tuple[Array, ...] = (-limit, limit, start, jnp.full_like(target, jnp.inf), jnp.zeros((), jnp.int32))
    log_radius = lax.while_loop(unfinished, step, state)[2]
    radius = jnp.where(log_radius > limit - 0.01, jnp.inf, jnp.exp(log_radius))
    radius = jnp.where(tail >= 1, 0.0, jnp.where(tail > 0, radius, jnp.inf))
    return jnp.where((tail >= 0) & (tail <= 1), radius, jnp.nan)


@radius_of_tail.defjvp
def _radius_of_tail_jvp(n: int, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (tail, df), (d_tail, d_df) = primals, tangents
    radius = radius_of_tail(tail, df, n)
    _, along_df = jax.jvp(lambda m: joint_tail(radius, m, n), (df,), (d_df,))
    density = jnp.exp(log_radial_density(radius, df, n)) * radius ** (n - 1)
    return radius, (along_df - d_tail) / density


def _aligned(**values: ArrayLike) -> list[Array]:
    """The arguments, one of them df, as floats in their common batch shape; an error unless df is positive."""
    arrays = dict(zip(values, floats(**values), strict=True))
    check_above("df", arrays["df"], 0, "degrees of freedom")
    batch = common_batch(**{name: array.shape for name, array in arrays.items()})
    return [jnp.broadcast_to(array, batch) for array in arrays.values()]


def log_gamma_ratio(x: ArrayLike, n: int) -> Array:
    r"""lnΓ(x + n/2) − lnΓ(x) for x > 0 and an integer n ≥ 0, (...) -> (...), without the cancellation of two `gammaln`.

    Example:
      >>> print(f"{log_gamma_ratio(1e6, 2):.4f}")  # Γ(x + 1)/Γ(x) = x
      13.8155
    """
    (x,) = floats(x=x)
    check_above("x", x, 0, "the gamma function is taken there")
    n = integer("n", n, least=0)
    return centred_log_gamma_ratio(2 * x, n) + 0.5 * n * jnp.log(x)


def t_cdf(t: ArrayLike, df: ArrayLike) -> Array:
    """P(T ≤ t) for a Student-t with df degrees of freedom, differentiable in t and df, (...) -> (...).

    t and df have one shape, or one is a scalar; df = ∞ is the normal.

    Example:
      >>> print(t_cdf(jnp.array([0.0, 1.0]), 1.0).round(4))  # df = 1: ½ + arctan(t)/π
      [0.5  0.75]
    """
    t, df = _aligned(t=t, df=df)
    above = t >= 0
    half_tail = 0.5 * joint_tail(jnp.where(above, t, -t), df, 1)
    return jnp.where(jnp.isnan(df), jnp.nan, jnp.where(above, 1 - half_tail, half_tail))


def t_ppf(p: ArrayLike, df: ArrayLike) -> Array:
    """The t with P(T ≤ t) = p, inverse of `t_cdf`, differentiable in p and df, (...) -> (...).

    p and df have one shape, or one is a scalar; ±∞ at p = 0 and 1, NaN outside.

    Example:
      >>> print(f"{t_ppf(0.975, jnp.inf):.2f}")
      1.96
    """
    p, df = _aligned(p=p, df=df)
    below = p < 0.5
    radius = radius_of_tail(2 * jnp.where(below, p, 1 - p), df, 1)
    return jnp.where(below, -radius, radius)


def joint_pit(radius: ArrayLike, df: ArrayLike, n: int) -> Array:
    """P(R ≤ radius) for R = ‖L⁻¹(y − loc)‖ of an n-variate t, (...) -> (...): uniform on [0, 1] if y follows the t.

    R²/n follows Fisher's F with (n, df) degrees of freedom.

    Example:
      >>> print(f"{joint_pit(1.0, jnp.inf, 2):.4f}")  # 1 - exp(-1/2)
      0.3935
    """
    radius, df = _aligned(radius=radius, df=df)
    return 1 - joint_tail(radius, df, integer("n", n))


def joint_radius(coverage: ArrayLike, df: ArrayLike, n: int) -> Array:
    """The radius with P(R ≤ radius) = coverage, R = ‖L⁻¹(y − loc)‖ of an n-variate t, (...) -> (...).

    The ellipsoid ‖L⁻¹(y − loc)‖ ≤ radius holds y with that probability; inverse of `joint_pit`.

    Example:
      >>> print(f"{joint_radius(0.9, jnp.inf, 2):.4f}")  # sqrt(-2 ln 0.1)
      2.1460
    """
    coverage, df = _aligned(coverage=coverage, df=df)
    return radius_of_tail(1 - coverage, df, integer("n", n))
