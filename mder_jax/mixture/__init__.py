r"""The predictive of an ensemble: the mixture of its members' Student-t distributions, equally weighted or not.

.. math:: p(y) = \sum_{i=1}^M w_i\, t_{m_i}(y | \mathrm{loc}_i, S_i), \quad w_i = \frac1M

It is a mixture of distributions; the parameters of the members are never averaged.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from mder_jax import _arguments, _checks, linalg, niw, special
from mder_jax._pytree import pytree, set_fields
from mder_jax.mixture import _ellipsoid
from mder_jax.nig import NIG
from mder_jax.niw import NIW
from mder_jax.student_t import Interval, StudentT

__all__ = ["Mixture"]


def _one_program(method: "Callable[[Mixture], Array]") -> "Callable[[Mixture], Array]":
    """The method compiled as a whole: without that, JAX compiles each of its operations for every new shape."""
    compiled = jax.jit(method)

    @functools.wraps(method)
    def call(self: "Mixture") -> Array:
        return compiled(self)

    return call


@pytree
class Mixture:
    r"""Mixture of M Student-t distributions, :math:`p(y) = \sum_i w_i t_{m_i}(y)`, with equal weights unless told.

    Its covariance, by the law of total covariance, is the sum of three parts (E[Σ] and var[μ] as in Meinert & Lavin):

    ===================  ==========================================================  ==============================
    method               formula                                                     for StudentT members
    ===================  ==========================================================  ==============================
    `aleatoric`          mean over members of E[Σ]                                   mean of their covariances
    `epistemic_within`   mean over members of var[μ] = E[Σ]/κ                        0
    `epistemic_between`  covariance of the members' means, Σ (μ_i − μ̄)(μ_i − μ̄)ᵀ/M   the same
    ===================  ==========================================================  ==============================

    Args:
      members: a `NIW`, of which the predictive t is taken, or a `StudentT` (df = ∞ for Gaussians), with batch shape
        (M, ...): the first batch axis counts the members, M ≥ 1, and the others are the batch of the mixture.
      log_weights: ln w_i up to a constant, (M,) or (M, ...), −∞ for a member that does not count; None for equal ones.
        Means over members are then weighted.

    Example:
      >>> apart = NIW(mu=jnp.array([[-3.0], [3.0]]), L=jnp.ones((2, 1, 1)), kappa=4.0, nu=4.0)
      >>> mixture = Mixture(apart)
      >>> print(mixture.size, mixture.n, mixture.batch_shape)
      2 1 ()
      >>> parts = mixture.aleatoric(), mixture.epistemic_within(), mixture.epistemic_between(), mixture.total()
      >>> print(*[f"{part[0, 0]:.1f}" for part in parts])
      2.0 0.5 9.0 11.5
      >>> print(f"{mixture.ppf(0.75)[0]:.4f}")  # the median of the upper one, but for the tail of the lower
      3.0086
    """

    members: NIW | StudentT
    log_weights: Array | None

    def __init__(self, members: NIW | StudentT, log_weights: ArrayLike | None = None) -> None:
        if isinstance(members, NIG):
            raise TypeError("members are a NIW or a StudentT; convert a NIG with to_niw, one target at a time")
        if not isinstance(members, NIW | StudentT):
            raise TypeError(
                f"members are one NIW or StudentT with batch shape (M, ...); got {type(members).__name__}"
                " (several are stacked by jax.tree.map(lambda *leaves: jnp.stack(leaves), *members))"
            )
        if not members.batch_shape or members.batch_shape[0] == 0:
            raise ValueError(f"members must have batch shape (M, ...) with M >= 1; got {members.batch_shape}")
        if log_weights is not None:
            members, (log_weights,) = _checks.floats_with(members, log_weights=log_weights)
            log_weights = _normalised(log_weights, members.batch_shape)
        set_fields(self, members=members, log_weights=log_weights)

    @property
    def n(self) -> int:
        """Number of targets."""
        return self.members.n

    @property
    def size(self) -> int:
        """Number of members M."""
        return self.members.batch_shape[0]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """All axes but the members' and the target's."""
        return self.members.batch_shape[1:]

    def components(self) -> StudentT:
        """The members' predictive t distributions, batch shape (M, ...).

        Example:
          >>> mixture = Mixture(NIW(mu=jnp.array([[-3.0], [3.0]]), L=jnp.ones((2, 1, 1)), kappa=4.0, nu=4.0))
          >>> print(mixture.components().batch_shape, mixture.components().df)
          (2,) [4. 4.]
        """
        return self.members if isinstance(self.members, StudentT) else _predictive(self.members)

    def member(self, i: int) -> StudentT:
        """The predictive t of member i, batch shape (...); negative numbers count from the end.

        Example:
          >>> mixture = Mixture(NIW(mu=jnp.array([[-3.0], [3.0]]), L=jnp.ones((2, 1, 1)), kappa=4.0, nu=4.0))
          >>> print(mixture.member(0).loc, mixture.member(-1).loc)
          [-3.] [3.]
        """
        number = _arguments.integer("i", i, least=-(1 << 31))
        if not -self.size <= number < self.size:
            raise IndexError(f"members are numbered 0 to {self.size - 1}; got {number}")
        return jax.tree.map(lambda leaf: leaf[number], self.components())

    def log_prob(self, y: ArrayLike, missing: bool = False) -> Array:
        """ln p(y) = ln Σ_i w_i t_i(y), (..., n) -> (...); y may have more batch axes in front.

        With `missing` a NaN in y is a target that was not observed, and p the density of the others. A member so far
        from y that its distance overflows has density 0.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-90.0], [90.0]]), jnp.ones((2, 1, 1))))
          >>> print(f"{mixture.log_prob(jnp.array([90.0])):.4f}")  # half a Gaussian: -½ ln 2π - ln 2
          -1.6121
        """
        (y,) = _checks.floats(y=y)
        return _log_prob(self.components(), self.log_weights, y, bool(missing))

    @_one_program
    def mean(self) -> Array:
        """E[y] = μ̄, the mean of the members' means, (..., n); infinite where one of them has df ≤ 1.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.mean())
          [0.]
        """
        return weighted_mean(self.components().mean(), self.log_weights, event=1)

    @_one_program
    def aleatoric(self) -> Array:
        """Mean over members of E[Σ], or of the covariances of StudentT members, (..., n, n).

        A member with ν close to n + 1 has a large E[Σ] = ν/(ν − n − 1) L Lᵀ, which can dominate the mean.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.aleatoric())
          [[16.]]
        """
        own = self.members.covariance() if isinstance(self.members, StudentT) else niw.aleatoric(self.members)
        return weighted_mean(own, self.log_weights, event=2)

    @_one_program
    def epistemic_within(self) -> Array:
        """Mean over members of var[μ] = E[Σ]/κ, (..., n, n): each member's uncertainty about its mean; 0 for StudentT.

        Example:
          >>> mixture = Mixture(NIW(mu=jnp.array([[-3.0], [3.0]]), L=jnp.ones((2, 1, 1)), kappa=4.0, nu=4.0))
          >>> print(mixture.epistemic_within())  # E[Σ]/κ = 2/4
          [[0.5]]
        """
        if isinstance(self.members, StudentT):
            return jnp.zeros_like(self.members.scale_tril[0])
        return weighted_mean(niw.epistemic(self.members), self.log_weights, event=2)

    @_one_program
    def epistemic_between(self) -> Array:
        """Σ_i w_i (μ_i − μ̄)(μ_i − μ̄)ᵀ, (..., n, n): the disagreement of the members; 0 for M = 1.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.epistemic_between())  # (3² + 3²)/2
          [[9.]]
        """
        apart = from_centre(self.components().mean(), self.log_weights)
        return weighted_mean(apart[..., :, None] * apart[..., None, :], self.log_weights, event=2)

    @_one_program
    def epistemic(self) -> Array:
        """`epistemic_within` + `epistemic_between`, (..., n, n).

        Example:
          >>> mixture = Mixture(NIW(mu=jnp.array([[-3.0], [3.0]]), L=jnp.ones((2, 1, 1)), kappa=4.0, nu=4.0))
          >>> print(mixture.epistemic())  # 0.5 + 9
          [[9.5]]
        """
        return self.epistemic_within() + self.epistemic_between()

    @_one_program
    def total(self) -> Array:
        """Cov[y] = `aleatoric` + `epistemic`, (..., n, n); infinite or NaN where a member's covariance is.

        Example:
          >>> mixture = Mixture(NIW(mu=jnp.array([[-3.0], [3.0]]), L=jnp.ones((2, 1, 1)), kappa=4.0, nu=4.0))
          >>> print(mixture.total())  # 2 + 0.5 + 9
          [[11.5]]
        """
        return self.aleatoric() + self.epistemic()

    def covariance(self) -> Array:
        """Cov[y], the same as `total`, under the name it has in `StudentT`, (..., n, n).

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.covariance())  # 16 + 9
          [[25.]]
        """
        return self.total()

    @_one_program
    def std(self) -> Array:
        """√Cov[y]_jj, the standard deviation of each target, (..., n).

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.std())  # √(16 + 9)
          [5.]
        """
        return jnp.sqrt(linalg.diagonal(self.total()))

    def mahalanobis(self, y: ArrayLike) -> Array:
        """‖C⁻¹(y − μ̄)‖ with C Cᵀ = Cov[y], (..., n) -> (...): the distance in standard deviations, of all targets.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.mahalanobis(jnp.array([10.0])))  # 10/5
          2.0
        """
        mixture, (y,) = _checks.floats_with(self, y=y)
        return _mahalanobis(mixture, y)

    def region_radius(self, coverage: float, key: Array | None = None) -> Array:
        r"""The r for which `mahalanobis` ≤ r holds all targets at once with probability `coverage`, (...).

        Exact for one member. For more, 1 − coverage = mean over members of P(‖C⁻¹(Y − μ̄)‖ > r), each an integral of a
        moment generating function along a path in the complex plane: nothing is drawn, rows do not depend on each
        other, and 1 − coverage has a relative error below 1e-3, also in the far tail; in float32 only if members are
        less than a few hundred of their scales apart. `key` is not used; earlier versions drew from the mixture.

        Example:
          >>> one = Mixture(StudentT(df=jnp.inf, loc=jnp.zeros((1, 2)), scale_tril=jnp.eye(2)[None]))
          >>> print(f"{one.region_radius(0.9):.4f}")  # sqrt(-2 ln 0.1)
          2.1460
        """
        mixture, (tail,) = _checks.floats_with(self, tail=1 - _checks.probability("coverage", coverage))
        return _radius_of_tail(mixture, tail)

    def sample(self, key: Array, shape: int | Sequence[int] = ()) -> Array:
        """Draws of y, shape + (..., n): all targets of a draw come from one member, chosen with probability w_i.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-3.0], [3.0]]), jnp.full((2, 1, 1), 4.0)))
          >>> print(mixture.sample(jax.random.key(0), 100).shape)
          (100, 1)
        """
        return _sample(self, _checks.one_key(key), _checks.sample_shape(shape))

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y_j ≤ y_j) of each target alone, (..., n) -> (..., n); y may have more batch axes in front.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-90.0], [90.0]]), jnp.ones((2, 1, 1))))
          >>> print(mixture.cdf(jnp.array([-90.0])), mixture.cdf(jnp.zeros(1)))
          [0.25] [0.5]
        """
        (y,) = _checks.floats(y=y)
        return _cdf(self.components(), self.log_weights, y)

    def ppf(self, p: ArrayLike) -> Array:
        """The p-quantile of each target alone, (..., n), inverse of `cdf`; ±∞ at 0 and 1, NaN outside.

        p is a scalar or (..., n). If members are so far apart that every y between them has the `cdf` p, it is one of
        these y, and its derivatives are NaN.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-90.0], [90.0]]), jnp.ones((2, 1, 1))))
          >>> print(mixture.ppf(0.25).round())  # the median of the lower one
          [-90.]
        """
        t, (p,) = _checks.floats_with(self.components(), p=p)
        p = _checks.filled("p", p, t.loc.shape[1:], "one member's loc")
        return _ppf(t, self.log_weights, p)

    def quantiles(self, levels: ArrayLike) -> Array:
        """The `ppf` at several levels, (K,) -> (K, ..., n).

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-90.0], [90.0]]), jnp.ones((2, 1, 1))))
          >>> print(mixture.quantiles(jnp.array([0.25, 0.75])).round())
          [[-90.]
           [ 90.]]
        """
        _, (levels,) = _checks.floats_with(self.members, levels=levels)
        if levels.ndim != 1:
            raise ValueError(f"levels must have shape (K,); got {levels.shape}")
        return jax.vmap(self.ppf)(levels)

    def interval(self, coverage: float) -> Interval:
        """The `ppf` at (1 − coverage)/2 and (1 + coverage)/2, the central interval of each target, (..., n) twice.

        Example:
          >>> mixture = Mixture(StudentT(jnp.inf, jnp.array([[-90.0], [90.0]]), jnp.ones((2, 1, 1))))
          >>> lower, upper = mixture.interval(0.5)
          >>> print(lower.round(), upper.round())
          [-90.] [90.]
        """
        t, (tail,) = _checks.floats_with(self.components(), tail=1 - _checks.probability("coverage", coverage))
        return _interval(t, self.log_weights, tail)

    def conditional(self, targets: Sequence[int], values: ArrayLike) -> "Mixture":
        r"""The mixture of the other targets (in their order) given y[targets] = values, (..., len(targets)).

        Its members are the `StudentT.conditional` of the members, with weights in proportion to
        :math:`w_i t_i(y_b)`, the densities of what is given: a member that did not expect it counts less.

        Example:
          >>> loc = jnp.array([[-3.0, 0.0], [3.0, 1.0]])
          >>> mixture = Mixture(StudentT(jnp.inf, loc, jnp.broadcast_to(jnp.eye(2), (2, 2, 2))))
          >>> print(mixture.conditional([0], jnp.array([3.0])).mean().round(3))  # the second member is right
          [1.]
        """
        t, given = self.components(), _checks.check_index(targets, self.n)
        shape = (*self.batch_shape, len(given))
        t, values = _checks.matching(t, shape, "the batch and the given targets", values=values)
        repeated = jnp.broadcast_to(values[None], (self.size, *shape))
        expected = t.marginal(given).log_prob(repeated)
        weights = expected if self.log_weights is None else expected + self.log_weights.astype(expected.dtype)
        return Mixture(t.conditional(given, repeated), weights)


