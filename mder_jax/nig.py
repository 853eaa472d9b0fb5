r"""The Normal-Inverse-Gamma prior: the NIW for one target, in its own letters.

.. math:: σ² \sim Γ^{-1}(α, β), \qquad μ | σ² \sim \mathcal N(μ_0, σ²/κ), \qquad ν = 2α, \quad ν σ_0² = 2β

Amini et al. (2020) write (γ, ν, α, β) for our (μ₀, κ, α, β): **their ν is κ here.**
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from mder_jax import _gamma
from mder_jax._arguments import check_option, check_type
from mder_jax._checks import check_above, filled, floats, matching
from mder_jax._pytree import pytree, set_fields
from mder_jax.niw import NIW
from mder_jax.student_t import log_t_kernel

__all__ = ["NIG", "aleatoric", "epistemic", "from_niw", "log_evidence", "to_niw", "total_evidence"]


@pytree
class NIG:
    """Normal-Inverse-Gamma distribution of (μ, σ²); four arrays of one shape, each element a separate NIG.

    Args:
      mu: location μ₀, (...).
      kappa: virtual observations of the mean, κ > 0 (Amini's ν).
      alpha: half the virtual observations of the variance, α > 0; moments need α > 1.
      beta: α times the variance they had, β > 0.

    Example:
      >>> print(aleatoric(NIG(mu=0.0, kappa=2.0, alpha=3.0, beta=4.0)))
      2.0
    """

    mu: Array
    kappa: Array
    alpha: Array
    beta: Array

    def __init__(self, mu: ArrayLike, kappa: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> None:
        mu, kappa, alpha, beta = floats(mu=mu, kappa=kappa, alpha=alpha, beta=beta)
        positive = {"kappa": kappa, "alpha": alpha, "beta": beta}
        for name, array in positive.items():
            check_above(name, array, 0, "a parameter of the NIG")
        set_fields(self, mu=mu, **{name: filled(name, array, mu.shape, "mu") for name, array in positive.items()})


def to_niw(nig: NIG) -> NIW:
    """The same distribution as a NIW with n = 1 (App. C), batch shape (...): ν = 2α, L² = β/α.

    Example:
      >>> niw = to_niw(NIG(mu=0.0, kappa=2.0, alpha=3.0, beta=12.0))
      >>> print(niw.nu, niw.L)
      6.0 [[2.]]
    """
    check_type("nig", nig, NIG)
    return NIW(nig.mu[..., None], jnp.sqrt(nig.beta / nig.alpha)[..., None, None], nig.kappa, 2 * nig.alpha)


def from_niw(niw: NIW) -> NIG:
    """The same distribution as a NIG, (...), for a NIW with n = 1 (App. C): α = ν/2, β = ν L²/2.

    Example:
      >>> nig = from_niw(NIW(mu=jnp.zeros(1), L=jnp.full((1, 1), 2.0), kappa=2.0, nu=6.0))
      >>> print(nig.alpha, nig.beta)
      3.0 12.0
    """
    check_type("niw", niw, NIW)
    if niw.n != 1:
        raise ValueError(f"a NIG describes one target; this NIW has {niw.n} (see mder_jax.marginal(niw, [j]))")
    return NIG(niw.mu[..., 0], niw.kappa, niw.nu / 2, niw.nu / 2 * niw.L[..., 0, 0] ** 2)


def log_evidence(nig: NIG, y: ArrayLike) -> Array:
    r"""ln St_{2α}(y | μ₀, β(1+κ)/(κα)) with all constants (App. C), elementwise: y has the shape of the NIG.

    .. math:: \lnΓ(α + \tfrac12) - \lnΓ(α) - \tfrac12 \ln\left(2πβ \tfrac{1+κ}κ\right)
              - (α + \tfrac12) \ln\left(1 + \tfrac{κ (y-μ_0)²}{2β(1+κ)}\right)

    Example:
      >>> print(f"{log_evidence(NIG(mu=0.0, kappa=1.0, alpha=2.0, beta=1.0), 0.5):.4f}")
      -1.1324
    """
    check_type("nig", nig, NIG)
    nig, y = matching(nig, nig.mu.shape, "the NIG", y=y)
    df, spread = 2 * nig.alpha, nig.beta / nig.alpha * (1 + 1 / nig.kappa)
    return _gamma.half_step(df) + log_t_kernel((y - nig.mu) ** 2, df, spread, 1.0)


def aleatoric(nig: NIG, definition: Literal["amini2020", "meinert2023"] = "amini2020") -> Array:
    """E[σ²] = β/(α−1), the noise in y, eq:uncs, (...): "amini2020", unit y².

    It is ∞ for α ≤ 1. "meinert2023" is the width √(β(1+κ)/(ακ)) of the predictive t, unit y.

    Example:
      >>> nig = NIG(mu=0.0, kappa=1.0, alpha=4.0, beta=18.0)
      >>> print(aleatoric(nig), aleatoric(nig, "meinert2023"))  # 18/3, √(18·2/4)
      6.0 3.0
    """
    check_type("nig", nig, NIG)
    check_option("definition", definition, ("amini2020", "meinert2023"))
    if definition == "meinert2023":
        return jnp.sqrt(nig.beta / nig.alpha * (1 + 1 / nig.kappa))
    return jnp.where(nig.alpha > 1, nig.beta / (nig.alpha - 1), jnp.inf)


def epistemic(nig: NIG, definition: Literal["amini2020", "meinert2023"] = "amini2020") -> Array:
    """var[μ] = E[σ²]/κ, uncertainty about the mean, eq:uncs, (...): "amini2020", unit y².

    It is ∞ for α ≤ 1 and NaN for α ≤ ½. "meinert2023" is 1/√κ, no unit.

    Example:
      >>> nig = NIG(mu=0.0, kappa=4.0, alpha=4.0, beta=18.0)
      >>> print(epistemic(nig), epistemic(nig, "meinert2023"))  # 6/4, 1/√4
      1.5 0.5
    """
    check_type("nig", nig, NIG)
    check_option("definition", definition, ("amini2020", "meinert2023"))
    if definition == "meinert2023":
        return 1 / jnp.sqrt(nig.kappa)
    return jnp.where(nig.alpha > 0.5, aleatoric(nig, definition) / nig.kappa, jnp.nan)


def total_evidence(nig: NIG, definition: Literal["amini2020", "meinert2021"] = "meinert2021") -> Array:
    """Total number of virtual observations, (...), Sec. 2.1: "meinert2021" Φ' = κ + 2α; "amini2020" Φ = 2κ + α.

    Example:
      >>> nig = NIG(mu=0.0, kappa=1.0, alpha=2.0, beta=1.0)
      >>> print(total_evidence(nig), total_evidence(nig, "amini2020"))
      5.0 4.0
    """
    check_type("nig", nig, NIG)
    check_option("definition", definition, ("amini2020", "meinert2021"))
    return 2 * nig.kappa + nig.alpha if definition == "amini2020" else nig.kappa + 2 * nig.alpha
