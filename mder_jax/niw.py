r"""The Normal-Inverse-Wishart prior and its closed forms.

.. math:: Σ \sim \mathcal W^{-1}(Ψ, ν), \qquad μ | Σ \sim \mathcal N(μ_0, Σ/κ), \qquad Ψ = ν Σ_0, \quad Σ_0 = L L^\top
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from mder_jax import _arguments, _checks, _gamma, linalg
from mder_jax._pytree import pytree, set_fields
from mder_jax.student_t import StudentT, entropy_above_gaussian, log_density, moment_or_undefined

__all__ = ["NIW", "Draw", "aleatoric", "couple", "epistemic", "log_evidence", "log_prob", "marginal"]
__all__ += ["mutual_information", "posterior", "predictive", "sample", "total_evidence"]

Definition = Literal["amini2020", "meinert2021", "meinert2023"]


@pytree
class NIW:
    """Normal-Inverse-Wishart distribution of (μ, Σ), eq:niw; a pytree of four arrays.

    Args:
      mu: location μ₀, (..., n).
      L: lower-triangular factor of Σ₀ = L Lᵀ, (..., n, n), positive diagonal. Ψ = ν Σ₀.
      kappa: virtual observations of the mean, κ > 0, (...); a scalar serves the whole batch.
      nu: virtual observations of the covariance, ν > n − 1, (...) or scalar; moments need ν > n + 1.

    Example:
      >>> niw = NIW(mu=jnp.zeros((3, 2)), L=jnp.broadcast_to(jnp.eye(2), (3, 2, 2)), kappa=4.0, nu=8.0)
      >>> print(niw.n, niw.batch_shape, niw.nu)
      2 (3,) [8. 8. 8.]
    """

    mu: Array
    L: Array
    kappa: Array
    nu: Array

    def __init__(self, mu: ArrayLike, L: ArrayLike, kappa: ArrayLike, nu: ArrayLike) -> None:
        mu, L, kappa, nu = _checks.floats(mu=mu, L=L, kappa=kappa, nu=nu)
        _checks.check_location("mu", mu, "L", L)
        *batch, n = mu.shape
        kappa = _checks.filled("kappa", kappa, tuple(batch), f"the batch of mu {mu.shape}")
        nu = _checks.filled("nu", nu, tuple(batch), f"the batch of mu {mu.shape}")
        _checks.check_above("nu", nu, n - 1, f"n - 1 for n = {n} targets")
        _checks.check_above("kappa", kappa, 0, "virtual observations of the mean")
        set_fields(self, mu=mu, L=L, kappa=kappa, nu=nu)

    @property
    def n(self) -> int:
        """Number of targets."""
        return self.mu.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """All axes but the target's."""
        return self.mu.shape[:-1]


class Draw(NamedTuple):
    """One draw from a NIW: `mu` (..., n) and `sigma`, the covariance Σ, (..., n, n).

    Example:
      >>> draws = sample(jax.random.key(0), NIW(mu=jnp.zeros(2), L=jnp.eye(2), kappa=4.0, nu=8.0), 100)
      >>> print(draws.mu.shape, draws.sigma.shape)
      (100, 2) (100, 2, 2)
    """

    mu: Array
    sigma: Array


def couple(mu: ArrayLike, L: ArrayLike, nu: ArrayLike, r: ArrayLike = 1.0) -> NIW:
    """The NIW with κ = ν / r, eq:kappanucoupling: r virtual observations of Σ for each one of μ; r (...) or a scalar.

    Example:
      >>> print(couple(jnp.zeros(2), jnp.eye(2), nu=8.0, r=2.0).kappa)
      4.0
    """
    nu, r, mu = _checks.floats(nu=nu, r=r, mu=mu)
    _checks.check_above("r", r, 0, "the coupling nu = r kappa")
    if r.ndim and nu.ndim:
        _checks.check_same("r", r, nu.shape, "nu")
    return NIW(mu, L, nu / r, nu)


def degrees_of_freedom(niw: NIW) -> Array:
    """ν − n + 1, of the predictive t, (...)."""
    return niw.nu - (niw.n - 1)


def _spread(niw: NIW) -> Array:
    """(1 + 1/κ) ν/(ν − n + 1), the factor on Σ₀ in the scale matrix of the predictive t, (...)."""
    return (1 + 1 / niw.kappa) * (1 + (niw.n - 1) / degrees_of_freedom(niw))