_predictive = jax.jit(niw.predictive)


@functools.partial(jax.jit, static_argnums=3)
def _log_prob(t: StudentT, log_weights: Array | None, y: Array, missing: bool) -> Array:
    """`Mixture.log_prob` of the members' t."""

    def of_member(t: StudentT) -> Array:
        value = t.log_prob(y, missing)
        valid = jnp.isfinite(jnp.sum(t.loc, axis=-1) + jnp.sum(t.scale_tril, axis=(-2, -1))) & ~jnp.isnan(t.df)
        given = jnp.bool_(True) if missing else ~jnp.any(jnp.isnan(y), axis=-1)
        valid, given = (jnp.broadcast_to(part, value.shape) for part in (valid, given))
        return jnp.where(jnp.isnan(value) & valid & given, -jnp.inf, value)  # the distance overflowed

    values = jax.vmap(of_member)(t)
    if log_weights is None:
        return logsumexp(values, axis=0) - math.log(t.batch_shape[0])
    return logsumexp(values + aligned_weights(log_weights, values.ndim), axis=0)


@jax.jit
def _mahalanobis(mixture: Mixture, y: Array) -> Array:
    return StudentT(jnp.inf, mixture.mean(), linalg.cholesky(mixture.total())).mahalanobis(y)


@functools.partial(jax.jit, static_argnums=2)
def _sample(mixture: Mixture, key: Array, shape: tuple[int, ...]) -> Array:
    """`Mixture.sample`."""
    batch = (*shape, *mixture.batch_shape)
    member_key, draw_key = jax.random.split(key)
    if mixture.log_weights is None:
        member = jax.random.randint(member_key, batch, 0, mixture.size)
    else:
        member = jax.random.categorical(member_key, mixture.log_weights, axis=0, shape=batch).astype(jnp.int32)
    row = [lax.broadcasted_iota(member.dtype, batch, axis) for axis in range(len(shape), len(batch))]
    drawn = jax.tree.map(lambda leaf: leaf[(member, *row)], mixture.components())
    return drawn.sample(draw_key)


