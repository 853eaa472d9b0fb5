"""`mder train`: table to model file."""

import argparse
import contextlib
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mder_jax.cli import _tables, _training_rows
from mder_jax.cli._model import Result, regressor, shows_progress
from mder_jax.cli._rows import Rows, located


def train(options: argparse.Namespace) -> Result:
    """Table to model file."""
    start = time.monotonic()
    _tables.check_output(options.out, options.force)
    data = _training_rows.read(options)
    rows, held_out = data.rows, data.calibration
    model = regressor()(**_settings(options))
    with _checkpoint(options) as directory, located(data.table, rows.row_index):
        model.fit(rows.features, rows.Y, checkpoint=directory, target_names=options.targets)
        if held_out is not None:
            _calibrate(model, held_out, options.out, options.calibrate)
        _save(model, options.out)
    missing = int(np.isnan(rows.Y).sum())
    result = {
        "model": str(options.out),
        "members": model.members,
        "rows": len(rows.Y),
        "rows_without_target": data.without_target,
        "calibration_rows": 0 if held_out is None else len(held_out.Y),
        "calibration": held_out and {"fit": model.calibration_.fit, "coverage": model.calibration_.checks},
        "features": [column.name for column in model.encoding_.columns],
        "left_out": list(model.encoding_.left_out),
        "targets": options.targets,
        "missing_targets": missing,
        "seconds": round(time.monotonic() - start, 3),
    }
    more = f" ({data.without_target:,} more have no target)" if data.without_target else ""
    sizes = f"{model.members} members, {len(rows.Y):,} rows{more}, {len(model.encoding_.columns)} features"
    gaps = f" ({missing:,} values missing)" if missing else ""
    text = f"{options.out}: {sizes}, {len(options.targets)} targets{gaps}, {result['seconds']:.1f} s"
    return result, text if held_out is None else f"{text}\n{model.calibration_}"


def _save(model: Any, path: pathlib.Path) -> None:
    """Save the model; if that fails, in a temporary folder, so that it is not lost."""
    try:
        model.save(path)
    except OSError as error:
        spare = pathlib.Path(tempfile.mkdtemp(prefix="mder-")) / path.name
        model.save(spare)
        raise OSError(f"{path} could not be written ({error}); the trained model was saved as {spare}") from error


def _calibrate(model: Any, rows: Rows, path: pathlib.Path, kind: Any) -> None:
    """Calibrate, with folds if `kind` is their number; if that fails, save the model, so that it is not lost."""
    folds = {"cv": kind} if isinstance(kind, int) else {}
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
        "max_iter": options.epochs,
        "learning_rate_init": options.learning_rate,
        "validation_fraction": options.validation,
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
        if own and not before and not any(path.name.isdigit() for path in directory.glob("*")):
            shutil.rmtree(directory, ignore_errors=True)
        if str(directory) in str(error):
            raise ValueError(f"{error}\nRemove {directory} to start anew.") from error
        raise
    if own:
        shutil.rmtree(directory, ignore_errors=True)
