"""The figures of the study `gaussian_fit`."""

from typing import Any

import numpy as np

from experiments.harness.figures import new_figure
from experiments.paper.gaussian_fit.statistics import GAP, GRID, KINDS, gaussian_loss, total_loss, unseen_loss

CAPTIONS = {
    "greg": "A Gaussian fitted by its likelihood to points in x and y: prediction (dashed, in the x-y plane) and, at "
    "every second point, its loss as a function of y within two standard deviations (solid), with the value L_i at "
    "the datum (dot). The fit on the right has no penalty on its weights: smaller total loss, worse fit.",
    "gap": "Fits to one data set with two standard deviations as a band; no data in the shaded range.",
    "losses": "Mean loss of training points and expected loss of new data; lines join the networks of one data set.",
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """fig:greg, the gap, and the losses of all data sets."""
    return {"greg": _greg(results), "gap": _gap(results), "losses": _losses(results)}


def _greg(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(2, 4.6, 4.2, subplot_kw={"projection": "3d"})
    totals = total_loss(results)
    floor = np.floor(gaussian_loss(0.0, results["std_at_points"][:2, 0]).min()) - 1
    for kind, axes in enumerate(panels):
        _landscape(axes, results, kind, floor)
        axes.set_title(f"{KINDS[kind]}: total loss {totals[kind, 0]:.1f}")
    return figure


def _landscape(axes: Any, results: dict[str, Any], kind: int, floor: float) -> None:
    """One data set: data and prediction on the floor, and the loss over y at every second point above."""
    x, y = results["x"], results["y"][0]
    mean, std = (results[f"{name}_at_points"][kind, 0] for name in ("mean", "std"))
    axes.plot(GRID, results["mean"][kind, 0], floor, "--", color="C1", label="prediction μ(x)")
    axes.scatter(x, y, np.full_like(x, floor), color="k", s=8, depthshade=False, label="data")
    span = np.linspace(-2, 2, 41)
    for i in range(0, len(x), 2):
        curve, here = (gaussian_loss(squared, std[i]) for squared in ((span * std[i]) ** 2, (y[i] - mean[i]) ** 2))
        label = "L(y) at $x_i$" if i == 0 else None
        axes.plot(np.full_like(span, x[i]), mean[i] + span * std[i], curve, color="C0", label=label)
        axes.plot([x[i], x[i]], [y[i], y[i]], [floor, here], color="0.7", lw=0.6)
        axes.scatter(x[i], y[i], here, color="C0", s=12, depthshade=False)
    axes.set(xlabel="x", ylabel="y", zlabel="L (nats)", zlim=(floor, 3), ylim=(-1.8, 1.8))
    axes.set_box_aspect(None, zoom=0.85)
    axes.set(xticks=(0, 0.5, 1), yticks=(-1, 0, 1))
    axes.view_init(elev=26, azim=-38)
    axes.legend(loc="upper left", fontsize="x-small")


def _gap(results: dict[str, Any]) -> Any:
    figure, panels = new_figure(len(KINDS), 3.4, 3.2, sharey=True)
    for kind, axes in enumerate(panels):
        mean, std = results["mean"][kind, 0], results["std"][kind, 0]
        axes.axvspan(*GAP, color="0.9", label="no data")
        axes.fill_between(GRID, mean - 2 * std, mean + 2 * std, alpha=0.3, label="μ ± 2σ")
        axes.plot(GRID, mean, color="C0", label="μ")
        axes.plot(GRID, results["truth"][0], "k:", label="truth")
        axes.plot(results["x"], results["y"][0], "k.", markersize=4, label="data")
        axes.set(title=KINDS[kind], xlabel="x", ylim=(-3.2, 2.2))
    panels[0].set_ylabel("y")
    panels[-1].legend(ncols=2, loc="lower center")
    return figure


def _losses(results: dict[str, Any]) -> Any:
    figure, (left, right) = new_figure(2, 4.0, 3.2)
    kinds = [KINDS.index(name) for name in ("over-fit", "fit", "under-fit")]
    for axes, loss in ((left, total_loss(results) / len(results["x"])), (right, unseen_loss(results))):
        axes.plot(loss[kinds], color="C0", alpha=0.4, marker="o", markersize=3, lw=0.8)
        axes.set_xticks(range(3), [KINDS[kind] for kind in kinds])
        axes.set_ylabel("mean L (nats)")
    left.set_title("training points")
    right.set_title("new y, where there are data")
    right.set_yscale("symlog", linthresh=1)
    right.yaxis.set_major_formatter("{x:g}")
    return figure