@jax.jit
def _cdf(t: StudentT, log_weights: Array | None, y: Array) -> Array:
    return weighted_mean(jax.vmap(lambda t: t.cdf(y))(t), log_weights, event=1)


@jax.jit
def _ppf(t: StudentT, log_weights: Array | None, p: Array) -> Array:
    below = p < 0.5
    sign = jnp.where(below, -1.0, 1.0).astype(p.dtype)
    return _quantile(t, log_weights, jnp.where(below, p, 1 - p), sign)


@jax.jit
def _interval(t: StudentT, log_weights: Array | None, tail: Array) -> Interval:
    """The ends of each target's interval; one search finds both."""
    both, weights = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], axis=1), (t, log_weights))
    sign = jnp.array([-1, 1], tail.dtype).reshape(2, *[1] * (t.loc.ndim - 1))
    lower, upper = _quantile(both, weights, tail / 2, jnp.broadcast_to(sign, both.loc.shape[1:]))
    return Interval(lower, upper)


def _normalised(log_weights: Array, shape: tuple[int, ...]) -> Array:
    """ln w_i with Σ w_i = 1, (M,) or (M, ...) -> (M, ...)."""
    if log_weights.ndim == 1:
        log_weights = log_weights.reshape(-1, *[1] * (len(shape) - 1))
        _checks.check_same("log_weights", log_weights, (shape[0], *log_weights.shape[1:]), "one for each member")
    else:
        _checks.check_same("log_weights", log_weights, shape, "the batch of the members")
    largest = jnp.max(log_weights, axis=0)
    if _checks.is_concrete(largest) and not np.isfinite(largest).all():
        raise ValueError(f"log_weights must be finite, or -inf for some members; the largest is {largest}")
    return jnp.broadcast_to(log_weights - logsumexp(log_weights, axis=0, keepdims=True), shape)


