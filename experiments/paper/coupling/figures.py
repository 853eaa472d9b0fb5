"""Figures of networks with different couplings."""

from typing import Any

import numpy as np

from experiments.harness.figures import line_with_interval, new_figure
from experiments.paper import circle_recipe
from experiments.paper.coupling.statistics import by_network

CAPTIONS = {
    "over_r": "The circle with couplings ν = r κ from 0.1 to 100: NLL per point, mean ν, standard deviations along "
    "the radius (medians over t; the true noise is 0.1), and κ (medians over t). Means over networks with bootstrap "
    "intervals of 95 %. Grey lines: κ left free, from two starts.",
}
FREE_STYLES = ("--", ":")
PANELS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("NLL per point (nats)", {"train": "training", "fresh": "fresh data"}, "fresh"),
    ("mean ν", {"nu_centre": "centre (sparse)", "nu_ends": "ends (dense)"}, ""),
    (
        "standard deviation along the radius",
        {"aleatoric": "aleatoric", "epistemic": "epistemic", "total": "total", "error": "error of μ (rms)"},
        "",
    ),
    ("κ after training", {"kappa": "coupled, κ = ν/r"}, "kappa"),
)


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """Four panels over r."""
    figure, panels = new_figure(2, rows=2, width=4.6, height=3.1)
    values = by_network(results)
    couplings = len(results["r"])
    for axes, (label, lines, free) in zip(panels.flat, PANELS, strict=True):
        for number, (name, note) in enumerate(lines.items()):
            line_with_interval(axes, results["r"], values[name][:couplings], f"C{number}", note)
        for place, start in enumerate(results["start"] if free else []):
            level = float(np.mean(values[free][couplings + place]))
            axes.axhline(level, color="0.5", linestyle=FREE_STYLES[place % 2], label=f"free κ, from {start:.2g}")
        axes.set(xscale="log", xlabel="coupling r = ν/κ", ylabel=label)
    panels[1, 0].axhline(circle_recipe.NOISE, color="0.5", linestyle="--", label="true noise")
    panels[1, 0].set_ylim(bottom=0)
    panels[1, 1].set_yscale("log")
    for axes in panels.flat:
        axes.legend()
    return {"over_r": figure}
