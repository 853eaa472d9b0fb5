"""The report of `mder evaluate`: one self-contained HTML file with scores, figures and the most uncertain rows."""

import io
import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mder_jax import metrics, plotting
from mder_jax._checks import check_same, floats
from mder_jax.cli import html
from mder_jax.metrics import scores
from mder_jax.metrics.reports import Report, cells
from mder_jax.metrics.scores import Estimate, Prediction
from mder_jax.mixture import Mixture
from mder_jax.student_t import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The largest numbers of rows in the figures and in the table of the most uncertain ones, and of pairs and targets.
DRAWN_ROWS, LISTED_ROWS, DRAWN_PAIRS, DRAWN_TARGETS = 20_000, 20, 6, 12
STYLE = """
body { overflow-wrap: anywhere; } figure { margin: 1rem 0; min-width: 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 0 1.5rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { overflow-wrap: normal; font-variant-numeric: tabular-nums; } th, td { padding: .35rem .7rem .35rem 0; }
th { font-weight: 600; } td.number, th.number { text-align: right; white-space: nowrap; }
.first { border-left: 1px solid var(--line); padding-left: .7rem; }
td.about { opacity: .85; min-width: 14rem; }
"""


def evaluation_page(
    y: np.ndarray,
    prediction: Prediction,
    report: Report,
    *,
    title: str,
    facts: dict[str, str],
    uncertainty: Any,
    lower: np.ndarray,
    upper: np.ndarray,
    rows: Sequence[Any] | None = None,
) -> str:
    """The report as HTML without script and external links.

    Args:
      y: observations, (N, n), NaN where there is none.
      prediction: of N rows and n targets, in the units of y.
      report: `metrics.report` of these, with the names of the targets and the coverage of the intervals.
      title: heading of the report.
      facts: about model and table, below the heading.
      uncertainty: `mean` (N, n), `aleatoric`, `epistemic` and `total` (N, n, n).
      lower: ends of the intervals, (N, n).
      upper: the other ends.
      rows: labels of the rows; None for their indices from 1.
    """
    y = np.asarray(y)
    labels = list(map(str, range(1, len(y) + 1) if rows is None else rows))
    _check(y, labels, uncertainty, lower, upper)
    observed, *ends = floats(y=y, lower=lower, upper=upper)
    own = scores.coverage(observed, Interval(*ends))
    names, drawn = report.names, _drawn(y, prediction)
    sections = {
        "Scores": _scores_section(report, Estimate(own.coverage, own.standard_error)),
        "Calibration": _calibration_section(*drawn, names),
        "Predicted and observed": _observed_section(*drawn, names),
        "Most uncertain rows": _rows_section(labels, y, uncertainty, lower, upper, names),
        "Covariance of targets": _ellipses_section(*drawn, names, report.level),
    }
    about = _table([], [[_cell(key, "th"), _cell(value)] for key, value in facts.items()])
    anchors = (heading.lower().replace(" ", "-") for heading in sections)
    parts = [(anchor, *part) for anchor, part in zip(anchors, sections.items(), strict=True) if part[1]]
    return html.document(title, about, parts, STYLE)


def _check(y: np.ndarray, labels: list[str], uncertainty: Any, lower: np.ndarray, upper: np.ndarray) -> None:
    if not np.isfinite(y).any():
        raise ValueError(f"nothing was observed: all of y, shape {y.shape}, is missing")
    if len(labels) != len(y):
        raise ValueError(f"rows must hold one label for each of {len(y)} rows; got {len(labels)}")
    for name, values in {"lower": lower, "upper": upper, "uncertainty.mean": uncertainty.mean}.items():
        check_same(name, values, y.shape, "y")
    check_same("uncertainty.epistemic", uncertainty.epistemic, (*y.shape, y.shape[1]), "y with one more axis")


