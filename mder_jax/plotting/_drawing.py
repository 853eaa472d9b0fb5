"""What the figures of `plotting` share: axes, colours, legends, and the numbers they are drawn from."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from mder_jax import metrics
from mder_jax._arguments import flag, target_names
from mder_jax._checks import check_same, floats
from mder_jax.metrics.scores import Prediction, Regions, prepared
from mder_jax.mixture import Mixture, radius_of_tail

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours of Okabe and Ito, which any colour vision distinguishes; lines beyond them are dashed.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
BLACK, GREY, PALE = "#000000", "#666666", "#D9D9D9"
DASHES = ("-", "--", "-.", ":")
# Ellipses drawn by default, rows above which points become a density, and probability of a band of chance.
ELLIPSES, POINTS, CHANCE = 6, 500, 0.95
# Levels at which given intervals are counted.
LEVELS = np.linspace(0.05, 0.95, 19)
BAND = f"{100 * CHANCE:g}% band if right"


def axes(ax: "Axes | None") -> "Axes":
    """These axes, or those of a new figure."""
    if ax is not None:
        if not hasattr(ax, "get_legend_handles_labels"):
            raise TypeError(f"ax must be matplotlib Axes, or None for a new figure; got {type(ax).__name__}")
        return ax
    from matplotlib.figure import Figure

    ax = Figure(figsize=(5.0, 4.0), layout="constrained").subplots()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    return ax


def finished(ax: "Axes", legend: bool) -> "Axes":
    """The axes with few ticks and, if wanted, a legend above them, in as many columns as they are wide for."""
    ax.locator_params(axis="x", nbins=5)  # long numbers would touch each other
    if flag("legend", legend):
        handles, labels = ax.get_legend_handles_labels()
        columns = _width_in_letters(ax) // (8 + max(map(len, labels)))  # 8 for the sample and the gap
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0}
        columns = int(np.clip(columns, 1, len(labels)))
        _keep_title_above(ax, ax.legend(handles, labels, ncols=columns, frameon=False, fontsize="small", **above))
    return ax


def _width_in_letters(ax: "Axes") -> int:
    """How many letters of a legend fit into the width of the axes: one is about 0.6 of the size of the font."""
    from matplotlib.font_manager import FontProperties

    points = 72 * ax.get_window_extent().width / ax.figure.dpi
    return int(points / (0.6 * FontProperties(size="small").get_size_in_points()))


def _keep_title_above(ax: "Axes", legend: Any) -> None:
    """Have a title put above the legend: matplotlib puts it above all inset axes, so one covers the legend, unseen."""

    def place(_: Any, renderer: Any) -> Any:
        return legend.get_window_extent(renderer).transformed(ax.figure.transSubfigure.inverted())

    cover = ax.inset_axes((0, 1, 1, 0))
    cover.set_axes_locator(place)
    cover.set_visible(False)


def line(j: int) -> dict[str, Any]:
    """Colour and dashes of target j."""
    turn, colour = divmod(j, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[turn % len(DASHES)]}


def tint(colour: str, depth: float) -> tuple[float, ...]:
    """The colour mixed with white: white at depth 0."""
    from matplotlib.colors import to_rgb

    return tuple(1 - depth * (1 - part) for part in to_rgb(colour))


def labels(names: Sequence[str] | None, n: int) -> list[str]:
    return [label(name, j) for j, name in enumerate(target_names(names, n))]


def label(name: str | None, j: int) -> str:
    """The name of target j for matplotlib to print unchanged: no formulas, not hidden, one line of bounded length."""
    text = f"y{j}" if name is None else " ".join(str(name).split())
    text = text if len(text) <= 40 else f"{text[:28]}…{text[-11:]}"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


@jax.jit
def moments(mixture: Mixture) -> tuple[Array, Array, Array]:
    """Mean (N, n), aleatoric and epistemic covariance (N, n, n)."""
    return mixture.mean(), mixture.aleatoric(), mixture.epistemic()


interval, _radius_of_tail = jax.jit(Mixture.interval), jax.jit(radius_of_tail)


def radius_of_pair(mixture: Mixture, rows: np.ndarray, pair: list[int], coverage: float) -> np.ndarray:
    """Standard deviations from the mean within which both targets of each row lie with that probability."""
    parts = (mixture.components(), mixture.log_weights)
    members, weights = jax.tree.map(lambda leaf: leaf[:, rows], parts)
    marginal = Mixture(members.marginal(pair), weights)
    return np.asarray(_radius_of_tail(marginal, np.asarray(1 - coverage, members.loc.dtype)))


@np.errstate(invalid="ignore", divide="ignore")  # a covariance that is none has no ellipse
def boundary(centre: np.ndarray, covariance: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Points of the ellipses, (rows, 100, 2): centre + r C (cos φ, sin φ) with C Cᵀ the 2 × 2 covariance."""
    angle = np.linspace(0, 2 * np.pi, 100)
    across = np.sqrt(covariance[:, 0, 0])
    slope = covariance[:, 0, 1] / across
    up = np.sqrt(np.maximum(covariance[:, 1, 1] - slope**2, 0.0))  # the targets may be one line
    x = across[:, None] * np.cos(angle)
    y = slope[:, None] * np.cos(angle) + up[:, None] * np.sin(angle)
    return centre[:, None] + radius[:, None, None] * np.stack([x, y], axis=-1)


