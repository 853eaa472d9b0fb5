"""The rows that `mder train` trains on, and those it calibrates with, checked before training starts."""

import argparse
import filecmp
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mder_jax.cli import _rows, _tables
from mder_jax.cli._model import MOST_ROWS
from mder_jax.cli._predict import prediction_names
from mder_jax.cli._rows import Rows
from mder_jax.cli._tables import Table, TableError, listed, quoted


class TrainingRows(NamedTuple):
    """Rows to train on, rows to calibrate with, and the number of rows without a target, which are not used.

    With folds the rows to calibrate with are those to train on.
    """

    table: Table
    rows: Rows
    calibration: Rows | None
    without_target: int


def read(options: argparse.Namespace) -> TrainingRows:
    """Read the table, and the calibration table if there is one, and choose the rows."""
    table = _tables.open_table(options.table, options.reading)
    features = _feature_names(table, options)
    other = _calibration_table(options, features)
    whole = _rows.read(table, features, options.targets)
    rows = whole.take(~np.isnan(whole.Y).all(axis=1))
    check_targets(table, options.targets, rows.Y)
    calibration, held_out = None, _held_out(len(rows.Y), options)
    if held_out.any():
        rows, calibration = rows.take(~held_out), rows.take(held_out)
        check_targets(table, options.targets, rows.Y, f" that --calibrate {options.calibrate:g} leaves")
    if isinstance(options.calibrate, int):
        calibration = rows
        if options.calibrate > len(rows.Y):
            few = f"more folds than rows with a target, of which {table.path} has {len(rows.Y)}"
            raise ValueError(f"--calibrate cv{options.calibrate}: {few}")
    if other is not None:
        calibration = _rows.sample(other, features, options.targets, MOST_ROWS, options.seed, with_target=True)
        if not len(calibration.Y):
            nothing = "so that there is nothing to calibrate with"
            raise ValueError(f"{other.path}: no row has a value of {listed(options.targets)}, {nothing}")
    return TrainingRows(table, rows, calibration, whole.total - len(held_out))


def _feature_names(table: Table, options: argparse.Namespace) -> list[str]:
    """The columns to learn from: those named, or all that are neither targets nor excluded."""
    _tables.require_columns(table, options.targets, "--targets")
    _tables.require_columns(table, options.features or options.exclude, "--features or --exclude")
    outputs = prediction_names(options.targets)
    if len(set(outputs)) < len(outputs):
        raise ValueError(f"columns of predictions would have the same name; rename {listed(options.targets)}")
    left_out = {*options.targets, *options.exclude}
    features = options.features or [name for name in table.names if name not in left_out]
    if not features:
        raise ValueError(f"{table.path}: no column is left to learn from besides the targets")
    return features


def _calibration_table(options: argparse.Namespace, features: list[str]) -> Table | None:
    """The table that --calibrate names, if it does; it must not be the training table, nor a copy."""
    if not isinstance(options.calibrate, pathlib.Path):
        return None
    other = _tables.open_table(options.calibrate, options.reading)
    if filecmp.cmp(options.table, other.path, shallow=False):
        same = "these are the rows to train on, whose errors are too small to calibrate with"
        raise ValueError(f"--calibrate {other.path}: {same}; give other rows, or a fraction such as 0.2")
    _tables.require_columns(other, [*features, *options.targets], "the table to train on")
    return other


def check_targets(table: Table, names: Sequence[str], Y: np.ndarray, which: str = "") -> None:
    """Raise if nothing can be learnt from the targets Y, (N, n); `which` rows these are is for the message."""
    n = len(names)
    start, known = f"{table.path}: target", ~np.isnan(Y)
    for target in np.flatnonzero(~known.any(axis=0)):
        raise TableError(f"{start} {quoted(names[int(target)])} has no value in any row{which}")
    if len(Y) <= n:
        rows = f"1 row with a target{which} is" if len(Y) == 1 else f"{len(Y)} rows with a target{which} are"
        raise TableError(f"{table.path}: {rows} too few for {n} target{'s' * (n > 1)}; at least {n + 1} are needed")
    for name, values in zip(names, Y.T, strict=True):
        low, high = np.nanmin(values), np.nanmax(values)
        if low == high:
            raise TableError(f"{start} {quoted(name)} is {low:g} in every row{which}; nothing to learn")


def _held_out(rows: int, options: argparse.Namespace) -> np.ndarray:
    """Which rows to calibrate with, (rows,): drawn at random if --calibrate is a fraction, none otherwise."""
    held_out = np.zeros(rows, bool)
    if isinstance(options.calibrate, float):
        size = max(1, round(options.calibrate * rows))
        held_out[np.random.default_rng(options.seed).permutation(rows)[:size]] = True
    return held_out
