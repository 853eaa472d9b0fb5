"""The figure of the study `evidence`."""

from typing import Any

from experiments.harness.figures import new_figure

CAPTIONS = {
    "float32": "Error of ln p(y | m) in float32 below which 90 % of examples stay, n = 2, residuals of order 1: the "
    "formula as printed and the stable form, (left) against ν and (right) against the scale of L."
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """Errors of both forms in float32."""
    figure, (left, right) = new_figure(2)
    for axes, x, title in ((left, "nu", "ν"), (right, "scale", "diagonal of L / residual")):
        for form, label in (("slogdet", "as printed (eq:nll)"), ("stable", "stable form")):
            axes.loglog(results[x], [point[form] for point in results[f"error_over_{x}"]], marker=".", label=label)
        axes.set(xlabel=title, ylabel="error of ln p in float32 (nats)")
    left.legend()
    return {"float32": figure}
