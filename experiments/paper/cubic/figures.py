"""The figures of the study `cubic`."""

from typing import Any

import numpy as np

from experiments.harness.figures import new_figure
from experiments.paper.cubic.statistics import EDGE, GRID, KINDS, METHODS, REACH, parts_of

CAPTIONS = {
    "methods": "y = x³ + noise, trained on the shaded range: one network of each kind, and mixtures of all networks of "
    "a kind, with two standard deviations of each type. Thin lines: the means of the other networks.",
    "growth": "Epistemic standard deviation over x, and the error of the mean (dashed, median over networks).",
    "kappa": "κ, the ratio of aleatoric and epistemic variance, of all networks.",
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """All methods side by side, their epistemic uncertainty outside the data, and κ."""
    return {"methods": _methods(results), "growth": _growth(results), "kappa": _kappa(results)}


def _methods(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(3, 3.5, 3.0, rows=2, sharex=True, sharey=True)
    for axes, method in zip(panels.ravel(), METHODS, strict=True):
        _bands(axes, results, method)
        axes.set(title=_titled(method, results), xlabel="x", ylabel="y", xlim=(-REACH, REACH), ylim=(-100, 100))
        axes.label_outer()
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def _bands(axes: Any, results: dict[str, Any], method: str) -> None:
    """Data, truth, means of all networks, and bands of the first network or of the mixture."""
    parts = parts_of(method, results["grid"])
    mean = parts["mean"][0]
    axes.axvspan(-EDGE, EDGE, color="0.93", lw=0, label="training range")
    axes.plot(results["x"][::5], results["y"][::5], ".", color="0.35", markersize=1.5, label="data")
    for name, colour in (("aleatoric", "C0"), ("epistemic", "C1")):
        reach = 2 * np.sqrt(parts[name][0])
        axes.fill_between(GRID, mean - reach, mean + reach, color=colour, alpha=0.5, lw=0, label=f"± 2 std {name}")
    axes.plot(GRID, parts["mean"][1:].T, color="C2", alpha=0.4, lw=0.5)
    axes.plot(GRID, mean, color="C2", lw=1, label="mean")
    axes.plot(GRID, GRID**3, "k--", lw=1, label="truth")


def _titled(method: str, results: dict[str, Any]) -> str:
    return method.replace("λ > 0", f"λ = {results['lam']:g}")


def _growth(results: dict[str, Any]) -> Any:
    figure, axes = new_figure(1, 6.4, 3.8)
    axes.axvspan(-EDGE, EDGE, color="0.93", lw=0)
    for method in METHODS:
        if method != "Gaussian":  # a single Gaussian states none
            epistemic = np.sqrt(np.median(parts_of(method, results["grid"])["epistemic"], axis=0))
            axes.plot(GRID, epistemic, label=_titled(method, results))
    error = np.median(np.abs(results["grid"]["mean"] - GRID**3), axis=(0, 1))
    axes.plot(GRID, error, "k--", label="|mean − x³|, all networks")
    axes.set(xlabel="x", ylabel="epistemic std (unit of y)", yscale="log", xlim=(-REACH, REACH))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _kappa(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(3, 3.2, 2.8, sharey=True)
    for number, axes in enumerate(panels):
        axes.axvspan(-EDGE, EDGE, color="0.93", lw=0)
        axes.plot(GRID, results["grid"]["kappa"][number].T, color=f"C{number}", alpha=0.6, lw=0.8)
        axes.set(title=_titled(KINDS[number], results), xlabel="x", yscale="log", xlim=(-REACH, REACH))
        axes.set_xticks(range(-6, 7, 2))
    panels[0].set_ylabel("κ")
    return figure
