"""The figures of the study `nu_bias`; groups are the fits of each sample size."""

from typing import Any

import numpy as np

from experiments.harness.figures import new_figure, points_with_range, size_axis
from experiments.harness.statistics import interval
from experiments.paper.nu_bias.statistics import RANGE, main_truth, pick, printed

CAPTIONS = {
    "res": "Residuals of ν and σ over the sample size (the paper's figure): median and 16 % to 84 % of all fits, of "
    "those that the rule of the authors' notebook keeps, and the ranges their notebook prints.",
    "selection": "Fraction of fits that the rule of the authors' notebook keeps (it drops what ends near its limits), "
    "as printed there, and the fraction that ends at the bound of the wide box, where a normal fits best.",
    "multivariate": "ν for one target and for two: median residual with its 95 % interval, and width of the 16 % to "
    "84 % range, over the number of samples N and over the number of measured values N n.",
}
Groups = dict[int, dict[str, np.ndarray]]


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """The paper's figure, what selection does, and one target against two."""
    groups = {n: {size: pick(results, size, n) for size in results["sizes"]} for n in (1, 2)}
    truth, paper = main_truth(results), printed(results)
    return {
        "res": _residuals(groups[1], truth, paper),
        "selection": _selection(groups[1], paper),
        "multivariate": _multivariate(groups, truth),
    }


def _size_axis(axes: Any, sizes: list[int], label: str = "sample size N") -> None:
    """Ticks at sizes that are far enough apart."""
    size_axis(axes, [size for size in sizes if size in (50, 100, 200, 500, 1000, 2000, 5000, 10_000)] or sizes, label)


def _residuals(groups: Groups, truth: float, paper: dict[int, Any]) -> Any:
    figure, panels = new_figure(2, 4.6, 3.6)
    look = {"markersize": 4, "linestyle": "none"}
    for axes, name, column, letter, center in ((panels[0], "nu", 1, "ν", truth), (panels[1], "scale", 2, "σ", 1.0)):
        for size, group in groups.items():
            residual, kept = group[f"{name}_residual"], group["kept"]
            points_with_range(axes, size * 0.96, residual, RANGE, color="C0", marker="o", label="all fits", **look)
            if kept.any():
                label = "kept by the notebook's rule"
                points_with_range(axes, size, residual[kept], RANGE, color="C1", marker="s", label=label, **look)
            if size in paper:
                low, high = np.array(paper[size][column]) - center
                axes.plot([size * 1.04] * 2, [low, high], color="0.6", linewidth=4, label="printed in the notebook")
        axes.axhline(0, color="black", linewidth=0.8)
        _size_axis(axes, list(groups))
        axes.set_ylabel(f"{letter} − {center:g}")
    panels[0].set_yscale("symlog", linthresh=2, linscale=2)
    panels[0].set_yticks([-2, -1, 0, 1, 2, 5, 10, 100], ["−2", "−1", "0", "1", "2", "5", "10", "100"])
    panels[0].set_ylim(-3, 150)
    handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))  # one of each label
    panels[1].legend([handles[label] for label in sorted(handles)], sorted(handles), loc="upper right")
    return figure


def _selection(groups: Groups, paper: dict[int, Any]) -> Any:
    figure, axes = new_figure(1, 5.0, 3.2)
    sizes = list(groups)
    axes.plot(sizes, _percent(groups, "kept"), "C1s-", label="kept by the notebook's rule")
    axes.plot(list(paper), [count / 2 for count, *_ in paper.values()], "kx", label="printed in the notebook")
    axes.plot(sizes, _percent(groups, "at_bound"), "C0o-", label="ν at the bound of the wide box")
    _size_axis(axes, sizes)
    axes.set(ylabel="fraction of fits (%)", ylim=(-3, 103))
    axes.legend(loc="center right")
    return figure


def _percent(groups: Groups, name: str) -> list[float]:
    return [100 * float(np.mean(group[name])) for group in groups.values()]


def _multivariate(groups: dict[int, Groups], truth: float) -> Any:
    figure, (left, right) = new_figure(2, 4.6, 3.4)
    sizes = list(groups[1])
    ways = ((1, 1, "C0o-", "n = 1"), (2, 1, "C1s-", "n = 2, over N"), (2, 2, "C1s:", "n = 2, over N n"))
    for n, times, style, label in ways:
        percents = [100 * (groups[n][size]["nu"] / truth - 1) for size in sizes]
        middle, low, high = np.array([interval(values, draws=200) for values in percents]).T
        x = [times * size for size in sizes]
        look = {"label": label, "markersize": 4} | ({"markerfacecolor": "white"} if times == 2 else {})
        left.errorbar(x, middle, [middle - low, high - middle], fmt=style, **look)
        right.loglog(x, [np.diff(np.quantile(values, RANGE))[0] for values in percents], style, **look)
    left.axhline(0, color="black", linewidth=0.8)
    left.set(ylabel="median residual of ν (% of ν)")
    right.set(ylabel="16 % to 84 % range of ν (% of ν)")
    for axes in (left, right):
        _size_axis(axes, sizes, "N, or N n")
    right.legend()
    return figure
