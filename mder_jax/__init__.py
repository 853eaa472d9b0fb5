"""Multivariate Deep Evidential Regression in JAX: the paper's equations, and ensembles trained fast."""

from mder_jax import (
    datasets,
    ensemble,
    linalg,
    links,
    losses,
    mixture,
    networks,
    nig,
    niw,
    persistence,
    special,
    student_t,
    train,
)
from mder_jax._devices import use_all_cores, use_compilation_cache
from mder_jax._job import PerMember
from mder_jax.ensemble import Ensemble, Progress, fit_ensemble, predict
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
from mder_jax.mixture import Mixture
from mder_jax.networks import Network, from_linen, from_nnx, mlp
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
from mder_jax.train import Fit, fit

__version__ = "0.1.0"

__all__ = [
    "NIG",
    "NIW",
    "Ensemble",
    "Fit",
    "Mixture",
    "Network",
    "PerMember",
    "Progress",
    "StudentT",
    "aleatoric",
    "couple",
    "datasets",
    "der_loss",
    "ensemble",
    "epistemic",
    "evidence_regulariser",
    "fit",
    "fit_ensemble",
    "from_linen",
    "from_niw",
    "from_nnx",
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
    "mixture",
    "mlp",
    "mutual_information",
    "networks",
    "nig",
    "nig_link",
    "niw",
    "niw_link",
    "num_outputs",
    "persistence",
    "posterior",
    "predict",
    "predictive",
    "sample",
    "special",
    "student_t",
    "t_cdf",
    "t_ppf",
    "to_niw",
    "total_evidence",
    "train",
    "tril_size",
    "unpack_tril",
    "use_all_cores",
    "use_compilation_cache",
    "whiten",
]