def aligned_weights(log_weights: Array, rank: int, event: int = 0) -> Array:
    """ln w, (M, ...), with axes of size 1 after the first and, for the event, at the end, to a rank."""
    members, *batch = log_weights.shape
    return log_weights.reshape(members, *[1] * (rank - 1 - len(batch) - event), *batch, *[1] * event)


def weighted_mean(values: Array, log_weights: Array | None, event: int = 0) -> Array:
    """Σ_i w_i values_i, (M, ...) -> (...), of which the last axes are the event; a member of weight 0 has no effect."""
    if log_weights is None:
        return jnp.mean(values, axis=0)
    weights = jnp.exp(aligned_weights(log_weights, values.ndim, event)).astype(values.dtype)
    return jnp.sum(jnp.where(weights > 0, weights * values, 0.0), axis=0)


def as_mixture(prediction: StudentT | NIW | Mixture) -> Mixture:
    """A prediction of N rows as a mixture with batch shape (N,): of one member, unless it is a Mixture."""
    _arguments.check_type("prediction", prediction, StudentT, NIW, Mixture)
    if len(prediction.batch_shape) != 1:
        members = " and M members" if isinstance(prediction, Mixture) else ""
        wanted = "batch shape (N,), and the members of a Mixture (M, N)"
        raise ValueError(f"a prediction must have {wanted}; got {prediction.batch_shape}{members}")
    if isinstance(prediction, Mixture):
        return prediction
    return Mixture(_as_members(prediction))


