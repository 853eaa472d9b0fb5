"""The rows that `mder train` trains on, and those it calibrates with, checked before training starts."""

import argparse
import filecmp
import pathlib
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mder_jax._messages import listed, quoted
from mder_jax.cli import _rows, _tables
from mder_jax.cli._model import MOST_ROWS
from mder_jax.cli._predict import prediction_names
from mder_jax.cli._rows import Rows
from mder_jax.cli._tables import Table, TableError
from mder_jax.columns import learn


class TrainingRows(NamedTuple):
    """Rows to train on, rows to calibrate with, and numbers of rows that are not used: no target, or weight 0.

    `calibrates_itself`: the rows to calibrate with are those to train on.
    """

    table: Table
    rows: Rows
    calibration: Rows | None
    without_target: int
    without_weight: int
    calibrates_itself: bool


def read(options: argparse.Namespace) -> TrainingRows:
    """Read the table, and the calibration table if there is one, and choose the rows."""
    table = _tables.open_table(options.table, options.reading)
    features = _feature_names(table, options)
    other = _calibration_table(options, features)
    whole = _rows.read(table, features, options.targets, options.weights, options.groups)
    rows = whole.take(~np.isnan(whole.Y).all(axis=1))
    without_target = whole.total - len(rows.Y)
    if rows.weights is not None:
        rows = rows.take(rows.weights > 0)
    without_weight = whole.total - without_target - len(rows.Y)
    check_targets(table, options.targets, rows.Y)
    _rows.check_transforms(table, rows, options.targets, options.transforms)
    calibration = None
    if isinstance(options.calibrate, float):
        held_out = _held_out(rows, options)
        rows, calibration = rows.take(~held_out), rows.take(held_out)
        check_targets(table, options.targets, rows.Y, f" that --calibrate {options.calibrate:g} leaves")
    itself = isinstance(options.calibrate, int | str)
    if isinstance(options.calibrate, int) and options.calibrate > len(rows.Y):
        few = f"more folds than rows with a target, of which {table.path} has {len(rows.Y)}"
        raise ValueError(f"--calibrate cv{options.calibrate}: {few}")
    if other is not None:
        calibration = _rows.sample(other, features, options.targets, MOST_ROWS, options.seed, with_target=True)
        if not len(calibration.Y):
            nothing = "so that there is nothing to calibrate with"
            raise ValueError(f"{other.path}: no row has a value of {listed(options.targets)}, {nothing}")
        _rows.check_transforms(other, calibration, options.targets, options.transforms)
    if calibration is not None:
        _check_calibration(table, rows, other or table, calibration, options.categorical)
    return TrainingRows(table, rows, rows if itself else calibration, without_target, without_weight, itself)


def _feature_names(table: Table, options: argparse.Namespace) -> list[str]:
    """The columns to learn from: those named, or all that have no other use and are not excluded."""
    special = {"--weights": options.weights, "--groups": options.groups}
    named = {"--targets": options.targets, "--features": options.features or [], "--exclude": options.exclude}
    named |= {"--categorical": options.categorical} | {flag: [name] for flag, name in special.items() if name}
    _tables.require_columns(table, named)
    outputs = prediction_names(options.targets)
    if len(set(outputs)) < len(outputs):
        raise ValueError(f"columns of predictions would have the same name; rename {listed(options.targets)}")
    left_out = {*options.targets, *options.exclude, *special.values()}
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
    _tables.require_columns(other, {"the table to train on": [*features, *options.targets]})
    return other


def _check_calibration(table: Table, rows: Rows, other: Table, calibration: Rows, categorical: Sequence[str]) -> None:
    """Raise if a cell to calibrate with cannot be read, or most of these rows are rows to train on."""
    from mder_jax.estimator import trained_rows

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # said by the fit
        with _rows.located(table, rows.row_index):
            encoding, training = learn(rows.features, categorical)
        with _rows.located(other, calibration.row_index):
            X = encoding.encode(calibration.features, quiet=True).X
    if other is not table:
        known = trained_rows.remember(training.X, rows.Y)
        found, fraction = trained_rows.found_among(known, X, calibration.Y)
        if fraction >= trained_rows.REFUSED:
            these = f"{found:,} of {len(X):,} rows are rows to train on"
            raise TableError(f"{other.path}: {these}; calibrate with others, or with a fraction such as 0.2")


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


def _held_out(rows: Rows, options: argparse.Namespace) -> np.ndarray:
    """Which rows to calibrate with, (N,): drawn at random, in whole groups if there are any, or the last ones."""
    total, random = len(rows.Y), np.random.default_rng(options.seed)
    size = max(1, round(options.calibrate * total))
    if options.last:
        return np.arange(total) >= total - size
    if rows.groups is None:
        return np.isin(np.arange(total), random.permutation(total)[:size])
    groups = random.permutation(np.unique(rows.groups))
    sizes = np.cumsum([np.sum(rows.groups == group) for group in groups])
    nearest = int(np.abs(sizes - size).argmin())
    return np.isin(rows.groups, groups[: nearest + 1])
