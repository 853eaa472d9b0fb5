"""`mder predict`: model file and table to a table of predictions."""

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mder_jax.cli import _tables
from mder_jax.cli._encoding import Encoding, encode
from mder_jax.cli._model import Result, load, shows_progress
from mder_jax.cli._tables import Table


def predict(options: argparse.Namespace) -> Result:
    """Model file and table to a table of predictions."""
    if options.out.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"{options.out}: predictions go to a file that ends in .csv or .parquet")
    _tables.check_output(options.out, options.force)
    table = _tables.open_table(options.table, options.reading)
    _tables.require_columns(table, options.keep, "--keep")
    model, encoding = load(options.model)
    _tables.require_columns(table, encoding.feature_names, "the model")
    flagged = options.reading.bad_rows == "flag"
    names = prediction_names(encoding.target_names) + [_tables.REASON] * flagged
    clash = [name for name in options.keep if name in names]
    if clash:
        raise ValueError(f"--keep {clash[0]}: the predictions have a column of this name")
    for _ in encode(table, encoding._replace(targets=())):  # finds a bad row before anything is predicted
        pass
    batches = _predictions(model, encoding, table, options)
    if flagged:
        batches = _tables.with_bad_rows(batches, table.bad_rows)
    rows = _tables.write_table(options.out, _counted(batches) if shows_progress(options) else batches)
    result = {"predictions": str(options.out), "rows": rows, "columns": [*options.keep, *names]}
    return result, f"{options.out}: {rows:,} rows, {len(encoding.targets)} targets"


def _predictions(model: Any, encoding: Encoding, table: Table, options: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    for block in encode(table, encoding._replace(targets=()), options.keep):
        prediction = model.predict_all(block.X)
        lower, upper = prediction.interval(options.coverage)
        predicted = prediction_columns(encoding.target_names, prediction.uncertainty(), lower, upper)
        if options.out.suffix.lower() == ".csv":
            predicted = {name: _tables.significant(values) for name, values in predicted.items()}
        yield pa.RecordBatch.from_pydict({name: block.cells[name] for name in options.keep} | predicted)


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