def spread_rows(values: np.ndarray, preferred: np.ndarray) -> np.ndarray:
    """A few of the preferred rows (of all, if there are none), evenly spaced in the order of their values."""
    order = np.argsort(values, kind="stable")
    order = order[preferred[order]] if preferred.any() else order
    return order[np.unique(np.linspace(0, len(order) - 1, ELLIPSES).astype(int))]


def ordered(x: ArrayLike, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The order of x, (N,), and x in this order."""
    (x,) = floats(x=x)
    check_same("x", x, (count,), "the prediction's rows")
    values = np.asarray(x)
    if not np.isfinite(values).all():
        row = np.argmin(np.isfinite(values))
        raise ValueError(f"x must be finite; got {values[row]} in row {row}")
    order = np.argsort(values, kind="stable")
    return order, values[order]


class CoverageCurves(NamedTuple):
    """The nominal level (K,), the observed fraction (K,) of each target, with its label, and of joint regions."""

    level: np.ndarray
    targets: list[tuple[str, np.ndarray]]
    joint: np.ndarray | None


def predicted_coverage(y: ArrayLike, prediction: Prediction, names: Sequence[str] | None) -> CoverageCurves:
    """Of the central intervals and ellipsoids of a prediction, at 100 levels."""
    y, mixture = prepared(y, prediction)
    named = labels(names, mixture.n)
    level, observed = (np.asarray(part) for part in metrics.calibration_curve(y, mixture))
    joint = finite(metrics.joint_pit(y, mixture)) if mixture.n > 1 else np.empty(0)
    inside = np.searchsorted(np.sort(joint), level, side="right") / joint.size if joint.size else None
    return CoverageCurves(level, list(zip(named, observed.T, strict=True)), inside)


def given_coverage(y: ArrayLike, sets: Callable[[float], Any], names: Sequence[str] | None) -> CoverageCurves:
    """Of the intervals, or the regions, that a function makes for each of `LEVELS`."""
    given = [sets(float(level)) for level in LEVELS]
    if isinstance(given[0], Regions):
        return CoverageCurves(LEVELS, [], np.array([metrics.joint_coverage(y, region).value for region in given]))
    observed = np.stack([np.atleast_1d(metrics.coverage(y, interval).coverage) for interval in given])
    return CoverageCurves(LEVELS, list(zip(labels(names, observed.shape[1]), observed.T, strict=True)), None)


def root(variance: np.ndarray) -> np.ndarray:
    """Standard deviations, NaN where there is none."""
    return np.sqrt(np.where(np.isfinite(variance) & (variance >= 0), variance, np.nan))


def finite(values: Any) -> np.ndarray:
    values = np.asarray(values)
    return values[np.isfinite(values)]


def fewest(values: Any) -> int:
    """The fewest observations of a target that has any; values are (N, n) with NaN."""
    counts = np.isfinite(np.asarray(values)).sum(axis=0)
    if not counts.any():
        raise ValueError(f"nothing was observed: all values of shape {np.shape(values)} are missing")
    return int(counts[counts > 0].min())


def chance(rows: int, fraction: Any) -> np.ndarray:
    """Ends of the band in which the observed fraction of N rows lies with probability `CHANCE`, (2, ...)."""
    from scipy.stats import binom

    tail = (1 - CHANCE) / 2
    return np.stack([binom.ppf(p, rows, fraction) / rows for p in (tail, 1 - tail)])
