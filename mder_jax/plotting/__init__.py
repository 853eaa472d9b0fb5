"""Figures of predictions: every function accepts `ax` last, makes a new figure if it is None, and returns the Axes.

A prediction is as in `metrics`: a `StudentT` or a `NIW` with batch shape (N,), or a `Mixture` whose members have batch
shape (M, N). y is (N, n), where NaN means that a target was not observed. Names of targets may have their units.

A new figure does not belong to pyplot: save it with ``ax.figure.savefig(path)``. Legends are above the axes, where they
cover no data, and titles are above the legends. In a narrow panel a legend takes much of the height: leave it out with
``legend=False`` and give the figure one for all panels, ``figure.legend(*ax.get_legend_handles_labels(), loc="outside
upper center", ncols=4)``.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from mder_jax import metrics
from mder_jax._checks import check_index, chosen_rows, floats, plain_probability
from mder_jax.metrics.scores import Prediction, prepared, students_of_rows
from mder_jax.mixture import as_mixture
from mder_jax.niw import NIW
from mder_jax.plotting import _drawing
from mder_jax.plotting._drawing import BLACK, BLUE, GREY, ORANGE, PALE, POINTS
from mder_jax.student_t import StudentT as StudentT  # for the examples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bands", "calibration", "ellipses", "nu_gate", "pit", "predicted_observed", "sparsification"]


def ellipses(
    prediction: Prediction,
    rows: Any = None,
    targets: Sequence[int] = (0, 1),
    coverage: float = 0.9,
    y: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """(y − mean)ᵀ Cov⁻¹ (y − mean) = r² for two targets of some rows, r such that y is inside with that probability.

    If the prediction has an epistemic part, the ellipse of the aleatoric covariance is drawn inside, with the same r.

    Args:
      prediction: of N rows and n ≥ 2 targets; a row without a covariance (df ≤ 2) has no ellipse.
      rows: indices of rows; None for a few, spread over the predicted means, with y observed if it is given.
      targets: indices of the two, on the horizontal and the vertical axis.
      coverage: of the ellipse, between 0 and 1.
      y: observations to draw as points, (N, n).
      names: of the n targets, with their units.
      legend: whether to have one.

    Example:
      >>> t = StudentT(5.0, np.zeros((3, 2)), np.broadcast_to(np.eye(2), (3, 2, 2)))
      >>> len(ellipses(t, rows=[0, 2]).patches)
      2
    """
    mixture = as_mixture(prediction)
    pair = list(check_index(targets, mixture.n))
    if len(pair) != 2:
        raise ValueError(f"an ellipse needs two targets; got {tuple(targets)}")
    labels = _drawing.labels(names, mixture.n)
    mean, aleatoric, epistemic = map(np.asarray, _drawing.moments(mixture))
    seen = np.full_like(mean, np.nan) if y is None else np.asarray(prepared(y, prediction)[0])
    complete = np.isfinite(seen[:, pair]).all(axis=1)
    chosen = _drawing.spread_rows(mean[:, pair[0]], complete) if rows is None else chosen_rows("rows", rows, len(mean))
    radius = _drawing.radius_of_pair(mixture, chosen, pair, plain_probability("coverage", coverage))
    centre, parts = mean[chosen][:, pair], [(f"total, {100 * coverage:.4g}% inside", aleatoric + epistemic, BLUE, 0.1)]
    if np.any(epistemic[chosen] != 0):
        parts.append(("aleatoric", aleatoric, ORANGE, 0.0))
    ax = _drawing.axes(ax)
    for label, covariance, colour, depth in parts:
        points = _drawing.boundary(centre, covariance[chosen][:, pair][:, :, pair], radius)
        for number, outline in enumerate(points[np.isfinite(points).all(axis=(1, 2))]):
            (patch,) = ax.fill(*outline.T, facecolor=(colour, depth), edgecolor=colour, linewidth=1)
            patch.set_label("_" if number else label)
    ax.plot(*centre.T, "+", color=BLACK, markersize=5, label="mean")
    if y is not None:
        seen = seen[chosen][:, pair]
        ax.plot(*np.stack([centre, seen]).transpose(2, 0, 1), color=BLACK, linewidth=0.6)  # from mean to point
        ax.plot(*seen.T, "o", color=BLACK, markersize=3.5, label="observed")
    ax.set(xlabel=labels[pair[0]], ylabel=labels[pair[1]])
    return _drawing.finished(ax, legend)


def bands(
    x: ArrayLike,
    prediction: Prediction,
    target: int = 0,
    coverage: Sequence[float] = (0.5, 0.9),
    y: ArrayLike | None = None,
    name: str | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Mean and central intervals of a target against one input, and mean ± √epistemic_jj if there is such a part.

    Args:
      x: the input, (N,), in any order.
      prediction: of N rows.
      target: its index.
      coverage: probabilities of the intervals.
      y: observations to draw as points, (N, n).
      name: of the target, with its unit.
      legend: whether to have one.

    Example:
      >>> t = StudentT(5.0, np.zeros((3, 1)), np.ones((3, 1, 1)))
      >>> print(bands([1.0, 3.0, 2.0], t, name="price (EUR)").lines[0].get_xdata())
      [1. 2. 3.]
    """
    mixture = as_mixture(prediction)
    (j,) = check_index([target], mixture.n)
    order, x = _drawing.ordered(x, mixture.batch_shape[0])
    means, _, epistemic = map(np.asarray, _drawing.moments(mixture))
    mean, spread = means[order, j], _drawing.root(epistemic[order, j, j])
    (several,) = floats(coverage=coverage)
    levels = sorted((plain_probability("coverage", level) for level in np.atleast_1d(several)), reverse=True)
    ax = _drawing.axes(ax)
    for level, depth in zip(levels, np.linspace(0.2, 0.4, len(levels)), strict=True):
        lower, upper = (np.asarray(end)[order, j] for end in _drawing.interval(students_of_rows(prediction), level))
        label = f"{100 * level:.4g}% interval"
        ax.fill_between(x, lower, upper, color=_drawing.tint(BLUE, depth), linewidth=0, label=label)
    if np.any(spread != 0):
        ax.fill_between(x, mean - spread, mean + spread, color=ORANGE, alpha=0.5, linewidth=0, label="± epistemic std")
    ax.plot(x, mean, color=BLUE, linewidth=1.4, label="mean")
    if y is not None:
        seen = np.asarray(prepared(y, prediction)[0])[order, j]
        ax.plot(x, seen, ".", color=BLACK, markersize=3, label="observed")
    ax.set(xlabel="x", ylabel=_drawing.label(name, j))
    return _drawing.finished(ax, legend)