def _scores_section(report: Report, own: Estimate) -> str:
    at = f"at {100 * report.level:.4g}%"
    joint: list[tuple[str, Any, str]] = [
        ("negative log-likelihood", report.nll, "−ln p(y), all constants kept; may be negative; lower is better"),
        ("energy score", report.energy_score, "distance between draws and y; lower is better"),
        ("variogram score", report.variogram_score, "sensitive to wrong correlations; lower is better"),
        (f"joint coverage {at}", report.joint_coverage, "rows with all targets inside their ellipsoid"),
    ]
    single: list[tuple[str, Any, str]] = [
        ("RMSE", report.rmse, "error of the mean, in the target's unit"),
        ("CRPS", report.crps, "error of the distribution, in the target's unit; lower is better"),
        (f"interval score {at}", report.interval_score, "width and misses of the intervals; lower is better"),
        (f"coverage {at}", Estimate(*report.coverage[:2]), "fraction inside the prediction's central interval"),
        (f"coverage {at}, as predicted", own, "fraction inside the predicted intervals (conformal if calibrated)"),
        (f"mean width {at}", report.coverage.width, "of the central intervals"),
        ("calibration error", report.calibration_error, "mean gap between observed and nominal coverage; 0 is right"),
        ("ENCE", report.ence, "relative gap between predicted and actual error, by bins; 0 is right"),
        ("AUSE", report.ause, "0 if the most uncertain rows have the largest errors"),
        ("sharpness", report.sharpness, "root of the mean predicted variance"),
    ]
    if len(report.names) == 1:
        joint = [row for row in joint if not row[0].startswith("variogram")]
    note = "<p>± is the standard error of a mean over rows.</p>"
    return note + _scores_table(["all targets"], joint) + _scores_table(report.names, single)


def _scores_table(names: Sequence[str], scores: Iterable[tuple[str, Any, str]]) -> str:
    head = [_cell("", "th"), *(_cell(name, "th", "number") for name in names), _cell("", "th")]
    rows = [
        [_cell(label, "th"), *(_cell(text, "td", "number") for text in cells(values)), _cell(about, "td", "about")]
        for label, values, about in scores
    ]
    return _table([head], rows)


def _calibration_section(y: np.ndarray, prediction: Prediction, names: Sequence[str]) -> str:
    figures = [
        _figure(
            plotting.calibration(y, prediction, names),
            "Fraction of observations inside central intervals and joint regions, against their nominal coverage. "
            "Above the diagonal the model is underconfident, below it overconfident.",
        ),
        _figure(
            plotting.pit(y, prediction, names=names),
            "PIT of each target: flat at 1 if right, ∩ if underconfident, ∪ if overconfident, a slope if biased.",
        ),
    ]
    complete = ~np.isnan(y).any(axis=1)
    if y.shape[1] > 1 and np.isfinite(metrics.joint_pit(y, prediction))[complete].any():
        text = "Joint PIT of all targets: flat at 1 if right, falling if underconfident, rising if overconfident."
        figures.insert(1, _figure(plotting.pit(y, prediction, joint=True), text))
    return _figures(figures)


def _observed_section(y: np.ndarray, prediction: Prediction, names: Sequence[str]) -> str:
    known = [j for j in range(y.shape[1]) if np.isfinite(y[:, j]).any()]
    axes = {names[j]: plotting.predicted_observed(y, prediction, j, names[j]) for j in known[:DRAWN_TARGETS]}
    figures = [_figure(ax, f"{name}: observed against predicted mean.") for name, ax in axes.items()]
    return _figures(figures) + _left_out(len(known) - DRAWN_TARGETS, "targets")


def _ellipses_section(y: np.ndarray, prediction: Prediction, names: Sequence[str], coverage: float) -> str:
    """Figures of pairs; nothing for a single target."""
    pairs = list(itertools.combinations(range(y.shape[1]), 2))
    figures = [
        _figure(
            plotting.ellipses(prediction, targets=pair, coverage=coverage, y=y, names=names),
            f"{names[pair[0]]} and {names[pair[1]]}: predicted covariance of a few rows.",
        )
        for pair in pairs[:DRAWN_PAIRS]
    ]
    return _figures(figures) + _left_out(len(pairs) - DRAWN_PAIRS, "pairs") if pairs else ""


