"""Numbers of networks with different couplings, (settings, members): one setting for each r, then a free κ."""

from typing import Any

import numpy as np

from experiments.paper import circle_recipe

TRIED = np.geomspace(1e-4, 1e4, 801)  # r at which a wanted uncertainty is looked for


def usual(results: dict[str, Any]) -> int:
    """The index of the paper's r = 1, or of the nearest r."""
    return int(np.argmin(np.abs(np.log(results["r"]))))


def by_network(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """One number for each network, (settings, members): medians over t of uncertainties, means of ν."""
    return {
        "train": results["train"],
        "fresh": results["fresh"],
        "nu_centre": results["nu"][..., circle_recipe.NEAR_CENTRE].mean(axis=-1),
        "nu_ends": results["nu"][..., circle_recipe.NEAR_ENDS].mean(axis=-1),
        "nu": results["nu"].mean(axis=-1),
        "error": np.sqrt(np.mean(results["error"] ** 2, axis=-1)),
        **{name: np.median(results[name], axis=-1) for name in ("kappa", "aleatoric", "epistemic", "total")},
    }


def matching_r(total: np.ndarray, nu: np.ndarray, wanted: float, kind: str) -> float:
    r"""The r with which the same predictive, of (T,) widths and ν, has this median uncertainty; NaN if none has.

    With :func:`coupling.recoupled`, aleatoric² = total² ν/(ν + r) and epistemic² = total² r/(ν + r).
    """
    part = TRIED[:, None] / (nu + TRIED[:, None])
    sign = 1 if kind == "epistemic" else -1
    rising, target = sign * np.median(total * np.sqrt(part if sign > 0 else 1 - part), axis=1), sign * wanted
    if not rising[0] <= target <= rising[-1]:
        return float("nan")
    return float(np.exp(np.interp(target, rising, np.log(TRIED))))