def nu_gate(x: ArrayLike, niw: NIW, legend: bool = True, ax: "Axes | None" = None) -> "Axes":
    """ν, the virtual observations of the covariance, against one input: the members thin, their median thick.

    Args:
      x: the input, (N,), in any order.
      niw: of one network, batch shape (N,), or of M members, (M, N).
      legend: whether to have one.

    Example:
      >>> from mder_jax import couple
      >>> niw = couple(np.zeros((5, 3, 1)), np.ones((5, 3, 1, 1)), nu=np.full((5, 3), 8.0))
      >>> [text.get_text() for text in nu_gate([1.0, 2.0, 3.0], niw).get_legend().get_texts()]
      ['5 members', 'median']
    """
    if not isinstance(niw, NIW):
        raise TypeError(f"ν belongs to a NIW; got {type(niw).__name__} (a Mixture of NIW has it in `members`)")
    if len(niw.batch_shape) not in (1, 2):
        raise ValueError(f"the NIW must have batch shape (N,) or (M, N); got {niw.batch_shape}")
    nu = np.atleast_2d(np.asarray(niw.nu))
    order, x = _drawing.ordered(x, nu.shape[1])
    ax = _drawing.axes(ax)
    if len(nu) > 1:
        ax.plot(x, nu[:, order].T, color=BLUE, linewidth=0.6, alpha=max(0.15, len(nu) ** -0.5))
        ax.plot([], color=BLUE, linewidth=1, label=f"{len(nu)} members")  # a visible one, for the legend
    ax.plot(x, np.median(nu, axis=0)[order], color=ORANGE, linewidth=2.5, label="median" if len(nu) > 1 else "ν")
    ax.set(xlabel="x", ylabel="ν (virtual observations)")
    return _drawing.finished(ax, legend)


