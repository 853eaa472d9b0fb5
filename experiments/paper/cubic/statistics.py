"""Numbers computed from saved results of the study `cubic`.

``grid`` and ``new`` hold the predictive t and the parts of its variance, each (kinds, members, rows), on `GRID` and at
new points ``new_x`` with ``new_y``.
"""

from typing import Any

import numpy as np

KINDS = ("DER, λ = 0", "DER, λ > 0", "coupled", "Gaussian")
ENSEMBLES = {"ensemble of coupled": "coupled", "ensemble of Gaussians": "Gaussian"}
METHODS = (*KINDS, *ENSEMBLES)
EDGE, REACH = 4.0, 7.0
GRID = np.linspace(-REACH, REACH, 141)


def inside(x: np.ndarray) -> np.ndarray:
    """Where there were training data."""
    return np.abs(x) <= EDGE


def of_kind(method: str, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parts, (members, rows), of the networks of this kind or of this ensemble."""
    return {name: part[KINDS.index(ENSEMBLES.get(method, method))] for name, part in parts.items()}


def parts_of(method: str, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Mean, aleatoric and epistemic variance: (members, rows), or (1, rows) for the mixture of an ensemble."""
    own = of_kind(method, parts)
    if method in KINDS:
        return {"mean": own["mean"], "aleatoric": own["aleatoric"], "epistemic": own["within"]}
    mean, aleatoric, within = (own[name].mean(0, keepdims=True) for name in ("mean", "aleatoric", "within"))
    return {"mean": mean, "aleatoric": aleatoric, "epistemic": within + own["mean"].var(0, keepdims=True)}


def predictive(method: str, results: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Log density and distribution function at the new y: (members, rows), or (1, rows) for a mixture."""
    from scipy import stats

    own = of_kind(method, results["new"])
    t = stats.t(own["df"], own["mean"], own["width"])
    log_density, below = t.logpdf(results["new_y"]), t.cdf(results["new_y"])
    if method in KINDS:
        return log_density, below
    return np.logaddexp.reduce(log_density, keepdims=True) - np.log(len(below)), below.mean(0, keepdims=True)


def scores(method: str, results: dict[str, Any], where: np.ndarray) -> dict[str, np.ndarray]:
    """rmse, NLL and coverage of the central 90 % interval on some of the new points, for each network or ensemble."""
    log_density, below = (values[:, where] for values in predictive(method, results))
    parts = {name: part[:, where] for name, part in parts_of(method, results["new"]).items()}
    return {
        "rmse": np.sqrt(np.mean((results["new_y"][where] - parts["mean"]) ** 2, axis=1)),
        "NLL": -log_density.mean(1),
        "cover": np.mean((below > 0.05) & (below < 0.95), axis=1),
        "aleatoric": np.sqrt(parts["aleatoric"].mean(1)),
        "epistemic": np.sqrt(parts["epistemic"].mean(1)),
    }


def typical(results: dict[str, Any], name: str) -> dict[str, np.ndarray]:
    """Median of a part over the training range for each network of each kind."""
    medians = np.median(results["new"][name][..., inside(results["new_x"])], axis=-1)
    return dict(zip(KINDS, medians, strict=True))