def _left_out(count: int, what: str) -> str:
    return f"<p>{count} more {what} are not drawn.</p>" if count > 0 else ""


def _most_uncertain(y: np.ndarray, uncertainty: Any) -> np.ndarray:
    """Indices of the rows with the largest Σ_j epistemic_jj / Var[y_j], the largest first."""
    spread = np.array([np.std(column[np.isfinite(column)]) if np.isfinite(column).any() else 0.0 for column in y.T])
    variance = np.diagonal(uncertainty.epistemic, axis1=1, axis2=2) / np.where(spread > 0, spread, 1.0) ** 2
    return np.argsort(-np.nan_to_num(variance.sum(axis=1), nan=np.inf), kind="stable")[:LISTED_ROWS]


def _rows_section(
    labels: Sequence[str], y: np.ndarray, uncertainty: Any, lower: np.ndarray, upper: np.ndarray, names: Sequence[str]
) -> str:
    chosen = _most_uncertain(y, uncertainty)
    titles = ("observed", "mean", "interval", "epistemic std")
    groups = [html.element("th", escape(name), class_="first", colspan=str(len(titles))) for name in names]
    columns = [_cell(text, "th", "number first" if text == titles[0] else "number") for text in titles] * len(names)
    body = []
    for i in chosen:
        cells = [_cell(labels[i], "th")]
        for j in range(len(names)):
            std = math.sqrt(uncertainty.epistemic[i, j, j])
            unit = upper[i, j] - lower[i, j]
            values = [_number(value, unit) for value in (y[i, j], uncertainty.mean[i, j], lower[i, j], upper[i, j])]
            texts = [*values[:2], f"{values[2]} to {values[3]}", f"{std:.3g}"]
            cells += [_cell(t, "td", "number" if k else "number first") for k, t in enumerate(texts)]
        body.append(cells)
    order = "by the sum over targets of epistemic variance / variance of the observed target, the largest first"
    note = f"<p>The {len(chosen)} rows with the largest epistemic uncertainty, {order}.</p>"
    return note + _table([['<th rowspan="2">row</th>', *groups], columns], body)


def _number(value: float, unit: float) -> str:
    """The value to three digits of the unit, if that is a plain number; – where there is none."""
    if math.isnan(value):
        return "–"
    decimals = 2 - math.floor(math.log10(unit)) if 0 < unit < math.inf else -1
    return f"{value:.{decimals}f}" if 0 <= decimals <= 9 else f"{value:.6g}"


def _cell(text: str, tag: str = "td", kind: str = "") -> str:
    return html.element(tag, escape(str(text)), class_=kind)


def _table(head: Iterable[Iterable[str]], rows: Iterable[Iterable[str]]) -> str:
    """A table that scrolls separately if it is too wide."""
    return html.element("div", html.table(head, rows), class_="scroll") + "\n"


def _figures(figures: Iterable[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>\n'


def _figure(ax: "Axes", caption: str) -> str:
    """As PNG: a density of points is much larger as SVG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    data = io.BytesIO()
    ax.figure.set_dpi(160)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script the font lacks
        FigureCanvasAgg(ax.figure).print_png(data)  # type: ignore[arg-type]
    return html.figure(data.getvalue(), caption)


def _drawn(y: np.ndarray, prediction: Prediction) -> tuple[np.ndarray, Prediction]:
    """The rows in the figures: all, or `DRAWN_ROWS` evenly spaced ones of those with an observed target."""
    if len(y) <= DRAWN_ROWS:
        return y, prediction
    rows = np.flatnonzero(np.isfinite(y).any(axis=1))
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, DRAWN_ROWS).astype(int))]
    axis = 1 if isinstance(prediction, Mixture) else 0
    return y[rows], jax.tree.map(lambda leaf: leaf.take(rows, axis=axis), prediction)
