"""What the commands share: the estimator, imported late, and models with the columns that they read."""

import argparse
import pathlib
import sys
from typing import Any

import pyarrow as pa

from mder_jax.cli._tables import Table

MOST_ROWS = 100_000  # for scores and for calibration; of a larger table these are drawn at random
MISSING = "--na"  # in a model file, under extra: the texts that mean a missing value
Result = tuple[dict[str, Any], str]


def regressor() -> Any:
    """The class `MDERRegressor`, which takes seconds to import; compiled programs are cached on disk."""
    from mder_jax import use_compilation_cache

    use_compilation_cache()
    from mder_jax.estimator import MDERRegressor

    return MDERRegressor


def shows_progress(options: argparse.Namespace) -> bool:
    """Whether to show a progress bar: only to a terminal."""
    return not options.quiet and sys.stderr.isatty()


def load(path: pathlib.Path, table: Table) -> tuple[Any, list[str]]:
    """A model that knows its columns by name, and the names of its targets; the table is read as in training."""
    model = regressor().load(path)
    if model.encoding_.names is None or model.target_names_ is None:
        raise ValueError(f"{path} was trained on arrays without names of columns; fit a data frame, or use mder train")
    table.also_missing([str(text) for text in model.extra_.get(MISSING, [])])
    model.flat_ = False  # targets are columns here, also a single one
    return model, model.target_names_


def used_features(model: Any) -> list[str]:
    """The columns that a model reads."""
    return [column.name for column in model.encoding_.columns]


def with_unused(features: pa.Table, model: Any) -> pa.Table:
    """The columns of the training table, those that the model does not read without values."""
    nulls = pa.nulls(features.num_rows)
    own = dict(zip(features.column_names, features.columns, strict=True))
    return pa.table({name: own.get(name, nulls) for name in model.encoding_.names})