def predictive(niw: NIW) -> StudentT:
    r"""The distribution of one new y, eq:modev and eq:modev21: :math:`t_{ν-n+1}(μ_0, \frac{1}{ν-n+1} \frac{1+κ}{κ} Ψ)`.

    It is the integral eq:modev1 over (μ, Σ), done with eq:trick1 (for μ) and eq:trick2 (for Σ), whose densities
    integrate to one (eq:normnorm, eq:normiw).

    Example:
      >>> t = predictive(NIW(mu=jnp.zeros(2), L=jnp.eye(2), kappa=1.0, nu=2.0))
      >>> print(t.df, t.scale_tril[0, 0])  # the root of 1/1 · 2/1 · 2
      1.0 2.0
    """
    _arguments.check_type("niw", niw, NIW)
    return StudentT(degrees_of_freedom(niw), niw.mu, jnp.sqrt(_spread(niw))[..., None, None] * niw.L)


def log_evidence(niw: NIW, y: ArrayLike, form: Literal["stable", "slogdet"] = "stable", missing: bool = False) -> Array:
    r"""ln p(y | m), the log density of the predictive t with all constants, (..., n) -> (...): minus eq:nll.

    ``form="stable"`` uses eq:sylvester, :math:`|Ψ + c\,dd^\top| = |Ψ|(1 + c\,d^\top Ψ^{-1} d)`, and a gamma ratio
    without cancellation: with :math:`d = y - μ_0` and :math:`q = ‖L^{-1} d‖²`,

    .. math:: \lnΓ(\tfrac{ν+1}2) - \lnΓ(\tfrac{ν-n+1}2) - \tfrac n2 \ln\left(π ν \tfrac{1+κ}κ\right) - \sum_j \ln L_{jj}
              - \tfrac{ν+1}2 \ln\left(1 + \tfrac{κ}{1+κ} \tfrac qν\right)

    which is minus eq:nll2 and, before the logarithm, eq:modev22 with the determinants taken apart.

    ``form="slogdet"`` is eq:nll (eq:nll1) as printed, with `gammaln` and `slogdet`: the reference for the other.

    y may have more batch axes in front. With `missing` a NaN in it means "not observed", and is an error otherwise: the
    evidence is that of the observed targets, whose marginal t has the same degrees of freedom; a row of NaN gives 0.

    Example:
      >>> niw = couple(jnp.zeros(2), jnp.eye(2), nu=8.0)
      >>> print(f"{log_evidence(niw, jnp.array([0.5, -1.0])):.4f}")
      -2.6744
    """
    _arguments.check_type("niw", niw, NIW)
    _arguments.check_option("form", form, ("stable", "slogdet"))
    niw, y = _checks.aligned(niw, "mu", y=y)
    if not missing and _checks.is_concrete(y) and np.isnan(y).any():
        where = tuple(np.argwhere(np.isnan(y))[0].tolist())
        raise ValueError(f"y has a NaN at index {where}; pass missing=True if it means 'not observed'")
    d, observed = y - niw.mu, _checks.observed_in(y, missing)
    if form == "slogdet":
        return _log_evidence_slogdet(niw, d, observed)
    return log_density(niw.L, d, degrees_of_freedom(niw), _spread(niw), observed)


def _log_evidence_slogdet(niw: NIW, d: Array, observed: Array | None) -> Array:
    Psi = niw.nu[..., None, None] * linalg.gram(niw.L)
    nu, n = niw.nu, jnp.full_like(niw.nu, niw.n)
    if observed is not None:  # the marginal of the observed coordinates: n and ν both lose the missing ones
        both = observed[..., :, None] & observed[..., None, :]
        d, Psi = jnp.where(observed, d, 0.0), jnp.where(both, Psi, linalg.on_diagonal(Psi).astype(Psi.dtype))
        lost = jnp.sum(~observed, axis=-1).astype(nu.dtype)
        nu, n = nu - lost, n - lost
    shrink = niw.kappa / (1 + niw.kappa)
    updated = Psi + shrink[..., None, None] * d[..., :, None] * d[..., None, :]
    # One call for both determinants; see mder_jax.linalg on two LAPACK calls in one program.
    logdet, logdet_updated = jnp.linalg.slogdet(jnp.stack([Psi, updated]))[1]
    return (
        gammaln((nu + 1) / 2)
        - gammaln((nu - n + 1) / 2)
        - n / 2 * jnp.log(math.pi / shrink)
        + nu / 2 * logdet
        - (nu + 1) / 2 * logdet_updated
    )


