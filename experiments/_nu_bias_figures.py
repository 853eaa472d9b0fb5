"""Figures of the study nu_bias; groups are the fits of each sample size."""

from typing import Any

import numpy as np

from experiments._claims import interval
from experiments._figures import new_figure

Groups = dict[int, dict[str, np.ndarray]]


def bars(values: np.ndarray) -> tuple[float, list[list[float]]]:
    """Median, and how far the 16 % and 84 % quantiles are from it, as error bars."""
    low, middle, high = np.quantile(values, [0.16, 0.5, 0.84])
    return middle, [[middle - low], [high - middle]]


def size_axis(axes: Any, sizes: list[int], label: str = "sample size N") -> None:
    """A logarithmic axis with a tick at sizes that are far enough apart."""
    axes.set_xscale("log")
    ticks = [size for size in sizes if size in (50, 100, 200, 500, 1000, 2000, 5000, 10_000)] or sizes
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(label)


def plot_residuals(groups: Groups, truth: float, printed: dict[int, Any]) -> Any:
    """fig. res: residuals of ν and σ over N."""
    figure, panels = new_figure(2, 4.6, 3.6)
    for axes, name, column, letter, center in ((panels[0], "nu", 1, "ν", truth), (panels[1], "scale", 2, "σ", 1.0)):
        for size, group in groups.items():
            residual, kept = group[f"{name}_residual"], group["kept"]
            draw_bar(axes, size * 0.96, residual, "C0", "o", "all fits")
            if kept.any():
                draw_bar(axes, size, residual[kept], "C1", "s", "kept by the notebook's rule")
            if size in printed:
                low, high = np.array(printed[size][column]) - center
                axes.plot([size * 1.04] * 2, [low, high], color="0.6", linewidth=4, label="printed in the notebook")
        axes.axhline(0, color="black", linewidth=0.8)
        size_axis(axes, list(groups))
        axes.set_ylabel(f"{letter} − {center:g}")
    panels[0].set_yscale("symlog", linthresh=2, linscale=2)
    panels[0].set_yticks([-2, -1, 0, 1, 2, 5, 10, 100], ["−2", "−1", "0", "1", "2", "5", "10", "100"])
    panels[0].set_ylim(-3, 150)
    handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))  # one of each label
    panels[1].legend([handles[label] for label in sorted(handles)], sorted(handles), loc="upper right")
    return figure


def draw_bar(axes: Any, x: float, values: np.ndarray, color: str, marker: str, label: str) -> None:
    """Median and 16 % to 84 % range at x."""
    middle, error = bars(values)
    axes.errorbar(x, middle, error, color=color, marker=marker, markersize=4, linestyle="none", label=label)


def plot_selection(groups: Groups, printed: dict[int, Any]) -> Any:
    """Shares of fits kept and at a bound over N."""
    figure, axes = new_figure(1, 5.0, 3.2)
    sizes = list(groups)
    printed_sizes = [size for size in sizes if size in printed]
    axes.plot(sizes, percent(groups, "kept"), "C1s-", label="kept by the notebook's rule")
    axes.plot(printed_sizes, [printed[size][0] / 2 for size in printed_sizes], "kx", label="printed in the notebook")
    axes.plot(sizes, percent(groups, "at_bound"), "C0o-", label="ν at the bound of the wide box")
    size_axis(axes, sizes)
    axes.set(ylabel="share of fits (%)", ylim=(-3, 103))
    axes.legend(loc="center right")
    return figure


def percent(groups: Groups, name: str) -> list[float]:
    """Share of fits of each size."""
    return [100 * float(np.mean(group[name])) for group in groups.values()]


def plot_multivariate(groups: dict[int, Groups], truth: float) -> Any:
    """Median residual and spread of ν for n = 1 and 2 over N and over N n."""
    figure, (left, right) = new_figure(2, 4.6, 3.4)
    sizes = list(groups[1])
    ways = ((1, 1, "C0o-", "n = 1"), (2, 1, "C1s-", "n = 2, over N"), (2, 2, "C1s:", "n = 2, over N n"))
    for n, times, style, label in ways:
        percents = [100 * (groups[n][size]["nu"] / truth - 1) for size in sizes]
        middle, low, high = np.array([interval(values, draws=200) for values in percents]).T
        x = [times * size for size in sizes]
        look = {"label": label, "markersize": 4} | ({"markerfacecolor": "white"} if times == 2 else {})
        left.errorbar(x, middle, [middle - low, high - middle], fmt=style, **look)
        right.loglog(x, [np.diff(np.quantile(values, [0.16, 0.84]))[0] for values in percents], style, **look)
    left.axhline(0, color="black", linewidth=0.8)
    left.set(ylabel="median residual of ν (% of ν)")
    right.set(ylabel="16 % to 84 % range of ν (% of ν)")
    for axes in (left, right):
        size_axis(axes, sizes, "N, or N n")
    right.legend()
    return figure
