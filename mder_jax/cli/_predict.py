"""`mder predict`: model file and table to a table of predictions."""

import argparse
import collections
import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mder_jax._messages import quoted
from mder_jax.cli import _tables
from mder_jax.cli._model import Result, load, shows_progress, used_features, with_unused
from mder_jax.cli._rows import cells, located, unreadable, warn_of_unreadable
from mder_jax.cli._tables import Table

UNLIKE = "outside"  # the column that names the columns in which a row is unlike those of training


def predict(options: argparse.Namespace) -> Result:
    """Model file and table to a table of predictions."""
    if options.out.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"{options.out}: predictions go to a file that ends in .csv or .parquet")
    _tables.check_output(options.out, options.force)
    table = _tables.open_table(options.table, options.reading)
    _tables.require_columns(table, {"--keep": options.keep})
    model, targets = load(options.model, table)
    features = used_features(model)
    _tables.require_columns(table, {"the model": features})
    flagged = options.reading.bad_rows == "flag"
    names = [*prediction_names(targets), UNLIKE, *[_tables.REASON] * flagged]
    clash = [name for name in options.keep if name in names]
    if clash:
        raise ValueError(f"--keep {clash[0]}: the predictions have a column of this name")
    seen = _Seen(collections.Counter(), {})
    batches = _predictions(model, features, targets, table, options, seen)
    if flagged:
        for _ in table.blocks(features[:1]):  # finds the bad rows
            pass
        batches = _tables.with_bad_rows(batches, table.bad_rows)
    rows = _tables.write_table(options.out, _counted(batches) if shows_progress(options) else batches)
    what = f"predicted as empty cells, see the column {_tables.REASON}" if flagged else "left out"
    warn_of_unreadable(table, seen.unreadable, what)
    if seen.unlike:
        counts = ", ".join(f"{quoted(name)} in {count:,}" for name, count in seen.unlike.most_common())
        warnings.warn(f"unlike the training rows: {counts} of {rows:,} rows; see the column {UNLIKE}", stacklevel=2)
    result = {"predictions": str(options.out), "rows": rows, "columns": [*options.keep, *names]}
    result |= {"unreadable": len(seen.unreadable), UNLIKE: dict(seen.unlike)}
    return result, f"{options.out}: {rows:,} rows, {len(targets)} target{'s' * (len(targets) > 1)}"


class _Seen(NamedTuple):
    """In how many rows each column is unlike training, and by the row of the file why it cannot be read."""

    unlike: collections.Counter[str]
    unreadable: dict[int, str]


def _predictions(
    model: Any, features: list[str], targets: list[str], table: Table, options: argparse.Namespace, seen: _Seen
) -> Iterator[pa.RecordBatch]:
    """The predictions in blocks; what is unusual about the rows is noted in `seen`."""
    first_row = 0
    for block in table.blocks(list(dict.fromkeys([*features, *options.keep]))):
        rows, wrong = with_unused(cells(table, block, features), model), {}
        if options.reading.bad_rows != "refuse":
            wrong = unreadable(rows, lambda part: model.encoding_.encode(part, quiet=True))
        good = np.delete(np.arange(block.num_rows), list(wrong))
        with located(table, first_row=first_row), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said once, for all blocks
            predicted = _predicted(model, targets, rows.take(pa.array(good)) if wrong else rows, options, seen)
        seen.unreadable.update({first_row + row: reason for row, reason in wrong.items()})
        first_row += block.num_rows
        kept = block.select(options.keep)
        if options.reading.bad_rows == "flag":
            source = np.full(block.num_rows, -1)
            source[good] = np.arange(len(good))
            predicted = predicted.take(pa.array(source, mask=source < 0))
            reasons = pa.array([wrong.get(row) for row in range(block.num_rows)], pa.string())
            predicted = predicted.append_column(_tables.REASON, reasons)
        elif wrong:
            kept = kept.take(pa.array(good))
        yield pa.RecordBatch.from_arrays([*kept.columns, *predicted.columns], [*options.keep, *predicted.schema.names])


def _predicted(
    model: Any, targets: list[str], rows: pa.Table, options: argparse.Namespace, seen: _Seen
) -> pa.RecordBatch:
    """The columns of predictions of these rows, of which there may be none."""
    if not rows.num_rows:
        empty = {name: pa.array([], pa.float64()) for name in prediction_names(targets)}
        return pa.RecordBatch.from_pydict(empty | {UNLIKE: pa.array([], pa.string())})
    prediction = model.predict_all(rows)
    columns = prediction_columns(targets, prediction.uncertainty(), *prediction.interval(options.coverage))
    if options.out.suffix.lower() == ".csv":
        columns = {name: _tables.significant(values) for name, values in columns.items()}
    seen.unlike.update({name: int(outside.sum()) for name, outside in prediction.outside.items()})
    return pa.RecordBatch.from_pydict(columns | {UNLIKE: _named(prediction.outside, rows.num_rows)})


def _named(outside: dict[str, np.ndarray], rows: int) -> pa.Array:
    """For each row the names of the columns in which it is unlike those of training, null if there is none."""
    names: list[str | None] = [None] * rows
    for name, flagged in outside.items():
        for row in np.flatnonzero(flagged):
            names[row] = f"{names[row]}; {name}" if names[row] else name
    return pa.array(names, pa.string())


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, with the number of rows so far on standard error."""
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        print(f"\r{rows:,} rows", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def prediction_names(targets: Sequence[str]) -> list[str]:
    """Names of the columns of a table of predictions: six per target, then the correlation of each pair."""
    parts = ("mean", "std", "aleatoric_std", "epistemic_std", "lower", "upper")
    names = [f"{name}_{part}" for name in targets for part in parts]
    return names + [f"corr_{targets[i]}_{targets[j]}" for i, j in itertools.combinations(range(len(targets)), 2)]


def prediction_columns(
    targets: Sequence[str], parts: Any, lower: np.ndarray, upper: np.ndarray
) -> dict[str, np.ndarray]:
    """The columns of `prediction_names`, (N,) each, from an `Uncertainty` and the ends (N, n) of the intervals."""
    rows, n = parts.mean.shape
    std, aleatoric, epistemic = (
        np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        for covariance in (parts.total, parts.aleatoric, parts.epistemic)
    )
    columns = np.stack([parts.mean, std, aleatoric, epistemic, lower, upper], axis=2).reshape(rows, 6 * n)
    i, j = np.triu_indices(n, 1)
    correlations = parts.total[:, i, j] / (std[:, i] * std[:, j])
    return dict(zip(prediction_names(targets), np.hstack([columns, correlations]).T, strict=True))
