"""`mder evaluate`: model file and table to scores, and to a report with figures."""

import argparse
import warnings
from typing import Any

import numpy as np

from mder_jax._files import write_whole
from mder_jax.cli import _tables
from mder_jax.cli._model import MOST_ROWS, Result, load, used_features, with_unused
from mder_jax.cli._rows import located, sample

# Fields of `metrics.Report` with a value per row, and curves: for the figures, too long to print.
PER_ROW = ("joint_pit", "pit", "calibration_curve", "sparsification")


def evaluate(options: argparse.Namespace) -> Result:
    """Model file and table to scores, and to a report with figures."""
    if options.report:
        _tables.check_output(options.report, options.force)
    table = _tables.open_table(options.table, options.reading)
    model, names = load(options.model)
    _tables.require_columns(table, names, "the model")
    data = sample(table, used_features(table, model), names, MOST_ROWS)
    if np.isnan(data.Y).all():
        raise ValueError(f"{table.path}: no target has a value in any row")
    with located(table, data.row_index):
        prediction = model.predict_all(with_unused(data.features, model))
    trained = _trained_rows(model, prediction.encoded.X, data.Y)
    if trained:
        warnings.warn(f"{trained}; expect worse scores on new rows", stacklevel=2)
    import jax

    from mder_jax import metrics

    interval = prediction.interval(options.coverage)
    sampled = f"{len(data.Y):,} of {data.total:,} rows, drawn at random" if len(data.Y) < data.total else ""
    with jax.enable_x64(True):  # in original units: 2020.5 ± 0.001 has no digits left in float32
        distribution = prediction.distribution()
        report = metrics.report(data.Y, distribution, options.coverage, names)
        inside = metrics.scores.coverage(data.Y, interval)
        if options.report:
            from mder_jax.cli import _report_page

            page = _report_page.evaluation_page(
                data.Y,
                distribution,
                report,
                title=f"{options.model.name} on {options.table.name}",
                facts={
                    "model": str(options.model),
                    "table": str(options.table),
                    "rows": sampled or f"{data.total:,}",
                    "members": str(model.members),
                }
                | ({"rows of the fit": trained} if trained else {}),
                uncertainty=prediction.uncertainty(),
                lower=interval.lower,
                upper=interval.upper,
                rows=list(data.row_index + 1),
            )
            write_whole(options.report, page.encode())
    intervals = {"coverage": np.asarray(inside.coverage), "standard_error": np.asarray(inside.standard_error)}
    printed = {name: value for name, value in report._asdict().items() if name not in PER_ROW}
    result = {"rows": data.total, "rows_used": len(data.Y), **printed, "intervals": intervals}
    kind = _kind_of_intervals(model, names, options.coverage)
    covered = _coverage_line(names, intervals, f"{options.coverage:g} ({kind})")
    return result, "\n\n".join(part for part in (sampled, str(report), covered) if part)


def _trained_rows(model: Any, X: np.ndarray, Y: np.ndarray) -> str:
    """How many of the rows are rows of the fit, if that is worth saying."""
    from mder_jax.estimator import trained_rows

    found, fraction = trained_rows.found_among(model.trained_rows_, X, Y)
    these = f"{found:,} of {len(Y):,} rows are rows that the model was trained on"
    return these if fraction >= trained_rows.NOTICED else ""


def _kind_of_intervals(model: Any, targets: list[str], coverage: float) -> str:
    """Whether they are conformal, for which each target needs enough calibration rows."""
    own, names = "the model's own quantiles", np.array(targets)
    if model.calibration_ is None:
        return own
    conformal = np.isfinite(model.calibration_.radius(coverage, joint=False))
    if conformal.all() or not conformal.any():
        return "conformal" if conformal.all() else own
    return f"conformal for {', '.join(names[conformal])}; {own} for {', '.join(names[~conformal])}"


def _coverage_line(names: list[str], intervals: dict[str, np.ndarray], coverage: str) -> str:
    fractions = zip(names, intervals["coverage"], intervals["standard_error"], strict=True)
    each = ", ".join(
        f"{name} not observed" if np.isnan(fraction) else f"{name} {fraction:.3f} ± {error:.3f}"
        for name, fraction, error in fractions
    )
    return f"inside the intervals of mder predict at {coverage}: {each}"
