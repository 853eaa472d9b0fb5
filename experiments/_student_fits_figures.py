"""Figures of the study student_fits."""

from typing import Any

import numpy as np
from scipy import stats

from experiments._figures import new_figure

SHOWN = (5.0, 2.0, 1.0)  # ν in figure students, beside the normal


def plot_students() -> Any:
    """fig. students."""
    figure, panels = new_figure(2, 4.2, 3.2)
    x = np.linspace(-5, 5, 501)
    for axes in panels:
        axes.plot(x, stats.norm.pdf(x), label="ν → ∞")
        for nu, line in zip(SHOWN, ("--", "-.", ":"), strict=True):
            axes.plot(x, stats.t.pdf(x, nu), line, label=f"ν = {nu:g}")
        axes.set(xlabel="x", ylabel="density")
    panels[1].set(yscale="log", ylim=(1e-6, 1))
    panels[0].legend()
    return figure


def plot_fit(results: dict[str, Any]) -> Any:
    """fig. dfit, and the ratio beyond the interval of the fit."""
    figure, (above, below) = new_figure(1, 5.0, 2.2, rows=2, sharex=True, height_ratios=(2, 1))
    x, core, t2 = np.linspace(-6, 6, 601), results["core"], stats.t.pdf(np.linspace(-6, 6, 601), 2)
    above.plot(x, t2, "k--", label="ν = 2, σ = 1")
    for name in ("least squares", "likelihood on the whole line"):
        sigma = results["fits"][name]
        density = stats.t.pdf(x, 5, scale=sigma)
        above.plot(x, density, label=f"ν = 5, σ = {sigma:.2f}:\n{name}")
        below.plot(x, density / t2)
    for axes in (above, below):
        axes.axvspan(-core, core, color="0.93", zorder=0)
    above.set(ylabel="density")
    below.set(xlabel="x", ylabel="ratio", ylim=(0, 1.6))
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def plot_normal(results: dict[str, Any], points: int) -> Any:
    """Distances from a normal over the degrees of freedom, beside the number of points of the paper's data."""
    figure, (left, right) = new_figure(2, 4.4, 3.2)
    degrees = [row["degrees"] for row in results["sweep"]]
    left.semilogy(degrees, [row["total_variation"] for row in results["sweep"]], label="total variation")
    left.semilogy(degrees, [row["kolmogorov"] for row in results["sweep"]], "--", label="Kolmogorov distance")
    right.semilogy(degrees, [row["kolmogorov_points"] for row in results["sweep"]], label="Kolmogorov-Smirnov")
    labels = (None, "best test, n = 1", f"best test, n = 2 at ν = {results['degrees']:g}")
    for test, row, label in list(zip(results["best_test"], results["normal"], labels, strict=True))[1:]:
        error = [[test["points"] - test["low"]], [test["high"] - test["points"]]]
        right.errorbar(row["degrees"], test["points"], error, fmt="o" if row["targets"] == 1 else "s", label=label)
    right.axhline(points, color="0.5", linestyle=":", label="points of the paper's data")
    left.set(xlabel="degrees of freedom", ylabel="distance from the normal")
    right.set(xlabel="degrees of freedom", ylabel="draws for a power of ½", ylim=(30, None))
    left.legend()
    right.legend()
    return figure


def plot_correlation(results: dict[str, Any]) -> Any:
    """Correlation of ν and σ, and the error of ν, over the half width of the core."""
    figure, (left, right) = new_figure(2, 4.4, 3.2)
    for number, row in enumerate(results["correlation"]):
        for way, line in (("cut", "-"), ("counted", "--")):
            label = f"ν = {row['nu']:g}" if way == "cut" else None
            left.plot(row["widths"], row["by_width"][way], line, color=f"C{number}", label=label)
            right.semilogy(row["widths"], row["errors"][way], line, color=f"C{number}")
    left.set(ylabel="correlation of ν and σ", ylim=(-1.05, 1.05))
    right.set(ylabel="error of ν over that of the whole line")
    for axes in (left, right):
        axes.axvline(results["core"], color="0.5", linestyle=":")
        axes.set_xlabel("half width c of the core (σ)")
    right.plot([], [], "k-", label="draws beyond ±c lost")
    right.plot([], [], "k--", label="draws beyond ±c counted")
    left.legend()
    right.legend(handles=right.lines[-2:])
    return figure
