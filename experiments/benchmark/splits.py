"""What a method gets: training and test rows of all splits of a table, standardised on the training part."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

TRAINING_FRACTION = 0.9


class Tasks(NamedTuple):
    """S splits of one table, in float32: X and Y (S, N, ·) to learn from, X_test and Y_test (S, K, ·) to be scored on.

    Inputs and targets are in standard deviations of the training part; `unit` (S, n) is that of the targets. A missing
    input is the mean. `rows` (S, K) are the indices of the test rows in the table, `outside` (S, K) those of them that
    are unlike the training part, a mask; only part D has any.
    """

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray
    unit: np.ndarray
    rows: np.ndarray
    outside: np.ndarray

    @property
    def splits(self) -> int:
        """How many splits."""
        return len(self.X)

    @property
    def targets(self) -> int:
        """How many targets."""
        return self.Y.shape[-1]

    @property
    def training_rows(self) -> int:
        """How many rows there are to learn from."""
        return self.X.shape[1]

    @property
    def inputs(self) -> int:
        """How many inputs."""
        return self.X.shape[2]

    def first(self, count: int | None) -> "Tasks":
        """The first splits only; all of them for None."""
        return Tasks(*(field[:count] for field in self))


class TableTasks(NamedTuple):
    """S splits of one table as it is: inputs have columns of any kind, with gaps.

    Targets Y (S, N, n) and Y_test (S, K, n) are standardised as in `Tasks`, in `unit` (S, n). `train` (S, N) and `rows`
    (S, K) are indices of rows of the table.
    """

    table: pa.Table
    train: np.ndarray
    Y: np.ndarray
    rows: np.ndarray
    Y_test: np.ndarray
    unit: np.ndarray

    @property
    def splits(self) -> int:
        """How many splits."""
        return len(self.train)

    @property
    def targets(self) -> int:
        """How many targets."""
        return self.Y.shape[-1]

    @property
    def training_rows(self) -> int:
        """How many rows there are to learn from."""
        return self.train.shape[1]

    @property
    def inputs(self) -> int:
        """How many columns of inputs."""
        return self.table.num_columns

    def first(self, count: int | None) -> "TableTasks":
        """The first splits only; all of them for None."""
        return TableTasks(self.table, *(field[:count] for field in self[1:]))


def seeded_splits(rows: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The 90/10 splits of Hernández-Lobato and Adams (2015): training and test rows, the same on every machine."""
    random = np.random.RandomState(1)
    orders = [random.choice(range(rows), rows, replace=False) for _ in range(count)]
    cut = round(TRAINING_FRACTION * rows)
    return [(order[:cut], order[cut:]) for order in orders]


def make_tasks(X: np.ndarray, Y: np.ndarray, splits: Sequence[tuple[np.ndarray, np.ndarray]]) -> Tasks:
    """Standardise the table for each split; all splits must have the same numbers of rows."""
    return joined([_one_split(X, Y, train, test) for train, test in splits])


def make_table_tasks(table: pa.Table, Y: np.ndarray, splits: Sequence[tuple[np.ndarray, np.ndarray]]) -> TableTasks:
    """Standardise the targets for each split, and leave the inputs as they are."""
    train, rows = (np.stack(parts) for parts in zip(*splits, strict=True))
    values, unit = zip(*(_standardized(Y, part) for part in train), strict=True)
    learnt, scored = (np.stack([y[part] for y, part in zip(values, of, strict=True)]) for of in (train, rows))
    return TableTasks(table, train, learnt, rows, scored, np.stack(unit))


def _one_split(X: np.ndarray, Y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Tasks:
    (inputs, _), (targets, unit) = _standardized(X, train), _standardized(Y, train)
    inputs = np.nan_to_num(inputs)
    outside = np.zeros(len(test), bool)
    fields = (inputs[train], targets[train], inputs[test], targets[test], unit, test, outside)
    return Tasks(*(field[None] for field in fields))


def _standardized(values: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(values − mean)/std of the training rows, NaN left out, and the std, 1 if a column is constant up to rounding."""
    mean = np.nanmean(values[train], axis=0, dtype=np.float64)
    std = np.nanstd(values[train], axis=0, dtype=np.float64)
    std = np.where(std <= 16 * np.finfo(np.float64).eps * np.abs(mean), 1.0, std)
    return np.asarray((values - mean) / std, np.float32), std


def joined(parts: Sequence[Tasks]) -> Tasks:
    """The splits of all parts, one after the other."""
    return Tasks(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def set_apart(tasks: Tasks, fraction: float) -> tuple[Tasks, np.ndarray, np.ndarray]:
    """Take the last rows of each training part away, and return them: they lie in random order already."""
    kept = tasks.X.shape[1] - int(np.ceil(fraction * tasks.X.shape[1]))
    return tasks._replace(X=tasks.X[:, :kept], Y=tasks.Y[:, :kept]), tasks.X[:, kept:], tasks.Y[:, kept:]
