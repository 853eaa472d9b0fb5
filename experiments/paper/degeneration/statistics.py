"""Numbers of saved results on the degeneration of the likelihood."""

from typing import Any, Literal

import numpy as np

DEFINITIONS: tuple[Literal["amini2020"], Literal["meinert2021"]] = ("amini2020", "meinert2021")  # of Φ
NULL = 1e-6  # an eigenvalue is null below this fraction of the largest


def null_counts(eigenvalues: np.ndarray) -> list[int]:
    """The numbers of null directions that occur, from relative eigenvalues (points, p)."""
    return sorted({int(count) for count in np.sum(np.abs(eigenvalues) < NULL, axis=1)})


def constants(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Entropy, ln of the peak height and divergences by name."""
    return {"entropy": found["entropy"], "ln peak": found["log_peak"], **found.get("divergences", {})}


def total_losses(results: dict[str, Any]) -> list[np.ndarray]:
    """Amini's loss along the manifold for every λ and Φ, (K,) each."""
    loss = results["loss"]
    return [loss["nll"] + lam * loss[phi] for lam in results["lambdas"] for phi in DEFINITIONS]


def half_time(training: dict[str, Any]) -> int:
    """The record nearest to half of the epochs."""
    return int(np.argmin(np.abs(training["epoch"] - training["epoch"][-1] / 2)))


def kappa_without(training: dict[str, Any]) -> np.ndarray:
    """κ of the networks after training without regulariser, which is the first group."""
    return training["kappa"][0, :, -1]


def kappa_with(training: dict[str, Any]) -> dict[tuple[float, str], np.ndarray]:
    """κ of the networks after training with it, by λ and definition of Φ."""
    pairs = zip(training["groups"], training["kappa"], strict=True)
    return {(group["lambda"], group["definition"]): kappa[:, -1] for group, kappa in list(pairs)[1:]}
