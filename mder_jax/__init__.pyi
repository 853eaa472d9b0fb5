"""Public names and where they live. Each is imported when it is first used: see `__init__.py`."""

from . import (
    calibration as calibration,
)
from . import (
    datasets as datasets,
)
from . import (
    ensemble as ensemble,
)
from . import (
    estimator as estimator,
)
from . import (
    linalg as linalg,
)
from . import (
    links as links,
)
from . import (
    losses as losses,
)
from . import (
    metrics as metrics,
)
from . import (
    mixture as mixture,
)
from . import (
    networks as networks,
)
from . import (
    nig as nig,
)
from . import (
    niw as niw,
)
from . import (
    persistence as persistence,
)
from . import (
    plotting as plotting,
)
from . import (
    special as special,
)
from . import (
    student_t as student_t,
)
from . import (
    train as train,
)
from ._devices import (
    use_all_cores as use_all_cores,
)
from ._devices import (
    use_compilation_cache as use_compilation_cache,
)
from ._job import PerMember as PerMember
from .calibration import (
    Scale as Scale,
)
from .calibration import (
    ScaleFit as ScaleFit,
)
from .calibration import (
    conformal_radius as conformal_radius,
)
from .calibration import (
    fit_scale as fit_scale,
)
from .calibration import (
    rescale as rescale,
)
from .ensemble import (
    Ensemble as Ensemble,
)
from .ensemble import (
    Progress as Progress,
)
from .ensemble import (
    fit_ensemble as fit_ensemble,
)
from .ensemble import (
    predict as predict,
)
from .estimator import MDERRegressor as MDERRegressor
from .linalg import (
    half_logdet as half_logdet,
)
from .linalg import (
    tril_size as tril_size,
)
from .linalg import (
    unpack_tril as unpack_tril,
)
from .linalg import (
    whiten as whiten,
)
from .links import (
    gaussian_link as gaussian_link,
)
from .links import (
    inverse_gaussian_link as inverse_gaussian_link,
)
from .links import (
    inverse_nig_link as inverse_nig_link,
)
from .links import (
    inverse_niw_link as inverse_niw_link,
)
from .links import (
    nig_link as nig_link,
)
from .links import (
    niw_link as niw_link,
)
from .links import (
    num_outputs as num_outputs,
)
from .losses import (
    der_loss as der_loss,
)
from .losses import (
    evidence_regulariser as evidence_regulariser,
)
from .losses import (
    gaussian_nll as gaussian_nll,
)
from .losses import (
    mder_nll as mder_nll,
)
from .mixture import Mixture as Mixture
from .networks import (
    Network as Network,
)
from .networks import (
    from_linen as from_linen,
)
from .networks import (
    from_nnx as from_nnx,
)
from .networks import (
    mlp as mlp,
)
from .nig import (
    NIG as NIG,
)
from .nig import (
    from_niw as from_niw,
)
from .nig import (
    to_niw as to_niw,
)
from .niw import (
    NIW as NIW,
)
from .niw import (
    aleatoric as aleatoric,
)
from .niw import (
    couple as couple,
)
from .niw import (
    epistemic as epistemic,
)
from .niw import (
    log_evidence as log_evidence,
)
from .niw import (
    log_prob as log_prob,
)
from .niw import (
    marginal as marginal,
)
from .niw import (
    mutual_information as mutual_information,
)
from .niw import (
    posterior as posterior,
)
from .niw import (
    predictive as predictive,
)
from .niw import (
    sample as sample,
)
from .niw import (
    total_evidence as total_evidence,
)
from .special import (
    joint_pit as joint_pit,
)
from .special import (
    joint_radius as joint_radius,
)
from .special import (
    log_gamma_ratio as log_gamma_ratio,
)
from .special import (
    t_cdf as t_cdf,
)
from .special import (
    t_ppf as t_ppf,
)
from .student_t import StudentT as StudentT
from .train import (
    Fit as Fit,
)
from .train import (
    fit as fit,
)

__version__: str
