"""Figures on the degeneration of the likelihood."""

from typing import Any

import numpy as np

from experiments.harness.figures import line_with_range, new_figure

CAPTIONS = {
    "surface": "β(1+κ)/κ over the plane of β and κ (fig:degeneration). Along the lines in the plane the value, and "
    "with it the likelihood, is constant.",
    "manifold": "Along constant (1+κ)/κ Ψ: (left) the loss of Amini et al. above its NLL falls all the way to κ = 0, "
    "with both definitions of Φ; (right) least eigenvalues of the Hessian of the expected NLL relative to the largest: "
    "one vanishes if κ is free, none if ν = rκ.",
    "training": "Networks trained with Amini's loss: (left) κ while they train, median and 16 to 84 % of networks, "
    "Φ = 2κ + α; (right) κ at the end of training against λ, one point for each network, and medians.",
}
LABELS = {"amini2020": "Φ = 2κ + α", "meinert2021": "Φ' = κ + 2α"}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """The paper's surface, the loss and the Hessian along the manifold, and κ in training."""
    return {"surface": _surface(results), "manifold": _manifold(results), "training": _training(results)}


def _surface(results: dict[str, Any]) -> Any:
    figure, axes = new_figure(width=5.6, height=4.6, subplot_kw={"projection": "3d"})
    beta, kappa = np.meshgrid(results["surface"]["beta"], results["surface"]["kappa"])
    value, levels = results["surface"]["value"], [0.5, 1, 2, 3, 4, 6, 8, 10]
    floor = -0.6 * float(np.max(value))  # the plane lies below the surface, or it would hide the lines
    axes.plot_surface(beta, kappa, value, cmap="viridis", alpha=0.9, linewidth=0)
    axes.contour(beta, kappa, value, levels, zdir="z", offset=floor, cmap="viridis", vmin=0, vmax=float(np.max(value)))
    axes.set(zlim=(floor, float(np.max(value))), zticks=[0, 5, 10, 15])
    axes.set_xlabel("β (units of y²)", labelpad=6)
    axes.set_ylabel("κ", labelpad=8)
    axes.set_zlabel("β(1+κ)/κ (units of y²)", labelpad=4)
    axes.view_init(24, -125)
    axes.set_box_aspect((4, 4, 3.4), zoom=1.1)
    return figure


def _manifold(results: dict[str, Any]) -> Any:
    figure, (left, right) = new_figure(2)
    kappa, loss = results["kappa"], results["loss"]
    for number, lam in enumerate(results["lambdas"]):
        for phi, style in (("amini2020", "-"), ("meinert2021", "--")):
            left.loglog(kappa, lam * loss[phi], style, color=f"C{number}", label=f"λ = {lam:g}, {LABELS[phi]}")
    left.set(xlabel="κ, with β(1+κ)/κ constant", ylabel="loss − NLL (nats)")
    left.legend(fontsize="x-small")
    for number, row in enumerate(results["targets"]):
        for name, style, what in (("coupled_eigenvalues", "--", "ν = rκ"), ("eigenvalues", "-", "κ free")):
            least, label = np.maximum(np.abs(row[name][:, 0]), 1e-17), f"n = {row['n']}, {what}"
            right.loglog(row["hessian_kappa"], least, style, marker=".", color=f"C{number}", label=label)
    right.set(xlabel="κ, with (1+κ)/κ Ψ constant", ylabel="least relative eigenvalue", ylim=(1e-15, 10))
    right.legend(fontsize="x-small", loc="center right")
    return figure


def _training(results: dict[str, Any]) -> Any:
    figure, (left, right) = new_figure(2)
    training = results["training"]
    places = {lam: place for place, lam in enumerate([0.0, *results["lambdas"]])}
    for group, values in zip(training["groups"], training["kappa"], strict=True):
        lam, phi = group["lambda"], group["definition"]
        color = f"C{places[lam] - 1}" if lam else "0.3"
        if phi != "meinert2021":
            line_with_range(left, training["epoch"], values, (0.16, 0.84), color=color, label=f"λ = {lam:g}")
        x, ends = places[lam] + {"none": 0.0, "amini2020": -0.15, "meinert2021": 0.15}[phi], values[:, -1]
        marker = "s" if phi == "meinert2021" else "o"  # one for each network, and a bar at the median
        right.plot(np.full(len(ends), x), ends, marker, color=color, alpha=0.5, markersize=4)
        right.plot([x - 0.1, x + 0.1], [np.median(ends)] * 2, color=color, linewidth=2.5)
    left.set(xlabel="epoch", ylabel="κ = aleatoric / epistemic", yscale="log")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    right.set_xticks(list(places.values()), [f"{lam:g}" for lam in places])
    right.set(xlabel="λ", ylabel="κ at the end of training", yscale="log")
    for phi, marker in (("amini2020", "o"), ("meinert2021", "s")):
        right.plot([], [], marker, color="0.3", label=LABELS[phi])
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure
