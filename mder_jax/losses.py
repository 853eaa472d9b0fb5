"""Losses, one value per example; all constants kept.

A density can exceed 1, so a negative log-likelihood can be negative: that is no error.
"""

import math
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from mder_jax import linalg, nig as _nig, niw as _niw
from mder_jax._arguments import check_type
from mder_jax._checks import matching, one_number
from mder_jax.nig import NIG
from mder_jax.niw import NIW
from mder_jax.student_t import StudentT

__all__ = ["der_loss", "evidence_regulariser", "gaussian_nll", "mder_nll"]


def mder_nll(niw: NIW, y: ArrayLike, missing: bool = True) -> Array:
    r"""−ln p(y | m), the negative log evidence of the NIW, (..., n) -> (...), eq:nll.

    With a coupled NIW (`couple`, `niw_link`) it is the loss of Sec. 4 of the paper.

    Args:
      niw: as it comes from the link; batch shape (...).
      y: targets, (..., n), exactly the shape of ``niw.mu``.
      missing: whether a NaN in y means that this target was not observed: the loss is then that of the marginal t of
        the others, and 0 for a row of NaN. Complete data do not pay for it.

    Example:
      >>> from mder_jax import couple
      >>> niw = couple(jnp.zeros((1, 2)), jnp.eye(2)[None], nu=8.0)
      >>> print(f"{mder_nll(niw, jnp.array([[0.5, jnp.nan]]))[0]:.4f}")
      1.1898
    """
    check_type("niw", niw, NIW)
    niw, y = matching(niw, niw.mu.shape, "the NIW's mu", y=y)
    return -_niw.log_evidence(niw, y, missing=missing)


def evidence_regulariser(
    nig: NIG, y: ArrayLike, definition: Literal["amini2020", "meinert2021"] = "amini2020"
) -> Array:
    """``|y − μ₀| Φ``, Amini's evidence regulariser (Sec. 2.2), for y of the NIG's shape; Φ as in `nig.total_evidence`.

    Example:
      >>> print(evidence_regulariser(NIG(mu=0.0, kappa=1.0, alpha=2.0, beta=1.0), 0.5))  # 0.5 (2 + 2)
      2.0
    """
    check_type("nig", nig, NIG)
    nig, y = matching(nig, nig.mu.shape, "the NIG", y=y)
    return jnp.abs(y - nig.mu) * _nig.total_evidence(nig, definition)


def der_loss(
    nig: NIG, y: ArrayLike, lam: float = 0.01, definition: Literal["amini2020", "meinert2021"] = "amini2020"
) -> Array:
    r"""``−ln St_{2α}(y) + λ |y − μ₀| Φ``, Amini's loss (Sec. 1.2), elementwise: y has the shape of the NIG.

    Example:
      >>> print(f"{der_loss(NIG(mu=0.0, kappa=1.0, alpha=2.0, beta=1.0), 0.5):.4f}")  # 1.1324 + 0.01 · 2
      1.1524
    """
    regulariser = evidence_regulariser(nig, y, definition)
    return -_nig.log_evidence(nig, y) + one_number("lam", lam).astype(regulariser.dtype) * regulariser


def gaussian_nll(gaussian: StudentT, y: ArrayLike) -> Array:
    r"""−ln N(y | loc, L Lᵀ) = (n/2) ln 2π + Σ_j ln L_jj + ½ ‖L⁻¹(y − loc)‖², (..., n) -> (...).

    For n = 1 it is eq:minnllgaussian. Accepts what `gaussian_link` returns; its df = ∞ is not used.

    Example:
      >>> gaussian = StudentT(jnp.inf, jnp.zeros(1), jnp.eye(1))
      >>> print(f"{gaussian_nll(gaussian, jnp.zeros(1)):.4f}")
      0.9189
    """
    check_type("gaussian", gaussian, StudentT)
    gaussian, y = matching(gaussian, gaussian.loc.shape, "the Gaussian's loc", y=y)
    half_logdet, q = linalg.log_determinant_and_distance(gaussian.scale_tril, y - gaussian.loc)
    return 0.5 * gaussian.n * math.log(2 * math.pi) + half_logdet + 0.5 * q
