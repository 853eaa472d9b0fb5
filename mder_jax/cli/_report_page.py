"""The report of `mder evaluate`: one self-contained HTML file with scores, figures and the most uncertain rows."""

import io
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mder_jax import metrics, plotting
from mder_jax._checks import check_same, floats
from mder_jax.cli import html
from mder_jax.cli._accuracy import accuracy
from mder_jax.metrics import scores
from mder_jax.metrics.reports import Report, cells
from mder_jax.metrics.scores import Coverage, Estimate, Prediction
from mder_jax.mixture import Mixture
from mder_jax.student_t import Interval, StudentT

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
    learned: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    about: Callable[[np.ndarray], dict[str, list[str]]] | None = None,
) -> str:
    """The report as HTML without script and external links.

    Args:
      y: observations, (N, n), NaN where there is none.
      prediction: of N rows and n targets.
      report: `metrics.report` of these, with the names of the targets and the coverage of the intervals.
      title: heading of the report.
      facts: about model and table, below the heading.
      uncertainty: `mean` (N, n), `aleatoric`, `epistemic` and `total` (N, n, n), in the units of y.
      lower: ends of the intervals, (N, n), in the units of y.
      upper: the other ends.
      learned: the observations in the units of `prediction` and `report`, if these are not the units of y.
      names: of the targets in the units of y; None for those of the report.
      about: a function of indices of rows that returns columns of text about them; the first tells which rows they are.
    """
    y = np.asarray(y)
    learned, named = (y if learned is None else learned), list(report.names if names is None else names)
    _check(y, uncertainty, lower, upper)
    observed, *ends = floats(y=y, lower=lower, upper=upper)
    own = scores.coverage(observed, Interval(*ends))
    rows, drawn = _drawn_rows(y), _drawn(learned, prediction)
    means = _drawn_means(uncertainty, rows)
    sections = {
        "Scores": _accuracy_section(y, uncertainty.mean, own, report.level, named) + _scores_section(report, named),
        "Calibration": _calibration_section(*drawn, report.names),
        "Predicted and observed": _observed_section(y[rows], means, named),
        "Most uncertain rows": _rows_section(about or _numbered, y, uncertainty, lower, upper, named),
        "Covariance of targets": _ellipses_section(*drawn, report.names, report.level),
    }
    introduction = _table([], [[_cell(key, "th"), _cell(value)] for key, value in facts.items()])
    anchors = (heading.lower().replace(" ", "-") for heading in sections)
    parts = [(anchor, *part) for anchor, part in zip(anchors, sections.items(), strict=True) if part[1]]
    return html.document(title, introduction, parts, STYLE)


def _numbered(rows: np.ndarray) -> dict[str, list[str]]:
    return {"row": [str(row + 1) for row in rows]}


def _check(y: np.ndarray, uncertainty: Any, lower: np.ndarray, upper: np.ndarray) -> None:
    if not np.isfinite(y).any():
        raise ValueError(f"nothing was observed: all of y, shape {y.shape}, is missing")
    for name, values in {"lower": lower, "upper": upper, "uncertainty.mean": uncertainty.mean}.items():
        check_same(name, values, y.shape, "y")
    check_same("uncertainty.epistemic", uncertainty.epistemic, (*y.shape, y.shape[1]), "y with one more axis")


def _accuracy_section(y: np.ndarray, mean: np.ndarray, own: Coverage, level: float, names: Sequence[str]) -> str:
    near, at = accuracy(y, mean), f"at {100 * level:.4g}%"
    inside = Estimate(own.coverage, own.standard_error)
    single: list[tuple[str, Any, str]] = [
        ("R²", near.r2, "1 − RMSE²/variance: 1 is right, 0 is no better than predicting the mean of these rows"),
        ("RMSE", near.rmse, "error of the mean, in the target's unit"),
        ("RMSE of predicting the mean", near.spread, "the standard deviation of the target in these rows"),
        (f"coverage {at}, intervals of mder predict", inside, "fraction inside; they are conformal if calibrated"),
        (f"mean width {at}, intervals of mder predict", own.width, "in the target's unit"),
    ]
    return "<p>± is the standard error of a mean over rows.</p>" + _scores_table(names, single)