def calibration(
    y: ArrayLike,
    prediction: Prediction | Callable[[float], Any],
    names: Sequence[str] | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Fraction of y inside intervals, and of rows inside joint regions (n ≥ 2), against the nominal coverage.

    The band holds the line of a right prediction with probability 0.95 at each level, by the binomial distribution of
    the rows; it is for the target with the fewest observations.

    Args:
      y: (N, n).
      prediction: its central intervals and ellipsoids are counted; or a function that gives intervals (or regions) of
        the coverage it is told, such as ``model.predict_all(X).interval``, which is conformal after `calibrate`.
      names: of the n targets.
      legend: whether to have one.

    Example:
      >>> t = StudentT(5.0, np.zeros((3, 1)), np.ones((3, 1, 1)))
      >>> print(calibration(np.ones((3, 1)), t).get_ylabel())
      observed coverage
      >>> print(calibration(np.ones((3, 1)), t.interval).get_xlabel())
      nominal coverage
    """
    if callable(prediction):
        level, targets, joint = _drawing.given_coverage(y, prediction, names)
    else:
        level, targets, joint = _drawing.predicted_coverage(y, prediction, names)
    low, high = _drawing.chance(_drawing.fewest(y), level)
    ax = _drawing.axes(ax)
    ax.fill_between(level, low, high, color=PALE, linewidth=0, label=_drawing.BAND)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for j, (label, fraction) in enumerate(targets):
        ax.plot(level, fraction, **_drawing.line(j), label=label)
    if joint is not None:
        ax.plot(level, joint, color=BLACK, linewidth=2, label="joint region")
    ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return _drawing.finished(ax, legend)


def pit(
    y: ArrayLike,
    prediction: Prediction,
    joint: bool = False,
    names: Sequence[str] | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Histogram of P(Y_j ≤ y_j) for each target, or of all at once: flat at 1 if the prediction is right.

    The band holds the height of a bin with probability 0.95 if the values are uniform. `joint` shows
    `metrics.joint_pit` of the complete rows instead of `metrics.pit`.

    Example:
      >>> t = StudentT(5.0, np.zeros((3, 1)), np.ones((3, 1, 1)))
      >>> print(pit(np.ones((3, 1)), t).get_ylabel())
      density
    """
    y, mixture = prepared(y, prediction)
    labels = ["all targets"] if joint else _drawing.labels(names, mixture.n)
    values = _drawing.finite(metrics.joint_pit(y, mixture))[:, None] if joint else np.asarray(metrics.pit(y, mixture))
    rows = _drawing.fewest(values)
    edges = np.linspace(0, 1, int(np.clip(rows // 10, 5, 20)) + 1)
    bins = len(edges) - 1
    low, high = _drawing.chance(rows, 1 / bins) * bins
    ax = _drawing.axes(ax)
    ax.axhspan(low, high, color=PALE, linewidth=0, label=_drawing.BAND)
    ax.axhline(1, color=GREY, linewidth=0.8)
    for j, label in enumerate(labels):
        height = np.histogram(_drawing.finite(values[:, j]), edges, density=True)[0]
        ax.stairs(height, edges, fill=False, baseline=None, linewidth=1.6, **_drawing.line(j), label=label)
    ax.set(xlabel="joint PIT" if joint else "PIT", ylabel="density", xlim=(0, 1))
    ax.set_ylim(0, max(1.05 * high, 1.05 * ax.dataLim.y1))
    return _drawing.finished(ax, legend)


def predicted_observed(
    y: ArrayLike,
    prediction: Prediction,
    target: int = 0,
    name: str | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Observed y_j against the predicted mean with ± √Cov_jj; for more than 500 rows the density of points instead.

    Example:
      >>> t = StudentT(5.0, np.zeros((3, 1)), np.ones((3, 1, 1)))
      >>> print(predicted_observed(np.ones((3, 1)), t, name="price (EUR)").get_ylabel())
      observed price (EUR)
    """
    y, mixture = prepared(y, prediction)
    (j,) = check_index([target], mixture.n)
    means, aleatoric, epistemic = map(np.asarray, _drawing.moments(as_mixture(prediction)))
    seen, known = np.asarray(y)[:, j], ~np.isnan(np.asarray(y)[:, j])
    _drawing.fewest(seen[:, None])
    seen, mean, std = seen[known], means[known, j], _drawing.root((aleatoric + epistemic)[known, j, j])
    ends = np.quantile(_drawing.finite([seen, mean]), [0, 1])
    limits = ends + (0.04 * np.ptp(ends) or 1.0) * np.array([-1, 1])
    label, ax = _drawing.label(name, j), _drawing.axes(ax)
    if len(seen) > POINTS:
        cells = ax.hexbin(mean, seen, gridsize=50, extent=(*limits, *limits), bins="log", mincnt=1, linewidths=0.1)
        ax.figure.colorbar(cells, ax=ax, label="rows", shrink=0.8)
    else:
        bars: dict[str, Any] = {"ecolor": _drawing.tint(BLUE, 0.4), "elinewidth": 0.8}
        ax.errorbar(mean, seen, xerr=std, fmt="o", label="mean ± std", color=BLUE, markersize=3, **bars)
    ax.plot(limits, limits, color=ORANGE, linewidth=1, zorder=3, label="observed = predicted")
    ax.set(xlabel=f"predicted {label}", ylabel=f"observed {label}", xlim=limits, ylim=limits, aspect="equal")
    return _drawing.finished(ax, legend)


def sparsification(
    y: ArrayLike,
    prediction: Prediction,
    names: Sequence[str] | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """RMSE of the rows left / RMSE of all, as the most uncertain rows are removed first, or (thin) the worst.

    Example:
      >>> t = StudentT(5.0, np.zeros((3, 1)), np.array([[[1.0]], [[2.0]], [[3.0]]]))
      >>> print(sparsification(np.ones((3, 1)), t).get_xlabel())
      fraction of rows removed
    """
    y, mixture = prepared(y, prediction)
    _drawing.fewest(y)
    labels = _drawing.labels(names, mixture.n)
    fraction, error, oracle = (np.asarray(part) for part in metrics.sparsification(y, mixture))
    ax = _drawing.axes(ax)
    for j, label in enumerate(labels):
        ax.plot(fraction, error[:, j], **_drawing.line(j), linewidth=2, label=label)
        ax.plot(fraction, oracle[:, j], **_drawing.line(j), linewidth=0.8)
    ax.plot([], [], color=GREY, linewidth=0.8, label="oracle")
    ax.set(xlabel="fraction of rows removed", ylabel="RMSE / RMSE of all rows", xlim=(0, 1))
    ax.set_ylim(bottom=0)
    return _drawing.finished(ax, legend)