def log_prob(niw: NIW, mu: ArrayLike, sigma: ArrayLike) -> Array:
    r"""ln NIW(μ, Σ), eq:niw: (..., n) and a covariance (..., n, n) -> (...).

    The normal part is eq:gauss (eq:gausstr with a trace). With Σ = C Cᵀ and W = C⁻¹L the inverse-Wishart part is
    −(ν/2)(‖W‖² − ln|WWᵀ| − n) − ½(n+1) ln|Σ| and a constant whose gamma functions are taken by Stirling's remainder,
    so that a large ν does not cancel.

    Example:
      >>> niw = NIW(mu=jnp.zeros(1), L=jnp.eye(1), kappa=1.0, nu=2.0)
      >>> print(f"{log_prob(niw, jnp.zeros(1), jnp.eye(1)):.4f}")  # ln N(0 | 0, 1) - 1
      -1.9189
    """
    _arguments.check_type("niw", niw, NIW)
    niw, (mu, sigma) = _checks.floats_with(niw, mu=mu, sigma=sigma)
    niw, mu = _checks.aligned(niw, "the NIW's mu", mu=mu)
    n, nu = niw.n, niw.nu
    _checks.check_same("sigma", sigma, (*mu.shape, n), "mu with one more axis")
    C = linalg.cholesky(sigma)
    half_logdet, q = linalg.log_determinant_and_distance(C, mu - niw.mu)
    normal = -0.5 * n * jnp.log(2 * math.pi / niw.kappa) - half_logdet - 0.5 * niw.kappa * q
    W = linalg.whiten_columns(C, niw.L)
    w = linalg.diagonal(W)
    stein = jnp.sum((w - 1) * (w + 1) - 2 * jnp.log(w), axis=-1) + jnp.sum(jnp.tril(W, -1) ** 2, axis=(-1, -2))
    return normal - 0.5 * nu * stein - (n + 1) * half_logdet - _wishart_constant(nu, n)


def _wishart_constant(nu: Array, n: int) -> Array:
    """lnΓ_n(ν/2) − (nν/2)(ln(ν/2) − 1), term by term without cancellation."""
    total = jnp.full_like(nu, n * (n - 1) / 4 * math.log(math.pi))
    for i in range(n):  # lnΓ(ν/2 - i/2) - (ν/2)(ln(ν/2) - 1)
        x = (nu - i) / 2
        slope = (x - 0.5) * jnp.log1p(-i / nu) - 0.5 * (i + 1) * jnp.log(nu / 2)
        total = total + slope + 0.5 * i + 0.5 * math.log(2 * math.pi) + _gamma.stirling_remainder(x)
    return total


def sample(key: Array, niw: NIW, shape: int | Sequence[int] = ()) -> Draw:
    """Draws Σ ~ W⁻¹(Ψ, ν) and μ ~ N(μ₀, Σ/κ), eq:niw, shape + (..., n, n) and shape + (..., n).

    By Bartlett's decomposition of the Wishart; ν must be finite.

    Example:
      >>> niw = NIW(mu=jnp.zeros(2), L=jnp.eye(2), kappa=4.0, nu=8.0)
      >>> mu, sigma = sample(jax.random.key(0), niw, 100)
      >>> print(mu.shape, sigma.shape)
      (100, 2) (100, 2, 2)
    """
    _arguments.check_type("niw", niw, NIW)
    n, dtype, batch = niw.n, niw.mu.dtype, (*_checks.sample_shape(shape), *niw.batch_shape)
    chi_key, normal_key, mean_key = jax.random.split(_checks.one_key(key), 3)
    df = jnp.broadcast_to(niw.nu[..., None], (*batch, n)) - jnp.arange(n, dtype=dtype).reshape((1,) * len(batch) + (n,))
    chi = jnp.sqrt(2 * jax.random.gamma(chi_key, df / 2, dtype=dtype))
    A = jnp.tril(jax.random.normal(normal_key, (*batch, n, n), dtype), -1) + linalg.diagonal_matrix(chi)
    root = jnp.broadcast_to(jnp.sqrt(niw.nu)[..., None, None] * niw.L, (*batch, n, n))
    B = jnp.swapaxes(linalg.whiten_columns(A, jnp.swapaxes(root, -1, -2)), -1, -2)  # Σ = B Bᵀ, B = L_Ψ A⁻ᵀ
    z = jax.random.normal(mean_key, (*batch, n), dtype) / jnp.sqrt(_checks.same_rank(niw.kappa, batch, 0))[..., None]
    return Draw(_checks.same_rank(niw.mu, batch, 1) + jnp.sum(B * z[..., None, :], axis=-1), linalg.gram(B))


