"""What follows from the saved integrals over Student-t densities."""

from typing import Any

SHOWN = (5.0, 2.0, 1.0)  # ν in figure students, besides the normal
PRINTED_SIGMA = 1.09  # in the legend of figure dfit


def as_printed(fits: dict[str, float]) -> list[str]:
    """The criteria of a fit that give the printed σ."""
    return [name for name, sigma in fits.items() if round(sigma, 2) == PRINTED_SIGMA]


def core_changes(results: dict[str, Any]) -> list[float]:
    """The relative change of the mass within ±1 from that of a normal, for each ν shown."""
    return [abs(row["core_ratio"] - 1) for row in results["tails"]]


def least_correlation(results: dict[str, Any]) -> float:
    """The least correlation of ν and σ with the core in view, over ν."""
    return min(min(row["core"].values()) for row in results["correlation"])
