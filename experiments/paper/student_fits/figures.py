"""Figures students and dfit of the paper, distances from a normal, and the correlation of ν and σ."""

from typing import Any

import numpy as np
from scipy import stats

from experiments.harness.figures import new_figure
from experiments.paper import circle_recipe
from experiments.paper.student_fits.statistics import SHOWN

CAPTIONS = {
    "students": "Student-t densities at several ν, on a linear scale (the paper's figure) and a logarithmic one.",
    "dfit": "A t with ν = 5 fitted to a t with ν = 2 in the core (grey): least squares on the densities, which gives "
    "the paper's σ, and maximum likelihood on the whole line. Below, the ratio to the t with ν = 2.",
    "normal": "How far a t is from the normal of equal variance, over its degrees of freedom: total variation, and the "
    "sample size at which the best test and the Kolmogorov-Smirnov test see the difference half of the time.",
    "correlation": "Correlation of the estimates of ν and σ, and the standard error of ν over that with all of the "
    "line in view, when draws beyond ±c are lost (lines) or only counted (dashes).",
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """Figures of the paper, and two that measure what they show."""
    of_results = {"dfit": _fit, "normal": _normal, "correlation": _correlation}
    return {"students": _students()} | {name: draw(results) for name, draw in of_results.items()}


def _students() -> Any:
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


def _fit(results: dict[str, Any]) -> Any:
    figure, (above, below) = new_figure(1, 5.0, 2.2, rows=2, sharex=True, height_ratios=(2, 1))
    x, core = np.linspace(-6, 6, 601), results["core"]
    t2 = stats.t.pdf(x, 2)
    above.plot(x, t2, "k--", label="ν = 2, σ = 1")
    for name in ("least squares", "likelihood on the whole line"):
        sigma = results["fits"][name]
        density = stats.t.pdf(x, 5, scale=sigma)
        above.plot(x, density, label=f"ν = 5, σ = {sigma:.2f}:\n{name}")
        below.plot(x, density / t2)
    for axes in (above, below):
        axes.axvspan(-core, core, color="0.93", zorder=0)
    above.set_ylabel("density")
    below.set(xlabel="x", ylabel="ratio", ylim=(0, 1.6))
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _normal(results: dict[str, Any]) -> Any:
    figure, (left, right) = new_figure(2, 4.4, 3.2)
    sweep = {name: [row[name] for row in results["sweep"]] for name in results["sweep"][0]}
    left.semilogy(sweep["degrees"], sweep["total_variation"], label="total variation")
    left.semilogy(sweep["degrees"], sweep["kolmogorov"], "--", label="Kolmogorov distance")
    right.semilogy(sweep["degrees"], sweep["kolmogorov_points"], label="Kolmogorov-Smirnov")
    labels = ("best test, n = 1", f"best test, n = 2 at ν = {results['degrees']:g}")
    for test, row, label in zip(results["best_test"][1:], results["normal"][1:], labels, strict=True):
        error = [[test["points"] - test["low"]], [test["high"] - test["points"]]]
        right.errorbar(row["degrees"], test["points"], error, fmt="o" if row["targets"] == 1 else "s", label=label)
    right.axhline(circle_recipe.POINTS, color="0.5", linestyle=":", label="points of the paper's data")
    left.set(xlabel="degrees of freedom", ylabel="distance from the normal")
    right.set(xlabel="degrees of freedom", ylabel="draws for a power of ½", ylim=(30, None))
    left.legend()
    right.legend()
    return figure


def _correlation(results: dict[str, Any]) -> Any:
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