def aleatoric(niw: NIW, definition: Definition = "meinert2021") -> Array:
    r"""E[Σ] = ν/(ν−n−1) L Lᵀ (App. C), the noise in y that more data do not remove; or another published definition.

    * "meinert2021": E[Σ] = ν/(ν−n−1) L Lᵀ, a covariance (..., n, n) with unit y² (Meinert & Lavin 2021).
    * "amini2020": E[σ_j²], its diagonal: variances (..., n) with unit y² (Amini et al. 2020).
    * "meinert2023": √S_jj, the width of the predictive t, (..., n) with unit y (Meinert et al. 2023).

    The first two are infinite on the diagonal, and undefined off it, for ν ≤ n + 1.

    Example:
      >>> niw = couple(jnp.zeros(2), jnp.eye(2), nu=9.0)
      >>> print(aleatoric(niw)[0, 0], aleatoric(niw, "amini2020"))  # 9/(9 − 3)
      1.5 [1.5 1.5]
    """
    _arguments.check_type("niw", niw, NIW)
    _arguments.check_option("definition", definition, get_args(Definition))
    if definition == "meinert2023":
        return predictive(niw).marginal_scale()
    # The variances are positive and so infinite, never undefined, where the mean does not exist.
    return _moment(niw, definition, jnp.ones_like(niw.nu), jnp.maximum(niw.nu - (niw.n + 1), -0.5))


def epistemic(niw: NIW, definition: Definition = "meinert2021") -> Array:
    r"""var[μ] = E[Σ]/κ (App. C), uncertainty about the mean, which more data remove; or another published definition.

    * "meinert2021": var[μ] = E[Σ]/κ = r E[Σ]/ν, a covariance (..., n, n) with unit y².
    * "amini2020": var[μ_j], its diagonal: variances (..., n) with unit y².
    * "meinert2023": 1/√κ, (...): relative to the noise, no unit.

    The first two are infinite on the diagonal for n < ν ≤ n + 1, and undefined below, where E[μ] is too.

    Example:
      >>> niw = couple(jnp.zeros(2), jnp.eye(2), nu=9.0, r=3.0)
      >>> print(epistemic(niw)[0, 0], epistemic(niw, "amini2020"))  # 1.5/3
      0.5 [0.5 0.5]
    """
    _arguments.check_type("niw", niw, NIW)
    _arguments.check_option("definition", definition, get_args(Definition))
    if definition == "meinert2023":
        return 1 / jnp.sqrt(niw.kappa)
    return _moment(niw, definition, niw.kappa, niw.nu - (niw.n + 1))


def _moment(niw: NIW, definition: str, divisor: Array, margin: Array) -> Array:
    """ν/(ν − n − 1) Σ₀ / divisor where it exists (see `moment_or_undefined`), or its diagonal."""
    factor = (1 + (niw.n + 1) / (niw.nu - (niw.n + 1))) / divisor
    covariance = moment_or_undefined(factor[..., None, None] * linalg.gram(niw.L), margin)
    return linalg.diagonal(covariance) if definition == "amini2020" else covariance