@jax.jit
def _as_members(prediction: StudentT | NIW) -> StudentT | NIW:
    """A prediction as that of an ensemble of one."""
    return jax.tree.map(lambda leaf: leaf[None], prediction)


def from_centre(means: Array, log_weights: Array | None = None) -> Array:
    """μ_i − μ̄, (M, ..., n)."""
    apart = means - means[:1]  # first from one of them: exactly 0 if all are equal, and no digit lost if nearly
    if log_weights is None:
        return apart - jnp.mean(apart, axis=0, keepdims=True)
    return apart - weighted_mean(apart, log_weights, event=1)[None]


def radius_of_tail(mixture: Mixture, tail: Array) -> Array:
    """The r for which `mahalanobis` > r has this probability, (...): `region_radius` of 1 − tail."""
    tail = jnp.broadcast_to(tail, mixture.batch_shape)
    if mixture.size == 1:
        t = mixture.member(0)
        return special.radius_of_tail(tail, t.df, t.n) * jnp.sqrt(1 - 2 / t.df)
    return _ellipsoid.radius_of(tail, *_whitened(mixture))


_radius_of_tail = jax.jit(radius_of_tail)


def tail_of_radius(mixture: Mixture, radius: Array) -> Array:
    """P(`mahalanobis` > radius), (...) -> (...), the inverse of `radius_of_tail`."""
    if mixture.size == 1:
        t = mixture.member(0)
        return special.joint_tail(radius / jnp.sqrt(1 - 2 / t.df), t.df, t.n)
    return _ellipsoid.leaving(radius, *_whitened(mixture))


