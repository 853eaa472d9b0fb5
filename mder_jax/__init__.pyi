"""Public names and where they live. Each is imported when it is first used: see `__init__.py`."""

from . import (
    calibration as calibration,
    columns as columns,
    datasets as datasets,
    devices as devices,
    ensemble as ensemble,
    estimator as estimator,
    forest as forest,
    linalg as linalg,
    links as links,
    losses as losses,
    metrics as metrics,
    mixture as mixture,
    networks as networks,
    nig as nig,
    niw as niw,
    persistence as persistence,
    pipeline as pipeline,
    plotting as plotting,
    process as process,
    special as special,
    student_t as student_t,
    train as train,
)
from .calibration import (
    Scale as Scale,
    ScaleFit as ScaleFit,
    conformal_radius as conformal_radius,
    fit_scale as fit_scale,
    rescale as rescale,
)
from .devices import (
    use_all_cores as use_all_cores,
    use_compilation_cache as use_compilation_cache,
)
from .ensemble import (
    Ensemble as Ensemble,
    PerMember as PerMember,
    Progress as Progress,
    fit_ensemble as fit_ensemble,
    load_ensemble as load_ensemble,
    predict as predict,
)
from .estimator import MDERRegressor as MDERRegressor
from .forest import (
    Forest as Forest,
    fit_forest as fit_forest,
)
from .linalg import (
    half_logdet as half_logdet,
    tril_size as tril_size,
    unpack_tril as unpack_tril,
    whiten as whiten,
)
from .links import (
    gaussian_link as gaussian_link,
    inverse_gaussian_link as inverse_gaussian_link,
    inverse_nig_link as inverse_nig_link,
    inverse_niw_link as inverse_niw_link,
    nig_link as nig_link,
    niw_link as niw_link,
    num_outputs as num_outputs,
)
from .losses import (
    der_loss as der_loss,
    evidence_regulariser as evidence_regulariser,
    gaussian_nll as gaussian_nll,
    mder_nll as mder_nll,
)
from .mixture import Mixture as Mixture
from .networks import (
    Network as Network,
    from_linen as from_linen,
    from_nnx as from_nnx,
    mlp as mlp,
    table_network as table_network,
)
from .nig import (
    NIG as NIG,
    from_niw as from_niw,
    to_niw as to_niw,
)
from .niw import (
    NIW as NIW,
    aleatoric as aleatoric,
    couple as couple,
    epistemic as epistemic,
    log_evidence as log_evidence,
    log_prob as log_prob,
    marginal as marginal,
    mutual_information as mutual_information,
    posterior as posterior,
    predictive as predictive,
    sample as sample,
    total_evidence as total_evidence,
)
from .process import (
    Process as Process,
    fit_process as fit_process,
)
from .special import (
    joint_pit as joint_pit,
    joint_radius as joint_radius,
    log_gamma_ratio as log_gamma_ratio,
    t_cdf as t_cdf,
    t_ppf as t_ppf,
)
from .student_t import StudentT as StudentT
from .train import (
    Fit as Fit,
    fit as fit,
)

__version__: str
