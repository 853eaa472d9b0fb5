"""The figures of the study `gaussian_fit`."""

from typing import Any

import numpy as np

from experiments._figures import new_figure
from experiments.gaussian_fit import GAP, GRID, KINDS, gaussian_loss, total_loss, unseen_loss


def greg(results: dict[str, Any]) -> Any:
    """Both panels of fig:greg."""
    figure, panels = new_figure(2, 4.6, 4.2, subplot_kw={"projection": "3d"})
    totals = total_loss(results)
    floor = np.floor(gaussian_loss(0.0, results["std_at_points"][:2, 0]).min()) - 1
    for number, axes in enumerate(panels):
        landscape(axes, results, number, floor)
        axes.set_title(f"{KINDS[number]}: total loss {totals[number, 0]:.1f}")
    return figure


def landscape(axes: Any, results: dict[str, Any], kind: int, floor: float) -> None:
    """One data set: data and prediction on the floor, and the loss over y at every second point above."""
    x, y, mean, std = (
        results["x"],
        results["y"][0],
        results["mean_at_points"][kind, 0],
        results["std_at_points"][kind, 0],
    )
    axes.plot(GRID, results["mean"][kind, 0], floor, "--", color="C1", label="prediction μ(x)")
    axes.scatter(x, y, np.full_like(x, floor), color="k", s=8, depthshade=False, label="data")
    span = np.linspace(-2, 2, 41)
    for i in range(0, len(x), 2):
        curve = gaussian_loss((span * std[i]) ** 2, std[i])
        axes.plot(
            np.full_like(span, x[i]),
            mean[i] + span * std[i],
            curve,
            color="C0",
            label="L(y) at $x_i$" if i == 0 else None,
        )
        here = gaussian_loss((y[i] - mean[i]) ** 2, std[i])
        axes.plot([x[i], x[i]], [y[i], y[i]], [floor, here], color="0.7", lw=0.6)
        axes.scatter(x[i], y[i], here, color="C0", s=12, depthshade=False)
    axes.set(xlabel="x", ylabel="y", zlabel="L (nats)", zlim=(floor, 3), ylim=(-1.8, 1.8))
    axes.set_box_aspect(None, zoom=0.85)
    axes.set(xticks=(0, 0.5, 1), yticks=(-1, 0, 1))
    axes.view_init(elev=26, azim=-38)
    axes.legend(loc="upper left", fontsize="x-small")


def gap(results: dict[str, Any]) -> Any:
    """Bands of the three fits to one data set."""
    figure, panels = new_figure(len(KINDS), 3.4, 3.2, sharey=True)
    for number, axes in enumerate(panels):
        mean, std = results["mean"][number, 0], results["std"][number, 0]
        axes.axvspan(*GAP, color="0.9", label="no data")
        axes.fill_between(GRID, mean - 2 * std, mean + 2 * std, alpha=0.3, label="μ ± 2σ")
        axes.plot(GRID, mean, color="C0", label="μ")
        axes.plot(GRID, results["truth"][0], "k:", label="truth")
        axes.plot(results["x"], results["y"][0], "k.", markersize=4, label="data")
        axes.set(title=KINDS[number], xlabel="x", ylim=(-3.2, 2.2))
    panels[0].set_ylabel("y")
    panels[-1].legend(ncols=2, loc="lower center")
    return figure


def losses(results: dict[str, Any]) -> Any:
    """Losses of all data sets."""
    figure, panels = new_figure(2, 4.0, 3.2)
    shown = (total_loss(results) / len(results["x"]), unseen_loss(results))
    for axes, loss, name in zip(panels, shown, ("training points", "new y, where there are data"), strict=True):
        axes.plot(loss[[1, 0, 2]], color="C0", alpha=0.4, marker="o", markersize=3, lw=0.8)
        axes.set_xticks(range(3), [KINDS[i] for i in (1, 0, 2)])
        axes.set(title=name, ylabel="mean L (nats)")
    panels[1].set_yscale("symlog", linthresh=1)
    panels[1].yaxis.set_major_formatter("{x:g}")
    return figure
