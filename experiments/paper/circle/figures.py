"""Figures data, data_xyt, predictions, nu and covcorr of the paper, and the uncertainties."""

from typing import Any

import numpy as np

from experiments.harness.figures import ANGLE_NAMES, ANGLES, angle_axis, line_with_range, new_figure
from experiments.paper import circle_recipe
from experiments.paper.circle.statistics import POINTS, scale_of
from experiments.paper.circle_recipe import GRID

CAPTIONS = {
    "data": "fig:data. The training data in the xy-plane; colour is t.",
    "data_xyt": "fig:data_xyt. The same data over t.",
    "predictions": "fig:predictions. What the networks predict for (x, y), overlaid; colour is t.",
    "nu": "fig:nu. The gate ν of all networks. A low ν means a large epistemic uncertainty; grey: density of the data.",
    "covcorr": "fig:covcorr. Covariance in Σ₀ (left, up to a scale) and correlation (right) of x and y from all "
    "networks, with the analytic J cov Jᵀ.",
    "uncertainties": "Aleatoric and epistemic standard deviation of x and y over t, median and 16 to 84 % of the "
    "networks; the truth is the noise 0.1 |cos t| and 0.1 |sin t|.",
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """All figures, of the first data set and of 270 points."""
    first = {name: value[0] for name, value in results["readings"]["split"].items()}
    t, xy = results["t"][0], results["xy"][0]
    return {
        "data": _data(t, xy),
        "data_xyt": _data_over_t(t, xy),
        "predictions": _predictions(first["mu"]),
        "nu": _gates(t, {name: values["nu"][0] for name, values in results["readings"].items()}),
        "covcorr": _covariances(first),
        "uncertainties": _uncertainties(first),
    }


def _data(t: np.ndarray, xy: np.ndarray) -> Any:
    figure, axes = new_figure(width=4.6, height=3.8)
    points = axes.scatter(xy[:, 0], xy[:, 1], c=t, s=9, vmin=0, vmax=2 * np.pi)
    return _in_plane(figure, axes, points)


def _data_over_t(t: np.ndarray, xy: np.ndarray) -> Any:
    figure, axes = new_figure(width=5.2, height=4.4, subplot_kw={"projection": "3d"})
    axes.scatter(xy[:, 0], xy[:, 1], t, c=t, s=7, vmin=0, vmax=2 * np.pi)
    axes.set(xlabel="x", ylabel="y", zlabel="t (rad)", zlim=(0, 2 * np.pi))
    axes.set_zticks(ANGLES, ANGLE_NAMES)
    axes.set_box_aspect(None, zoom=1.0)
    return figure


def _predictions(mu: np.ndarray) -> Any:
    from matplotlib.collections import LineCollection

    figure, axes = new_figure(width=4.6, height=3.8)
    segments = np.stack([mu[:, :-1], mu[:, 1:]], axis=2).reshape(-1, 2, 2)
    colour = np.tile(GRID[:-1], len(mu))
    lines = LineCollection(list(segments), array=colour, linewidths=0.5, alpha=0.35, rasterized=True)
    lines.set_clim(0, 2 * np.pi)
    axes.add_collection(lines)
    angles = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angles), np.sin(angles), color="black", linewidth=1, linestyle=":", label="truth")
    axes.legend(loc="center")
    return _in_plane(figure, axes, lines)


def _in_plane(figure: Any, axes: Any, coloured: Any) -> Any:
    """The figure with axes of the xy-plane and a bar for the colour t."""
    axes.set(xlabel="x", ylabel="y", xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")
    bar = figure.colorbar(coloured, label="t (rad)", shrink=0.8)
    bar.solids.set(alpha=1)
    bar.set_ticks(ANGLES, labels=ANGLE_NAMES)
    return figure


def _gates(t: np.ndarray, gates: dict[str, np.ndarray]) -> Any:
    figure, panels = new_figure(columns=len(gates), width=4.8, height=3.4, squeeze=False)
    for axes, (name, nu) in zip(panels[0], gates.items(), strict=True):
        density, edges = np.histogram(t, bins=24, range=(0, 2 * np.pi))
        height = 3 * density / density.max()
        axes.bar(edges[:-1], height, np.diff(edges), align="edge", color="0.85", zorder=0, label="density of data")
        _overlay(axes, nu, "C0")
        axes.plot(GRID, np.median(nu, axis=0), color="C1", label="median")
        axes.set(ylim=(0, 14), ylabel="ν", title=f"trained on {POINTS[name]} points")
        for end in (3, 13):
            axes.axhline(end, color="0.5", linewidth=0.8, linestyle="--")
        angle_axis(axes)
        axes.legend(loc="center")
    return figure


def _overlay(axes: Any, curves: np.ndarray, color: str) -> None:
    """All members as thin lines, rasterised so that the PDF stays small."""
    from matplotlib.collections import LineCollection

    alpha = float(np.clip(12 / len(curves), 0.02, 0.5))
    lines = [np.column_stack([GRID, curve]) for curve in curves]
    axes.add_collection(LineCollection(lines, colors=color, linewidths=0.6, alpha=alpha, rasterized=True))


def _covariances(reading: dict[str, np.ndarray]) -> Any:
    figure, (left, right) = new_figure(columns=2, width=4.8, height=3.4)
    covariance, truth = circle_recipe.covariance(reading["L"]), circle_recipe.true_covariance()
    scale = scale_of(np.median(covariance, axis=0), truth)
    correlation = circle_recipe.correlation(reading["L"])
    for axes, values, target, label in (
        (left, covariance, scale * truth, f"J cov Jᵀ, times {scale:.2f}"),
        (right, correlation, circle_recipe.true_correlation(), "J cov Jᵀ"),
    ):
        _overlay(axes, values, "C0")
        axes.plot(GRID, np.median(values, axis=0), color="C1", label="median")
        axes.plot(GRID, target, color="black", linestyle=":", label=label)
        angle_axis(axes)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    left.set(ylim=np.array([-3, 3]) * np.abs(truth).max(), ylabel="covariance of x and y in Σ₀ = L Lᵀ")
    right.set(ylim=(-1.08, 1.08), ylabel="correlation of x and y")
    return figure


def _uncertainties(reading: dict[str, np.ndarray]) -> Any:
    figure, panels = new_figure(columns=2, width=4.8, height=3.4)
    nu, L = reading["nu"], reading["L"]
    variances = np.sum(L**2, axis=-1)  # the diagonal of L Lᵀ
    aleatoric = np.sqrt(variances * (nu / (nu - 3))[..., None])
    epistemic = aleatoric / np.sqrt(nu)[..., None]
    truths = np.abs(circle_recipe.true_mean()) * circle_recipe.NOISE
    for number, (axes, name) in enumerate(zip(panels, "xy", strict=True)):
        for kind, values in (("aleatoric", aleatoric), ("epistemic", epistemic)):
            line_with_range(axes, GRID, values[..., number], (0.16, 0.84), label=kind)
        axes.plot(GRID, truths[:, number], color="black", linestyle=":", label="noise (truth)")
        axes.set(ylabel=f"standard deviation of {name}", yscale="log", ylim=(3e-3, 1))
        angle_axis(axes)
        axes.legend(loc="lower right")
    return figure