def _whitened(mixture: Mixture) -> tuple[Array, Array, Array, Array | None]:
    """B Bᵀ, a, df and ln w of the members a + B T, in units of the mixture's covariance around its mean."""
    t, C = mixture.components(), linalg.cholesky(mixture.total())
    C = jnp.broadcast_to(C, t.scale_tril.shape)
    B, a = linalg.whiten_columns(C, t.scale_tril), linalg.whiten(C, from_centre(t.loc, mixture.log_weights))
    return linalg.gram(B), a, t.df, mixture.log_weights


def points_of_tail(mixture: Mixture, tail: Array, sign: Array) -> Array:
    """The points with probability `tail` ≤ ½ above (sign 1) or below (−1) them, (K,) twice -> (K, ..., n)."""
    t = mixture.components()
    return jax.vmap(lambda tail, sign: _quantile(t, mixture.log_weights, tail, sign))(tail, sign)


def _quantile(t: StudentT, log_weights: Array | None, tail: Array, sign: Array) -> Array:
    """The point of each target with probability `tail` above it (sign 1) or below (sign −1), tail ≤ ½, (..., n)."""
    shape = t.loc.shape
    tail, sign = (jnp.broadcast_to(array, shape[1:]).reshape(-1) for array in (tail, sign))
    df = jnp.broadcast_to(t.df[..., None], shape)
    # Flat, since a long last axis is faster than one of n; jitted, since a loop called without jit is compiled anew.
    loc, scale, df = (array.reshape(shape[0], -1) for array in (t.loc, t.marginal_scale(), df))
    weights = None
    if log_weights is not None:
        weights = jnp.broadcast_to(jnp.exp(log_weights).astype(loc.dtype)[..., None], shape).reshape(loc.shape)
    return (sign * jax.jit(_point_of_tail)(tail, sign[None] * loc, scale, df, weights)).reshape(shape[1:])


def _distances(x: Array, loc: Array, scale: Array) -> tuple[Array, Array]:
    """Whether x lies below each loc, and how many scales away, (M, ...) both."""
    standard = (x[None] - loc) / scale
    below = standard < 0
    return below, jnp.where(below, -standard, standard)