def _scores_section(report: Report, names: Sequence[str]) -> str:
    at = f"at {100 * report.level:.4g}%"
    joint: list[tuple[str, Any, str]] = [
        ("negative log-likelihood", report.nll, "−ln p(y), all constants kept; may be negative; lower is better"),
        ("energy score", report.energy_score, "distance between draws and y; lower is better"),
        ("variogram score", report.variogram_score, "sensitive to wrong correlations; lower is better"),
        (f"joint coverage {at}, distribution", report.joint_coverage, "rows inside the ellipsoid of the distribution"),
    ]
    single: list[tuple[str, Any, str]] = [
        ("CRPS", report.crps, "error of the distribution, in the target's unit; lower is better"),
        (f"interval score {at}", report.interval_score, "width and misses of the intervals; lower is better"),
        (f"coverage {at}, distribution", Estimate(*report.coverage[:2]), "fraction between its quantiles"),
        (f"mean width {at}, distribution", report.coverage.width, "between its quantiles"),
        ("calibration error", report.calibration_error, "mean gap between observed and nominal coverage; 0 is right"),
        ("ENCE", report.ence, "relative gap between predicted and actual error, by bins; 0 is right"),
        ("AUSE", report.ause, "0 if the most uncertain rows have the largest errors"),
        ("sharpness", report.sharpness, "root of the mean predicted variance"),
    ]
    if len(report.names) == 1:
        joint = [row for row in joint if not row[0].startswith("variogram")]
    changed = [label for label, name in zip(report.names, names, strict=True) if label != name]
    units = f"Of {', '.join(changed)}, except the likelihood, which is of the targets in their units:"
    note = f"<p>{escape(units)}</p>" if changed else ""
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
            "Fraction of observations inside central intervals and joint regions of the distribution, against their "
            "nominal coverage. "
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
    about: Callable[[np.ndarray], dict[str, list[str]]],
    y: np.ndarray,
    uncertainty: Any,
    lower: np.ndarray,
    upper: np.ndarray,
    names: Sequence[str],
) -> str:
    chosen = _most_uncertain(y, uncertainty)
    known = about(chosen)
    titles = ("observed", "mean", "interval", "epistemic std")
    heads = [html.element("th", escape(name), rowspan="2") for name in known]
    groups = [html.element("th", escape(name), class_="first", colspan=str(len(titles))) for name in names]
    columns = [_cell(text, "th", "number first" if text == titles[0] else "number") for text in titles] * len(names)
    body = []
    for i, (label, *features) in zip(chosen, zip(*known.values(), strict=True), strict=True):
        cells = [_cell(label, "th", "number"), *map(_cell, features)]
        for j in range(len(names)):
            std = math.sqrt(uncertainty.epistemic[i, j, j])
            unit = upper[i, j] - lower[i, j]
            values = [_number(value, unit) for value in (y[i, j], uncertainty.mean[i, j], lower[i, j], upper[i, j])]
            texts = [*values[:2], f"{values[2]} to {values[3]}", f"{std:.3g}"]
            cells += [_cell(t, "td", "number" if k else "number first") for k, t in enumerate(texts)]
        body.append(cells)
    order = "by the sum over targets of epistemic variance / variance of the observed target, the largest first"
    note = f"<p>The {len(chosen)} rows with the largest epistemic uncertainty, {order}.</p>"
    return note + _table([[*heads, *groups], columns], body)


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


def _drawn_rows(y: np.ndarray) -> np.ndarray:
    """The rows in the figures: all, or `DRAWN_ROWS` evenly spaced ones of those with an observed target."""
    if len(y) <= DRAWN_ROWS:
        return np.arange(len(y))
    rows = np.flatnonzero(np.isfinite(y).any(axis=1))
    return rows[np.unique(np.linspace(0, len(rows) - 1, DRAWN_ROWS).astype(int))]


def _drawn(y: np.ndarray, prediction: Prediction) -> tuple[np.ndarray, Prediction]:
    """Observations and predictions of these rows."""
    rows, axis = _drawn_rows(y), 1 if isinstance(prediction, Mixture) else 0
    if len(rows) == len(y):
        return y, prediction
    return y[rows], jax.tree.map(lambda leaf: leaf.take(rows, axis=axis), prediction)


def _drawn_means(uncertainty: Any, rows: np.ndarray) -> StudentT:
    """Independent normal distributions with the means and variances of these rows."""
    variance = np.diagonal(uncertainty.total, axis1=1, axis2=2)[rows]
    return StudentT(np.inf, uncertainty.mean[rows], np.sqrt(variance)[:, :, None] * np.eye(variance.shape[1])[None])
