"""The figures of the study `uncertainty_types`."""

from typing import Any

import numpy as np

import mder_jax as mder
from experiments.harness.figures import line_with_range, new_figure, points_with_range, size_axis
from experiments.paper.uncertainty_types.statistics import GRID, PARTS, POINTS, settings_of, stds

CAPTIONS = {
    "unctypes": "Measurements at x = 0, 1 and 3, the truth, and the ensemble of one data set with two standard "
    "deviations of each kind. Left: μ is free. Right: μ is a line that started flat and misses x = 1, as in the paper.",
    "parts": "The parts of the ensemble's standard deviation at x = 0 to 3: median over data sets, bars from the 10 % "
    "to the 90 % quantile.",
    "size": "The parts against the number of measurements at each x (flexible μ): median over data sets, bands from "
    "the 10 % to the 90 % quantile. Dotted: the error of a mean, reduced to what an ensemble of this size can show.",
}
RANGE = (0.1, 0.9)
PANELS = {"flexible": "μ flexible", "line": "μ a straight line"}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """fig:unctypes, its parts at x = 0 to 3, and the sample size."""
    return {"unctypes": _bands(results), "parts": _parts(results), "size": _size(results)}


def _bands(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(2, 4.2, 3.6, sharey=True)
    for axes, (kind, title) in zip(panels, PANELS.items(), strict=True):
        largest = settings_of(results, kind)[-1]
        mean, aleatoric, within, between = (results[name][largest, 0] for name in ("mean", *PARTS))
        for variance, colour, name in ((aleatoric, "C0", "aleatoric"), (within + between, "C1", "epistemic")):
            reach = 2 * np.sqrt(variance)
            axes.fill_between(GRID, mean - reach, mean + reach, color=colour, alpha=0.35, lw=0, label=f"± 2 std {name}")
        axes.plot(GRID, mder.datasets.three_points_mean(GRID), "k--", lw=1, label="truth")
        axes.plot(GRID, mean, color="C2", label="model")
        axes.plot(np.repeat(POINTS, results["y"].shape[-1]), results["y"][0].ravel(), "k.", markersize=3, label="data")
        axes.set(title=title, xlabel="x", xticks=range(4), ylim=(-4, 4.9))
    panels[0].set_ylabel("y")
    panels[0].legend(ncols=2, loc="upper left")
    return figure


def _parts(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(2, 4.2, 3.2, sharey=True)
    names = {"aleatoric": "aleatoric", "within": "epistemic, within members", "between": "epistemic, between members"}
    for axes, (kind, title) in zip(panels, PANELS.items(), strict=True):
        largest = settings_of(results, kind)[-1]
        for shift, (part, name) in zip((-0.15, 0, 0.15), names.items(), strict=True):
            look = {"fmt": "o", "markersize": 5, "capsize": 3, "label": name}
            points_with_range(axes, np.arange(4) + shift, stds(results, part, largest), RANGE, **look)
        axes.set(title=title, xlabel="x", xticks=range(4), yscale="log")
        axes.set_xticklabels(["0", "1", "2 (no data)", "3 (noisy)"])
    panels[0].set(ylabel="standard deviation (unit of y)", ylim=(None, 8))
    panels[0].legend(loc="upper left")
    return figure


def _size(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(3, 3.2, 3.2, sharey=True)
    flexible = settings_of(results, "flexible")
    repeats = np.array([results["repeats"][setting] for setting in flexible])
    names = {"aleatoric": "aleatoric", "within": "within members", "between": "between members"}
    for axes, x in zip(panels, (0, 2, 3), strict=True):
        for colour, (part, name) in enumerate(names.items()):
            values = np.stack([stds(results, part, setting)[:, x] for setting in flexible], axis=1)
            line_with_range(axes, repeats, values, RANGE, f"C{colour}o-", label=name)
        if x in POINTS:
            error = results["noise"][list(POINTS).index(x)] * np.sqrt((1 - 1 / results["members"]) / repeats)
            axes.plot(repeats, error, "k:", label="error of a mean")
        axes.set(title=f"x = {x}" + (" (no data)" if x == 2 else ""), yscale="log")
        size_axis(axes, repeats, "measurements at each x")
        axes.yaxis.minorticks_off()
    panels[0].set_ylabel("standard deviation (unit of y)")
    panels[2].legend(loc="lower left")
    return figure
