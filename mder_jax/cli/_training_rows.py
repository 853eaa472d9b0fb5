"""The rows that `mder train` trains on, and those it calibrates with, checked before training starts."""

import argparse
import filecmp
import pathlib
import warnings
from typing import NamedTuple

import numpy as np

from mder_jax.cli import _tables
from mder_jax.cli._column_kinds import Learnt, learn
from mder_jax.cli._encoding import Column, Encoding, sample
from mder_jax.cli._model import MOST_ROWS
from mder_jax.cli._predict import prediction_names
from mder_jax.cli._tables import Table, TableError, listed, quoted


class TrainingRows(NamedTuple):
    """X (N, d) and Y (N, n) to train on, with their encoding, X and Y to calibrate with, and unused rows."""

    encoding: Encoding
    X: np.ndarray
    Y: np.ndarray
    calibration: tuple[np.ndarray, np.ndarray] | None
    without_target: int


def read(options: argparse.Namespace) -> TrainingRows:
    """Read the table, and the calibration table if there is one, and choose the rows."""
    table = _tables.open_table(options.table, options.reading)
    features = _feature_names(table, options)
    other = _calibration_table(options, features)
    learnt = learn(table, features, options.targets)
    check_targets(table, learnt.encoding, learnt.Y)
    held_out = _held_out(len(learnt.Y), options)
    if held_out.any():
        check_targets(table, learnt.encoding, learnt.Y[~held_out], f" that --calibrate {options.calibrate:g} leaves")
    rows = _split(table, learnt, held_out)
    _warn_of_constant_features(rows, " that is trained on" if len(rows.X) < learnt.total else "")
    return rows if other is None else rows._replace(calibration=_calibration_rows(other, rows, options))


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


def check_targets(table: Table, encoding: Encoding, Y: np.ndarray, which: str = "") -> None:
    """Raise if nothing can be learnt from the targets Y, (N, n); `which` rows these are is for the message."""
    n = len(encoding.targets)
    start, known = f"{table.path}: target", ~np.isnan(Y)
    for target in np.flatnonzero(~known.any(axis=0)):
        raise TableError(f"{start} {quoted(encoding.target_names[target])} has no value in any row{which}")
    if len(Y) <= n:
        rows = f"1 row with a target{which} is" if len(Y) == 1 else f"{len(Y)} rows with a target{which} are"
        raise TableError(f"{table.path}: {rows} too few for {n} target{'s' * (n > 1)}; at least {n + 1} are needed")
    for name, values in zip(encoding.target_names, Y.T, strict=True):
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


def _split(table: Table, learnt: Learnt, held_out: np.ndarray) -> TrainingRows:
    """The rows to train on and those held out, with the categories that are trained on.

    Rows held out with another category are dropped: `predict` refuses such rows, and those that remain should be like
    the rows that it accepts.
    """
    columns, values, known = [], [], np.ones(len(held_out), bool)
    for column, cells in zip(learnt.encoding.features, learnt.features, strict=True):
        if column.kind == "category":
            column, cells = _trained_categories(column, cells, ~held_out)
            known &= cells >= 0
        columns.append(column)
        values.append(cells)
    encoding, without_target = learnt.encoding._replace(features=tuple(columns)), learnt.total - len(held_out)
    X, Y, calibration = encoding.one_hot(values), learnt.Y, None
    if held_out.any():
        kept = held_out & known
        _check_dropped(table, int(held_out.sum()), int(kept.sum()))
        X, Y, calibration = X[~held_out], Y[~held_out], (X[kept], Y[kept])
    return TrainingRows(encoding, X, Y, calibration, without_target)


def _trained_categories(column: Column, index: np.ndarray, trained: np.ndarray) -> tuple[Column, np.ndarray]:
    """The column with only the categories of the rows to train on, and their indices, -1 for any other."""
    used = np.unique(index[trained]).astype(int)
    lost = [category for i, category in enumerate(column.categories) if i not in used]
    if not lost:
        return column, index
    where = f"is {listed(lost)} only in rows that are not trained on"
    warnings.warn(f"column {column.name!r} {where}; mder predict will refuse such rows", stacklevel=2)
    new = np.full(len(column.categories), -1)
    new[used] = np.arange(len(used))
    return column._replace(categories=tuple(column.categories[i] for i in used)), new[index.astype(int)]


def _check_dropped(table: Table, held_out: int, kept: int) -> None:
    if not kept:
        raise ValueError(f"{table.path}: each row held out to calibrate has a category that no other row has")
    if kept < held_out:
        count = f"{held_out - kept:,} of {held_out:,} rows held out to calibrate"
        warnings.warn(f"{count} are left out: they have a category that is not trained on", stacklevel=2)


def _warn_of_constant_features(rows: TrainingRows, which: str) -> None:
    owners = [column.name for column in rows.encoding.features for _ in range(column.width)]
    for name, same in zip(owners, rows.X.min(axis=0) == rows.X.max(axis=0), strict=True):
        if same:
            warnings.warn(f"column {name!r} is the same in every row{which}; nothing is learnt from it", stacklevel=2)


def _calibration_rows(table: Table, rows: TrainingRows, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the calibration table with a target; an error if half of them are trained on."""
    from mder_jax.estimator import trained_rows

    X, Y, *_ = sample(table, rows.encoding, MOST_ROWS, options.seed, with_target=True)
    if not len(Y):
        targets = listed(rows.encoding.target_names)
        raise ValueError(f"{table.path}: no row has a value of {targets}, so that there is nothing to calibrate with")
    found, fraction = trained_rows.found_among(trained_rows.remember(rows.X, rows.Y), X, Y)
    if fraction >= trained_rows.REFUSED:
        these = f"{found:,} of {len(X):,} rows are rows to train on"
        raise ValueError(f"{table.path}: {these}; calibrate with others, or give a fraction such as 0.2")
    return X, Y
