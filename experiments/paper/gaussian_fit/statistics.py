"""Numbers computed from saved results of the study `gaussian_fit`.

A member is a data set with one network of each kind. Saved are ``x`` (points), ``y`` (members, points), ``truth``
(members, grid), the predictions ``mean`` and ``std`` (kinds, members, grid), and the same with ``_at_points``.
"""

from typing import Any

import numpy as np

KINDS = ("fit", "over-fit", "under-fit")
GAP = (0.35, 0.65)
GRID = np.linspace(0, 1, 201)
IN_GAP = np.abs(GRID - np.mean(GAP)) < (GAP[1] - GAP[0]) / 2


def gaussian_loss(squared: np.ndarray | float, std: np.ndarray) -> np.ndarray:
    """L = ½ ln 2πσ² + (y − μ)²/2σ² of the squared residual, eq:minnllgaussian; linear in it, so also of its mean."""
    return 0.5 * np.log(2 * np.pi * std**2) + squared / (2 * std**2)


def total_loss(results: dict[str, Any]) -> np.ndarray:
    """Σ_i L_i over the training points, (kinds, members)."""
    squared = (results["y"] - results["mean_at_points"]) ** 2
    return gaussian_loss(squared, results["std_at_points"]).sum(-1)


def needed_variance(results: dict[str, Any]) -> np.ndarray:
    """E(y − μ)² = noise² + (truth − μ)² on the grid, (kinds, members, grid)."""
    return results["noise"] ** 2 + (results["truth"] - results["mean"]) ** 2


def unseen_loss(results: dict[str, Any]) -> np.ndarray:
    """E[L] of a new y, exactly, averaged over the grid where there are data, (kinds, members)."""
    return gaussian_loss(needed_variance(results), results["std"])[..., ~IN_GAP].mean(-1)


def shortfall(results: dict[str, Any], where: np.ndarray) -> np.ndarray:
    """√ mean E(y − μ)²/σ² over a part of the grid, (kinds, members); 1 for a std that is right."""
    return np.sqrt((needed_variance(results) / results["std"] ** 2)[..., where].mean(-1))


def widening(results: dict[str, Any]) -> np.ndarray:
    """Mean σ in the gap over mean σ beside it, (kinds, members); about 1 if σ is interpolated."""
    return results["std"][..., IN_GAP].mean(-1) / results["std"][..., ~IN_GAP].mean(-1)


def stds(results: dict[str, Any]) -> list[np.ndarray]:
    """Needed √(noise² + mean (truth − μ)²) and stated rms σ beside the gap, (kinds, members)."""
    return [np.sqrt(part[..., ~IN_GAP].mean(-1)) for part in (needed_variance(results), results["std"] ** 2)]
