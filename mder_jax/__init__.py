"""Multivariate Deep Evidential Regression in JAX: the paper's equations as pure functions."""

from mder_jax import linalg, links, losses, nig, niw, special, student_t
from mder_jax.linalg import half_logdet, tril_size, unpack_tril, whiten
from mder_jax.links import (
    gaussian_link,
    inverse_gaussian_link,
    inverse_nig_link,
    inverse_niw_link,
    nig_link,
    niw_link,
    num_outputs,
)
from mder_jax.losses import der_loss, evidence_regulariser, gaussian_nll, mder_nll
from mder_jax.nig import NIG, from_niw, to_niw
from mder_jax.niw import (
    NIW,
    aleatoric,
    couple,
    epistemic,
    log_evidence,
    log_prob,
    marginal,
    mutual_information,
    posterior,
    predictive,
    sample,
    total_evidence,
)
from mder_jax.special import joint_pit, joint_radius, log_gamma_ratio, t_cdf, t_ppf
from mder_jax.student_t import StudentT

__version__ = "0.1.0"

__all__ = [
    "NIG",
    "NIW",
    "StudentT",
    "aleatoric",
    "couple",
    "der_loss",
    "epistemic",
    "evidence_regulariser",
    "from_niw",
    "gaussian_link",
    "gaussian_nll",
    "half_logdet",
    "inverse_gaussian_link",
    "inverse_nig_link",
    "inverse_niw_link",
    "joint_pit",
    "joint_radius",
    "linalg",
    "links",
    "log_evidence",
    "log_gamma_ratio",
    "log_prob",
    "losses",
    "marginal",
    "mder_nll",
    "mutual_information",
    "nig",
    "nig_link",
    "niw",
    "niw_link",
    "num_outputs",
    "posterior",
    "predictive",
    "sample",
    "special",
    "student_t",
    "t_cdf",
    "t_ppf",
    "to_niw",
    "total_evidence",
    "tril_size",
    "unpack_tril",
    "whiten",
]