def posterior(niw: NIW, observations: ArrayLike) -> NIW:
    r"""The NIW after m observations (..., m, n), eq:postdens.

    .. math:: κ' = κ + m, \; ν' = ν + m, \; μ_0' = \frac{κ μ_0 + m \bar y}{κ + m}, \;
              Ψ' = Ψ + \sum_i (y_i - \bar y)(y_i - \bar y)^\top + \frac{κ m}{κ + m} (μ_0 - \bar y)(μ_0 - \bar y)^\top

    Location eq:postdens_mu, scale eq:postdens_var; ȳ is the average of the observations. Ψ' is never formed: its
    factor is that of the stacked rows.

    Example:
      >>> after = posterior(couple(jnp.zeros(2), jnp.eye(2), nu=3.0), jnp.ones((3, 2)))
      >>> print(after.nu, after.kappa, after.mu)  # halfway from μ₀ = 0 to the average 1
      6.0 6.0 [0.5 0.5]
    """
    _arguments.check_type("niw", niw, NIW)
    niw, (y,) = _checks.floats_with(niw, observations=observations)
    _checks.check_rank("observations", y, 2, "(..., m, n)")
    m = y.shape[-2]
    _checks.check_same("observations", y, (*niw.batch_shape, m, niw.n), f"m rows for the NIW's mu {niw.mu.shape}")
    if _checks.is_concrete(y) and np.isnan(y).any():
        raise ValueError("observations hold a NaN; the posterior given a partly observed row is not a NIW")
    if m == 0:
        return niw
    kappa, nu = niw.kappa + m, niw.nu + m
    average = jnp.mean(y, axis=-2)
    shift = jnp.sqrt(m / (1 + m / niw.kappa))[..., None] * (niw.mu - average)
    deviations = jnp.swapaxes(y - average[..., None, :], -1, -2)
    scatter = jnp.concatenate([deviations, shift[..., :, None]], axis=-1)
    prior = jnp.sqrt(1 - m / nu)[..., None, None] * niw.L  # √(ν/ν') L, also for ν = ∞
    L = linalg.triangularise(jnp.concatenate([prior, scatter / jnp.sqrt(nu)[..., None, None]], axis=-1))
    return NIW(niw.mu + (m / kappa)[..., None] * (average - niw.mu), L, kappa, nu)


def total_evidence(niw: NIW) -> Array:
    """Φ' = κ + ν, the total number of virtual observations (Sec. 2.1), (...).

    Example:
      >>> print(total_evidence(NIW(mu=jnp.zeros(2), L=jnp.eye(2), kappa=4.0, nu=8.0)))
      12.0
    """
    _arguments.check_type("niw", niw, NIW)
    return niw.kappa + niw.nu


def marginal(niw: NIW, targets: Sequence[int]) -> NIW:
    """The NIW of k targets, in the given order: their part of μ₀ (..., k) and of Ψ, same κ, and ν − (n − k).

    The degrees of freedom of the predictive t do not change.

    Example:
      >>> niw = couple(jnp.zeros(3), jnp.eye(3), nu=8.0)
      >>> print(marginal(niw, [0, 2]).nu, predictive(niw).df, predictive(marginal(niw, [0, 2])).df)
      7.0 6.0 6.0
    """
    _arguments.check_type("niw", niw, NIW)
    index = jnp.array(_checks.check_index(targets, niw.n))
    lost = niw.n - len(index)
    L = linalg.triangularise(niw.L[..., index, :]) / jnp.sqrt(1 - lost / niw.nu)[..., None, None]
    return NIW(niw.mu[..., index], L, niw.kappa, niw.nu - lost)


def mutual_information(niw: NIW) -> Array:
    r"""I(y; μ, Σ) in nats, (...): the information of one new y about (μ, Σ), an epistemic measure without unit.

    .. math:: H[y] - E\,H[y | μ, Σ] = H[t_{ν-n+1}] - \tfrac n2 \ln 2πe - \tfrac12 E \ln|Σ|, \quad
              E \ln|Σ| = \ln|Ψ| - n \ln 2 - \sum_{i=1}^n ψ\left(\tfrac{ν+1-i}2\right)

    It does not depend on μ₀ or L, and falls to 0 as κ and ν grow.

    Example:
      >>> for nu in (3.0, 30.0, 3e6):
      ...     print(f"{mutual_information(couple(jnp.zeros(2), jnp.eye(2), nu)):.4f}")
      1.0173
      0.0844
      0.0000
    """
    _arguments.check_type("niw", niw, NIW)
    n, nu, df = niw.n, niw.nu, degrees_of_freedom(niw)
    log_spread = jnp.log1p(1 / niw.kappa) + jnp.log1p((n - 1) / df)
    total = entropy_above_gaussian(df, n) + 0.5 * n * log_spread
    for i in range(n):  # minus ½ (E ln|Σ| - ln|Σ₀|)
        total = total + 0.5 * (_gamma.digamma_minus_log((nu - i) / 2) + jnp.log1p(-i / nu))
    return total
