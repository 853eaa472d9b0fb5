"""Figures of networks trained on samples of different size."""

from typing import Any

import numpy as np

from experiments.harness.figures import angle_axis, line_with_interval, new_figure
from experiments.paper import circle_recipe
from experiments.paper.sample_size.statistics import EQUAL, by_data_set

CAPTIONS = {
    "over_n": "The circle trained on 50 to 30,000 points: mean ν, NLL per point, error of the mean and of the "
    "correlation. Means over data sets with bootstrap intervals of 95 %. Networks of all sizes take equal steps of "
    "the optimiser (solid) or equal passes over the data (dashed). Centre and ends are within π/4 of π and of 0, 2π; "
    "flips are within π/8 of 0.5π, π, 1.5π, and the other two regions of the correlation leave them out.",
    "over_t": "ν (left) and the error of the correlation (right) over t, means over all networks of a sample size.",
}
PANELS = (
    ("mean ν", {"nu_centre": "centre (sparse)", "nu_ends": "ends (dense)"}),
    ("NLL per point (nats)", {"train": "training", "fresh": "fresh data"}),
    ("mean error of μ", {"error_middle": "0.5π to 1.5π", "error_rest": "elsewhere"}),
    ("mean error of ρ", {"off_flips": "at sign flips", "off_middle": "0.5π to 1.5π", "off_rest": "elsewhere"}),
)
GATE = (2.8, 13.3)  # ν lies between 3 and 13
LINES = {"steps": "-", "epochs": "--"}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """Over the sample size, and over t."""
    return {"over_n": _over_n(results), "over_t": _over_t(results)}


def _over_n(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(2, rows=2, width=4.6, height=3.1)
    for axes, (label, lines) in zip(panels.flat, PANELS, strict=True):
        for budget, found in results["budgets"].items():
            values = by_data_set(found)
            for number, (name, region) in enumerate(lines.items()):
                note = region if len(results["budgets"]) == 1 else f"{region}, {EQUAL[budget]}"
                line_with_interval(axes, results["sizes"], values[name], f"C{number}", note, LINES[budget])
        axes.set(xscale="log", xlabel="points to train on", ylabel=label)
        axes.legend()
    panels[0, 0].set_ylim(GATE)
    panels[1, 1].set_ylim(top=1.25)  # room for the legend
    panels[1, 0].set_yscale("log")
    panels[1, 0].set_yticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"])
    panels[1, 0].minorticks_off()
    return figure


def _over_t(results: dict[str, Any]) -> Any:
    from matplotlib import colormaps

    budgets = results["budgets"]
    figure, panels = new_figure(2, rows=len(budgets), width=4.6, height=3.1, squeeze=False)
    colours = colormaps["viridis"](np.linspace(0, 0.92, len(results["sizes"])))
    for (left, right), (budget, found) in zip(panels, budgets.items(), strict=True):
        off = np.abs(found["correlation"] - circle_recipe.true_correlation(results["t"]))
        for place, (size, colour) in enumerate(zip(results["sizes"], colours, strict=True)):
            left.plot(results["t"], np.mean(found["nu"][place], axis=(0, 1)), color=colour, label=f"{size:,}")
            right.plot(results["t"], np.mean(off[place], axis=(0, 1)), color=colour)
        for axes, label in ((left, "ν"), (right, "error of ρ")):
            angle_axis(axes)
            axes.set(ylabel=label, title=EQUAL[budget])
        left.set_ylim(GATE)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), title="points", loc="outside right center")
    return figure
