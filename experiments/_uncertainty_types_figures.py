"""The figures of the study `uncertainty_types`."""

from typing import Any

import numpy as np

from experiments._figures import new_figure
from experiments.uncertainty_types import GRID, POINTS, largest_sample, stds
from mder_jax.datasets import three_points_mean


def panels_of(results: dict[str, Any]) -> list[tuple[int, str]]:
    """The settings shown, with their titles."""
    titles = {"flexible": "μ flexible", "line": "μ a straight line"}
    return [(largest_sample(results, kind), title) for kind, title in titles.items()]


def bands(results: dict[str, Any]) -> Any:
    """Data, truth, and an ensemble with bands, for both kinds of μ."""
    figure, panels = new_figure(2, 4.2, 3.6, sharey=True)
    for axes, (number, title) in zip(panels, panels_of(results), strict=True):
        mean = results["mean"][number, 0]
        epistemic = results["within"][number, 0] + results["between"][number, 0]
        for variance, colour, name in (
            (results["aleatoric"][number, 0], "C0", "aleatoric"),
            (epistemic, "C1", "epistemic"),
        ):
            reach = 2 * np.sqrt(variance)
            axes.fill_between(GRID, mean - reach, mean + reach, color=colour, alpha=0.35, lw=0, label=f"± 2 std {name}")
        axes.plot(GRID, three_points_mean(GRID), "k--", lw=1, label="truth")
        axes.plot(GRID, mean, color="C2", label="model")
        axes.plot(np.repeat(POINTS, results["y"].shape[-1]), results["y"][0].ravel(), "k.", markersize=3, label="data")
        axes.set(title=title, xlabel="x", xticks=range(4), ylim=(-4, 4.9))
    panels[0].set_ylabel("y")
    panels[0].legend(ncols=2, loc="upper left")
    return figure


def parts(results: dict[str, Any]) -> Any:
    """The three parts at x = 0 to 3."""
    figure, panels = new_figure(2, 4.2, 3.2, sharey=True)
    names = {"aleatoric": "aleatoric", "within": "epistemic, within members", "between": "epistemic, between members"}
    for axes, (number, title) in zip(panels, panels_of(results), strict=True):
        for shift, (part, name) in zip((-0.15, 0, 0.15), names.items(), strict=True):
            low, middle, high = np.quantile(stds(results, part, number), (0.1, 0.5, 0.9), axis=0)
            bars = (middle - low, high - middle)
            axes.errorbar(np.arange(4) + shift, middle, bars, fmt="o", markersize=5, capsize=3, label=name)
        axes.set(title=title, xlabel="x", xticks=range(4), yscale="log")
        axes.set_xticklabels(["0", "1", "2 (no data)", "3 (noisy)"])
    panels[0].set_ylabel("standard deviation (unit of y)")
    panels[0].set_ylim(top=8)
    panels[0].legend(loc="upper left")
    return figure


def size(results: dict[str, Any]) -> Any:
    """The three parts against the number of measurements."""
    figure, panels = new_figure(3, 3.2, 3.2, sharey=True)
    flexible = [number for number, kind in enumerate(results["kinds"]) if kind == "flexible"]
    repeats = np.array([results["repeats"][number] for number in flexible])
    names = {"aleatoric": "aleatoric", "within": "within members", "between": "between members"}
    for axes, x in zip(panels, (0, 2, 3), strict=True):
        for colour, (part, name) in enumerate(names.items()):
            values = np.array([np.quantile(stds(results, part, i)[:, x], (0.1, 0.5, 0.9)) for i in flexible])
            axes.plot(repeats, values[:, 1], f"C{colour}o-", label=name)
            axes.fill_between(repeats, values[:, 0], values[:, 2], color=f"C{colour}", alpha=0.2, lw=0)
        if x in POINTS:
            error = results["noise"][list(POINTS).index(x)] * np.sqrt((1 - 1 / results["members"]) / repeats)
            axes.plot(repeats, error, "k:", label="error of a mean")
        axes.set(title=f"x = {x}" + (" (no data)" if x == 2 else ""), xlabel="measurements at each x")
        axes.set(xscale="log", yscale="log", xticks=repeats, xticklabels=repeats)
        axes.minorticks_off()
    panels[0].set_ylabel("standard deviation (unit of y)")
    panels[2].legend(loc="lower left")
    return figure
