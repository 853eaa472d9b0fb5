"""Numbers computed from saved results of the study `evidence`; most are lists with one entry for n = 1, 2, 3."""

from typing import Any

FORMS = ("stable", "slogdet")  # of the evidence: the stable one, and as printed


def largest(rows: list[dict[str, float]]) -> dict[str, float]:
    """The largest value of each quantity."""
    return {name: max(row[name] for row in rows) for name in rows[0]}


def moments(results: dict[str, Any]) -> dict[str, list[float]]:
    """Distances of all entries of each moment from draws, in standard errors."""
    rows = [row["moments"] for row in results["monte_carlo"]]
    return {name: [abs(z) for row in rows for z in row[name]] for name in rows[0]}


def posterior_spreads(results: dict[str, Any], averages: str) -> list[float]:
    """How much ln(prior × likelihood / posterior) depends on (μ, Σ), with averages ``over_m`` or ``over_n``."""
    return [row[averages]["spread"] for row in results["posterior"]]
