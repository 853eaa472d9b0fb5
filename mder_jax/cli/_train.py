"""`mder train`: table to model file."""

import argparse
import contextlib
import pathlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from mder_jax._messages import listed
from mder_jax.cli import _tables, _training_rows
from mder_jax.cli._accuracy import Accuracy, accuracy, described
from mder_jax.cli._model import MISSING, Result, regressor, shows_progress
from mder_jax.cli._options import BESIDE
from mder_jax.cli._rows import Rows, located

SUSPICIOUS = 0.999  # an R² on rows that were held out


def train(options: argparse.Namespace) -> Result:
    """Table to model file."""
    start = time.monotonic()
    _tables.check_output(options.out, options.force)
    data = _training_rows.read(options)
    rows, held_out = data.rows, data.calibration
    model = regressor()(**_settings(options))
    model.extra_ = {MISSING: list(options.reading.missing)} if options.reading.missing else {}
    special = {"sample_weight": rows.weights, "groups": rows.groups}
    given = {name: values for name, values in special.items() if values is not None}
    folds = {"cv": options.calibrate} if data.calibrates_itself else {}
    if isinstance(options.calibrate, int):
        folds |= given
    with _checkpoint(options) as directory:
        with located(data.table, rows.row_index):
            model.fit(rows.features, rows.Y, checkpoint=directory, target_names=options.targets, **given)
        if held_out is not None:
            _calibrate(model, held_out, options.out, folds)
        _save(model, options.out)
    missing = int(np.isnan(rows.Y).sum())
    found = None if held_out is None or folds else _accuracy_on(model, held_out)
    if found is not None:
        _warn_of_answers(found, options.targets)
    result = {
        "model": str(options.out),
        "members": model.members,
        "rows": len(rows.Y),
        "rows_without_target": data.without_target,
        "rows_without_weight": data.without_weight,
        "calibration_rows": 0 if held_out is None else len(held_out.Y),
        "calibration": held_out and {"fit": model.calibration_.fit, "coverage": model.calibration_.checks},
        "accuracy": found,
        "features": [column.name for column in model.encoding_.columns],
        "left_out": list(model.encoding_.left_out),
        "targets": options.targets,
        "missing_targets": missing,
        "seconds": round(time.monotonic() - start, 3),
    }
    unused = [f"{data.without_target:,} more have no target"] * (data.without_target > 0)
    unused += [f"{data.without_weight:,} more have weight 0"] * (data.without_weight > 0)
    sizes = [
        _number_of(model.members, "member"),
        _number_of(len(rows.Y), "row") + (f" ({', '.join(unused)})" if unused else ""),
        _number_of(len(model.encoding_.columns), "feature"),
        _number_of(len(options.targets), "target") + (f" ({missing:,} values missing)" if missing else ""),
        f"{result['seconds']:.1f} s",
    ]
    lines = [f"{options.out}: {', '.join(sizes)}"]
    if held_out is not None:
        lines.append(str(model.calibration_))
    if held_out is not None and found is not None:
        these = _number_of(len(held_out.Y), "calibration row")
        lines.append(f"accuracy on {these}: {described(found, options.targets)}")
    return result, "\n".join(lines)


def _number_of(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' * (count != 1)}"


def _accuracy_on(model: Any, held_out: Rows) -> Accuracy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is unusual was said when calibrating
        return accuracy(held_out.Y, model.predict_uncertainty(held_out.features).mean)


def _warn_of_answers(found: Accuracy, targets: list[str]) -> None:
    """Warn if a target is predicted so well that a feature may hold it in another form."""
    known = [name for name, r2 in zip(targets, found.r2, strict=True) if r2 > SUSPICIOUS]
    if known:
        advice = "if a feature is computed from it, leave that out with --exclude"
        warnings.warn(f"{listed(known)} is predicted almost exactly (R² above {SUSPICIOUS}); {advice}", stacklevel=2)


def _save(model: Any, path: pathlib.Path) -> None:
    """Save the model; if that fails, in a temporary folder, so that it is not lost."""
    try:
        model.save(path)
    except OSError as error:
        spare = pathlib.Path(tempfile.mkdtemp(prefix="mder-")) / path.name
        model.save(spare)
        raise OSError(f"{path} could not be written ({error}); the trained model was saved as {spare}") from error


def _calibrate(model: Any, rows: Rows, path: pathlib.Path, folds: dict[str, Any]) -> None:
    """Calibrate, with the arguments of folds, if any; if that fails, save the model, so that it is not lost."""
    try:
        model.calibrate(rows.features, rows.Y, **folds)
    except ValueError as error:
        _save(model, path)
        raise ValueError(f"{error}; the trained model is in {path}, not calibrated") from error


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the estimator, except those left to its defaults."""
    given = {
        "members": options.members,
        "hidden_layer_sizes": options.hidden,
        "beside": BESIDE.get(options.beside),
        "max_iter": options.epochs,
        "learning_rate_init": options.learning_rate,
        "validation_fraction": options.validation,
        "early_stopping": "last" if options.last else None,
        "categorical_features": options.categorical or None,
        "target_transform": options.transforms or None,
        "random_state": options.seed,
        "verbose": shows_progress(options),
    }
    return {name: value for name, value in given.items() if value is not None}


@contextlib.contextmanager
def _checkpoint(options: argparse.Namespace) -> Iterator[pathlib.Path]:
    """The directory of checkpoints. Unless the user named it, it is removed after success, and if it holds none."""
    own, directory = options.own_checkpoint, options.checkpoint
    before = directory.exists()
    try:
        yield directory
    except ValueError as error:
        if own and not before and not any(path.name.isdigit() for path in directory.rglob("*")):
            shutil.rmtree(directory, ignore_errors=True)
        if str(directory) in str(error):
            raise ValueError(f"{error}\nRemove {directory} to start anew.") from error
        raise
    if own:
        shutil.rmtree(directory, ignore_errors=True)
