"""What the commands share: the estimator, imported late, and models with the columns that they read."""

import argparse
import pathlib
import sys
from typing import Any

from mder_jax.cli._encoding import Encoding

MOST_ROWS = 100_000  # for scores and for calibration; of a larger table these are drawn at random
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


def load(path: pathlib.Path) -> tuple[Any, Encoding]:
    """A model of `mder train`, and how it reads columns."""
    model = regressor().load(path)
    if "encoding" not in model.extra_:
        raise ValueError(f"{path} was not written by mder train: it does not say how columns become numbers")
    return model, Encoding.from_json(model.extra_["encoding"])