def _excess(x: Array, tail: Array, loc: Array, scale: Array, df: Array, weights: Array | None) -> Array:
    """Σ_i (P(Y_i > x) − tail), (...): integers are added first, so that small tails are not lost at tail = k/M.

    With weights, which sum to 1, Σ_i w_i P(Y_i > x) − tail.
    """
    below, distance = _distances(x, loc, scale)
    half_tail = 0.5 * special.joint_tail(distance, df, 1)
    if weights is not None:
        whole = jnp.sum(jnp.where(below, weights, 0.0), axis=0) - tail
        return whole + jnp.sum(weights * jnp.where(below, -half_tail, half_tail), axis=0)
    whole = jnp.sum(below, axis=0).astype(tail.dtype) - loc.shape[0] * tail
    return whole + jnp.sum(jnp.where(below, -half_tail, half_tail), axis=0)


def _density(x: Array, loc: Array, scale: Array, df: Array, weights: Array | None) -> Array:
    """Σ_i of the members' densities at x, weighted if there are weights, (...)."""
    _, distance = _distances(x, loc, scale)
    own = 0.5 * jnp.exp(special.log_radial_density(distance, df, 1)) / scale
    return jnp.sum(own if weights is None else weights * own, axis=0)


def _middle(low: Array, high: Array, unit: Array) -> Array:
    """A point that halves a bracket: in x if it is narrow, in arcsinh(x / unit) if it spans orders of magnitude."""
    narrow = high - low <= unit + jnp.minimum(jnp.abs(low), jnp.abs(high))
    wide = unit * jnp.sinh(0.5 * (jnp.arcsinh(low / unit) + jnp.arcsinh(high / unit)))
    return jnp.where(narrow, low + 0.5 * (high - low), jnp.clip(wide, low, high))


@jax.custom_jvp
def _point_of_tail(tail: Array, loc: Array, scale: Array, df: Array, weights: Array | None) -> Array:
    """The x with Σ_i w_i P(loc_i + scale_i T_i > x) = tail ≤ ½, (...); loc, scale, df and weights are (M, ...).

    It lies between the least and the largest of the members' own. Newton in ln P; where a step is not half of the one
    before, the bracket is halved instead.
    """
    size, info = loc.shape[0] if weights is None else 1, jnp.finfo(loc.dtype)
    unit, resolved = jnp.max(scale, axis=0), jnp.min(scale, axis=0)
    own = loc + scale * special.radius_of_tail(jnp.broadcast_to(2 * tail[None], loc.shape), df, 1)
    least = jnp.min(own, axis=0)
    finite = 0.25 * float(info.max) * jnp.minimum(unit, 1.0)
    low, high = (jnp.clip(bound, -finite, finite) for bound in (least, jnp.max(own, axis=0)))

    def settled(x: Array, change: Array) -> Array:
        return ~(change > 2 * float(info.eps) * (jnp.abs(x) + resolved))

    def step(state: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        low, high, x, change, count = state
        excess = _excess(x, tail, loc, scale, df, weights)
        low, high = jnp.where(excess > 0, x, low), jnp.where(excess > 0, high, x)
        target = size * tail
        newton = x + jnp.log1p(excess / target) * (target + excess) / _density(x, loc, scale, df, weights)
        trusted = (newton >= low) & (newton <= high) & (jnp.abs(newton - x) <= 0.5 * change)
        following = jnp.where(trusted, newton, _middle(low, high, unit))
        done = settled(x, change)
        following, change = jnp.where(done, x, following), jnp.where(done, change, jnp.abs(following - x))
        return low, high, following, change, count + 1

    def unfinished(state: tuple[Array, Array, Array, Array, Array]) -> Array:
        *_, x, change, count = state
        return (count < 200) & ~jnp.all(settled(x, change))

    start = (low, high, _middle(low, high, unit), jnp.full_like(low, jnp.inf), jnp.zeros((), jnp.int32))
    x = lax.while_loop(unfinished, step, start)[2]
    return jnp.where(jnp.isfinite(least), x, least)


@_point_of_tail.defjvp
def _point_of_tail_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    x = _point_of_tail(*primals)
    _, along = jax.jvp(lambda *arguments: _excess(x, *arguments), primals, tangents)
    return x, along / _density(x, *primals[1:])
