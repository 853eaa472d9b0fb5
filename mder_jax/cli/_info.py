"""`mder info`: a summary of a model file."""

import argparse
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from mder_jax._messages import listed
from mder_jax.cli._model import Result, regressor


def info(options: argparse.Namespace) -> Result:
    """A summary of a model file."""
    from mder_jax import persistence
    from mder_jax.estimator import model_file

    about, arrays = persistence.load(options.model)
    model = model_file.restored(regressor(), options.model, about, arrays)
    return about, "\n".join(_outline(options.model, model, about))


def _outline(path: pathlib.Path, model: Any, about: dict[str, Any]) -> Iterator[str]:
    """The lines of the summary; the JSON holds everything."""
    from mder_jax._arguments import target_names
    from mder_jax.columns.column import described

    design, usual = model.predictor_.design, type(model)().get_params()
    encoding, targets = model.encoding_, target_names(model.target_names_, design.targets)
    chosen = {name: value for name, value in model.get_params().items() if value != usual[name]}
    versions = about.get("versions") or {}
    yield f"{path}: {model.predictor_.members} networks with hidden layers of {_joined(design.widths, ' and ')}"
    if model.predictor_.beside is not None:
        shares = (f"a {kind} with {weight:.0%}" for kind, weight in model.predictor_.beside.weights.items())
        yield f"beside:    {_joined(shares)} of the weight"
    yield f"targets:   {listed(targets)}"
    if model.predictor_.transform is not None:
        yield f"learnt as: {_joined(model.predictor_.transform.labels())}"
    if encoding.names is None:
        yield f"features:  {len(encoding.columns)} columns"
    else:
        yield f"features:  {', '.join(map(described, encoding.columns))}"
    if encoding.left_out:
        yield f"left out:  {listed(encoding.left_out)}"
    yield f"trained:   {model.n_rows_:,} rows, {model.n_iter_} epochs"
    yield f"settings:  {_joined(f'{name} {value}' for name, value in chosen.items()) or 'the defaults'}"
    yield f"written:   {about.get('date')}, {_joined(f'{name} {version}' for name, version in versions.items())}"
    yield str(model.calibration_ or "not calibrated")


def _joined(parts: Iterable[Any], between: str = ", ") -> str:
    return between.join(map(str, parts))
