"""`mder evaluate`: model file and table to scores, and to a report with figures."""

import argparse
import warnings
from typing import Any

import numpy as np

from mder_jax._files import write_whole
from mder_jax.cli import _tables
from mder_jax.cli._accuracy import accuracy, described
from mder_jax.cli._model import MOST_ROWS, Result, load, used_features, with_unused
from mder_jax.cli._rows import Rows, check_transforms, located, sample, unreadable, warn_of_unreadable
from mder_jax.cli._tables import Table

# Fields of `metrics.Report` with a value per row, and curves: for the figures, too long to print.
PER_ROW = ("joint_pit", "pit", "calibration_curve", "sparsification")
SHOWN = 5  # features of a row in the report


def evaluate(options: argparse.Namespace) -> Result:
    """Model file and table to scores, and to a report with figures."""
    if options.report:
        _tables.check_output(options.report, options.force)
    table = _tables.open_table(options.table, options.reading)
    model, names = load(options.model, table)
    data = _rows(table, model, names, options)
    features = with_unused(data.features, model)
    with located(table, data.row_index):
        prediction = model.predict_all(features)
    trained = _trained_rows(model, prediction.encoded.X, data.Y)
    if trained:
        warnings.warn(f"{trained}; expect worse scores on new rows", stacklevel=2)
    import jax

    from mder_jax import metrics

    transform, interval, uncertainty = (
        model.predictor_.transform,
        prediction.interval(options.coverage),
        prediction.uncertainty(),
    )
    learned = data.Y if transform is None else transform.checked(data.Y)
    labels = names if transform is None else transform.labels()
    sampled = f"{len(data.Y):,} of {data.total:,} rows, drawn at random" if len(data.Y) < data.total else ""
    near = accuracy(data.Y, uncertainty.mean)
    with jax.enable_x64(True):  # in original units: 2020.5 ± 0.001 has no digits left in float32
        distribution = prediction.distribution(transformed=transform is not None)
        report = metrics.report(learned, distribution, options.coverage, labels)
        if transform is not None:
            report = report._replace(nll=_nll(model, features, data.Y))
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
                    "rows": sampled or f"{len(data.Y):,}",
                    "members": str(model.members),
                }
                | ({"rows of the fit": trained} if trained else {}),
                uncertainty=uncertainty,
                lower=interval.lower,
                upper=interval.upper,
                learned=None if transform is None else learned,
                names=names,
                about=lambda rows: _about(table, data.take(rows)),
            )
            write_whole(options.report, page.encode())
    intervals = {"coverage": np.asarray(inside.coverage), "standard_error": np.asarray(inside.standard_error)}
    printed = {name: value for name, value in report._asdict().items() if name not in PER_ROW}
    result = {"rows": data.total, "rows_used": len(data.Y), **printed, "accuracy": near, "intervals": intervals}
    if transform is not None:
        result |= {"names": names, "rmse": near.rmse, "transformed": labels}
    kind = _kind_of_intervals(model, names, options.coverage)
    covered = _coverage_line(names, intervals, f"{options.coverage:g} ({kind})")
    units = f", of {', '.join(labels)} but for nll, which is in original units" if transform is not None else ""
    about = f"scores of the predictive distribution{units}; coverage and width are those of its own quantiles:"
    parts = (sampled, f"accuracy: {described(near, names)}", about, str(report), covered)
    return result, "\n\n".join(part for part in parts if part)


def _rows(table: Table, model: Any, names: list[str], options: argparse.Namespace) -> Rows:
    """The rows to score; with --bad-rows skip without those that have a cell that cannot be read."""
    features = used_features(model)
    _tables.require_columns(table, {"the model": [*features, *names]})
    data = sample(table, features, names, MOST_ROWS)
    if options.reading.bad_rows == "skip":
        encode = model.encoding_.encode
        wrong = unreadable(with_unused(data.features, model), lambda part: encode(part, quiet=True))
        warn_of_unreadable(table, {int(data.row_index[row]): reason for row, reason in wrong.items()}, "left out")
        data = data.take(np.delete(np.arange(len(data.Y)), list(wrong)))
    if np.isnan(data.Y).all():
        raise ValueError(f"{table.path}: no target has a value in any row")
    kinds = zip(names, model.target_transforms_, strict=True)
    check_transforms(table, data, names, {name: kind for name, kind in kinds if isinstance(kind, str)})
    return data


def _nll(model: Any, features: Any, Y: np.ndarray) -> Any:
    """The mean of −ln p(y) in original units, with its standard error."""
    from mder_jax.metrics import scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # said when these rows were predicted
        log_prob = model.log_prob(features, Y)
    return scores.estimate(-log_prob, ~np.isnan(Y).all(axis=1))


def _about(table: Table, rows: Rows) -> dict[str, list[str]]:
    """Where rows are in the file, and their first features, as texts."""
    shown = {name: rows.features[name].to_pylist() for name in rows.features.column_names[:SHOWN]}
    texts = {name: ["–" if value is None else str(value) for value in values] for name, values in shown.items()}
    return {"row": table.places(rows.row_index.tolist())} | texts


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
    return f"coverage of the intervals that mder predict writes, at {coverage}: {each}"
